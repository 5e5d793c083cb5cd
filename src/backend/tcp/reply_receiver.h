// The bytes that come in from a memory server: small and packed replies into a buffer of our own, the bytes of large
// ones straight into the callers'.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/tcp/request_messages.h"
#include "wire/packing.h"

namespace far::backend {

// Belongs to the connection's lock.
class reply_receiver {
 public:
  explicit reply_receiver(std::size_t buffer_bytes);
  ~reply_receiver();
  reply_receiver(const reply_receiver&) = delete;
  reply_receiver& operator=(const reply_receiver&) = delete;

  // The buffer, for messages of a handshake: room for the next bytes, and received bytes that have not been taken.
  [[nodiscard]] std::span<std::byte> space() const { return {received_ + end_, buffer_bytes_ - end_}; }
  void add(std::size_t bytes) { end_ += bytes; }
  [[nodiscard]] std::span<const std::byte> filled() const { return {received_ + begin_, end_ - begin_}; }
  void take(std::size_t bytes) { begin_ += bytes; }

  // Where the next bytes go: the rest of a large reply into the callers' buffers, what follows it into our own.
  // `direct_bytes`: the size of the first part. Returns how many chunks there are.
  [[nodiscard]] std::size_t place(std::span<iovec> chunks, std::size_t* direct_bytes) const;
  // `bytes` have come there. `direct_bytes`: as place() has returned it.
  void note_received(std::size_t bytes, std::size_t direct_bytes);

  // Ends the requests whose replies have come. Returns false when the server broke the protocol, or a reply is damaged.
  [[nodiscard]] bool parse(request_messages& requests, transfer_queue& pending, std::uint32_t epoch,
                           std::uint64_t now_ns, const completion_sink* sink);

  // The connection is gone, and with it the received part of a reply.
  void reset();

  // `is_ready`: of the connection.
  void validate(bool is_ready) const;

 private:
  [[nodiscard]] bool take_header(request_messages& requests, transfer_queue& pending, std::uint32_t epoch,
                                 std::uint64_t now_ns, const completion_sink* sink);
  void skip_in_reply(std::size_t bytes);
  void copy_to_reply();
  [[nodiscard]] bool is_reply_sound() const;
  [[nodiscard]] bool unpack_reply();

  const std::size_t buffer_bytes_;
  std::byte* const received_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;

  // The read whose reply is coming in, and the place of its next byte.
  message* reply_ = nullptr;
  std::uint64_t reply_checksum_ = 0;
  std::size_t reply_part_ = 0;
  std::size_t reply_part_bytes_ = 0;
  std::size_t reply_left_bytes_ = 0;    // 0 of a packed one
  std::size_t reply_packed_bytes_ = 0;  // if it is packed: it is unpacked when all of it has come
  wire::unpacker unpacker_;
};

}  // namespace far::backend
