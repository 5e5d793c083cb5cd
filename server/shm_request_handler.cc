#include "server/shm_request_handler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "server/extents.h"
#include "server/offload.h"
#include "wire/rendezvous.h"

namespace far::server {

using wire::fragment_bytes;
using wire::ring_operation;
using wire::ring_reply;
using wire::ring_request;
using wire::status;

namespace {

// The work that one connection may do before the others have their turn.
constexpr unsigned turn_requests = 32;

// How often an allocation and a delayed request are looked at.
constexpr std::uint64_t soon_ns = 1'000'000;

}  // namespace

shm_request_handler::shm_request_handler(loop_counters& counters, shm_rings& rings, session& served, shm_memory& memory,
                                         int socket, std::shared_ptr<device_host> devices)
    : counters_(counters),
      rings_(rings),
      session_(served),
      memory_(memory),
      socket_(socket),
      devices_(std::move(devices)) {}

void shm_request_handler::abandon() {
  if (step_.begun) session_.abandon(step_);
  devices_.abandon();
}

std::uint64_t shm_request_handler::due_at_ns(std::uint64_t now_ns) const {
  if (calling_) return call_again_at_ns_;
  return allocating_ || delayed_until_ns_ != 0 ? now_ns + soon_ns : turn::never;
}

void shm_request_handler::end(close_reason reason) {
  if (reason_ == close_reason::none) reason_ = reason;
}

std::uint64_t shm_request_handler::moved_bytes() const {
  return counters_.bytes_read.value() + counters_.bytes_written.value() + counters_.bytes_called.value();
}

// Takes no more requests than there is room for replies, so that each can be answered, and no more than a turn's
// number, so that one client does not starve the others.
bool shm_request_handler::work(std::uint64_t now_ns) {
  bool progress = false;
  unsigned replies = 0;
  if (allocating_) {
    progress = go_on_allocating();
    replies += allocating_ ? 0 : 1;
  }
  if (calling_ && go_on_calling(now_ns)) {
    progress = true;
    replies += 1;
  }
  const bool may_take = is_busy() || !is_delayed(now_ns);
  wire::ring_entry entry;
  // Without room for the reply, requests wait: a client that does not read harms only itself.
  for (std::uint32_t room = rings_.replies.room(); may_take && replies < std::min(turn_requests, room) && !is_busy() &&
                                                   reason_ == close_reason::none && rings_.requests.take(entry);) {
    const std::uint64_t moved_before = moved_bytes();
    handle(std::bit_cast<ring_request>(entry));
    const bool is_called = calling_ && go_on_calling(now_ns);
    if (!calling_ && !is_called) session_.rates().charge(moved_bytes() - moved_before, now_ns);
    replies += is_busy() ? 0 : 1;
    progress = true;
    if (is_delayed(now_ns)) break;
  }
  if (rings_.requests.broken() || rings_.replies.broken()) end(close_reason::malformed);
  if (progress) rings_.requests.release();
  if (replies > 0 && rings_.replies.publish()) wire::ring_bell(socket_);
  return progress;
}

// The rates count what the server does; what a client does with memory that it has mapped, nobody can limit.
bool shm_request_handler::is_delayed(std::uint64_t now_ns) {
  if (now_ns < delayed_until_ns_) return true;
  delayed_until_ns_ = session_.rates().wait_until_ns(now_ns);
  return delayed_until_ns_ != 0;
}

void shm_request_handler::handle(const ring_request& asked) {
  const auto kind = static_cast<std::size_t>(asked.op) - first_request;
  if (kind < counters_.requests.size()) counters_.requests[kind].add();
  switch (asked.op) {
    case ring_operation::read:
    case ring_operation::write: return on_transfer(asked);
    case ring_operation::allocate: return on_allocate(asked);
    case ring_operation::free: return on_free(asked);
    case ring_operation::capacity: {
      const wire::capacity_report now = session_.report();
      return reply(asked, status::ok,
                   {.values = {now.quota_slots, now.tenant_slots, now.server_free_slots, now.session_slots}});
    }
    case ring_operation::call: return on_call(asked);
    case ring_operation::ping: return reply(asked, status::ok);
  }
  end(close_reason::malformed);
}

void shm_request_handler::reply(const ring_request& asked, status result, ring_reply with) {
  with.cookie = asked.cookie;
  with.status = static_cast<std::uint8_t>(result);
  if (result != status::ok) counters_.failed_requests.add();
  rings_.replies.put(std::bit_cast<wire::ring_entry>(with));
}

// The client can change the shared memory at any moment. Everything that decides where bytes go is in `asked`, which is
// our copy.
void shm_request_handler::on_transfer(const ring_request& asked) {
  std::byte* shared = rings_.fragment(asked);
  if (shared == nullptr || asked.length_bytes == 0 || asked.offset_bytes >= page_bytes)
    return end(close_reason::malformed);
  const bool reads = asked.op == ring_operation::read;
  const auto copy = [&](std::span<std::byte> part) {
    if (reads) {
      std::memcpy(shared, part.data(), part.size());
    } else {
      std::memcpy(part.data(), shared, part.size());
    }
    shared += part.size();
  };
  const wire::range where{asked.first, asked.offset_bytes, asked.length_bytes};
  if (!for_each_extent(session_, where, copy)) {
    reply(asked, status::not_allocated);
    return end(close_reason::foreign_slot);
  }
  (reads ? counters_.bytes_read : counters_.bytes_written).add(asked.length_bytes);
  reply(asked, status::ok);
}

bool shm_request_handler::names_blocks(const ring_request& asked) const {
  return asked.count > 0 && asked.count <= memory_.blocks() && asked.first <= memory_.blocks() - asked.count;
}

void shm_request_handler::on_allocate(const ring_request& asked) {
  if (!names_blocks(asked)) return end(close_reason::malformed);
  allocating_ = true;
  wanted_ = asked;
  granted_ = 0;
  step_ = {.blocks = {asked.first, 1}};
}

// One block at a time, about half a millisecond, so that the thread's other connections wait no longer than that.
bool shm_request_handler::go_on_allocating() {
  if (memory_.overdrawn()) {
    end(close_reason::foreign_slot);
    return true;
  }
  const session::step got = session_.allocate_some(step_, 1);
  if (got.at == session::progress::wait) return false;
  if (got.at == session::progress::more) return true;
  if (got.result == status::ok && ++granted_ < wanted_.count) {
    step_ = {.blocks = {wanted_.first + granted_, 1}};
    return true;
  }
  step_ = {};
  allocating_ = false;
  reply(wanted_, got.result, {.values = {granted_}});
  return true;
}

// Clients do not repeat requests here, because a session ends with its connection. So a request to free blocks that it
// does not hold is an error.
void shm_request_handler::on_free(const ring_request& asked) {
  if (!names_blocks(asked)) return end(close_reason::malformed);
  const status freed = session_.free_held({asked.first, asked.count});
  reply(asked, freed);
  if (freed == status::not_allocated) end(close_reason::foreign_slot);
}

// A copy, so that the checked bytes are those that are used: the client can change its own meanwhile.
void shm_request_handler::on_call(const ring_request& asked) {
  const std::span<std::byte> shared = rings_.fragments_of_call(asked);
  if (shared.empty()) return end(close_reason::malformed);
  if (!call_) call_ = std::make_unique<call_bytes>();
  std::memcpy(call_->asked.data(), shared.data(), asked.length_bytes);
  const std::optional<wire::call_request> call = wire::decode_call(std::span(call_->asked).first(asked.length_bytes));
  if (!call) return end(close_reason::malformed);
  if (call->name != wire::device_call_name || !devices_.exist()) return call_operation(asked, *call, shared);
  calling_ = true;
  wanted_ = asked;
}

void shm_request_handler::call_operation(const ring_request& asked, const wire::call_request& call,
                                         std::span<std::byte> shared) {
  const offload* const named = find_offload(call.name);
  if (named == nullptr) return reply(asked, status::unknown_call);
  const offload::outcome got = named->run(session_, call.arguments, call_->result);
  if (got.result == status::not_allocated) {
    reply(asked, got.result);
    return end(close_reason::foreign_slot);
  }
  // The client has left too little place for the result.
  if (got.result != status::ok || got.result_bytes > shared.size()) return reply(asked, status::call_failed);
  std::memcpy(shared.data(), call_->result.data(), got.result_bytes);
  counters_.bytes_called.add(asked.length_bytes + got.result_bytes);
  reply(asked, status::ok, {.length_bytes = static_cast<std::uint32_t>(got.result_bytes)});
}

// The arguments stay in `call_` until the device has answered. The connection's other requests wait for that.
bool shm_request_handler::go_on_calling(std::uint64_t now_ns) {
  if (now_ns < call_again_at_ns_) return false;
  const std::span<const std::byte> arguments =
      std::span(call_->asked).first(wanted_.length_bytes).subspan(wire::call_header_bytes);
  const device_calls::progress got = devices_.go_on(session_, arguments, now_ns, call_->result);
  call_again_at_ns_ = got.retry_at_ns;
  if (got.retry_at_ns != 0) return false;
  calling_ = false;
  const std::span<std::byte> shared = rings_.fragments_of_call(wanted_);
  if (got.result != status::ok || got.reply_bytes > shared.size()) {
    reply(wanted_, status::call_failed);
    return true;
  }
  std::memcpy(shared.data(), call_->result.data(), got.reply_bytes);
  counters_.bytes_called.add(wanted_.length_bytes + got.reply_bytes);
  session_.rates().charge(wanted_.length_bytes + got.reply_bytes, now_ns);
  reply(wanted_, status::ok, {.length_bytes = static_cast<std::uint32_t>(got.reply_bytes)});
  return true;
}

}  // namespace far::server
