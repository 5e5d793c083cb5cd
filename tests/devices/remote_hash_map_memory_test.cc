// far::remote_hash_map where local memory runs out. Needs permission for userfaultfd.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <optional>
#include <utility>

#include "base/units.h"
#include "far/remote_hash_map.h"
#include "tests/support/failing_new.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

// Memory runs out from a hash on: the device's part of a call is over then.
struct scarce_hash {
  static inline thread_local int hashes_to_go = 0;  // 0: it does not
  static inline thread_local int allocations_left = 0;

  std::size_t operator()(std::uint64_t key) const {
    if (hashes_to_go > 0 && --hashes_to_go == 0) allocations_to_go = allocations_left;
    return std::hash<std::uint64_t>()(key);
  }
};
// Eight entries fill a page: most are in others than the one that takes further entries.
using block = std::array<std::uint64_t, 60>;
using scarce_map = remote_hash_map<std::uint64_t, block, scarce_hash>;
using remote_hash_map_memory_test = heap::real_pager_test<>;

// One that the table cannot be given is in the cache again.
TEST_F(remote_hash_map_memory_test, loses_no_entry_that_leaves) {
  remote_hash_map_options chosen;
  chosen.caching = table_caching::exclusive;
  chosen.device.room_bytes = 64 * mib;
  runtime farheap(heap::small_runtime());
  scarce_map mine(farheap, "memory:?plugin=" HASH_TABLE, chosen);
  constexpr std::uint64_t count = 50;
  for (std::uint64_t i = 0; i < count; ++i) ASSERT_TRUE(mine.put(i, block{~i}));
  std::uint64_t failed = 0;
  for (std::uint64_t round = 1; round <= 200; ++round) {
    farheap.evict_all();
    const std::uint64_t key = count + round;
    scarce_hash::allocations_left = static_cast<int>(round);
    scarce_hash::hashes_to_go = 2;  // it is not in the cache; it is put there
    try {
      static_cast<void>(mine.put(key, block{~key}));
    } catch (const std::bad_alloc&) {
      ++failed;
    }
    scarce_hash::hashes_to_go = 0;
    allocations_to_go = 0;
    ASSERT_EQ(mine.get(key).value_or(block{~key}), block{~key}) << round;
    for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(mine.get(i), block{~i}) << round << ": " << i;
  }
  EXPECT_GT(failed, 30u);
}

}  // namespace
}  // namespace far
