// What the parts of a replicated far tier share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/replicated/group.h"
#include "backend/replicated/member.h"
#include "platform/clock.h"
#include "platform/local_memory.h"

namespace far::backend {

class layer {
 public:
  layer(std::vector<std::unique_ptr<member>> members, std::size_t copies, std::uint64_t most_groups,
        std::uint64_t lost_after_ns, const platform::clock& time);
  ~layer();
  layer(const layer&) = delete;
  layer& operator=(const layer&) = delete;

  [[nodiscard]] member& at(std::size_t index) const { return *members_[index]; }
  [[nodiscard]] std::span<const member* const> view() const { return view_; }
  [[nodiscard]] std::size_t member_count() const { return members_.size(); }
  [[nodiscard]] group& group_at(std::uint64_t number) const { return groups_[number]; }
  [[nodiscard]] std::uint64_t most_groups() const { return most_groups_; }

  // Tells tend() that there may be something to repair.
  void call_for_attention() { attention_.store(true, std::memory_order_release); }
  [[nodiscard]] bool take_attention() { return attention_.exchange(false, std::memory_order_acq_rel); }

  // A transfer with a member failed: keeps the member's health, and tells the user when it changes.
  void note_error(std::size_t index, int error_code);

  // A read could not be served: names who held the bytes, at most once a second.
  void report_unreadable(std::uint64_t number);

  // An extent that held somebody's bytes is about to be freed. A child of fork, whose books are those of the moment of
  // the fork, must not read from this member any more; it shares the counter with its parent.
  void note_removal(std::size_t index) { removals_[index].fetch_add(1, std::memory_order_acq_rel); }

  // In the child of a fork: forgets locks and transfers of other threads. From then on only reads.
  void detach();
  [[nodiscard]] bool detached() const { return detached_; }
  // In the child: whether what it knows of this member's extents still holds.
  [[nodiscard]] bool still_valid(std::size_t index) const {
    return !detached_ || removals_[index].load(std::memory_order_acquire) == removals_at_fork_[index];
  }

  const std::size_t copies;
  const std::uint64_t lost_after_ns;
  const platform::clock& time;
  // Groups at or above were never placed.
  std::atomic<std::uint64_t> groups_end{0};

 private:
  std::vector<std::unique_ptr<member>> members_;
  std::vector<const member*> view_;
  const std::uint64_t most_groups_;
  group* const groups_;
  std::atomic<std::uint32_t>* const removals_;
  std::vector<std::uint32_t, platform::local_allocator<std::uint32_t>> removals_at_fork_;
  std::atomic<bool> attention_{false};
  std::atomic<std::uint64_t> reported_at_ns_{0};
  bool detached_ = false;
};

}  // namespace far::backend
