// The counterpart of src/pager on a real kernel: the threads and fibers that miss, the loop that serves misses, the
// background, the poller. The engine's own code decides what each does; here stands how they wait, which is by the
// scheduler.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "engine/background.h"
#include "engine/engine.h"
#include "engine/fetcher_pool.h"
#include "engine/hinted_path.h"
#include "engine/host.h"
#include "engine/miss_list.h"
#include "engine/miss_waiter.h"
#include "engine/parked_misses.h"
#include "model.h"
#include "scheduler.h"
#include "simulated_kernel.h"

namespace far::simulation {

// The resolver of the misses of the program's threads.
enum class miss_mode {
  by_handler,  // a thread that is told of them by the kernel
  in_line,     // they themselves
  on_fibers,   // they themselves, every other one as a fiber that parks
};

class simulated_pager final : public engine::host, public engine::page_bringer, public engine::miss_waiter {
 public:
  simulated_pager(scheduler& threads, simulated_kernel& kernel, model& expected, engine::engine& engine,
                  miss_mode mode);

  // Starts the threads; they end after stop(). `judge_loss`: is called for a page whose bytes are lost, of which this
  // is the word, and ends the run if they may not be.
  void start(std::size_t fetchers, std::function<void(page_id page, engine::page_word word)> judge_loss);
  void stop();

  // In the child of a fork, whose only thread is the program's: it resolves its own misses.
  void become_child();

  // For program threads: makes the page accessible; returns false when its bytes are lost. The caller tries the access
  // again, and may find that it must call again.
  [[nodiscard]] bool resolve(engine::read_ahead_state& streams, page_id page, bool write);
  // A hint: the pages will be used, as far as the program knows; they may be released at any moment. First touches are
  // left out, which only a map of addresses can tell from mistakes.
  void hint(engine::read_ahead_state& streams, page_range range, const engine::hint& about);
  // Another one: the program overwrites all of the range before it reads there. Returns whether pages came empty.
  [[nodiscard]] bool bring_empty(engine::read_ahead_state& streams, page_range range);
  // Makes the page resident, and keeps it so until unpin. Returns false when its bytes are lost.
  [[nodiscard]] bool pin(engine::read_ahead_state& streams, page_id page);
  void unpin(page_id page);
  void wake_reclaimer() { threads_.wake(reclaimer_); }

 private:
  // The pager's knowledge of a thread while it resolves a miss.
  struct missing_thread {
    engine::read_ahead_state* streams = nullptr;
    std::uint64_t since_slices = 0;
    page_id page = 0;
  };
  struct parked_fiber {
    thread_id thread;
    bool is_woken;
  };

  void enter() noexcept override;
  void leave() noexcept override { threads_.leave_engine(); }
  void rest(std::uint64_t nanoseconds) noexcept override;
  void wake_background() noexcept override;
  [[nodiscard]] bool has_pollers() const noexcept override { return mode_ == miss_mode::on_fibers; }
  [[nodiscard]] std::size_t preferred_fetcher() const noexcept override { return threads_.current(); }

  [[nodiscard]] bool fill(page_id, bool) noexcept override { return false; }
  void bring(engine::wanted_page wanted) noexcept override;

  [[nodiscard]] bool on_fiber() const noexcept override {
    return mode_ == miss_mode::on_fibers && threads_.current() % 2 == 0;
  }
  [[nodiscard]] engine::read_ahead_state& streams() noexcept override;
  void open(ticket& mine) noexcept override;
  void park(ticket& mine, place from) noexcept override;
  void close(ticket&) noexcept override {}
  void wake(ticket& one) noexcept override;
  void poll_soon() noexcept override;

  void begin_miss(engine::read_ahead_state& streams, page_id page);
  [[nodiscard]] bool resolve_here(engine::read_ahead_state& streams, page_id page, bool write);
  [[nodiscard]] engine::miss::state resolve_once(engine::wanted_page wanted);
  [[nodiscard]] bool note_lost(page_id page);
  void run_handler();
  void run_reclaimer();
  void run_poller();

  scheduler& threads_;
  simulated_kernel& kernel_;
  model& expected_;
  engine::engine& engine_;
  miss_mode mode_;
  engine::caller who_ = engine::caller::of_program;
  engine::fetcher_pool fetchers_;
  engine::hinted_path hinted_;
  std::unique_ptr<engine::parked_misses> parked_;  // on_fibers only
  engine::fetcher* handlers_own_ = nullptr;        // by_handler only
  std::unique_ptr<engine::miss_list> pending_;
  thread_id handler_ = 0;
  thread_id reclaimer_ = 0;
  thread_id poller_ = 0;
  std::function<void(page_id page, engine::page_word word)> judge_loss_;
  bool stopping_ = false;
  std::map<thread_id, missing_thread> missing_;
};

}  // namespace far::simulation
