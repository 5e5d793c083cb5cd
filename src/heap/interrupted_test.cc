// One operation of the heap is interrupted by another, as a whole, at each of its basic blocks in turn; over the
// poisoning pager. So each window that a single interruption can hit is hit, in every run. The heap is compiled with
// -fsanitize-coverage=trace-pc and without inlining; this file must not be.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/relocatable.h"
#include "far/runtime.h"
#include "far/scope.h"
#include "far/shared_ptr.h"
#include "far/tag.h"
#include "far/unique_ptr.h"
#include "heap/grace_periods.h"
#include "heap/heap.h"
#include "heap/segments.h"

namespace {

struct interruption {
  std::size_t blocks_left;
  const std::function<void()>& run;
};
thread_local constinit interruption* armed = nullptr;
// Becomes armed while the far pointer in a `parent` is visited.
thread_local constinit interruption* armed_in_visit = nullptr;

}  // namespace

extern "C" void __sanitizer_cov_trace_pc() {
  if (armed == nullptr || armed->blocks_left-- > 0) return;
  std::exchange(armed, nullptr)->run();
}

namespace far {
namespace {

using namespace std::chrono_literals;

struct item {
  std::uint64_t number = 0;
  std::array<std::uint64_t, 20> content{};

  explicit item(std::uint64_t value) : number(value) { content.fill(value * 31); }
  [[nodiscard]] bool is(std::uint64_t value) const { return number == value && content[19] == value * 31; }
};

// Of an object that moves; its pointer is followed.
struct parent {
  unique_ptr<std::uint64_t[]> child;
};

}  // namespace

template <>
struct pointers_of<parent> {
  static void visit(parent& in, auto&& pointer) {
    armed = std::exchange(armed_in_visit, nullptr);
    pointer(in.child);
    armed = nullptr;
  }
};

namespace {

class interrupted_test : public testing::Test {
 protected:
  // Nothing leaves unless a test says so.
  static runtime_options options() {
    runtime_options chosen;
    chosen.local_bytes = 16 * mib;
    chosen.workers = 1;
    chosen.policy = "fifo";
    chosen.evacuate_garbage_share = 2;
    return chosen;
  }

  [[nodiscard]] detail::object_heap& heap() { return detail::heap_of(farheap_); }
  [[nodiscard]] static std::uintptr_t page_of(const item& one) {
    return reinterpret_cast<std::uintptr_t>(&one) & ~std::uintptr_t{page_bytes - 1};
  }
  [[nodiscard]] std::uintptr_t page_of(const shared_ptr<item>& one) {
    const scope here(farheap_);
    return page_of(one.deref(here));
  }

  // Two in a page that is full of others.
  void make_two() {
    others_.clear();
    do {
      first_ = make_shared<item>(farheap_, 1u);
      second_ = make_shared<item>(farheap_, 2u);
      for (int i = 0; i < 8; ++i) others_.push_back(make_shared<item>(farheap_, 3u));
    } while (page_of(first_) != page_of(second_));
  }

  // The page is resident, and could leave at once: nobody has used it since the last grace period.
  void condemn(std::uintptr_t address) {
    heap::page_table& pages = heap().pages;
    const std::size_t page = pages.page_of(address);
    const heap::grace_number number = heap::scopes_without_log.stamp([&](heap::grace_number now) {
      pages.condemn(page, now);
      return true;
    });
    pages.cool(page);
    ASSERT_TRUE(heap::scopes_without_log.wait_until_over(number, 10s));
  }

  // Prepares and runs the operation, interrupted at one block after the other, until it has no more. Returns how many
  // there were. The interruption runs on a thread that may go on beyond the operation, if it must wait for it.
  // `begins`: what is armed, the operation or a part of it.
  template <typename Prepare, typename Operation>
  static std::size_t interrupt_everywhere(Prepare prepare, Operation operation, const std::function<void()>& other,
                                          interruption*& begins = armed) {
    for (std::size_t blocks = 0;; ++blocks) {
      prepare();
      std::future<void> running;
      const std::function<void()> run = [&] {
        running = std::async(std::launch::async, other);
        static_cast<void>(running.wait_for(1ms));
      };
      interruption at{blocks, run};
      begins = &at;
      operation();
      begins = nullptr;
      if (!running.valid()) return blocks;
      running.get();
    }
  }

