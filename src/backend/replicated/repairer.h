// The work behind the transfers of a replicated far tier, in small steps: tend().
//
// It walks over the groups while anything is to be done, at most a few hundred a step, and does one thing at a time:
// copies up to 256 KiB that a copy misses (the protocol is in group.h), places a copy that a group lacks, or gives up
// one that it no longer needs. It allocates only when it is created, and when a member is added.
//
// When there is a new member, groups move to the members that they hash to. A move is just an additional copy on the
// better member; the rest is repair: the copy is filled, then there is a surplus copy, and the one on the worst member
// is given up. This happens when there is nothing else to do, and for at most half of the time, so that the program has
// the network to itself in the other half.
//
// When a member is leaving, its copies do not count: each group that has one lacks a copy. So it gets another one,
// which is filled as in a repair, and then the one on the member that leaves is the surplus copy.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/replicated/layer.h"
#include "backend/replicated/member_care.h"
#include "backend/replicated/refusals.h"

namespace far::backend {

// The repairer's requests to the part that places groups.
class placement {
 public:
  virtual ~placement() = default;
  // Gives a group one more copy, which misses everything, on the best member that has none; `better`: only on one that
  // is better than the worst that has one. Returns 0 or an errno value.
  [[nodiscard]] virtual int place_copy(std::uint64_t number, bool better) = 0;
  // The members, from the best for this group to the worst.
  [[nodiscard]] virtual member_order order_of(std::uint64_t number) const = 0;
  // Frees the extent of a copy that is leaving and that nobody uses, and ends the hold on its group.
  virtual void remove_copy(std::uint64_t number, std::size_t place) = 0;
  // Takes a group's free slots into use, or out of it. A group without a serving copy cannot be written to, so evictors
  // must not get slots of it. If nothing of it is owned, it is given up altogether.
  virtual void set_available(std::uint64_t number, bool available) = 0;
  // Makes a member that was removed gone, if it holds nothing; returns whether it did.
  [[nodiscard]] virtual bool let_go(std::size_t index) = 0;
};

struct repair_counts {
  std::uint64_t repaired_slots = 0;
  std::uint64_t placed_copies = 0;  // on members that hold a group for the first time or again
  std::uint64_t moved_groups = 0;   // of these, to a member that is better for the group
  std::uint64_t removed_copies = 0;
  std::uint64_t raced_slots = 0;  // written by the program while they were being repaired
};

// Joins the layer (queue_holder) before the first step.
class repairer final : public queue_holder, private member_care::host {
 public:
  repairer(layer& shared, placement& groups, std::uint64_t probe_interval_ns);
  ~repairer() override;

  // No step may be under way.
  [[nodiscard]] result<std::unique_ptr<channel>> open_queue(backend& store) override;
  void take_queue(std::unique_ptr<channel> queue) override;

  // One step. Returns after how many nanoseconds it wants the next one. One thread at a time calls it.
  std::uint64_t step();

  // No step is under way, nothing is being repaired, and nobody has called for attention since all groups were found in
  // order.
  [[nodiscard]] bool idle() const { return idle_.load(std::memory_order_acquire) && !shared_.is_spreading(); }
  [[nodiscard]] repair_counts counts() const;

 private:
  static constexpr std::size_t window_slots = 64;
  static constexpr std::uint64_t no_group = ~std::uint64_t{0};
  static constexpr std::uint64_t groups_a_step = 256;  // that are looked at
  static constexpr std::uint64_t probe_cookie = 0;
  static constexpr std::uint64_t job_cookie = 1;

  // asking: the copy has not taken what was written; whether it can be read.
  enum class phase : std::uint8_t { none, draining, reading, writing, asking, leaving };

  // The transfers under way.
  struct job {
    phase now = phase::none;
    std::uint64_t group = 0;
    std::size_t place = 0;  // repaired, or leaving
    std::size_t source = 0;
    bool turned = false;
    bool unsent = false;
    bool is_move = false;  // the group has all its copies without this one
    std::uint64_t begun_ns = 0;
    std::size_t first = 0;  // of the group's slots that are being copied
    std::size_t count = 0;
    repair_window window;
  };

