// The beginning of a connection to a Redis server: authentication, facts about the server, and the end of its
// predecessor.
//
// The connection that carries writes ends its predecessor in the server (CLIENT KILL) before it sends anything, so that
// a write that was given up cannot be stored later.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "backend/redis/redis_settings.h"
#include "backend/redis/reply_reader.h"

namespace far::backend {

// Belongs to the connection's lock.
class redis_greeting {
 public:
  enum class outcome : std::uint8_t {
    more,
    facts,        // the reply says what the server is
    unavailable,  // it says that another attempt may succeed
    refused,      // explanation() says why
  };

  // On a new connection. `key`: one in the hash slot of the session; not needed outside a cluster.
  void begin(const redis_settings& settings, std::string_view key = {});

  [[nodiscard]] std::span<const std::byte> to_send() const { return std::as_bytes(std::span(text_)); }
  void sent(std::size_t bytes) { text_.erase(0, bytes); }

  // The reply to the next step. Requires: not is_done().
  [[nodiscard]] outcome take(const redis_reply& reply);
  [[nodiscard]] bool is_done() const { return steps_done_ == step_count_; }
  // Whether the next reply describes the cluster.
  [[nodiscard]] bool awaits_nodes() const { return !is_done() && steps_[steps_done_] == step::nodes; }
  [[nodiscard]] const char* explanation() const { return explanation_.data(); }

  // The connection is ready: if it `writes`, its successor ends it.
  void finish(bool writes) { predecessor_number_ = writes ? own_number_ : 0; }
  // The server's process has ended, and the predecessor with it; or it is our parent's.
  void forget_predecessor() { predecessor_number_ = 0; }
  // This connection takes over from another one to the same process.
  void succeed(const redis_greeting& other) { predecessor_number_ = other.predecessor_number_; }

  // The names of our scripts in the server.
  [[nodiscard]] const char* write_script() const { return write_script_.data(); }
  [[nodiscard]] const char* make_script() const { return make_script_.data(); }

 private:
  enum class step : std::uint8_t {
    authenticate,
    select,
    nodes,
    facts,
    hash_slot,
    number,
    write_script,
    make_script,
    end_other
  };
  using script_name = std::array<char, 41>;

  void add_step(step added, std::initializer_list<std::string_view> arguments);
  void end_predecessor();
  static void keep_name(const redis_reply& reply, script_name& into);

  std::string text_;  // still to be sent
  std::array<step, 10> steps_{};
  std::size_t step_count_ = 0;
  std::size_t steps_done_ = 0;
  std::uint64_t own_number_ = 0;          // the server's number of this connection
  std::uint64_t predecessor_number_ = 0;  // of the one that may have left writes behind; 0: none
  script_name write_script_{};
  script_name make_script_{};
  std::array<char, 400> explanation_{};
};

}  // namespace far::backend
