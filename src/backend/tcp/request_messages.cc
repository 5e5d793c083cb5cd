#include "backend/tcp/request_messages.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "backend/tcp/message_chunks.h"
#include "base/check.h"
#include "base/units.h"

namespace far::backend {
namespace {

// A message carries at most this much, so that the server can work on one while the next is on its way.
constexpr std::size_t most_data_bytes = 256 * kib;
// A question about a page is never divided: its answer is about a whole part.
static_assert(wire::maximum_batch * most_answer_bytes + page_bytes <= most_data_bytes);

// No more than this a system call.
constexpr std::size_t send_bytes = 1 * mib;

wire::opcode opcode_of(const request& io) {
  if (io.reduce != nullptr) return wire::opcode::call;
  return io.op == operation::read ? wire::opcode::read : wire::opcode::write;
}

// Whether one message can carry both.
bool is_like(const request& a, const request& b) {
  if (a.reduce == nullptr || b.reduce == nullptr) return a.op == b.op && a.reduce == b.reduce;
  return a.reduce->is_like(*b.reduce);
}

}  // namespace

void request_messages::build(transfer_queue& pending, std::uint32_t epoch, bool wants_ping, std::uint64_t now_ns,
                             const completion_sink* sink) {
  build_reserved(epoch, wants_ping, now_ns);
  while (pending.drop_failed(epoch, sink)) {
    message* const outgoing = pool_.take();
    if (outgoing == nullptr) return;
    fill(*outgoing, pending, epoch);
    encode(*outgoing);
    pool_.append(*outgoing);
    alone_ += outgoing->is_alone ? 1 : 0;
    if (cursor_ == nullptr) cursor_ = outgoing;
  }
}

void request_messages::build_reserved(std::uint32_t epoch, bool wants_ping, std::uint64_t now_ns) {
  control_request asked;
  if (control_ != nullptr && control_message_ == nullptr && control_->next(epoch, now_ns, &asked)) {
    control_message_ = &pool_.take_reserved(0);
    control_message_->blocks = asked.blocks;
    add_reserved(*control_message_, asked.op, epoch, now_ns);
  }
  const bool silent = pool_.first() == nullptr && wants_ping;
  if (silent && ping_message_ == nullptr) {
    ping_message_ = &pool_.take_reserved(1);
    add_reserved(*ping_message_, wire::opcode::ping, epoch, now_ns);
  }
}

void request_messages::add_reserved(message& outgoing, wire::opcode op, std::uint32_t epoch, std::uint64_t now_ns) {
  outgoing.op = op;
  outgoing.epoch = epoch;
  outgoing.deadline_ns = now_ns + timeout_ns_;
  encode(outgoing);
  pool_.append(outgoing);
  if (cursor_ == nullptr) cursor_ = &outgoing;
}

// Puts waiting transfers from the front into the message, as long as they are of one kind.
void request_messages::fill(message& outgoing, transfer_queue& pending, std::uint32_t epoch) const {
  const request first = pending.front().io;
  outgoing.op = opcode_of(first);
  outgoing.epoch = epoch;
  outgoing.deadline_ns = pending.front().deadline_ns;
  outgoing.is_alone = pending.front().is_alone;
  // A message ends with the first of its deadlines, so what came much later goes into another.
  const std::uint64_t latest_ns = outgoing.deadline_ns + timeout_ns_ / 4;
  while (!pending.empty() && outgoing.part_count < wire::maximum_batch && outgoing.data_bytes < most_data_bytes) {
    transfer& front = pending.front();
    if (!is_like(front.io, first) || front.epoch != epoch || front.error_code != 0 || front.deadline_ns > latest_ns) {
      return;
    }
    if (outgoing.part_count > 0 && (outgoing.is_alone || front.is_alone)) return;
    const std::size_t slots = front.io.reduce != nullptr ? front.io.reduce->slots.size() : 0;
    if (outgoing.slot_count + slots > wire::maximum_batch) return;
    outgoing.slot_count += static_cast<std::uint32_t>(slots);
    const std::uint64_t left = front.io.length_bytes - front.placed_bytes;
    const auto length =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(left, most_data_bytes - outgoing.data_bytes));
    const std::uint32_t moved = first.reduce == nullptr ? length : first.moved_bytes();
    outgoing.parts[outgoing.part_count++] = {&front, front.io.buffer + front.placed_bytes, moved};
    const std::uint64_t position = front.io.offset_bytes + front.placed_bytes;
    const wire::range where{front.io.slot + position / page_bytes, static_cast<std::uint32_t>(position % page_bytes),
                            length};
    outgoing.ranges[outgoing.part_count - 1] = where;
    outgoing.data_bytes += moved;
    if (first.reduce != nullptr && detail::has_groups(first.reduce->how.kind)) {
      outgoing.group_bytes += static_cast<std::uint32_t>(packed_group_bytes(first.reduce->how, length));
    }
    outgoing.deadline_ns = std::min(outgoing.deadline_ns, front.deadline_ns);
    front.placed_bytes += length;
    ++front.outstanding;
    if (!front.placed()) return;
    pending.pop();
  }
}

