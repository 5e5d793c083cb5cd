// A memory server's side of connections, driven by a fuzz target: a small store, and connections without sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fuzz/fuzz_target.h"
#include "server/protocol.h"
#include "server/store.h"
#include "wire/message.h"

namespace far::fuzz {

// A whole message, with its checks.
[[nodiscard]] byte_string message_of(wire::header head, std::span<const std::byte> payload);

// A store of a few blocks, that costs little to make and to empty.
class small_store {
 public:
  static constexpr std::uint64_t blocks = 6;

  small_store();
  [[nodiscard]] server::store& lent() { return *store_; }
  [[nodiscard]] const server::protocol_settings& settings() const { return settings_; }
  [[nodiscard]] server::loop_counters& counters() { return counters_; }

  // A quiescent state of the only loop, and what follows from it.
  void pass_quiet_point();

  std::uint64_t now_ns = 1;

 private:
  std::unique_ptr<server::store> store_;
  server::token_book tokens_;
  server::protocol_settings settings_;
  server::loop_counters counters_;
  std::optional<server::quiescent_states::reader> reader_;
};

// One connection, and what its client sees. It checks that every message of the server is well-formed, and, as long as
// the client was, that it is the answer to a request.
class connection {
 public:
  explicit connection(small_store& at) : at_(at), served_(at.settings(), at.counters(), at.now_ns) {}
  ~connection();
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  // The handshake of a client that does everything right.
  void shake_hands(const wire::hello& said);

  // Sends a request; `ok_bytes`: how long the payload of its reply must be when it is ok.
  void request(wire::opcode op, std::span<const std::byte> payload, std::size_t ok_bytes);
  // Sends what a client should not send.
  void misbehave(std::span<const std::byte> bytes);

  // How many bytes the server receives at once; more while many wait.
  void set_cut(std::size_t bytes) { cut_ = bytes; }
  void read_replies(bool wanted) { reads_ = wanted; }

  // Moves bytes until nobody has anything to do; 0 ns pass.
  void pump();

  [[nodiscard]] server::protocol& served() { return served_; }
  [[nodiscard]] bool is_over() const { return served_.is_over(); }
  // Well-formed so far, all its requests have been answered.
  [[nodiscard]] bool is_settled() const { return outstanding_.empty(); }
  [[nodiscard]] const byte_string& last_payload() const { return last_payload_; }
  [[nodiscard]] const std::optional<wire::welcome>& welcome() const { return welcome_; }

 private:
  struct expected {
    wire::opcode op = wire::opcode::ping;
    std::size_t ok_bytes = 0;
  };

  [[nodiscard]] bool deliver();
  [[nodiscard]] bool collect();
  void check_message(const wire::header& head, std::span<const std::byte> payload);
  void check_reply(const wire::header& head, std::size_t payload_bytes);

  small_store& at_;
  server::protocol served_;
  byte_string to_server_;
  std::size_t delivered_ = 0;
  byte_string from_server_;
  std::size_t cut_ = 1 << 20;
  bool reads_ = true;
  bool well_behaved_ = true;
  std::uint64_t next_cookie_ = 1;
  std::map<std::uint64_t, expected> outstanding_;
  byte_string last_payload_;
  std::optional<wire::welcome> welcome_;
};

}  // namespace far::fuzz
