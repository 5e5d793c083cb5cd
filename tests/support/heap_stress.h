// Everything at once, under a budget of a tenth of the data: fibers and OS threads allocate, read, write, share, free,
// move pointers and hold scopes for random times, while segments are evacuated and pages evicted all the time. Every
// object says what it must contain. Over the real pager (stress_test.cc) and over the simulated one
// (simulated_stress_test.cc).
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "base/units.h"
#include "far/runtime.h"
#include "far/shared_ptr.h"
#include "far/unique_ptr.h"
#include "fiber/mutex.h"
#include "fiber/scheduler.h"
#include "fiber/this_fiber.h"
#include "heap/scope_log.h"

namespace far {
namespace stress {

inline std::uint64_t mix(std::uint64_t value) {
  value ^= value >> 31;
  value *= 0x9e3779b97f4a7c15u;
  return value ^ value >> 29;
}

// An object whose content follows from its first two words.
template <std::size_t Words>
struct self_checking {
  std::uint64_t number = 0;
  std::uint64_t version = 0;
  std::array<std::uint64_t, Words> content{};

  explicit self_checking(std::uint64_t value) : number(value) { set(0); }
  void set(std::uint64_t next_version) {
    version = next_version;
    for (std::size_t i = 0; i < Words; ++i) content[i] = mix(number * 131 + version * 17 + i);
  }
  [[nodiscard]] bool is_right() const {
    for (std::size_t i = 0; i < Words; ++i) {
      if (content[i] != mix(number * 131 + version * 17 + i)) return false;
    }
    return true;
  }
};

using small = self_checking<4>;
using medium = self_checking<61>;
using page_sized = self_checking<510>;

// With pointers of its own.
struct tree {
  std::uint64_t number = 0;
  unique_ptr<tree> left;
  unique_ptr<tree> right;
  shared_ptr<medium> payload;
};

}  // namespace stress

template <>
struct pointers_of<stress::tree> {
  static void visit(stress::tree& in, auto&& pointer) {
    pointer(in.left);
    pointer(in.right);
    pointer(in.payload);
  }
};

namespace stress {

// The objects and the work of one fiber or thread. Nobody else uses its objects, except those in `shared`.
class actor {
 public:
  actor(runtime& farheap, std::uint64_t seed, std::size_t objects) : farheap_(farheap), random_(seed), seed_(seed) {
    smalls_.resize(objects);
    mediums_.resize(objects / 8);
    pages_.resize(objects / 64);
  }

  void run(std::size_t steps) {
    for (std::size_t i = 0; i < steps; ++i) step();
    check_all();
  }

  [[nodiscard]] std::uint64_t wrong() const { return wrong_; }

 private:
  void step() {
    // As if a scope had been open for long: about half of all scopes log.
    if (random_() % 256 == 0) heap::note_long_scope(heap::current_record());
    switch (random_() % 16) {
      case 0: return hold_many();
      case 1: return move_around();
      case 2: return grow_tree();
      case 3: return share();
      case 4: prefetch_some(); return static_cast<void>(tree_is_right(root_, 0));
      case 5: return use(mediums_);
      case 6: return use(pages_);
      case 7: return fiber::yield();
      case 8:
        if (random_() % 64 == 0) root_.reset();
        return;
      default: return use(smalls_);
    }
  }

  // Its objects come in while it goes on; the next step may read, move or free them.
  void prefetch_some() {
    for (unsigned i = 0; i < 8; ++i) static_cast<void>(smalls_[random_() % smalls_.size()].prefetch());
    if (!root_) return;
    const scope here(farheap_);
    const tree& top = root_.deref(here);
    if (top.left) static_cast<void>(top.left.prefetch());
    if (top.right) static_cast<void>(top.right.prefetch());
  }

