// Whoever locks headers asks for pages that can be written before, instead of meeting the hardware guard
// (docs/decisions/0045-no-wait-for-headers.md). Counted where the hardware guard is a signal. Needs permission for
// userfaultfd.
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "far/runtime.h"
#include "far/scope.h"
#include "far/unique_ptr.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

std::atomic<std::uint64_t> signals{0};
struct sigaction action_of_guard{};

void count_and_go_on(int number, siginfo_t* info, void* context) {
  signals.fetch_add(1, std::memory_order_relaxed);
  action_of_guard.sa_sigaction(number, info, context);
}

// Counts the accesses that the hardware guard of a runtime serves.
class guard_counter {
 public:
  guard_counter() {
    sigaction(SIGBUS, nullptr, &action_of_guard);
    struct sigaction counting = action_of_guard;
    counting.sa_sigaction = &count_and_go_on;
    sigaction(SIGBUS, &counting, nullptr);
  }
  ~guard_counter() { sigaction(SIGBUS, &action_of_guard, nullptr); }
  guard_counter(const guard_counter&) = delete;
  guard_counter& operator=(const guard_counter&) = delete;

  [[nodiscard]] static std::uint64_t get() { return signals.load(std::memory_order_relaxed); }
};

struct object {
  std::uint64_t number = 0;
  std::array<std::uint64_t, 99> content{};
};

constexpr std::size_t objects = 2'000;  // four or five to a page

class header_writes_test : public heap::real_pager_test<> {
 protected:
  void fill() {
    runtime_options chosen = heap::small_runtime();
    chosen.hardware_guard = runtime_options::guard::in_line;
    chosen.page_path_share = 0;
    farheap_ = std::make_unique<runtime>(chosen);
    all_.resize(objects);
    for (std::size_t i = 0; i < objects; ++i) all_[i] = make_unique<object>(*farheap_, object{.number = i});
  }
  // All are in pages that came back whole and are protected against writes. A page that was written to during its last
  // stay is expected to be written to again, and comes back writable: so twice.
  void read_all() {
    for (int time = 0; time < 2; ++time) {
      farheap_->evict_all();
      for (std::size_t i = 0; i < objects; ++i) {
        if (all_[i]) {
          EXPECT_EQ(all_[i].read().number, i);
        }
      }
    }
  }

  std::unique_ptr<runtime> farheap_;
  std::vector<unique_ptr<object>> all_;
};

TEST_F(header_writes_test, pointers_are_moved_and_destroyed_without_the_hardware_guard) {
  fill();
  read_all();
  const guard_counter served;
  const std::uint64_t before = guard_counter::get();
  std::vector<unique_ptr<object>> moved;
  for (std::size_t i = 0; i < objects / 2; ++i) moved.push_back(std::move(all_[i]));
  for (std::size_t i = objects / 2; i < objects; ++i) all_[i].reset();
  EXPECT_EQ(guard_counter::get(), before);
  for (std::size_t i = 0; i < moved.size(); ++i) EXPECT_EQ(moved[i].read().number, i);
  farheap_->validate();
}

TEST_F(header_writes_test, objects_are_moved_without_the_hardware_guard) {
  fill();
  for (std::size_t i = 0; i < objects; ++i) {
    if (i % 3 != 0) all_[i].reset();
  }
  read_all();
  const guard_counter served;
  const std::uint64_t before = guard_counter::get();
  const std::uint64_t moved_before = farheap_->statistics().evacuated_objects;
  static_cast<void>(farheap_->evacuate(0.3));
  EXPECT_EQ(guard_counter::get(), before);
  EXPECT_GT(farheap_->statistics().evacuated_objects - moved_before, objects / 6);
  farheap_->validate();
}

// That the count shows what it is to show.
TEST_F(header_writes_test, other_writes_meet_the_hardware_guard) {
  fill();
  read_all();
  const guard_counter served;
  const std::uint64_t before = guard_counter::get();
  const scope here(*farheap_);
  const_cast<object&>(all_[7].deref(here)).content[0] = 1;
  EXPECT_EQ(guard_counter::get(), before + 1);
}

}  // namespace
}  // namespace far
