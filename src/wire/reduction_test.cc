#include "wire/reduction.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "wire/bytes.h"

namespace far::wire {
namespace {

using detail::number_type;

class reduction_message : public testing::Test {
 protected:
  reduction_message() { encode_into(payload_, {{number_type::int32, 5, 9}, &hash_}, ranges_); }

  static void encode_into(std::vector<std::byte>& payload, const page_reduction& asked, std::span<const range> ranges) {
    payload.resize(call_header_bytes + reduction_bytes + ranges.size() * range_bytes);
    EXPECT_EQ(encode_reduction(asked, ranges, payload), payload.size());
  }
  [[nodiscard]] std::span<std::byte> arguments() { return std::span(payload_).subspan(call_header_bytes); }

  const page_hasher hash_{3};
  const std::vector<range> ranges_ = {{7, 0, 4096}, {512, 4092, 4}};
  std::vector<std::byte> payload_;
};

TEST_F(reduction_message, arrives_as_it_was) {
  const auto call = decode_call(payload_);
  ASSERT_TRUE(call);
  EXPECT_EQ(call->name, reduction_name);
  const auto got = decode_reduction(call->arguments);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->how, (reduction{number_type::int32, 5, 9}));
  ASSERT_EQ(got->ranges.count, 2u);
  EXPECT_EQ(got->ranges.ranges[1], ranges_[1]);
  EXPECT_TRUE(std::ranges::equal(got->hash.secret(), hash_.secret()));
}

TEST_F(reduction_message, that_makes_no_sense_is_refused) {
  EXPECT_FALSE(decode_reduction({}));
  EXPECT_FALSE(decode_reduction(arguments().first(reduction_bytes - 1)));
  EXPECT_FALSE(decode_reduction(arguments().first(reduction_bytes))) << "no range";
  EXPECT_FALSE(decode_reduction(arguments().first(arguments().size() - 1)));
  store(std::uint64_t{10}, arguments().data());
  EXPECT_FALSE(decode_reduction(arguments())) << "there is no such type";
}

TEST_F(reduction_message, of_parts_of_numbers_or_of_several_slots_is_refused) {
  for (const range& bad : {range{1, 2, 4}, range{1, 0, 6}, range{1, 0, 4100}, range{1, 4092, 8}, range{1, 4096, 4},
                           range{1, 0, 0}, range{1, 0, 0xfffffffc}, range{~std::uint64_t{0}, 0, 4}}) {
    encode_into(payload_, {{number_type::int32, 5, 9}, &hash_}, {&bad, 1});
    const auto got = decode_reduction(arguments());
    EXPECT_TRUE(!got || bad.slot == ~std::uint64_t{0}) << bad.offset_bytes << " " << bad.length_bytes;
  }
}

TEST_F(reduction_message, has_a_result_of_little_endian_fields) {
  std::array<std::byte, reduced_bytes> result;
  encode({{1, 2, 3, 4, 5}, 6}, result);
  for (std::uint64_t i = 0; i < 6; ++i) EXPECT_EQ(load<std::uint64_t>(result.data() + i * 8), i + 1);
  reduced_page received;
  std::memcpy(&received, result.data(), sizeof received);
  EXPECT_EQ(received.numbers, (reduced_numbers{1, 2, 3, 4, 5}));
  EXPECT_EQ(received.check, 6u);
}

}  // namespace
}  // namespace far::wire
