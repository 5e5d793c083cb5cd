// What far::hash_map counts towards its limits. Needs permission for userfaultfd.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/units.h"
#include "far/hash_map.h"
#include "far/string.h"
#include "tests/containers/elements.h"

namespace far {
namespace {

class limits_test : public test::containers_test {};

// The limit counts what the map has been told of: whatever somebody does to a value in place, nothing is taken off that
// was not added.
TEST_F(limits_test, survive_changes_in_place) {
  hash_map<std::uint64_t, string> mine(*farheap_, {.bytes = 1 * mib});
  for (std::uint64_t i = 0; i < 100; ++i) mine.put(i, std::string(100, 'x'));
  const auto change_in_place = [&](std::uint64_t key, std::size_t length) {
    const scope here(*farheap_);
    mine.find_mut(here, key)->assign(*farheap_, std::string(length, 'y'));
  };
  for (std::uint64_t i = 0; i < 20; ++i) change_in_place(i, 3'000);
  EXPECT_EQ(mine.entry_bytes(), 100u * 148);
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_TRUE(mine.erase(i));
  EXPECT_EQ(mine.entry_bytes(), 90u * 148);
  for (std::uint64_t i = 10; i < 20; ++i) EXPECT_TRUE(mine.update(i, [](string&) {}));
  EXPECT_EQ(mine.entry_bytes(), 80u * 148 + 10 * 3'048);
  change_in_place(15, 30);
  mine.put(15, std::string(100, 'x'));
  EXPECT_EQ(mine.entry_bytes(), 81u * 148 + 9 * 3'048);
  EXPECT_EQ(mine.size(), 90u);
  for (std::uint64_t i = 10; i < 100; ++i) EXPECT_TRUE(mine.erase(i));
  EXPECT_EQ(mine.entry_bytes(), 0u);
  for (std::uint64_t i = 0; i < 5; ++i) mine.put(i, std::string(30, 'x'));
  EXPECT_EQ(mine.size(), 5u) << "an empty map that counts less than nothing would take none";
}

// An entry that is on its way out while the map is cleared is counted off once.
TEST_F(limits_test, survive_clearing_while_an_entry_leaves) {
  runtime_options chosen = heap::small_runtime();
  chosen.far = "memory:?latency=10ms";
  runtime slow(chosen);
  hash_map<std::uint64_t, string> mine(slow, {.bytes = 3'000});
  unsigned cleared_meanwhile = 0;
  for (unsigned round = 0; round < 100 && cleared_meanwhile < 4; ++round) {
    for (std::uint64_t i = 0; i < 20; ++i) mine.put(i, std::string(100, 'x'));
    slow.evict_all();
    std::atomic<bool> is_done{false};
    std::thread other([&] {
      mine.put(100, std::string(100, 'y'));  // waits for the one that has to leave
      is_done.store(true);
    });
    const auto is_on_its_way = [&] { return mine.entry_bytes() > 3'000 && mine.size() == 20; };
    while (!is_done.load() && !is_on_its_way()) std::this_thread::yield();
    cleared_meanwhile += is_done.load() ? 0u : 1u;
    mine.clear();
    other.join();
    std::size_t bytes = 0;
    mine.for_each([&](std::uint64_t, const string& value) { bytes += 48 + value.size(); });
    ASSERT_EQ(mine.entry_bytes(), bytes) << "round " << round;
    mine.clear();
  }
  EXPECT_GT(cleared_meanwhile, 0u);
}

}  // namespace
}  // namespace far
