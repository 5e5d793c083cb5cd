// One connection to a Redis server: it connects, says who it is, moves transfers as pipelined commands, and begins
// again when it breaks.
//
//                 first advance()          connected              all replies are in, what it may have
//          idle ------------------> connecting ----> greeting --- left behind has been ended -------> ready
//                                    ^     |            |                                               |
//                  backoff is over   |     | failure    | refused, failure,   | the server is gone, silent beyond
//                  (1 ms, doubled    |     | or silence | or silence          | the deadline, or not what it was
//                  up to 1 s)        |     v            v                     v                         |
//                                    +-- broken <-------+-----------------------------------------------+
//
// Commands outlive the connection that carried them: those without a reply are sent again, in the same order, on the
// next one. A command whose deadline passes ends with ETIMEDOUT, and the connection breaks with it. The connection that
// carries writes then ends its predecessor in the server (CLIENT KILL) before it sends anything, so that a write that
// was given up cannot be stored later.
//
// A string of ours is made at its full length, by a script, and written to by another one only while it exists. So a
// string is either as we left it or absent, and a read or a write of an absent one means that somebody else has deleted
// it (FLUSHALL), or that its lease has run out: everything of that epoch ends with ESTALE.
#pragma once

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/redis/command_ring.h"
#include "backend/redis/redis_session.h"
#include "backend/redis/reply_reader.h"
#include "backend/redis/server_facts.h"
#include "backend/tcp/byte_stream.h"
#include "backend/tcp/connection.h"
#include "backend/tcp/transfer_connection.h"
#include "platform/clock.h"

namespace far::backend {

struct redis_settings {
  std::string peer;      // for messages: "redis://cache1:6379"
  std::string user;      // empty: the default user
  std::string password;  // empty: none is shown
  std::uint64_t database = 0;
  std::uint64_t timeout_ns = 0;
  std::uint64_t lease_ns = 0;
  bool writes = false;  // it carries writes, makes and deletes strings, renews leases, and opens the session
};

class redis_connection final : public transfer_connection, private reply_sink {
 public:
  enum class phase : std::uint8_t { idle, connecting, greeting, ready, broken };

  // Requires: the references outlive the connection.
  redis_connection(redis_settings chosen, std::unique_ptr<byte_stream> stream, redis_session& session,
                   const platform::clock& time);
  ~redis_connection() override;
  redis_connection(const redis_connection&) = delete;
  redis_connection& operator=(const redis_connection&) = delete;

  // The lock is held around every call below that does not say otherwise.
  void enqueue(transfer& added) override FAR_REQUIRES(lock);
  void push(const completion_sink* sink) override FAR_REQUIRES(lock);
  [[nodiscard]] bool push_soon(const completion_sink* sink) override FAR_REQUIRES(lock);
  std::uint64_t advance(const completion_sink* sink) override FAR_REQUIRES(lock);

  // Whom to ask for blocks to make and to delete from now on. Requires: it carries writes.
  void set_control(control_source* control) FAR_REQUIRES(lock) { control_ = control; }

  // From now on leases last no longer than this. Returns whether all strings have been told, as far as it can be done.
  [[nodiscard]] bool shorten_leases(std::uint64_t lease_ns) FAR_REQUIRES(lock);

  // Deletes every string of the session, for up to `patience_ns`; blocks. The connection is of no use afterwards. What
  // cannot be deleted is left to its lease.
  void end_session(std::uint64_t patience_ns) FAR_REQUIRES(lock);

  // In the child of a fork: a new connection, that reads only, and renews leases if this one does: the parent may end
  // before its child.
  void restart_in_child();