  // Makes, reads, writes or frees one object.
  template <typename T>
  void use(std::vector<unique_ptr<T>>& all) {
    unique_ptr<T>& one = all[random_() % all.size()];
    if (!one) {
      one = make_unique<T>(farheap_, mix(seed_ + static_cast<std::uint64_t>(&one - all.data())));
      return;
    }
    const std::uint64_t choice = random_() % 8;
    if (choice == 0) return one.reset();
    if (choice == 1) return one.write(one.read());
    const scope here(farheap_);
    if (choice < 4) {
      T& object = choice == 2 ? one.deref_mut(here) : one.deref_mut(here, non_temporal);
      wrong_ += !object.is_right();
      object.set(object.version + 1);
    } else {
      wrong_ += !one.deref(here).is_right();
    }
  }

  // A long scope with many objects, some of them in inner scopes, that waits in between.
  void hold_many() {
    const scope outer(farheap_);
    std::vector<const small*> held;
    const std::size_t count = random_() % 200;
    for (std::size_t i = 0; i < count; ++i) {
      const unique_ptr<small>& one = smalls_[random_() % smalls_.size()];
      if (!one) continue;
      held.push_back(&one.deref(outer));
      if (i % 8 == 0) {
        const scope inner(farheap_);
        const unique_ptr<medium>& other = mediums_[random_() % mediums_.size()];
        if (other) wrong_ += !other.deref(inner).is_right();
      }
      if (i % 64 == 0) fiber::yield();
    }
    for (const small* item : held) wrong_ += !item->is_right();
  }

  void move_around() {
    for (unsigned i = 0; i < 8; ++i) {
      std::swap(smalls_[random_() % smalls_.size()], smalls_[random_() % smalls_.size()]);
    }
    if (random_() % 16 == 0) {
      std::vector<unique_ptr<medium>> elsewhere;
      for (unique_ptr<medium>& owner : mediums_) elsewhere.push_back(std::move(owner));
      mediums_ = std::move(elsewhere);
    }
  }

  void grow_tree() {
    const scope whole(farheap_);
    unique_ptr<tree>* at = &root_;
    std::uint64_t number = 1;
    while (*at) {
      tree& here = at->deref_mut(whole);
      const bool left = random_() % 2 == 0;
      number = number * 2 + (left ? 0 : 1);
      at = left ? &here.left : &here.right;
    }
    *at = make_unique<tree>(farheap_);
    at->deref_mut(whole).number = number;
    if (random_() % 4 == 0) at->deref_mut(whole).payload = make_shared<medium>(farheap_, number);
  }

  [[nodiscard]] bool tree_is_right(const unique_ptr<tree>& from, unsigned depth) {
    if (!from || depth > 40) return true;
    const scope here(farheap_);
    const tree& node = from.deref(here);
    if (node.payload) {
      const medium& payload = node.payload.deref(here);
      wrong_ += !payload.is_right() || payload.number != node.number;
    }
    return tree_is_right(random_() % 2 == 0 ? node.left : node.right, depth + 1);
  }

  void share() {
    if (aliases_.size() < 64) aliases_.push_back(make_shared<medium>(farheap_, random_()));
    shared_ptr<medium>& one = aliases_[random_() % aliases_.size()];
    shared_ptr<medium>& other = aliases_[random_() % aliases_.size()];
    if (random_() % 2 == 0) other = one;
    const scope here(farheap_);
    wrong_ += !one.deref(here).is_right();
    if (random_() % 16 == 0)
      aliases_.erase(aliases_.begin() + static_cast<std::ptrdiff_t>(random_() % aliases_.size()));
  }

  void check_all() {
    const auto check = [this](const auto& all) {
      for (const auto& owner : all) {
        if (!owner) continue;
        const scope here(farheap_);
        wrong_ += !owner.deref(here).is_right();
      }
    };
    check(smalls_);
    check(mediums_);
    check(pages_);
    check(aliases_);
  }

