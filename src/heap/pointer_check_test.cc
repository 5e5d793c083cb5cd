// Mistakes in far::pointers_of, in a checked build: this file, and the headers that it includes, are compiled with
// FARHEAP_CHECKED. Needs permission for userfaultfd.
#define FARHEAP_CHECKED
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/runtime.h"
#include "far/string.h"
#include "far/unique_ptr.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

struct forgetful {
  unique_ptr<long> named;
  unique_ptr<long> forgotten;
};
struct repetitive {
  unique_ptr<long> once;
  unique_ptr<long> twice;
};
struct pointing_out {
  std::unique_ptr<unique_ptr<long>> elsewhere = std::make_unique<unique_ptr<long>>();
};
// Everything that is right, and where a state says whether there is a pointer.
struct careful {
  std::optional<unique_ptr<long>> perhaps;
  std::pair<unique_ptr<long>, std::uint64_t> numbered;
  unique_ptr<long> several[3];
  string text;
  unique_ptr<careful> next;
  unique_ptr<long[]> large;
};

// Its pointer is one only when it says so.
struct staged {
  unique_ptr<long> value;
  std::uint64_t has_value = 0;
};
struct with_copy {
  unique_ptr<long> value;
  std::uint64_t bits_of_value = 0;
};

}  // namespace

template <>
struct pointers_of<staged> {
  static void visit(staged& in, auto&& pointer) {
    if (in.has_value != 0) pointer(in.value);
  }
};
template <>
struct pointers_of<with_copy> {
  static void visit(with_copy& in, auto&& pointer) { pointer(in.value); }
};
template <>
struct pointers_of<forgetful> {
  static void visit(forgetful& in, auto&& pointer) { pointer(in.named); }
};
template <>
struct pointers_of<repetitive> {
  static void visit(repetitive& in, auto&& pointer) {
    pointer(in.once);
    pointer(in.twice);
    pointer(in.twice);
  }
};
template <>
struct pointers_of<pointing_out> {
  static void visit(pointing_out& in, auto&& pointer) { pointer(*in.elsewhere); }
};
template <>
struct pointers_of<careful> {
  static void visit(careful& in, auto&& pointer) {
    pointer(in.perhaps);
    pointer(in.numbered);
    pointer(in.several);
    pointer(in.text);
    pointer(in.next);
    pointer(in.large);
  }
};

