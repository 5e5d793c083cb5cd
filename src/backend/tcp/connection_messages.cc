// The work of a connection while it is ready: messages out, replies in.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>

#include "backend/tcp/connection.h"
#include "base/check.h"
#include "base/units.h"

namespace far::backend {
namespace {

// A message carries at most this much, so that the server can work on one while the next is on its way.
constexpr std::size_t most_data_bytes = 256 * kib;

// A reply that lacks more than this is received straight into the callers' buffers; less is copied out of our own,
// where it came in together with others.
constexpr std::size_t direct_bytes_from = 8 * kib;

// No more than this a system call.
constexpr std::size_t send_bytes = 1 * mib;

// So many small requests wait for the next advance() at most.
constexpr unsigned most_pushes_put_off = 16;

// Buffers of neighbouring parts are often neighbours too.
void add_chunk(iovec* chunks, std::size_t* count, std::byte* buffer, std::size_t bytes) {
  if (*count > 0) {
    iovec& last = chunks[*count - 1];
    if (static_cast<std::byte*>(last.iov_base) + last.iov_len == buffer) {
      last.iov_len += bytes;
      return;
    }
  }
  chunks[(*count)++] = {buffer, bytes};
}

// `front`, then the bytes of all parts.
std::uint64_t checksum_of(std::span<const std::byte> front, std::span<const message::part> parts) {
  std::array<hash_part, 1 + wire::maximum_batch> chunks;
  std::size_t count = 0;
  if (!front.empty()) chunks[count++] = {front.data(), front.size()};
  for (const message::part& part : parts) {
    hash_part* const last = count > 0 ? &chunks[count - 1] : nullptr;
    if (last != nullptr && static_cast<const std::byte*>(last->data) + last->bytes == part.buffer) {
      last->bytes += part.length_bytes;
    } else {
      chunks[count++] = {part.buffer, part.length_bytes};
    }
  }
  if (count == 1) return wire::checksum({static_cast<const std::byte*>(chunks[0].data), chunks[0].bytes});
  return wire::checksum_of_parts({chunks.data(), count});
}

}  // namespace

void tcp_connection::enqueue(transfer& added) {
  added.next = nullptr;
  (pending_last_ == nullptr ? pending_first_ : pending_last_->next) = &added;
  pending_last_ = &added;
}

void tcp_connection::push(const completion_sink* sink) {
  if (phase_ != phase::ready || session_.epoch() != epoch_) return;
  build(time_.now_ns(), sink);
  send();
}

// A system call a request is most of what a request costs, so those that come together leave together. While nothing is
// on its way, nothing is gained by waiting.
bool tcp_connection::push_soon(const completion_sink* sink) {
  if (pushes_ > 0 && pushes_ < most_pushes_put_off && pool_.first() != nullptr) {
    ++pushes_;
    return true;
  }
  push(sink);
  pushes_ = 1;
  return false;
}

// Ends the transfer at the front, which has failed, as soon as none of its messages is on its way any more.
void tcp_connection::pop_failed(const completion_sink* sink) {
  transfer& failed = *pending_first_;
  pending_first_ = failed.next;
  if (pending_first_ == nullptr) pending_last_ = nullptr;
  failed.placed_bytes = failed.io.length_bytes;
  if (failed.outstanding == 0) failed.owner->complete(failed, sink);
}

void tcp_connection::fail_pending(int code, const completion_sink* sink, std::uint32_t except_epoch) {
  transfer* current = pending_first_;
  pending_first_ = pending_last_ = nullptr;
  while (current != nullptr) {
    transfer& taken = *current;
    current = taken.next;
    if (taken.epoch == except_epoch) {
      enqueue(taken);
      continue;
    }
    taken.error_code = code;
    taken.placed_bytes = taken.io.length_bytes;
    if (taken.outstanding == 0) taken.owner->complete(taken, sink);
  }
}

void tcp_connection::build(std::uint64_t now_ns, const completion_sink* sink) {
  build_reserved(now_ns);
  while (pending_first_ != nullptr) {
    if (pending_first_->error_code != 0 || pending_first_->epoch != epoch_) {
      if (pending_first_->error_code == 0) pending_first_->error_code = ESTALE;
      pop_failed(sink);
      continue;
    }
    message* const outgoing = pool_.take();
    if (outgoing == nullptr) return;
    fill(*outgoing);
    encode(*outgoing);
    pool_.append(*outgoing);
    if (cursor_ == nullptr) cursor_ = outgoing;
  }
}

void tcp_connection::build_reserved(std::uint64_t now_ns) {
  control_request asked;
  if (control_ != nullptr && control_message_ == nullptr && control_->next(epoch_, now_ns, &asked)) {
    control_message_ = &pool_.take_reserved(0);
    control_message_->blocks = asked.blocks;
    add_reserved(*control_message_, asked.op, now_ns);
  }
  const bool silent = pool_.first() == nullptr && now_ns >= heard_ns_ + ping_after_ns();
  if (silent && ping_message_ == nullptr) {
    ping_message_ = &pool_.take_reserved(1);
    add_reserved(*ping_message_, wire::opcode::ping, now_ns);
  }
}

void tcp_connection::add_reserved(message& outgoing, wire::opcode op, std::uint64_t now_ns) {
  outgoing.op = op;
  outgoing.epoch = epoch_;
  outgoing.deadline_ns = now_ns + settings_.timeout_ns;
  encode(outgoing);
  pool_.append(outgoing);
  if (cursor_ == nullptr) cursor_ = &outgoing;
}

// Puts what waits at the front into the message, as far as it is of one kind.
void tcp_connection::fill(message& outgoing) {
  outgoing.op = pending_first_->io.op == operation::read ? wire::opcode::read : wire::opcode::write;
  outgoing.epoch = epoch_;
  outgoing.deadline_ns = pending_first_->deadline_ns;
  const operation op = pending_first_->io.op;
  // A message ends with the first of its deadlines, so what came much later goes into another.
  const std::uint64_t latest_ns = outgoing.deadline_ns + settings_.timeout_ns / 4;
  while (pending_first_ != nullptr && outgoing.part_count < wire::maximum_batch &&
         outgoing.data_bytes < most_data_bytes) {
    transfer& front = *pending_first_;
    if (front.io.op != op || front.epoch != epoch_ || front.error_code != 0 || front.deadline_ns > latest_ns) return;
    const std::uint64_t left = front.io.length_bytes - front.placed_bytes;
    const auto length =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(left, most_data_bytes - outgoing.data_bytes));
    outgoing.parts[outgoing.part_count++] = {&front, front.io.buffer + front.placed_bytes, length};
    const std::uint64_t position = front.io.offset_bytes + front.placed_bytes;
    const wire::range where{front.io.slot + position / page_bytes, static_cast<std::uint32_t>(position % page_bytes),
                            length};
    outgoing.ranges[outgoing.part_count - 1] = where;
    outgoing.data_bytes += length;
    outgoing.deadline_ns = std::min(outgoing.deadline_ns, front.deadline_ns);
    front.placed_bytes += length;
    ++front.outstanding;
    if (!front.placed()) return;
    pending_first_ = front.next;
    if (pending_first_ == nullptr) pending_last_ = nullptr;
  }
}

