// What src/pager is on a real kernel: the threads that resolve misses and evict ahead of need, around the same engine.
// It follows far_pager, fault_thread and reclaimer step by step; what it waits for is the scheduler.
#pragma once

#include <array>
#include <vector>

#include "engine/engine.h"
#include "model.h"
#include "pager/pager.h"
#include "scheduler.h"
#include "simulated_backend.h"
#include "simulated_kernel.h"

namespace far::simulation {

class simulated_pager {
 public:
  // `in_line`: the missing thread resolves its own misses; otherwise a handler thread does.
  simulated_pager(scheduler& threads, simulated_kernel& kernel, simulated_backend& far, model& expected,
                  engine::engine& engine, bool in_line);

  // Starts the threads; they end after stop().
  void start(std::size_t fetchers);
  void stop();

  // In the child of a fork, whose only thread is the program's: it resolves its own misses.
  void become_child() {
    in_line_ = true;
    who_ = engine::caller::of_runtime;  // there is no other thread to leave writes to
  }

  // For program threads: makes the page accessible; returns false when its bytes are lost. Whoever calls it tries the
  // access again, and may find that it must call again.
  [[nodiscard]] bool resolve(engine::stream_table& streams, page_id page, bool write);
  // A hint: the page will be used, as far as the program knows; it may be released at any moment. As far_pager's hinted
  // path, but for first touches, which only a map of addresses can tell from mistakes.
  void hint(engine::stream_table& streams, page_id page, const pager::hint& about);
  // Makes the page resident, and keeps it so until unpin. Returns false when its bytes are lost.
  [[nodiscard]] bool pin(engine::stream_table& streams, page_id page);
  void unpin(page_id page);
  void wake_reclaimer() { threads_.wake(reclaimer_); }

  // An access that is not resolved after so many slices never will be.
  static constexpr std::uint64_t longest_wait_slices = 10'000'000;

 private:
  struct pending_fault {
    simulated_kernel::reported_fault fault;
  };

  [[nodiscard]] bool resolve_here(engine::stream_table& streams, page_id page, bool write, bool may_fill = true);
  [[nodiscard]] bool note_lost(page_id page);
  [[nodiscard]] engine::outcome miss(engine::fetcher& by, engine::stream_table& streams, page_id page, bool write,
                                     bool may_fill = true);
  [[nodiscard]] bool poll(engine::fetcher& by, engine::caller who);
  [[nodiscard]] engine::fetcher& lock_some_fetcher();
  void reclaim_at_miss(engine::caller who);
  void wait_for_frame();
  void look_after_transfers();
  void run_handler();
  [[nodiscard]] bool try_pending();
  [[nodiscard]] bool try_one(const pending_fault& waiting);
  void run_reclaimer();

  scheduler& threads_;
  simulated_kernel& kernel_;
  simulated_backend& far_;
  model& expected_;
  engine::engine& engine_;
  bool in_line_;
  engine::caller who_ = engine::caller::of_program;
  std::vector<engine::fetcher*> fetchers_;
  engine::fetcher* handlers_own_ = nullptr;
  thread_id handler_ = 0;
  thread_id reclaimer_ = 0;
  bool stopping_ = false;
  std::vector<pending_fault> pending_;
  std::array<engine::stream_table, 4> handlers_streams_;
};

}  // namespace far::simulation
