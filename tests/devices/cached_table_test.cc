// The remote hash table of examples/plugins, beside a std::map.
#include "examples/plugins/cached_table.h"

#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/devices/device_server.h"

namespace far {
namespace {

using testing_support::device_server;

const device_options patient{.parameters = {}, .deadline = std::chrono::seconds(30)};

class CachedTable : public ::testing::TestWithParam<cached_table::caching> {
 protected:
  std::vector<std::unique_ptr<device_server>> servers = [] {
    std::vector<std::unique_ptr<device_server>> all;
    for (int i = 0; i < 2; ++i) {
      all.push_back(
          std::make_unique<device_server>(std::vector<std::string>{"--memory", "128M", "--plugin", HASH_TABLE}));
    }
    return all;
  }();
};

TEST_P(CachedTable, IsAMapThatOutlivesAServer) {
  const std::string tier = "tcp://" + servers[0]->host() + "," + servers[1]->host() + "?copies=2&timeout=10s";
  cached_table table(tier, GetParam(), 50, patient);
  std::map<std::string, std::string> expected;
  std::mt19937_64 random(11);
  for (int i = 0; i < 4000; ++i) {
    if (i == 2000) servers[1]->signal(SIGKILL);
    const std::string key = "key " + std::to_string(random() % 400);
    switch (random() % 4) {
      case 0:
      case 1: {
        const auto found = expected.find(key);
        const std::optional<std::string> got = table.get(key);
        ASSERT_EQ(got.has_value(), found != expected.end()) << i << ": " << key;
        if (got) {
          ASSERT_EQ(*got, found->second) << i << ": " << key;
        }
        break;
      }
      case 2: {
        const std::string value(random() % 200, static_cast<char>('a' + i % 26));
        table.put(key, value);
        expected[key] = value;
        break;
      }
      default: ASSERT_EQ(table.erase(key), expected.erase(key) > 0) << i << ": " << key;
    }
    if (i % 500 == 0) {
      ASSERT_EQ(table.size(), expected.size()) << i;
    }
  }
  ASSERT_EQ(table.size(), expected.size());
  for (const auto& [key, value] : expected) ASSERT_EQ(table.get(key), value) << key;
}

// Whatever is in the cache costs no call: the servers may be gone.
TEST_P(CachedTable, AnswersFromTheCache) {
  cached_table table("tcp://" + servers[0]->host() + "?timeout=10s", GetParam(), 50, patient);
  for (int i = 0; i < 50; ++i) table.put(std::to_string(i), "value");
  servers[0]->signal(SIGKILL);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(table.get(std::to_string(i)), "value");
  EXPECT_EQ(table.misses(), 0u);
  EXPECT_THROW(static_cast<void>(table.get("another")), device_error);
}

INSTANTIATE_TEST_SUITE_P(Both, CachedTable,
                         ::testing::Values(cached_table::caching::inclusive, cached_table::caching::exclusive),
                         [](const auto& of) {
                           return of.param == cached_table::caching::inclusive ? "Inclusive" : "Exclusive";
                         });

}  // namespace
}  // namespace far