void tcp_connection::encode(message& outgoing) {
  const std::span<std::byte> payload = std::span(outgoing.prefix).subspan(wire::header_bytes);
  const std::span<const wire::range> ranges{outgoing.ranges.data(), outgoing.part_count};
  std::size_t bytes = 0;
  switch (outgoing.op) {
    case wire::opcode::read: bytes = wire::encode_read(ranges, payload); break;
    case wire::opcode::write: bytes = wire::encode_write_prefix(ranges, payload); break;
    case wire::opcode::allocate:
    case wire::opcode::free:
      wire::encode(outgoing.blocks,
                   std::span<std::byte, wire::block_range_bytes>(payload.data(), wire::block_range_bytes));
      bytes = wire::block_range_bytes;
      break;
    default: break;
  }
  outgoing.prefix_bytes = static_cast<std::uint32_t>(wire::header_bytes + bytes);
  const std::span<const message::part> data =
      outgoing.carries_data() ? outgoing.all() : std::span<const message::part>();
  const wire::header head{.op = outgoing.op,
                          .payload_bytes = static_cast<std::uint32_t>(outgoing.sent_bytes() - wire::header_bytes),
                          .cookie = outgoing.cookie,
                          .payload_checksum = bytes == 0 ? 0 : checksum_of(payload.first(bytes), data)};
  wire::encode(head, std::span<std::byte, wire::header_bytes>(outgoing.prefix.data(), wire::header_bytes));
}

