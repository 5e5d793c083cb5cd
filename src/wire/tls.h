// TLS 1.3 through OpenSSL, between memory buffers: the caller moves the bytes, so that it fits an event loop on
// io_uring as well as a socket that is polled. No allocation once the handshake is done.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "base/spin_lock.h"

namespace far::wire {

// The certificates of one side, and those that it trusts. Shared by all its connections; thread-safe once made. Its
// files may be replaced: refresh() reads them again, for the connections that begin afterwards.
class tls_context {
 public:
  // Requires: certificate chain and private key are PEM files; the key's is 0600 (or stricter) and not encrypted.
  [[nodiscard]] static result<std::unique_ptr<tls_context>> for_server(const std::string& certificate_file,
                                                                       const std::string& key_file);
  // `authority_file`: PEM certificates that the server's must be signed by; empty: the system's.
  [[nodiscard]] static result<std::unique_ptr<tls_context>> for_client(const std::string& authority_file);
  ~tls_context();

  // Reads its files again if one of them has changed, or they could not be used then; false: neither. An error: they
  // cannot be used, and connections go on to begin with what was read before.
  enum class telling : std::uint8_t { once_a_change, every_time };
  [[nodiscard]] result<bool> refresh(telling errors = telling::once_a_change);

  // In the child of a fork, whose parent's threads are not there to give a lock back.
  void unlock_after_fork() { lock_.open_in_child(); }

 private:
  friend class tls_stream;
  struct sources;
  tls_context(std::unique_ptr<sources> read_from, void* handle);
  [[nodiscard]] static result<std::unique_ptr<tls_context>> create(std::unique_ptr<sources> read_from);
  // The caller's to free: SSL_CTX_free().
  [[nodiscard]] void* share() const;
  tls_context(const tls_context&) = delete;
  tls_context& operator=(const tls_context&) = delete;
  const std::unique_ptr<sources> sources_;
  const bool is_client_;
  mutable spin_lock lock_;
  void* handle_ FAR_GUARDED_BY(lock_);  // SSL_CTX
};

// One connection. Not thread-safe.
class tls_stream {
 public:
  // Bytes that feed() and take() hold at most.
  static constexpr std::size_t buffer_bytes = std::size_t{1} << 20;

  // `server_name`: for a client, the host name or address that the certificate must name among its alternative names;
  // for a server, empty. A client has bytes to take at once. The context may be destroyed before the stream.
  [[nodiscard]] static result<std::unique_ptr<tls_stream>> create(tls_context& context, const std::string& server_name);
  ~tls_stream();

  // Takes bytes that came from the peer. False, and nothing is taken, when bytes that were fed before and not read()
  // yet leave no room: at least the last 17 KiB of buffer_bytes may lie there until their record is complete.
  [[nodiscard]] bool feed(std::span<const std::byte> ciphertext);

  // Moves the handshake on and returns decrypted bytes in `into`: how many; 0: none yet. An error ends the connection,
  // after the pending bytes have been taken (they tell the peer why). Code 0 of an error: the peer is not to be
  // trusted; ECONNRESET: it has closed the connection in good order; EPROTO: anything else.
  [[nodiscard]] result<std::size_t> read(std::span<std::byte> into);

  // Encrypts; returns how many bytes were taken: 0 while the handshake is not done, fewer than all when take() has
  // fallen behind.
  [[nodiscard]] result<std::size_t> write(std::span<const std::byte> plaintext);

  // Takes bytes that must go to the peer.
  [[nodiscard]] std::size_t take(std::span<std::byte> into);
  [[nodiscard]] std::size_t pending() const;  // how many there are to take

  [[nodiscard]] bool established() const;

  // Identifies the connection: the same at both ends, and at no others' (RFC 9266). Requires: established().
  [[nodiscard]] std::array<std::byte, 32> binding() const;

 private:
  struct parts;
  explicit tls_stream(std::unique_ptr<parts> all);
  tls_stream(const tls_stream&) = delete;
  tls_stream& operator=(const tls_stream&) = delete;
  std::unique_ptr<parts> parts_;
};

}  // namespace far::wire
