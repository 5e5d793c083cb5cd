// For tests: a memory server in a few lines, and a stream to it that breaks when it is told to.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/tcp/byte_stream.h"
#include "base/units.h"
#include "wire/handshake.h"
#include "wire/message.h"

namespace far::backend {

// One session, any number of connections one after the other. Slots exist as soon as they are written.
class scripted_server {
 public:
  static constexpr std::size_t never_there = std::numeric_limits<std::size_t>::max();

  // Settings by the test.
  std::string token;
  std::string proven_token;  // it proves to know this one; empty: `token`
  std::uint16_t version = wire::newest_version;
  std::string refusal;  // of every hello
  wire::server_id identity{};
  bool lies_about_session = false;         // says that it is gone, without a proof
  std::size_t turn_away_at = never_there;  // at this address it is another server, which knows no sessions
  bool answers_hello = true;
  bool answers_requests = true;
  bool replies_backwards = false;  // of the requests that come in together
  std::uint32_t maximum_outstanding = 64;
  std::set<std::uint64_t> unreadable;             // slots; a request about one of them is refused as a whole
  std::map<wire::opcode, wire::status> verdicts;  // of control requests; ok where there is none
  struct call_result {
    std::vector<std::byte> payload;
    bool is_packed = false;
  };
  std::function<call_result(std::span<const std::byte> payload)> on_call;  // none: results are empty

  // Its records.
  std::vector<wire::hello> hellos;
  std::vector<wire::opcode> requests;
  std::vector<std::uint64_t> cookies;  // of the requests
  std::vector<wire::block_range> allocated;
  int sessions = 0;
  int turned_away = 0;

  void forget_session() { session_ = {}, bytes_.clear(); }
  void say(wire::opcode op, bool is_reply, std::uint64_t cookie, std::span<const std::byte> payload,
           wire::status result = wire::status::ok, bool is_packed = false) {
    std::array<std::byte, wire::header_bytes> head{};
    const auto bytes = static_cast<std::uint32_t>(payload.size());
    wire::encode({op, is_reply, result, bytes, cookie, wire::checksum(payload), is_packed}, head);
    out_.insert(out_.end(), head.begin(), head.end());
    out_.insert(out_.end(), payload.begin(), payload.end());
  }

  // A new connection to one of its addresses.
  void begin(std::size_t address) { in_.clear(), out_.clear(), address_ = address; }
  void take(std::span<const std::byte> bytes) {
    in_.insert(in_.end(), bytes.begin(), bytes.end());
    std::vector<std::byte> all;
    while (const std::optional<wire::header> head = complete_message()) {
      const std::vector<std::byte> payload(in_.begin() + wire::header_bytes,
                                           in_.begin() + wire::header_bytes + head->payload_bytes);
      in_.erase(in_.begin(), in_.begin() + wire::header_bytes + head->payload_bytes);
      out_.swap(reply_);
      out_.clear();
      handle(*head, payload);
      out_.swap(reply_);
      all.insert(replies_backwards ? all.begin() : all.end(), reply_.begin(), reply_.end());
    }
    out_.insert(out_.end(), all.begin(), all.end());
  }
  std::vector<std::byte>& out() { return out_; }
  std::byte byte_at(std::uint64_t address) { return bytes_[address]; }

 private:
  std::optional<wire::header> complete_message() const {
    if (in_.size() < wire::header_bytes) return std::nullopt;
    const auto head =
        wire::decode_header(std::span<const std::byte, wire::header_bytes>(in_.data(), wire::header_bytes));
    if (!head || in_.size() < wire::header_bytes + head->payload_bytes) return std::nullopt;
    return head;
  }

