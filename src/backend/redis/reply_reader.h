// Reads the replies of Redis, by the parser of hiredis.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

struct redisReader;

namespace far::backend {

struct redis_reply {
  enum class kind : std::uint8_t { text, number, nothing, status, failure };
  kind is = kind::nothing;
  std::string_view text;  // of a text, a status and a failure
  std::int64_t number = 0;
};

class reply_sink {
 public:
  virtual ~reply_sink() = default;
  // The text is valid during the call. Does not call the reader.
  virtual void take(const redis_reply& reply) = 0;
};

// Not thread-safe. Its buffer grows to the largest reply, and stays: in the long run nothing is allocated.
class reply_reader {
 public:
  enum class outcome : std::uint8_t { taken, incomplete, broken };

  reply_reader();
  ~reply_reader();
  reply_reader(const reply_reader&) = delete;
  reply_reader& operator=(const reply_reader&) = delete;

  // Takes bytes that came in. Small pieces cost least, because unread bytes are moved after a reply. False: no memory,
  // broken before, or the reply is longer than any that is asked for.
  [[nodiscard]] bool feed(std::span<const std::byte> bytes);

  // Hands the next reply to the sink. broken: the bytes violate the protocol, or are an array, which is never
  // requested.
  [[nodiscard]] outcome next(reply_sink& sink);

  // Forgets received bytes, because there is a new connection.
  void reset();

  // In the child of a fork: another thread of the parent may have been inside the parser. Its state is left alone.
  void abandon();

 private:
  redisReader* reader_;
};

}  // namespace far::backend
