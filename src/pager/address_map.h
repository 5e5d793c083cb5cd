// The addresses of the far heap that are in use, with their protection: the pager's counterpart of the kernel's list of
// mappings. Bookkeeping only. Thread-safe.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/spin_lock.h"
#include "pager/unreadable_pages.h"
#include "platform/address_space.h"
#include "platform/local_memory.h"

namespace far::pager {

using platform::page_id;
using platform::page_range;

// No protection key was set, as in pkey_mprotect.
inline constexpr std::int8_t no_key = -1;

// The kind of a mapping at addresses in use.
struct mapping_traits {
  int protection = 0;            // PROT_*, as the program set it
  bool foreign = false;          // something of the kernel's, which the program put there by MAP_FIXED
  bool reserved = false;         // nobody could touch it so far: the engine knows nothing of it, and nothing is charged
  bool fenced = false;           // MADV_GUARD_INSTALL: inaccessible, whatever the protection
  bool locked = false;           // mlock
  bool locked_on_fault = false;  // and not filled: MLOCK_ONFAULT
  bool absent_in_child = false;  // MADV_DONTFORK
  bool empty_in_child = false;   // MADV_WIPEONFORK
  bool kernel_marked = false;    // the kernel was told something of it that must not outlive it
  bool sealed = false;           // mseal
  bool undumped = false;         // MADV_DONTDUMP
  std::int8_t huge_pages = 0;    // MADV_HUGEPAGE or MADV_NOHUGEPAGE; 0 if neither was advised
  std::int8_t key = no_key;      // pkey_mprotect

  mapping_traits() = default;
  mapping_traits(int allowed) : protection(allowed) {}  // NOLINT(google-explicit-constructor): most are just that
  bool operator==(const mapping_traits&) const = default;

  // Whether two neighbours are one mapping to the kernel. It knows no reservations, to it guards are marks of pages,
  // and memory whose key was taken away again has key 0, like all others.
  [[nodiscard]] bool is_one_mapping_with(const mapping_traits& other) const {
    mapping_traits alike = other;
    alike.reserved = reserved;
    alike.fenced = fenced;
    alike.kernel_marked = kernel_marked;
    alike.locked_on_fault = locked_on_fault;
    if (key <= 0 && other.key <= 0) alike.key = key;
    return *this == alike;
  }

  // Whether the kernel knows something of it that another mapping at its place must not have.
  [[nodiscard]] bool is_marked() const { return key != no_key || undumped || huge_pages == MADV_NOHUGEPAGE; }

  // The rights of threads to a key are their own, but for key 0.
  [[nodiscard]] bool has_rights_of_threads() const { return key > 0; }
  // Whether each thread of the program can read it.
  [[nodiscard]] bool is_readable() const {
    return (protection & ~PROT_EXEC) != PROT_NONE && !fenced && !has_rights_of_threads();
  }
  [[nodiscard]] bool is_writable() const {
    return (protection & PROT_WRITE) != 0 && !fenced && !has_rights_of_threads();
  }
};

class address_map {
 public:
  // `first_page_number`: the number that the heap's first page has among all addresses; alignment counts from there.
  explicit address_map(std::uint64_t heap_pages, std::uint64_t first_page_number = 0);

  // Finds and takes `count` free pages aligned to `alignment_pages` (a power of two). The lowest fitting hole of the
  // smallest size that fits.
  [[nodiscard]] std::optional<page_id> take(std::uint64_t count, std::uint64_t alignment_pages,
                                            const mapping_traits& traits);

  // Takes exactly this range if all of it is free.
  [[nodiscard]] bool take_at(page_range range, const mapping_traits& traits);

  // The same two, but what they take is neither in use nor free until use() or put_back(), as of take_over().
  [[nodiscard]] std::optional<page_id> take_out(std::uint64_t count, std::uint64_t alignment_pages);
  [[nodiscard]] bool take_out_at(page_range range);

  // The range is in use although it never was free, and becomes free like any other when it is given up. Requires: it
  // lies behind the heap's pages.
  void adopt(page_range range, const mapping_traits& traits);

  struct part {
    page_range range;
    mapping_traits traits;
  };

  // Removes from use all parts of `within` that are in use, at once. Parts that others take there later are not among
  // them. The parts are not free yet: give each back with put_back() when nothing of it is left.
  using parts = std::vector<part, platform::local_allocator<part>>;
  [[nodiscard]] parts remove(page_range within);
  void put_back(page_range range);
  // The same, but only if nobody else has taken a part of `within` out and will put it back; else nullopt.
  [[nodiscard]] std::optional<parts> remove_whole(page_range within);