  void handle(const wire::header& head, const std::vector<std::byte>& payload) {
    std::array<std::byte, wire::maximum_handshake_bytes> reply{};
    const auto answer = [&](wire::opcode op, std::size_t bytes) { say(op, false, 0, {reply.data(), bytes}); };
    if (head.op == wire::opcode::hello) {
      hellos.push_back(*wire::decode_hello(payload));
      if (!answers_hello) return;
      if (!refusal.empty()) return answer(wire::opcode::refuse, wire::encode_refusal(refusal, reply));
      hello_ = payload;
      wire::challenge asked{.version = version, .token_wanted = !token.empty(), .identity = identity};
      wire::fill_random(asked.server);
      const std::size_t bytes = wire::encode(asked, reply);
      challenge_.assign(reply.begin(), reply.begin() + static_cast<std::ptrdiff_t>(bytes));
      return answer(wire::opcode::challenge, bytes);
    }
    if (head.op == wire::opcode::proof) {
      const wire::digest right = wire::prove(wire::side::client, token, hello_, challenge_);
      if (!token.empty() && std::memcmp(right.data(), payload.data(), right.size()) != 0) {
        return answer(wire::opcode::refuse, wire::encode_refusal("the token is not that of the tenant", reply));
      }
      const bool joins = hellos.back().join != wire::session_id{};
      if (joins && lies_about_session) {
        return answer(wire::opcode::refuse, wire::encode_refusal("unknown session: it has ended", reply));
      }
      const bool is_another = address_ == turn_away_at;
      if (joins && (is_another || hellos.back().join != session_)) {
        turned_away += is_another ? 1 : 0;
        wire::unknown_session gone{.reason = "unknown session: it has ended"};
        if (!token.empty()) gone.proof = wire::prove(wire::side::absent, token, hello_, challenge_);
        return answer(wire::opcode::unknown, wire::encode(gone, reply));
      }
      if (!joins) session_ = {}, session_[0] = static_cast<std::byte>(++sessions), bytes_.clear();
      wire::welcome hi{
          .session = session_, .quota_slots = 4096, .maximum_outstanding = maximum_outstanding, .lease_ms = 90'000};
      const std::string& known = proven_token.empty() ? token : proven_token;
      if (!known.empty()) hi.proof = wire::prove(wire::side::server, known, hello_, challenge_);
      return answer(wire::opcode::welcome, wire::encode(hi, reply));
    }
    requests.push_back(head.op);
    cookies.push_back(head.cookie);
    if (answers_requests) serve(head, payload);
  }

  void serve(const wire::header& head, const std::vector<std::byte>& payload) {
    if (wire::checksum(payload) != head.payload_checksum) {
      return say(head.op, true, head.cookie, {}, wire::status::bad_checksum);
    }
    wire::batch asked;
    std::vector<std::byte> answer;
    bool is_packed = false;
    const auto is_refused = [&] {
      const auto touches = [&](const wire::range& range) {
        const std::uint64_t last = range.slot + (range.offset_bytes + range.length_bytes - 1) / page_bytes;
        const auto first_bad = unreadable.lower_bound(range.slot);
        return first_bad != unreadable.end() && *first_bad <= last;
      };
      return std::ranges::any_of(asked.all(), touches);
    };
    if (head.op == wire::opcode::read && wire::decode_read(payload, &asked)) {
      if (is_refused()) return say(head.op, true, head.cookie, {}, wire::status::not_allocated);
      for (const wire::range& range : asked.all()) {
        const std::uint64_t first = range.slot * page_bytes + range.offset_bytes;
        for (std::uint64_t i = 0; i < range.length_bytes; ++i) answer.push_back(bytes_[first + i]);
      }
    } else if (head.op == wire::opcode::write && wire::decode_write(payload, &asked)) {
      if (is_refused()) return say(head.op, true, head.cookie, {}, wire::status::not_allocated);
      const std::byte* from = asked.bytes.data();
      for (const wire::range& range : asked.all()) {
        const std::uint64_t first = range.slot * page_bytes + range.offset_bytes;
        for (std::uint64_t i = 0; i < range.length_bytes; ++i) bytes_[first + i] = *from++;
      }
    } else if (head.op == wire::opcode::call && on_call) {
      call_result found = on_call(payload);
      answer = std::move(found.payload);
      is_packed = found.is_packed;
    } else if (head.op == wire::opcode::allocate) {
      allocated.push_back(wire::decode_block_range(
          std::span<const std::byte, wire::block_range_bytes>(payload.data(), wire::block_range_bytes)));
    }
    const auto verdict = verdicts.find(head.op);
    const wire::status outcome = verdict == verdicts.end() ? wire::status::ok : verdict->second;
    say(head.op, true, head.cookie, answer, outcome, is_packed);
  }

  wire::session_id session_{};
  std::map<std::uint64_t, std::byte> bytes_;
  std::size_t address_ = 0;
  std::vector<std::byte> in_;
  std::vector<std::byte> out_;
  std::vector<std::byte> reply_;
  std::vector<std::byte> hello_;
  std::vector<std::byte> challenge_;
};

class scripted_stream final : public byte_stream {
 public:
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

