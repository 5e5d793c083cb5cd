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
    EXPECT_EQ(encode_reduction(asked, ranges, false, payload), payload.size());
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

TEST_F(reduction_message, joins_neighbouring_slots_and_takes_them_apart) {
  std::vector<range> ranges;
  for (std::uint64_t slot = 500; slot < 520; ++slot) ranges.push_back({slot, 0, page_bytes});
  ranges.push_back({519, 0, page_bytes});
  ranges.push_back({520, 0, 8});
  ranges.push_back({520, 8, page_bytes - 8});
  for (std::uint64_t slot = 521; slot < 523; ++slot) ranges.push_back({slot, 0, page_bytes});
  payload_.resize(call_header_bytes + reduction_bytes + ranges.size() * range_bytes);
  const page_reduction asked{{number_type::int64, 5, 9, reduction_kind::marks}, &hash_};
  payload_.resize(encode_reduction(asked, ranges, true, payload_));
  EXPECT_EQ(payload_.size(), call_header_bytes + reduction_bytes + 5 * range_bytes);
  const auto got = decode_reduction(arguments());
  ASSERT_TRUE(got);
  EXPECT_TRUE(std::ranges::equal(got->ranges.all(), ranges));
  EXPECT_EQ(got->ranges.total_bytes, 23 * page_bytes + page_bytes);
}

TEST_F(reduction_message, of_slots_that_are_joined_and_too_many_is_refused) {
  const auto is_refused = [&](const std::vector<range>& ranges) {
    encode_into(payload_, {{number_type::int32, 5, 9}, &hash_}, ranges);
    return !decode_reduction(arguments());
  };
  constexpr std::uint32_t most = maximum_batch * page_bytes;
  EXPECT_FALSE(is_refused({{1, 0, most}}));
  EXPECT_TRUE(is_refused({{1, 0, most + page_bytes}}));
  EXPECT_TRUE(is_refused({{1, 0, most}, {9, 0, 4}}));
  EXPECT_TRUE(is_refused({{9, 0, 4}, {1, 0, most}}));
  EXPECT_TRUE(is_refused({{1, 4, 2 * page_bytes}})) << "not from the beginning of a slot";
  EXPECT_TRUE(is_refused({{1, 0, 2 * page_bytes - 4}})) << "not to the end of one";
  EXPECT_TRUE(is_refused({{~std::uint64_t{0}, 0, 2 * page_bytes}})) << "there are not so many slots";
}

TEST_F(reduction_message, joins_the_slots_of_groups_of_numbers_too) {
  const reduction how{number_type::int64, 0, 9, reduction_kind::group_sums, 0, 5};
  const std::vector<range> ranges{{7, 0, page_bytes}, {8, 0, page_bytes}};
  payload_.resize(call_header_bytes + reduction_bytes + 2 * range_bytes);
  payload_.resize(encode_reduction({how, &hash_}, ranges, true, payload_));
  // 3 bits for each of 512 numbers of both.
  const std::size_t groups_at = payload_.size();
  payload_.resize(groups_at + 2 * 192, std::byte{0x24});
  const auto got = decode_reduction(arguments());
  ASSERT_TRUE(got);
  EXPECT_EQ(got->ranges.count, 2u);
  EXPECT_EQ(got->groups, payload_.data() + groups_at);
  EXPECT_FALSE(decode_reduction(arguments().first(arguments().size() - 192))) << "those of the second are missing";
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
