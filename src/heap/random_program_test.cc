// Random programs of far pointers beside their models, over the poisoning pager. FARHEAP_POINTER_SEEDS: how many of
// each kind; FARHEAP_POINTER_SEED: only this one.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/sanitizers.h"
#include "tests/support/pointer_program.h"

namespace far {
namespace {

constexpr std::size_t steps = 400;

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const chosen = std::getenv(variable);
  return chosen == nullptr ? otherwise : std::strtoull(chosen, nullptr, 10);
}

char running[64];  // for a program that ends the process

void on_death(int number) {
  static_cast<void>(!write(STDERR_FILENO, running, std::strlen(running)));
  signal(number, SIG_DFL);
  raise(number);
}

class random_program_test : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    for (const int number : {SIGABRT, SIGSEGV, SIGBUS}) signal(number, on_death);
  }

  void run(std::uint64_t first, std::uint64_t count) {
    if (const std::uint64_t only = number_from("FARHEAP_POINTER_SEED", 0)) {
      first = only;
      count = 1;
    }
    runtime_statistics all;
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
      std::snprintf(running, sizeof running, "FARHEAP_POINTER_SEED=%llu runs it again\n",
                    static_cast<unsigned long long>(seed));
      const pointer_program::outcome found = pointer_program::run(seed, steps);
      ASSERT_EQ(found.wrong, 0u) << running;
      ASSERT_EQ(found.left, 0u) << running;
      all.object_fetches += found.statistics.object_fetches;
      all.page_fetches += found.statistics.page_fetches;
      all.evacuated_objects += found.statistics.evacuated_objects;
      all.lost_races += found.statistics.lost_races;
    }
    if (count < 10) return;
    EXPECT_GT(all.object_fetches, count);
    EXPECT_GT(all.page_fetches, count);
    EXPECT_GT(all.evacuated_objects, count);
    EXPECT_GT(all.lost_races, 0u);
  }
};

constexpr std::uint64_t usual = has_thread_sanitizer ? 20 : 100;

TEST_F(random_program_test, the_same_seeds_every_time) {
  run(1, number_from("FARHEAP_POINTER_SEEDS", usual));
}

// As tests/simulation/main.cc makes it.
TEST_F(random_program_test, the_seeds_of_the_day) {
  char today[16];
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::strftime(today, sizeof today, "%Y%m%d00000", &utc);
  run(number_from("FARHEAP_SIMULATION_SEED", std::strtoull(today, nullptr, 10)),
      number_from("FARHEAP_POINTER_SEEDS", usual));
}

}  // namespace
}  // namespace far
