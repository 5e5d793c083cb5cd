#include "base/page_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/units.h"
#include "base/xxh3.h"

namespace far {
namespace {

std::vector<std::byte> sample() {
  std::vector<std::byte> bytes(page_bytes);
  for (std::size_t i = 0; i < page_bytes; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  return bytes;
}

TEST(page_hash, differs_when_any_bit_differs) {
  std::vector<std::byte> bytes = sample();
  const page_hasher hash;
  const page_hash before = hash(bytes.data());
  for (std::size_t i = 0; i < page_bytes; ++i) {
    const std::byte flipped{static_cast<unsigned char>(1u << i % 8)};
    bytes[i] ^= flipped;
    EXPECT_NE(hash(bytes.data()), before) << "byte " << i;
    bytes[i] ^= flipped;
  }
  EXPECT_EQ(hash(bytes.data()), before);
}

TEST(page_hash, differs_between_secrets_and_not_with_the_same) {
  const std::vector<std::byte> bytes = sample();
  EXPECT_NE(page_hasher()(bytes.data()), page_hasher()(bytes.data())) << "each draws its own";
  EXPECT_NE(page_hasher(1)(bytes.data()), page_hasher(2)(bytes.data()));
  EXPECT_EQ(page_hasher(1)(bytes.data()), page_hasher(1)(bytes.data()));
  const page_hasher drawn;
  const page_hasher copied = drawn;
  EXPECT_EQ(drawn(bytes.data()), copied(bytes.data()));
}

TEST(page_hash, zeros_and_swapped_halves_have_hashes_of_their_own) {
  const page_hasher hash;
  std::vector<std::byte> bytes = sample();
  const page_hash before = hash(bytes.data());
  std::swap_ranges(bytes.begin(), bytes.begin() + page_bytes / 2, bytes.begin() + page_bytes / 2);
  EXPECT_NE(hash(bytes.data()), before);
  EXPECT_NE(hash(std::vector<std::byte>(page_bytes).data()), before);
}

}  // namespace
}  // namespace far
