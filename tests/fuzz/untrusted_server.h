// The server of a client under a fuzzer. It gives right answers, wrong ones, or none, as the fuzz target wants. It also
// checks that the client says nothing but well-formed messages.
//
// It stores nothing. The contents of a slot follow from its place (put_content), and every write must bring just these.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "backend/tcp/byte_stream.h"
#include "base/page_reduction.h"
#include "fuzz/fuzz_target.h"
#include "wire/handshake.h"
#include "wire/message.h"

namespace far::fuzz {

// The content of all slots, one after the other, from `position` on.
void put_content(std::uint64_t position, std::span<std::byte> to);
[[nodiscard]] bool is_content(std::uint64_t position, std::span<const std::byte> bytes);

// A question about a slot, and its answer.
[[nodiscard]] reduction question();
void put_answer(std::uint64_t slot, std::span<std::byte> to);

enum class welcome_kind : std::uint8_t { good, foreign_session, unknown_session, refused, bad_version, wants_token };
inline constexpr std::size_t welcome_kinds = 6;

enum class fault : std::uint8_t {
  none,
  failed,         // with a status
  damaged,        // a payload that is not that of its checksum
  short_payload,  // a byte less
  long_payload,   // a byte more
  another_opcode,
  another_cookie,
  no_reply,  // the request comes back
  twice,
  // Of calls, whose results are packed then; of others, as none.
  packed,        // rightly
  packed_short,  // a byte less
  packed_long,   // a byte more
  packed_in_part,
  packed_damaged,  // with the checksum of what is sent
};
inline constexpr std::size_t faults = 14;

class untrusted_server final : public backend::byte_stream {
 public:
  // The client's side.
  [[nodiscard]] int connect() override;
  [[nodiscard]] int finish_connecting() override;
  [[nodiscard]] std::ptrdiff_t try_send(std::span<const iovec> chunks) override;
  [[nodiscard]] std::ptrdiff_t try_receive(std::span<const iovec> into) override;
  void close() override;
  void abandon() override { close(); }
  [[nodiscard]] int descriptor() const override { return -1; }

  // The fuzz target's.
  void set_connecting(int code) { connecting_ = code; }
  void set_welcome(welcome_kind kind) { welcome_ = kind; }
  void set_outstanding(std::uint32_t most) { maximum_outstanding_ = most; }
  // How many bytes a call of the client moves at most; 0: none, in that direction.
  void set_cuts(std::size_t to_server, std::size_t to_client);
  void hang_up() { hung_up_ = true; }
  // Answers one of the requests that wait, if there is one. `status`: of a failed one.
  void answer(std::size_t index, fault how, wire::status status);
  void answer_all();
  // Everything as it should be from now on.
  void heal();
  // Says anything at all.
  void say(std::span<const std::byte> bytes);

 private:
  struct request {
    wire::header head;
    byte_string payload;
  };

  void take_messages();
  void on_hello(std::span<const std::byte> payload);
  void on_proof(std::span<const std::byte> payload);
  void on_request(const wire::header& head, std::span<const std::byte> payload);
  [[nodiscard]] byte_string right_payload(const request& asked) const;
  [[nodiscard]] static byte_string right_result(std::span<const std::byte> call);
  [[nodiscard]] static byte_string packed_result(byte_string result, fault how);
  void say(wire::header head, std::span<const std::byte> payload);

  bool open_ = false;
  bool connected_ = false;
  bool hung_up_ = false;
  bool welcomed_ = false;
  int connecting_ = 0;
  welcome_kind welcome_ = welcome_kind::good;
  std::uint32_t maximum_outstanding_ = 64;
  std::size_t cut_to_server_ = std::size_t{1} << 20;
  std::size_t cut_to_client_ = std::size_t{1} << 20;
  wire::session_id session_{std::byte{1}};
  wire::session_id joining_{};
  byte_string heard_;
  byte_string said_;
  std::size_t taken_ = 0;  // of said_
  std::deque<request> waiting_;
};

}  // namespace far::fuzz
