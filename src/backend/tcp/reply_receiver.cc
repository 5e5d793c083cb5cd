#include "backend/tcp/reply_receiver.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "backend/tcp/message_chunks.h"
#include "base/check.h"
#include "base/units.h"
#include "platform/local_memory.h"

namespace far::backend {
namespace {

// If more than this of a reply is missing, it is received straight into the callers' buffers. Less is copied out of our
// own buffer, where it arrives together with others.
constexpr std::size_t direct_bytes_from = 8 * kib;

static_assert(wire::maximum_batch * most_answer_bytes <= wire::most_unpacked_bytes, "any reply may come packed");

}  // namespace

reply_receiver::reply_receiver(std::size_t buffer_bytes)
    : buffer_bytes_(buffer_bytes), received_(platform::map_local(buffer_bytes)) {
  FAR_CHECK(buffer_bytes > wire::most_packed_bytes, "a packed reply, and more, fits into the buffer");
}

reply_receiver::~reply_receiver() {
  platform::unmap_local(received_, buffer_bytes_);
}

std::size_t reply_receiver::place(std::span<iovec> chunks, std::size_t* direct_bytes) const {
  std::size_t count = 0;
  *direct_bytes = 0;
  if (reply_ != nullptr && begin_ == end_ && reply_left_bytes_ >= direct_bytes_from) {
    std::size_t skip = reply_part_bytes_;
    for (const message::part& part : reply_->all().subspan(reply_part_)) {
      add_chunk(chunks.data(), &count, part.buffer + skip, part.length_bytes - skip);
      skip = 0;
    }
    *direct_bytes = reply_left_bytes_;
  }
  chunks[count++] = {received_ + end_, buffer_bytes_ - end_};
  return count;
}

void reply_receiver::note_received(std::size_t bytes, std::size_t direct_bytes) {
  if (direct_bytes > 0) skip_in_reply(std::min(bytes, direct_bytes));
  end_ += bytes - std::min(bytes, direct_bytes);
}

bool reply_receiver::parse(request_messages& requests, transfer_queue& pending, std::uint32_t epoch,
                           std::uint64_t now_ns, const completion_sink* sink) {
  while (true) {
    if (reply_ != nullptr) {
      copy_to_reply();
      if (reply_left_bytes_ > 0 || end_ - begin_ < reply_packed_bytes_) break;
      if (reply_packed_bytes_ > 0 ? !unpack_reply() : !is_reply_sound()) return false;
      if (!requests.finish(*std::exchange(reply_, nullptr), wire::status::ok, pending, epoch, now_ns, sink))
        return false;
    }
    if (end_ - begin_ < wire::header_bytes) break;
    if (!take_header(requests, pending, epoch, now_ns, sink)) return false;
  }
  // The rest is less than a header, or a packed reply.
  const std::size_t left = end_ - begin_;
  if (left > 0 && begin_ > 0) std::memmove(received_, received_ + begin_, left);
  begin_ = 0;
  end_ = left;
  return true;
}

bool reply_receiver::take_header(request_messages& requests, transfer_queue& pending, std::uint32_t epoch,
                                 std::uint64_t now_ns, const completion_sink* sink) {
  const std::optional<wire::header> head =
      wire::decode_header(std::span<const std::byte, wire::header_bytes>(received_ + begin_, wire::header_bytes));
  if (!head) return false;
  begin_ += wire::header_bytes;
  if (head->op == wire::opcode::draining && !head->is_reply) {
    requests.note_draining(epoch);
    return head->payload_bytes == 0;
  }
  message* const answered = requests.find(head->cookie);
  if (answered == nullptr || !head->is_reply || head->op != answered->op || !answered->sent) return false;
  const bool with_bytes = head->result == wire::status::ok && answered->reply_bytes() > 0;
  const std::size_t whole_bytes = with_bytes ? answered->reply_bytes() : 0;
  const bool has_length = head->is_packed ? head->payload_bytes < std::min(whole_bytes, wire::most_packed_bytes + 1)
                                          : head->payload_bytes == whole_bytes;
  if (!has_length) return false;
  if (!with_bytes)
    return head->payload_checksum == 0 && requests.finish(*answered, head->result, pending, epoch, now_ns, sink);
  reply_ = answered;
  reply_checksum_ = head->payload_checksum;
  reply_part_ = reply_part_bytes_ = 0;
  reply_left_bytes_ = head->is_packed ? 0 : whole_bytes;
  reply_packed_bytes_ = head->is_packed ? head->payload_bytes : 0;
  return true;
}

void reply_receiver::skip_in_reply(std::size_t bytes) {
  reply_left_bytes_ -= bytes;
  reply_part_bytes_ += bytes;
  while (reply_part_ < reply_->part_count && reply_part_bytes_ >= reply_->parts[reply_part_].length_bytes) {
    reply_part_bytes_ -= reply_->parts[reply_part_++].length_bytes;
  }
}

void reply_receiver::copy_to_reply() {
  while (reply_left_bytes_ > 0 && begin_ < end_) {
    const message::part& part = reply_->parts[reply_part_];
    const std::size_t step = std::min<std::size_t>(part.length_bytes - reply_part_bytes_, end_ - begin_);
    std::memcpy(part.buffer + reply_part_bytes_, received_ + begin_, step);
    begin_ += step;
    skip_in_reply(step);
  }
}

bool reply_receiver::is_reply_sound() const {
  const auto bytes_of = [&](std::size_t i) -> std::span<const std::byte> {
    return {reply_->parts[i].buffer, reply_->parts[i].length_bytes};
  };
  return checksum_of({}, reply_->part_count, bytes_of) == reply_checksum_;
}

// Requires: all of it is in the buffer. Returns whether it was the bytes that the callers wait for.
bool reply_receiver::unpack_reply() {
  const std::span<const std::byte> packed = filled().first(reply_packed_bytes_);
  if (wire::checksum(packed) != reply_checksum_) return false;
  std::span<const std::byte> bytes = unpacker_.unpack(packed, reply_->reply_bytes());
  if (bytes.empty()) return false;
  for (const message::part& part : reply_->all()) {
    std::memcpy(part.buffer, bytes.data(), part.length_bytes);
    bytes = bytes.subspan(part.length_bytes);
  }
  take(reply_packed_bytes_);
  return true;
}

void reply_receiver::reset() {
  begin_ = end_ = 0;
  reply_ = nullptr;
}

void reply_receiver::validate(bool is_ready) const {
  FAR_CHECK(reply_ == nullptr || (is_ready && reply_->sent), "a reply belongs to a sent request");
}

}  // namespace far::backend
