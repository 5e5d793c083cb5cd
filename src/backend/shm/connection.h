// One connection of a client to the server behind `shm:NAME`: handshake over the socket, then requests and replies
// through the rings.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "wire/client_handshake.h"
#include "wire/ring_file.h"

namespace far::backend::shm {

struct connection_options {
  std::string name;  // as the user wrote it: for messages, and where to look for the socket
  wire::credentials shown;
  wire::session_id join{};
};

// One thread at a time; alive(), revoked() from any.
class connection {
 public:
  enum class state : std::uint8_t { handshaking, ready, ended };

  // Finds the server's socket and sends the hello. Does not block. Errors: no server listens there, or it is somebody
  // else's; what to do.
  [[nodiscard]] static result<std::unique_ptr<connection>> start(const connection_options& chosen);
  // The server sees the end when the last process that has the socket closes it.
  ~connection();
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  // Continues the handshake as far as the server has answered; returns its state. An error ends the connection.
  [[nodiscard]] result<state> step();
  // Until the connection is ready or the time is over. For set-up only: it sleeps.
  [[nodiscard]] result<void> finish(std::uint64_t timeout_ns);

  // All below require: ready.

  [[nodiscard]] const wire::welcome& welcome() const { return handshake_.welcome(); }
  // The session's memory file; the caller's from now on.
  [[nodiscard]] int take_memory();
  [[nodiscard]] std::byte* area() { return file_->area; }

  // How many requests can be sent now.
  [[nodiscard]] std::uint32_t room();
  // Puts a request; it goes out with flush(). Requires: room.
  void put(const wire::ring_request& added);
  void flush();
  // The next reply, if there is one.
  [[nodiscard]] bool take(wire::ring_reply& into);
  // Sleeps until there may be a reply, the server is gone, or the time is over.
  void wait(std::uint64_t timeout_ns);
  // Ends the connection. Its memory stays mapped, so revoked() may still be asked.
  void hang_up();
  // The same for a server that breaks the protocol; says so.
  void reject(const char* why);
  // Looks at the socket; after the server's end, alive() is false. Cheap enough for every tend(), not for every
  // transfer.
  void check();

  [[nodiscard]] bool alive() const { return alive_.load(std::memory_order_relaxed); }
  // The server has taken, or is about to take, the session's blocks away: their bytes are lost.
  [[nodiscard]] bool revoked() const { return file_->revoked.value.load(std::memory_order_acquire) != 0; }
  [[nodiscard]] int socket() const { return socket_; }
  // The path of the server's socket.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  explicit connection(const connection_options& chosen) : chosen_(chosen), handshake_(chosen_.shown) {}
  [[nodiscard]] result<void> connect();
  [[nodiscard]] result<void> check_peer();
  [[nodiscard]] result<void> send_handshake();
  [[nodiscard]] result<void> answer(std::span<const std::byte> message, std::span<const int> descriptors);
  [[nodiscard]] result<void> on_welcome(std::span<const int> descriptors);
  [[nodiscard]] result<void> map_rings(int rings);
  [[nodiscard]] error failure(const std::string& action, int code) const;
  void end();

  const connection_options chosen_;
  std::string path_;
  int socket_ = -1;
  int memory_ = -1;
  state state_ = state::handshaking;
  std::atomic<bool> alive_{true};
  wire::client_handshake handshake_;
  wire::ring_file* file_ = nullptr;
  wire::ring_producer requests_;
  wire::ring_consumer replies_;
};

}  // namespace far::backend::shm
