// The order in which a worker runs fibers.
#include <atomic>
#include <string>
#include <vector>

#include "fiber/identity.h"
#include "fiber/semaphore.h"
#include "tests/support/fiber_runs.h"

namespace far::fiber {
namespace {

using namespace testing;

TEST(priorities, scopes_come_before_the_runtime_and_the_runtime_before_the_rest) {
  scheduler workers(with_workers(1));
  std::string order;
  workers
      .spawn([&] {
        semaphore go;
        handle in_scope = workers.spawn([&] {
          const scope_mark scope;
          const scope_mark inner;
          go.acquire();
          order += 's';
        });
        while (workers.snapshot().parks == 0) yield();  // until it waits inside its scope
        handle normal = workers.spawn([&] { order += 'n'; });
        handle runtime = workers.spawn([&] { order += 'r'; }, {.level = priority::runtime});
        go.release();
        normal.join();
      })
      .join();
  EXPECT_EQ(order, "srn");
}

TEST(priorities, a_fiber_that_left_its_scope_has_its_usual_priority_again) {
  scheduler workers(with_workers(1));
  std::string order;
  workers
      .spawn([&] {
        handle first = workers.spawn([&] {
          {
            const scope_mark scope;
          }
          order += 'a';
          yield();
          order += 'c';
        });
        handle second = workers.spawn([&] { order += 'b'; });
        first.join();
      })
      .join();
  EXPECT_EQ(order, "abc");
}

TEST(priorities, the_lowest_has_its_turn_while_higher_ones_never_stop) {
  scheduler workers(with_workers(1));
  std::atomic<bool> ran = false;
  std::atomic<unsigned> turns = 0;
  workers
      .spawn([&] {
        handle busy[2];
        for (handle& one : busy) {
          one = workers.spawn(
              [&] {
                while (!ran && turns < 1'000'000) ++turns, yield();
              },
              {.level = priority::runtime});
        }
        handle low = workers.spawn([&] { ran = true; });
      })
      .join();
  EXPECT_TRUE(ran);
  EXPECT_LT(turns, 1'000u);
  EXPECT_GE(workers.snapshot().turns_given, 1u);
}

TEST(priorities, the_identity_belongs_to_the_fiber_and_moves_with_it) {
  scheduler workers(with_workers(2));
  identity& of_thread = current_identity();
  detail::scope_record threads;
  of_thread.scopes = &threads;
  {
    std::vector<handle> all;
    for (int i = 0; i < 50; ++i) {
      all.push_back(workers.spawn([&] {
        detail::scope_record mine;
        identity* const before = &current_identity();
        EXPECT_EQ(before->scopes, nullptr);
        before->scopes = &mine;
        for (int k = 0; k < 20; ++k) {
          sleep_for(10us);
          EXPECT_EQ(&current_identity(), before);
          EXPECT_EQ(current_identity().scopes, &mine);
        }
        before->scopes = nullptr;
      }));
    }
  }
  EXPECT_EQ(current_identity().scopes, &threads);
  of_thread.scopes = nullptr;
}

}  // namespace
}  // namespace far::fiber
