// One operation of the heap is interrupted by another, as a whole, at each of its basic blocks in turn; over the
// poisoning pager. So each window that a single interruption can hit is hit, in every run. The heap is compiled with
// -fsanitize-coverage=trace-pc and without inlining; this file must not be.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <future>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/detail/pointer.h"
#include "far/relocatable.h"
#include "far/runtime.h"
#include "far/scope.h"
#include "far/shared_ptr.h"
#include "far/tag.h"
#include "far/unique_ptr.h"
#include "heap/grace_periods.h"
#include "heap/heap.h"
#include "heap/scope_log.h"
#include "heap/scope_records.h"
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

// Its destructor leaves nothing to use.
struct mortal {
  volatile bool is_alive = true;
  ~mortal() { is_alive = false; }
};

// Of an object that moves; its pointer is followed.
struct parent {
  unique_ptr<std::uint64_t[]> child;
};

}  // namespace

template <>
inline constexpr bool is_relocatable<mortal> = true;
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
    ASSERT_TRUE(heap::scopes_without_log.wait_until_over(number, 120s));
  }

  // Prepares and runs the operation, interrupted at one block after the other, until it has no more. Returns how many
  // there were. The interruption runs on a thread that may go on beyond the operation, if it must wait for it.
  // `begins`: what is armed, the operation or a part of it. `first`, `step`: of the blocks.
  template <typename Prepare, typename Operation>
  static std::size_t interrupt_everywhere(Prepare prepare, Operation operation, const std::function<void()>& other,
                                          interruption*& begins = armed, std::size_t first = 0, std::size_t step = 1) {
    for (std::size_t blocks = first;; blocks += step) {
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
    make_garbage();
  }
  // The next object has another segment.
  void make_garbage() {
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
    // Not at each block: where processors are scarce, the eviction may take longer than the interruption waits for it.
    EXPECT_GT(farheap_.statistics().evicted_pages, 0u) << "it did leave";
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

// A scope that logs has the object. No grace period waits for that, so the evictor claims the page, and gives it back.
TEST_F(interrupted_test, an_eviction_of_what_stays_by_the_question_whether_it_is_local) {
  std::uintptr_t page = 0;
  std::atomic<std::size_t> wrong = 0;
  detail::owner_word one{0};
  detail::make_object<item>(farheap_, one, 1u);
  heap::note_long_scope(heap::current_record());
  const scope here(farheap_);
  const auto prepare = [&] {
    page = page_of(*reinterpret_cast<const item*>(here.reach(one, false, true)));
    condemn(page);
  };
  const auto evict = [&] { heap().memory.evict(page, page_bytes); };
  EXPECT_GT(interrupt_everywhere(prepare, evict, [&] { wrong += detail::is_local(one) ? 0 : 1; }), 10u);
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(farheap_.statistics().held_pages, 10u) << "it was claimed, and stayed";
  detail::destroy<item>(one);
}

// Who learns from the handler that the object leaves is told so, and need not ask again.
TEST_F(interrupted_test, an_eviction_by_who_learns_of_it_from_the_handler) {
  std::uintptr_t page = 0;
  std::atomic<bool> is_noted = false;
  std::atomic<std::size_t> learned = 0;
  std::atomic<std::size_t> wrong = 0;
  const tag handled(farheap_, {}, before_leaving<item>([&](const item&) { is_noted = true; }));
  detail::owner_word one{0};
  detail::make_object<item>(handled, one, 1u);
  const auto prepare = [&] {
    {
      const scope here(farheap_);
      page = page_of(*reinterpret_cast<const item*>(here.reach(one, true, true)));
    }
    condemn(page);
    is_noted = false;
  };
  const auto ask = [&] {
    if (!is_noted.exchange(false)) return;
    ++learned;
    wrong += detail::is_local(one) ? 1 : 0;
  };
  EXPECT_GT(interrupt_everywhere(prepare, [&] { heap().memory.evict(page, page_bytes); }, ask), 10u);
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(learned, 0u);
  detail::destroy<item>(one);
  handled.give_back();
}

// Handlers are called for objects, and not for what a destructor has left of them.
TEST_F(interrupted_test, a_destruction_by_the_eviction_of_its_page) {
  std::uintptr_t page = 0;
  std::atomic<std::size_t> called = 0;
  std::atomic<std::size_t> wrong = 0;
  const tag handled(farheap_, {}, before_leaving<mortal>([&](const mortal& one) {
                      ++called;
                      wrong += one.is_alive ? 0 : 1;
                    }));
  unique_ptr<mortal> one;
  const auto prepare = [&] {
    one = make_unique<mortal>(handled);
    const scope here(farheap_);
    page = reinterpret_cast<std::uintptr_t>(&one.deref(here)) & ~std::uintptr_t{page_bytes - 1};
  };
  const auto evict = [&] {
    condemn(page);
    heap().memory.evict(page, page_bytes);
  };
  EXPECT_GT(interrupt_everywhere(prepare, [&] { one.reset(); }, evict), 10u);
  EXPECT_GT(called, 0u);
  EXPECT_EQ(wrong, 0u);
  handled.give_back();
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
      std::size_t checked = 0;
      const auto check_last = [&] {
        if (!parent_) return;
        const scope here(farheap_);
        const unique_ptr<std::uint64_t[]>& child = parent_.deref(here).child;
        if (child.size() != count) return;  // of the variant before
        const std::uint64_t& first = child.deref(here, 0);
        wrong += first == (is_used ? 5u : 0u) ? 0 : 1;
        wrong += heap().pages.stale_in(heap().pages.page_of(reinterpret_cast<std::uintptr_t>(&first)));
        ++checked;
      };
      const auto prepare = [&] {
        check_last();
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
      EXPECT_GT(interrupt_everywhere(prepare, evacuate, replace, armed_in_visit), 10u);
      EXPECT_GT(checked, 10u);
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
    while (!is_over) std::this_thread::sleep_for(50us);  // for ever, if the evacuator waits for a lock that is none
    for (unique_ptr<std::uint64_t[]>& one : others) {
      for (std::uint64_t& word : one.deref_mut(here)) wrong += std::exchange(word, 0) == 1 ? 0 : 1;
    }
  };
  const auto evacuate = [&] {
    static_cast<void>(farheap_.evacuate(0.5));
    is_over = true;
  };
  EXPECT_GT(interrupt_everywhere(prepare, evacuate, free_all, armed_in_visit), 10u);
  EXPECT_EQ(wrong, 0u);
  others.clear();
  beside.clear();
  farheap_.validate();
}

// What a program does with its pointers, and what the runtime does, each interrupted by the other.
class interrupted_program : public interrupted_test {
 public:
  static constexpr std::size_t small = 10;
  static constexpr std::size_t huge = 4 * page_bytes / sizeof(std::uint64_t);

  // A parent and what it owns, alone in their segments and pages. `away`: remote; otherwise about to be.
  void prepare(bool away) {
    other_.reset();
    make_parent();
    {
      const scope here(farheap_);
      set(small, here);
      parent_page_ = page_at(&parent_.deref(here));
      child_page_ = page_at(&parent_.deref(here).child.deref(here, 0));
    }
    make_garbage();
    for (const std::uintptr_t page : {child_page_, parent_page_}) {
      condemn(page);
      if (away) heap().memory.evict(page, page_bytes);
    }
  }

  // The program's.
  void look() {
    const scope here(farheap_);
    const unique_ptr<std::uint64_t[]>& child = owner().deref(here).child;
    wrong_ += child.size() == count_ ? 0 : 1;
    if (count_ == 0) return;
    wrong_ += child.deref(here, 0) == number_ ? 0 : 1;
    wrong_ += child.deref(here, count_ - 1) == number_ ? 0 : 1;
  }
  void write() {
    const scope here(farheap_);
    unique_ptr<std::uint64_t[]>& child = owner().deref_mut(here).child;
    ++number_;
    child.deref_mut(here, 0) = number_;
    child.deref_mut(here, count_ - 1) = number_;
  }
  void move_owner() { other_ = std::move(parent_); }
  void move_child() {
    const scope here(farheap_);
    unique_ptr<std::uint64_t[]> moved = std::move(owner().deref_mut(here).child);
    owner().deref_mut(here).child = std::move(moved);
  }
  void replace() {
    const scope here(farheap_);
    set(small, here);
  }
  void replace_by_huge() {
    const scope here(farheap_);
    set(huge, here);
  }
  void destroy_child() {
    const scope here(farheap_);
    owner().deref_mut(here).child.reset();
    count_ = 0;
  }
  void destroy_owner() {
    owner() = make_unique<parent>(farheap_);
    count_ = 0;
  }
  void prefetch() {
    static_cast<void>(owner().prefetch());
    look();
  }

  // The runtime's.
  void evacuate() { static_cast<void>(farheap_.evacuate(0.5)); }
  void evict() {
    heap().memory.evict(parent_page_, page_bytes);
    heap().memory.evict(child_page_, page_bytes);
  }
  void evict_and_fetch() {
    evict();
    heap().memory.fetch(parent_page_, 1, true);
    heap().memory.fetch(child_page_, 1, true);
  }
  void evict_and_evacuate() {
    heap().memory.evict(child_page_, page_bytes);
    evacuate();
  }

  // Both orders, with further blocks between two interruptions than there are in a run of the test.
  template <typename Random>
  void interrupt_each_other(bool away, void (interrupted_program::*program)(), void (interrupted_program::*runtime)(),
                            Random& random) {
    constexpr std::size_t step = 41;
    using operation = void (interrupted_program::*)();
    for (const auto& [one, other] : {std::pair<operation, operation>{program, runtime}, {runtime, program}}) {
      interrupt_everywhere(
          [&] {
            if (owner()) look();  // the last run
            prepare(away);
          },
          [&] { (this->*one)(); }, [&] { (this->*other)(); }, armed, random() % step, step);
      look();
      farheap_.validate();
    }
  }

  std::size_t wrong_ = 0;

 private:
  [[nodiscard]] static std::uintptr_t page_at(const void* at) {
    return reinterpret_cast<std::uintptr_t>(at) & ~std::uintptr_t{page_bytes - 1};
  }
  [[nodiscard]] unique_ptr<parent>& owner() { return parent_ ? parent_ : other_; }
  void set(std::size_t words, const scope& here) {
    unique_ptr<std::uint64_t[]>& child = owner().deref_mut(here).child;
    ++number_;
    count_ = words;
    child = make_unique<std::uint64_t[]>(farheap_, words);
    child.deref_mut(here, 0) = number_;
    child.deref_mut(here, words - 1) = number_;
  }

  unique_ptr<parent> other_;
  std::uint64_t number_ = 0;
  std::size_t count_ = 0;
  std::uintptr_t parent_page_ = 0;
  std::uintptr_t child_page_ = 0;
};

// A few of all pairs, others every day. FARHEAP_INTERRUPTIONS=all: all of them, for a minute or more.
TEST_F(interrupted_program, finds_everything_where_it_put_it) {
  using test = interrupted_program;
  constexpr std::size_t usual = 7;
  const bool is_all = std::getenv("FARHEAP_INTERRUPTIONS") != nullptr;
  const char* const chosen = std::getenv("FARHEAP_SIMULATION_SEED");
  std::mt19937_64 random(chosen != nullptr ? std::strtoull(chosen, nullptr, 10)
                                           : static_cast<std::uint64_t>(std::time(nullptr) / (24 * 60 * 60)));
  struct operation {
    const char* name;
    void (test::*run)();
  };
  constexpr operation programs[] = {
      {"look", &test::look},
      {"write", &test::write},
      {"move the owner", &test::move_owner},
      {"move the child", &test::move_child},
      {"replace", &test::replace},
      {"replace by a huge one", &test::replace_by_huge},
      {"destroy the child", &test::destroy_child},
      {"destroy the owner", &test::destroy_owner},
      {"prefetch", &test::prefetch},
  };
  constexpr operation runtimes[] = {
      {"evacuate", &test::evacuate},
      {"evict", &test::evict},
      {"evict and fetch", &test::evict_and_fetch},
      {"evict and evacuate", &test::evict_and_evacuate},
  };
  struct pair {
    operation program;
    operation runtime;
    double page_path_share;
    bool away;
  };
  std::vector<pair> pairs;
  for (const double page_path_share : {0.0, 2.0}) {
    for (const bool away : {false, true}) {
      for (const operation& program : programs) {
        for (const operation& runtime : runtimes) pairs.push_back({program, runtime, page_path_share, away});
      }
    }
  }
  std::shuffle(pairs.begin(), pairs.end(), random);
  if (!is_all) pairs.resize(usual);
  for (const auto& [program, runtime, page_path_share, away] : pairs) {
    std::printf("%s, %s; path share %g, %s\n", program.name, runtime.name, page_path_share, away ? "remote" : "here");
    farheap_.set_page_path_share(page_path_share);
    interrupt_each_other(away, program.run, runtime.run, random);
    ASSERT_EQ(wrong_, 0u);
  }
}

}  // namespace
}  // namespace far
