// Keeps a store's memory within its limit by writing the coldest blocks to disk, and brings them back when a client
// asks for them. One thread does both, block by block.
//
//     in memory --touched again before the hand comes by----> in memory
//        |
//        '--the hand finds it untouched--> moving --written--> on disk --asked for--> moving --read--> in memory
//                                            |                             |
//                                            '--failed--> in memory        '--failed--> on disk, unreadable
//
// The hand goes around all blocks (CLOCK, Corbató 1968). A block that moves is not to be had, so requests for it wait;
// it is written only when no event loop uses it any more (quiescent_states.h). Nothing leaves memory before the disk
// has taken it. When the disk takes nothing, blocks stay in memory, and no new ones are lent beyond it.
//
// Frames in memory = blocks in memory, and those being read; with tables <= memory_blocks, except that a block may be
// read beyond that when no place on disk is free, which makes one free.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/thread_mutex.h"
#include "server/quiescent_states.h"
#include "server/spill_area.h"
#include "wire/handshake.h"

namespace far::server {

class session;
class store;

struct spill_report {
  std::uint64_t size_bytes = 0;       // of all places
  std::uint64_t resident_blocks = 0;  // in memory
  std::uint64_t places_used = 0;
  std::uint64_t disk_bytes = 0;  // what the file takes
  std::uint64_t writes = 0;      // of blocks, since the start
  std::uint64_t reads = 0;
  std::uint64_t errors = 0;
  bool is_failing = false;  // the disk did not take the last block
};

class spiller {
 public:
  // Places that no block is lent for, so that blocks can change places when all are lent.
  static constexpr std::uint64_t spare_places = 16;
  // How many blocks leave at a time.
  static constexpr std::size_t batch_blocks = 4;

  // Starts the thread. `memory_blocks`: the most that may be in memory, tables included.
  spiller(store& owner, std::shared_ptr<spill_area> area, std::uint64_t memory_blocks);
  ~spiller();
  spiller(const spiller&) = delete;
  spiller& operator=(const spiller&) = delete;

  // All of these are called with the store's lock held.
  void set_memory(std::uint64_t memory_blocks);
  // Whether a frame may be used; then it counts until release_frame().
  [[nodiscard]] bool charge_frame();
  void release_frame();
  void release_place(std::uint64_t place);
  // A block that is on disk comes back; its entry says so already.
  void ask_for(std::shared_ptr<session> whose, std::uint64_t number);
  // Whether blocks may be lent that have no frame.
  [[nodiscard]] bool may_overflow() const;
  [[nodiscard]] spill_report report() const;
  // Compares its counts with these. Requires: nothing moves.
  void validate(std::uint64_t resident_blocks, std::uint64_t places_used) const;

 private:
  struct job {
    std::shared_ptr<session> whose;
    std::uint64_t number = 0;
    std::uint64_t place = 0;
    std::byte* block = nullptr;
  };

  void run();
  [[nodiscard]] bool is_short() const FAR_REQUIRES(lock_);
  [[nodiscard]] bool has_free_frame() const FAR_REQUIRES(lock_);
  // Takes those out of the line for which nobody waits any more.
  void forget_unwanted() FAR_REQUIRES(lock_);
  // Writes a few blocks; returns whether any has left memory.
  bool evict_some();
  [[nodiscard]] std::vector<job> choose() FAR_REQUIRES(lock_);
  void look_at(session& whose, std::vector<job>* chosen) FAR_REQUIRES(lock_);
  [[nodiscard]] bool write_out(const job& leaving);
  void serve_first();
  [[nodiscard]] result<void> fill(const job& coming);
  void note_write_failure(const error& why);
  void note_read_failure(const error& why);

  store& store_;
  thread_mutex& lock_;  // the store's
  const std::shared_ptr<spill_area> area_;
  std::condition_variable_any changed_;
  std::uint64_t memory_blocks_ FAR_GUARDED_BY(lock_);
  std::uint64_t resident_ FAR_GUARDED_BY(lock_) = 0;
  std::deque<job> asked_ FAR_GUARDED_BY(lock_);
  bool is_ending_ FAR_GUARDED_BY(lock_) = false;
  bool is_failing_ FAR_GUARDED_BY(lock_) = false;
  // The hand: the session where it is, and the number of the block that it looks at next.
  wire::session_id hand_session_ FAR_GUARDED_BY(lock_){};
  std::uint64_t hand_number_ FAR_GUARDED_BY(lock_) = 0;
  std::atomic<std::uint64_t> writes_{0};
  std::atomic<std::uint64_t> reads_{0};
  std::atomic<std::uint64_t> errors_{0};
  std::thread thread_;
};

}  // namespace far::server
