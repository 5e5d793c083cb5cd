#include "pager/address_map.h"

#include <algorithm>

#include "base/check.h"
#include "base/lock_guard.h"
#include "base/units.h"

namespace far::pager {

address_map::address_map(std::uint64_t heap_pages, std::uint64_t first_page_number)
    : heap_pages_(heap_pages), first_page_number_(first_page_number) {
  insert_free(0, heap_pages);
}

std::optional<page_id> address_map::take(std::uint64_t count, std::uint64_t alignment_pages,
                                         const mapping_traits& traits) {
  const lock_guard guard(lock_);
  const std::optional<page_range> taken = take_free(count, alignment_pages);
  if (!taken) return std::nullopt;
  used_[taken->first] = {count, traits};
  note_rights(*taken, traits);
  return taken->first;
}

bool address_map::take_at(page_range range, const mapping_traits& traits) {
  const lock_guard guard(lock_);
  if (!take_free_at(range)) return false;
  used_[range.first] = {range.count, traits};
  note_rights(range, traits);
  return true;
}

std::optional<page_id> address_map::take_out(std::uint64_t count, std::uint64_t alignment_pages) {
  const lock_guard guard(lock_);
  const std::optional<page_range> taken = take_free(count, alignment_pages);
  return taken ? std::optional(taken->first) : std::nullopt;
}

bool address_map::take_out_at(page_range range) {
  const lock_guard guard(lock_);
  return take_free_at(range);
}

std::optional<page_range> address_map::take_free(std::uint64_t count, std::uint64_t alignment_pages) {
  for (auto hole = holes_by_size_.lower_bound({count, 0}); hole != holes_by_size_.end(); ++hole) {
    if (hole->second >= heap_pages_) continue;  // of adopted memory: its addresses are aligned otherwise
    const page_id first = round_up(hole->second + first_page_number_, alignment_pages) - first_page_number_;
    const page_id hole_end = hole->second + hole->first;
    if (first > hole_end || count > hole_end - first) continue;
    const page_range taken{first, static_cast<std::size_t>(count)};
    take_from_hole(hole->second, taken);
    return taken;
  }
  return std::nullopt;
}

bool address_map::take_free_at(page_range range) {
  auto hole = free_.upper_bound(range.first);
  if (hole == free_.begin()) return false;
  --hole;
  if (hole->first + hole->second < range.end()) return false;
  take_from_hole(hole->first, range);
  return true;
}

address_map::parts address_map::remove(page_range within) {
  const lock_guard guard(lock_);
  split_used_at(within.first);
  split_used_at(within.end());
  return erase_used(within);
}

std::optional<address_map::parts> address_map::remove_whole(page_range within) {
  const lock_guard guard(lock_);
  std::uint64_t known = free_in(within);
  for (const part& mapped : used_in(within)) known += mapped.range.count;
  if (known < within.count) return std::nullopt;
  split_used_at(within.first);
  split_used_at(within.end());
  return erase_used(within);
}

// Requires: the lock; no part reaches over an end of the range.
address_map::parts address_map::erase_used(page_range within) {
  parts removed;
  auto next = used_.lower_bound(within.first);
  while (next != used_.end() && next->first < within.end()) {
    removed.push_back({{next->first, next->second.count}, next->second.traits});
    next = used_.erase(next);
  }
  return removed;
}

std::optional<address_map::parts> address_map::take_over(page_range range) {
  const lock_guard guard(lock_);
  split_used_at(range.first);
  split_used_at(range.end());
  std::uint64_t known = 0;
  for (auto at = used_.lower_bound(range.first); at != used_.end() && at->first < range.end(); ++at) {
    known += at->second.count;
  }
  std::vector<page_range, platform::local_allocator<page_range>> holes;
  auto hole = free_.upper_bound(range.first);
  if (hole != free_.begin()) --hole;
  for (; hole != free_.end() && hole->first < range.end(); ++hole) {
    const page_id first = std::max(hole->first, range.first);
    const page_id end = std::min(hole->first + hole->second, range.end());
    if (first >= end) continue;
    holes.push_back({first, end - first});
    known += end - first;
  }
  if (known < range.count) return std::nullopt;
  for (const page_range& taken : holes) take_from_hole(std::prev(free_.upper_bound(taken.first))->first, taken);
  return erase_used(range);
}

void address_map::adopt(page_range range, const mapping_traits& traits) {
  const lock_guard guard(lock_);
  used_[range.first] = {range.count, traits};
  pages_in_use_ += range.count;
}

void address_map::use(page_range range, const mapping_traits& traits) {
  const lock_guard guard(lock_);
  used_[range.first] = {range.count, traits};
  note_rights(range, traits);
  join_used(range);
}

// There is nothing in a reservation, and nothing of ours in what is foreign.
void address_map::note_rights(page_range range, const mapping_traits& traits) {
  if (unreadable_ != nullptr && !traits.reserved && !traits.foreign) unreadable_->set(range, !traits.is_readable());
}

std::optional<address_map::parts> address_map::look(page_range range) const {
  const lock_guard guard(lock_);
  parts found = used_in(range);
  std::uint64_t known = free_in(range);
  for (const part& mapped : found) known += mapped.range.count;
  if (known < range.count) return std::nullopt;
  return found;
}

// Requires: the lock.
address_map::parts address_map::used_in(page_range range) const {
  parts found;
  auto at = used_.upper_bound(range.first);
  if (at != used_.begin()) --at;
  for (; at != used_.end() && at->first < range.end(); ++at) {
    const page_id first = std::max(at->first, range.first);
    const page_id end = std::min(at->first + at->second.count, range.end());
    if (first < end) found.push_back({{first, static_cast<std::size_t>(end - first)}, at->second.traits});
  }
  return found;
}

// Requires: the lock.
std::uint64_t address_map::free_in(page_range range) const {
  std::uint64_t sum = 0;
  auto hole = free_.upper_bound(range.first);
  if (hole != free_.begin()) --hole;
  for (; hole != free_.end() && hole->first < range.end(); ++hole) {
    const page_id first = std::max(hole->first, range.first);
    const page_id end = std::min(hole->first + hole->second, range.end());
    if (first < end) sum += end - first;
  }
  return sum;
}

void address_map::put_back(page_range range) {
  const lock_guard guard(lock_);
  pages_in_use_ -= range.count;
  insert_free(range.first, range.count);
}

std::optional<address_map::part> address_map::find(page_id page) const {
  const lock_guard guard(lock_);
  return holder_of(page);
}

// Requires: the lock is held.
std::optional<address_map::part> address_map::holder_of(page_id page) const {
  auto holder = used_.upper_bound(page);
  if (holder == used_.begin()) return std::nullopt;
  --holder;
  if (page >= holder->first + holder->second.count) return std::nullopt;
  return part{{holder->first, holder->second.count}, holder->second.traits};
}

std::uint64_t address_map::pages_in_use() const {
  const lock_guard guard(lock_);
  return pages_in_use_;
}

void address_map::join_used(page_range range) {
  auto at = used_.lower_bound(range.first);
  if (at != used_.begin()) --at;
  while (at != used_.end()) {
    const auto next = std::next(at);
    if (next == used_.end() || next->first > range.end()) return;
    if (at->first + at->second.count == next->first && at->second.traits == next->second.traits) {
      at->second.count += next->second.count;
      used_.erase(next);
    } else {
      at = next;
    }
  }
}

void address_map::split_used_at(page_id page) {
  auto holder = used_.upper_bound(page);
  if (holder == used_.begin()) return;
  --holder;
  const page_id end = holder->first + holder->second.count;
  if (holder->first == page || page >= end) return;
  used_[page] = {end - page, holder->second.traits};
  holder->second.count = page - holder->first;
}

void address_map::insert_free(page_id first, std::uint64_t count) {
  auto next = free_.lower_bound(first);
  if (next != free_.end() && next->first == first + count) {
    count += next->second;
    holes_by_size_.erase({next->second, next->first});
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    FAR_CHECK(before->first + before->second <= first, "a range is freed once");
    if (before->first + before->second == first) {
      holes_by_size_.erase({before->second, before->first});
      before->second += count;
      holes_by_size_.insert({before->second, before->first});
      return;
    }
  }
  free_[first] = count;
  holes_by_size_.insert({count, first});
}

void address_map::take_from_hole(page_id hole_first, page_range range) {
  const std::uint64_t hole_end = hole_first + free_[hole_first];
  holes_by_size_.erase({hole_end - hole_first, hole_first});
  free_.erase(hole_first);
  if (range.first > hole_first) insert_free(hole_first, range.first - hole_first);
  if (range.end() < hole_end) insert_free(range.end(), hole_end - range.end());
  pages_in_use_ += range.count;
}

}  // namespace far::pager
