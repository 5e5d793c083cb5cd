#include "backend/redis/redis_connection.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "backend/redis/command_writer.h"
#include "backend/redis/key_layout.h"
#include "backend/redis/redis_uri.h"
#include "backend/redis/server_facts.h"
#include "base/log.h"
#include "platform/local_memory.h"
#include "platform/wait_for_events.h"

namespace far::backend {
namespace {

// A command carries at most this much, so that the server can work on one while the next is on its way.
constexpr std::uint64_t most_command_bytes = 256 * kib;

// The parser moves the bytes behind a reply, so it gets few at a time.
constexpr std::size_t fed_bytes = 16 * kib;

// No more than this a system call.
constexpr std::size_t send_bytes = 1 * mib;

char line_end[] = {'\r', '\n'};

std::unique_ptr<redis_connection> make_detour(redis_settings settings, std::unique_ptr<byte_stream> stream,
                                              redis_session& session, const platform::clock& time) {
  if (stream == nullptr) return nullptr;
  settings.asks = true;
  return std::make_unique<redis_connection>(std::move(settings), std::move(stream), session, time);
}

}  // namespace

redis_connection::redis_connection(redis_settings chosen, std::unique_ptr<byte_stream> stream, redis_session& session,
                                   const platform::clock& time, std::unique_ptr<byte_stream> detour_stream)
    : store_connection(chosen.peer, chosen.timeout_ns, std::move(stream), session, time),
      detour_(make_detour(chosen, std::move(detour_stream), session, time)),
      settings_(std::move(chosen)),
      renews_(settings_.writes && !settings_.asks),
      session_(session),
      strings_(settings_, greeting_, session, commands_),
      received_(platform::map_local(receive_buffer_bytes)) {
  if (detour_ == nullptr) return;
  detour_->home_ = this;
  const lock_guard guard(detour_->lock);
  detour_->greeting_.write_by_turns_with(greeting_);
  this->stream().watch_also(detour_->descriptor());
}

redis_connection::~redis_connection() {
  platform::unmap_local(received_, receive_buffer_bytes);
}

store_connection::joining redis_connection::join_session() {
  const redis_session::view joined = session_.now();
  if (joined.epoch != epoch()) return joining::stale;
  if (settings_.cluster != nullptr) return join_cluster(joined);
  if (!joined.run_id.is_known()) return settings_.writes ? joining::now : joining::later;
  stream().use_address(next_address(joined.address));
  return joining::now;
}

void redis_connection::show(const std::string& secret) {
  settings_.password = secret;
  if (detour_ == nullptr) return;
  const lock_guard guard(detour_->lock);
  detour_->show(secret);
}

void redis_connection::begin_handshake() {
  reader_.reset();
  greeting_.begin(settings_, session_.stem());
}

std::span<const std::byte> redis_connection::handshake_to_send() {
  return greeting_.to_send();
}

void redis_connection::handshake_sent(std::size_t bytes) {
  greeting_.sent(bytes);
}

std::span<std::byte> redis_connection::receive_space() {
  return {received_, receive_buffer_bytes};
}

void redis_connection::take_handshake(std::size_t bytes, std::uint64_t now_ns, const completion_sink* sink) {
  bool sound = reader_.feed({received_, bytes});
  reply_reader::outcome outcome = reply_reader::outcome::incomplete;
  while (sound && now() == phase::handshaking && !greeting_.is_done() &&
         (outcome = reader_.next(*this)) == reply_reader::outcome::taken) {
    take_step(sink);
  }
  sound = sound && outcome != reply_reader::outcome::broken;
  if (!sound) {
    return break_off(EPROTO, "it does not speak the protocol of Redis; rediss: is with TLS, redis: without");
  }
  if (now() != phase::handshaking || !greeting_.is_done()) return;
  greeting_.finish(settings_.writes);
  attempts_ = 0;
  strings_.renew_at(now_ns);
  become_ready(now_ns);
}

void redis_connection::take_step(const completion_sink* sink) {
  switch (greeting_.take(reply_)) {
    case redis_greeting::outcome::more: return;
    case redis_greeting::outcome::facts: return take_facts(sink);
    case redis_greeting::outcome::unavailable: return break_off(EHOSTDOWN, reply_text_.data());
    case redis_greeting::outcome::refused: return refuse(greeting_.explanation());
  }
}

void redis_connection::take_facts(const completion_sink* sink) {
  const server_facts facts = server_facts::parse(reply_.text);
  if (facts.is_loading) return break_off(EHOSTDOWN, "it is loading its data");
  const bool in_cluster = settings_.cluster != nullptr;
  if (in_cluster && !settings_.asks) {
    if (!owner_.is_self) return leave_for_owner(facts);
    // What it said may be older than what another connection has heard since: it is asked once more.
    if (session_.retarget(node_)) {
      attempts_ = 0;
      return redirect();
    }
  }
  if (!in_cluster && is_stranger(facts)) {
    return break_off(EADDRNOTAVAIL, "another server answers at this address of its name");
  }
  if (!settings_.asks && has_other_data(facts, sink)) return;
  const std::string objection = facts.objection(in_cluster);
  if (!objection.empty()) {
    const bool news = session_.note_refusal(true);
    // We have used this server already, so the user is not waiting for open() and needs a message.
    if (news && (failures() > 0 || in_cluster)) {
      log_line(log_level::error, "far tier %s cannot be used any more: %s", peer(), objection.c_str());
    }
    return refuse(objection.c_str());
  }
  static_cast<void>(session_.note_refusal(false));
  greeting_.reached(facts.run_id);
  if (settings_.asks) return take_facts_of_asked(facts, sink);
  const redis_session::view joined = session_.now();
  if (joined.epoch != epoch()) return break_off(ESTALE, "the session has changed meanwhile");
  if (!joined.run_id.is_known()) {
    if (!session_.opened(epoch(), facts, stream().address()))
      return break_off(ESTALE, "the session has changed meanwhile");
  } else if (joined.run_id != facts.run_id) {
    if (!in_cluster || !session_.follow(epoch(), facts)) {
      return lose_session("the server was restarted, or another one has taken its place", sink);
    }
    log_line(log_level::info, "far tier %s: what is stored there has moved to %s", peer(), node_.text().c_str());
  }
  if (!in_cluster && session_.moved(epoch(), stream().address())) {
    log_line(log_level::info, "far tier %s has been found at another address of its name", peer());
  }
  session_.note(facts);
  session_.note_departure(facts.run_id, false);
  if (detour_ != nullptr) end_detour(facts.run_id);
  process_ = facts.run_id;
  session_.note_identity(facts.run_id);
}

// Another process at another address of the name may be another server, and ours may still have our strings. When their
// lease is over there, too, nothing is lost by believing the other one.
bool redis_connection::is_stranger(const server_facts& facts) {
  const redis_session::view joined = session_.now();
  if (joined.epoch != epoch() || !joined.run_id.is_known() || joined.run_id == facts.run_id) return false;
  if (stream().address() == joined.address || !strings_.store_anything()) return false;
  if (time().now_ns() > session_.last_contact_ns() + settings_.lease_ns) return false;
  if (session_.note_stranger(epoch())) {
    log_line(log_level::warning,
             "far tier %s: another server, without the bytes of this program, answers at an address of its name. They "
             "may still be at the address of before, which is tried until the lease is over. If that server is gone "
             "for good, with other copies: farheap remove-server, then add-server",
             peer());
  }
  return true;
}

// The process that has our strings may have been told to follow another master, whose data it has in place of its own:
// under the same run_id, and with strings of the same names. Returns whether it has; the session is lost then.
bool redis_connection::has_other_data(const server_facts& facts, const completion_sink* sink) {
  const bool is_replica = settings_.cluster == nullptr && session_.is_replica(facts);
  if (!is_replica && !session_.has_been_replica(facts)) return false;
  lose_session("it has become a replica, and its data are those of its master, which may lack the latest writes", sink);
  return true;
}

void redis_connection::lose_session(const char* why, const completion_sink* sink) {
  if (session_.lost(epoch())) {
    log_line(log_level::error, "far tier %s has lost what this program stored there: %s", peer(), why);
  }
  enter_epoch(sink);
}

// Strings of that epoch that are left in the server go with their lease.
void redis_connection::fail_stale(const completion_sink* sink) {
  strings_.drop();
  commands_.remove_if([&](command& dropped) {
    if (dropped.is_transfer()) finish_part(*dropped.owner, ESTALE, sink);
    return true;
  });
  asked_ = {};
  pinging_ = false;
}

void redis_connection::rewind() {
  commands_.rewind();
  if (settings_.asks) commands_.remove_if([](const command& one) { return one.is == command::kind::facts; });
}

void redis_connection::expire_messages(std::uint64_t now_ns, const completion_sink* sink) {
  bool overdue = false;
  for (std::size_t i = 0; i < commands_.size() && !overdue; ++i) overdue = now_ns >= commands_.at(i).deadline_ns;
  if (!overdue) return;
  // Replies on their way must not land, and the server is silent anyway.
  if (now() == phase::ready) break_off(ETIMEDOUT, "it does not answer");
  commands_.remove_if([&](command& late) {
    if (now_ns < late.deadline_ns) return false;
    // A command that maintains the session is repeated until it is answered.
    if (!late.is_transfer()) late.deadline_ns = now_ns + timeout_ns();
    if (late.is_transfer()) finish_part(*late.owner, ETIMEDOUT, sink);
    return late.is_transfer();
  });
}

std::uint64_t redis_connection::next_message_ns(std::uint64_t now_ns) const {
  std::uint64_t when_ns = std::numeric_limits<std::uint64_t>::max();
  if (now() == phase::ready && renews_) {
    when_ns = std::max(std::min(strings_.renew_at_ns(), strings_.ask_at_ns()), now_ns);
  }
  // Transfers are in the order of deadlines. What maintains the session is repeated, and stays in front of them.
  for (std::size_t i = 0; i < commands_.size(); ++i) {
    when_ns = std::min(when_ns, commands_.at(i).deadline_ns);
    if (commands_.at(i).is_transfer()) break;
  }
  return std::min(when_ns, detour_next_ns_);
}

void redis_connection::build(std::uint64_t now_ns, const completion_sink* sink) {
  if (renews_) strings_.build(epoch(), now_ns);
  // A detour without work may be closed by anybody.
  if (commands_.empty() && !pinging_ && !settings_.asks && wants_ping(now_ns)) {
    pinging_ = true;
    command& ping = commands_.add(command::kind::ping, now_ns + timeout_ns());
    command_writer writer(ping.text);
    if (settings_.cluster == nullptr) {
      writer.begin(1);
      writer.text("PING");
    } else {
      // A node that has given the hash slot away says so when it is asked for a key of it.
      writer.begin(4);
      writer.text("GETRANGE");
      writer.text(session_.stem());
      writer.number(0);
      writer.number(0);
    }
    ping.text_bytes = static_cast<std::uint32_t>(writer.size());
  }
  build_transfers(now_ns, sink);
}

void redis_connection::build_transfers(std::uint64_t, const completion_sink* sink) {
  while (pending().drop_failed(epoch(), sink)) {
    if (!commands_.takes_transfers() || commands_.size() + detoured() >= command_ring::most_for_transfers) return;
    transfer& front = pending().front();
    build_part(front);
    if (front.placed()) pending().pop();
  }
}

void redis_connection::build_part(transfer& front) {
  const string_place where = locate(front.io.slot, front.io.offset_bytes + front.placed_bytes);
  const std::uint64_t left = front.io.length_bytes - front.placed_bytes;
  const std::uint64_t bytes = std::min({left, where.left_bytes, most_command_bytes});
  const bool is_read = front.io.op == operation::read;
  command& added = commands_.add(is_read ? command::kind::read : command::kind::write, front.deadline_ns);
  added.owner = &front;
  added.buffer = front.io.buffer + front.placed_bytes;
  added.bytes = static_cast<std::uint32_t>(bytes);
  commands_.count_bytes(bytes);
  std::array<char, most_key_bytes> room;
  const std::string_view key = write_key(session_.stem(), epoch(), where.string, room);
  command_writer writer(added.text);
  if (is_read) {
    writer.begin(4);
    writer.text("GETRANGE");
    writer.text(key);
    writer.number(where.offset_bytes);
    writer.number(where.offset_bytes + bytes - 1);
  } else {
    writer.begin(6);
    writer.text("EVALSHA");
    writer.text(greeting_.write_script());
    writer.text("1");
    writer.text(key);
    writer.number(where.offset_bytes);
    writer.announce(bytes);
  }
  added.text_bytes = static_cast<std::uint32_t>(writer.size());
  front.placed_bytes += bytes;
  ++front.outstanding;
}

// Points at the bytes to send next.
std::size_t redis_connection::gather(std::span<iovec> chunks, std::size_t* total_bytes) {
  std::size_t count = 0;
  std::size_t skip = commands_.sent_of_next_bytes();
  *total_bytes = 0;
  const auto append = [&](void* bytes, std::size_t length) {
    const std::size_t skipped = std::min(skip, length);
    skip -= skipped;
    if (skipped == length) return;
    chunks[count++] = {static_cast<char*>(bytes) + skipped, length - skipped};
    *total_bytes += length - skipped;
  };
  for (std::size_t i = commands_.sent(); i < commands_.size(); ++i) {
    if (count + 3 > chunks.size() || *total_bytes >= send_bytes) break;
    command& next = commands_.at(i);
    append(next.text.data(), next.text_bytes);
    if (next.is != command::kind::write) continue;
    append(next.buffer, next.bytes);
    append(line_end, sizeof line_end);
  }
  return count;
}

void redis_connection::receive(std::uint64_t now_ns, const completion_sink* sink) {
  while (now() == phase::ready) {
    const iovec room{received_, receive_buffer_bytes};
    const std::ptrdiff_t outcome = stream().try_receive({&room, 1});
    if (outcome < 0) return break_off(static_cast<int>(-outcome), stream().explanation());
    if (outcome == 0) return;
    note_heard(now_ns);
    const auto bytes = static_cast<std::size_t>(outcome);
    for (std::size_t fed = 0; fed < bytes && now() == phase::ready; fed += fed_bytes) {
      const bool sound = reader_.feed({received_ + fed, std::min(fed_bytes, bytes - fed)}) && parse(now_ns, sink);
      if (!sound) return break_off(EPROTO, "a reply was damaged, or broke the protocol");
    }
    if (bytes < receive_buffer_bytes) return;  // there is no more
  }
}

// Returns false when the server broke the protocol.
bool redis_connection::parse(std::uint64_t now_ns, const completion_sink* sink) {
  while (now() == phase::ready) {
    const reply_reader::outcome outcome = reader_.next(*this);
    if (outcome == reply_reader::outcome::incomplete) return true;
    if (outcome == reply_reader::outcome::broken || commands_.sent() == 0) return false;
    finish_front(now_ns, sink);
  }
  return true;
}

// Called by the parser. The bytes of a page go where they belong, everything else into `reply_text_`.
void redis_connection::take(const redis_reply& reply) {
  lock.assert_held();  // by the parser's caller
  reply_ = reply;
  const bool is_text = reply.is == redis_reply::kind::text;
  const bool is_asked_for_nodes = now() == phase::ready && commands_.sent() > 0
                                      ? commands_.at(0).is == command::kind::nodes
                                      : now() == phase::handshaking && greeting_.awaits_nodes();
  if (is_text && is_asked_for_nodes) {
    owner_ = settings_.cluster->take(reply.text, node_, settings_.hash_slot);
    reply_.text = {};
    return;
  }
  if (now() == phase::ready && commands_.sent() > 0 && reply.is == redis_reply::kind::text) {
    const command& front = commands_.at(0);
    if (front.is == command::kind::read) {
      if (reply.text.size() == front.bytes) std::memcpy(front.buffer, reply.text.data(), front.bytes);
      reply_.number = static_cast<std::int64_t>(reply.text.size());
      reply_.text = {};
      return;
    }
  }
  const std::size_t length = std::min(reply.text.size(), reply_text_.size() - 1);
  std::copy_n(reply.text.data(), length, reply_text_.data());
  reply_text_[length] = '\0';
  reply_.text = {reply_text_.data(), length};
}

void redis_connection::finish_front(std::uint64_t now_ns, const completion_sink* sink) {
  command& front = commands_.at(0);
  const command::kind is = front.is;
  int code = 0;
  if (settings_.asks && !front.has_permission) {
    front.has_permission = reply_.is == redis_reply::kind::status;
    if (!front.has_permission) refuse(reply_text_.data());
    return;
  }
  if (settings_.cluster != nullptr && reply_.is == redis_reply::kind::failure && is_redirected()) return;
  note_answer();
  // Somebody has put something else than a string in the place of ours.
  const bool is_replaced = reply_.is == redis_reply::kind::failure && reply_.text.starts_with("WRONGTYPE");
  if (reply_.is == redis_reply::kind::failure && !is_replaced) {
    code = failure_of_front();
    if (now() != phase::ready) return;  // it is sent again on another connection
  }
  const bool number_wanted = is == command::kind::write || is == command::kind::make || is == command::kind::renew ||
                             is == command::kind::remove;
  const auto wanted = number_wanted ? redis_reply::kind::number : redis_reply::kind::text;
  if (code == 0 && is != command::kind::ping && reply_.is != wanted && !is_replaced) {
    return break_off(EPROTO, "a reply is not of the kind that its command has");
  }
  const bool gone =
      is_replaced || (code == 0 && ((is == command::kind::read && reply_.number != front.bytes) ||
                                    (is == command::kind::write && reply_.number < 0) ||
                                    (is == command::kind::renew && reply_.number == 0 && settings_.writes)));
  // While its hash slot moves, it may just have moved back.
  if (gone && settings_.asks && !front.was_asked) {
    front.was_asked = true;
    return hand_back_front();
  }
  if (gone) {
    return lose_session(
        "a key of ours is gone. Somebody has deleted or replaced it (FLUSHALL, FLUSHDB, DEL, eviction), or this "
        "program was stopped for longer than its lease; 'lease' sets how long that may be",
        sink);
  }
  if (front.is_transfer()) return end_front(code, sink);
  if (is == command::kind::facts && !take_later_facts(sink)) return;
  commands_.pop();
  if (is == command::kind::ping) pinging_ = false;
  if (is == command::kind::nodes) strings_.note_nodes();
  if (is == command::kind::make || is == command::kind::remove || is == command::kind::renew) {
    (home_ != nullptr ? home_->strings_ : strings_).finish(is, code, epoch(), now_ns);
  }
}

void redis_connection::end_front(int code, const completion_sink* sink) {
  transfer& owner = *commands_.at(0).owner;
  commands_.pop();
  finish_part(owner, code, sink);
}

// Returns the errno value of the failure in `reply_`. Breaks the connection off when another attempt may succeed.
int redis_connection::failure_of_front() {
  const std::string_view text = reply_.text;
  if (text.find("OOM command not allowed") != std::string_view::npos) return ENOSPC;
  for (const std::string_view begin :
       {"NOSCRIPT", "LOADING", "READONLY", "MASTERDOWN", "BUSY", "NOAUTH", "CLUSTERDOWN", "TRYAGAIN"}) {
    if (!text.starts_with(begin)) continue;
    break_off(EHOSTDOWN, reply_text_.data());
    return EHOSTDOWN;
  }
  if (session_.note_refusal(true)) {
    log_line(log_level::error, "far tier %s refuses a command: %.300s", peer(), reply_text_.data());
  }
  return EIO;
}

bool redis_connection::shorten_leases(std::uint64_t lease_ns) {
  strings_.shorten_leases(lease_ns);
  advance(nullptr);
  return now() != phase::ready || strings_.is_renewed();
}

void redis_connection::end_session(std::uint64_t patience_ns) {
  const std::uint64_t until_ns = time().now_ns() + patience_ns;
  const std::uint32_t ended_epoch = epoch();
  while (now() == phase::ready && epoch() == ended_epoch) {
    const bool removing = strings_.begin_removal(until_ns);
    advance(nullptr);
    const std::uint64_t now_ns = time().now_ns();
    if ((removing && !strings_.is_working_on_blocks()) || now_ns >= until_ns) return;
    const std::uint64_t pause_ns = std::min<std::uint64_t>(until_ns - now_ns, 10'000'000);
    pollfd watched{.fd = descriptor(), .events = POLLIN, .revents = 0};
    platform::wait_for_events({&watched, 1}, static_cast<std::int64_t>(pause_ns));
  }
}

void redis_connection::restart_in_child() {
  lock.open_in_child();
  lock.assert_held();  // the child has one thread
  restart_phases();
  reader_.abandon();
  settings_.writes = false;
  strings_.restart_in_child();
  pinging_ = false;
  commands_.clear();
  attempts_ = 0;
  detour_next_ns_ = std::numeric_limits<std::uint64_t>::max();
  if (detour_ == nullptr) return;
  detour_->restart_in_child();
  stream().watch_also(detour_->descriptor());
}

}  // namespace far::backend