  [[nodiscard]] phase now() const FAR_REQUIRES(lock) { return phase_; }
  // Of the last attempt that failed.
  [[nodiscard]] int failure_code() const FAR_REQUIRES(lock) { return failure_code_; }
  [[nodiscard]] const char* explanation() const FAR_REQUIRES(lock) { return explanation_.data(); }
  [[nodiscard]] bool refused() const FAR_REQUIRES(lock) { return refused_; }
  // How many attempts failed in a row.
  [[nodiscard]] unsigned failures() const FAR_REQUIRES(lock) { return failures_; }
  // Since when the server has not been reached; 0: it has. May be called without the lock.
  [[nodiscard]] std::uint64_t away_since_ns() const { return away_since_ns_.load(std::memory_order_relaxed); }
  [[nodiscard]] int descriptor() const override { return stream_->descriptor(); }
  void wait(std::uint64_t timeout_ns) override { stream_->wait(timeout_ns); }

 private:
  static constexpr std::size_t receive_buffer_bytes = std::size_t{128} << 10;
  static constexpr std::size_t chunks_per_call = 192;
  static constexpr std::uint64_t longest_silence_ns = 10'000'000'000;

  // A task of many commands, of which a few are under way at a time: one for each string from `next` to `end`.
  struct string_task {
    bool active = false;
    std::uint64_t next = 0;
    std::uint64_t end = 0;
    unsigned outstanding = 0;
    [[nodiscard]] bool is_done() const { return active && next == end && outstanding == 0; }
  };

  [[nodiscard]] std::uint64_t ping_after_ns() const { return std::min(settings_.timeout_ns / 2, longest_silence_ns); }
  void take(const redis_reply& reply) override;

  // redis_connection.cc
  void start_connecting(std::uint64_t now_ns) FAR_REQUIRES(lock);
  void go_on_connecting() FAR_REQUIRES(lock);
  void lose_session(const char* why, const completion_sink* sink) FAR_REQUIRES(lock);
  void enter_epoch(const completion_sink* sink) FAR_REQUIRES(lock);
  void break_off(int code, const char* why) FAR_REQUIRES(lock);
  void refuse(const char* why) FAR_REQUIRES(lock);
  void expire(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock);
  [[nodiscard]] std::uint64_t next_call_ns(std::uint64_t now_ns) const FAR_REQUIRES(lock);

  // redis_greeting.cc
  enum class step : std::uint8_t { authenticate, select, facts, number, write_script, make_script, end_other };
  void begin_greeting() FAR_REQUIRES(lock);
  void add_step(step added, std::initializer_list<std::string_view> arguments) FAR_REQUIRES(lock);
  void greet(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock);
  [[nodiscard]] std::ptrdiff_t send_greeting() FAR_REQUIRES(lock);
  void take_step(const completion_sink* sink) FAR_REQUIRES(lock);
  void take_facts(const completion_sink* sink) FAR_REQUIRES(lock);
  void end_predecessor() FAR_REQUIRES(lock);
  void become_ready(std::uint64_t now_ns) FAR_REQUIRES(lock);

  // redis_commands.cc
  void build(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock);
  void build_transfers(const completion_sink* sink) FAR_REQUIRES(lock);
  void build_part(transfer& front) FAR_REQUIRES(lock);
  [[nodiscard]] std::string_view key_of(std::uint64_t string) FAR_REQUIRES(lock);
  [[nodiscard]] command& add(command::kind is, std::uint64_t deadline_ns) FAR_REQUIRES(lock);
  void pop_failed(const completion_sink* sink) FAR_REQUIRES(lock);
  void send() FAR_REQUIRES(lock);
  [[nodiscard]] std::size_t gather(std::span<iovec> chunks, std::size_t* total_bytes) FAR_REQUIRES(lock);
  void note_sent(std::size_t bytes) FAR_REQUIRES(lock);
  void receive(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock);
  [[nodiscard]] bool parse(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock);
  void finish_front(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock);
  [[nodiscard]] int failure_of_front() FAR_REQUIRES(lock);
  void end_front(int code, const completion_sink* sink) FAR_REQUIRES(lock);