namespace {

runtime_options options(runtime_options::guard guard) {
  runtime_options chosen;
  chosen.local_bytes = 16 * mib;
  chosen.workers = 1;
  chosen.hardware_guard = guard;
  return chosen;
}

using pointer_check_death_test = heap::real_pager_test<::testing::TestWithParam<runtime_options::guard>>;

TEST_P(pointer_check_death_test, a_pointer_that_is_left_out_stops_the_program) {
  EXPECT_DEATH(
      {
        runtime farheap(options(GetParam()));
        auto whole = make_unique<forgetful>(farheap);
        const scope here(farheap);
        whole.deref_mut(here).forgotten = make_unique<long>(farheap, 5);
        static_cast<void>(whole.deref(here).forgotten.deref(here));
      },
      "pointers_of<.*forgetful>::visit.. leaves out a far pointer, 8 bytes into");
}

TEST_P(pointer_check_death_test, an_element_of_an_array_that_leaves_one_out_stops_the_program) {
  EXPECT_DEATH(
      {
        runtime farheap(options(GetParam()));
        auto all = make_unique<forgetful[]>(farheap, 10);
        const scope here(farheap);
        all.deref_mut(here, 3).forgotten = make_unique<long>(farheap, 5);
        static_cast<void>(all.deref(here, 3).forgotten.deref(here));
      },
      "leaves out a far pointer, 56 bytes into");
}

TEST_P(pointer_check_death_test, a_pointer_that_is_named_twice_stops_the_program) {
  EXPECT_DEATH(
      {
        runtime farheap(options(GetParam()));
        const auto whole = make_unique<repetitive>(farheap);
      },
      "pointers_of<.*repetitive>::visit.. names a far pointer twice, 8 bytes into");
}

TEST_P(pointer_check_death_test, a_pointer_outside_the_object_stops_the_program) {
  EXPECT_DEATH(
      {
        runtime farheap(options(GetParam()));
        const auto whole = make_unique<pointing_out>(farheap);
      },
      "names a far pointer outside the object");
}

// Words of these come and go before the state that says so.
void change(runtime& farheap, careful& one, long value) {
  one.perhaps.emplace(make_unique<long>(farheap, value));
  one.numbered = {make_unique<long>(farheap, value), 1};
  one.several[value % 3] = make_unique<long>(farheap, value);
  one.text =
      value % 2 == 0 ? string(farheap, "short") : string(farheap, "a text that is too long for the string itself");
  if (value % 4 == 0) one.perhaps.reset();
  if (one.large == nullptr) one.large = make_unique<long[]>(farheap, 2000);
}

TEST_P(pointer_check_death_test, what_is_declared_rightly_goes_on) {
  runtime farheap(options(GetParam()));
  unique_ptr<careful> first;
  for (long i = 0; i < 40; ++i) {
    auto fresh = make_unique<careful>(farheap);
    const scope here(farheap);
    change(farheap, fresh.deref_mut(here), i);
    fresh.deref_mut(here).next = std::move(first);
    first = std::move(fresh);
  }
  static_cast<void>(farheap.evacuate(0));
  long count = 0;
  const scope here(farheap);
  for (const careful* at = first.get(here); at != nullptr; at = at->next.get(here)) {
    const long value = 39 - count++;
    EXPECT_EQ(at->perhaps.has_value(), value % 4 != 0);
    EXPECT_EQ(at->numbered.first.deref(here), value);
    EXPECT_EQ(at->several[value % 3].deref(here), value);
    EXPECT_EQ(at->text.size(), value % 2 == 0 ? 5u : 45u);
  }
  EXPECT_EQ(count, 40);
}

// In the middle of a change, a scope that also used the object ends: an inner one, or another thread's.
TEST_P(pointer_check_death_test, an_object_that_another_scope_uses_is_not_checked_yet) {
  runtime farheap(options(GetParam()));
  auto whole = make_unique<staged>(farheap);
  {
    const scope here(farheap);
    staged& changing = whole.deref_mut(here);
    changing.value = make_unique<long>(farheap, 5);
    static_cast<void>(changing.value.deref(here));
    {
      const scope inner(farheap);
      EXPECT_EQ(whole.deref(inner).has_value, 0u);
    }
    std::thread([&] {
      const scope theirs(farheap);
      EXPECT_EQ(whole.deref(theirs).has_value, 0u);
    }).join();
    changing.has_value = 1;
  }
  const scope here(farheap);
  EXPECT_EQ(whole.deref(here).value.deref(here), 5);
}

TEST_P(pointer_check_death_test, bits_of_a_pointer_are_no_pointer) {
  runtime farheap(options(GetParam()));
  auto whole = make_unique<with_copy>(farheap);
  const scope here(farheap);
  with_copy& changing = whole.deref_mut(here);
  changing.value = make_unique<long>(farheap, 5);
  static_cast<void>(changing.value.deref(here));
  std::memcpy(&changing.bits_of_value, &changing.value, sizeof changing.bits_of_value);
  EXPECT_NE(changing.bits_of_value, 0u);
}

TEST_P(pointer_check_death_test, threads_that_change_objects_in_turn_go_on) {
  runtime farheap(options(GetParam()));
  std::vector<unique_ptr<careful>> all;
  for (int i = 0; i < 4; ++i) all.push_back(make_unique<careful>(farheap));
  std::mutex lock;
  std::vector<std::thread> threads;
  for (long thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      for (long i = 0; i < 50; ++i) {
        const scope here(farheap);
        careful& one = all[(i + thread) % 4].deref_mut(here);
        const std::lock_guard guard(lock);
        change(farheap, one, i);
      }
    });
  }
  for (std::thread& one : threads) one.join();
  const scope here(farheap);
  for (const auto& one : all) EXPECT_GT(one.deref(here).text.size(), 0u);
}

// The end of a scope takes the pages of its objects away, also while another thread puts the next object there: one
// that is made, or one that is fetched alone.
TEST_P(pointer_check_death_test, objects_are_put_into_pages_whose_other_objects_leave) {
  runtime farheap(options(GetParam()));
  farheap.set_page_path_share(2);
  constexpr std::size_t count = 10'000;
  std::vector<unique_ptr<long>> all(count);
  std::atomic<std::size_t> made{0};
  std::thread reader([&] {
    for (std::size_t seen = 0; seen < count; seen = made) {
      if (seen == 0) continue;
      EXPECT_EQ(all[seen - 1].read(), static_cast<long>(seen - 1));
    }
  });
  for (std::size_t i = 0; i < count; ++i) {
    all[i] = make_unique<long>(farheap, static_cast<long>(i));
    made = i + 1;
    static_cast<void>(all[i / 2].prefetch());
    EXPECT_EQ(all[i / 2].read(), static_cast<long>(i / 2));
  }
  reader.join();
}

INSTANTIATE_TEST_SUITE_P(guards, pointer_check_death_test,
                         ::testing::Values(runtime_options::guard::thread, runtime_options::guard::in_line),
                         [](const auto& chosen) {
                           return chosen.param == runtime_options::guard::thread ? "thread" : "in_line";
                         });

}  // namespace
}  // namespace far
