#include "heap/checked.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <vector>

#include "base/lock_guard.h"
#include "base/log.h"
#include "far/detail/pointer.h"
#include "far/scope.h"
#include "heap/heap.h"

namespace far::heap {
namespace {

constinit std::atomic<bool> checks{false};

}  // namespace

bool is_checked() noexcept {
  return checks.load(std::memory_order_relaxed);
}

bool has_checked(owner_record& one, std::uint64_t page) noexcept {
  const lock_guard guard(one.checked_lock);
  return std::any_of(one.checked.begin(), one.checked.end(),
                     [page](const checked_page& entry) { return entry.page == page; });
}

}  // namespace far::heap

namespace far::detail {

using heap::checked_page;
using heap::owner_record;

std::size_t enter_checked(scope_record& record) {
  heap::check_outside_handlers();
  heap::checks.store(true, std::memory_order_relaxed);
  return ++static_cast<owner_record&>(record).checked_depth;
}

void note_checked(runtime& in, scope_record& record, std::size_t depth, const std::atomic<std::uint64_t>& owner,
                  std::size_t offset, std::size_t bytes) {
  const std::uint64_t value = owner.load(std::memory_order_relaxed);
  const std::uintptr_t first = word::address(value) + offset;
  if (first == offset) return;
  std::size_t count = 1;
  if ((value & word::huge) != 0) {
    const std::size_t whole = bytes == 0 ? heap_of(in).bytes_of(value) : bytes;
    const std::size_t end = first % page_bytes + std::min(whole, heap::huge_space::most_held_pages * page_bytes);
    count = (end + page_bytes - 1) / page_bytes;
  }
  auto& mine = static_cast<owner_record&>(record);
  const lock_guard guard(mine.checked_lock);
  for (std::uint64_t page = first >> page_shift; page < (first >> page_shift) + count; ++page) {
    const auto known = std::find_if(mine.checked.begin(), mine.checked.end(),
                                    [page](const checked_page& entry) { return entry.page == page; });
    if (known == mine.checked.end()) {
      mine.checked.push_back({page, depth});
    } else {
      known->depth = std::min(known->depth, depth);
    }
  }
}

void leave_checked(runtime& in, scope_record& record, std::size_t depth) {
  auto& mine = static_cast<owner_record&>(record);
  std::vector<std::uint64_t> left;
  {
    const lock_guard guard(mine.checked_lock);
    mine.checked_depth = depth - 1;
    std::erase_if(mine.checked, [&](const checked_page& entry) {
      if (entry.depth >= depth) left.push_back(entry.page);
      return entry.depth >= depth;
    });
  }
  for (const std::uint64_t page : left) {
    bool is_in_use = false;
    for (owner_record* one = heap::first_record(); one != nullptr; one = one->next) {
      is_in_use = is_in_use || heap::has_checked(*one, page);
    }
    if (!is_in_use) heap_of(in).force_out(page << page_shift);
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
