// Handlers before objects leave, beside fibers and threads that use the objects all the time. Each call of the handler
// is counted for its object, in the object and beside it: at the end the counts agree, so no call came while somebody
// had the object, none was lost, and none came without the other. Over the real pager (leaving_test.cc) and over the
// simulated one (simulated_stress_test.cc).
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "far/runtime.h"
#include "far/tag.h"
#include "far/unique_ptr.h"

namespace far::stress {

struct guest {
  std::uint64_t number = 0;
  std::uint64_t uses = 0;
  std::uint64_t left = 0;
  std::uint64_t sum = 0;  // of the three: torn, or changed by two at a time, it is wrong
  std::array<std::uint64_t, 20> luggage{};

  [[nodiscard]] bool is_right() const { return sum == number + uses + left && luggage[number % 20] == number; }
};

inline void run_leaving(const runtime_options& chosen, std::size_t objects, std::size_t steps) {
  runtime farheap(chosen);
  const auto calls = std::make_unique<std::atomic<std::uint64_t>[]>(objects);
  std::atomic<std::uint64_t> wrong{0};
  const tag guests(farheap, {}, before_leaving<guest>([&](guest& one) {
                     wrong += one.is_right() ? 0 : 1;
                     ++one.left;
                     ++one.sum;
                     ++calls[one.number % objects];
                   }));
  std::vector<unique_ptr<guest>> all(objects);
  const auto make = [&](std::uint64_t number) {
    guest fresh{.number = number, .sum = number};
    fresh.luggage[number % 20] = number;
    return make_unique<guest>(guests, fresh);
  };
  for (std::uint64_t i = 0; i < objects; ++i) all[i] = make(i);
  constexpr std::size_t actors = 6;
  const auto act = [&](std::size_t actor) {
    std::mt19937_64 random(actor);
    std::vector<std::uint64_t> uses(objects);
    for (std::size_t step = 0; step < steps; ++step) {
      const std::uint64_t mine = random() % (objects / actors) * actors + actor;
      const scope here(farheap);
      if (random() % 8 == 0) {
        // Its calls are counted by number, so the new one goes on where the old one was.
        guest copy = all[mine].deref(here);
        all[mine].reset();
        all[mine] = make_unique<guest>(guests, copy);
      } else if (random() % 2 == 0) {
        guest& one = all[mine].deref_mut(here);
        ++one.uses;
        ++one.sum;
      }
      wrong += all[mine].deref(here).is_right() ? 0 : 1;
    }
  };
  std::vector<task<void>> fibers;
  for (std::size_t i = 0; i < actors - 2; ++i) fibers.push_back(farheap.spawn([&act, i] { act(i); }));
  std::thread one([&] { act(actors - 2); });
  std::thread other([&] { act(actors - 1); });
  for (int i = 0; i < 10; ++i) {
    static_cast<void>(farheap.evacuate(0.1));
    farheap.evict_all();  // pages in use, too, as far as the filter lets them go
  }
  one.join();
  other.join();
  for (task<void>& fiber : fibers) fiber.join();
  std::uint64_t different = 0;
  for (std::size_t i = 0; i < objects; ++i) {
    const scope here(farheap);
    const guest& last = all[i].deref(here);
    wrong += last.is_right() && last.number == i ? 0 : 1;
    different += last.left == calls[i].load() ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(different, 0u);
  EXPECT_GT(farheap.statistics().handled_objects, objects / 2);
  farheap.validate();
}

}  // namespace far::stress
