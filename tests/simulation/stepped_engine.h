// An engine on a simulated kernel and clock that a test drives by hand, step by step, on one thread. Every byte is
// compared with a model.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "engine/engine.h"
#include "model.h"
#include "simulated_kernel.h"

namespace far::simulation {

// The base of a fixture: it hands its far tier over by keep(), and then starts the engine.
class stepped_engine {
 protected:
  explicit stepped_engine(std::uint64_t heap_pages)
      : kernel_(threads_, random_, heap_pages), expected_(heap_pages), heap_pages_(heap_pages) {}
  virtual ~stepped_engine() = default;

  // The tier must outlive the engine, so it is kept here and not in the fixture.
  template <typename Tier>
  Tier& keep(std::unique_ptr<Tier> tier) {
    Tier& kept = *tier;
    tier_ = std::move(tier);
    return kept;
  }
  // Requires: keep() was called.
  void start(engine::options chosen) {
    chosen.heap_pages = heap_pages_;
    engine_ = engine::engine::create(kernel_, *tier_, clock_, chosen).value();
    fetcher_ = engine_->transfers().add_fetcher().value();
  }

  engine::outcome miss(page_id page, bool write) {
    const far::lock_guard guard(fetcher_->lock);
    return engine_->misses().handle(*fetcher_, streams_, page, write);
  }
  // Other work of the runtime while somebody waits, and the time that it takes.
  virtual void work_meanwhile(std::uint64_t step_ns) {
    static_cast<void>(engine_->transfers().help());
    clock_.advance_to(clock_.now_ns() + step_ns);
  }
  // Makes the access possible, however long it takes. `step_ns`: from one look to the next.
  engine::outcome resolve(page_id page, bool write, std::uint64_t step_ns = 1000) {
    for (int attempts = 0; attempts < 100'000; ++attempts) {
      if (kernel_.touch(page, write) == simulated_kernel::fault::none) return engine::outcome::resolved;
      const engine::outcome reached = miss(page, write);
      if (reached == engine::outcome::lost) return reached;
      if (reached == engine::outcome::no_budget) static_cast<void>(engine_->eviction().reclaim());
      work_meanwhile(step_ns);
    }
    ADD_FAILURE() << "page " << page << " never comes";
    return engine::outcome::busy;
  }

  // Requires: the page is resident, and writable.
  void write_parts(page_id page) {
    for (std::size_t part = 0; part < model::parts_a_page; ++part) expected_.write(page, part, kernel_.bytes(page));
  }
  // Requires: the page is resident.
  void check_parts(page_id page) {
    for (std::size_t part = 0; part < model::parts_a_page; ++part) expected_.check(page, part, kernel_.bytes(page));
  }
  void write(page_range range) {
    for (page_id page = range.first; page < range.end(); ++page) {
      ASSERT_EQ(resolve(page, true), engine::outcome::resolved) << page;
      write_parts(page);
    }
  }
  void check(page_range range) {
    for (page_id page = range.first; page < range.end(); ++page) {
      ASSERT_EQ(resolve(page, false), engine::outcome::resolved) << page;
      check_parts(page);
    }
  }

  // Ends all transfers.
  void settle() {
    while (engine_->transfers().under_way()) {
      static_cast<void>(engine_->transfers().help());
      clock_.advance_to(clock_.now_ns() + 100'000);
    }
    engine_->validate();
  }

  [[nodiscard]] engine::page_word word_of(page_id page) const { return engine_->view().words().load(page); }
  [[nodiscard]] engine::state state_of(page_id page) const { return word_of(page).where(); }
  [[nodiscard]] std::uint64_t count_in(page_range range, engine::state wanted) const {
    std::uint64_t count = 0;
    for (page_id page = range.first; page < range.end(); ++page) count += state_of(page) == wanted;
    return count;
  }

  random_source random_{1};
  simulated_clock clock_;
  scheduler threads_{random_, clock_, {}};
  simulated_kernel kernel_;
  model expected_;
  std::unique_ptr<backend::backend> tier_;
  std::unique_ptr<engine::engine> engine_;
  engine::fetcher* fetcher_ = nullptr;
  engine::read_ahead_state streams_;

 private:
  const std::uint64_t heap_pages_;
};

}  // namespace far::simulation