void tcp_connection::send() {
  while (cursor_ != nullptr) {
    std::array<iovec, chunks_per_call> chunks;
    std::size_t total = 0;
    const std::size_t count = gather(chunks, &total);
    const std::ptrdiff_t sent = stream_->try_send({chunks.data(), count});
    if (sent < 0) return break_off(static_cast<int>(-sent), stream_->explanation());
    note_sent(static_cast<std::size_t>(sent));
    if (static_cast<std::size_t>(sent) < total) return;
  }
  if (!stream_->has_unsent()) return;
  const std::ptrdiff_t flushed = stream_->try_send({});
  if (flushed < 0) break_off(static_cast<int>(-flushed), stream_->explanation());
}

// Points at the bytes to send next, from the cursor on.
std::size_t tcp_connection::gather(std::span<iovec> chunks, std::size_t* total_bytes) const {
  std::size_t count = 0;
  std::size_t skip = cursor_bytes_;
  *total_bytes = 0;
  const auto add = [&](std::byte* buffer, std::size_t bytes) {
    const std::size_t skipped = std::min(skip, bytes);
    skip -= skipped;
    if (skipped == bytes) return;
    add_chunk(chunks.data(), &count, buffer + skipped, bytes - skipped);
    *total_bytes += bytes - skipped;
  };
  for (message* current = cursor_; current != nullptr; current = current->next) {
    // A message that does not fit as a whole waits for the next call; the first one always fits.
    if (count + 1 + current->part_count > chunks.size() || (count > 0 && *total_bytes >= send_bytes)) break;
    add(current->prefix.data(), current->prefix_bytes);
    if (!current->carries_data()) continue;
    for (const message::part& part : current->all()) add(part.buffer, part.length_bytes);
  }
  return count;
}

void tcp_connection::note_sent(std::size_t bytes) {
  cursor_bytes_ += bytes;
  while (cursor_ != nullptr && cursor_bytes_ >= cursor_->sent_bytes()) {
    cursor_bytes_ -= cursor_->sent_bytes();
    cursor_->sent = true;
    cursor_ = cursor_->next;
  }
}

void tcp_connection::receive(std::uint64_t now_ns, const completion_sink* sink) {
  while (phase_ == phase::ready) {
    std::array<iovec, chunks_per_call> chunks;
    std::size_t direct_bytes = 0;
    const std::size_t count = place_for_reply(chunks, &direct_bytes);
    const std::size_t room = direct_bytes + receive_buffer_bytes - received_end_;
    const std::ptrdiff_t outcome = stream_->try_receive({chunks.data(), count});
    if (outcome < 0) return break_off(static_cast<int>(-outcome), stream_->explanation());
    if (outcome == 0) return;
    const auto bytes = static_cast<std::size_t>(outcome);
    heard_ns_ = now_ns;
    if (direct_bytes > 0) skip_in_reply(std::min(bytes, direct_bytes));
    received_end_ += bytes - std::min(bytes, direct_bytes);
    if (!parse(now_ns, sink)) return break_off(EPROTO, "a reply was damaged, or broke the protocol");
    if (bytes < room) return;  // there is no more
  }
}

// Where the next bytes go: the rest of a large reply into the callers' buffers, what follows it into our own.
std::size_t tcp_connection::place_for_reply(std::span<iovec> chunks, std::size_t* direct_bytes) const {
  std::size_t count = 0;
  *direct_bytes = 0;
  if (reply_ != nullptr && received_begin_ == received_end_ && reply_left_bytes_ >= direct_bytes_from) {
    std::size_t skip = reply_part_bytes_;
    for (const message::part& part : reply_->all().subspan(reply_part_)) {
      add_chunk(chunks.data(), &count, part.buffer + skip, part.length_bytes - skip);
      skip = 0;
    }
    *direct_bytes = reply_left_bytes_;
  }
  chunks[count++] = {received_ + received_end_, receive_buffer_bytes - received_end_};
  return count;
}

