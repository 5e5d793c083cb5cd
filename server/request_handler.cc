#include "server/request_handler.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "server/event_log.h"
#include "server/extents.h"
#include "server/offload.h"
#include "wire/function.h"
#include "wire/packing.h"

namespace far::server {

using wire::header;
using wire::opcode;
using wire::status;

namespace {

// How many blocks are filled before the others of the loop have their turn: about a millisecond's worth.
constexpr std::uint64_t turn_blocks = 4;

// How often an allocation looks for blocks that are on their way back, and a request for blocks on disk.
constexpr std::uint64_t retry_ns = 200'000;

// How long an operation waits until all of its blocks are in memory. A client can do its work with reads.
constexpr std::uint64_t call_patience_ns = 1'000'000'000;

// What is looked at for a request that names these blocks: their entries in the session's table.
std::size_t looked_at_bytes(wire::block_range blocks) {
  return blocks.count * sizeof(std::uintptr_t);
}

std::optional<wire::block_range> blocks_in(std::span<const std::byte> payload) {
  if (payload.size() != wire::block_range_bytes) return std::nullopt;
  const wire::block_range blocks = wire::decode_block_range(payload.first<wire::block_range_bytes>());
  if (!session::can_name(blocks)) return std::nullopt;
  return blocks;
}

}  // namespace

request_handler::request_handler(store& lent, loop_counters& counters, reply_writer& replies, turn& share,
                                 std::uint64_t patience_ns, std::shared_ptr<device_host> devices)
    : store_(lent),
      counters_(counters),
      replies_(replies),
      turn_(share),
      devices_(devices),
      functions_(std::move(devices)),
      patience_ns_(patience_ns) {}

void request_handler::abandon() {
  if (allocating_) session_->abandon(allocation_);
  allocating_ = false;
  parked_.reset();
  devices_.abandon();
  functions_.abandon();
}

request_handler::outcome request_handler::handle(const header& head, std::span<const std::byte> payload,
                                                 std::uint64_t now_ns) {
  if (!is_under_way() && wire::is_request(head.op) && !head.is_reply &&
      wire::checksum(payload) != head.payload_checksum) {
    counters_.damaged_requests.add();
    reply(head, status::bad_checksum);
    return outcome::handled;
  }
  return on_request(head, payload, now_ns);
}

// A client that breaks the protocol is disconnected without a reply: nothing that it says after that can be relied on.
// Only allocations, and requests for blocks on disk, may take longer than the connection's turn, and then come back
// with the same message.
request_handler::outcome request_handler::on_request(const header& head, std::span<const std::byte> payload,
                                                     std::uint64_t now_ns) {
  const bool takes_nothing =
      head.op == opcode::capacity || head.op == opcode::ping || head.op == opcode::close || head.op == opcode::leaving;
  if (head.is_reply || (takes_nothing && !payload.empty())) {
    end(close_reason::malformed);
    return outcome::handled;
  }
  switch (head.op) {
    case opcode::read: return on_read(head, payload, now_ns);
    case opcode::write: return on_write(head, payload, now_ns);
    case opcode::allocate: return on_allocate(head, payload, now_ns);
    case opcode::free: on_free(head, payload); break;
    case opcode::capacity: on_capacity(head); break;
    case opcode::call: return on_call(head, payload, now_ns);
    case opcode::ping: reply(head, status::ok); break;
    case opcode::close: on_close(head); break;
    case opcode::leaving: store_.note_leaving(*session_); break;
    default: end(close_reason::malformed); break;
  }
  return outcome::handled;
}

request_handler::outcome request_handler::on_read(const header& head, std::span<const std::byte> payload,
                                                  std::uint64_t now_ns) {
  if (!wire::decode_read(payload, &batch_)) {
    end(close_reason::malformed);
    return outcome::handled;
  }
  std::byte* to = replies_.payload_space().data();
  const auto copy_out = [&](std::span<const std::byte> extent) {
    std::memcpy(to, extent.data(), extent.size());
    to += extent.size();
  };
  bool all_here = !parked_.is_waiting();
  for (std::size_t i = 0; all_here && i < batch_.count; ++i) {
    all_here = for_each_extent(*session_, batch_.ranges[i], copy_out);
  }
  if (!all_here) {
    const parked_request::step reached = settle(head, parked_.read(*session_, batch_, now_ns), now_ns);
    if (reached == parked_request::step::wait) return outcome::later;
    if (reached == parked_request::step::done) {
      std::memcpy(replies_.payload_space().data(), parked_.gathered().data(), batch_.total_bytes);
    }
    parked_.reset();
    if (reached != parked_request::step::done) return outcome::handled;
  }
  counters_.bytes_read.add(batch_.total_bytes);
  reply(head, status::ok, batch_.total_bytes);
  return outcome::handled;
}

request_handler::outcome request_handler::on_write(const header& head, std::span<const std::byte> payload,
                                                   std::uint64_t now_ns) {
  if (!wire::decode_write(payload, &batch_)) {
    end(close_reason::malformed);
    return outcome::handled;
  }
  const std::byte* from = batch_.bytes.data();
  const auto copy_in = [&](std::span<std::byte> extent) {
    std::memcpy(extent.data(), from, extent.size());
    from += extent.size();
  };
  bool all_here = !parked_.is_waiting();
  for (std::size_t i = 0; all_here && i < batch_.count; ++i) {
    all_here = for_each_extent(*session_, batch_.ranges[i], copy_in);
  }
  if (!all_here) {
    const parked_request::step reached = settle(head, parked_.write(*session_, batch_, now_ns), now_ns);
    if (reached == parked_request::step::wait) return outcome::later;
    parked_.reset();
    if (reached != parked_request::step::done) return outcome::handled;
  }
  counters_.bytes_written.add(batch_.total_bytes);
  reply(head, status::ok);
  return outcome::handled;
}

// A client gets an error for bytes that the disk does not return in time, and may use another copy. They are kept, and
// its next request tries again.
parked_request::step request_handler::settle(const header& head, parked_request::step reached, std::uint64_t now_ns) {
  using step = parked_request::step;
  if (reached == step::wait) {
    if (now_ns - std::min(now_ns, parked_.since_ns()) < patience_ns_) {
      turn_.retry_at_ns = now_ns + retry_ns;
      return reached;
    }
    log_limited("a request has waited for the spill file for " + format_duration(patience_ns_) + ", and is refused",
                now_ns);
    reached = step::unreadable;
  }
  if (reached == step::not_allocated) reply_not_allocated(head);
  if (reached == step::unreadable) reply(head, status::not_allocated);
  return reached;
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
  if (!allocation_.begun) turn_.charge(looked_at_bytes(allocation_.blocks));
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
  turn_.charge(looked_at_bytes(*wanted));
  const status freed = session_->free(*wanted);
  if (freed == status::not_allocated) return reply_not_allocated(head);
  reply(head, freed);
}

void request_handler::on_capacity(const header& head) {
  wire::encode(session_->report(), replies_.payload_space().first<wire::capacity_report_bytes>());
  reply(head, status::ok, wire::capacity_report_bytes);
}

request_handler::outcome request_handler::on_call(const header& head, std::span<const std::byte> payload,
                                                  std::uint64_t now_ns) {
  const std::optional<wire::call_request> asked = wire::decode_call(payload);
  if (!asked) {
    end(close_reason::malformed);
    return outcome::handled;
  }
  if (asked->name == wire::device_call_name && devices_.exist()) return on_device_call(head, asked->arguments, now_ns);
  if (asked->name == wire::function_call_name && devices_.exist()) {
    return on_function_call(head, asked->arguments, now_ns);
  }
  const offload* const named = find_offload(asked->name);
  if (named == nullptr) {
    reply(head, status::unknown_call);
    return outcome::handled;
  }
  offload::outcome got =
      named->run(*session_, asked->arguments, replies_.payload_space().first(wire::maximum_payload_bytes));
  turn_.charge(got.touched_bytes);
  if (got.result == status::not_allocated) {
    FAR_CHECK(named->ranges_of(asked->arguments, &batch_), "an operation has used arguments that it refuses");
    const parked_request::step reached = parked_.bring_all(*session_, batch_, now_ns);
    // Blocks that do not fit into memory together would never be here at the same time.
    const std::uint64_t patience_ns = std::min(call_patience_ns, patience_ns_);
    const bool fails = reached == parked_request::step::wait && now_ns - parked_.since_ns() >= patience_ns;
    if (!fails && settle(head, reached, now_ns) != parked_request::step::done) {
      if (reached == parked_request::step::wait) return outcome::later;
      parked_.reset();
      return outcome::handled;
    }
    if (!fails) {
      // They have come since.
      turn_.is_tired = true;
      return outcome::later;
    }
    got = {status::call_failed, 0, 0};
  }
  parked_.reset();
  const std::size_t result_bytes = got.result == status::ok ? got.result_bytes : 0;
  const std::size_t packed_bytes = got.is_worth_packing ? pack_result(result_bytes) : 0;
  const std::size_t reply_bytes = packed_bytes > 0 ? packed_bytes : result_bytes;
  counters_.bytes_called.add(payload.size() + reply_bytes);
  replies_.reply(head, got.result, reply_bytes, packed_bytes > 0);
  return outcome::handled;
}

// Of the result in payload_space(). Returns its length then; 0: it stays as it is.
std::size_t request_handler::pack_result(std::size_t bytes) {
  if (version_ < wire::first_version_that_packs) return 0;
  thread_local wire::packer of_loop;
  const std::span<std::byte> space = replies_.payload_space();
  const std::size_t packed = of_loop.pack(space.first(bytes), space.subspan(bytes));
  std::memmove(space.data(), space.data() + bytes, packed);
  turn_.charge(bytes);
  return packed;
}

request_handler::outcome request_handler::on_device_call(const header& head, std::span<const std::byte> arguments,
                                                         std::uint64_t now_ns) {
  if (const std::optional<wire::device_request> asked = wire::decode_device_request(arguments);
      asked && devices_.may_hand_over(*session_, *asked)) {
    handed_to_ = asked->device;
    handed_cookie_ = head.cookie;
    end(close_reason::handed_over);
    return outcome::handled;
  }
  const device_calls::progress got =
      devices_.go_on(*session_, arguments, now_ns, replies_.payload_space().first(wire::maximum_payload_bytes));
  if (got.retry_at_ns != 0) {
    turn_.retry_at_ns = got.retry_at_ns;
    return outcome::later;
  }
  counters_.bytes_called.add(arguments.size() + got.reply_bytes);
  reply(head, got.result, got.reply_bytes);
  return outcome::handled;
}

request_handler::outcome request_handler::on_function_call(const header& head, std::span<const std::byte> arguments,
                                                           std::uint64_t now_ns) {
  const function_calls::progress got =
      functions_.go_on(*session_, arguments, now_ns, replies_.payload_space().first(wire::maximum_payload_bytes));
  if (got.retry_at_ns != 0) {
    turn_.retry_at_ns = got.retry_at_ns;
    return outcome::later;
  }
  turn_.charge(got.touched_bytes);
  counters_.bytes_called.add(arguments.size() + got.reply_bytes);
  if (got.result == status::not_allocated) {
    reply_not_allocated(head);
  } else {
    reply(head, got.result, got.reply_bytes);
  }
  return outcome::handled;
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