  runtime& farheap_;
  std::mt19937_64 random_;
  std::uint64_t seed_;
  std::uint64_t wrong_ = 0;
  std::vector<unique_ptr<small>> smalls_;
  std::vector<unique_ptr<medium>> mediums_;
  std::vector<unique_ptr<page_sized>> pages_;
  std::vector<shared_ptr<medium>> aliases_;
  unique_ptr<tree> root_;
};

// On a busy machine the actors may have called off every move, and what they made is gone. So this makes objects for
// two segments and more, and garbage of every other one. Nobody is left who could call off the moves of the rest; but
// the runtime's own evacuation may be there first.
inline void evacuate_undisturbed(runtime& farheap) {
  const std::uint64_t before = farheap.statistics().evacuated_objects;
  std::vector<unique_ptr<small>> kept;
  for (std::uint64_t i = 0; i < 12'000; ++i) {
    unique_ptr<small> one = make_unique<small>(farheap, i);
    if (i % 2 == 0) kept.push_back(std::move(one));
  }
  static_cast<void>(farheap.evacuate(0.25));
  EXPECT_GT(farheap.statistics().evacuated_objects, before);
  for (const unique_ptr<small>& one : kept) {
    const scope here(farheap);
    EXPECT_TRUE(one.deref(here).is_right());
  }
}

// What depends on how threads meet, which on a busy machine they seldom do.
inline bool have_met(const runtime_statistics& now) {
  return now.evicted_pages > 100 && now.page_fetches > 100 && now.lost_races > 10 && now.held_pages > 10;
}

// Thousands each, even of the fewest steps.
inline void expect_everything_happened(const runtime_statistics& now, double page_path_share) {
  EXPECT_GT(now.evicted_pages, 100u);
  EXPECT_GT(now.page_fetches, 100u) << "huge objects come by page whatever the share";
  if (page_path_share > 0) {
    EXPECT_GT(now.object_fetches, 100u);
  } else {
    EXPECT_EQ(now.object_fetches, 0u);
  }
  EXPECT_GT(now.evacuated_objects, 100u);
  EXPECT_GT(now.lost_races, 10u) << "the program takes objects back that are about to move";
  EXPECT_GT(now.held_pages, 10u) << "scopes keep pages";
}

struct scale {
  std::size_t fibers = 32;
  std::size_t threads = 2;
  std::size_t objects_each = 30'000;
  std::size_t steps = 10'000;
};

inline void run(const runtime_options& chosen, const scale& size) {
  runtime farheap(chosen);
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<bool> stop{false};
  const auto latest = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  const auto act = [&](std::uint64_t seed) {
    const auto one = std::make_unique<actor>(farheap, seed, size.objects_each);
    one->run(size.steps);
    while (!have_met(farheap.statistics()) && std::chrono::steady_clock::now() < latest) one->run(size.steps / 10);
    wrong += one->wrong();
  };
  std::thread disturbs([&] {
    std::mt19937_64 random(7);
    for (unsigned round = 0; !stop; ++round) {
      static_cast<void>(farheap.evacuate(static_cast<double>(random() % 4) / 4));
      if (round % 8 == 2) farheap.evict_all();
      if (random() % 8 == 0) farheap.resize(chosen.local_bytes * (8 + random() % 4) / 8);
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
    }
  });
  {
    std::deque<fiber::handle> running;
    std::vector<std::thread> outside;
    for (std::uint64_t i = 0; i < size.fibers; ++i) running.push_back(farheap.fibers().spawn([&act, i] { act(i); }));
    for (std::uint64_t i = 0; i < size.threads; ++i) outside.emplace_back([&act, i] { act(1000 + i); });
    for (fiber::handle& fiber_handle : running) fiber_handle.join();
    for (std::thread& thread : outside) thread.join();
  }
  stop = true;
  disturbs.join();
  EXPECT_EQ(wrong, 0u);
  farheap.validate();
  evacuate_undisturbed(farheap);
  farheap.validate();
  expect_everything_happened(farheap.statistics(), chosen.page_path_share);
}

}  // namespace stress
}  // namespace far
