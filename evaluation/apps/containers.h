// The containers of a program that is built twice from the same source: NAME-far on those of Farheap
// (docs/containers.md), and NAME-std on those of the standard library, all in local memory. Programs say
// memory::vector, memory::scope and so on, and read otherwise like any on far containers.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#ifdef APP_ON_STD
#include <semaphore>

#include "apps/std_containers.h"
namespace apps {
inline constexpr bool is_far = false;
using semaphore = std::counting_semaphore<>;
}  // namespace apps
#else
#include "far/fiber.h"
#include "far/hash_map.h"
#include "far/runtime.h"
#include "far/scope.h"
#include "far/string.h"
#include "far/vector.h"
namespace memory = far;  // NOLINT(misc-unused-alias-decls): programs use it
namespace apps {
inline constexpr bool is_far = true;
using semaphore = far::counting_semaphore;
}  // namespace apps
#endif

namespace apps {

// How many parts of some work are worth being under way at a time: on fibers, more than threads, since those that wait
// for the far tier leave theirs to others.
inline std::size_t tasks_for(unsigned threads) {
  return (is_far ? 8u : 1u) * std::size_t{std::max(1u, threads)};
}
inline std::size_t tasks_at_a_time() {
  return tasks_for(std::thread::hardware_concurrency());
}

// Calls visit(first, last) for all parts of [0, count) of at most `part`, on several fibers or threads at a time, in
// any order, and waits for all. Throws what one of them throws; parts not begun are left out then.
template <typename Visit>
void in_parallel(memory::runtime& on, std::size_t count, std::size_t part, const Visit& visit) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    try {
      for (std::size_t first = next.fetch_add(part); first < count; first = next.fetch_add(part)) {
        visit(first, std::min(count, first + part));
      }
    } catch (...) {
      next.store(count);
      throw;
    }
  };
  std::vector<memory::task<void>> running;
  const std::size_t tasks = std::min(tasks_at_a_time(), (count + part - 1) / part);
  running.reserve(tasks);
  const auto wait_for_all = [&] {
    for (memory::task<void>& one : running) one.wait();
  };
  try {
    for (std::size_t i = 0; i < tasks; ++i) running.push_back(on.spawn(work));
  } catch (...) {
    next.store(count);
    wait_for_all();  // they use what is on this stack
    throw;
  }
  wait_for_all();
  for (memory::task<void>& one : running) one.join();
}

}  // namespace apps
