#include "backend/shm/block_exchange.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/units.h"
#include "platform/clock.h"

namespace far::backend::shm {
namespace {

using wire::block_slots;
using wire::ring_operation;

constexpr std::uint64_t millisecond_ns = 1'000'000;

// Free slots that are there before they are needed: a sixteenth of what is used, within these bounds.
constexpr std::uint64_t least_ahead_slots = 16 * mib / page_bytes;
constexpr std::uint64_t most_ahead_slots = 256 * mib / page_bytes;
constexpr std::uint64_t ahead_share = 16;
// How many times as many free slots are kept before blocks go back, so that a program that scans does not request and
// return them in turn.
constexpr std::uint64_t kept_factor = 4;

constexpr std::uint64_t blocks_at_once = 16;
constexpr std::uint64_t searched_at_once = 1024;  // blocks looked at in one tend() for those that could go back
constexpr std::uint64_t given_back_at_once = 32;
constexpr std::uint32_t room_for_asking = 8;

// For so long after an allocation has found nothing, no blocks go back: the caller may need a long run.
constexpr std::uint64_t hunger_ns = 1'000 * millisecond_ns;
constexpr std::uint64_t refusal_ns = 200 * millisecond_ns;

std::uint64_t now_ns() {
  return platform::monotonic_clock().now_ns();
}

std::uint64_t slots_ahead(std::uint64_t used) {
  return std::clamp(used / ahead_share, least_ahead_slots, most_ahead_slots);
}

}  // namespace

block_exchange::block_exchange(std::string name, block_map& blocks, lease_table& leases)
    : name_(std::move(name)), blocks_(blocks), leases_(leases) {}

void block_exchange::take_replies(connection& server) {
  wire::ring_reply reply;
  while (server.take(reply)) {
    const bool is_grant = reply.cookie == static_cast<std::uint64_t>(ring_operation::allocate) && asked_.count > 0;
    const bool is_return = reply.cookie == static_cast<std::uint64_t>(ring_operation::free) && returns_out_ > 0;
    if (!is_grant && !is_return) return server.reject("answers what was not asked");
    if (is_return) --returns_out_;
    if (is_grant) {
      on_granted(reply);
    } else if (reply.status != static_cast<std::uint8_t>(wire::status::ok)) {
      log_line(log_level::warning,
               "far tier 'shm:%s': the server refused to take a block back (status %u); it stays charged",
               name_.c_str(), unsigned{reply.status});
    }
  }
}

void block_exchange::on_granted(const wire::ring_reply& reply) {
  const asked_blocks answered = std::exchange(asked_, {});
  const std::uint64_t granted = std::min(reply.values[0], answered.count);
  for (std::uint64_t i = 0; i < granted; ++i) {
    blocks_.grant(answered.first + i);
    leases_.grant(answered.first + i);
  }
  if (granted > 0 && granted_count_ < granted_.size()) granted_[granted_count_++] = {answered.first, granted};
  if (granted < answered.count) refused_until_ns_ = now_ns() + refusal_ns;
  if (reply.status == static_cast<std::uint8_t>(wire::status::draining)) say_that_it_drains();
}

void block_exchange::say_that_it_drains() {
  if (std::exchange(drain_noted_, true)) return;
  log_line(log_level::info,
           "far tier 'shm:%s': the server is about to stop and gives no new memory. What is stored stays readable and "
           "writable; new memory comes from the next farheapd --shm of that name",
           name_.c_str());
}

bool block_exchange::ask(connection& server, std::uint64_t first, std::uint64_t count) {
  if (count == 0 || asked_.count > 0 || server.room() == 0) return false;
  wire::ring_request wanted;
  wanted.op = ring_operation::allocate;
  wanted.cookie = static_cast<std::uint64_t>(ring_operation::allocate);
  wanted.first = first;
  wanted.count = count;
  server.put(wanted);
  server.flush();
  asked_ = {first, count, now_ns()};
  return true;
}

// Blocks that went back, the lowest first.
bool block_exchange::ask_for_holes(connection& server, std::uint64_t wanted_blocks) {
  if (leases_.unowned_slots() == 0) return false;
  const std::uint64_t end = std::min(blocks_for(leases_.slots().limit()), blocks_.reachable_blocks());
  for (std::uint64_t first = 0; first < end; ++first) {
    if (blocks_.state_of(first) != block_map::state::absent) continue;
    std::uint64_t last = first + 1;
    while (last < end && last - first < wanted_blocks && blocks_.state_of(last) == block_map::state::absent) ++last;
    return ask(server, first, last - first);
  }
  return false;
}

// Requests blocks for a run of `count` slots: at the end, where they extend the free slots, or else in holes.
bool block_exchange::ask_for_run(connection& server, std::size_t count) {
  hungry_until_ns_ = now_ns() + hunger_ns;
  const std::uint64_t first = blocks_for(leases_.slots().limit());
  const std::uint64_t end = std::min(blocks_for(leases_.capacity_slots()), blocks_.reachable_blocks());
  const std::uint64_t missing = count - std::min<std::uint64_t>(count, leases_.slots().free_at_end());
  const std::uint64_t room = first < end ? end - first : 0;
  if (room > 0 && blocks_for(missing) <= room) {
    return ask(server, first, std::min(room, std::max(blocks_for(missing), blocks_at_once)));
  }
  return ask_for_holes(server, std::max(blocks_for(count) + 1, blocks_at_once)) || ask(server, first, room);
}

void block_exchange::ask_ahead(connection& server) {
  if (asked_.count > 0 || now_ns() < refused_until_ns_) return;
  const std::uint64_t used = leases_.slots().used();
  const std::uint64_t free = leases_.slots().limit() - std::min(leases_.slots().limit(), used);
  if (free >= slots_ahead(used)) return;
  if (ask_for_holes(server, blocks_at_once)) return;
  const std::uint64_t first = blocks_for(leases_.slots().limit());
  const std::uint64_t end = std::min(blocks_for(leases_.capacity_slots()), blocks_.reachable_blocks());
  if (first < end) static_cast<void>(ask(server, first, std::min(end - first, blocks_at_once)));
}

bool block_exchange::give_back_some(connection& server) {
  const std::uint64_t used = leases_.slots().used();
  const std::uint64_t limit = leases_.slots().limit();
  const std::uint64_t free = limit - std::min(limit, used);
  const std::uint64_t kept = slots_ahead(leases_.used()) * kept_factor;
  if (free <= kept || now_ns() < hungry_until_ns_) return false;
  std::uint64_t left = std::min((free - kept) / block_slots, given_back_at_once);
  // From the top, because slots are handed out from the bottom.
  for (std::uint64_t looked = 0; looked < searched_at_once && left > 0; ++looked) {
    if (give_back_from_ == 0) give_back_from_ = blocks_for(limit);
    if (give_back(server, --give_back_from_)) --left;
  }
  return left == 0;
}

bool block_exchange::give_back(connection& server, std::uint64_t block) {
  const bool orphan = blocks_.state_of(block) == block_map::state::orphan;
  // A server that is gone takes nothing back; its blocks wait, free, until they are orphans. And a busy server must not
  // find the ring so full of returned blocks that no block can be requested.
  if (!orphan && server.room() <= room_for_asking) return false;
  // While the slots are ours, nobody can be given them.
  if (blocks_.state_of(block) == block_map::state::absent || !leases_.take_out(block)) return false;
  if (orphan) {
    blocks_.discard_orphan(block);
    return true;
  }
  blocks_.give_back(block);
  // It may have been granted since tend() looked; then it must not be populated any more.
  for (block_range& range : granted_) {
    if (block >= range.first && block < range.first + range.count) range.count = 0;
  }
  wire::ring_request returned;
  returned.op = ring_operation::free;
  returned.cookie = static_cast<std::uint64_t>(ring_operation::free);
  returned.first = block;
  returned.count = 1;
  server.put(returned);
  server.flush();
  ++returns_out_;
  return true;
}

std::size_t block_exchange::take_granted(granted_ranges* into) {
  *into = granted_;
  return std::exchange(granted_count_, 0);
}

void block_exchange::reset() {
  forget_questions();
  granted_count_ = 0;
  refused_until_ns_ = 0;
  drain_noted_ = false;
}

}  // namespace far::backend::shm