// What comes behind a function on the connection waits for it, so it gets a part of the time that a request may take.
std::size_t request_messages::encode_question(const message& outgoing, std::span<std::byte> to) const {
  const page_reduction& asked = *outgoing.parts[0].owner->io.reduce;
  const std::span<const wire::range> ranges{outgoing.ranges.data(), outgoing.part_count};
  if (asked.how.kind == reduction_kind::of_rows) {
    std::array<std::uint64_t, wire::maximum_batch> slots;
    auto end = slots.begin();
    for (const message::part& part : outgoing.all()) end = std::ranges::copy(part.owner->io.reduce->slots, end).out;
    return wire::encode_rows(asked, {slots.begin(), end}, to);
  }
  if (is_built_in(asked.how)) {
    return wire::encode_reduction(asked, ranges, version_ >= wire::first_version_that_joins, to);
  }
  const std::uint64_t deadline_ms = std::clamp<std::uint64_t>(timeout_ns_ / 8'000'000, 1, 1'000);
  return wire::encode_function(asked, ranges, static_cast<std::uint32_t>(deadline_ms), to);
}

void request_messages::encode(message& outgoing) const {
  const std::span<std::byte> payload = std::span(outgoing.prefix).subspan(wire::header_bytes);
  const std::span<const wire::range> ranges{outgoing.ranges.data(), outgoing.part_count};
  std::size_t bytes = 0;
  switch (outgoing.op) {
    case wire::opcode::read: bytes = wire::encode_read(ranges, payload); break;
    case wire::opcode::write: bytes = wire::encode_write_prefix(ranges, payload); break;
    case wire::opcode::call: bytes = encode_question(outgoing, payload); break;
    case wire::opcode::allocate:
    case wire::opcode::free:
      wire::encode(outgoing.blocks,
                   std::span<std::byte, wire::block_range_bytes>(payload.data(), wire::block_range_bytes));
      bytes = wire::block_range_bytes;
      break;
    default: break;
  }
  outgoing.prefix_bytes = static_cast<std::uint32_t>(wire::header_bytes + bytes);
  const auto sum = [&] {
    const auto bytes_of = [&](std::size_t i) { return outgoing.sent_of(i); };
    return checksum_of(payload.first(bytes), outgoing.sends_parts() ? outgoing.part_count : 0, bytes_of);
  };
  const wire::header head{.op = outgoing.op,
                          .payload_bytes = static_cast<std::uint32_t>(outgoing.sent_bytes() - wire::header_bytes),
                          .cookie = outgoing.cookie,
                          .payload_checksum = bytes == 0 ? 0 : sum()};
  wire::encode(head, std::span<std::byte, wire::header_bytes>(outgoing.prefix.data(), wire::header_bytes));
}

std::size_t request_messages::gather(std::span<iovec> chunks, std::size_t* total_bytes) const {
  std::size_t count = 0;
  std::size_t skip = cursor_bytes_;
  *total_bytes = 0;
  const auto add = [&](std::span<const std::byte> sent) {
    const std::size_t skipped = std::min(skip, sent.size());
    skip -= skipped;
    if (skipped == sent.size()) return;
    // iovec serves both directions; the kernel only reads these.
    add_chunk(chunks.data(), &count, const_cast<std::byte*>(sent.data()) + skipped, sent.size() - skipped);
    *total_bytes += sent.size() - skipped;
  };
  for (message* current = cursor_; current != nullptr; current = current->next) {
    // A message that does not fit as a whole waits for the next call; the first one always fits.
    if (count + 1 + current->part_count > chunks.size() || (count > 0 && *total_bytes >= send_bytes)) break;
    add({current->prefix.data(), current->prefix_bytes});
    if (!current->sends_parts()) continue;
    for (std::size_t i = 0; i < current->part_count; ++i) add(current->sent_of(i));
  }
  return count;
}

void request_messages::note_sent(std::size_t bytes) {
  cursor_bytes_ += bytes;
  while (cursor_ != nullptr && cursor_bytes_ >= cursor_->sent_bytes()) {
    cursor_bytes_ -= cursor_->sent_bytes();
    cursor_->sent = true;
    cursor_ = cursor_->next;
  }
}

void request_messages::rewind() {
  for (message* current = pool_.first(); current != nullptr; current = current->next) current->sent = false;
  cursor_ = pool_.first();
  cursor_bytes_ = 0;
}

// EIO: a slot that we hold and the server does not, or that its disk does not return. A call fails when its blocks do
// not come from the disk in time; the next one may be answered.
int request_messages::code_of(wire::status outcome) {
  switch (outcome) {
    case wire::status::ok: return 0;
    case wire::status::unknown_call: return ENOTSUP;
    case wire::status::call_failed: return EAGAIN;
    default: return EIO;
  }
}

bool request_messages::finish(message& answered, wire::status outcome, transfer_queue& pending, std::uint32_t epoch,
                              std::uint64_t now_ns, const completion_sink* sink) {
  if (outcome == wire::status::bad_checksum) return false;
  answered_ = true;
  take_out(answered);
  if (&answered == control_message_) {
    control_message_ = nullptr;
    const control_request asked{answered.op, answered.blocks};
    pool_.give_back(answered);
    control_->done(asked, epoch, outcome, now_ns);
    return true;
  }
  if (&answered == ping_message_) ping_message_ = nullptr;
  const int code = code_of(outcome);
  if (code == EIO && answered.part_count > 1) {
    divide(answered, pending, sink);
  } else {
    for (const message::part& part : answered.all()) finish_part(*part.owner, code, sink);
  }
  pool_.give_back(answered);
  return true;
}

// They begin anew, also where other messages carry parts of them: the same bytes come twice then, which does no harm.
void request_messages::divide(const message& refused, transfer_queue& pending, const completion_sink* sink) {
  for (const message::part& part : refused.all()) {
    transfer& owner = *part.owner;
    if (owner.is_alone || owner.error_code != 0) {
      // It has begun anew since, or has failed.
      finish_part(owner, 0, sink);
      continue;
    }
    owner.is_alone = true;
    --owner.outstanding;
    if (owner.placed()) pending.put_back(owner);
    owner.placed_bytes = 0;
  }
}

void request_messages::take_out(message& ended) {
  pool_.remove(ended);
  alone_ -= ended.is_alone ? 1 : 0;
}

void request_messages::note_draining(std::uint32_t epoch) {
  if (control_ != nullptr) control_->draining(epoch);
}

bool request_messages::take_answered() {
  return std::exchange(answered_, false);
}

// Ends a message without an answer.
void request_messages::fail(message& failed, int code, const completion_sink* sink) {
  if (&failed == control_message_) control_message_ = nullptr;
  if (&failed == ping_message_) ping_message_ = nullptr;
  take_out(failed);
  for (const message::part& part : failed.all()) finish_part(*part.owner, code, sink);
  pool_.give_back(failed);
}

void request_messages::fail_all_but(std::uint32_t kept_epoch, int code, const completion_sink* sink) {
  for (message* current = pool_.first(); current != nullptr;) {
    message& stale = *current;
    current = stale.next;
    if (stale.epoch != kept_epoch) fail(stale, code, sink);
  }
  restart_cursor();
}

std::uint64_t request_messages::first_deadline_ns() const {
  std::uint64_t first_ns = std::numeric_limits<std::uint64_t>::max();
  for (const message* current = pool_.first(); current != nullptr; current = current->next) {
    first_ns = std::min(first_ns, current->deadline_ns);
    if (is_before_others(*current)) break;
  }
  return first_ns;
}

bool request_messages::expire(std::uint64_t now_ns, const completion_sink* sink) {
  bool overdue = false;
  // Transfers are in the order of deadlines, but for those that are sent again, alone. A control message is repeated
  // until it is answered, and stays in its place.
  for (message* current = pool_.first(); current != nullptr;) {
    message& late = *current;
    current = late.next;
    if (now_ns < late.deadline_ns) {
      if (is_before_others(late)) break;
      continue;
    }
    overdue = true;
    if (late.part_count == 0) {
      late.deadline_ns = now_ns + timeout_ns_;
    } else {
      fail(late, ETIMEDOUT, sink);
    }
  }
  return overdue;
}

void request_messages::reset() {
  control_ = nullptr;
  control_message_ = ping_message_ = nullptr;
  pool_.reset();
  alone_ = 0;
  cursor_ = nullptr;
  cursor_bytes_ = 0;
}

void request_messages::validate(std::uint32_t epoch, bool is_ready) const {
  bool sent = true;
  std::size_t alone = 0;
  for (const message* current = pool_.first(); current != nullptr; current = current->next) {
    FAR_CHECK(current->in_use && pool_.find(current->cookie) == current, "a listed message is in use");
    FAR_CHECK(current->epoch == epoch, "messages are of the connection's epoch");
    if (current == cursor_) sent = false;
    FAR_CHECK(!current->is_alone || current->part_count == 1, "who is alone shares no message");
    alone += current->is_alone ? 1 : 0;
    FAR_CHECK(current->sent == sent || !is_ready, "messages are sent in their order");
    std::size_t bytes = 0;
    for (const message::part& part : current->all()) {
      FAR_CHECK(part.owner->outstanding > 0, "a transfer knows that a message holds a part of it");
      bytes += part.length_bytes;
    }
    FAR_CHECK(bytes == current->data_bytes, "a message counts its bytes");
  }
  FAR_CHECK(alone == alone_, "messages that carry one transfer alone are counted");
  FAR_CHECK(!is_ready || (cursor_ == nullptr) == sent, "the cursor stands at the first unsent message");
}

}  // namespace far::backend
