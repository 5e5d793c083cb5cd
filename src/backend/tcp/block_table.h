// The slots that a server has lent us: blocks of 512, requested ahead of need and given back when they are empty.
//
//               asked for, granted           swept with free slots only, or
//     absent ------------------------> held  wholly free beyond the reserve ----> (to be) returned ---> absent
//                                            (all of those, once the server is about to stop)
//        ^                              |
//        |   the last slot is freed     |  the session is lost while slots are in use
//        +---------- lost <-------------+
//
// Slots are numbered by the client. A slot of a lost block is never handed out again before its last user has freed it,
// so a stale slot number cannot meet another owner's bytes: transfers name the epoch in which their slot was allocated.
#pragma once

#include <atomic>
#include <cstdint>

#include "backend/backend.h"
#include "backend/lease_table.h"
#include "backend/tcp/control_source.h"
#include "base/spin_lock.h"

namespace far::backend {

// Thread-safe; every call holds a spin lock for some hundreds of nanoseconds at most (a step of a sweep: some ten
// microseconds). Its part as a control_source is called by one connection at a time.
class block_table final : public control_source {
 public:
  // Requires: 0 < capacity_slots <= most_capacity_slots.
  static constexpr std::uint64_t most_capacity_slots = std::uint64_t{1} << 30;
  explicit block_table(std::uint64_t capacity_slots);
  ~block_table() override;
  block_table(const block_table&) = delete;
  block_table& operator=(const block_table&) = delete;

  // Lowers the capacity. Requires: 0 < slots <= the capacity, and no block has been asked for.
  void limit_capacity(std::uint64_t slots);

  // As backend::allocate(). `epoch`: the session's present one.
  [[nodiscard]] result<slot_id> allocate(std::size_t count, std::uint32_t epoch);
  void free(slot_id first, std::size_t count);

  // The epoch in which the slot's block was granted. Lock-free.
  [[nodiscard]] std::uint32_t epoch_of(slot_id slot) const;

  // Whether the server has said that it lends no more.
  [[nodiscard]] bool is_draining() const {
    const lock_guard guard(lock_);
    return draining_;
  }
  // Whether blocks must be requested ahead of need, and have not been.
  [[nodiscard]] bool below_reserve() const;
  // Whether blocks are missing that may still come: asked for or not.
  [[nodiscard]] bool wants_blocks() const;
  [[nodiscard]] capacity report() const;

  [[nodiscard]] bool next(std::uint32_t epoch, std::uint64_t now_ns, control_request* into) override;
  void done(const control_request& request, std::uint32_t epoch, wire::status outcome, std::uint64_t now_ns) override;
  void draining(std::uint32_t epoch) override;
  [[nodiscard]] bool stores_anything() const override { return report().used_slots > 0; }

  // From now on nothing is asked for, and what is free is given back. Returns whether all of it has been.
  bool give_up() {
    const lock_guard guard(lock_);
    begin_draining();
    return held_blocks_ == 0 && asked_blocks_ == 0 && returning_ == 0;
  }

  // In the child of a fork, where nobody else holds it.
  void unlock_after_fork() { lock_.open_in_child(); }

  // Recomputes every count from the blocks, and stops the process when one is wrong.
  void validate() const;

 private:
  enum class state : std::uint8_t { absent, asked, held, returning, lost };
  struct block {
    std::atomic<std::uint32_t> epoch;
    std::uint16_t used;  // slots of it that callers hold
    state now;
    std::uint32_t next;  // in the list of absent or of returning blocks: number + 1
  };

  [[nodiscard]] std::uint64_t free_slots() const FAR_REQUIRES(lock_) { return held_slots_ - live_used_slots_; }
  [[nodiscard]] std::uint64_t reserve_blocks() const FAR_REQUIRES(lock_);
  [[nodiscard]] bool needs_blocks() const FAR_REQUIRES(lock_);
  [[nodiscard]] bool may_grow_by(std::uint64_t blocks) const FAR_REQUIRES(lock_);
  void begin_epoch(std::uint32_t epoch) FAR_REQUIRES(lock_);
  void sweep(std::uint64_t blocks) FAR_REQUIRES(lock_);
  void sweep_block(std::uint64_t number) FAR_REQUIRES(lock_);
  void grant(std::uint64_t number) FAR_REQUIRES(lock_);
  [[nodiscard]] bool take_back() FAR_REQUIRES(lock_);
  void begin_draining() FAR_REQUIRES(lock_);
  void return_free(std::uint64_t blocks) FAR_REQUIRES(lock_);
  [[nodiscard]] bool give_back(std::uint64_t number) FAR_REQUIRES(lock_);
  void push(std::uint32_t* list, std::uint64_t number, state now) FAR_REQUIRES(lock_);
  [[nodiscard]] wire::block_range pop_run(std::uint32_t* list, std::uint64_t most) FAR_REQUIRES(lock_);
  [[nodiscard]] bool ask_for_blocks(control_request* into) FAR_REQUIRES(lock_);
  void granted(wire::block_range blocks) FAR_REQUIRES(lock_);
  void refused(wire::block_range blocks, wire::status why, std::uint64_t now_ns) FAR_REQUIRES(lock_);

  lease_table leases_;  // has numbers for more blocks than the capacity: lost ones keep theirs while they are in use
  block* const blocks_;

  mutable spin_lock lock_;
  std::uint32_t epoch_ FAR_GUARDED_BY(lock_) = 1;
  std::uint64_t limit_blocks_ FAR_GUARDED_BY(lock_) = 0;  // numbers below it have been used
  std::uint64_t held_blocks_ FAR_GUARDED_BY(lock_) = 0;
  std::uint64_t held_slots_ FAR_GUARDED_BY(lock_) = 0;
  std::uint64_t live_used_slots_ FAR_GUARDED_BY(lock_) = 0;  // of held blocks
  std::uint32_t absent_ FAR_GUARDED_BY(lock_) = 0;
  std::uint32_t returning_ FAR_GUARDED_BY(lock_) = 0;
  std::uint64_t asked_blocks_ FAR_GUARDED_BY(lock_) = 0;   // on their way
  std::uint64_t wanted_blocks_ FAR_GUARDED_BY(lock_) = 0;  // adjacent ones, for an allocation that failed
  std::uint64_t most_to_ask_ FAR_GUARDED_BY(lock_);        // less after a refusal
  std::uint64_t sweep_at_ FAR_GUARDED_BY(lock_) = 0;
  std::uint64_t sweep_end_ FAR_GUARDED_BY(lock_) = 0;
  bool full_ FAR_GUARDED_BY(lock_) = false;  // the server has no more, until the time is over
  std::uint64_t ask_again_ns_ FAR_GUARDED_BY(lock_) = 0;
  bool draining_ FAR_GUARDED_BY(lock_) = false;
  std::uint64_t drained_ FAR_GUARDED_BY(lock_) = 0;  // below it no block is held that is wholly free
};

}  // namespace far::backend
