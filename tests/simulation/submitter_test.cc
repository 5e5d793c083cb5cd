// Far tiers that tell of a transfer only when the thread that submitted it runs on, as an io_uring does: here are
// threads that wait inside the kernel, for the child of a vfork say, and the others must not wait for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "stepped_engine.h"

namespace far::simulation {
namespace {

using backend::completion;
using backend::request;
using engine::caller;
using engine::state;

// `memory:`, with threads that stand still, and with transfers that have to be submitted again. One thread at a time.
class tier_with_submitters final : public backend::backend {
 public:
  void stand_still(std::thread::id who) { still_.insert(who); }
  void go_on() { still_.clear(); }
  // So many transfers have to be submitted again.
  void put_off(unsigned count) { put_off_ = count; }

  result<far::backend::slot_id> allocate(std::size_t count) override { return inner_->allocate(count); }
  void free(far::backend::slot_id first, std::size_t count) override { inner_->free(first, count); }
  result<std::unique_ptr<far::backend::channel>> open_channel(std::size_t depth) override {
    return std::unique_ptr<far::backend::channel>(std::make_unique<queue>(*this, inner_->open_channel(depth).value()));
  }
  far::backend::capacity report() const override { return inner_->report(); }
  far::backend::speed expected_speed() const override { return {}; }
  std::string describe() const override { return "submitters:"; }

 private:
  class queue final : public far::backend::channel {
   public:
    queue(tier_with_submitters& owner, std::unique_ptr<far::backend::channel> inner)
        : owner_(owner), inner_(std::move(inner)) {}

    std::size_t submit(std::span<const request> batch) override {
      for (const request& io : batch) under_way_.push_back({io, std::this_thread::get_id()});
      submit_left();
      return batch.size();
    }
    std::size_t poll(std::span<completion> done) override {
      std::size_t count = 0;
      std::vector<transfer> still;
      for (const transfer& current : under_way_) {
        if (count == done.size() || owner_.still_.contains(current.submitter)) {
          still.push_back(current);
        } else if (owner_.put_off_ > 0) {
          --owner_.put_off_;
          left_.push_back(current.io);
        } else {
          done[count++] = make(current.io);
        }
      }
      under_way_ = still;
      return count;
    }
    void wait(std::uint64_t) override { submit_left(); }
    std::size_t in_flight() const override { return under_way_.size() + left_.size(); }
    bool needs_its_submitter() const override { return true; }
    bool has_left() const override { return !left_.empty(); }
    void submit_left() override {
      for (const request& io : left_) under_way_.push_back({io, std::this_thread::get_id()});
      left_.clear();
    }

   private:
    struct transfer {
      request io;
      std::thread::id submitter;
    };

    completion make(request io) {
      io.may_lend = false;
      EXPECT_EQ(inner_->submit({&io, 1}), 1u);
      completion done;
      while (inner_->poll({&done, 1}) == 0) inner_->wait(1'000'000);
      return done;
    }

    tier_with_submitters& owner_;
    std::unique_ptr<far::backend::channel> inner_;
    std::vector<transfer> under_way_;
    std::vector<request> left_;
  };