  // The events that befall the bytes, counted over all connections; each happens once.
  struct script {
    std::uint64_t cut_sent_at = never;
    std::uint64_t cut_received_at = never;
    std::uint64_t damage_sent_at = never;
    std::uint64_t damage_received_at = never;
    std::size_t bytes_a_call = 1 << 20;
    bool unreachable = false;
    bool stuck = false;  // sends and receives nothing, and does not break
    std::size_t addresses = 1;
    std::size_t reachable_address = scripted_server::never_there;  // though the others are unreachable
    std::vector<std::size_t> used_addresses;                       // of each connect()
    // The events so far.
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    int connects = 0;
    int closes = 0;
    int abandons = 0;
  };

  scripted_stream(scripted_server& server, script& plan) : server_(server), plan_(plan) {}

  [[nodiscard]] std::size_t address() const override { return address_; }
  void use_address(std::size_t number) override { next_address_ = number; }
  [[nodiscard]] std::size_t address_after(std::size_t number) const override { return (number + 1) % plan_.addresses; }
  [[nodiscard]] int connect() override {
    address_ = std::exchange(next_address_, (next_address_ + 1) % plan_.addresses);
    plan_.used_addresses.push_back(address_);
    if (plan_.unreachable && address_ != plan_.reachable_address) return ECONNREFUSED;
    ++plan_.connects;
    open_ = true;
    server_.begin(address_);
    return 0;
  }
  [[nodiscard]] int finish_connecting() override { return open_ ? 0 : ENOTCONN; }
  [[nodiscard]] std::ptrdiff_t try_send(std::span<const iovec> chunks) override {
    if (!open_) return -ENOTCONN;
    if (plan_.stuck) return 0;
    std::vector<std::byte> bytes;
    for (const iovec& chunk : chunks) {
      const auto* const from = static_cast<const std::byte*>(chunk.iov_base);
      bytes.insert(bytes.end(), from, from + chunk.iov_len);
    }
    bytes.resize(std::min({bytes.size(), plan_.bytes_a_call, left(plan_.cut_sent_at, plan_.sent)}));
    damage(bytes, plan_.sent, &plan_.damage_sent_at);
    plan_.sent += bytes.size();
    server_.take(bytes);
    return cut(plan_.sent, &plan_.cut_sent_at) ? -ECONNRESET : static_cast<std::ptrdiff_t>(bytes.size());
  }
  [[nodiscard]] std::ptrdiff_t try_receive(std::span<const iovec> into) override {
    if (!open_) return -ENOTCONN;
    if (plan_.stuck) return 0;
    std::vector<std::byte>& out = server_.out();
    std::vector<std::byte> bytes(
        out.begin(), out.begin() + static_cast<std::ptrdiff_t>(std::min(
                                       {out.size(), plan_.bytes_a_call, left(plan_.cut_received_at, plan_.received)})));
    damage(bytes, plan_.received, &plan_.damage_received_at);
    std::size_t done = 0;
    for (const iovec& chunk : into) {
      const std::size_t step = std::min(chunk.iov_len, bytes.size() - done);
      if (step > 0) std::memcpy(chunk.iov_base, bytes.data() + done, step);
      done += step;
    }
    out.erase(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(done));
    plan_.received += done;
    return cut(plan_.received, &plan_.cut_received_at) ? -ECONNRESET : static_cast<std::ptrdiff_t>(done);
  }
  void close() override {
    plan_.closes += open_;
    open_ = false;
  }
  void abandon() override {
    ++plan_.abandons;
    open_ = false;
  }
  [[nodiscard]] int descriptor() const override { return -1; }

 private:
  static std::size_t left(std::uint64_t at, std::uint64_t done) { return at < done ? never : at - done; }
  static bool cut(std::uint64_t done, std::uint64_t* at) {
    if (done != *at) return false;
    *at = never;
    return true;
  }
  static void damage(std::vector<std::byte>& bytes, std::uint64_t done, std::uint64_t* at) {
    if (*at < done || *at >= done + bytes.size()) return;
    bytes[*at - done] ^= std::byte{0x10};
    *at = never;
  }

  scripted_server& server_;
  script& plan_;
  std::size_t address_ = 0;
  std::size_t next_address_ = 0;
  bool open_ = false;
};

}  // namespace far::backend
