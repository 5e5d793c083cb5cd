// The Redis Clusters of the tests of redis_cluster_test.cc.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/redis_test_cluster.h"

namespace far::testing_support {

// Begins clusters before tests need them: one takes some seconds until it works, and nearly no processor time.
class coming_clusters {
 public:
  // That of the test which runs now. Requires: each test with one takes one.
  std::unique_ptr<redis_test_cluster> take() {
    if (wanted_.empty()) list();
    while (begun_.size() < ahead && next_ < wanted_.size()) {
      const shape& one = wanted_[next_++];
      begun_.push_back(redis_test_cluster::begin(one.masters, one.replicas));
    }
    std::unique_ptr<redis_test_cluster> taken = std::move(begun_.front());
    begun_.pop_front();
    if (begun_.empty() && next_ == wanted_.size()) *this = {};  // tests may be repeated
    taken->wait_until_it_works();
    return taken;
  }

 private:
  static constexpr std::size_t ahead = 4;
  struct shape {
    std::size_t masters;
    std::size_t replicas;
  };

  void list() {
    const std::map<std::string, shape> shape_of_suite = {{"redis_cluster", {3, 0}},
                                                         {"redis_cluster_of_two", {2, 0}},
                                                         {"redis_cluster_with_replicas", {3, 3}},
                                                         {"redis_cluster_with_more_replicas", {3, 6}}};
    const testing::UnitTest& all = *testing::UnitTest::GetInstance();
    for (int i = 0; i < all.total_test_suite_count(); ++i) {
      const testing::TestSuite& suite = *all.GetTestSuite(i);
      const auto found = shape_of_suite.find(suite.name());
      if (found == shape_of_suite.end()) continue;
      wanted_.insert(wanted_.end(), static_cast<std::size_t>(suite.test_to_run_count()), found->second);
    }
  }

  std::vector<shape> wanted_;  // by the tests that run, in their order
  std::size_t next_ = 0;
  std::deque<std::unique_ptr<redis_test_cluster>> begun_;
};

}  // namespace far::testing_support
