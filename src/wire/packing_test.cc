#include "wire/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace far::wire {
namespace {

using bytes = std::vector<std::byte>;

// Answers about 128 pages of 512 numbers, of which this share is marked: a bit for each, then a hash.
bytes marks(double density) {
  constexpr std::size_t answer_bytes = 72;
  std::mt19937_64 random(static_cast<std::uint64_t>(density * 1000) + 1);
  std::bernoulli_distribution is_marked(density);
  bytes all(128 * answer_bytes);
  for (std::size_t at = 0; at < all.size(); ++at) {
    if (at % answer_bytes >= 64) {
      all[at] = static_cast<std::byte>(random());
      continue;
    }
    for (unsigned bit = 0; bit < 8; ++bit) all[at] |= static_cast<std::byte>(is_marked(random) ? 1u << bit : 0u);
  }
  return all;
}

bytes packed_of(const bytes& from) {
  packer packs;
  bytes into(from.size());
  into.resize(packs.pack(from, into));
  return into;
}

TEST(packing, makes_marks_as_short_as_they_say_little) {
  packer packs;
  unpacker unpacks;
  // Of a page of 72 bytes, 8 are the hash. What the others say: 0, 0.7, 5.2, 30, 64 bytes.
  struct share {
    double marked;
    std::size_t most_bytes;
  };
  for (const share& one : {share{0, 10}, share{0.001, 13}, share{0.01, 22}, share{0.1, 46}, share{0.9, 46},
                           share{0.99, 22}, share{0.999, 13}, share{1, 10}}) {
    const bytes all = marks(one.marked);
    bytes into(all.size());
    const std::size_t length = packs.pack(all, into);
    EXPECT_GT(length, 0u);
    EXPECT_LE(length, 128 * one.most_bytes) << one.marked;
    EXPECT_TRUE(std::ranges::equal(unpacks.unpack(std::span(into).first(length), all.size()), all)) << one.marked;
  }
}

TEST(packing, leaves_alone_what_gets_no_shorter) {
  packer packs;
  bytes into(most_unpacked_bytes);
  EXPECT_EQ(packs.pack(marks(0.5), into), 0u);
  EXPECT_EQ(packs.pack({}, into), 0u);
  EXPECT_EQ(packs.pack(bytes(64), into), 0u) << "too short for it";
  EXPECT_GT(packs.pack(bytes(most_unpacked_bytes), into), 0u);
  EXPECT_EQ(packs.pack(bytes(most_unpacked_bytes + 1), into), 0u) << "too long";
  EXPECT_EQ(packs.pack(marks(0.1), std::span(into).first(100)), 0u) << "no room";
}

TEST(packing, is_never_longer_than_a_client_takes) {
  std::mt19937_64 random(7);
  bytes half_zeros(most_unpacked_bytes);
  for (std::size_t at = 0; at < half_zeros.size(); at += 2) half_zeros[at] = static_cast<std::byte>(random());
  packer packs;
  bytes into(most_unpacked_bytes);
  EXPECT_EQ(packs.pack(half_zeros, into), 0u);
}

TEST(packing, what_is_not_the_expected_bytes_is_nothing) {
  const bytes all = marks(0.1);
  const bytes packed = packed_of(all);
  unpacker unpacks;
  for (const std::size_t wrong : {all.size() - 1, all.size() + 1, std::size_t{1}, most_unpacked_bytes}) {
    EXPECT_TRUE(unpacks.unpack(packed, wrong).empty()) << wrong;
  }
  for (std::size_t length = 0; length < packed.size(); ++length) {
    ASSERT_TRUE(unpacks.unpack(std::span(packed).first(length), all.size()).empty()) << length;
  }
  bytes longer = packed;
  longer.push_back(std::byte{0});
  EXPECT_TRUE(unpacks.unpack(longer, all.size()).empty());
  longer.insert(longer.end() - 1, packed.begin(), packed.end());
  EXPECT_TRUE(unpacks.unpack(longer, all.size()).empty()) << "twice, and more";
  EXPECT_TRUE(std::ranges::equal(unpacks.unpack(packed, all.size()), all)) << "it is none the worse for it";
}

// It says that it has far more bytes than there is room for.
TEST(packing, a_small_packet_with_many_bytes_is_nothing) {
  const bytes packed = packed_of(bytes(most_unpacked_bytes));
  EXPECT_LT(packed.size(), 100u);
  unpacker unpacks;
  EXPECT_TRUE(unpacks.unpack(packed, 4096).empty());
  EXPECT_EQ(unpacks.unpack(packed, most_unpacked_bytes).size(), most_unpacked_bytes);
}

// They may be other bytes of the same length: whoever sends them may also say so directly.
TEST(packing, damage_is_survived) {
  const bytes all = marks(0.1);
  bytes packed = packed_of(all);
  unpacker unpacks;
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const std::size_t at = random() % packed.size();
    const auto before = packed[at];
    packed[at] ^= static_cast<std::byte>(random() % 255 + 1);
    const std::span<const std::byte> got = unpacks.unpack(packed, all.size());
    ASSERT_TRUE(got.empty() || got.size() == all.size());
    packed[at] = before;
  }
}

}  // namespace
}  // namespace far::wire
