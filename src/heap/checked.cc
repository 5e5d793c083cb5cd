#include "heap/checked.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/lock_guard.h"
#include "base/log.h"
#include "far/detail/pointer.h"
#include "far/scope.h"
#include "heap/heap.h"
#include "heap/living_runtimes.h"
#include "heap/pointer_check.h"

namespace far::heap {
namespace {

constinit std::atomic<bool> checks{false};

// Held while a scope's use of an object is noted, and while an object that nobody uses is checked: nobody begins to
// change it meanwhile. Taken before the locks of the records.
constinit spin_lock checking;

// Whether an open scope of any fiber or thread has dereferenced something in the page.
bool is_in_use(std::uint64_t page) noexcept {
  for (owner_record* one = first_record(); one != nullptr; one = one->next) {
    if (has_checked(*one, page)) return true;
  }
  return false;
}

void note_page(owner_record& mine, std::uint64_t page, std::size_t depth) FAR_REQUIRES(mine.checked_lock) {
  const auto known = std::find_if(mine.checked.begin(), mine.checked.end(),
                                  [page](const checked_page& entry) { return entry.page == page; });
  if (known == mine.checked.end()) {
    mine.checked.push_back({page, depth});
  } else {
    known->depth = std::min(known->depth, depth);
  }
}

}  // namespace

bool is_checked() noexcept {
  return checks.load(std::memory_order_relaxed);
}

bool has_checked(owner_record& one, std::uint64_t page) noexcept {
  const lock_guard guard(one.checked_lock);
  return std::any_of(one.checked.begin(), one.checked.end(),
                     [page](const checked_page& entry) { return entry.page == page; });
}

void note_new(std::uintptr_t object) {
  owner_record& mine = current_record();
  if (mine.checked_depth == 0) return;
  const lock_guard nothing_is_checked(checking);
  const lock_guard guard(mine.checked_lock);
  note_page(mine, object >> page_shift, mine.checked_depth);
}

void checked_objects::note(std::uintptr_t object, std::size_t depth) {
  const auto [known, is_new] = depths_.try_emplace(object, depth);
  if (!is_new && known->second <= depth) return;
  known->second = depth;
  if (by_depth_.size() < depth) by_depth_.resize(depth);
  by_depth_[depth - 1].push_back(object);
}

std::vector<std::uintptr_t> checked_objects::take(std::size_t depth) {
  if (by_depth_.size() < depth) return {};
  std::vector<std::uintptr_t> taken = std::exchange(by_depth_[depth - 1], {});
  std::erase_if(taken, [&](std::uintptr_t object) {
    const auto known = depths_.find(object);
    return known == depths_.end() || known->second != depth;
  });
  for (const std::uintptr_t object : taken) depths_.erase(object);
  return taken;
}

}  // namespace far::heap

namespace far::detail {

using heap::checked_page;
using heap::owner_record;

namespace {

constinit std::atomic<unsigned> kinds_of_code{0};

// Between scopes the evacuator may ask for the pointers of an object at any time, so they must be right at the end of
// one. Not within the destruction of an object, whose pointers are gone.
void check_objects(owner_record& mine, const std::vector<std::uintptr_t>& objects) {
  if (mine.destructions > 0) return;
  for (const std::uintptr_t object : objects) {
    const lock_guard guard(heap::checking);
    object_heap* const of_object = heap::heap_at(object);
    if (of_object == nullptr || heap::is_in_use(object >> page_shift)) continue;
    heap::check_pointers(*of_object, mine.work, object);
  }
}

}  // namespace

bool note_kind_of_code(bool checked) noexcept {
  constexpr unsigned both = 3;
  const unsigned mine = checked ? 2 : 1;
  if ((kinds_of_code.fetch_or(mine, std::memory_order_relaxed) | mine) == both) {
    log_line(
        log_level::error,
        "a part of the program that uses far pointers is compiled with -DFARHEAP_CHECKED, and another part without; "
        "compile all files and libraries that use them with it, or none");
    std::abort();
  }
  return checked;
}

std::size_t enter_checked(scope_record& record) {
  heap::check_outside_handlers();
  heap::checks.store(true, std::memory_order_relaxed);
  return ++static_cast<owner_record&>(record).checked_depth;
}

void note_checked(scope_record& record, std::size_t depth, const std::atomic<std::uint64_t>& owner, std::size_t offset,
                  std::size_t bytes) {
  const std::uint64_t value = owner.load(std::memory_order_relaxed);
  const std::uintptr_t first = word::address(value) + offset;
  if (first == offset) return;
  std::size_t count = 1;
  if (word::is_huge(value)) {
    const std::size_t whole = bytes == 0 ? bytes_of(owner) : bytes;
    const std::size_t end = first % page_bytes + std::min(whole, heap::huge_space::most_held_pages * page_bytes);
    count = (end + page_bytes - 1) / page_bytes;
  }
  auto& mine = static_cast<owner_record&>(record);
  const lock_guard nothing_is_checked(heap::checking);
  const lock_guard guard(mine.checked_lock);
  if (!word::is_huge(value)) mine.objects.note(word::address(value), depth);
  for (std::uint64_t page = first >> page_shift; page < (first >> page_shift) + count; ++page) {
    heap::note_page(mine, page, depth);
  }
}

void leave_checked(scope_record& record, std::size_t depth) {
  auto& mine = static_cast<owner_record&>(record);
  std::vector<std::uint64_t> left;
  std::vector<std::uintptr_t> objects;
  {
    const lock_guard guard(mine.checked_lock);
    mine.checked_depth = depth - 1;
    std::erase_if(mine.checked, [&](const checked_page& entry) {
      if (entry.depth >= depth) left.push_back(entry.page);
      return entry.depth >= depth;
    });
    objects = mine.objects.take(depth);
  }
  check_objects(mine, objects);
  for (const std::uint64_t page : left) {
    object_heap* const of_page = heap::heap_at(page << page_shift);
    if (of_page != nullptr && !heap::is_in_use(page)) of_page->force_out(page << page_shift);
  }
}

void check_scope(const scope_record& record, bool is_open) {
  const char* wrong = nullptr;
  if (!is_open) {
    wrong = "after its end";
  } else if (&record != &current_scope_record()) {
    wrong = "by another fiber or thread than the one that opened it";
  }
  if (wrong == nullptr) return;
  log_line(
      log_level::error,
      "a far::scope is used %s; open a scope of its own where the far pointer is dereferenced, as a local variable",
      wrong);
  std::abort();
}

void check_part(const std::atomic<std::uint64_t>& owner, std::size_t offset, std::size_t bytes) {
  const std::size_t whole = bytes_of(owner);
  if (offset <= whole && bytes <= whole - offset) return;
  log_line(log_level::error,
           "bytes %zu to %zu of a far object are accessed, which has %zu; index its elements from 0 to size() - 1",
           offset, offset + bytes, whole);
  std::abort();
}

}  // namespace far::detail
