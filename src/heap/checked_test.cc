// Misuse of scopes in a checked build: this file, and the headers that it includes, are compiled with FARHEAP_CHECKED.
// Needs permission for userfaultfd.
#define FARHEAP_CHECKED
#include <gtest/gtest.h>

#include <cstddef>
#include <new>
#include <span>
#include <vector>

#include "base/units.h"
#include "far/runtime.h"
#include "far/tag.h"
#include "far/unique_ptr.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

runtime_options options(runtime_options::guard guard) {
  runtime_options chosen;
  chosen.local_bytes = 16 * mib;
  chosen.workers = 1;
  chosen.hardware_guard = guard;
  return chosen;
}

using checked_death_test = heap::real_pager_test<::testing::TestWithParam<runtime_options::guard>>;

TEST_P(checked_death_test, a_reference_that_is_used_after_its_scope_stops_the_program) {
  EXPECT_DEATH(
      {
        runtime farheap(options(GetParam()));
        unique_ptr<long> cell = make_unique<long>(farheap, 5);
        const long* kept = nullptr;
        {
          const scope here(farheap);
          kept = &cell.deref(here);
        }
        static_cast<void>(*const_cast<const volatile long*>(kept));
      },
      "outside the scope");
}

TEST_P(checked_death_test, a_scope_that_has_ended_stops_the_program) {
  EXPECT_DEATH(
      {
        runtime farheap(options(GetParam()));
        unique_ptr<long> cell = make_unique<long>(farheap, 5);
        alignas(scope) std::byte room[sizeof(scope)];
        const scope* ended = ::new (room) scope(farheap);
        ended->~scope();
        asm volatile("" : "+r"(ended) : : "memory");  // the compiler shall not see what is about to happen
        static_cast<void>(cell.deref(*ended));
      },
      "after its end");
}

TEST_P(checked_death_test, another_threads_scope_stops_the_program) {
  EXPECT_DEATH(
      {
        runtime farheap(options(GetParam()));
        unique_ptr<long> cell = make_unique<long>(farheap, 5);
        const scope mine(farheap);
        farheap.run([&] { static_cast<void>(cell.deref(mine)); });
      },
      "by another fiber");
}

TEST_P(checked_death_test, a_scope_of_another_runtime_stops_the_program) {
  EXPECT_DEATH(
      {
        runtime farheap(options(GetParam()));
        runtime other(options(GetParam()));
        unique_ptr<long> cell = make_unique<long>(farheap, 5);
        const scope here(other);
        static_cast<void>(cell.deref(here));
      },
      "a scope serves the objects of one runtime");
}

// What comes in for the outer scope, of another runtime, comes in beneath the inner one.
TEST_P(checked_death_test, scopes_of_two_runtimes_may_be_open) {
  runtime farheap(options(GetParam()));
  runtime other(options(GetParam()));
  farheap.set_page_path_share(2);
  other.set_page_path_share(2);
  std::vector<unique_ptr<long>> cells;
  for (long i = 0; i < 100; ++i) cells.push_back(make_unique<long>(i % 2 == 0 ? farheap : other, i));
  for (int round = 0; round < 5; ++round) {
    farheap.evict_all();
    other.evict_all();
    const scope outer(farheap);
    for (std::size_t i = 0; i < cells.size(); i += 2) {
      const scope inner(other);
      EXPECT_EQ(cells[i].deref(outer), static_cast<long>(i));
      EXPECT_EQ(cells[i + 1].deref(inner), static_cast<long>(i + 1));
      cells.push_back(make_unique<long>(farheap, static_cast<long>(cells.size())));
      cells.push_back(make_unique<long>(other, static_cast<long>(cells.size())));
      cells.resize(100);
    }
  }
  farheap.validate();
  other.validate();
}

TEST_P(checked_death_test, correct_use_goes_on) {
  runtime farheap(options(GetParam()));
  unique_ptr<long> cell = make_unique<long>(farheap, 5);
  for (long i = 5; i < 50; ++i) {
    const scope outer(farheap);
    EXPECT_EQ(cell.deref(outer), i);
    {
      const scope inner(farheap);
      cell.deref_mut(inner) += 1;
    }
    EXPECT_EQ(cell.deref(outer), i + 1);
  }
}

TEST_P(checked_death_test, objects_with_a_handler_do_not_leave_without_its_call) {
  runtime farheap(options(GetParam()));
  int handled = 0;
  const tag entries(farheap, {}, before_leaving<long>([&](long& leaving) {
                      ++leaving;
                      ++handled;
                    }));
  unique_ptr<long> entry = make_unique<long>(entries, 5);
  {
    const scope here(farheap);
    EXPECT_EQ(entry.deref(here), 5);
  }
  farheap.evict_all();
  EXPECT_EQ(handled, 1);
  EXPECT_EQ(entry.read(), 6);
  EXPECT_EQ(farheap.statistics().forced_pages, 0u);
}

TEST_P(checked_death_test, a_scope_in_a_handler_of_leaving_objects_stops_the_program) {
  EXPECT_DEATH(
      {
        runtime farheap(options(GetParam()));
        const tag handled(farheap, {}, [&](std::span<std::byte>) { const scope here(farheap); });
        const auto one = make_unique<int>(handled, 1);
        farheap.evict_all();
      },
      "uses no far memory but the object that it is given");
}

INSTANTIATE_TEST_SUITE_P(guards, checked_death_test,
                         ::testing::Values(runtime_options::guard::thread, runtime_options::guard::in_line),
                         [](const auto& chosen) {
                           return chosen.param == runtime_options::guard::thread ? "thread" : "in_line";
                         });

}  // namespace
}  // namespace far
