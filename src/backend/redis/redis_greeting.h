// The beginning of a connection to a Redis server: authentication, facts about the server, and the end of its
// predecessor.
//
// The connection that carries writes ends its predecessor in the server (CLIENT KILL) before it sends anything, so that
// a write that was given up cannot be stored later.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "backend/redis/redis_settings.h"
#include "backend/redis/reply_reader.h"
#include "backend/redis/server_facts.h"

namespace far::backend {

// For each process of a server, its number of the last connection that carried our writes. Such a connection may have
// left one behind there for as long as the process lives: in a cluster our strings go to another process, and may come
// back.
class last_writers {
 public:
  void note(const redis_run_id& process, std::uint64_t number) {
    entry* found = std::ranges::find(entries_, process, &entry::process);
    if (found == entries_.end()) found = &entries_[next_++ % entries_.size()];
    *found = {process, number};
  }
  // 0: there is none.
  [[nodiscard]] std::uint64_t number_in(const redis_run_id& process) const {
    const auto* const found = std::ranges::find(entries_, process, &entry::process);
    return found == entries_.end() ? 0 : found->number;
  }

 private:
  struct entry {
    redis_run_id process;
    std::uint64_t number = 0;
  };
  std::array<entry, 64> entries_;
  std::size_t next_ = 0;  // to be replaced when all are taken: the oldest
};

// Belongs to the connection's lock.
class redis_greeting {
 public:
  redis_greeting() = default;
  redis_greeting(const redis_greeting&) = delete;
  redis_greeting& operator=(const redis_greeting&) = delete;

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

  // The connection leads to this process. Called when the facts have come.
  void reached(const redis_run_id& process) { process_ = process; }
  // The connection is ready: if it `writes`, its successor at the same process ends it.
  void finish(bool writes) {
    if (writes) writers_->note(process_, own_number_);
  }
  // The two connections write by turns: each ends the other one's, too. Requires: `other` is there while this is used.
  void write_by_turns_with(redis_greeting& other) { writers_ = other.writers_; }

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
  redis_run_id process_;
  std::uint64_t own_number_ = 0;  // the server's number of this connection
  last_writers own_writers_;
  last_writers* writers_ = &own_writers_;
  script_name write_script_{};
  script_name make_script_{};
  std::array<char, 400> explanation_{};
};

}  // namespace far::backend