  // redis_strings.cc
  void build_tasks(std::uint64_t now_ns) FAR_REQUIRES(lock);
  void begin_blocks(std::uint64_t now_ns) FAR_REQUIRES(lock);
  void begin_renewal(std::uint64_t now_ns) FAR_REQUIRES(lock);
  void build_task(string_task& task, command::kind is, unsigned most, std::uint64_t now_ns) FAR_REQUIRES(lock);
  void add_string_command(command::kind is, std::uint64_t string, std::uint64_t now_ns) FAR_REQUIRES(lock);
  void finish_string_command(command::kind is, int code, std::uint64_t now_ns) FAR_REQUIRES(lock);
  void end_blocks(std::uint64_t now_ns) FAR_REQUIRES(lock);
  void mark_made(wire::block_range blocks, bool made) FAR_REQUIRES(lock);
  void check_policy() FAR_REQUIRES(lock);
  void drop_tasks() FAR_REQUIRES(lock);

  redis_settings settings_;
  bool renews_;
  const std::unique_ptr<byte_stream> stream_;
  redis_session& session_;
  const platform::clock& time_;
  control_source* control_ FAR_GUARDED_BY(lock) = nullptr;

  phase phase_ FAR_GUARDED_BY(lock) = phase::idle;
  std::uint32_t epoch_ FAR_GUARDED_BY(lock);
  std::uint64_t retry_at_ns_ FAR_GUARDED_BY(lock) = 0;          // idle and broken
  std::uint64_t attempt_deadline_ns_ FAR_GUARDED_BY(lock) = 0;  // connecting and greeting
  std::uint64_t heard_ns_ FAR_GUARDED_BY(lock) = 0;             // ready: when bytes came last
  std::atomic<std::uint64_t> away_since_ns_;
  unsigned failures_ FAR_GUARDED_BY(lock) = 0;
  bool refused_ FAR_GUARDED_BY(lock) = false;
  int failure_code_ FAR_GUARDED_BY(lock) = 0;
  std::array<char, 448> explanation_ FAR_GUARDED_BY(lock){};

  // greeting
  std::string greeting_ FAR_GUARDED_BY(lock);  // what is still to be sent
  std::array<step, 8> steps_ FAR_GUARDED_BY(lock){};
  std::size_t step_count_ FAR_GUARDED_BY(lock) = 0;
  std::size_t steps_done_ FAR_GUARDED_BY(lock) = 0;
  std::uint64_t own_number_ FAR_GUARDED_BY(lock) = 0;          // the server's number of this connection
  std::uint64_t predecessor_number_ FAR_GUARDED_BY(lock) = 0;  // of the one that may have left writes behind; 0: none
  std::array<char, 41> write_script_ FAR_GUARDED_BY(lock){};   // their names in the server
  std::array<char, 41> make_script_ FAR_GUARDED_BY(lock){};

  // The transfers that wait for a command.
  transfer* pending_first_ FAR_GUARDED_BY(lock) = nullptr;
  transfer* pending_last_ FAR_GUARDED_BY(lock) = nullptr;
  command_ring commands_ FAR_GUARDED_BY(lock);
  unsigned pushes_ FAR_GUARDED_BY(lock) = 0;  // since the last advance()
  bool pinging_ FAR_GUARDED_BY(lock) = false;
  std::array<char, 160> key_ FAR_GUARDED_BY(lock){};

  // Strings. `made_` has a byte for each block: whether its strings exist, as far as we know.
  string_task blocks_ FAR_GUARDED_BY(lock);
  control_request asked_ FAR_GUARDED_BY(lock){};  // what `blocks_` is about
  bool undoing_ FAR_GUARDED_BY(lock) = false;     // deletes what was made before one failed
  int blocks_failed_ FAR_GUARDED_BY(lock) = 0;
  string_task renewal_ FAR_GUARDED_BY(lock);
  std::uint64_t renew_at_ns_ FAR_GUARDED_BY(lock) = 0;
  bool checking_policy_ FAR_GUARDED_BY(lock) = false;
  std::byte* const made_;
  std::uint64_t made_end_ FAR_GUARDED_BY(lock) = 0;

  // The reply that was just taken; its text where nothing else has been done with it.
  reply_reader reader_ FAR_GUARDED_BY(lock);
  redis_reply reply_ FAR_GUARDED_BY(lock);
  std::array<char, 16384> reply_text_ FAR_GUARDED_BY(lock);
  std::byte* const received_;
};

}  // namespace far::backend
