// The reads of a dereference's fast path. Who reads what in between is in tests/model/grace_eviction_model_test.cc.
#include "far/detail/look.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>

#include "far/detail/view.h"
#include "far/detail/word.h"

namespace far::detail {
namespace {

TEST(look, compares_ready_bytes) {
  for (unsigned ready = 0; ready < 4; ++ready) {
    const auto byte = static_cast<std::uint8_t>(ready);
    for (unsigned least = 0; least < 4; ++least) {
      EXPECT_EQ(is_at_least(byte, static_cast<std::uint8_t>(least)), ready >= least) << ready << " and " << least;
    }
  }
}

TEST(look, needs_both_the_byte_and_the_word) {
  const std::atomic<std::uint64_t> word{0x1234'5678'9abc'de80};
  const std::uint64_t same = read_word(word);
  EXPECT_EQ(same, word.load());
  for (unsigned ready = 0; ready < 4; ++ready) {
    const auto byte = static_cast<std::uint8_t>(ready);
    EXPECT_EQ(is_at_least_and_same(byte, 2, word, same), ready >= 2) << ready;
    // Of other bits of the word, and of the byte's, none makes up for it.
    for (unsigned bit = 0; bit < 64; ++bit) {
      EXPECT_FALSE(is_at_least_and_same(byte, 2, word, same ^ std::uint64_t{1} << bit)) << ready << ", bit " << bit;
    }
  }
}

TEST(look, sees_what_changes_in_between) {
  std::uint8_t ready[] = {0, 3};
  const heap_view view{.ready = ready};
  std::atomic<std::uint64_t> word{word::of_small(std::uintptr_t{1} << word::page_shift)};
  const auto is_found = [&] { return view.is_ready_still(word, read_word(word), true); };
  EXPECT_TRUE(is_found());
  const std::uint64_t before = read_word(word);
  word.fetch_or(word::moving);
  EXPECT_FALSE(view.is_ready_still(word, before, true));
  EXPECT_TRUE(is_found());
  word.store(before);
  __atomic_store_n(&ready[1], std::uint8_t{2}, __ATOMIC_RELAXED);
  EXPECT_FALSE(is_found());
  EXPECT_TRUE(view.is_ready_still(word, read_word(word), false));
}

// A word without flags is used as the address, so everything else must have one.
TEST(look, takes_a_word_for_an_address_only_without_flags) {
  constexpr std::uintptr_t address = 0x7f12'3456'7890;
  static_assert(word::is_plain(word::of_small(address)));
  static_assert(word::plain_address(word::of_small(address)) == address);
  static_assert(!word::is_huge(word::of_small(address)));
  for (const std::uint64_t flag : {word::moving, word::fetching, word::idle, word::stale}) {
    const std::uint64_t value = word::of_small(address) | flag;
    EXPECT_FALSE(word::is_plain(value)) << flag;
    EXPECT_FALSE(word::is_huge(value)) << flag;
    EXPECT_EQ(word::address(value), address) << flag;
    EXPECT_EQ(word::page(value), address >> word::page_shift) << flag;
    EXPECT_EQ(word::with_address(value, address + 4096), (address + 4096) | flag) << flag;
  }
  constexpr std::uint64_t huge = word::of_huge(0x7f12'3456'7000);
  static_assert(word::is_huge(huge) && !word::is_plain(huge) && word::address(huge) == 0x7f12'3456'7000);
}

}  // namespace
}  // namespace far::detail
