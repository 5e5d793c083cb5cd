#include "fuzz/server_driver.h"

#include <algorithm>
#include <array>

#include "platform/local_memory.h"

namespace far::fuzz {

namespace {

// Blocks that the whole run shares. A block that is handed out again has lost its contents.
class shared_blocks final : public server::block_source {
 public:
  std::byte* take(std::uint64_t /*number*/) override {
    std::vector<std::byte*>& unused = all();
    if (unused.empty()) return nullptr;
    std::byte* const taken = unused.back();
    unused.pop_back();
    return taken;
  }
  void give_back(std::uint64_t /*number*/, std::byte* block) override {
    platform::release_local_frames(block, server::block_bytes);
    all().push_back(block);
  }

 private:
  static std::vector<std::byte*>& all() {
    static std::vector<std::byte*> unused = [] {
      std::vector<std::byte*> blocks_of_frames;
      for (std::uint64_t i = 0; i < small_store::blocks; ++i)
        blocks_of_frames.push_back(platform::map_local(server::block_bytes));
      return blocks_of_frames;
    }();
    return unused;
  }
};

// Different every time, but not random, so that a failure replays.
void next_number(std::span<std::byte> to) {
  static std::uint64_t number = 0;
  ++number;
  std::ranges::fill(to, std::byte{0});
  std::memcpy(to.data(), &number, std::min(to.size(), sizeof number));
}

constexpr std::size_t patience = 50'000;

}  // namespace

byte_string message_of(wire::header head, std::span<const std::byte> payload) {
  head.payload_bytes = static_cast<std::uint32_t>(payload.size());
  head.payload_checksum = wire::checksum(payload);
  byte_string bytes(wire::header_bytes);
  wire::encode(head, std::span(bytes).first<wire::header_bytes>());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

small_store::small_store() {
  auto created = server::store::create({.memory_bytes = blocks * server::block_bytes,
                                        .grace_ns = 1'000'000'000,
                                        .quota_bytes = {{"small", 2 * server::block_bytes}},
                                        .random = next_number,
                                        .make_source = [] { return std::make_unique<shared_blocks>(); }});
  FUZZ_EXPECT(created.ok());
  store_ = std::move(created).value();
  settings_ = {.lent = store_.get(), .tokens = &tokens_, .random = next_number};
  reader_.emplace(store_->readers());
  reader_->quiet();
}

void small_store::pass_quiet_point() {
  reader_->quiet();
  static_cast<void>(store_->reclaim());
}

connection::~connection() {
  served_.leave(at_.now_ns);
}

void connection::shake_hands(const wire::hello& said) {
  std::array<std::byte, wire::maximum_handshake_bytes> payload{};
  const std::size_t bytes = wire::encode(said, payload);
  const byte_string hello = message_of({.op = wire::opcode::hello}, std::span(payload).first(bytes));
  const wire::digest nothing{};
  const byte_string proof = message_of({.op = wire::opcode::proof}, nothing);
  to_server_.insert(to_server_.end(), hello.begin(), hello.end());
  to_server_.insert(to_server_.end(), proof.begin(), proof.end());
  pump();
}

void connection::request(wire::opcode op, std::span<const std::byte> payload, std::size_t ok_bytes) {
  const std::uint64_t cookie = next_cookie_++;
  outstanding_[cookie] = {op, ok_bytes};
  const byte_string bytes = message_of({.op = op, .cookie = cookie}, payload);
  to_server_.insert(to_server_.end(), bytes.begin(), bytes.end());
}

void connection::misbehave(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  well_behaved_ = false;
  to_server_.insert(to_server_.end(), bytes.begin(), bytes.end());
}

void connection::pump() {
  for (std::size_t round = 0; round < patience; ++round) {
    bool moved = deliver();
    served_.work(at_.now_ns);
    at_.pass_quiet_point();
    moved = collect() || moved;
    if (served_.is_over() && !(served_.flushes() && reads_)) return;
    if (!moved && served_.next_work_ns() > at_.now_ns) return;
  }
  FAR_CHECK(false, "a connection does not come to rest");
}

bool connection::deliver() {
  const std::size_t left = to_server_.size() - delivered_;
  if (left == 0) return false;
  const std::span<std::byte> space = served_.receive_space();
  // A long message in pieces of a byte would take all the time that a fuzzer has.
  const std::size_t bytes = std::min({left, std::max(cut_, left / 64), space.size()});
  if (bytes == 0) return false;
  std::copy_n(to_server_.begin() + static_cast<std::ptrdiff_t>(delivered_), bytes, space.begin());
  delivered_ += bytes;
  served_.received(bytes, at_.now_ns);
  return true;
}

bool connection::collect() {
  const std::span<const std::byte> bytes = served_.to_send();
  if (!reads_ || bytes.empty() || (served_.is_over() && !served_.flushes())) return false;
  from_server_.insert(from_server_.end(), bytes.begin(), bytes.end());
  served_.sent(bytes.size(), at_.now_ns);
  std::span<const std::byte> rest = from_server_;
  while (rest.size() >= wire::header_bytes) {
    const std::optional<wire::header> head = wire::decode_header(rest.first<wire::header_bytes>());
    FUZZ_EXPECT(head);
    const std::size_t whole_bytes = wire::header_bytes + head->payload_bytes;
    if (rest.size() < whole_bytes) break;
    check_message(*head, rest.subspan(wire::header_bytes, head->payload_bytes));
    rest = rest.subspan(whole_bytes);
  }
  from_server_ = byte_string(rest.begin(), rest.end());
  return true;
}

void connection::check_message(const wire::header& head, std::span<const std::byte> payload) {
  FUZZ_EXPECT(wire::checksum(payload) == head.payload_checksum);
  last_payload_.assign(payload.begin(), payload.end());
  if (head.is_reply) return check_reply(head, payload.size());
  switch (head.op) {
    case wire::opcode::challenge: FUZZ_EXPECT(wire::decode_challenge(payload)); break;
    case wire::opcode::welcome:
      welcome_ = wire::decode_welcome(payload);
      FUZZ_EXPECT(welcome_);
      break;
    case wire::opcode::refuse: break;
    case wire::opcode::draining: FUZZ_EXPECT(payload.empty()); break;
    default: FAR_CHECK(false, "a server does not send this"); break;
  }
}

void connection::check_reply(const wire::header& head, std::size_t payload_bytes) {
  FUZZ_EXPECT(head.result == wire::status::ok || payload_bytes == 0);
  const auto asked = outstanding_.find(head.cookie);
  if (asked == outstanding_.end()) {
    FUZZ_EXPECT(!well_behaved_);
    return;
  }
  if (well_behaved_) {
    FUZZ_EXPECT(asked->second.op == head.op);
    FUZZ_EXPECT(head.result != wire::status::bad_checksum);
    if (head.result == wire::status::ok) FUZZ_EXPECT(payload_bytes == asked->second.ok_bytes);
  }
  outstanding_.erase(asked);
}

}  // namespace far::fuzz
