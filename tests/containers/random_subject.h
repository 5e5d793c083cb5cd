// For random programs of containers (random_test.cc): what has containers and their models, and does what may fail.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <random>
#include <vector>

#include "tests/containers/random_elements.h"

namespace far::random_program {

using numbers = std::vector<std::uint64_t>;

// The numbers of all elements of a range.
inline numbers read(auto&& range) {
  numbers all;
  for (const auto& one : range) all.push_back(one.number());
  return all;
}

// One container, or several of a kind, and their models.
class subject {
 public:
  explicit subject(std::uint64_t seed) : random_(seed) {}
  virtual ~subject() = default;
  subject(const subject&) = delete;
  subject& operator=(const subject&) = delete;
  virtual void step() = 0;
  virtual void compare() = 0;

 protected:
  [[nodiscard]] std::uint64_t below(std::uint64_t end) { return random_() % std::max<std::uint64_t>(end, 1); }
  [[nodiscard]] bool once_in(std::uint64_t times) { return below(times) == 0; }
  // Few of them, so that many are equal.
  [[nodiscard]] std::uint64_t value() { return below(300); }

  // Does it, perhaps with a failure under way. Returns whether it was done.
  bool attempt(const std::function<void()>& action) {
    if (once_in(3)) operations_to_go = static_cast<int>(1 + below(once_in(4) ? 300 : 6));
    if (once_in(8)) allocations_to_go = static_cast<int>(1 + below(3));
    bool done = true;
    try {
      action();
    } catch (const burnt&) {
      done = false;
    } catch (const std::bad_alloc&) {
      done = false;
    }
    operations_to_go = allocations_to_go = 0;
    return done;
  }
  // The same; nothing has happened where it fails.
  bool attempt(const std::function<void()>& action, const std::function<void()>& model) {
    const long before = living;
    if (attempt(action)) {
      model();
      return true;
    }
    EXPECT_EQ(living, before) << "elements of what failed";
    if (once_in(4)) compare();
    return false;
  }
  // The same; otherwise resync() takes what is there for right.
  void attempt_changes(const std::function<void()>& action, const std::function<void()>& model,
                       const std::function<void()>& resync) {
    (attempt(action) ? model : resync)();
  }

  std::mt19937_64 random_;
};

}  // namespace far::random_program