  // A group that the member holds a copy of, and that is kept where it is while the member is probed.
  struct held_group {
    std::uint64_t cursor = 0;
    std::uint64_t number = no_group;
  };

  [[nodiscard]] slot_id hold_slot(std::size_t index) override;
  void release_slot(std::size_t index) override;
  [[nodiscard]] bool send_probe(std::size_t index, const request& probe) override;
  [[nodiscard]] bool let_go(std::size_t index) override { return groups_.let_go(index); }
  void poll_channels();
  void start_walk(bool moving);
  void walk(std::uint64_t now_ns);
  void end_walk(std::uint64_t now_ns);
  [[nodiscard]] bool rests(std::uint64_t now_ns) const { return moving_ && now_ns < rest_until_ns_; }
  [[nodiscard]] bool look_at(std::uint64_t number);
  [[nodiscard]] bool replace_copies(std::uint64_t number);
  [[nodiscard]] std::size_t surplus_of(const group& seen, std::uint64_t number, bool make_room) FAR_REQUIRES(seen.lock);
  [[nodiscard]] bool is_whole_without(const group& seen, std::size_t place) const FAR_REQUIRES(seen.lock);
  // Whether a copy before it, on a member that serves, is on the same server.
  [[nodiscard]] bool fails_with_earlier(const group& seen, std::size_t place) const FAR_REQUIRES(seen.lock);
  [[nodiscard]] bool begin_repair(std::uint64_t number);
  [[nodiscard]] bool begin_move(std::uint64_t number);
  [[nodiscard]] bool is_held_elsewhere(const group& seen, std::size_t place) const FAR_REQUIRES(seen.lock);
  [[nodiscard]] std::size_t first_repairable(const group& seen, std::size_t place, const slot_set& stale) const
      FAR_REQUIRES(seen.lock);
  // Those of the slots that can be copied from the copy in place `source`.
  [[nodiscard]] slot_set found_in(const group& seen, std::size_t source, const slot_set& wanted) const
      FAR_REQUIRES(seen.lock);
  void begin_leaving(group& shrunk, std::uint64_t number, std::size_t place) FAR_REQUIRES(shrunk.lock);
  void advance();
  void start_copying();
  [[nodiscard]] bool choose_source(const group& mended, const slot_set& wanted) FAR_REQUIRES(mended.lock);
  void send();
  void on_moved(int error_code);
  void on_error(int error_code);
  void close(bool copied);

  layer& shared_;
  placement& groups_;
  const std::uint64_t probe_interval_ns_;
  member_care care_;
  std::vector<std::unique_ptr<channel>> channels_;  // by member
  std::array<held_group, maximum_members> held_;    // the same
  std::byte* const buffer_;
  job job_;
  std::array<source_record, maximum_places> sources_;  // by place; of one group, in this walk
  std::uint64_t sources_of_ = no_group;
  std::uint64_t cursor_ = 0;
  bool walking_ = false;                      // over the groups
  bool moving_ = false;                       // this walk also moves groups
  std::uint64_t walk_wanted_spreadings_ = 0;  // when this walk began
  std::uint64_t rest_until_ns_ = 0;           // of moving
  bool walk_found_work_ = false;
  bool walk_missed_ = false;         // something could not be done now
  std::uint64_t walk_again_ns_ = 0;  // it is tried again then
  std::atomic<bool> idle_{true};
  std::atomic<std::uint64_t> repaired_slots_{0};
  std::atomic<std::uint64_t> placed_copies_{0};
  std::atomic<std::uint64_t> moved_groups_{0};
  std::atomic<std::uint64_t> removed_copies_{0};
  std::atomic<std::uint64_t> raced_slots_{0};
};

}  // namespace far::backend
