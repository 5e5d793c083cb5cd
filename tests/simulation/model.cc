#include "model.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "random_source.h"
#include "trace.h"

namespace far::simulation {
namespace {

constexpr std::size_t words = model::part_bytes / sizeof(std::uint64_t);

std::uint64_t word_of(std::uint64_t number, std::size_t position) {
  return number == 0 ? 0 : number << 16 ^ position * 0x9e3779b97f4a7c15u;
}

void fill(std::byte* bytes, std::uint64_t number) {
  for (std::size_t i = 0; i < words; ++i) {
    const std::uint64_t word = word_of(number, i);
    std::memcpy(bytes + i * sizeof word, &word, sizeof word);
  }
}

bool holds(const std::byte* bytes, std::uint64_t number) {
  for (std::size_t i = 0; i < words; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i * sizeof word, sizeof word);
    if (word != word_of(number, i)) return false;
  }
  return true;
}

}  // namespace

void model::write(page_id page, std::size_t part, std::byte* page_start) {
  part_state& written = pages_[page].parts[part];
  written.number = ++writes_;
  written.may_be_zero = pages_[page].discarding;
  written.written_since = true;
  fill(page_start + part * part_bytes, written.number);
  for (watch* open : watches_) {
    if (open->page == page && open->part == part) open->contents.push_back(written.number);
  }
}

void model::check(page_id page, std::size_t part, const std::byte* page_start) {
  page_state& holder = pages_[page];
  part_state& expected = holder.parts[part];
  const std::byte* const bytes = page_start + part * part_bytes;
  if (holds(bytes, expected.number)) {
    expected.may_be_zero &= holder.discarding;
    return;
  }
  if (expected.may_be_zero && holds(bytes, 0)) {
    expected.number = 0;
    return;
  }
  std::uint64_t found = 0;
  std::memcpy(&found, bytes, sizeof found);
  fail("page %llu part %zu holds %s (write %llu?) instead of write %llu%s%s", static_cast<unsigned long long>(page),
       part,
       holds(bytes, 0)             ? "zeros"
       : holds(bytes, found >> 16) ? "other bytes of the program"
                                   : "rubbish",
       static_cast<unsigned long long>(found >> 16), static_cast<unsigned long long>(expected.number),
       expected.may_be_zero ? " or zeros" : "", holder.lost ? "; it was lost" : "");
}

void model::begin_watch(watch& over) {
  watches_.push_back(&over);
  renew_watch(over);
}

void model::renew_watch(watch& over) const {
  const page_state& holder = pages_[over.page];
  const part_state& watched = holder.parts[over.part];
  over.is_void = over.is_void || holder.discarding || holder.lost;
  over.contents.assign(1, watched.number);
  if (watched.may_be_zero) over.contents.push_back(0);
}

void model::end_watch(watch& over) {
  std::erase(watches_, &over);
}

void model::check(const watch& over, const std::byte* page_start) {
  if (over.is_void) return;
  const std::byte* const bytes = page_start + over.part * part_bytes;
  if (std::any_of(over.contents.begin(), over.contents.end(),
                  [&](std::uint64_t number) { return holds(bytes, number); }))
    return;
  std::uint64_t found = 0;
  std::memcpy(&found, bytes, sizeof found);
  fail(
      "a read of page %llu part %zu ended with %s (write %llu?); meanwhile it held %zu contents, from write %llu to "
      "%llu",
      static_cast<unsigned long long>(over.page), over.part,
      holds(bytes, 0)             ? "zeros"
      : holds(bytes, found >> 16) ? "other bytes of the program"
                                  : "rubbish",
      static_cast<unsigned long long>(found >> 16), over.contents.size(),
      static_cast<unsigned long long>(over.contents.front()), static_cast<unsigned long long>(over.contents.back()));
}

void model::check_answer(const watch& over, const std::function<bool(std::span<const std::byte> part)>& fits) {
  if (over.is_void) return;
  alignas(64) std::array<std::byte, part_bytes> part;
  for (const std::uint64_t number : over.contents) {
    fill(part.data(), number);
    if (fits(part)) return;
  }
  fail(
      "the answer about page %llu part %zu fits none of the %zu contents that it held meanwhile, from write %llu to "
      "%llu",
      static_cast<unsigned long long>(over.page), over.part, over.contents.size(),
      static_cast<unsigned long long>(over.contents.front()), static_cast<unsigned long long>(over.contents.back()));
}

std::vector<model::bytes_of_part> model::contents_of(const watch& over) {
  std::vector<bytes_of_part> all(over.contents.size());
  for (std::size_t i = 0; i < all.size(); ++i) fill(all[i].data(), over.contents[i]);
  return all;
}

void model::void_watches(page_range range) {
  for (watch* open : watches_) open->is_void |= open->page >= range.first && open->page < range.end();
}

void model::begin_discard(page_range range) {
  void_watches(range);
  for (page_id page = range.first; page < range.end(); ++page) {
    pages_[page].discarding = true;
    for (part_state& part : pages_[page].parts) {
      part.may_be_zero = true;
      part.written_since = false;
    }
  }
}

void model::end_discard(page_range range, bool may_stay) {
  for (page_id page = range.first; page < range.end(); ++page) {
    pages_[page].discarding = false;
    pages_[page].lost = false;
    for (part_state& part : pages_[page].parts) {
      if (!part.written_since && !may_stay) part = {};
    }
  }
}

void model::end_overwrite(page_range range) {
  for (page_id page = range.first; page < range.end(); ++page) pages_[page].discarding = false;
}

void model::drop_behind(page_id page) {
  void_watches({page, 1});
  for (part_state& part : pages_[page].parts) part.may_be_zero = true;
}

void model::move(page_range from, page_id to) {
  void_watches(from);
  void_watches({to, from.count});
  for (std::size_t i = 0; i < from.count; ++i) {
    pages_[to + i] = pages_[from.first + i];
    pages_[from.first + i] = {};
  }
}

void model::forget(page_range range) {
  void_watches(range);
  for (page_id page = range.first; page < range.end(); ++page) pages_[page] = {};
}

void model::lose(page_id page) {
  void_watches({page, 1});
  if (!pages_[page].lost) ++lost_pages_;
  pages_[page].lost = true;
}

}  // namespace far::simulation
