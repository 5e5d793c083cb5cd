#include "fuzz/untrusted_server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/units.h"
#include "wire/packing.h"
#include "wire/reduction.h"

namespace far::fuzz {

namespace {

// A prime, so that bytes that lie a page or a block apart differ.
constexpr std::size_t period_bytes = 65521;

const std::array<std::byte, period_bytes>& content() {
  static const std::array<std::byte, period_bytes> pattern = [] {
    std::array<std::byte, period_bytes> bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((i * 0x9e3779b97f4a7c15U) >> 56);
    return bytes;
  }();
  return pattern;
}

// Calls `use` with the content, piece by piece.
template <typename Use>
void for_each_extent(std::uint64_t position, std::size_t bytes, Use use) {
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t offset = (position + done) % period_bytes;
    const std::size_t step = std::min(bytes - done, period_bytes - offset);
    use(done, std::span(content()).subspan(offset, step));
    done += step;
  }
}

}  // namespace

void put_content(std::uint64_t position, std::span<std::byte> to) {
  for_each_extent(position, to.size(), [&](std::size_t at, std::span<const std::byte> chunk) {
    std::memcpy(to.data() + at, chunk.data(), chunk.size());
  });
}

bool is_content(std::uint64_t position, std::span<const std::byte> bytes) {
  bool same = true;
  for_each_extent(position, bytes.size(), [&](std::size_t at, std::span<const std::byte> chunk) {
    same = same && std::memcmp(bytes.data() + at, chunk.data(), chunk.size()) == 0;
  });
  return same;
}

reduction question() {
  return {detail::number_type::int64, 0, 9, reduction_kind::marks};
}

// Most bytes are zeros, so that it can be packed.
void put_answer(std::uint64_t slot, std::span<std::byte> to) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<std::byte>(i % 7 == 0 ? slot * 31 + i : 0);
}

int untrusted_server::connect() {
  FUZZ_EXPECT(!open_);
  if (connecting_ != 0 && connecting_ != EINPROGRESS) return connecting_;
  open_ = true;
  hung_up_ = welcomed_ = false;
  return 0;
}

int untrusted_server::finish_connecting() {
  FUZZ_EXPECT(open_);
  connected_ = connecting_ == 0;
  return connecting_;
}

void untrusted_server::close() {
  open_ = connected_ = false;
  heard_.clear();
  said_.clear();
  taken_ = 0;
  waiting_.clear();
}

void untrusted_server::set_cuts(std::size_t to_server, std::size_t to_client) {
  cut_to_server_ = to_server;
  cut_to_client_ = to_client;
}

void untrusted_server::heal() {
  connecting_ = 0;
  welcome_ = welcome_kind::good;
  set_cuts(std::size_t{1} << 20, std::size_t{1} << 20);
}

std::ptrdiff_t untrusted_server::try_send(std::span<const iovec> chunks) {
  FUZZ_EXPECT(connected_);
  if (hung_up_) return -ECONNRESET;
  std::size_t moved = 0;
  for (const iovec& chunk : chunks) {
    const std::size_t bytes = std::min(chunk.iov_len, cut_to_server_ - moved);
    const auto* const from = static_cast<const std::byte*>(chunk.iov_base);
    heard_.insert(heard_.end(), from, from + bytes);
    moved += bytes;
  }
  take_messages();
  return static_cast<std::ptrdiff_t>(moved);
}

std::ptrdiff_t untrusted_server::try_receive(std::span<const iovec> into) {
  FUZZ_EXPECT(connected_);
  std::size_t moved = 0;
  for (const iovec& chunk : into) {
    const std::size_t bytes = std::min({chunk.iov_len, cut_to_client_ - moved, said_.size() - taken_});
    if (bytes > 0) std::memcpy(chunk.iov_base, said_.data() + taken_, bytes);
    taken_ += bytes;
    moved += bytes;
  }
  if (taken_ == said_.size()) {
    said_.clear();
    taken_ = 0;
  }
  return moved == 0 && hung_up_ ? -EPIPE : static_cast<std::ptrdiff_t>(moved);
}

