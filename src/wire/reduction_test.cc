#include "wire/reduction.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
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

TEST_F(reduction_message, says_what_is_asked) {
  const reduction how{number_type::int64, 0, 0x3fff, reduction_kind::counts, 7};
  encode_into(payload_, {how, &hash_}, ranges_);
  EXPECT_FALSE(decode_reduction(arguments())) << "half of a number";
  encode_into(payload_, {how, &hash_}, {ranges_.data(), 1});
  const auto got = decode_reduction(arguments());
  ASSERT_TRUE(got);
  EXPECT_EQ(got->how, how);
  // A summary of an older release looks the same.
  encode_into(payload_, {{number_type::int64, 1, 2}, &hash_}, {ranges_.data(), 1});
  EXPECT_EQ(load<std::uint64_t>(arguments().data()), static_cast<std::uint64_t>(number_type::int64));
  for (const std::uint64_t bad : {std::uint64_t{5} << 8, std::uint64_t{1} << 16, std::uint64_t{1} << 24,
                                  std::uint64_t{2} << 8 | std::uint64_t{64} << 16}) {
    store(bad, arguments().data());
    EXPECT_FALSE(decode_reduction(arguments())) << bad;
  }
}

TEST_F(reduction_message, has_the_groups_of_its_numbers) {
  const reduction how{number_type::int32, 0, 9, reduction_kind::group_sums, 0, 5};
  encode_into(payload_, {how, &hash_}, ranges_);
  // 3 bits for each of 1024 numbers, and of one.
  const std::size_t groups_at = payload_.size();
  payload_.resize(groups_at + 384 + 8, std::byte{0x24});
  const auto got = decode_reduction(arguments());
  ASSERT_TRUE(got);
  EXPECT_EQ(got->how, how);
  EXPECT_EQ(got->ranges.count, 2u);
  EXPECT_EQ(got->groups, payload_.data() + groups_at);
  EXPECT_FALSE(decode_reduction(arguments().first(arguments().size() - 1))) << "some are missing";
  EXPECT_FALSE(decode_reduction(arguments().first(arguments().size() - 8)));
  const auto question = load<std::uint64_t>(arguments().data());
  for (const std::uint64_t bad :
       {question & ~(std::uint64_t{0xffff} << 32), question | std::uint64_t{0xffff} << 32,
        question ^ std::uint64_t{3} << 32, question | std::uint64_t{1} << 48, question | std::uint64_t{1} << 16,
        question ^ std::uint64_t{5} << 24, question | std::uint64_t{0xff} << 24}) {
    store(bad, arguments().data());
    EXPECT_FALSE(decode_reduction(arguments())) << std::hex << bad;
  }
  payload_.resize(payload_.size() + 8);
  store(question, arguments().data());
  EXPECT_FALSE(decode_reduction(arguments())) << "more than there are numbers";
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
  alignas(8) std::array<std::byte, page_bytes> page{};
  store(std::uint32_t{6}, page.data() + 8);
  std::array<std::byte, sizeof(reduced_page)> result;
  answer({{number_type::int32, 5, 9}, &hash_}, page.data(), std::span(page).first(64), result.data());
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(load<std::uint64_t>(result.data() + i * 8), (std::array{1u, 6u, 0u, 6u, 6u})[i]);
  }
  reduced_page received;
  std::memcpy(&received, result.data(), sizeof received);
  EXPECT_EQ(received.numbers, (reduced_numbers{1, 6, 0, 6, 6}));
  EXPECT_EQ(received.check, hash_of_pieces(hash_, page.data()));
}

}  // namespace
}  // namespace far::wire
