#include "server/reply_writer.h"

#include <algorithm>

namespace far::server {
namespace {

using wire::header_bytes;

constexpr std::size_t longest_message_bytes = header_bytes + wire::maximum_payload_bytes;
constexpr std::size_t out_bytes = 3 * longest_message_bytes;

// A client that reads fewer bytes of its replies than this within its time limit is a slow reader.
constexpr std::uint64_t least_read_bytes = 64 * kib;

}  // namespace

reply_writer::reply_writer(loop_counters& counters, turn& share) : counters_(counters), turn_(share), out_(out_bytes) {}

bool reply_writer::has_room() const {
  return out_.room() >= longest_message_bytes;
}

void reply_writer::append(wire::header head, std::size_t payload_bytes) {
  head.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  head.payload_checksum = wire::checksum(payload_space().first(payload_bytes));
  wire::encode(head, out_.space().first<header_bytes>());
  out_.add(header_bytes + payload_bytes);
  turn_.charge(payload_bytes);
}

void reply_writer::reply(const wire::header& request, wire::status result, std::size_t payload_bytes, bool is_packed) {
  append({.op = request.op, .is_reply = true, .result = result, .cookie = request.cookie, .is_packed = is_packed},
         payload_bytes);
  ++answered_;
  counters_.requests[static_cast<std::size_t>(request.op) - first_request].add();
  if (result != wire::status::ok) counters_.failed_requests.add();
}

void reply_writer::append_encoded(std::span<const std::byte> message) {
  std::copy(message.begin(), message.end(), out_.space().begin());
  out_.add(message.size());
}

void reply_writer::sent(std::size_t bytes, std::uint64_t now_ns) {
  out_.remove(bytes);
  out_.make_some_room();
  read_bytes_ += bytes;
  if (out_.empty() || read_bytes_ >= least_read_bytes) {
    unread_since_ns_ = out_.empty() ? turn::never : now_ns;
    read_bytes_ = 0;
  }
}

void reply_writer::note_waiting(std::uint64_t now_ns) {
  if (out_.empty() || unread_since_ns_ != turn::never) return;
  unread_since_ns_ = now_ns;
  read_bytes_ = 0;
}

void reply_writer::release_memory() {
  if (out_.empty()) out_.release_memory(0);
}

}  // namespace far::server