  std::unique_ptr<far::backend::backend> inner_ = far::backend::open("memory:").value();
  std::set<std::thread::id> still_;
  unsigned put_off_ = 0;
};

// Does something and then nothing more, until it is destroyed.
class other_thread {
 public:
  explicit other_thread(std::function<void()> body) {
    std::unique_lock guard(lock_);
    thread_ = std::thread([this, body = std::move(body)] {
      std::unique_lock inside(lock_);
      body();
      done_ = true;
      changed_.notify_all();
      changed_.wait(inside, [this] { return ends_; });
    });
    changed_.wait(guard, [this] { return done_; });
  }
  ~other_thread() {
    {
      const std::lock_guard guard(lock_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  [[nodiscard]] std::thread::id id() const { return thread_.get_id(); }

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  bool done_ = false;
  bool ends_ = false;
  std::thread thread_;
};

class submitter_test : public stepped_engine, public testing::Test {
 protected:
  static constexpr page_range pages{0, 512};

  submitter_test() : stepped_engine(1024), far_(keep(std::make_unique<tier_with_submitters>())) {
    start({.budget_pages = 700, .reads_parts = true});
    reader_ = engine_->transfers().add_object_reader().value();
    EXPECT_TRUE(engine_->ranges().allocate_guarded(pages).ok());
    for (page_id page = pages.first; page < pages.end(); ++page) {
      fetch(page, true);
      write_parts(page);
    }
    engine_->eviction().evict(pages);
    EXPECT_EQ(count(state::remote), pages.count);
  }
  ~submitter_test() override {
    far_.go_on();
    while (engine_->transfers().under_way()) look(caller::of_runtime);
    for (page_id page = pages.first; page < pages.end(); ++page) {
      fetch(page, false);
      check_parts(page);
    }
    engine_->validate();
  }

  void fetch(page_id page, bool write) {
    for (int attempts = 0; kernel_.touch(page, write) != simulated_kernel::fault::none; ++attempts) {
      ASSERT_LT(attempts, 100) << page;
      const far::lock_guard guard(fetcher_->lock);
      static_cast<void>(engine_->misses().handle(*fetcher_, streams_, page, write));
      static_cast<void>(fetcher_->poll(caller::of_program));
    }
  }
  // A thread that does this, and then waits inside the kernel.
  void by_another(std::function<void()> body) {
    others_.emplace_back(std::move(body));
    far_.stand_still(others_.back().id());
  }
  void prefetch(page_id page) {
    const far::lock_guard guard(fetcher_->lock);
    static_cast<void>(fetcher_->prefetch({page, 1}, {}));
  }
  void look(caller who) { static_cast<void>(engine_->transfers().help(who)); }
  void pass_ms(std::uint64_t ms) { clock_.advance_to(clock_.now_ns() + ms * 1'000'000); }
  [[nodiscard]] std::uint64_t count(state wanted) const { return count_in(pages, wanted); }

  tier_with_submitters& far_;
  engine::object_reader* reader_ = nullptr;
  std::list<other_thread> others_;
};

// One of the program that took them over might stand still next, again and again.
TEST_F(submitter_test, late_reads_are_taken_over_by_threads_of_the_runtime_alone) {
  by_another([this] { prefetch(7); });
  pass_ms(200);
  by_another([this] { look(caller::of_program); });
  EXPECT_EQ(state_of(7), state::fetching);
  look(caller::of_runtime);
  look(caller::of_runtime);
  EXPECT_EQ(state_of(7), state::resident);
}

TEST_F(submitter_test, threads_that_stand_still_after_reading_ahead_leave_room_for_those_who_wait) {
  for (page_id page = 0; page < 20; ++page) by_another([this, page] { prefetch(2 * page); });
  EXPECT_GT(count(state::fetching), 5u);
  pass_ms(200);
  for (int i = 0; i < 10; ++i) by_another([this] { look(caller::of_program); });
  for (page_id page = 100; page < 300; page += 20) fetch(page, false);
  for (int i = 0; i < 40; ++i) look(caller::of_runtime);
  EXPECT_EQ(count(state::fetching), 0u);
  EXPECT_TRUE(fetcher_->has_room());
}

TEST_F(submitter_test, who_polls_a_read_does_not_submit_what_is_left_of_it) {
  far_.put_off(1);
  prefetch(7);
  by_another([this] { look(caller::of_program); });
  EXPECT_EQ(state_of(7), state::fetching);
  EXPECT_TRUE(engine_->transfers().has_left());
  look(caller::of_runtime);
  look(caller::of_runtime);
  EXPECT_EQ(state_of(7), state::resident);
  EXPECT_FALSE(engine_->transfers().has_left());
}

TEST_F(submitter_test, who_waits_for_reads_submits_what_is_left_and_is_not_waited_for_himself) {
  far_.put_off(1);
  prefetch(7);
  by_another([this] {
    look(caller::of_program);
    const far::lock_guard guard(fetcher_->lock);
    fetcher_->wait(1);
  });
  EXPECT_FALSE(engine_->transfers().has_left());
  look(caller::of_runtime);
  EXPECT_EQ(state_of(7), state::fetching);
  pass_ms(200);
  look(caller::of_runtime);
  look(caller::of_runtime);
  EXPECT_EQ(state_of(7), state::resident);
}

TEST_F(submitter_test, who_polls_a_write_does_not_submit_what_is_left_of_it) {
  for (page_id page = 0; page < 64; ++page) fetch(page, true);
  engine_->eviction().resize(32);
  far_.stand_still(std::this_thread::get_id());
  for (int i = 0; i < 20 && count(state::evicting) == 0; ++i)
    static_cast<void>(engine_->eviction().reclaim(caller::of_runtime));
  ASSERT_GT(count(state::evicting), 0u);
  far_.go_on();
  far_.put_off(1);
  by_another([this] { look(caller::of_program); });
  EXPECT_TRUE(engine_->transfers().has_left_writes());
  for (int i = 0; i < 3; ++i) look(caller::of_runtime);
  EXPECT_EQ(count(state::evicting), 0u);
  engine_->eviction().resize(700);
}

// A background that sleeps until it is woken. It then works on the thread that wakes it.
class sleeping_background final : public engine::host {
 public:
  explicit sleeping_background(engine::engine& with) : engine_(with) {}
  void enter() noexcept override {}
  void leave() noexcept override {}
  void rest(std::uint64_t) noexcept override {}
  void wake_background() noexcept override { static_cast<void>(engine_.transfers().help(caller::of_runtime)); }
  [[nodiscard]] bool has_pollers() const noexcept override { return false; }
  void poll_soon() noexcept override {}
  [[nodiscard]] std::size_t preferred_fetcher() const noexcept override { return 0; }

 private:
  engine::engine& engine_;
};

TEST_F(submitter_test, who_pushes_pages_out_wakes_the_background_for_what_is_left_of_their_writes) {
  for (page_id page = 0; page < 8; ++page) fetch(page, true);
  for (page_id page = 0; page < 8; ++page) {
    for (std::size_t part = 0; part < model::parts_a_page; ++part) expected_.write(page, part, kernel_.bytes(page));
  }
  far_.put_off(1);
  sleeping_background asleep(*engine_);
  std::atomic<bool> done{false};
  std::thread pushing([&] {
    engine_->eviction().evict({0, 8}, engine::batch_pages, &asleep);
    done.store(true);
  });
  for (int i = 0; i < 6000 && !done; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(done) << "it waits for somebody who sleeps";
  while (!done) look(caller::of_runtime);
  pushing.join();
  for (page_id page = 0; page < 8; ++page) EXPECT_EQ(state_of(page), state::remote);
}

TEST_F(submitter_test, a_late_read_of_an_object_is_given_up_and_holds_its_slot_until_it_has_ended) {
  std::array<std::byte, 64> bytes;
  engine::object_read one;
  one.page = 7;
  one.length_bytes = bytes.size();
  one.buffer = bytes.data();
  by_another([this, &one] {
    const far::lock_guard guard(reader_->lock);
    EXPECT_EQ(reader_->start(one), engine::read_outcome::in_flight);
  });
  look(caller::of_program);
  EXPECT_EQ(one.outcome.load(), engine::read_outcome::in_flight);
  pass_ms(200);
  look(caller::of_program);
  EXPECT_EQ(one.outcome.load(), engine::read_outcome::failed);
  const std::uint64_t slots = far_.report().used_slots;
  fetch(7, true);
  for (std::size_t part = 0; part < model::parts_a_page; ++part) expected_.write(7, part, kernel_.bytes(7));
  EXPECT_EQ(far_.report().used_slots, slots);
  far_.go_on();
  look(caller::of_program);
  EXPECT_EQ(far_.report().used_slots, slots - 1);
}

TEST_F(submitter_test, a_read_of_an_object_that_is_to_be_submitted_again_is_left) {
  std::array<std::byte, 64> bytes;
  engine::object_read one;
  one.page = 7;
  one.length_bytes = bytes.size();
  one.buffer = bytes.data();
  far_.put_off(1);
  {
    const far::lock_guard guard(reader_->lock);
    ASSERT_EQ(reader_->start(one), engine::read_outcome::in_flight);
  }
  by_another([this] { look(caller::of_program); });
  EXPECT_TRUE(engine_->transfers().has_left());
  pass_ms(200);
  look(caller::of_runtime);
  EXPECT_EQ(one.outcome.load(), engine::read_outcome::in_flight) << "it was submitted just now";
  look(caller::of_runtime);
  EXPECT_EQ(one.outcome.load(), engine::read_outcome::done);
}

}  // namespace
}  // namespace far::simulation
