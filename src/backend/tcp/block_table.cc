#include "backend/tcp/block_table.h"

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "platform/local_memory.h"

namespace far::backend {
namespace {

using wire::block_slots;

// The bounds of the reserve and of a request: an eighth and a quarter of the held blocks.
constexpr std::uint64_t least_reserve_blocks = 2;
constexpr std::uint64_t most_reserve_blocks = 32;
constexpr std::uint64_t least_asked_blocks = 4;
constexpr std::uint64_t most_asked_blocks = 64;
// Free blocks beyond the reserve that are kept, so that a program whose far memory fluctuates does not request blocks
// that it has just returned.
constexpr std::uint64_t slack_blocks = 32;

constexpr std::uint64_t sweep_blocks = 16;
constexpr std::uint64_t full_pause_ns = 100'000'000;

// The most blocks that a server can name (maximum_session_blocks of its store).
constexpr std::uint64_t most_numbers = std::uint64_t{1} << 22;

// Short enough for std::string to hold it without allocating.
far::error more_is_coming() {
  return {"wait for blocks", EAGAIN};
}

bool is_later(std::uint32_t epoch, std::uint32_t than) {
  return static_cast<std::int32_t>(epoch - than) > 0;
}

}  // namespace

block_table::block_table(std::uint64_t capacity_slots)
    : leases_(capacity_slots, std::min(most_numbers, 2 * blocks_for(capacity_slots) + slack_blocks)),
      blocks_(reinterpret_cast<block*>(platform::map_local(leases_.numbers() * sizeof(block)))),
      most_to_ask_(most_asked_blocks) {}

block_table::~block_table() {
  platform::unmap_local(reinterpret_cast<std::byte*>(blocks_), leases_.numbers() * sizeof(block));
}

void block_table::limit_capacity(std::uint64_t slots) {
  const lock_guard guard(lock_);
  FAR_CHECK(limit_blocks_ == 0, "the capacity is known before a block is asked for");
  leases_.limit_capacity(slots);
}

std::uint64_t block_table::reserve_blocks() const {
  return std::clamp(held_blocks_ / 8, least_reserve_blocks, most_reserve_blocks);
}

bool block_table::may_grow_by(std::uint64_t blocks) const {
  return !draining_ && held_blocks_ + asked_blocks_ + blocks <= leases_.capacity_blocks();
}

bool block_table::needs_blocks() const {
  return free_slots() < reserve_blocks() * block_slots && may_grow_by(1);
}

bool block_table::below_reserve() const {
  const lock_guard guard(lock_);
  return asked_blocks_ == 0 && !full_ && needs_blocks();
}

bool block_table::wants_blocks() const {
  const lock_guard guard(lock_);
  return asked_blocks_ > 0 || (!full_ && needs_blocks());
}

std::uint32_t block_table::epoch_of(slot_id slot) const {
  FAR_DCHECK(slot / block_slots < leases_.numbers(), "a slot that was never allocated");
  return blocks_[slot / block_slots].epoch.load(std::memory_order_acquire);
}

capacity block_table::report() const {
  const lock_guard guard(lock_);
  return {leases_.capacity_slots(), leases_.used()};
}

result<slot_id> block_table::allocate(std::size_t count, std::uint32_t epoch) {
  const lock_guard guard(lock_);
  if (is_later(epoch, epoch_)) begin_epoch(epoch);
  if (sweep_at_ < sweep_end_) {
    sweep(sweep_blocks);
    return more_is_coming();
  }
  if (live_used_slots_ + count > leases_.capacity_slots()) return out_of_slots();
  std::optional<slot_id> first = leases_.slots().allocate(count);
  while (!first && !draining_ && take_back()) first = leases_.slots().allocate(count);
  if (first) {
    live_used_slots_ += count;
    for (std::uint64_t left = count, slot = *first; left > 0;) {
      const std::uint64_t step = std::min(left, block_slots - slot % block_slots);
      block& entry = blocks_[slot / block_slots];
      entry.used = static_cast<std::uint16_t>(entry.used + step);
      slot += step;
      left -= step;
    }
    return *first;
  }
  if (count > 1 && leases_.slots().is_scattered()) return out_of_slots();
  // Any new block will do for a run that fits into one; a longer one needs blocks in a row, which new numbers are.
  const std::uint64_t at_end =
      count <= block_slots ? 0 : std::min<std::uint64_t>(count - 1, leases_.slots().free_at_end());
  const std::uint64_t wanted = blocks_for(count - at_end);
  if (full_ || draining_) return out_of_slots();
  if (asked_blocks_ > 0) return more_is_coming();
  if (!may_grow_by(wanted) || (count > block_slots && limit_blocks_ + wanted > leases_.numbers()))
    return out_of_slots();
  wanted_blocks_ = std::max(wanted_blocks_, wanted);
  return more_is_coming();
}

void block_table::free(slot_id first, std::size_t count) {
  const lock_guard guard(lock_);
  for (std::uint64_t left = count, slot = first; left > 0;) {
    const std::uint64_t number = slot / block_slots;
    const std::uint64_t step = std::min(left, block_slots - slot % block_slots);
    block& entry = blocks_[number];
    FAR_CHECK(entry.used >= step, "slots are freed once");
    entry.used = static_cast<std::uint16_t>(entry.used - step);
    if (entry.now == state::lost) {
      leases_.forget(step);
      // Unless the sweep has yet to reach it, and does that.
      const bool swept = number < sweep_at_ || number >= sweep_end_;
      if (entry.used == 0 && swept) push(&absent_, number, state::absent);
    } else {
      leases_.slots().free(slot, step);
      const bool live = entry.epoch.load(std::memory_order_relaxed) == epoch_;
      if (live) live_used_slots_ -= step;
      const std::uint64_t keep = draining_ ? 0 : (reserve_blocks() + slack_blocks) * block_slots;
      if (live && entry.used == 0 && free_slots() > keep) static_cast<void>(give_back(number));
    }
    slot += step;
    left -= step;
  }
}

// Requires: no slot of it is used.
bool block_table::give_back(std::uint64_t number) {
  if (!leases_.take_out(number)) return false;
  --held_blocks_;
  held_slots_ -= leases_.usable_slots(number);
  push(&returning_, number, state::returning);
  return true;
}

void block_table::begin_draining() {
  if (draining_) return;
  draining_ = true;
  wanted_blocks_ = 0;
  drained_ = 0;
}

// A server that is about to stop waits until nobody needs it. Most blocks cost only a look.
void block_table::return_free(std::uint64_t blocks) {
  for (std::uint64_t looks = 64 * blocks; looks > 0 && blocks > 0 && drained_ < limit_blocks_; --looks, ++drained_) {
    const block& entry = blocks_[drained_];
    const bool live = entry.now == state::held && entry.epoch.load(std::memory_order_relaxed) == epoch_;
    if (live && entry.used == 0) blocks -= give_back(drained_) ? 1 : 0;
  }
}

void block_table::push(std::uint32_t* list, std::uint64_t number, state now) {
  blocks_[number].now = now;
  blocks_[number].next = *list;
  *list = static_cast<std::uint32_t>(number + 1);
}

// Takes the front of the list and what follows it there in the order of numbers, one way or the other.
wire::block_range block_table::pop_run(std::uint32_t* list, std::uint64_t most) {
  wire::block_range run{*list - 1, 0};
  while (*list != 0 && run.count < most) {
    const std::uint64_t number = *list - 1;
    if (run.count > 0 && number + 1 == run.first) {
      run.first = number;
    } else if (number != run.first + run.count) {
      break;
    }
    ++run.count;
    *list = blocks_[number].next;
  }
  return run;
}

// Takes back a block that the server has not yet been told to free.
bool block_table::take_back() {
  if (returning_ == 0) return false;
  grant(pop_run(&returning_, 1).first);
  return true;
}

void block_table::grant(std::uint64_t number) {
  block& entry = blocks_[number];
  entry.epoch.store(epoch_, std::memory_order_release);
  entry.now = state::held;
  ++held_blocks_;
  held_slots_ += leases_.usable_slots(number);
  leases_.grant(number);
}

bool block_table::next(std::uint32_t epoch, std::uint64_t now_ns, control_request* into) {
  const lock_guard guard(lock_);
  if (is_later(epoch, epoch_)) begin_epoch(epoch);
  // A connection that does not know the new session yet requests nothing.
  if (epoch != epoch_) return false;
  if (sweep_at_ < sweep_end_) {
    sweep(sweep_blocks);
    return false;
  }
  if (draining_) return_free(sweep_blocks);
  if (full_ && now_ns >= ask_again_ns_) full_ = false;
  if (!full_ && ask_for_blocks(into)) return true;
  if (returning_ == 0) return false;
  const wire::block_range run = pop_run(&returning_, most_asked_blocks);
  *into = {wire::opcode::free, run};
  for (std::uint64_t i = 0; i < run.count; ++i) blocks_[run.first + i].now = state::asked;
  return true;
}

bool block_table::ask_for_blocks(control_request* into) {
  FAR_CHECK(asked_blocks_ == 0, "blocks are asked for one range at a time");
  if (wanted_blocks_ == 0 && !needs_blocks()) return false;
  const std::uint64_t least = std::max<std::uint64_t>(wanted_blocks_, 1);
  if (!may_grow_by(least)) {
    wanted_blocks_ = 0;
    return false;
  }
  std::uint64_t count = std::clamp(held_blocks_ / 4, least_asked_blocks, most_asked_blocks);
  count = std::max(least, std::min({count, most_to_ask_, leases_.capacity_blocks() - held_blocks_}));
  wire::block_range run{limit_blocks_, std::min(count, leases_.numbers() - limit_blocks_)};
  if (least == 1 && absent_ != 0) {
    run = pop_run(&absent_, count);
  } else {
    limit_blocks_ += run.count;
  }
  if (run.count == 0) {
    wanted_blocks_ = 0;
    return false;
  }
  for (std::uint64_t i = 0; i < run.count; ++i) blocks_[run.first + i].now = state::asked;
  asked_blocks_ = run.count;
  *into = {wire::opcode::allocate, run};
  return true;
}

void block_table::done(const control_request& request, std::uint32_t epoch, wire::status outcome,
                       std::uint64_t now_ns) {
  const lock_guard guard(lock_);
  if (epoch != epoch_) return;  // the sweep has seen to it
  if (request.op == wire::opcode::allocate) {
    asked_blocks_ = 0;
    return outcome == wire::status::ok ? granted(request.blocks) : refused(request.blocks, outcome, now_ns);
  }
  // Freed, or not known to the server: ours no more, either way.
  for (std::uint64_t i = 0; i < request.blocks.count; ++i) push(&absent_, request.blocks.first + i, state::absent);
}

void block_table::granted(wire::block_range blocks) {
  wanted_blocks_ -= std::min(wanted_blocks_, blocks.count);
  most_to_ask_ = std::min(most_to_ask_ * 2, most_asked_blocks);
  for (std::uint64_t i = 0; i < blocks.count; ++i) grant(blocks.first + i);
}

void block_table::refused(wire::block_range blocks, wire::status why, std::uint64_t now_ns) {
  const std::uint64_t least = std::max<std::uint64_t>(wanted_blocks_, 1);
  wanted_blocks_ = 0;
  if (why == wire::status::draining) begin_draining();
  if (blocks.count > least) {
    most_to_ask_ = std::max(blocks.count / 2, least);
  } else {
    full_ = true;
    ask_again_ns_ = now_ns + full_pause_ns;
    most_to_ask_ = least_asked_blocks;
  }
  // The highest last, so that the lowest are asked for first.
  for (std::uint64_t i = blocks.count; i > 0; --i) {
    const std::uint64_t number = blocks.first + i - 1;
    if (number + 1 == limit_blocks_ && number * block_slots >= leases_.slots().limit()) {
      blocks_[number].now = state::absent;
      --limit_blocks_;
    } else {
      push(&absent_, number, state::absent);
    }
  }
}

void block_table::draining(std::uint32_t epoch) {
  const lock_guard guard(lock_);
  if (epoch == epoch_) begin_draining();
}

// All blocks of the epoch before are lost. Their free slots are taken out of use step by step; until that is done,
// allocate() hands out nothing.
void block_table::begin_epoch(std::uint32_t epoch) {
  epoch_ = epoch;
  held_blocks_ = held_slots_ = live_used_slots_ = 0;
  asked_blocks_ = wanted_blocks_ = 0;
  most_to_ask_ = most_asked_blocks;
  full_ = draining_ = false;
  absent_ = returning_ = 0;
  sweep_at_ = 0;
  sweep_end_ = limit_blocks_;
}

void block_table::sweep(std::uint64_t blocks) {
  for (; blocks > 0 && sweep_at_ < sweep_end_; --blocks) sweep_block(sweep_at_++);
  if (sweep_at_ == sweep_end_) sweep_at_ = sweep_end_ = 0;
}

void block_table::sweep_block(std::uint64_t number) {
  block& entry = blocks_[number];
  if (entry.now == state::held) {
    leases_.write_off(number);
    entry.now = state::lost;
  } else if (entry.now == state::asked) {
    leases_.skip(number);
  }
  if (entry.used == 0) push(&absent_, number, state::absent);
}

void block_table::validate() const {
  const lock_guard guard(lock_);
  leases_.validate();
  std::uint64_t held = 0;
  std::uint64_t live_used = 0;
  std::uint64_t used = 0;
  for (std::uint64_t number = 0; number < limit_blocks_; ++number) {
    const block& entry = blocks_[number];
    used += entry.used;
    if (entry.now != state::held || entry.epoch.load() != epoch_) continue;
    ++held;
    live_used += entry.used;
  }
  FAR_CHECK(held == held_blocks_ && live_used == live_used_slots_ && used == leases_.used(),
            "blocks are counted right");
  FAR_CHECK(held_blocks_ <= leases_.capacity_blocks() && live_used_slots_ <= leases_.capacity_slots(),
            "the capacity is kept to");
}

}  // namespace far::backend
