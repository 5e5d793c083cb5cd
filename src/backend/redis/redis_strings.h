// The strings of a session in a Redis server: created and deleted block by block as a block_table asks for it, and
// renewed before their lease runs out.
//
// A string of ours is created at its full length, by a script, and written to by another one only while it exists. So a
// string is either as we left it or absent. If a read or write finds it absent, somebody else has deleted it
// (FLUSHALL), or its lease has run out.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/redis/command_ring.h"
#include "backend/redis/redis_greeting.h"
#include "backend/redis/redis_session.h"
#include "backend/redis/redis_settings.h"
#include "backend/redis/reply_reader.h"
#include "backend/tcp/control_source.h"

namespace far::backend {

// Belongs to the connection's lock.
class redis_strings {
 public:
  // Requires: the references outlive the object; `commands` are those of the connection.
  redis_strings(const redis_settings& settings, const redis_greeting& greeting, redis_session& session,
                command_ring& commands);
  ~redis_strings();
  redis_strings(const redis_strings&) = delete;
  redis_strings& operator=(const redis_strings&) = delete;

  // The source of blocks to create and to delete; nullptr: there is none.
  void set_control(control_source* control) { control_ = control; }

  // Whether anything is stored in the strings, as far as the source of blocks knows.
  [[nodiscard]] bool store_anything() const { return control_ == nullptr || control_->stores_anything(); }

  // Adds commands for the tasks under way, and begins those that are due.
  void build(std::uint32_t epoch, std::uint64_t now_ns);
  // A command of build() has been answered; `code`: 0, or why it failed.
  void finish(command::kind is, int code, std::uint32_t epoch, std::uint64_t now_ns);
  void note_nodes() { asking_for_nodes_ = false; }
  // The reply to its question about the server's policy; nullptr: its user may not ask any more.
  void take_policy(const server_facts* facts);

  // There is a new epoch, whose table begins anew, too.
  void drop();
  // In the child of a fork, which renews leases, but does not know what its parent has deleted since.
  void restart_in_child();

  // When build() renews the leases next.
  [[nodiscard]] std::uint64_t renew_at_ns() const { return renew_at_ns_; }
  // When build() asks the server about itself, and about its cluster, next.
  [[nodiscard]] std::uint64_t ask_at_ns() const { return ask_at_ns_; }
  void renew_at(std::uint64_t when_ns) { renew_at_ns_ = when_ns; }

  // From now on leases last no longer than this.
  void shorten_leases(std::uint64_t lease_ns);
  // Whether all existing strings have been renewed since shorten_leases().
  [[nodiscard]] bool is_renewed() const { return !renewal_.active && renew_at_ns_ != 0; }

  // Puts the renewals off until after `until_ns`, and deletes all strings as soon as nothing else is under way. Called
  // again and again. Returns whether the deletion has begun.
  bool begin_removal(std::uint64_t until_ns);
  [[nodiscard]] bool is_working_on_blocks() const { return blocks_.active; }

 private:
  // A task of many commands, of which a few are under way at a time: one for each string from `next` to `end`.
  struct string_task {
    bool active = false;
    std::uint64_t next = 0;
    std::uint64_t end = 0;
    unsigned outstanding = 0;
    [[nodiscard]] bool is_done() const { return active && next == end && outstanding == 0; }
  };

  void begin_blocks(std::uint32_t epoch, std::uint64_t now_ns);
  void begin_renewal(std::uint64_t now_ns);
  void ask_for_facts(std::uint64_t now_ns);
  void ask(std::uint64_t now_ns);
  void build_task(string_task& task, command::kind is, unsigned most, std::uint32_t epoch, std::uint64_t now_ns);
  void add_command(command::kind is, std::uint64_t string, std::uint32_t epoch, std::uint64_t now_ns);
  void end_blocks(std::uint32_t epoch, std::uint64_t now_ns);
  void mark_existing(wire::block_range blocks, bool exist);

  const redis_settings& settings_;
  const redis_greeting& greeting_;
  redis_session& session_;
  command_ring& commands_;
  control_source* control_ = nullptr;
  std::uint64_t lease_ns_;

  string_task blocks_;
  control_request asked_{};  // what `blocks_` is about
  bool undoing_ = false;     // deletes what was created before one failed
  bool removing_ = false;    // begin_removal() has begun
  int blocks_failed_ = 0;
  string_task renewal_;
  std::uint64_t renew_at_ns_ = 0;
  std::uint64_t ask_at_ns_ = 0;
  bool asking_for_facts_ = false;
  bool asking_for_nodes_ = false;
  // A byte for each block: whether its strings exist, as far as we know.
  std::byte* const existing_;
  std::uint64_t existing_end_ = 0;
};

}  // namespace far::backend
