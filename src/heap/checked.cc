// Checked builds: misuse of scopes stops the program (FARHEAP_CHECKED, far/scope.h).
#include <cstdlib>
#include <vector>

#include "base/log.h"
#include "far/detail/pointer.h"
#include "far/scope.h"
#include "heap/heap.h"

namespace far::detail {

void leave_checked(runtime& in, hazard_log& log, std::size_t held_before) {
  std::vector<std::uint64_t> left;
  std::size_t position = 0;
  log.for_each([&](std::uint64_t page) {
    if (position++ >= held_before) left.push_back(page);
  });
  log.cut_back(held_before);
  object_heap& heap = heap_of(in);
  for (const std::uint64_t page : left) heap.evict_page(page << page_shift);
}

void check_scope(const hazard_log& log, bool is_open) {
  const char* wrong = nullptr;
  if (!is_open) {
    wrong = "after its end";
  } else if (&log != &current_hazard_log()) {
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
