#include "base/page_hash.h"

#include <gtest/gtest.h>

#include <array>

#include "base/units.h"

namespace far {
namespace {

using page = std::array<std::byte, page_bytes>;

TEST(page_hash, is_xxh3_of_the_page) {
  // From `xxhsum -H2` of 4096 zero bytes; it must not change between builds that share slots.
  const page zeros{};
  EXPECT_EQ(hash_page(zeros.data()), (page_hash{0x93d76fe148c689baU, 0x3ee8dc4f9e7ee495U}));
}

TEST(page_hash, differs_when_any_byte_differs) {
  page bytes{};
  const page_hash before = hash_page(bytes.data());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = std::byte{1};
    EXPECT_NE(hash_page(bytes.data()), before) << "byte " << i;
    bytes[i] = std::byte{0};
  }
  EXPECT_EQ(hash_page(bytes.data()), before);
}

}  // namespace
}  // namespace far
