#include "wire/message.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/units.h"

namespace far::wire {
namespace {

using bytes = std::vector<std::byte>;
using header_array = std::array<std::byte, header_bytes>;

// From pairs of hexadecimal digits, with spaces between them as one likes.
bytes from_hex(std::string_view text) {
  bytes encoding;
  std::string digits(text);
  std::erase(digits, ' ');
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    encoding.push_back(static_cast<std::byte>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return encoding;
}

bytes from_text(std::string_view text) {
  bytes encoding(text.size());
  std::memcpy(encoding.data(), text.data(), text.size());
  return encoding;
}

header_array encoded(const header& from) {
  header_array array{};
  encode(from, array);
  return array;
}

// A header with some bytes set by hand, and a check that fits them.
header_array forged(const header& from, std::size_t at, std::initializer_list<unsigned> values) {
  header_array array = encoded(from);
  for (const unsigned value : values) array[at++] = static_cast<std::byte>(value);
  const std::uint64_t hash = checksum(std::span(array).subspan(4));
  std::memcpy(array.data(), &hash, 4);
  return array;
}

bytes encoded_read(const std::vector<range>& ranges) {
  bytes encoding(ranges.size() * range_bytes);
  EXPECT_EQ(encode_read(ranges, encoding), encoding.size());
  return encoding;
}

bytes encoded_write(const std::vector<range>& ranges, std::size_t data_bytes) {
  bytes encoding(write_prefix_bytes(ranges.size()) + data_bytes);
  EXPECT_EQ(encode_write_prefix(ranges, encoding), write_prefix_bytes(ranges.size()));
  return encoding;
}

TEST(message, header_has_its_documented_bytes) {
  const header request = {
      .op = opcode::read, .payload_bytes = 16, .cookie = 0x0807060504030201, .payload_checksum = 0x8877665544332211};
  const header_array array = encoded(request);
  EXPECT_EQ(bytes(array.begin(), array.end()),
            from_hex("9cc3043c 46415248 10 00 00 00 10000000 0102030405060708 1122334455667788 0000000000000000"));
  const header reply = {.op = opcode::allocate, .is_reply = true, .result = status::no_space, .cookie = 7};
  const header_array answered = encoded(reply);
  EXPECT_EQ(bytes(answered.begin(), answered.end()),
            from_hex("cbc58d32 46415248 12 01 01 00 00000000 0700000000000000 0000000000000000 0000000000000000"));
}

TEST(message, header_comes_back) {
  for (const opcode op : {opcode::hello, opcode::challenge, opcode::proof, opcode::welcome, opcode::refuse,
                          opcode::read, opcode::write, opcode::allocate, opcode::free, opcode::capacity, opcode::call,
                          opcode::ping, opcode::close, opcode::draining, opcode::leaving}) {
    for (unsigned code = 0; code <= static_cast<unsigned>(last_status); ++code) {
      const bool is_reply = is_request(op);
      const auto result = is_reply ? static_cast<status>(code) : status::ok;
      const header from = {.op = op,
                           .is_reply = is_reply,
                           .result = result,
                           .payload_bytes = maximum_payload_bytes,
                           .cookie = std::numeric_limits<std::uint64_t>::max(),
                           .payload_checksum = 42};
      EXPECT_EQ(decode_header(encoded(from)), from);
    }
  }
}

TEST(message, only_a_result_of_a_call_is_packed) {
  const header packed = {.op = opcode::call, .is_reply = true, .payload_bytes = 9, .cookie = 1, .is_packed = true};
  EXPECT_EQ(encoded(packed)[9], std::byte{3});
  EXPECT_EQ(decode_header(encoded(packed)), packed);
  EXPECT_FALSE(decode_header(forged(packed, 9, {2}))) << "no reply";
  EXPECT_FALSE(decode_header(forged(packed, 9, {4}))) << "no such flag";
  EXPECT_FALSE(decode_header(forged(packed, 9, {7})));
  EXPECT_FALSE(decode_header(forged(packed, 8, {16}))) << "a read";
  EXPECT_FALSE(decode_header(forged(packed, 12, {0}))) << "nothing";
}

TEST(message, header_is_refused_when_any_bit_differs) {
  const header_array good = encoded({.op = opcode::write, .payload_bytes = 100, .cookie = 5, .payload_checksum = 6});
  for (std::size_t bit = 0; bit < header_bytes * 8; ++bit) {
    header_array bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_FALSE(decode_header(bad)) << "bit " << bit;
  }
}

TEST(message, header_is_refused_when_malformed_although_its_check_fits) {
  const header request = {.op = opcode::ping};
  EXPECT_TRUE(decode_header(forged(request, 8, {22}))) << "the forgery itself is good";
  EXPECT_FALSE(decode_header(forged(request, 4, {'f'}))) << "magic";
  for (const unsigned code : {0U, 7U, 15U, 24U, 31U, 34U, 255U}) {
    EXPECT_FALSE(decode_header(forged(request, 8, {code}))) << "opcode " << code;
  }
  EXPECT_FALSE(decode_header(forged(request, 9, {2}))) << "unknown flag";
  EXPECT_FALSE(decode_header(forged(request, 9, {1, 7}))) << "unknown status";
  EXPECT_FALSE(decode_header(forged(request, 10, {1}))) << "a request with a status";
  EXPECT_FALSE(decode_header(forged(request, 11, {1}))) << "byte 11";
  EXPECT_FALSE(decode_header(forged(request, 12, {1, 0, 0x10, 0}))) << "payload of 1 MiB and a byte";
  EXPECT_FALSE(decode_header(forged(request, 32, {1}))) << "byte 32";
  EXPECT_FALSE(decode_header(forged(request, 39, {1}))) << "byte 39";
  EXPECT_FALSE(decode_header(forged({.op = opcode::hello}, 9, {1}))) << "a reply to hello";
  EXPECT_FALSE(decode_header(forged({.op = opcode::draining}, 9, {1}))) << "a reply to draining";
}

TEST(message, checksum_is_xxh3) {
  EXPECT_EQ(checksum({}), 0U);
  EXPECT_EQ(checksum(from_text("farheap")), 0x495e15a32b7b3ca5U);
}

TEST(message, checksum_of_parts_is_that_of_the_whole) {
  const bytes whole = from_text("farheap keeps what does not fit");
  const std::array<hash_part, 3> parts = {{{whole.data(), 7}, {whole.data() + 7, 0}, {whole.data() + 7, 24}}};
  EXPECT_EQ(checksum_of_parts(parts), checksum(whole));
  EXPECT_EQ(checksum_of_parts({}), 0U);
  EXPECT_EQ(checksum_of_parts(std::span(parts).subspan(1, 1)), 0U);
}

TEST(message, fixed_payloads_have_their_documented_bytes) {
  std::array<std::byte, range_bytes> one{};
  encode(range{.slot = 0x0102, .offset_bytes = 0x0304, .length_bytes = 0x0506}, one);
  EXPECT_EQ(bytes(one.begin(), one.end()), from_hex("0201000000000000 04030000 06050000"));

  std::array<std::byte, block_range_bytes> blocks{};
  encode(block_range{.first = 3, .count = 0x0405}, blocks);
  EXPECT_EQ(bytes(blocks.begin(), blocks.end()), from_hex("0300000000000000 0504000000000000"));
  EXPECT_EQ(decode_block_range(blocks), (block_range{.first = 3, .count = 0x0405}));

  const capacity_report report = {
      .quota_slots = 1, .tenant_slots = 2, .server_free_slots = 3, .session_slots = 0x0102030405060708};
  std::array<std::byte, capacity_report_bytes> reported{};
  encode(report, reported);
  EXPECT_EQ(bytes(reported.begin(), reported.end()),
            from_hex("0100000000000000 0200000000000000 0300000000000000 0807060504030201"));
  EXPECT_EQ(decode_capacity_report(reported), report);
}

TEST(message, batches_have_their_documented_bytes) {
  const std::vector<range> ranges = {{.slot = 1, .offset_bytes = 2, .length_bytes = 3},
                                     {.slot = 4, .offset_bytes = 5, .length_bytes = 6}};
  EXPECT_EQ(encoded_read(ranges), from_hex("0100000000000000 02000000 03000000 0400000000000000 05000000 06000000"));
  EXPECT_EQ(encoded_write(ranges, 0),
            from_hex("02000000 00000000 0100000000000000 02000000 03000000 0400000000000000 05000000 06000000"));
}

TEST(message, batches_come_back) {
  std::vector<range> ranges;
  std::size_t total = 0;
  for (std::size_t i = 0; i < maximum_batch; ++i) {
    const auto length = static_cast<std::uint32_t>(i + 1);
    ranges.push_back({.slot = i << 40, .offset_bytes = page_bytes - 1, .length_bytes = length});
    total += length;
    batch read;
    ASSERT_TRUE(decode_read(encoded_read(ranges), &read));
    EXPECT_TRUE(std::ranges::equal(read.all(), ranges));
    EXPECT_EQ(read.total_bytes, total);
    const bytes payload = encoded_write(ranges, total);
    batch write;
    ASSERT_TRUE(decode_write(payload, &write));
    EXPECT_TRUE(std::ranges::equal(write.all(), ranges));
    EXPECT_EQ(write.bytes.size(), total);
    EXPECT_EQ(write.bytes.data(), payload.data() + write_prefix_bytes(ranges.size()));
  }
}

bool accepts_read(const std::vector<range>& ranges) {
  batch into;
  return decode_read(encoded_read(ranges), &into);
}

TEST(message, ranges_are_limited) {
  constexpr std::uint64_t last = std::numeric_limits<std::uint64_t>::max();
  EXPECT_TRUE(accepts_read({{.slot = last, .offset_bytes = 0, .length_bytes = page_bytes}}));
  EXPECT_FALSE(accepts_read({{.slot = last, .offset_bytes = 1, .length_bytes = page_bytes}})) << "beyond the last slot";
  EXPECT_FALSE(accepts_read({{.slot = 1, .offset_bytes = 0, .length_bytes = 0}})) << "empty";
  EXPECT_FALSE(accepts_read({{.slot = 1, .offset_bytes = page_bytes, .length_bytes = 1}})) << "outside its slot";
  EXPECT_TRUE(accepts_read({{.slot = 1, .offset_bytes = 0, .length_bytes = maximum_payload_bytes}}));
  EXPECT_FALSE(accepts_read({{.slot = 1, .offset_bytes = 0, .length_bytes = maximum_payload_bytes + 1}}));
  EXPECT_FALSE(accepts_read({{.slot = 1, .offset_bytes = 0, .length_bytes = maximum_payload_bytes},
                             {.slot = 9, .offset_bytes = 0, .length_bytes = 1}}))
      << "the reply would be too long";
  EXPECT_FALSE(accepts_read(std::vector<range>(2, {.slot = 1, .offset_bytes = 0, .length_bytes = 0x80000000})))
      << "a sum that overflows 32 bits";
}

TEST(message, reads_are_refused_when_their_length_is_wrong) {
  batch into;
  EXPECT_FALSE(decode_read({}, &into));
  const std::vector<range> many(maximum_batch, {.slot = 1, .offset_bytes = 0, .length_bytes = 1});
  bytes payload = encoded_read(many);
  EXPECT_TRUE(decode_read(payload, &into));
  payload.push_back(std::byte{0});
  EXPECT_FALSE(decode_read(payload, &into));
  payload.resize((maximum_batch + 1) * range_bytes, std::byte{1});
  EXPECT_FALSE(decode_read(payload, &into));
}

TEST(message, writes_are_refused_when_malformed) {
  const std::vector<range> two(2, {.slot = 1, .offset_bytes = 0, .length_bytes = 10});
  const bytes good = encoded_write(two, 20);
  batch into;
  ASSERT_TRUE(decode_write(good, &into));
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(decode_write(std::span(good).first(length), &into)) << "cut at " << length;
  }
  bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_write(longer, &into)) << "a byte too many";
  bytes none = good;
  none[0] = std::byte{0};
  EXPECT_FALSE(decode_write(none, &into)) << "no range";
  bytes reserved = good;
  reserved[4] = std::byte{1};
  EXPECT_FALSE(decode_write(reserved, &into)) << "bytes 4 to 7";
  bytes many(write_prefix_bytes(maximum_batch + 1) + maximum_batch + 1);
  many[0] = static_cast<std::byte>(maximum_batch + 1);
  EXPECT_FALSE(decode_write(many, &into)) << "too many ranges";
}

TEST(message, calls_come_back) {
  std::array<std::byte, call_header_bytes> name{};
  ASSERT_TRUE(encode_call("sum.u64", name));
  bytes payload(name.begin(), name.end());
  EXPECT_EQ(payload, from_hex("73756d2e753634 00 000000000000000000000000000000000000000000000000"));
  const bytes arguments = from_text("arguments");
  payload.insert(payload.end(), arguments.begin(), arguments.end());
  const std::optional<call_request> back = decode_call(payload);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->name, "sum.u64");
  EXPECT_TRUE(std::ranges::equal(back->arguments, arguments));
  EXPECT_TRUE(encode_call(std::string(31, 'a'), name));
  EXPECT_TRUE(decode_call(name));
}

TEST(message, calls_are_refused_when_their_name_is_malformed) {
  std::array<std::byte, call_header_bytes> name{};
  EXPECT_FALSE(encode_call("", name));
  EXPECT_FALSE(encode_call(std::string(32, 'a'), name));
  EXPECT_FALSE(encode_call("a b", name));
  EXPECT_FALSE(encode_call(std::string_view("a\0b", 3), name));
  EXPECT_FALSE(decode_call(bytes(call_header_bytes - 1, std::byte{'a'}))) << "short";
  EXPECT_FALSE(decode_call(bytes(call_header_bytes, std::byte{'a'}))) << "no end";
  EXPECT_FALSE(decode_call(bytes(call_header_bytes, std::byte{0}))) << "empty";
  bytes dirty(call_header_bytes, std::byte{0});
  dirty[0] = dirty[2] = std::byte{'a'};
  EXPECT_FALSE(decode_call(dirty)) << "bytes after the end";
  bytes control(call_header_bytes, std::byte{0});
  control[0] = std::byte{'\n'};
  EXPECT_FALSE(decode_call(control)) << "a line feed";
}

}  // namespace
}  // namespace far::wire
