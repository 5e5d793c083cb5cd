// Which addresses of the far heap are in use, and with what protection: the pager's counterpart of the kernel's list of
// mappings. Bookkeeping only. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "base/spin_lock.h"
#include "platform/address_space.h"
#include "platform/local_memory.h"

namespace far::pager {

using platform::page_id;
using platform::page_range;

class address_map {
 public:
  explicit address_map(std::uint64_t heap_pages);

  // Finds and takes `count` free pages aligned to `alignment_pages` (a power of two). The lowest fitting hole of the
  // smallest size that fits.
  [[nodiscard]] std::optional<page_id> take(std::uint64_t count, std::uint64_t alignment_pages, int protection);

  // Takes exactly this range if all of it is free.
  [[nodiscard]] bool take_at(page_range range, int protection);

  struct part {
    page_range range;
    int protection = 0;
  };

  // Removes from use all parts of `within` that are in use, at once: what somebody else takes there later is not among
  // them. The parts are not free yet: give each back with put_back() when nothing of it is left.
  using parts = std::vector<part, platform::local_allocator<part>>;
  [[nodiscard]] parts remove(page_range within);
  void put_back(page_range range);

  // Takes the whole range from whoever uses parts of it, in one step, so that nobody else gets any of it: the parts
  // that were in use, or nullopt while somebody is about to put a part back. The range is neither in use nor free until
  // use().
  [[nodiscard]] std::optional<parts> take_over(page_range range);
  void use(page_range range, int protection);

  // The part in use that holds `page`.
  [[nodiscard]] std::optional<part> find(page_id page) const;

  // Calls `body(protection)` if the page is in use, and returns what it returned, else false. Nobody takes the page out
  // of use meanwhile. `body` must not call this map.
  template <typename Body>
  [[nodiscard]] bool while_in_use(page_id page, const Body& body) const {
    const std::lock_guard guard(lock_);
    const std::optional<part> holder = holder_of(page);
    return holder.has_value() && body(holder->protection);
  }

  // Notes a new protection for what of the range is in use.
  void set_protection(page_range range, int protection);

  [[nodiscard]] std::uint64_t pages_in_use() const;

  // Keeps everybody out, around fork.
  void lock() { lock_.lock(); }
  void unlock() { lock_.unlock(); }

 private:
  [[nodiscard]] std::optional<part> holder_of(page_id page) const;
  struct used {
    std::uint64_t count;
    int protection;
  };
  template <typename Key, typename Value>
  using local_map = std::map<Key, Value, std::less<>, platform::local_allocator<std::pair<const Key, Value>>>;
  using sized_hole = std::pair<std::uint64_t, page_id>;  // count, first

  [[nodiscard]] parts erase_used(page_range within);
  void split_used_at(page_id page);
  void insert_free(page_id first, std::uint64_t count);
  void take_from_hole(page_id hole_first, page_range range);

  mutable spin_lock lock_;
  local_map<page_id, used> used_;
  local_map<page_id, std::uint64_t> free_;
  std::set<sized_hole, std::less<>, platform::local_allocator<sized_hole>> holes_by_size_;
  std::uint64_t pages_in_use_ = 0;
};

}  // namespace far::pager
