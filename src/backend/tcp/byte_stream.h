// The transport of a connection: a socket, a socket with TLS, or, in tests and the simulation, a stream that breaks on
// request.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "wire/handshake.h"

namespace far::backend {

// A stream to one server that can be connected, closed, and connected again. No call blocks. Not thread-safe.
class byte_stream {
 public:
  virtual ~byte_stream() = default;

  // If the server has several addresses: the number of the last one connected to, and the one that the next connect()
  // takes in place of the one after the last.
  [[nodiscard]] virtual std::size_t address() const { return 0; }
  virtual void use_address(std::size_t number) { static_cast<void>(number); }
  // The address behind this one, in turn; `number` itself if there is no other.
  [[nodiscard]] virtual std::size_t address_after(std::size_t number) const { return number; }

  // From the next connect() on, it goes to another server of the same kind: an address in digits, and the name that its
  // certificate may have in place of that. Ignored when it is not an address. For streams whose servers move.
  virtual void use_server(std::string_view host, std::uint16_t port, std::string_view name) {
    static_cast<void>(host), static_cast<void>(port), static_cast<void>(name);
  }

  // Identifies the encrypted connection to both of its ends; nothing: it is not encrypted. Requires: bytes of the peer
  // have been received.
  [[nodiscard]] virtual std::optional<wire::channel_binding> binding() const { return std::nullopt; }

  // Starts to connect. Returns 0, or the errno value of a failure that is known at once. Requires: closed.
  [[nodiscard]] virtual int connect() = 0;

  // 0: connected, bytes may be sent; EINPROGRESS: not yet; else why it failed.
  [[nodiscard]] virtual int finish_connecting() = 0;

  // Takes bytes from the front of the chunks. Returns how many; 0: there is no room now; a negative errno value: the
  // stream is broken. Without chunks it passes on bytes that it took earlier.
  [[nodiscard]] virtual std::ptrdiff_t try_send(std::span<const iovec> chunks) = 0;

  // Fills the front of the chunks. Returns how many bytes; 0: nothing has come; a negative errno value: the stream is
  // broken, -EPIPE: the server has closed it.
  [[nodiscard]] virtual std::ptrdiff_t try_receive(std::span<const iovec> into) = 0;

  // Whether bytes that try_send() took wait for room.
  [[nodiscard]] virtual bool has_unsent() const { return false; }

  // Ends the connection, if there is one.
  virtual void close() = 0;

  // In the child of a fork: forgets the connection without a sign to the server, which goes on with the parent.
  virtual void abandon() = 0;

  // Readable (for poll(2)) when there is something to receive, or room again for unsent bytes. Stays the same until
  // abandon(), however often the stream connects. -1: there is none, and never will be.
  [[nodiscard]] virtual int descriptor() const = 0;

  // From now on descriptor() is also readable when that of another stream is.
  virtual void watch_also(int descriptor) { static_cast<void>(descriptor); }

  // Lets up to `timeout_ns` pass, unless something may have arrived. For streams without a descriptor to sleep on, and
  // for who waits for this one only.
  virtual void wait(std::uint64_t timeout_ns) { static_cast<void>(timeout_ns); }

  // Details of the last failure for a person, beyond its errno value; empty: none.
  [[nodiscard]] virtual const char* explanation() const { return ""; }
};

}  // namespace far::backend
