// The memory that a store lends, when it changes, and the memory of its tables.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <utility>

#include "base/sanitizers.h"
#include "server/store.h"

namespace far::server {
namespace {

using wire::status;

constexpr std::uint64_t second_ns = 1'000'000'000;

std::unique_ptr<store> make_store(std::uint64_t memory_bytes) {
  store_settings settings;
  settings.memory_bytes = memory_bytes;
  return std::move(store::create(std::move(settings))).value();
}

attachment open(store& from) {
  return std::move(from.open("default", 0)).value();
}

void reclaim_all(store& from) {
  while (from.reclaim() != 0) {
  }
}

TEST(Store, MemoryIsRaisedAndLoweredWhileItIsLent) {
  store_settings settings;
  settings.memory_bytes = 4 * block_bytes;
  settings.most_memory_bytes = 16 * block_bytes;
  settings.grace_ns = second_ns;
  settings.lease_ns = 3600 * second_ns;
  const std::unique_ptr<store> lent = std::move(store::create(settings)).value();
  attachment here = open(*lent);
  ASSERT_EQ(here.to->allocate({0, 4}), status::ok);
  EXPECT_EQ(here.to->allocate({4, 1}), status::no_space);
  lent->set_memory(16 * block_bytes);
  EXPECT_EQ(here.to->quota_blocks(), 16u);
  ASSERT_EQ(here.to->allocate({4, 6}), status::ok);
  attachment away = open(*lent);
  ASSERT_EQ(away.to->allocate({0, 6}), status::ok);
  lent->leave(away, 0);
  lent->validate();

  lent->set_memory(8 * block_bytes);
  lent->validate();
  EXPECT_EQ(lent->report().held_blocks, 16u) << "nothing is taken away from a client";
  EXPECT_EQ(here.to->report().server_free_slots, 0u);
  EXPECT_EQ(here.to->allocate({10, 1}), status::no_space);
  lent->expire(2 * second_ns);
  reclaim_all(*lent);
  EXPECT_EQ(lent->report().held_blocks, 10u) << "a session past its grace period makes way";
  EXPECT_EQ(lent->report().sessions_ended_early, 1u);
  lent->expire(3 * second_ns);
  EXPECT_EQ(lent->report().sessions, 1u);
  ASSERT_EQ(here.to->free({0, 3}), status::ok);
  reclaim_all(*lent);
  EXPECT_EQ(here.to->allocate({0, 2}), status::no_space);
  EXPECT_EQ(here.to->allocate({0, 1}), status::ok);
  lent->validate();
}

// Each entry lies on a page of its own, of which every fourth is used.
TEST(Store, TablesTakeNoMoreThanAPageForEachBlockThatIsHeld) {
  if (has_address_sanitizer) GTEST_SKIP() << "a sanitizer keeps what was freed for a while, and notes of its own";
  const std::unique_ptr<store> lent = make_store(8 * block_bytes);
  attachment mine = open(*lent);
  const auto resident_bytes = [] {
    std::ifstream file("/proc/self/statm");
    std::uint64_t total_pages = 0;
    std::uint64_t resident_pages = 0;
    file >> total_pages >> resident_pages;
    return resident_pages * page_bytes;
  };
  constexpr std::uint64_t step = 4 * page_bytes / sizeof(std::uintptr_t);
  ASSERT_EQ(mine.to->allocate({0, 1}), status::ok);
  const std::uint64_t before_bytes = resident_bytes();
  for (std::uint64_t number = step; number < maximum_session_blocks; number += step) {
    ASSERT_EQ(mine.to->allocate({number, 1}), status::ok);
    ASSERT_EQ(mine.to->free({number, 1}), status::ok);
    reclaim_all(*lent);
  }
  EXPECT_LT(resident_bytes(), before_bytes + (std::uint64_t{4} << 20)) << "the numbers are spread over 8 MiB";
  EXPECT_NE(mine.to->address_of(0), nullptr);
  lent->validate();
}

// A block for each page of a table: 512 of them take as much again as a block.
constexpr std::uint64_t block_of_page = page_bytes / sizeof(std::uintptr_t);

class no_memory final : public block_source {
 public:
  std::byte* take(std::uint64_t /*number*/) override { return block_; }
  void give_back(std::uint64_t /*number*/, std::byte* /*block*/) override {}