void untrusted_server::take_messages() {
  std::span<const std::byte> rest = heard_;
  while (rest.size() >= wire::header_bytes) {
    const std::optional<wire::header> head = wire::decode_header(rest.first<wire::header_bytes>());
    FUZZ_EXPECT(head && !head->is_reply);
    if (rest.size() < wire::header_bytes + head->payload_bytes) break;
    const std::span<const std::byte> payload = rest.subspan(wire::header_bytes, head->payload_bytes);
    FUZZ_EXPECT(wire::checksum(payload) == head->payload_checksum);
    switch (head->op) {
      case wire::opcode::hello: on_hello(payload); break;
      case wire::opcode::proof: on_proof(payload); break;
      default: on_request(*head, payload); break;
    }
    rest = rest.subspan(wire::header_bytes + head->payload_bytes);
  }
  heard_ = byte_string(rest.begin(), rest.end());
}

void untrusted_server::on_hello(std::span<const std::byte> payload) {
  const std::optional<wire::hello> said = wire::decode_hello(payload);
  FUZZ_EXPECT(said && !welcomed_);
  joining_ = said->join;
  std::array<std::byte, wire::maximum_handshake_bytes> answer{};
  const auto version = static_cast<std::uint16_t>(welcome_ == welcome_kind::bad_version ? 99 : wire::newest_version);
  const std::size_t bytes =
      wire::encode(wire::challenge{.version = version, .token_wanted = welcome_ == welcome_kind::wants_token}, answer);
  say(wire::header{.op = wire::opcode::challenge}, std::span(answer).first(bytes));
}

void untrusted_server::on_proof(std::span<const std::byte> payload) {
  FUZZ_EXPECT(payload.size() == wire::proof_bytes && !welcomed_);
  std::array<std::byte, wire::maximum_handshake_bytes> answer{};
  if (welcome_ == welcome_kind::refused || welcome_ == welcome_kind::unknown_session) {
    const bool unknown = welcome_ == welcome_kind::unknown_session;
    const std::size_t bytes =
        unknown ? wire::encode(wire::unknown_session{.reason = std::string(wire::refusal_unknown_session)}, answer)
                : wire::encode_refusal("no\n", answer);
    return say(wire::header{.op = unknown ? wire::opcode::unknown : wire::opcode::refuse},
               std::span(answer).first(bytes));
  }
  // A client that joins no session gets a new one.
  if (joining_ == wire::session_id{} || welcome_ == welcome_kind::foreign_session) {
    session_[1] = static_cast<std::byte>(std::to_integer<unsigned>(session_[1]) + 1);
  }
  const bool kept = joining_ != wire::session_id{} && welcome_ != welcome_kind::foreign_session;
  const wire::welcome welcome = {.session = kept ? joining_ : session_,
                                 .quota_slots = 1 << 20,
                                 .grace_ms = 1000,
                                 .maximum_outstanding = maximum_outstanding_};
  const std::size_t bytes = wire::encode(welcome, answer);
  welcomed_ = true;
  say(wire::header{.op = wire::opcode::welcome}, std::span(answer).first(bytes));
}

void untrusted_server::on_request(const wire::header& head, std::span<const std::byte> payload) {
  // A server that talks before it is asked may make a client believe that it is welcome.
  FUZZ_EXPECT(wire::is_request(head.op));
  wire::batch batch;
  if (head.op == wire::opcode::read) FUZZ_EXPECT(wire::decode_read(payload, &batch));
  if (head.op == wire::opcode::write) {
    FUZZ_EXPECT(wire::decode_write(payload, &batch));
    std::span<const std::byte> rest = batch.bytes;
    for (const wire::range& range : batch.all()) {
      FUZZ_EXPECT(is_content(range.slot * page_bytes + range.offset_bytes, rest.first(range.length_bytes)));
      rest = rest.subspan(range.length_bytes);
    }
  }
  waiting_.push_back({head, byte_string(payload.begin(), payload.end())});
}

