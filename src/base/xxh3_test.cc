#include "base/xxh3.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace far {
namespace {

// Bytes without a pattern that a hash could like.
std::vector<unsigned char> sample(std::size_t bytes) {
  std::vector<unsigned char> input(bytes);
  std::uint64_t state = bytes + 1;
  for (unsigned char& byte : input) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<unsigned char>(state >> 56);
  }
  return input;
}

// The lengths at which XXH3 changes its way: up to 16, 128, 240, one block of 1024, and the tails of stripes.
constexpr std::array<std::size_t, 26> lengths = {0,    1,    3,    4,    8,     9,     16,     17,     64,
                                                 128,  129,  240,  241,  255,   256,   257,    1023,   1024,
                                                 1025, 4095, 4096, 4097, 65536, 65537, 262143, 1 << 20};

std::vector<const xxh3_form*> forms() {
  std::vector<const xxh3_form*> all = {&xxh3_baseline, &fastest_xxh3()};
#if defined(__x86_64__)
  if (has_avx2()) all.push_back(&xxh3_avx2);
#endif
  return all;
}

TEST(xxh3, every_form_has_the_same_values) {
  const std::vector<unsigned char> secret = sample(192);
  for (const std::size_t length : lengths) {
    const std::vector<unsigned char> bytes = sample(length);
    const std::uint64_t short_hash = xxh3_baseline.hash_64(bytes.data(), length);
    for (const xxh3_form* form : forms()) {
      EXPECT_EQ(form->hash_64(bytes.data(), length), short_hash) << length;
      if (length <= 240) continue;
      EXPECT_EQ(form->hash_64_with_secret(bytes.data(), length, secret.data(), secret.size()),
                xxh3_baseline.hash_64_with_secret(bytes.data(), length, secret.data(), secret.size()));
      EXPECT_NE(form->hash_64_with_secret(bytes.data(), length, secret.data(), secret.size()), short_hash);
    }
  }
}

TEST(xxh3, parts_hash_like_the_whole) {
  for (const std::size_t length : lengths) {
    const std::vector<unsigned char> bytes = sample(length);
    for (const xxh3_form* form : forms()) {
      const std::uint64_t whole = form->hash_64(bytes.data(), length);
      for (const std::size_t cut : {length / 7, length / 2, length}) {
        const std::array<hash_part, 3> parts = {
            {{bytes.data(), cut}, {nullptr, 0}, {bytes.data() + cut, length - cut}}};
        EXPECT_EQ(form->hash_64_of_parts(parts.data(), parts.size()), whole) << length << " cut at " << cut;
      }
    }
  }
}

TEST(xxh3, has_the_published_values) {
  const std::array<unsigned char, 4096> zeros{};
  EXPECT_EQ(fastest_xxh3().hash_64(nullptr, 0), 0x2d06800538d394c2U);
  EXPECT_EQ(fastest_xxh3().hash_64("farheap", 7), 0x495e15a32b7b3ca5U);
  EXPECT_EQ(fastest_xxh3().hash_64(zeros.data(), zeros.size()), 0x93d76fe148c689baU);
}

}  // namespace
}  // namespace far
