// One policy under one workload, for `farheap-bench policies`: a thread that visits pages and gives a hint before each.
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "base/units.h"
#include "clocks.h"
#include "common/json.h"
#include "far/hint.h"
#include "heap_bench.h"
#include "pager/hints.h"
#include "pager/pager.h"

namespace far::bench {
namespace {

// Page numbers by Zipf's law over a shuffled order, by inversion of the distribution function.
class zipf_pages {
 public:
  zipf_pages(std::size_t pages, double exponent) : sums_(pages), order_(pages) {
    double sum = 0;
    for (std::size_t i = 0; i < pages; ++i) {
      sum += std::pow(static_cast<double>(i + 1), -exponent);
      sums_[i] = sum;
      order_[i] = static_cast<std::uint32_t>(i);
    }
    random_numbers random(3);
    for (std::size_t i = pages - 1; i > 0; --i) std::swap(order_[i], order_[random.below(i + 1)]);
  }
  [[nodiscard]] std::size_t next(random_numbers& random) const {
    const double at = static_cast<double>(random.next() >> 11) * 0x1p-53 * sums_.back();
    const auto found = std::lower_bound(sums_.begin(), sums_.end(), at) - sums_.begin();
    return order_[std::min<std::size_t>(static_cast<std::size_t>(found), order_.size() - 1)];
  }

 private:
  std::vector<double> sums_;
  std::vector<std::uint32_t> order_;
};

// The walk of a workload: its next page, and the hint for it.
class workload_walk {
 public:
  workload_walk(const std::string& name, std::size_t pages)
      : name_(name), pages_(pages), popular_(name == "mixed" ? pages / 2 : pages, 0.99) {}

  struct visit {
    std::size_t page;
    bool passing;  // will not be wanted again soon
  };
  visit next() {
    if (name_ == "loop") return {walked_++ % pages_, false};
    if (name_ == "zipf") return {popular_.next(random_), false};
    // Four of five accesses go to one half, by popularity; the others walk over the other half, page after page.
    if (random_.below(5) > 0) return {popular_.next(random_), false};
    return {pages_ / 2 + walked_++ % (pages_ / 2), true};
  }

 private:
  std::string name_;
  std::size_t pages_;
  zipf_pages popular_;
  random_numbers random_{17};
  std::size_t walked_ = 0;
};

std::uint64_t visit_pages(workload_walk& walk, std::byte* start, std::size_t visits) {
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < visits; ++i) {
    const workload_walk::visit next = walk.next();
    auto* const number = reinterpret_cast<std::uint64_t*>(start + next.page * page_bytes);
    far_hint(number, .eviction_priority = static_cast<unsigned char>(next.passing ? 3 : 0));
    wrong += *number == next.page ? 0 : 1;
  }
  return wrong;
}

// The cost of a hint about memory that is all local: with hints, and the same without.
double measure_recording(workload_walk& walk, std::byte* start, std::size_t visits) {
  std::vector<std::uint32_t> order(std::size_t{1} << 16);
  for (std::uint32_t& page : order) page = static_cast<std::uint32_t>(walk.next().page);
  std::uint64_t sum = 0;
  const auto pass = [&](bool hinted) {
    const std::uint64_t start_ns = thread_cpu_ns();
    for (std::size_t i = 0; i < visits; ++i) {
      auto* const number = reinterpret_cast<volatile std::uint64_t*>(start + order[i % order.size()] * page_bytes);
      if (hinted) far_hint(const_cast<std::uint64_t*>(number));
      sum += *number;
    }
    return static_cast<double>(thread_cpu_ns() - start_ns) / static_cast<double>(visits);
  };
  static_cast<void>(pass(true));
  const double without = pass(false);
  return pass(true) - without;
}

}  // namespace

result<evaluation::json> policies_child(const evaluation::json& assignment) {
  const auto bytes = assignment.at("bytes").get<std::uint64_t>();
  const auto visits = assignment.at("visits").get<std::size_t>();
  pager::options chosen;
  chosen.budget_bytes = assignment.at("local_bytes").get<std::uint64_t>();
  chosen.mode = pager::fault_mode::in_line;
  chosen.policy = assignment.at("policy").get<std::string>();
  result<std::unique_ptr<pager::pager>> created = pager::pager::create(chosen);
  if (!created) return created.error();
  const std::unique_ptr<pager::pager> far = std::move(created).value();
  pager::serve_hints(*far);
  const result<std::byte*> mapped = far->map(bytes, PROT_READ | PROT_WRITE, page_bytes);
  if (!mapped) return mapped.error();
  std::byte* const start = mapped.value();
  const std::size_t pages = bytes / page_bytes;
  for (std::size_t i = 0; i < pages; ++i) *reinterpret_cast<std::uint64_t*>(start + i * page_bytes) = i;
  workload_walk walk(assignment.at("workload").get<std::string>(), pages);
  evaluation::json metrics;
  if (chosen.budget_bytes > bytes) {
    metrics["hint_ns"] = measure_recording(walk, start, visits);
  } else {
    std::uint64_t wrong = visit_pages(walk, start, visits / 2);
    const engine::statistics before = far->snapshot();
    const std::uint64_t cpu_before = process_cpu_ns();
    wrong += visit_pages(walk, start, visits);
    if (wrong != 0) return error{"a page came back with other bytes", EIO};
    const auto done = static_cast<double>(visits);
    metrics["cpu_ns_per_access"] = static_cast<double>(process_cpu_ns() - cpu_before) / done;
    metrics["fetched_pages_per_access"] =
        static_cast<double>(far->snapshot().fetched_pages - before.fetched_pages) / done;
  }
  pager::stop_serving_hints(*far);
  return metrics;
}

}  // namespace far::bench
