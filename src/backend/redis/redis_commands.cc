// The work of a connection while it is ready: commands out, replies in.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "backend/redis/command_writer.h"
#include "backend/redis/key_layout.h"
#include "backend/redis/redis_connection.h"
#include "base/check.h"
#include "base/log.h"

namespace far::backend {
namespace {

// A command carries at most this much, so that the server can work on one while the next is on its way.
constexpr std::uint64_t most_command_bytes = 256 * kib;

// The parser moves what follows a reply, so it is given little at a time.
constexpr std::size_t fed_bytes = 16 * kib;

// No more than this a system call.
constexpr std::size_t send_bytes = 1 * mib;

// So many small requests wait for the next advance() at most.
constexpr unsigned most_pushes_put_off = 16;

char line_end[] = {'\r', '\n'};

}  // namespace

void redis_connection::enqueue(transfer& added) {
  added.next = nullptr;
  (pending_last_ == nullptr ? pending_first_ : pending_last_->next) = &added;
  pending_last_ = &added;
}

void redis_connection::push(const completion_sink* sink) {
  if (phase_ != phase::ready || session_.epoch() != epoch_) return;
  build_transfers(sink);
  send();
}

bool redis_connection::push_soon(const completion_sink* sink) {
  if (pushes_ > 0 && pushes_ < most_pushes_put_off && !commands_.empty()) {
    ++pushes_;
    return true;
  }
  push(sink);
  pushes_ = 1;
  return false;
}

// Ends the transfer at the front, which has failed, as soon as no command of it is on its way any more.
void redis_connection::pop_failed(const completion_sink* sink) {
  transfer& failed = *pending_first_;
  pending_first_ = failed.next;
  if (pending_first_ == nullptr) pending_last_ = nullptr;
  failed.placed_bytes = failed.io.length_bytes;
  if (failed.outstanding == 0) failed.owner->complete(failed, sink);
}

void redis_connection::build(std::uint64_t now_ns, const completion_sink* sink) {
  if (renews_) build_tasks(now_ns);
  if (commands_.empty() && !pinging_ && now_ns >= heard_ns_ + ping_after_ns()) {
    pinging_ = true;
    command& ping = add(command::kind::ping, now_ns + settings_.timeout_ns);
    command_writer writer(ping.text);
    writer.begin(1);
    writer.text("PING");
    ping.text_bytes = static_cast<std::uint32_t>(writer.size());
  }
  build_transfers(sink);
}

command& redis_connection::add(command::kind is, std::uint64_t deadline_ns) {
  command& added = commands_.push();
  added.is = is;
  added.deadline_ns = deadline_ns;
  added.owner = nullptr;
  added.buffer = nullptr;
  added.bytes = added.text_bytes = 0;
  return added;
}

// "PREFIX:SESSION:EPOCH:STRING".
std::string_view redis_connection::key_of(std::uint64_t string) {
  const std::string& stem = session_.stem();
  FAR_CHECK(stem.size() + 48 <= key_.size(), "a key fits");
  char* const end = key_.data() + key_.size();
  char* at = std::copy(stem.begin(), stem.end(), key_.data());
  at = std::to_chars(at, end, epoch_).ptr;
  *at++ = ':';
  at = std::to_chars(at, end, string).ptr;
  return {key_.data(), static_cast<std::size_t>(at - key_.data())};
}

void redis_connection::build_transfers(const completion_sink* sink) {
  while (pending_first_ != nullptr) {
    transfer& front = *pending_first_;
    if (front.error_code != 0 || front.epoch != epoch_) {
      if (front.error_code == 0) front.error_code = ESTALE;
      pop_failed(sink);
      continue;
    }
    if (!commands_.takes_transfers()) return;
    build_part(front);
    if (!front.placed()) continue;
    pending_first_ = front.next;
    if (pending_first_ == nullptr) pending_last_ = nullptr;
  }
}

void redis_connection::build_part(transfer& front) {
  const string_place where = locate(front.io.slot, front.io.offset_bytes + front.placed_bytes);
  const std::uint64_t left = front.io.length_bytes - front.placed_bytes;
  const std::uint64_t bytes = std::min({left, where.left_bytes, most_command_bytes});
  const bool is_read = front.io.op == operation::read;
  command& added = add(is_read ? command::kind::read : command::kind::write, front.deadline_ns);
  added.owner = &front;
  added.buffer = front.io.buffer + front.placed_bytes;
  added.bytes = static_cast<std::uint32_t>(bytes);
  commands_.count_bytes(bytes);
  command_writer writer(added.text);
  if (is_read) {
    writer.begin(4);
    writer.text("GETRANGE");
    writer.text(key_of(where.string));
    writer.number(where.offset_bytes);
    writer.number(where.offset_bytes + bytes - 1);
  } else {
    writer.begin(6);
    writer.text("EVALSHA");
    writer.text(write_script_.data());
    writer.text("1");
    writer.text(key_of(where.string));
    writer.number(where.offset_bytes);
    writer.announce(bytes);
  }
  added.text_bytes = static_cast<std::uint32_t>(writer.size());
  front.placed_bytes += bytes;
  ++front.outstanding;
}

void redis_connection::send() {
  while (commands_.sent() < commands_.size()) {
    std::array<iovec, chunks_per_call> chunks;
    std::size_t total = 0;
    const std::size_t count = gather(chunks, &total);
    const std::ptrdiff_t sent = stream_->try_send({chunks.data(), count});
    if (sent < 0) return break_off(static_cast<int>(-sent), stream_->explanation());
    commands_.note_sent(static_cast<std::size_t>(sent));
    if (static_cast<std::size_t>(sent) < total) return;
  }
  if (!stream_->has_unsent()) return;
  const std::ptrdiff_t flushed = stream_->try_send({});
  if (flushed < 0) break_off(static_cast<int>(-flushed), stream_->explanation());
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
  while (phase_ == phase::ready) {
    const iovec room{received_, receive_buffer_bytes};
    const std::ptrdiff_t outcome = stream_->try_receive({&room, 1});
    if (outcome < 0) return break_off(static_cast<int>(-outcome), stream_->explanation());
    if (outcome == 0) return;
    heard_ns_ = now_ns;
    const auto bytes = static_cast<std::size_t>(outcome);
    for (std::size_t fed = 0; fed < bytes && phase_ == phase::ready; fed += fed_bytes) {
      const bool sound = reader_.feed({received_ + fed, std::min(fed_bytes, bytes - fed)}) && parse(now_ns, sink);
      if (!sound) return break_off(EPROTO, "a reply was damaged, or broke the protocol");
    }
    if (bytes < receive_buffer_bytes) return;  // there is no more
  }
}

// Returns false when the server broke the protocol.
bool redis_connection::parse(std::uint64_t now_ns, const completion_sink* sink) {
  while (phase_ == phase::ready) {
    const reply_reader::outcome outcome = reader_.next(*this);
    if (outcome == reply_reader::outcome::incomplete) return true;
    if (outcome == reply_reader::outcome::broken || commands_.sent() == 0) return false;
    finish_front(now_ns, sink);
  }
  return true;
}

// Called by the parser. The bytes of a page go where they belong, everything else into `reply_text_`.
void redis_connection::take(const redis_reply& reply) {
  lock.assert_held();  // by whoever calls the parser
  reply_ = reply;
  if (phase_ == phase::ready && commands_.sent() > 0 && reply.is == redis_reply::kind::text) {
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
  failures_ = 0;
  command& front = commands_.at(0);
  const command::kind is = front.is;
  int code = 0;
  if (reply_.is == redis_reply::kind::failure) {
    code = failure_of_front();
    if (phase_ != phase::ready) return;  // it is sent again on another connection
  }
  const bool number_wanted = is == command::kind::write || is == command::kind::make || is == command::kind::renew ||
                             is == command::kind::remove;
  const auto wanted = number_wanted ? redis_reply::kind::number : redis_reply::kind::text;
  if (code == 0 && is != command::kind::ping && reply_.is != wanted) {
    return break_off(EPROTO, "a reply is not of the kind that its command has");
  }
  const bool gone = code == 0 && ((is == command::kind::read && reply_.number != front.bytes) ||
                                  (is == command::kind::write && reply_.number < 0) ||
                                  (is == command::kind::renew && reply_.number == 0 && settings_.writes));
  if (gone) {
    return lose_session(
        "a key of ours is gone. Somebody has deleted it (FLUSHALL, FLUSHDB, DEL, eviction), or this "
        "program was stopped for longer than its lease; 'lease' sets how long that may be",
        sink);
  }
  if (front.is_transfer()) return end_front(code, sink);
  commands_.pop();
  if (is == command::kind::ping) pinging_ = false;
  if (is == command::kind::facts) check_policy();
  if (is == command::kind::make || is == command::kind::remove || is == command::kind::renew) {
    finish_string_command(is, code, now_ns);
  }
}

void redis_connection::end_front(int code, const completion_sink* sink) {
  transfer& owner = *commands_.at(0).owner;
  commands_.pop();
  finish_part(owner, code, sink);
}

// What the failure in `reply_` means for the command. Breaks the connection off when another attempt may succeed.
int redis_connection::failure_of_front() {
  const std::string_view text = reply_.text;
  if (text.find("OOM command not allowed") != std::string_view::npos) return ENOSPC;
  for (const std::string_view begin : {"NOSCRIPT", "LOADING", "READONLY", "MASTERDOWN", "BUSY", "NOAUTH"}) {
    if (!text.starts_with(begin)) continue;
    break_off(EHOSTDOWN, reply_text_.data());
    return EHOSTDOWN;
  }
  if (session_.note_refusal(true)) {
    log_line(log_level::error, "far tier %s refuses a command: %.300s", settings_.peer.c_str(), reply_text_.data());
  }
  return EIO;
}

}  // namespace far::backend
