// `zmem:[?capacity=4G&codec=lz4|zstd&level=N&leave=SIZE]`, or `zmem:4G`: pages are compressed into memory of this
// process.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "backend/slot_allocator.h"
#include "backend/zmem/page_store.h"
#include "base/spin_lock.h"
#include "platform/clock.h"

namespace far::backend {

class uri;

// What the tiers of several processes know of each other, in memory that they share. It may begin anew.
struct shared_takings {
  std::atomic<std::uint64_t> taken_pages{0};     // by all of them, ever
  std::atomic<std::uint64_t> promised_bytes{0};  // of local memory that they may fill at any time
};

struct zmem_options {
  std::uint64_t capacity_bytes = 0;  // of compressed bytes; 0: half of the memory that the process may use
  codec_choice codec{};
  // The most slots; 0: as many as could be wanted.
  std::uint64_t slots = 0;
  // No new pages while less than this is available to the machine, or to the memory cgroup; 0: regardless of that.
  std::uint64_t leave_bytes = 0;
  // How much is available; for tests. It is asked by the thread that calls tend().
  std::function<std::optional<std::uint64_t>()> available_bytes = available_to_this_process;
  // With `leave_bytes`: what others take as well. nullptr: that of the process (count_together), or nothing.
  shared_takings* shared = nullptr;
  const platform::clock* clock = nullptr;  // nullptr: the machine's; otherwise outlives the backend

  // Nothing if the system does not say.
  [[nodiscard]] static std::optional<std::uint64_t> available_to_this_process();
};

class zmem_backend final : public backend {
 public:
  [[nodiscard]] static result<std::unique_ptr<backend>> open(const uri& name);
  [[nodiscard]] static result<std::unique_ptr<backend>> create(const zmem_options& chosen);

  // From now on the tiers of this process count what they take in `shared`, which stays.
  static void count_together(shared_takings& shared);

  // Requires: capacity and slots are set.
  explicit zmem_backend(const zmem_options& chosen);

  // ENOSPC also where there is no room for so many pages that do not compress, so a slot's first write finds room; and
  // while other programs need the memory (`leave`).
  [[nodiscard]] result<slot_id> allocate(std::size_t count) override;
  void free(slot_id first, std::size_t count) override;
  [[nodiscard]] result<std::unique_ptr<channel>> open_channel(std::size_t depth) override;
  std::uint64_t tend() override;
  [[nodiscard]] bool wants_tending() const override { return store_.wants_tending() || wants_look(); }

  // Not checked: the lock is taken by one and given back by the other two.
  void prepare_fork() override FAR_UNCHECKED_LOCKING { store_.lock_for_fork(); }
  void after_fork_in_parent() override FAR_UNCHECKED_LOCKING { store_.unlock_after_fork(); }
  void after_fork_in_child() override FAR_UNCHECKED_LOCKING;
  void claim_in_child(slot_id slot) override { slots_.claim_in_child(slot); }
  void close_claims_in_child() override;
  [[nodiscard]] bool is_copied_by_fork() const override { return true; }

  [[nodiscard]] capacity report() const override;
  [[nodiscard]] speed expected_speed() const override;
  [[nodiscard]] std::string describe() const override;

 private:
  [[nodiscard]] result<slot_id> take_slots(std::size_t count);
  [[nodiscard]] bool may_take(std::size_t count);
  [[nodiscard]] bool wants_look() const { return wants_look_.load(std::memory_order_relaxed); }
  std::uint64_t look_at_machine();

  const codec_choice codec_;
  const std::uint64_t leave_bytes_;
  const std::function<std::optional<std::uint64_t>()> available_bytes_;
  const platform::clock& time_;
  // How many tiers of other processes take memory at the same time is not known, so between two looks at the machine
  // all that share a counter may take a part of what they have seen together. Each tier keeps for itself what the
  // counter was before its last look, and how much it may grow after that: so whatever the tiers do in which order, a
  // tier takes nothing that would make more than that of what all have taken since it looked. Looks need no order among
  // the tiers, which may be in different cgroups.
  // Memory that is promised to the budget of the job counts as taken.
  shared_takings own_;  // where nobody shares
  shared_takings& shared_;
  std::atomic<std::uint64_t> seen_taken_{0};  // before the last look
  std::atomic<std::uint64_t> may_take_{0};    // after it, by all
  std::atomic<std::uint64_t> own_since_look_{0};
  std::atomic<bool> wants_look_{false};
  std::atomic<bool> machine_is_short_{false};
  std::uint64_t look_at_ns_ = 0;  // of the thread that calls tend()
  slot_allocator slots_;
  spin_lock growth_lock_;
  page_store store_;
};

}  // namespace far::backend