byte_string untrusted_server::right_payload(const request& asked) const {
  byte_string bytes;
  if (asked.head.op == wire::opcode::capacity) bytes.resize(wire::capacity_report_bytes);
  if (asked.head.op == wire::opcode::call) return right_result(asked.payload);
  if (asked.head.op != wire::opcode::read) return bytes;
  wire::batch batch;
  FUZZ_EXPECT(wire::decode_read(asked.payload, &batch));
  bytes.resize(batch.total_bytes);
  std::span<std::byte> rest = bytes;
  for (const wire::range& range : batch.all()) {
    put_content(range.slot * page_bytes + range.offset_bytes, rest.first(range.length_bytes));
    rest = rest.subspan(range.length_bytes);
  }
  return bytes;
}

byte_string untrusted_server::right_result(std::span<const std::byte> call) {
  const auto decoded = wire::decode_call(call);
  const auto asked = decoded ? wire::decode_reduction(decoded->arguments) : std::nullopt;
  FUZZ_EXPECT(asked && asked->how == question());
  const std::size_t of_range = answer_bytes(asked->how);
  byte_string result(asked->ranges.count * of_range);
  for (std::size_t i = 0; i < asked->ranges.count; ++i) {
    put_answer(asked->ranges.ranges[i].slot, std::span(result).subspan(i * of_range, of_range));
  }
  return result;
}

// Few bytes get no shorter, and travel as they are.
byte_string untrusted_server::packed_result(byte_string result, fault how) {
  if (how == fault::packed_short) result.pop_back();
  if (how == fault::packed_long) result.push_back(std::byte{0});
  wire::packer packs;
  byte_string packed(result.size());
  packed.resize(packs.pack(result, packed));
  if (packed.empty()) return packed;
  if (how == fault::packed_in_part) packed.resize(packed.size() / 2);
  if (how == fault::packed_damaged) packed[packed.size() / 3] ^= std::byte{0x14};
  return packed;
}

void untrusted_server::answer(std::size_t index, fault how, wire::status status) {
  if (waiting_.empty()) return;
  const auto chosen = waiting_.begin() + static_cast<std::ptrdiff_t>(index % waiting_.size());
  const request asked = std::move(*chosen);
  waiting_.erase(chosen);
  wire::header head = {.op = asked.head.op, .is_reply = true, .cookie = asked.head.cookie};
  byte_string payload = right_payload(asked);
  if (how == fault::failed) {
    head.result = status;
    if (status != wire::status::ok) payload.clear();
  }
  if (how >= fault::packed && head.op == wire::opcode::call && !payload.empty()) {
    byte_string packed = packed_result(payload, how);
    head.is_packed = !packed.empty();
    if (head.is_packed) payload = std::move(packed);
  }
  if (how == fault::short_payload && !payload.empty()) payload.pop_back();
  if (how == fault::long_payload) payload.push_back(std::byte{0});
  if (how == fault::another_opcode) head.op = head.op == wire::opcode::read ? wire::opcode::write : wire::opcode::read;
  if (how == fault::another_cookie) head.cookie ^= 1;
  if (how == fault::no_reply) head.is_reply = false;
  say(head, payload);
  if (how == fault::damaged && !payload.empty()) said_.back() ^= std::byte{1};
  if (how == fault::twice) say(head, payload);
}

void untrusted_server::answer_all() {
  while (!waiting_.empty()) answer(0, fault::none, wire::status::ok);
}

void untrusted_server::say(wire::header head, std::span<const std::byte> payload) {
  head.payload_bytes = static_cast<std::uint32_t>(payload.size());
  head.payload_checksum = wire::checksum(payload);
  std::array<std::byte, wire::header_bytes> bytes{};
  wire::encode(head, bytes);
  say(bytes);
  say(payload);
}

void untrusted_server::say(std::span<const std::byte> bytes) {
  if (open_) said_.insert(said_.end(), bytes.begin(), bytes.end());
}

}  // namespace far::fuzz