  // Takes the whole range, used parts included, in one step, so that no other thread gets any of it. Returns the parts
  // that were in use, or nullopt while another thread is about to put a part back. The range is neither in use nor free
  // until use() or put_back().
  [[nodiscard]] std::optional<parts> take_over(page_range range);
  void use(page_range range, const mapping_traits& traits);

  // The parts of the range that are in use, in order; or nullopt while another thread has taken a part out, and will
  // put it back or use it again soon.
  [[nodiscard]] std::optional<parts> look(page_range range) const;

  // The part in use that contains `page`.
  [[nodiscard]] std::optional<part> find(page_id page) const;

  // Calls `body(traits)` if the page is in use, and returns what it returned, else false. Nobody takes the page out of
  // use meanwhile. `body` must not call this map.
  template <typename Body>
  [[nodiscard]] bool while_in_use(page_id page, const Body& body) const {
    const lock_guard guard(lock_);
    const std::optional<part> holder = holder_of(page);
    return holder.has_value() && body(holder->traits);
  }

  // Changes the traits of all parts of the range that are in use: calls `body(mapping_traits&)` for each. Parts that
  // another thread has taken out keep theirs.
  template <typename Body>
  void change(page_range range, const Body& body) {
    const lock_guard guard(lock_);
    split_used_at(range.first);
    split_used_at(range.end());
    for (auto at = used_.lower_bound(range.first); at != used_.end() && at->first < range.end(); ++at) {
      body(at->second.traits);
      note_rights({at->first, at->second.count}, at->second.traits);
    }
    join_used(range);
  }

  // All that is in use and of which `wanted(traits)` is true.
  template <typename Wanted>
  [[nodiscard]] parts find_all(const Wanted& wanted) const {
    const lock_guard guard(lock_);
    parts found;
    for (const auto& [first, at] : used_) {
      if (wanted(at.traits)) found.push_back({{first, at.count}, at.traits});
    }
    return found;
  }

  [[nodiscard]] std::uint64_t pages_in_use() const;

  // From now on `noted` knows which pages in use cannot be read. Before anything is protected; it outlives the map.
  void note_unreadable_in(unreadable_pages& noted) { unreadable_ = &noted; }

  // Keeps everybody out, around fork.
  void lock() FAR_ACQUIRE(lock_) { lock_.lock(); }
  void unlock() FAR_RELEASE(lock_) { lock_.unlock(); }
  void open_in_child() { lock_.open_in_child(); }

 private:
  [[nodiscard]] std::optional<part> holder_of(page_id page) const FAR_REQUIRES(lock_);
  void note_rights(page_range range, const mapping_traits& traits) FAR_REQUIRES(lock_);
  struct used {
    std::uint64_t count;
    mapping_traits traits;
  };
  template <typename Key, typename Value>
  using local_map = std::map<Key, Value, std::less<>, platform::local_allocator<std::pair<const Key, Value>>>;
  using sized_hole = std::pair<std::uint64_t, page_id>;  // count, first

  [[nodiscard]] std::optional<page_range> take_free(std::uint64_t count, std::uint64_t alignment_pages)
      FAR_REQUIRES(lock_);
  [[nodiscard]] bool take_free_at(page_range range) FAR_REQUIRES(lock_);
  [[nodiscard]] parts erase_used(page_range within) FAR_REQUIRES(lock_);
  [[nodiscard]] parts used_in(page_range range) const FAR_REQUIRES(lock_);
  [[nodiscard]] std::uint64_t free_in(page_range range) const FAR_REQUIRES(lock_);
  void split_used_at(page_id page) FAR_REQUIRES(lock_);
  // Joins equal neighbours, in the range and at its borders, so that a program that changes its memory page by page,
  // and then back, does not leave pieces behind.
  void join_used(page_range range) FAR_REQUIRES(lock_);
  void insert_free(page_id first, std::uint64_t count) FAR_REQUIRES(lock_);
  void take_from_hole(page_id hole_first, page_range range) FAR_REQUIRES(lock_);

  mutable spin_lock lock_;
  local_map<page_id, used> used_ FAR_GUARDED_BY(lock_);
  local_map<page_id, std::uint64_t> free_ FAR_GUARDED_BY(lock_);
  std::set<sized_hole, std::less<>, platform::local_allocator<sized_hole>> holes_by_size_ FAR_GUARDED_BY(lock_);
  std::uint64_t pages_in_use_ FAR_GUARDED_BY(lock_) = 0;
  std::uint64_t heap_pages_;
  std::uint64_t first_page_number_;
  unreadable_pages* unreadable_ = nullptr;
};

}  // namespace far::pager