  // The parent is in a closed segment that is worth an evacuation, and gets what it owns from the caller.
  void make_parent() {
    parent_ = make_unique<parent>(farheap_);
    std::vector<unique_ptr<whole_page>> garbage;
    for (std::size_t i = 0; i <= heap::segment_pages; ++i) garbage.push_back(make_unique<whole_page>(farheap_));
  }

  struct whole_page {
    std::array<std::uint64_t, 500> content{};
  };

  runtime farheap_{options()};
  unique_ptr<parent> parent_;
  shared_ptr<item> first_;
  shared_ptr<item> second_;
  std::vector<shared_ptr<item>> others_;
};

// The page leaves at any moment: then it comes back, or it stays because it is used.
TEST_F(interrupted_test, a_dereference_by_the_eviction_of_its_page) {
  for (const double page_path_share : {0.0, 2.0}) {
    farheap_.set_page_path_share(page_path_share);
    std::uintptr_t page = 0;
    std::size_t wrong = 0;
    const auto prepare = [&] {
      make_two();
      page = page_of(first_);
      condemn(page);
    };
    const auto use = [&] {
      const scope here(farheap_);
      const item& found = first_.deref(here);
      wrong += found.is(1) ? 0 : 1;
      wrong += &first_.deref(here) == &found && found.is(1) ? 0 : 1;
    };
    EXPECT_GT(interrupt_everywhere(prepare, use, [&] { heap().memory.evict(page, page_bytes); }), 10u);
    EXPECT_EQ(wrong, 0u) << page_path_share;
    EXPECT_GT(farheap_.statistics().evicted_pages, 5u) << "it did leave";
  }
  farheap_.validate();
}

// Whoever finds the object while its page is about to leave keeps it until the scope ends.
TEST_F(interrupted_test, an_eviction_by_a_dereference) {
  for (const double page_path_share : {0.0, 2.0}) {
    farheap_.set_page_path_share(page_path_share);
    std::uintptr_t page = 0;
    std::atomic<std::size_t> wrong = 0;
    std::atomic<bool> is_evicted = false;
    const auto prepare = [&] {
      make_two();
      page = page_of(first_);
      condemn(page);
      is_evicted = false;
    };
    const auto evict = [&] {
      heap().memory.evict(page, page_bytes);
      is_evicted = true;
    };
    const auto hold = [&] {
      const scope here(farheap_);
      const item& found = first_.deref(here);
      wrong += found.is(1) ? 0 : 1;
      while (!is_evicted) std::this_thread::sleep_for(50us);
      wrong += found.is(1) && &first_.deref(here) == &found ? 0 : 1;
    };
    EXPECT_GT(interrupt_everywhere(prepare, evict, hold), 10u);
    EXPECT_EQ(wrong, 0u) << page_path_share;
  }
  farheap_.validate();
}

// The object moves to a place of its own, and its page comes back for others.
TEST_F(interrupted_test, a_dereference_by_another_that_fetches_the_object_alone) {
  farheap_.set_page_path_share(2);
  std::uintptr_t page = 0;
  std::size_t wrong = 0;
  const std::uint64_t fetched_before = farheap_.statistics().object_fetches;
  const auto prepare = [&] {
    make_two();
    page = page_of(first_);
    heap().evict(page, page_bytes);
  };
  const auto use = [&] {
    const scope here(farheap_);
    const item& found = first_.deref(here);
    wrong += found.is(1) && &first_.deref(here) == &found ? 0 : 1;
  };
  const auto fetch_both = [&] {
    const scope here(farheap_);
    static_cast<void>(first_.deref(here));
    heap().memory.fetch(page, 1, false);
  };
  const std::size_t blocks = interrupt_everywhere(prepare, use, fetch_both);
  EXPECT_GT(blocks, 10u);
  EXPECT_EQ(wrong, 0u);
  EXPECT_GE(farheap_.statistics().object_fetches - fetched_before, blocks);
  farheap_.validate();
}

// The evacuator has moved the parent, and is about to write into the header of what that owns, or to count it as stale.
// Huge objects have no header.
TEST_F(interrupted_test, a_followed_pointer_by_one_that_makes_it_huge) {
  constexpr std::size_t count = 4 * page_bytes / sizeof(std::uint64_t);
  for (const bool is_remote_before : {false, true}) {
    for (const bool is_used : {false, true}) {
      std::size_t wrong = 0;
      const auto prepare = [&] {
        make_parent();
        const scope here(farheap_);
        unique_ptr<std::uint64_t[]>& child = parent_.deref_mut(here).child;
        child = make_unique<std::uint64_t[]>(farheap_, 10);
        if (is_remote_before) heap().force_out(reinterpret_cast<std::uintptr_t>(&child.deref(here, 0)));
      };
      const auto replace = [&] {
        const scope here(farheap_);
        unique_ptr<std::uint64_t[]>& child = parent_.deref_mut(here).child;
        child = make_unique<std::uint64_t[]>(farheap_, count);
        if (is_used) child.deref_mut(here, 0) = 5;
      };
      const auto evacuate = [&] { static_cast<void>(farheap_.evacuate(0.5)); };
      const auto check = [&] {
        evacuate();
        const scope here(farheap_);
        const unique_ptr<std::uint64_t[]>& child = parent_.deref(here).child;
        if (child.size() != count) return;  // not interrupted
        const std::uint64_t& first = child.deref(here, 0);
        wrong += first == (is_used ? 5u : 0u) ? 0 : 1;
        wrong += heap().pages.stale_in(heap().pages.page_of(reinterpret_cast<std::uintptr_t>(&first)));
      };
      EXPECT_GT(interrupt_everywhere(prepare, check, replace, armed_in_visit), 10u);
      EXPECT_EQ(wrong, 0u);
    }
  }
  EXPECT_GT(farheap_.statistics().evacuated_objects, 10u);
  farheap_.validate();
}

// The evacuator has moved the parent, and is about to lock the header of what that owned. The place is another's by
// then.
TEST_F(interrupted_test, a_followed_pointer_by_one_that_frees_its_segment) {
  constexpr std::size_t words_each = heap::segment_bytes / 3 / sizeof(std::uint64_t);
  const tag of_children(farheap_, {});
  std::vector<unique_ptr<whole_page>> beside;
  std::vector<unique_ptr<std::uint64_t[]>> others;
  std::atomic<bool> is_over = false;
  std::size_t hung = 0;
  std::size_t wrong = 0;
  const auto prepare = [&] {
    others.clear();
    make_parent();
    is_over = false;
    const scope here(farheap_);
    parent_.deref_mut(here).child = make_unique<std::uint64_t[]>(of_children, 10);
    for (std::size_t i = 0; i <= heap::segment_pages; ++i) beside.push_back(make_unique<whole_page>(of_children));
  };
  const auto free_all = [&] {
    const scope here(farheap_);
    beside.clear();
    parent_.deref_mut(here).child.reset();
    // Odd numbers look like a header that is locked.
    for (unsigned i = 0; i < 3; ++i) {
      others.push_back(make_unique<std::uint64_t[]>(farheap_, words_each));
      for (std::uint64_t& one : others.back().deref_mut(here)) one = 1;
    }
    for (unsigned tries = 0; tries < 500 && !is_over; ++tries) std::this_thread::sleep_for(1ms);
    if (!is_over) ++hung;
    for (unique_ptr<std::uint64_t[]>& one : others) {
      for (std::uint64_t& word : one.deref_mut(here)) wrong += std::exchange(word, 0) == 1 ? 0 : 1;
    }
  };
  const auto evacuate = [&] {
    static_cast<void>(farheap_.evacuate(0.5));
    is_over = true;
  };
  EXPECT_GT(interrupt_everywhere(prepare, evacuate, free_all, armed_in_visit), 10u);
  EXPECT_EQ(hung, 0u);
  EXPECT_EQ(wrong, 0u);
  others.clear();
  beside.clear();
  farheap_.validate();
}

}  // namespace
}  // namespace far
