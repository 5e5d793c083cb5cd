// A link over TCP, with a session of its own on the server. Blocks its thread; connects again by itself.
//
// After a few calls the link has a second connection, which the server hands over to the device's process: an operation
// goes there, and no thread of the server has to be woken for it. All else, and a call whose answer does not come by
// that connection, goes by the first one. Without TLS only, because its keys are the server's.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/tcp/byte_stream.h"
#include "backend/tcp/tcp_backend.h"
#include "backend/tcp/tcp_uri.h"
#include "base/result.h"
#include "device/device_link.h"
#include "device/device_times.h"
#include "wire/client_handshake.h"

namespace far::device_parts {

class server_link final : public device_link {
 public:
  // Connects at the first call. Errors: the server's name cannot be resolved.
  [[nodiscard]] static result<std::unique_ptr<device_link>> create(const backend::tcp_endpoint& server,
                                                                   const backend::tcp_trust& trust);
  // Over this stream, which may be no socket, and no other.
  [[nodiscard]] static std::unique_ptr<device_link> assemble(std::string peer,
                                                             std::unique_ptr<backend::byte_stream> stream,
                                                             const backend::tcp_trust& trust,
                                                             const device_times& times);
  // Ends the session, if the server can be told without waiting.
  ~server_link() override;
  server_link(const server_link&) = delete;
  server_link& operator=(const server_link&) = delete;

  [[nodiscard]] link_answer ask(const wire::device_request& asked, const patience& how) override;
  [[nodiscard]] health keep_alive() override;
  [[nodiscard]] bool leave(const patience& how) override;
  [[nodiscard]] wire::server_id identity() const override { return handshake_.identity(); }
  [[nodiscard]] const std::string& peer() const override { return peer_; }

 private:
  enum class outcome : std::uint8_t { done, broken, forgotten, refused };
  using stream_opener = std::function<result<std::unique_ptr<backend::byte_stream>>()>;

  server_link(std::string peer, std::unique_ptr<backend::byte_stream> stream, backend::tcp_trust trust,
              const device_times& times);
  [[nodiscard]] std::uint64_t now() const { return times_.clock->now_ns(); }
  // Whether nothing is waited for any longer.
  [[nodiscard]] bool is_up(std::uint64_t until_ns) const;
  void sleep(std::uint64_t ns) const;
  // Over the connection to the device's process, if there is one, or may be now. Nothing: it has no answer.
  [[nodiscard]] std::optional<link_answer> ask_directly(const wire::device_request& asked,
                                                        std::span<const std::byte> payload, const patience& how);
  [[nodiscard]] std::unique_ptr<server_link> open_direct(const wire::device_request& asked, const patience& how) const;
  [[nodiscard]] outcome connect(std::uint64_t until_ns);
  [[nodiscard]] outcome shake_hands(std::uint64_t until_ns);
  // A message there, and the one that answers it.
  [[nodiscard]] outcome exchange(wire::opcode op, std::span<const std::byte> payload, std::uint64_t until_ns,
                                 wire::header* answered);
  [[nodiscard]] bool send_all(std::span<const std::byte> bytes, std::uint64_t until_ns);
  [[nodiscard]] bool receive_ahead();
  // The next message: its payload stands in payload_ then.
  [[nodiscard]] std::optional<wire::header> receive(std::uint64_t until_ns);
  [[nodiscard]] bool receive_all(std::span<std::byte> into, std::uint64_t until_ns);
  void pause(std::uint64_t until_ns) const;
  // Nothing is between the stream and its socket.
  [[nodiscard]] bool is_socket() const { return !trust_.tls && stream_->descriptor() >= 0; }
  void disconnect();
  outcome broken(const std::string& why);

  const std::string peer_;
  const std::unique_ptr<backend::byte_stream> stream_;
  const backend::tcp_trust trust_;
  const device_times times_;
  stream_opener open_more_;              // empty: there is one connection only
  std::unique_ptr<server_link> direct_;  // to the device's process; it only exchanges messages
  unsigned calls_ = 0;                   // without such a connection, since the last attempt to get one
  unsigned calls_before_direct_;
  const std::atomic<bool>* given_up_ = nullptr;  // as the last question has it
  bool is_direct_ = false;                       // it is such a connection itself, and ends without its session
  wire::client_handshake handshake_;
  wire::session_id session_{};
  std::uint16_t session_version_ = wire::oldest_version;
  std::size_t session_address_ = 0;  // of those that the server's name has: where it was opened
  std::uint32_t channel_ = 0;
  bool is_connected_ = false;
  std::uint64_t heard_at_ns_ = 0;
  std::uint64_t cookie_ = 0;
  std::vector<std::byte> message_;
  std::vector<std::byte> payload_;
  std::vector<std::byte> ahead_;  // received with what came before it
  std::size_t ahead_taken_ = 0;   // of these
  std::string why_;
};

}  // namespace far::device_parts
