// The shared state of a replicated far tier.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/replicated/group.h"
#include "backend/replicated/member.h"
#include "base/spin_lock.h"
#include "platform/clock.h"
#include "platform/local_memory.h"

namespace far::backend {

// An object that has a queue to each member. A member that is added is known to nobody before all of them have one to
// it, so a channel that finds it in a group's record has a queue. Called with the lock on members held.
class queue_holder {
 public:
  virtual ~queue_holder() = default;
  // Opens a queue to one more member, and leaves it to the caller.
  [[nodiscard]] virtual result<std::unique_ptr<channel>> open_queue(backend& store) = 0;
  // Adds it as the queue of the next member, while others may be using the existing queues.
  virtual void take_queue(std::unique_ptr<channel> queue) = 0;
  // The queues of all present members have been added.
  virtual void has_joined() {}
};

// A bit for each member.
using member_mask = std::uint64_t;
static_assert(maximum_members <= 64);

class layer {
 public:
  struct waiting_times {
    std::uint64_t lost_after_ns = 0;
    std::uint64_t patience_ns = 0;  // 0: as long as the members' leases live
  };
  struct copy_counts {
    std::size_t copies = 1;
    std::size_t least = 1;  // without as many, a write fails
    // Of rows with parity: the option, and how many pages of a row are not parity; `copies` counts all of them.
    std::string parity = {};
    std::size_t data = 1;
  };
  layer(std::vector<std::unique_ptr<member>> members, copy_counts counts, std::uint64_t most_groups,
        waiting_times waits, const platform::clock& time);
  ~layer();
  layer(const layer&) = delete;
  layer& operator=(const layer&) = delete;

  // Members are numbered from 0, and stay. A number found in a group's record, under its lock, is below the count that
  // is read afterwards.
  [[nodiscard]] member& at(std::size_t index) const { return *members_[index]; }
  [[nodiscard]] std::span<const member* const> view() const { return {view_.data(), member_count()}; }
  [[nodiscard]] std::size_t member_count() const { return count_.load(std::memory_order_acquire); }
  [[nodiscard]] group& group_at(std::uint64_t number) const { return groups_[number]; }
  [[nodiscard]] std::uint64_t most_groups() const { return most_groups_; }

  // Opens queues to all members for `joining`, and to those that are added until it leaves.
  [[nodiscard]] result<void> join(queue_holder& joining);
  void leave(queue_holder& leaving);

  // Adds a member, and has groups spread over it. Errors: its name is a member's already, there are maximum_members, or
  // a queue to it cannot be opened.
  [[nodiscard]] result<void> add(std::unique_ptr<member> added);

  // Makes the members of this name, or on the server of this name now, leave, if those that stay can hold
  // `used_groups`; returns how many groups they still have a copy of, and 0 only when they are gone. Errors: no such
  // member, too few or too small others.
  [[nodiscard]] result<std::uint64_t> remove(std::string_view name, removal step, std::uint64_t used_groups);

  // The most groups that fit with all copies or, while members are lost or leave, with as many copies as possible.
  // `without`: as if these left, too. max(): only the machines limit it.
  [[nodiscard]] std::uint64_t fitting_groups(member_mask without = 0) const;

  // The member before `end` that has the same server behind it as `store`; nullptr: none is known. Two copies on one
  // server are one.
  [[nodiscard]] const member* twin_of(const backend& store, std::size_t end) const;

  // Whether two members are in one zone, or have the same server behind them now: hash slots of a Redis Cluster move
  // between its nodes.
  [[nodiscard]] bool fail_together(std::size_t one, std::size_t other) const;

  // The number of the first of the members that `counts` accepts, and that may fail with this one.
  template <typename Predicate>
  [[nodiscard]] std::size_t first_of_zone(std::size_t index, Predicate counts) const {
    std::size_t first = 0;
    while (first < index && (!counts(at(first)) || !fail_together(first, index))) ++first;
    return first;
  }

  // How many servers, or zones, the members have behind them that may get new copies. `without`: as if these left, too.
  [[nodiscard]] std::size_t lending_servers(member_mask without = 0) const;

  // Tells tend() that there may be something to repair.
  void call_for_attention() { attention_.store(true, std::memory_order_release); }
  [[nodiscard]] bool take_attention() { return attention_.exchange(false, std::memory_order_acq_rel); }

  // Requests that groups move to the members that they hash to, because there is a new one. Counts these requests, and
  // whether they have been carried out.
  void want_spreading() {
    ++spreadings_wanted_;
    call_for_attention();
  }
  [[nodiscard]] std::uint64_t spreadings_wanted() const { return spreadings_wanted_.load(); }
  void note_spread(std::uint64_t wanted_before) { spreadings_done_.store(wanted_before); }
  [[nodiscard]] bool is_spreading() const { return spreadings_done_.load() != spreadings_wanted_.load(); }

