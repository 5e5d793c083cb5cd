// One connection to a Redis server: it says who it is, and moves transfers as pipelined commands. Its phases are those
// of store_connection; the store agrees when the replies to the greeting have arrived, and an earlier connection has
// been ended (redis_greeting.h).
//
// In a Redis Cluster it goes where the hash slot of the session is (redis_redirection.cc). While that is on its way to
// another node, strings are in either; those that its owner has no more are requested of the other one by a connection
// of this one's own, the detour.
//
// If a string of ours is gone (redis_strings.h), so is the session: all requests of that epoch end with ESTALE.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>

#include "backend/redis/cluster_directory.h"
#include "backend/redis/command_ring.h"
#include "backend/redis/redis_greeting.h"
#include "backend/redis/redis_session.h"
#include "backend/redis/redis_settings.h"
#include "backend/redis/redis_strings.h"
#include "backend/redis/reply_reader.h"
#include "backend/redis/server_facts.h"
#include "backend/tcp/store_connection.h"

namespace far::backend {

class redis_connection final : public store_connection, private reply_sink {
 public:
  // `detour_stream`: in a cluster, for requests to a second node. Requires: the references outlive the connection.
  redis_connection(redis_settings chosen, std::unique_ptr<byte_stream> stream, redis_session& session,
                   const platform::clock& time, std::unique_ptr<byte_stream> detour_stream = nullptr);
  ~redis_connection() override;

  // The lock is held around every call below that does not say otherwise.

  // The source of blocks to create and to delete from now on. Requires: it carries writes.
  void set_control(control_source* control) override FAR_REQUIRES(lock) { strings_.set_control(control); }

  void show(const std::string& secret) override FAR_REQUIRES(lock);

  // From now on leases last no longer than this. Returns whether that has been applied to all strings, as far as
  // possible.
  [[nodiscard]] bool shorten_leases(std::uint64_t lease_ns) FAR_REQUIRES(lock);

  // Deletes every string of the session, for up to `patience_ns`; blocks. The connection is of no use afterwards. A
  // string that cannot be deleted is left to its lease.
  void end_session(std::uint64_t patience_ns) FAR_REQUIRES(lock);

  // In the child of a fork, without the lock: a new connection, that reads only, and renews leases if this one does:
  // the parent may end before its child.
  void restart_in_child();

 private:
  [[nodiscard]] joining join_session() override FAR_REQUIRES(lock);
  void begin_handshake() override FAR_REQUIRES(lock);
  [[nodiscard]] std::span<const std::byte> handshake_to_send() override FAR_REQUIRES(lock);
  void handshake_sent(std::size_t bytes) override FAR_REQUIRES(lock);
  [[nodiscard]] std::span<std::byte> receive_space() override FAR_REQUIRES(lock);
  void take_handshake(std::size_t bytes, std::uint64_t now_ns, const completion_sink* sink) override FAR_REQUIRES(lock);
  void take_step(const completion_sink* sink) FAR_REQUIRES(lock);
  void take_facts(const completion_sink* sink) FAR_REQUIRES(lock);
  [[nodiscard]] bool is_stranger(const server_facts& facts) FAR_REQUIRES(lock);
  [[nodiscard]] bool has_other_data(const server_facts& facts, const completion_sink* sink) FAR_REQUIRES(lock);
  void lose_session(const char* why, const completion_sink* sink) FAR_REQUIRES(lock);

  void build(std::uint64_t now_ns, const completion_sink* sink) override FAR_REQUIRES(lock);
  void build_transfers(std::uint64_t now_ns, const completion_sink* sink) override FAR_REQUIRES(lock);
  void build_part(transfer& front) FAR_REQUIRES(lock);
  [[nodiscard]] bool has_unsent() const override FAR_REQUIRES(lock) { return commands_.sent() < commands_.size(); }
  [[nodiscard]] std::size_t gather(std::span<iovec> chunks, std::size_t* total_bytes) override FAR_REQUIRES(lock);
  void note_sent(std::size_t bytes) override FAR_REQUIRES(lock) { commands_.note_sent(bytes); }

  void receive(std::uint64_t now_ns, const completion_sink* sink) override FAR_REQUIRES(lock);
  [[nodiscard]] bool parse(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock);
  void take(const redis_reply& reply) override;
  void finish_front(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock);
  [[nodiscard]] int failure_of_front() FAR_REQUIRES(lock);
  void end_front(int code, const completion_sink* sink) FAR_REQUIRES(lock);

  // In a cluster.
  [[nodiscard]] joining join_cluster(const redis_session::view& joined) FAR_REQUIRES(lock);
  void leave_for_owner(const server_facts& facts) FAR_REQUIRES(lock);
  [[nodiscard]] bool is_redirected() FAR_REQUIRES(lock);
  void follow() FAR_REQUIRES(lock);
  [[nodiscard]] bool take_later_facts(const completion_sink* sink) FAR_REQUIRES(lock);
  void advance_others(const completion_sink* sink) override FAR_REQUIRES(lock);
  void retire_others() override FAR_REQUIRES(lock);
  void end_detour(const redis_run_id& owner) FAR_REQUIRES(lock);
  [[nodiscard]] std::size_t detoured() const FAR_REQUIRES(lock);
  // Of the detour.
  void adopt(const command& asked, const node_address& node) FAR_REQUIRES(lock);
  void take_facts_of_asked(const server_facts& facts, const completion_sink* sink) FAR_REQUIRES(lock);
  void hand_back_front() FAR_REQUIRES(lock);

  [[nodiscard]] bool awaits_replies() const override FAR_REQUIRES(lock) { return !commands_.empty(); }
  void rewind() override FAR_REQUIRES(lock);
  void fail_stale(const completion_sink* sink) override FAR_REQUIRES(lock);
  void expire_messages(std::uint64_t now_ns, const completion_sink* sink) override FAR_REQUIRES(lock);
  [[nodiscard]] std::uint64_t next_message_ns(std::uint64_t now_ns) const override FAR_REQUIRES(lock);

  const std::unique_ptr<redis_connection> detour_;  // nullptr: it is one itself, or there is no cluster
  redis_connection* home_ = nullptr;                // of a detour

  redis_settings settings_;
  bool renews_;
  redis_session& session_;

  redis_greeting greeting_ FAR_GUARDED_BY(lock);
  command_ring commands_ FAR_GUARDED_BY(lock);
  redis_strings strings_ FAR_GUARDED_BY(lock);
  bool pinging_ FAR_GUARDED_BY(lock) = false;

  // In a cluster: the node that it connects to, who owns the hash slot according to that, and how often it has tried.
  node_address node_ FAR_GUARDED_BY(lock);
  cluster_directory::ownership owner_ FAR_GUARDED_BY(lock);
  unsigned attempts_ FAR_GUARDED_BY(lock) = 0;
  std::uint64_t detour_next_ns_ FAR_GUARDED_BY(lock) = std::numeric_limits<std::uint64_t>::max();
  redis_run_id process_ FAR_GUARDED_BY(lock);  // that it is connected to
  // Of a detour: the process that it has asked last.
  node_address asked_node_ FAR_GUARDED_BY(lock);
  redis_run_id asked_ FAR_GUARDED_BY(lock);

  // The reply that was just taken; its text where nothing else has been done with it.
  reply_reader reader_ FAR_GUARDED_BY(lock);
  redis_reply reply_ FAR_GUARDED_BY(lock);
  std::array<char, 16384> reply_text_ FAR_GUARDED_BY(lock);
  std::byte* const received_;
};

}  // namespace far::backend
