// Decides about pages that the evictor wants to take: scopes hold some of them, and the cards tell how the others
// come back.
#pragma once

#include <atomic>

#include "engine/eviction_filter.h"
#include "far/detail/hazard_log.h"
#include "heap/counters.h"
#include "heap/page_table.h"

namespace far::detail {
class object_heap;
}

namespace far::heap {

// Made before the pager, because the pager wants it at its start; says nothing until the heap is there.
class hazards final : public engine::eviction_filter {
 public:
  // `told` is called, with `context`, whenever pages are about to leave: local memory is short. Any thread; must not
  // wait. Requires: `heap` outlives the pager.
  void attach(detail::object_heap& heap, void (*callback)(void* context), void* context) {
    callback_ = callback;
    context_ = context;
    heap_.store(&heap, std::memory_order_release);
  }

  [[nodiscard]] bool keeps_warm(engine::page_id page, bool fetched) noexcept override;
  [[nodiscard]] engine::eviction_verdict decide(const engine::eviction_candidates& leaving,
                                                bool hard_pressed) noexcept override;

  // Stops the program when the page belongs to small objects and no scope holds it: somebody uses an object outside its
  // scope, and would get bytes that may have moved. In checked builds (FARHEAP_CHECKED) every such use comes here.
  void on_unguarded_miss(engine::page_id page) noexcept override;

 private:
  [[nodiscard]] static bool holds_small_objects(detail::object_heap& heap, std::size_t page);
  [[nodiscard]] static bool comes_back_by_object(detail::object_heap& heap, std::size_t page, bool fetched);

  void (*callback_)(void* context) = nullptr;
  void* context_ = nullptr;
  std::atomic<detail::object_heap*> heap_{nullptr};  // set last
};

// A bit a page, in the order of the pages asked about.
struct holds {
  std::uint64_t all = 0;
  std::uint64_t working = 0;  // of them, those that must not leave whatever happens (hazard_log::begin_work)
};

// Finds those of `pages` (page numbers of addresses: address / page size) that some hazard log holds. Passes the
// process-wide fence first. At most 64 pages. `except`: whose holds do not count, or null.
[[nodiscard]] holds held_pages(std::span<const std::uint64_t> pages, const detail::hazard_log* except) noexcept;

}  // namespace far::heap
