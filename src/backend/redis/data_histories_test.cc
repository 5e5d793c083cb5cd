#include "backend/redis/data_histories.h"

#include <gtest/gtest.h>

#include <string>

namespace far::backend {
namespace {

server_facts facts_of(char process, char history, char former) {
  const auto line = [](const std::string& key, char digit) { return key + ":" + std::string(40, digit) + "\r\n"; };
  return server_facts::parse(line("run_id", process) + line("master_replid", history) + line("master_replid2", former));
}

TEST(data_histories, a_replica_that_has_taken_over_goes_on_from_its_master) {
  data_histories seen;
  seen.add(facts_of('1', 'a', '0'));
  EXPECT_TRUE(seen.has_successor(facts_of('2', 'b', 'a')));
  EXPECT_FALSE(seen.has_successor(facts_of('3', 'c', 'd')));
  EXPECT_FALSE(seen.has_successor(facts_of('4', 'e', '0'))) << "it goes on from nothing";
  seen.clear();
  EXPECT_FALSE(seen.has_successor(facts_of('2', 'b', 'a')));
}

TEST(data_histories, a_process_is_no_replica_of_itself) {
  data_histories seen;
  seen.add(facts_of('2', 'b', 'a'));
  EXPECT_FALSE(seen.has_successor(facts_of('2', 'b', 'a')));
  EXPECT_TRUE(seen.has_successor(facts_of('3', 'c', 'a'))) << "another replica of the same master";
  seen.add(facts_of('1', 'a', '0'));
  EXPECT_TRUE(seen.has_successor(facts_of('2', 'b', 'a'))) << "its master is one of those";
}

TEST(data_histories, when_there_are_too_many_any_may_be_a_successor) {
  data_histories seen;
  for (char digit = 'a'; digit < 'a' + 16; ++digit) seen.add(facts_of('1', digit, '0'));
  EXPECT_TRUE(seen.has_successor(facts_of('2', '8', '9')));
}

}  // namespace
}  // namespace far::backend
