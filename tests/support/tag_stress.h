// Tags that come and go on several threads, while their objects live on, move, leave and come back: no handler is given
// an object of another tag, or called after its tag was given back. Over the real pager (tags_test.cc) and over the
// simulated one (simulated_stress_test.cc).
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "far/runtime.h"
#include "far/tag.h"
#include "far/task.h"
#include "far/unique_ptr.h"

namespace far::stress {

struct marked {
  std::uint64_t tag_mark = 0;
  std::uint64_t number = 0;
  std::array<std::uint64_t, 30> content{};

  marked(std::uint64_t mark, std::uint64_t value) : tag_mark(mark), number(value) { content.fill(mark ^ value); }
  [[nodiscard]] bool is(std::uint64_t mark, std::uint64_t value) const {
    return tag_mark == mark && number == value && content[0] == (mark ^ value) && content[29] == (mark ^ value);
  }
};

class tag_user {
 public:
  tag_user(runtime& farheap, std::uint64_t seed, std::atomic<std::uint64_t>& wrong, std::atomic<std::uint64_t>& calls)
      : farheap_(farheap), random_(seed), seed_(seed), wrong_(wrong), calls_(calls) {}

  void run(std::size_t rounds) {
    for (std::size_t round = 0; round < rounds; ++round) use_a_tag(seed_ << 32 | (round + 1));
    for (const batch& objects : kept_) check(objects);
  }

 private:
  struct batch {
    std::uint64_t mark = 0;
    std::vector<unique_ptr<marked>> all;
  };

  void use_a_tag(std::uint64_t mark) {
    std::atomic<bool> is_over{false};
    const tag mine(farheap_, {.hotness_bits = static_cast<unsigned>(mark % 4)},
                   before_leaving<marked>([&, mark](const marked& leaving) {
                     wrong_ += leaving.tag_mark != mark || is_over ? 1 : 0;
                     ++calls_;
                   }));
    batch objects{.mark = mark, .all = {}};
    add(objects, mine, 200);
    if (random_() % 2 == 0) check(objects);
    if (random_() % 4 == 0) farheap_.evict_all();
    mine.give_back();
    is_over = true;
    add(objects, mine, 50);  // these are of the default tag
    check(objects);
    kept_.push_back(std::move(objects));
    if (kept_.size() > 8) kept_.pop_front();
    check(kept_[random_() % kept_.size()]);
  }

  void add(batch& objects, const tag& in, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      objects.all.push_back(make_unique<marked>(in, objects.mark, objects.all.size()));
    }
  }

  void check(const batch& objects) {
    for (std::size_t i = 0; i < objects.all.size(); ++i) {
      const scope here(farheap_);
      wrong_ += objects.all[i].deref(here).is(objects.mark, i) ? 0 : 1;
    }
  }

  runtime& farheap_;
  std::mt19937_64 random_;
  std::uint64_t seed_;
  std::atomic<std::uint64_t>& wrong_;
  std::atomic<std::uint64_t>& calls_;
  std::deque<batch> kept_;
};

inline void run_tags(const runtime_options& chosen, std::size_t rounds) {
  runtime farheap(chosen);
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> calls{0};
  std::atomic<bool> stop{false};
  // Nothing but what the stress uses has a number that was never used.
  std::vector<tag> all;
  for (int i = 0; i < 15; ++i) all.emplace_back(farheap, replacement{});
  for (const tag& one : all) one.give_back();
  const auto act = [&](std::uint64_t seed) { tag_user(farheap, seed, wrong, calls).run(rounds); };
  std::thread disturbs([&] {
    while (!stop) {
      static_cast<void>(farheap.evacuate(0.2));
      farheap.evict_all();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  std::thread other([&] { act(3); });
  task<void> first = farheap.spawn([&] { act(1); });
  task<void> second = farheap.spawn([&] { act(2); });
  first.join();
  second.join();
  other.join();
  stop = true;
  disturbs.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(calls, rounds);
  farheap.validate();
}

}  // namespace far::stress
