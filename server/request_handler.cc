#include "server/request_handler.h"

#include <cstring>
#include <optional>

#include "server/extents.h"
#include "server/offload.h"

namespace far::server {

using wire::header;
using wire::opcode;
using wire::status;

namespace {

// How many blocks are filled before the others of the loop have their turn: about a millisecond's worth.
constexpr std::uint64_t turn_blocks = 4;

// How long an allocation waits for blocks that are on their way back.
constexpr std::uint64_t retry_ns = 200'000;

std::optional<wire::block_range> blocks_in(std::span<const std::byte> payload) {
  if (payload.size() != wire::block_range_bytes) return std::nullopt;
  const wire::block_range blocks = wire::decode_block_range(payload.first<wire::block_range_bytes>());
  if (!session::can_name(blocks)) return std::nullopt;
  return blocks;
}

}  // namespace

request_handler::request_handler(store& lent, loop_counters& counters, reply_writer& replies, turn& share)
    : store_(lent), counters_(counters), replies_(replies), turn_(share) {}

void request_handler::abandon() {
  if (allocating_) session_->abandon(allocation_);
  allocating_ = false;
}

request_handler::outcome request_handler::handle(const header& head, std::span<const std::byte> payload,
                                                 std::uint64_t now_ns) {
  if (!allocating_ && wire::is_request(head.op) && !head.is_reply && wire::checksum(payload) != head.payload_checksum) {
    counters_.damaged_requests.add();
    reply(head, status::bad_checksum);
    return outcome::handled;
  }
  return on_request(head, payload, now_ns);
}

// A client that breaks the protocol is disconnected without a reply: nothing that it says after that can be relied on.
// Only an allocation may take longer than the connection's turn, and then comes back with the same message.
request_handler::outcome request_handler::on_request(const header& head, std::span<const std::byte> payload,
                                                     std::uint64_t now_ns) {
  const bool takes_nothing =
      head.op == opcode::capacity || head.op == opcode::ping || head.op == opcode::close || head.op == opcode::leaving;
  if (head.is_reply || (takes_nothing && !payload.empty())) {
    end(close_reason::malformed);
    return outcome::handled;
  }
  switch (head.op) {
    case opcode::read: on_read(head, payload); break;
    case opcode::write: on_write(head, payload); break;
    case opcode::allocate: return on_allocate(head, payload, now_ns);
    case opcode::free: on_free(head, payload); break;
    case opcode::capacity: on_capacity(head); break;
    case opcode::call: on_call(head, payload); break;
    case opcode::ping: reply(head, status::ok); break;
    case opcode::close: on_close(head); break;
    case opcode::leaving: store_.note_leaving(*session_); break;
    default: end(close_reason::malformed); break;
  }
  return outcome::handled;
}

void request_handler::on_read(const header& head, std::span<const std::byte> payload) {
  if (!wire::decode_read(payload, &batch_)) return end(close_reason::malformed);
  std::byte* to = replies_.payload_space().data();
  for (const wire::range& range : batch_.all()) {
    const auto copy_out = [&](std::span<const std::byte> extent) {
      std::memcpy(to, extent.data(), extent.size());
      to += extent.size();
    };
    if (!for_each_extent(*session_, range, copy_out)) return reply_not_allocated(head);
  }
  counters_.bytes_read.add(batch_.total_bytes);
  reply(head, status::ok, batch_.total_bytes);
}

void request_handler::on_write(const header& head, std::span<const std::byte> payload) {
  if (!wire::decode_write(payload, &batch_)) return end(close_reason::malformed);
  const std::byte* from = batch_.bytes.data();
  for (const wire::range& range : batch_.all()) {
    const auto copy_in = [&](std::span<std::byte> extent) {
      std::memcpy(extent.data(), from, extent.size());
      from += extent.size();
    };
    if (!for_each_extent(*session_, range, copy_in)) return reply_not_allocated(head);
  }
  counters_.bytes_written.add(batch_.total_bytes);
  reply(head, status::ok);
}

// Blocks are filled with zeros as they are lent, which takes long for many. So a call does no more than a turn's share,
// and the same request is handled again until it is done; `allocation_` has its progress.
request_handler::outcome request_handler::on_allocate(const header& head, std::span<const std::byte> payload,
                                                      std::uint64_t now_ns) {
  if (!allocating_) {
    const std::optional<wire::block_range> wanted = blocks_in(payload);
    if (!wanted) {
      end(close_reason::malformed);
      return outcome::handled;
    }
    allocation_ = {.blocks = *wanted};
    allocating_ = true;
  }
  const session::step got = session_->allocate_some(allocation_, turn_blocks);
  if (got.at != session::progress::done) {
    turn_.is_tired = got.at == session::progress::more;
    if (got.at == session::progress::wait) turn_.retry_at_ns = now_ns + retry_ns;
    return outcome::later;
  }
  allocating_ = false;
  reply(head, got.result);
  return outcome::handled;
}

void request_handler::on_free(const header& head, std::span<const std::byte> payload) {
  const std::optional<wire::block_range> wanted = blocks_in(payload);
  if (!wanted) return end(close_reason::malformed);
  const status freed = session_->free(*wanted);
  if (freed == status::not_allocated) return reply_not_allocated(head);
  reply(head, freed);
}

void request_handler::on_capacity(const header& head) {
  wire::encode(session_->report(), replies_.payload_space().first<wire::capacity_report_bytes>());
  reply(head, status::ok, wire::capacity_report_bytes);
}

void request_handler::on_call(const header& head, std::span<const std::byte> payload) {
  const std::optional<wire::call_request> asked = wire::decode_call(payload);
  if (!asked) return end(close_reason::malformed);
  const offload* const named = find_offload(asked->name);
  if (named == nullptr) return reply(head, status::unknown_call);
  const offload::outcome got =
      named->run(*session_, asked->arguments, replies_.payload_space().first(wire::maximum_payload_bytes));
  turn_.charge(got.touched_bytes);
  if (got.result == status::not_allocated) return reply_not_allocated(head);
  reply(head, got.result, got.result == status::ok ? got.result_bytes : 0);
}

void request_handler::on_close(const header& head) {
  store_.end(*session_);
  reply(head, status::ok);
  flushes_ = true;
  end(close_reason::session_closed);
}

void request_handler::reply(const header& request, status result, std::size_t payload_bytes) {
  replies_.reply(request, result, payload_bytes);
}

void request_handler::reply_not_allocated(const header& request) {
  reply(request, status::not_allocated);
  flushes_ = true;
  end(close_reason::foreign_slot);
}

}  // namespace far::server