  // Children of a fork read copies where they were at the fork: no copy is given up that could stay.
  void keep_in_place(bool wanted) { kept_in_place_.store(wanted, std::memory_order_release); }
  [[nodiscard]] bool is_kept_in_place() const { return kept_in_place_.load(std::memory_order_acquire); }

  // A transfer with a member failed, or its server is away or has forgotten its slots: updates the member's health, and
  // tells the user when it changes.
  void note_error(std::size_t index, int error_code);

  // A slot of one member is damaged, and misses its bytes from now on. Says so at most once a second.
  void note_damage(damage kind, std::size_t bad, std::size_t right);
  // A member has refused to return or to take what was to be copied. The same.
  void note_refusal(std::size_t index);
  // Of all members, since the start.
  [[nodiscard]] std::uint64_t damaged_slots() const;

  // A read could not be served, and never will: names who held the bytes, at most once a second.
  void report_unreadable(std::uint64_t number);

  // A read could not be served, and may be later: names the members that hold the bytes, once until a member serves
  // again.
  void report_waiting(std::uint64_t number);
  void note_return() { waiting_reported_.store(false); }

  // Whether it is time to say one or the other of these.
  [[nodiscard]] bool may_report_unreadable() { return may_report(&reported_at_ns_); }
  [[nodiscard]] bool may_report_waiting() { return !detached_ && !waiting_reported_.exchange(true); }

  // Says when too few members serve for anything to be written, and when there are enough again.
  void report_shortage();

  // How long reads are worth trying again: as chosen, or as long as a member's leases live.
  [[nodiscard]] std::uint64_t read_patience_ns() const;
  // As of backend.
  [[nodiscard]] std::uint64_t away_since_ns(slot_id slot) const;
  // Since when more than `spared` members that hold something have not answered, the last of them to go; otherwise 0.
  [[nodiscard]] std::uint64_t away_since_ns_without(std::size_t spared) const;

  // An extent that held somebody's bytes is about to be freed. A child of fork, whose books are those of the moment of
  // the fork, must not read from this member any more; it shares the counter with its parent.
  void note_removal(std::size_t index) { removals_[index].fetch_add(1, std::memory_order_acq_rel); }

  // In the child of a fork: forgets locks, queues and transfers of other threads. From then on only reads.
  void detach();
  [[nodiscard]] bool detached() const { return detached_; }
  // In the child: whether its knowledge of this member's extents is still valid.
  [[nodiscard]] bool still_valid(std::size_t index) const {
    return !detached_ || removals_[index].load(std::memory_order_acquire) == removals_at_fork_[index];
  }

  const std::size_t copies;
  const std::size_t least_copies;
  const std::string parity;
  const std::uint64_t group_bytes;  // of pages
  const std::uint64_t lost_after_ns;
  const platform::clock& time;
  // Groups at or above were never placed.
  std::atomic<std::uint64_t> groups_end{0};

 private:
  [[nodiscard]] result<void> check_new(const member& added) const;
  [[nodiscard]] result<void> check_removal(std::string_view name, member_mask removed, std::uint64_t used_groups) const;
  void name_holders(std::uint64_t number, std::span<char> into);

  std::array<std::unique_ptr<member>, maximum_members> members_;
  std::array<const member*, maximum_members> view_{};
  std::atomic<std::size_t> count_{0};
  // Guards the list of queue holders, and makes additions of members wait for one another.
  spin_lock members_lock_;
  std::vector<queue_holder*, platform::local_allocator<queue_holder*>> holders_ FAR_GUARDED_BY(members_lock_);
  const std::uint64_t most_groups_;
  group* const groups_;
  std::atomic<std::uint32_t>* const removals_;
  std::array<std::uint32_t, maximum_members> removals_at_fork_{};
  std::atomic<bool> attention_{false};
  std::atomic<std::uint64_t> spreadings_wanted_{0};
  std::atomic<std::uint64_t> spreadings_done_{0};
  std::atomic<bool> kept_in_place_{false};
  const std::uint64_t patience_ns_;
  // Whether a message that appears at most once a second may appear now.
  [[nodiscard]] bool may_report(std::atomic<std::uint64_t>* last_ns) const;

  std::atomic<std::uint64_t> reported_at_ns_{0};
  std::atomic<std::uint64_t> reported_damage_at_ns_{0};
  std::atomic<std::uint64_t> reported_refusal_at_ns_{0};
  std::atomic<bool> waiting_reported_{false};
  bool shortage_reported_ = false;  // the reporter's own
  bool detached_ = false;
};

}  // namespace far::backend
