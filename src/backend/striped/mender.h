// Restores redundancy, in small steps: the walk over the groups of a striped far tier, and the care for its members.
//
// For each group: frees an extent that has left; gives up holders whose member has forgotten them; lets a spare that
// misses nothing take its place; gives a group a spare where a place is empty, or its member is lost or about to stop;
// and copies or decodes what a holder misses, up to 16 rows at a time. It walks while pages lack anything, and does one
// copy at a time. It allocates only when it is created, and when a member is added.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "backend/replicated/member_care.h"
#include "backend/replicated/member_queues.h"
#include "backend/replicated/refusals.h"
#include "backend/striped/stripes.h"

namespace far::backend {

// What the mender asks of the part that places groups.
class extent_supply {
 public:
  virtual ~extent_supply() = default;
  // Takes an extent for group `number` on the best member that holds none of it; `better`: only on one that is better
  // than `than`. Returns 0 or an errno value.
  [[nodiscard]] virtual int take_spare(std::uint64_t number, holder* taken, std::size_t than, bool better) = 0;
  // `held_pages`: some of them may be in the books of a fork's child.
  virtual void free_extent(std::size_t member, slot_id first, bool held_pages) = 0;
  [[nodiscard]] virtual member_order order_of(std::uint64_t number) const = 0;
  // Makes a member that was removed gone, if it holds nothing; returns whether it did.
  [[nodiscard]] virtual bool let_go(std::size_t index) = 0;
};

struct mend_counts {
  std::uint64_t mended_rows = 0;   // pages of holders that missed them
  std::uint64_t decoded_rows = 0;  // of these, computed from others
  std::uint64_t spares = 0;
  std::uint64_t moved_extents = 0;  // of the spares: to a member that was added
  std::uint64_t removed_groups = 0;
};

// Joins the layer before the first step.
class mender final : public queue_holder, private member_care::host {
 public:
  mender(stripes& shared, extent_supply& extents, std::uint64_t probe_interval_ns);
  ~mender() override;
  mender(const mender&) = delete;
  mender& operator=(const mender&) = delete;

  // No step may be under way.
  [[nodiscard]] result<std::unique_ptr<channel>> open_queue(backend& store) override {
    return queues_.open_queue(store);
  }
  void take_queue(std::unique_ptr<channel> queue) override;
  void has_joined() override { queues_.has_joined(); }

  // Returns after how many nanoseconds it wants the next step.
  std::uint64_t step();
  // Nobody has called for attention since all groups were found in order. Where groups are filled and emptied all the
  // time, that is rare.
  [[nodiscard]] bool is_idle() const { return is_idle_.load() && !shared_.members.is_spreading(); }
  [[nodiscard]] mend_counts counts() const;

 private:
  // asking: the holder has not taken what was written; whether it can be read.
  enum class phase : std::uint8_t { none, reading, writing, asking };
  struct job {
    phase now = phase::none;
    std::uint64_t group = 0;
    std::uint8_t transfer = 0;  // its phase
    std::size_t index = 0;      // of the holder
    holder target;
    std::uint32_t row = 0;
    std::uint32_t rows = 0;
    bool is_copy = false;  // from another holder of the same place: sources[0]
    read_plan plan;
    std::size_t outstanding = 0;
    bool has_failed = false;
    member_mask refusing = 0;
  };

  // A group that the member holds pages of, and that is kept where it is while the member is probed.
  struct held_group {
    std::uint64_t cursor = 0;
    std::uint64_t number = 0;
    std::uint8_t phase = 0;  // of the transfer
  };

  [[nodiscard]] slot_id hold_slot(std::size_t index) override;
  void release_slot(std::size_t index) override;
  [[nodiscard]] bool send_probe(std::size_t index, const request& probe) override;
  [[nodiscard]] bool let_go(std::size_t index) override { return extents_.let_go(index); }
  void start_walk(bool is_moving);
  void walk(std::uint64_t now_ns);
  void end_walk(std::uint64_t now_ns);
  [[nodiscard]] bool is_protected(std::uint64_t number) const;
  void note_losses();
  void tell_of_mended_pages();
  [[nodiscard]] bool look_at(std::uint64_t number);
  [[nodiscard]] bool free_left(std::uint64_t number);
  [[nodiscard]] bool remove_empty(std::uint64_t number);
  [[nodiscard]] bool change_holders(std::uint64_t number);
  [[nodiscard]] bool can_do_without(std::uint64_t number, std::size_t index) const;
  [[nodiscard]] bool is_needed(const stripe_group& seen, std::size_t place) const;
  [[nodiscard]] bool add_spare(std::uint64_t number);
  [[nodiscard]] bool begin_move(std::uint64_t number);
  [[nodiscard]] bool install(std::uint64_t number, std::size_t place, const holder& taken);
  [[nodiscard]] bool begin_mending(std::uint64_t number);
  [[nodiscard]] bool find_work(std::uint64_t number, std::size_t index) FAR_REQUIRES(shared_.table.lock);
  [[nodiscard]] std::size_t rows_to_copy(const stripe_group& seen, std::size_t source, std::size_t row,
                                         std::size_t most);
  [[nodiscard]] std::size_t most_to_decode(std::size_t most) const;
  [[nodiscard]] member_mask refusing_members(const stripe_group& seen, std::size_t row) const;
  void read();
  void write();
  void ask();
  void on_transfer(std::size_t member, int error_code);
  void note_sources();
  void note_target();
  void close(bool is_mended);
  [[nodiscard]] std::byte* chunk(std::size_t source) const;

  stripes& shared_;
  extent_supply& extents_;
  member_queues queues_;
  const std::uint64_t probe_interval_ns_;
  member_care care_;
  std::array<held_group, maximum_members> held_;
  std::byte* const memory_;
  job job_;
  std::array<source_record, most_holders> sources_;  // by holder; of one group, in this walk
  std::uint64_t sources_of_ = stripe_table::no_group;
  std::uint64_t cursor_ = 0;
  std::size_t empty_groups_ = 0;  // that this walk has left in their places
  bool is_walking_ = false;
  bool is_moving_ = false;  // this walk also moves extents to a member that was added
  bool has_found_work_ = false;
  bool has_missed_ = false;  // something could not be done now
  bool has_met_unprotected_ = false;
  std::uint64_t walk_again_ns_ = 0;
  std::uint64_t spreadings_before_ = 0;
  std::uint64_t told_rows_ = 0;  // of the mended ones: that the log has told of
  member_mask lost_ = 0;         // when the last walk ended
  bool has_lost_ = false;        // a member, and the log has not told yet that all is well
  std::atomic<bool> is_idle_{true};
  std::atomic<std::uint64_t> mended_rows_{0};
  std::atomic<std::uint64_t> decoded_rows_{0};
  std::atomic<std::uint64_t> spares_{0};
  std::atomic<std::uint64_t> moved_extents_{0};
  std::atomic<std::uint64_t> removed_groups_{0};
};

}  // namespace far::backend
