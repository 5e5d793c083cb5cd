#include "sort.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <utility>

#include "apps/hints.h"
#include "parallel.h"

// Every scan is `.sequential`, but for the merge's input: one line there walks over several runs in turn.

namespace psort {

namespace {

using element = std::uint64_t;

// 32 pages: such a part fits into any budget, and hints would only take time.
constexpr std::ptrdiff_t small_elements = 1 << 14;

element median(element a, element b, element c) {
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

// Hoare's partition. The result lies after `first` and before `last`; no element before it is greater than one from it
// on. Requires three elements.
element* split(element* first, element* last) {
  const element pivot = median(*first, first[(last - first) / 2], last[-1]);
  element* left = first;
  element* right = last - 1;
  for (;; ++left, --right) {
    // Before the scans and not in them, which take a nanosecond a step: few are longer than what is read ahead.
    far_hint(left, .mutate = true, .read_ahead = 64, .sequential = true);
    far_hint(right, .mutate = true, .read_ahead = -64, .sequential = true);
    while (*left < pivot) ++left;
    while (*right > pivot) --right;
    if (left >= right) return right + 1;
    std::swap(*left, *right);
  }
}

// Quicksort as long as the range is large. Splits that go wrong more than `splits` times are left to std::sort, which
// bounds the time for any input.
void sort_range(element* first, element* last, int splits) {
  for (; last - first > small_elements && splits > 0; --splits) {
    element* const middle = split(first, last);
    if (middle - first < last - middle) {
      sort_range(first, middle, splits - 1);
      first = middle;
    } else {
      sort_range(middle, last, splits - 1);
      last = middle;
    }
  }
  std::sort(first, last);
}

// A sorted run that is being merged.
struct run {
  const element* next;
  const element* end;
};

// Puts the first of a heap of runs, ordered by their next element, where it belongs.
void sift_down(std::vector<run>& heap) {
  std::size_t hole = 0;
  const run sinking = heap[0];
  for (std::size_t child = 1; child < heap.size(); child = 2 * hole + 1) {
    if (child + 1 < heap.size() && *heap[child + 1].next < *heap[child].next) ++child;
    if (*sinking.next <= *heap[child].next) break;
    heap[hole] = heap[child];
    hole = child;
  }
  heap[hole] = sinking;
}

void merge(std::vector<run> heap, element* target) {
  std::erase_if(heap, [](const run& one) { return one.next == one.end; });
  std::sort(heap.begin(), heap.end(), [](const run& a, const run& b) { return *a.next < *b.next; });
  while (!heap.empty()) {
    run& least = heap.front();
    far_hint(least.next, .read_ahead = 64);
    far_hint(target, .mutate = true, .read_ahead = 64, .sequential = true);
    *target++ = *least.next++;
    if (least.next == least.end) {
      least = heap.back();
      heap.pop_back();
    }
    if (!heap.empty()) sift_down(heap);
  }
}

class sorting {
 public:
  sorting(std::vector<element>& values, unsigned threads)
      : values_(values),
        threads_(static_cast<unsigned>(std::clamp<std::size_t>(values.size(), 1, threads))),
        exchanged_(std::make_unique_for_overwrite<element[]>(values.size())),
        samples_(std::size_t{threads_} * threads_),
        cuts_(threads_),
        bucket_starts_(threads_ + 1) {}

  void sort_blocks() {
    in_parallel(threads_, [this](unsigned i) {
      element* const data = values_.data();
      const std::size_t size = block_start(i + 1) - block_start(i);
      sort_range(data + block_start(i), data + block_start(i + 1), static_cast<int>(2 * std::bit_width(size)));
    });
  }

  // As many from each block as there are blocks, at regular distances.
  void take_samples() {
    if (values_.empty()) return;
    in_parallel(threads_, [this](unsigned i) {
      const std::size_t first = block_start(i);
      const std::size_t size = block_start(i + 1) - first;
      for (std::size_t k = 0; k < threads_; ++k) samples_[i * threads_ + k] = values_[first + k * size / threads_];
    });
  }

  void choose_pivots() {
    std::sort(samples_.begin(), samples_.end());
    for (std::size_t j = 1; j < threads_; ++j) pivots_.push_back(samples_[j * threads_ + threads_ / 2 - 1]);
  }

  // Bucket j gets what is greater than pivot j - 1 and not greater than pivot j.
  void partition() {
    in_parallel(threads_, [this](unsigned i) {
      const element* const data = values_.data();
      const element* const end = data + block_start(i + 1);
      const element* cut = data + block_start(i);
      cuts_[i].push_back(cut);
      for (const element pivot : pivots_) cuts_[i].push_back(cut = std::upper_bound(cut, end, pivot));
      cuts_[i].push_back(end);
    });
    for (unsigned j = 0; j < threads_; ++j) {
      bucket_starts_[j + 1] = bucket_starts_[j];
      for (const auto& cuts : cuts_) bucket_starts_[j + 1] += static_cast<std::size_t>(cuts[j + 1] - cuts[j]);
    }
  }

  // Brings the pieces of each bucket together.
  void exchange() {
    in_parallel(threads_, [this](unsigned j) {
      element* target = exchanged_.get() + bucket_starts_[j];
      for (const auto& cuts : cuts_) {
        for (const element* source = cuts[j]; source != cuts[j + 1]; ++source, ++target) {
          far_hint(source, .read_ahead = 64, .sequential = true);
          far_hint(target, .mutate = true, .read_ahead = 64, .sequential = true);
          *target = *source;
        }
      }
    });
  }

  void merge_buckets() {
    in_parallel(threads_, [this](unsigned j) {
      std::vector<run> runs;
      const element* start = exchanged_.get() + bucket_starts_[j];
      for (const auto& cuts : cuts_) {
        const element* const end = start + (cuts[j + 1] - cuts[j]);
        runs.push_back({start, end});
        start = end;
      }
      merge(std::move(runs), values_.data() + bucket_starts_[j]);
    });
  }

 private:
  std::size_t block_start(unsigned i) const {
    return values_.size() / threads_ * i + std::min<std::size_t>(i, values_.size() % threads_);
  }

  std::vector<element>& values_;
  const unsigned threads_;  // at most one for each element
  std::unique_ptr<element[]> exchanged_;
  std::vector<element> samples_;
  std::vector<element> pivots_;
  std::vector<std::vector<const element*>> cuts_;  // by block: where the piece of each bucket begins, and the end
  std::vector<std::size_t> bucket_starts_;
};

}  // namespace

void sort(std::vector<element>& values, unsigned threads, apps::phases& phases) {
  sorting work(values, threads);
  phases.run("local_sort", [&work] { work.sort_blocks(); });
  phases.run("sample", [&work] { work.take_samples(); });
  phases.run("pivots", [&work] { work.choose_pivots(); });
  phases.run("partition", [&work] { work.partition(); });
  phases.run("exchange", [&work] { work.exchange(); });
  phases.run("merge", [&work] { work.merge_buckets(); });
}

}  // namespace psort
