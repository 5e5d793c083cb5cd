// A far tier that outlives forks: parent and child both evict, and free what they no longer need.
//
// A process has one tier of its own, into which it evicts, and reads the tiers that were its parent's and its
// grandparents' at the forks, which it never writes. The engine sees one range of slot numbers:
//
//     root's tier            child's tier               this process's own tier
//     [0, end at the fork)   [base, end at the fork)    [base, ...)
//
// with one number left out between two tiers, so that no request spans them. The own tier of a child is opened when it
// first evicts, so that a child that soon calls exec, or never evicts, costs nothing.
//
// Slots that a child may still read are freed when nobody refers to them any more. For each child its parent has a
// table (slot_share.h), and a pipe whose other end the child holds and never writes to. When the pipe reports its end,
// the child and its descendants have ended or called exec. See docs/decisions/0019-fork-that-lasts.md.
//
// A tier that a fork copies needs none of this (backend::is_copied_by_fork).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/lineage/lineage_channel.h"
#include "backend/lineage/slot_share.h"
#include "base/spin_lock.h"
#include "platform/clock.h"
#include "platform/local_memory.h"

namespace far::backend {

class lineage_backend final : public backend {
 public:
  using tier_opener = std::function<result<std::unique_ptr<backend>>()>;

  // `root`: the own tier of this process. `open_own`: opens one for a child; it is called on the thread that calls
  // tend(), which waits for it.
  lineage_backend(std::unique_ptr<backend> root, tier_opener open_own, const platform::clock& time);
  ~lineage_backend() override;

  // EAGAIN while the own tier of a child is being opened; ENODEV while that fails, which the user has been told.
  [[nodiscard]] result<slot_id> allocate(std::size_t count) override { return allocate_near(no_affinity, count); }
  [[nodiscard]] result<slot_id> allocate_near(affinity with, std::size_t count) override;
  void free(slot_id first, std::size_t count) override;
  [[nodiscard]] result<std::unique_ptr<channel>> open_channel(std::size_t depth) override;
  [[nodiscard]] const std::byte* direct(slot_id slot) const override;
  std::uint64_t tend() override;
  [[nodiscard]] bool wants_tending() const override;
  [[nodiscard]] result<void> add_server(std::string_view server) override;
  [[nodiscard]] result<std::uint64_t> remove_server(std::string_view server, removal step) override;
  // Does nothing while children may still read stored bytes.
  void prepare_exit() override;
  [[nodiscard]] bool answers() const override { return own_.load() == nullptr || own_.load()->answers(); }
  [[nodiscard]] bool reduces() const override;
  [[nodiscard]] bool reduces_rows() const override;
  [[nodiscard]] std::uint64_t read_patience_ns() const override;
  [[nodiscard]] std::uint64_t away_since_ns(slot_id slot) const override;
  // Bytes that another process stored are not ours to write.
  [[nodiscard]] std::uint64_t scrubbed_pages_per_second() const override {
    const backend* const own = own_.load();
    return own != nullptr ? own->scrubbed_pages_per_second() : 0;
  }
  void report_damage(slot_id slot, std::uint8_t bad, std::uint8_t right, damage kind) override {
    if (backend* const own = own_.load(); own != nullptr && slot >= own_base_) {
      own->report_damage(slot - own_base_, bad, right, kind);
    }
  }
  [[nodiscard]] capacity report() const override;
  [[nodiscard]] speed expected_speed() const override {
    const backend* const own = own_.load();
    return own != nullptr ? own->expected_speed() : speed{};
  }
  [[nodiscard]] std::string describe() const override;

  void prepare_fork() override FAR_ACQUIRE(children_lock_);
  void after_fork_in_parent() override FAR_RELEASE(children_lock_);
  void after_fork_in_child() override;
  void claim_in_child(slot_id slot) override;
  void close_claims_in_child() override;

  // For channels: it is about to be destroyed.
  void forget(lineage_channel& closed);

 private:
  template <typename T>
  using list = std::vector<T, platform::local_allocator<T>>;

  // A tier that was a forebear's. Its slots are read, and never written.
  struct inherited_tier {
    slot_id base = 0;
    slot_id end = 0;
    std::unique_ptr<backend> store;
    std::uint64_t claims = 0;
  };

  // A child that may read slots of ours.
  struct child {
    slot_share share;
    int pipe = -1;  // the end to read; -1: none could be made
    std::uint64_t released_before = 0;
  };

  void release(slot_id slot);
  [[nodiscard]] bool a_child_holds(slot_id slot) const FAR_REQUIRES(children_lock_);
  // Not checked: only this and a fork, which waits for it, change the list, so this reads it without the lock.
  [[nodiscard]] bool look_after_children() FAR_UNCHECKED_LOCKING;
  [[nodiscard]] static bool is_over(const child& one);
  void free_some_kept();
  void try_to_open_own();
  [[nodiscard]] result<void> open_own();

  const std::string root_name_;
  const tier_opener open_own_;
  const platform::clock& time_;

  // The own tier. Owned; never changes once set, until the next fork.
  std::atomic<backend*> own_{nullptr};
  slot_id own_base_ = 0;
  std::atomic<slot_id> own_end_{0};  // slots that were ever allocated lie below
  std::atomic<bool> wants_own_{false};
  std::atomic<bool> cannot_open_own_{false};
  bool announcement_due_ = false;
  std::atomic<std::uint64_t> open_at_ns_{0};  // not before
  std::uint64_t open_pause_ns_ = 0;

  // Of a child of fork.
  list<inherited_tier> inherited_;
  slot_share from_parent_;
  std::atomic<std::uint64_t> held_{0};  // inherited slots that are in use here
  list<int> lifelines_;                 // ends of pipes that tell our forebears that we live

  // Of a parent.
  mutable spin_lock children_lock_;
  list<child> children_ FAR_GUARDED_BY(children_lock_);
  list<slot_id> kept_ FAR_GUARDED_BY(children_lock_);  // freed, but a child holds them
  std::atomic<std::size_t> child_count_{0};
  std::atomic<std::uint64_t> kept_own_{0};
  std::atomic<std::uint64_t> kept_inherited_{0};
  // For tend() alone: the kept slots that it has not examined yet.
  list<slot_id> unsorted_;
  bool unsorted_again_ = false;  // a child has released slots since they were taken
  bool is_forking_ = false;      // the last of the children is about to be made
  int lifeline_ = -1;            // the end of its pipe for the child to hold

  spin_lock channels_lock_;
  list<lineage_channel*> channels_ FAR_GUARDED_BY(channels_lock_);
};

// Opens the far tier that `uri` names so that it outlives forks.
[[nodiscard]] result<std::unique_ptr<backend>> open_for_forks(std::string_view uri, const platform::clock& time);

}  // namespace far::backend
