// A far tier with parity over several members: less memory than copies, for more work when a member fails.
//
// - Pages of a batch of writes are put together to rows of `data` pages and their parity pages, on different members
//   (striped_channel.h, stripe_table.h). Any `data` pages of a row give the others, so `parity` members may fail.
// - A read takes the page itself, from one member; if that does not answer, the page is computed from others.
// - tend() probes members that do not answer, computes on other members what lost ones held (mender.h), and moves pages
//   together when too many of their rows' pages are garbage (compactor.h).
//
// The memory of the members is (data + parity) / data times that of the pages, and up to 25% and two groups more while
// pages are freed and written (compactor.h).
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/replicated/redundancy.h"
#include "backend/replicated/replicated_backend.h"
#include "backend/slot_allocator.h"
#include "backend/striped/compactor.h"
#include "backend/striped/mender.h"
#include "backend/striped/stripes.h"
#include "base/spin_lock.h"

namespace far::backend {

// Those of copies, without `copies`.
struct striped_options : replicated_options {
  parity_shape shape{.data = 2, .parity = 1};
};

class striped_backend final : public backend, private row_supply, private extent_supply {
 public:
  // A member that does not answer() begins as lost. Errors: fewer members than places in a row, too many.
  [[nodiscard]] static result<std::unique_ptr<striped_backend>> create(std::vector<std::unique_ptr<backend>> members,
                                                                       const striped_options& chosen);
  ~striped_backend() override;

  [[nodiscard]] result<slot_id> allocate(std::size_t count) override;
  void free(slot_id first, std::size_t count) override;
  [[nodiscard]] result<std::unique_ptr<channel>> open_channel(std::size_t depth) override;
  [[nodiscard]] result<void> add_server(std::string_view server) override;
  [[nodiscard]] result<std::uint64_t> remove_server(std::string_view server, removal step) override;
  void prepare_exit() override;
  void keep_in_place(bool wanted) override { shared_.members.keep_in_place(wanted); }
  void report_damage(slot_id slot, std::uint8_t bad, std::uint8_t right, damage kind) override;
  [[nodiscard]] bool reduces() const override { return reduces_; }
  [[nodiscard]] std::uint64_t scrubbed_pages_per_second() const override { return scrubbed_pages_per_second_; }
  [[nodiscard]] std::uint64_t read_patience_ns() const override { return shared_.members.read_patience_ns(); }
  // Of all slots: while so many are away that rows cannot be computed.
  [[nodiscard]] std::uint64_t away_since_ns(slot_id slot) const override;
  std::uint64_t tend() override;
  void after_fork_in_child() override;
  [[nodiscard]] capacity report() const override;
  [[nodiscard]] speed expected_speed() const override;
  [[nodiscard]] std::string describe() const override;

  // Adds a member while calls and transfers are under way. Errors: those of layer::add().
  [[nodiscard]] result<void> add_member(std::unique_ptr<backend> store, std::string name, std::string zone = {});

  // Makes the compactor put pages together that have garbage beside them, as if writers waited for rows.
  void make_room() { shared_.is_starved.store(true); }

  // For status reports and tests.
  struct counts {
    std::uint64_t pages = 0;          // that somebody has written and not freed
    std::uint64_t stored_slots = 0;   // of members
    std::uint64_t decoded_pages = 0;  // read although their member did not answer
    std::uint64_t moved_pages = 0;    // by the compactor
    mend_counts mended;
  };
  [[nodiscard]] counts counted() const;
  // Whether every group has all its places, on members that serve, none of them misses anything, and extents are where
  // they should be.
  [[nodiscard]] bool is_whole() const;
  // Whether pages or extents are being moved: a move may still end without one of its members. Under load, some always
  // are.
  [[nodiscard]] bool is_moving() const { return !mender_.is_idle() || !compactor_.is_idle(); }
  // For validators.
  [[nodiscard]] const stripes& books() const { return shared_; }

  // Requires that no call is under way. Stops the process when something is wrong.
  void validate() const;

 private:
  striped_backend(std::vector<std::unique_ptr<member>> members, const striped_options& chosen,
                  const platform::clock& time, std::uint64_t most_slots);

  [[nodiscard]] int place_group() override;
  [[nodiscard]] int take_spare(std::uint64_t number, holder* taken, std::size_t than, bool better) override;
  void free_extent(std::size_t member, slot_id first, bool held_pages) override;
  [[nodiscard]] member_order order_of(std::uint64_t number) const override;
  [[nodiscard]] bool let_go(std::size_t index) override;

  [[nodiscard]] int take_extent(std::size_t index, slot_id* first) FAR_REQUIRES(placement_lock_);
  [[nodiscard]] int ask_for_extent(std::size_t index, slot_id* first) FAR_REQUIRES(placement_lock_);
  [[nodiscard]] bool can_spare(std::uint64_t extents) const FAR_REQUIRES(placement_lock_);
  [[nodiscard]] int provide_rows(std::size_t count) FAR_REQUIRES(placement_lock_);
  [[nodiscard]] int place_group_locked() FAR_REQUIRES(placement_lock_);
  [[nodiscard]] std::uint64_t keep_as_child();
  void update_capacity() FAR_REQUIRES(tending_);
  [[nodiscard]] std::uint64_t lacking_pages(std::uint64_t number) const;
  [[nodiscard]] const parity_shape& shape() const { return shared_.code.shape(); }

  const std::uint64_t capacity_limit_;
  const std::uint64_t scrubbed_pages_per_second_;
  const bool reduces_;  // all of its servers do: they are of one kind
  pid_t process_ = getpid();
  pid_t parent_ = 0;  // in the child of a fork
  const std::function<result<named_backend>(std::string_view)> connect_;
  mutable stripes shared_;
  slot_allocator slots_;
  mender mender_;
  compactor compactor_;
  redundancy redundancy_;

  // Guards extents of members. Taken before the table's lock.
  mutable spin_lock placement_lock_;
  std::array<std::uint64_t, maximum_members> asked_since_ns_
      FAR_GUARDED_BY(placement_lock_){};  // the member's server is being asked for room
  std::uint64_t starved_since_ns_ FAR_GUARDED_BY(placement_lock_) = 0;
  std::atomic<std::uint64_t> used_slots_{0};
  std::atomic<std::uint64_t> total_slots_{0};
  std::uint64_t next_capacity_ns_ FAR_GUARDED_BY(tending_) = 0;
  spin_lock tending_;
};

}  // namespace far::backend
