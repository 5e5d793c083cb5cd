#include "wire/rows.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "wire/bytes.h"

namespace far::wire {
namespace {

using detail::number_type;

class rows_message : public testing::Test {
 protected:
  rows_message() {
    rows_.key[0] = {0xff, 5, number_type::int8};
    rows_.key[1] = {1000, 4, number_type::int16};
    encode();
  }
  void encode() {
    const std::size_t of_buckets = rows_.buckets > 0 ? buckets_bytes(20) : 0;
    payload_.resize(call_header_bytes + rows_bytes + of_buckets + slots_.size() * sizeof slots_[0]);
    EXPECT_EQ(encode_rows({.how = question(), .hash = &hash_}, slots_, payload_), payload_.size());
  }
  [[nodiscard]] reduction question() const {
    return {.type = number_type::float64,
            .lowest = 5,
            .highest = 9,
            .kind = reduction_kind::of_rows,
            .groups = 20,
            .rows = &rows_};
  }
  [[nodiscard]] std::span<std::byte> arguments() { return std::span(payload_).subspan(call_header_bytes); }

  const page_hasher hash_{3};
  detail::keyed_rows rows_{.rows = 4096, .keys = 2, .wants_sums = true, .wants_counts = true};
  std::vector<std::uint64_t> slots_ = {9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 77};  // of one question: 1, 2 and 8
  std::vector<std::byte> payload_;
};

TEST_F(rows_message, arrives_as_it_was) {
  const auto call = decode_call(payload_);
  ASSERT_TRUE(call);
  EXPECT_EQ(call->name, rows_name);
  const auto got = decode_rows(call->arguments);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->question(), question());
  EXPECT_TRUE(std::ranges::equal(std::span(got->slots).first(got->slot_count), slots_));
  EXPECT_TRUE(std::ranges::equal(got->hash.secret(), hash_.secret()));
  const batch ranges = got->ranges();
  ASSERT_EQ(ranges.count, slots_.size());
  EXPECT_EQ(ranges.ranges[10], (range{77, 0, page_bytes}));
}

TEST_F(rows_message, has_slots_of_whole_questions) {
  const std::vector<std::uint64_t> one = slots_;
  for (std::size_t questions = 2; questions * one.size() <= maximum_batch; ++questions) {
    slots_.insert(slots_.end(), one.begin(), one.end());
    encode();
    ASSERT_TRUE(decode_rows(arguments()));
  }
  EXPECT_FALSE(decode_rows(arguments().first(arguments().size() - 8)));
  EXPECT_FALSE(decode_rows(arguments().first(arguments().size() - 1)));
  EXPECT_FALSE(decode_rows(arguments().first(rows_bytes))) << "about nothing";
  EXPECT_FALSE(decode_rows(arguments().first(rows_bytes - 1)));
  payload_.resize(payload_.size() + one.size() * sizeof one[0]);
  EXPECT_FALSE(decode_rows(arguments())) << "more than a call may have";
}

class rows_message_with_buckets : public rows_message {
 protected:
  rows_message_with_buckets() {
    rows_.wants_sums = false;
    rows_.buckets = 10;
    for (std::size_t group = 0; group < 20; ++group) {
      rows_.buckets_of[group] = {~group, static_cast<std::uint8_t>(63 - group)};
    }
    encode();
  }
};

TEST_F(rows_message_with_buckets, arrives_as_it_was) {
  const auto got = decode_rows(arguments());
  ASSERT_TRUE(got);
  EXPECT_EQ(got->question(), question());
  EXPECT_TRUE(std::ranges::equal(std::span(got->slots).first(got->slot_count), slots_));
}

TEST_F(rows_message_with_buckets, that_lists_arrives_as_it_was) {
  rows_.buckets = 1;
  rows_.listed = 40;
  encode();
  const auto got = decode_rows(arguments());
  ASSERT_TRUE(got);
  EXPECT_EQ(got->rows.listed, 40);
  EXPECT_EQ(got->question(), question());
  for (const int refused : {120, 255}) {
    arguments()[rows_bytes + 1] = static_cast<std::byte>(refused);
    EXPECT_FALSE(decode_rows(arguments())) << "more than an answer has room for: " << refused;
  }
  arguments()[rows_bytes + 1] = std::byte{40};
  arguments()[rows_bytes + 2] = std::byte{1};
  EXPECT_FALSE(decode_rows(arguments())) << "not zero";
  arguments()[rows_bytes + 2] = std::byte{0};
  arguments()[1] = std::byte{16 + 2};
  EXPECT_FALSE(decode_rows(arguments())) << "bounds of what is listed";
}

TEST_F(rows_message_with_buckets, that_makes_no_sense_is_refused) {
  const std::vector<std::byte> good = payload_;
  const auto expect_refused = [&](std::size_t at, std::uint8_t value) {
    payload_ = good;
    arguments()[at] = std::byte{value};
    EXPECT_FALSE(decode_rows(arguments())) << at << " " << int{value};
  };
  expect_refused(1, 16 + 1);                    // sums of buckets
  expect_refused(rows_bytes, 0);                // none of them
  expect_refused(rows_bytes, 30);               // more than an answer has room for
  expect_refused(rows_bytes + 1, 1);            // more than there may be
  expect_refused(rows_bytes + 16, 64);          // no bit of a key
  expect_refused(rows_bytes + 16 * 20 + 1, 1);  // not zero
  expect_refused(2, 255);                       // more groups than the message has buckets of
  payload_ = good;
  for (std::size_t bytes = 0; bytes < rows_bytes + buckets_bytes(20) + 8; ++bytes) {
    EXPECT_FALSE(decode_rows(arguments().first(bytes))) << bytes;
  }
}

TEST_F(rows_message, that_makes_no_sense_is_refused) {
  const std::vector<std::byte> good = payload_;
  const auto expect_refused = [&](std::size_t at, std::uint8_t value) {
    payload_ = good;
    arguments()[at] = std::byte{value};
    EXPECT_FALSE(decode_rows(arguments())) << at << " " << int{value};
  };
  expect_refused(0, 10);    // no type of numbers
  expect_refused(1, 32);    // wants what there is not
  expect_refused(2, 19);    // other groups than the keys make
  expect_refused(3, 1);     // a key behind the last one
  expect_refused(3, 5);     // too many keys
  expect_refused(4, 1);     // parts of pages
  expect_refused(5, 0x20);  // more pages than there may be
  expect_refused(32, 6);    // more keys than groups
  expect_refused(36, 8);    // keys with a fraction
  expect_refused(37, 1);    // not zero
  expect_refused(56, 1);    // no such key
}

}  // namespace
}  // namespace far::wire