// Returns false when the server broke the protocol, or a reply is damaged.
bool tcp_connection::parse(std::uint64_t now_ns, const completion_sink* sink) {
  while (true) {
    if (reply_ != nullptr) {
      copy_to_reply();
      if (reply_left_bytes_ > 0) break;
      message& answered = *reply_;
      reply_ = nullptr;
      if (checksum_of({}, answered.all()) != reply_checksum_) return false;
      if (!finish(answered, wire::status::ok, now_ns, sink)) return false;
    }
    if (received_end_ - received_begin_ < wire::header_bytes) break;
    if (!take_header(now_ns, sink)) return false;
  }
  // The rest is less than a header.
  const std::size_t left = received_end_ - received_begin_;
  if (left > 0 && received_begin_ > 0) std::memmove(received_, received_ + received_begin_, left);
  received_begin_ = 0;
  received_end_ = left;
  return true;
}

bool tcp_connection::take_header(std::uint64_t now_ns, const completion_sink* sink) {
  const std::optional<wire::header> head = wire::decode_header(
      std::span<const std::byte, wire::header_bytes>(received_ + received_begin_, wire::header_bytes));
  if (!head) return false;
  received_begin_ += wire::header_bytes;
  if (head->op == wire::opcode::draining && !head->is_reply) {
    if (control_ != nullptr) control_->draining(epoch_);
    return head->payload_bytes == 0;
  }
  message* const answered = pool_.find(head->cookie);
  if (answered == nullptr || !head->is_reply || head->op != answered->op || !answered->sent) return false;
  const bool with_bytes = head->result == wire::status::ok && answered->reply_bytes() > 0;
  if (head->payload_bytes != (with_bytes ? answered->reply_bytes() : 0)) return false;
  if (!with_bytes) return head->payload_checksum == 0 && finish(*answered, head->result, now_ns, sink);
  reply_ = answered;
  reply_checksum_ = head->payload_checksum;
  reply_part_ = reply_part_bytes_ = 0;
  reply_left_bytes_ = answered->reply_bytes();
  return true;
}

void tcp_connection::skip_in_reply(std::size_t bytes) {
  reply_left_bytes_ -= bytes;
  reply_part_bytes_ += bytes;
  while (reply_part_ < reply_->part_count && reply_part_bytes_ >= reply_->parts[reply_part_].length_bytes) {
    reply_part_bytes_ -= reply_->parts[reply_part_++].length_bytes;
  }
}

void tcp_connection::copy_to_reply() {
  while (reply_left_bytes_ > 0 && received_begin_ < received_end_) {
    const message::part& part = reply_->parts[reply_part_];
    const std::size_t step =
        std::min<std::size_t>(part.length_bytes - reply_part_bytes_, received_end_ - received_begin_);
    std::memcpy(part.buffer + reply_part_bytes_, received_ + received_begin_, step);
    received_begin_ += step;
    skip_in_reply(step);
  }
}

// Returns false when the message has to be sent again on another connection.
bool tcp_connection::finish(message& answered, wire::status outcome, std::uint64_t now_ns,
                            const completion_sink* sink) {
  if (outcome == wire::status::bad_checksum) return false;
  failures_ = 0;
  pool_.remove(answered);
  if (&answered == control_message_) {
    control_message_ = nullptr;
    const control_request asked{answered.op, answered.blocks};
    pool_.give_back(answered);
    control_->done(asked, epoch_, outcome, now_ns);
    return true;
  }
  if (&answered == ping_message_) ping_message_ = nullptr;
  // A slot that we hold and the server does not: its bytes are gone.
  const int code = outcome == wire::status::ok ? 0 : EIO;
  for (const message::part& part : answered.all()) finish_part(*part.owner, code, sink);
  pool_.give_back(answered);
  return true;
}

// Ends a message without an answer. Requires: no reply to it is coming in, or the connection breaks now.
void tcp_connection::fail(message& failed, int code, const completion_sink* sink) {
  if (&failed == control_message_) control_message_ = nullptr;
  if (&failed == ping_message_) ping_message_ = nullptr;
  pool_.remove(failed);
  for (const message::part& part : failed.all()) finish_part(*part.owner, code, sink);
  pool_.give_back(failed);
}

}  // namespace far::backend
