// Which answers a memory server packs (wire/packing.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

#include "base/units.h"
#include "server/protocol.h"
#include "tests/support/scripted_client.h"
#include "wire/bytes.h"
#include "wire/packing.h"
#include "wire/reduction.h"

namespace far::server {
namespace {

using wire::opcode;
using wire::status;

struct Packing : testing::Test {
  test_server server;
  scripted_client client{server};
  wire::welcome mine;

  void SetUp() override {
    const std::optional<wire::welcome> got = client.shake_hands();
    ASSERT_TRUE(got.has_value());
    mine = *got;
    ASSERT_EQ(client.ask_blocks(opcode::allocate, 0, 1), status::ok);
  }
};

// Marks of a tenth of the numbers of many pages: half as long, for those who can unpack them.
TEST_F(Packing, PacksAnswersForClientsThatUnpackThem) {
  constexpr std::size_t pages = 64;
  bytes data(pages * page_bytes);
  std::mt19937_64 random(3);
  for (std::size_t at = 0; at < data.size(); at += 8) wire::store(std::uint64_t{random() % 10}, data.data() + at);
  ASSERT_EQ(client.write({{3, 0, pages * page_bytes}}, data), status::ok);
  const page_hasher hash(11);
  const page_reduction asked{{detail::number_type::uint64, 0, 0, reduction_kind::marks}, &hash};
  std::vector<wire::range> ranges;
  bytes expected(pages * answer_bytes(asked.how));
  for (std::size_t page = 0; page < pages; ++page) {
    ranges.push_back({3 + page, 0, page_bytes});
    const std::span<const std::byte> numbers = std::span(data).subspan(page * page_bytes, page_bytes);
    answer(asked, numbers.data(), numbers, expected.data() + page * answer_bytes(asked.how));
  }
  bytes payload(wire::call_header_bytes + wire::reduction_bytes + wire::range_bytes);
  ASSERT_EQ(wire::encode_reduction(asked, ranges, true, payload), payload.size());

  const message packed = client.ask(opcode::call, payload);
  ASSERT_EQ(packed.head.result, status::ok);
  EXPECT_TRUE(packed.head.is_packed);
  EXPECT_LT(packed.payload.size(), expected.size() * 2 / 3);
  wire::unpacker unpacker;
  EXPECT_TRUE(std::ranges::equal(unpacker.unpack(packed.payload, expected.size()), expected));
  EXPECT_EQ(server.counters.bytes_called.value(), payload.size() + packed.payload.size());

  scripted_client older(server);
  ASSERT_TRUE(older.shake_hands({.newest = wire::first_version_that_packs - 1, .join = mine.session, .channel = 1}));
  const message plain = older.ask(opcode::call, payload);
  EXPECT_FALSE(plain.head.is_packed);
  EXPECT_EQ(plain.payload, expected);
}

TEST_F(Packing, DoesNotPackWhatGetsNoShorter) {
  const bytes data = pattern(page_bytes, 6);
  ASSERT_EQ(client.write({{3, 0, page_bytes}}, data), status::ok);
  const page_hasher hash(11);
  const page_reduction asked{{detail::number_type::uint8, 0, 0, reduction_kind::marks}, &hash};
  bytes payload(wire::call_header_bytes + wire::reduction_bytes + wire::range_bytes);
  const std::vector<wire::range> one_number{{3, 0, 1}};
  EXPECT_EQ(wire::encode_reduction(asked, one_number, true, payload), payload.size());
  EXPECT_TRUE(client.ask(opcode::call, payload).head.is_packed) << "zeros but for one";
  const page_reduction summary{{detail::number_type::uint8, 0, 200}, &hash};
  EXPECT_EQ(wire::encode_reduction(summary, one_number, true, payload), payload.size());
  const message got = client.ask(opcode::call, payload);
  EXPECT_FALSE(got.head.is_packed);
  EXPECT_EQ(got.payload.size(), sizeof(reduced_page));
}

}  // namespace
}  // namespace far::server
