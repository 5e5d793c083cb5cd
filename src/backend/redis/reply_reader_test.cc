#include "backend/redis/reply_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/units.h"

namespace far::backend {
namespace {

struct lengths final : reply_sink {
  std::vector<std::size_t> taken;
  void take(const redis_reply& reply) override { taken.push_back(reply.text.size()); }
};

// Feeds pieces of 64 KiB of such a text, and returns how many bytes of it were taken.
std::size_t feed_text(reply_reader& reader, lengths& sink, std::uint64_t announced, std::size_t most) {
  const std::string head = "$" + std::to_string(announced) + "\r\n";
  if (!reader.feed(std::as_bytes(std::span(head)))) return 0;
  const std::string piece(64 * kib, 'x');
  std::size_t fed = 0;
  while (fed < most && reader.feed(std::as_bytes(std::span(piece)))) {
    EXPECT_EQ(reader.next(sink), reply_reader::outcome::incomplete);
    fed += piece.size();
  }
  return fed;
}

TEST(reply_reader, a_long_reply_is_taken_whole) {
  reply_reader reader;
  lengths sink;
  ASSERT_EQ(feed_text(reader, sink, 4 * mib, 4 * mib), 4 * mib);
  const std::string end = "\r\n:1\r\n";
  ASSERT_TRUE(reader.feed(std::as_bytes(std::span(end))));
  EXPECT_EQ(reader.next(sink), reply_reader::outcome::taken);
  EXPECT_EQ(reader.next(sink), reply_reader::outcome::taken);
  EXPECT_EQ(sink.taken, (std::vector<std::size_t>{4 * mib, 0}));
}

TEST(reply_reader, a_server_cannot_fill_our_memory) {
  reply_reader reader;
  lengths sink;
  EXPECT_LE(feed_text(reader, sink, 9'000'000'000, 256 * mib), 17 * mib);
}

}  // namespace
}  // namespace far::backend
