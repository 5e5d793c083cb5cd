// Far runtimes report to their host and follow it. This program takes the part of the run door. Needs permission for
// userfaultfd.
#include "control/guest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/units.h"
#include "far/detail/api.h"
#include "far/runtime.h"
#include "far/unique_ptr.h"
#include "pager/pager.h"
#include "tests/support/real_pager.h"

namespace far::heap {
namespace {

constexpr std::uint64_t minimum = pager::minimum_budget_bytes;

struct simple_host {
  std::mutex lock;
  std::uint64_t grants_bytes = minimum;
  std::vector<control::guest_report> reports;

  std::uint64_t exchange(std::uint32_t* number, const control::guest_report& said) {
    const std::lock_guard guard(lock);
    reports.push_back(said);
    *number = said.runtimes == 0 ? 0 : 1;
    return std::max(grants_bytes, said.runtimes * minimum);
  }
};

simple_host& host() {
  static simple_host only;
  return only;
}

class guest_test : public real_pager_test<> {
 protected:
  guest_test() {
    const std::lock_guard guard(host().lock);
    host().reports.clear();
    host().grants_bytes = minimum;
  }

  static void grant(std::uint64_t bytes) {
    const std::lock_guard guard(host().lock);
    host().grants_bytes = bytes;
  }
  static control::guest_report last_report() {
    const std::lock_guard guard(host().lock);
    return host().reports.back();
  }
  static void wait_until_budget_is(const runtime& one, std::uint64_t bytes) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (one.statistics().budget_bytes != bytes) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << one.statistics().budget_bytes;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
};

TEST_F(guest_test, a_runtime_begins_with_the_least) {
  const runtime first(small_runtime(64 * mib));
  {
    const std::lock_guard guard(host().lock);
    ASSERT_FALSE(host().reports.empty());
    EXPECT_EQ(host().reports.front().runtimes, 1u);
    EXPECT_EQ(host().reports.front().wanted_bytes, 64 * mib);
    EXPECT_EQ(host().reports.front().counted.budget_bytes, minimum) << "it must not count with more than it holds";
  }
  EXPECT_EQ(first.statistics().budget_bytes, minimum);
  auto second = std::make_unique<runtime>(small_runtime(32 * mib));
  EXPECT_EQ(second->statistics().budget_bytes, minimum);
  EXPECT_EQ(last_report().runtimes, 2u);
  EXPECT_EQ(last_report().counted.budget_bytes, 2 * minimum);
  second.reset();
  EXPECT_EQ(last_report().runtimes, 1u);
  EXPECT_EQ(last_report().counted.budget_bytes, minimum) << "one that has left holds nothing";
}

TEST_F(guest_test, runtimes_follow_their_host) {
  runtime first(small_runtime(64 * mib));
  const runtime second(small_runtime(32 * mib));
  grant(64 * mib);
  wait_until_budget_is(first, minimum + 24 * mib);
  wait_until_budget_is(second, minimum + 8 * mib);
  grant(96 * mib);
  wait_until_budget_is(first, 64 * mib);
  wait_until_budget_is(second, 32 * mib);
  first.resize(32 * mib + 100);
  EXPECT_EQ(last_report().wanted_bytes, 64 * mib) << "whole pages, as they are applied";
  EXPECT_EQ(first.statistics().budget_bytes, 32 * mib) << "the most that it gets";
}

TEST_F(guest_test, counts_are_the_hosts_when_the_last_runtime_has_left) {
  for (int round = 0; round < 2; ++round) {
    auto one = std::make_unique<runtime>(small_runtime());
    EXPECT_EQ(last_report().counted.evicted_pages, 0u) << "not what those before had counted";
    {
      auto bytes = make_unique<std::byte[]>(*one, 4 * mib);
      bytes.write(0, std::byte{1});
      one->evict_all();
    }
    one.reset();
    EXPECT_EQ(last_report().runtimes, 0u);
    EXPECT_GT(last_report().counted.evicted_pages, 0u);
    EXPECT_EQ(last_report().counted.local_bytes, 0u);
  }
}

}  // namespace
}  // namespace far::heap

extern "C" FAR_API std::uint64_t far_host_exchange(std::uint32_t* number, const far::control::guest_report* said) {
  return far::heap::host().exchange(number, *said);
}