 private:
  alignas(64) std::byte block_[64]{};  // nobody looks at it
};

TEST(Store, TablesCountAgainstTheQuotaAndTheMemory) {
  for (const bool is_quota : {true, false}) {
    store_settings settings;
    settings.memory_bytes = (is_quota ? 2000 : 515) * block_bytes;
    if (is_quota) settings.quota_bytes = {{"default", 515 * block_bytes}};
    settings.make_source = [] { return std::make_unique<no_memory>(); };
    const std::unique_ptr<store> lent = std::move(store::create(std::move(settings))).value();
    attachment mine = open(*lent);
    for (std::uint64_t i = 0; i < 512; ++i) ASSERT_EQ(mine.to->allocate({i * block_of_page, 1}), status::ok) << i;
    EXPECT_EQ(lent->report().held_blocks, 513u) << "512 blocks, and as many pages of the table as one more";
    EXPECT_EQ(lent->report().table_bytes, block_bytes);
    lent->validate();
    ASSERT_EQ(mine.to->allocate({1, 2}), status::ok) << "on a page that is there";
    EXPECT_EQ(mine.to->allocate({3, 1}), status::no_space);
    ASSERT_EQ(mine.to->free({2, 1}), status::ok);
    ASSERT_EQ(mine.to->free({block_of_page, 1}), status::ok);
    ASSERT_EQ(mine.to->free({2 * block_of_page, 1}), status::ok);
    reclaim_all(*lent);
    EXPECT_EQ(lent->report().table_bytes, block_bytes - 2 * page_bytes);
    EXPECT_EQ(mine.to->allocate({2, 4}), status::ok) << "what the table no longer needs is a block more";
    EXPECT_EQ(mine.to->allocate({6, 1}), status::no_space);
    lent->validate();
    lent->end(*mine.to);
    lent->validate();
    reclaim_all(*lent);
    EXPECT_EQ(lent->report().held_blocks, 0u);
    EXPECT_EQ(lent->report().table_bytes, 0u);
    EXPECT_TRUE(lent->report().tenants.empty() || is_quota);
  }
}

// Others need the lock meanwhile.
TEST(Store, ASessionEndsInSmallSteps) {
  store_settings settings;
  settings.memory_bytes = 4096 * block_bytes;
  settings.make_source = [] { return std::make_unique<no_memory>(); };
  const std::unique_ptr<store> lent = std::move(store::create(std::move(settings))).value();
  attachment mine = open(*lent);
  ASSERT_EQ(mine.to->allocate({maximum_session_blocks - 2000, 2000}), status::ok);
  ASSERT_EQ(mine.to->allocate({7, 1}), status::ok);
  lent->end(*mine.to);
  EXPECT_EQ(lent->report().sessions, 0u);
  EXPECT_EQ(lent->report().unreclaimed_blocks, 2001u);
  std::uint64_t left = 2001;
  while (left > 0) {
    const std::uint64_t before = left;
    left = lent->reclaim();
    lent->validate();
    ASSERT_LE(before - left, 64u);
  }
  EXPECT_EQ(lent->report().held_blocks, 0u);
}

// The last look of a step may come to a block.
TEST(Store, ASessionEndsWhereverItsBlocksAre) {
  constexpr std::uint64_t page_blocks = 512;
  for (const std::uint64_t gap_pages : {1022u, 1023u, 1024u, 1025u, 2048u}) {
    store_settings settings;
    settings.memory_bytes = 16 * block_bytes;
    settings.make_source = [] { return std::make_unique<no_memory>(); };
    const std::unique_ptr<store> lent = std::move(store::create(std::move(settings))).value();
    attachment mine = open(*lent);
    ASSERT_EQ(mine.to->allocate({gap_pages * page_blocks, 1}), status::ok);
    ASSERT_EQ(mine.to->allocate({(2 * gap_pages + 1) * page_blocks, 2}), status::ok);
    lent->end(*mine.to);
    while (lent->reclaim() > 0) lent->validate();
    EXPECT_EQ(lent->report().held_blocks, 0u) << gap_pages;
  }
}

}  // namespace
}  // namespace far::server
