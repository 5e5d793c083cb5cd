// Decides about the evictor's candidates: which are in use, which may be, and how the others come back.
#pragma once

#include <atomic>
#include <cstddef>

#include "engine/eviction_filter.h"
#include "heap/counters.h"
#include "heap/page_table.h"

namespace far::detail {
class object_heap;
}

namespace far::heap {

// Created before the pager, which needs it at its start. It has no opinion until the heap is attached.
class scope_filter final : public engine::eviction_filter {
 public:
  // `told` is called, with `context`, whenever pages are about to leave: local memory is short. Any thread; must not
  // wait. Requires: `heap` outlives the pager.
  void attach(detail::object_heap& heap, void (*callback)(void* context), void* context) {
    callback_ = callback;
    context_ = context;
    heap_.store(&heap, std::memory_order_release);
  }

  [[nodiscard]] engine::eviction_look look(const engine::eviction_candidates& named,
                                           bool hard_pressed) noexcept override;
  [[nodiscard]] engine::eviction_verdict decide(const engine::eviction_candidates& leaving,
                                                bool hard_pressed) noexcept override;

  [[nodiscard]] bool leaves_unused(engine::page_id page) const noexcept override;

  // Stops the program when the page belongs to small objects and nobody can have a pointer into it: somebody uses an
  // object outside its scope, and would get bytes that may have moved. In checked builds (FARHEAP_CHECKED) every such
  // use comes here.
  void on_unguarded_miss(engine::page_id page) noexcept override;

 private:
  void (*callback_)(void* context) = nullptr;
  void* context_ = nullptr;
  std::atomic<detail::object_heap*> heap_{nullptr};  // set last
  std::atomic<unsigned> looks_{0};
};

}  // namespace far::heap
