// The replies of a Redis server: the parser finds the same in them however they come in pieces, and what INFO says is
// read without reading beyond its end; and so is CLUSTER NODES.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "backend/redis/cluster_nodes.h"
#include "backend/redis/reply_reader.h"
#include "backend/redis/server_facts.h"
#include "fuzz/fuzz_target.h"

namespace far::fuzz {

namespace {

using backend::redis_reply;
using backend::reply_reader;

class collector final : public backend::reply_sink {
 public:
  void take(const redis_reply& reply) override {
    seen.push_back(std::to_string(static_cast<int>(reply.is)) + ":" + std::to_string(reply.number) + ":" +
                   std::string(reply.text));
    static_cast<void>(backend::server_facts::parse(reply.text).objection());
  }
  std::vector<std::string> seen;
};

std::vector<std::string> read_in_pieces(std::span<const std::byte> bytes, std::size_t piece_bytes) {
  reply_reader reader;
  collector found;
  while (!bytes.empty()) {
    const std::size_t step = std::min(piece_bytes, bytes.size());
    if (!reader.feed(tight_copy(bytes.first(step)).all())) break;
    bytes = bytes.subspan(step);
    reply_reader::outcome outcome = reply_reader::outcome::taken;
    while (outcome == reply_reader::outcome::taken) outcome = reader.next(found);
    if (outcome == reply_reader::outcome::broken) break;
  }
  return found.seen;
}

}  // namespace

std::vector<byte_string> seeds() {
  const auto from = [](std::uint8_t piece_bytes, std::string_view text) {
    return recipe().number(piece_bytes).text(text).bytes();
  };
  return {
      from(3, "+OK\r\n:42\r\n$5\r\nhello\r\n$-1\r\n-OOM command not allowed\r\n"),
      from(1, "$70\r\nrun_id:0123456789abcdef\r\nmaxmemory:100\r\nmaxmemory_policy:allkeys-lru\r\n\r\n"),
      from(7, ":-1\r\n*2\r\n:1\r\n:2\r\n"),
      from(2, "$99999999999\r\nx\r\n"),
      from(9, "e7d1 127.0.0.1:30001@31001,host myself,master - 0 0 1 connected 0-5460 7000 [93-<-67ed]\n"),
  };
}

}  // namespace far::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  far::fuzz::choices input({reinterpret_cast<const std::byte*>(data), bytes});
  const std::size_t piece_bytes = std::size_t{1} + input.number<std::uint8_t>();
  const std::span<const std::byte> rest = input.take(bytes);
  FUZZ_EXPECT(far::fuzz::read_in_pieces(rest, piece_bytes) == far::fuzz::read_in_pieces(rest, rest.size() + 1));
  std::string_view nodes(reinterpret_cast<const char*>(rest.data()), rest.size());
  while (const auto node = far::backend::next_node(&nodes)) {
    const std::uint32_t count = node->slot_count();
    FUZZ_EXPECT(count == 0 || node->owns(node->slot_at(count - 1)));
    static_cast<void>(node->address.text());
  }
  static_cast<void>(
      far::backend::server_facts::parse({reinterpret_cast<const char*>(rest.data()), rest.size()}).room_bytes());
  return 0;
}
