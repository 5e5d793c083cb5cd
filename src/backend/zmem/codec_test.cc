#include "backend/zmem/codec.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <string>

namespace far::backend {
namespace {

using page = std::array<std::byte, page_bytes>;

// `random_share` of every 64 bytes are random.
page make_page(std::uint64_t seed, std::size_t random_share) {
  std::mt19937_64 random(seed);
  page content{};
  for (std::size_t i = 0; i < content.size(); ++i) {
    content[i] = static_cast<std::byte>(i % 64 < random_share ? random() : i / 64);
  }
  return content;
}

void round_trip(codec_choice chosen) {
  codec tested(chosen);
  for (const std::size_t share : {0, 7, 32, 48}) {
    const page original = make_page(share, share);
    page packed{};
    const std::size_t length = tested.compress(original.data(), packed.data(), 3500);
    ASSERT_GT(length, 0u) << share;
    page back{};
    EXPECT_TRUE(tested.decompress(packed.data(), length, back.data()));
    EXPECT_EQ(back, original) << share;
  }
}

TEST(codec, pages_come_back) {
  round_trip({});
  for (int level = 1; level <= most_zstd_level; ++level) {
    SCOPED_TRACE(level);
    round_trip({codec_name::zstd, level});
  }
}

TEST(codec, what_does_not_fit_is_told) {
  for (const codec_name name : {codec_name::lz4, codec_name::zstd}) {
    codec tested({name, 1});
    const page random = make_page(1, 64);
    page packed{};
    EXPECT_EQ(tested.compress(random.data(), packed.data(), 3000), 0u);
    const page easy = make_page(2, 8);
    EXPECT_GT(tested.compress(easy.data(), packed.data(), 3000), 0u) << "after one that did not fit";
  }
}

TEST(codec, damaged_bytes_are_told) {
  for (const codec_name name : {codec_name::lz4, codec_name::zstd}) {
    codec tested({name, 1});
    const page original = make_page(3, 16);
    page packed{};
    const std::size_t length = tested.compress(original.data(), packed.data(), 3000);
    ASSERT_GT(length, 8u);
    page back{};
    EXPECT_FALSE(tested.decompress(packed.data(), length - 7, back.data()));
    std::memset(packed.data(), 0xff, length);
    EXPECT_FALSE(tested.decompress(packed.data(), length, back.data()));
  }
}

TEST(codec, pages_of_one_word) {
  page filled;
  filled.fill(std::byte{0x5a});
  EXPECT_TRUE(is_same_filled(filled.data()));
  for (std::size_t i = 0; i < filled.size(); ++i) filled[i] = static_cast<std::byte>(i % 8);
  EXPECT_TRUE(is_same_filled(filled.data()));
  for (const std::size_t odd : {std::size_t{0}, std::size_t{9}, page_bytes / 2, page_bytes - 1}) {
    page other = filled;
    other[odd] ^= std::byte{1};
    EXPECT_FALSE(is_same_filled(other.data())) << odd;
  }
}

}  // namespace
}  // namespace far::backend
