// Two far tiers as one: when the first is nearly full, its coldest slots move to the next one in the background. More
// than two are a stack whose next tier is a stack.
//
// A slot keeps its number when it moves (place_table.h). New slots are in the first tier while that has room, and in
// the next one otherwise. When the next one fails, or is full, the bytes stay where they are.
//
// Forks concern only the members: a member whose bytes a fork does not copy outlives forks by itself (open_for_forks),
// and the table of places is copied.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/slot_allocator.h"
#include "backend/stacked/place_table.h"
#include "backend/stacked/spiller.h"
#include "base/spin_lock.h"
#include "platform/clock.h"

namespace far::backend {

class stacked_backend final : public backend {
 public:
  stacked_backend(std::unique_ptr<backend> first, std::unique_ptr<backend> next, const platform::clock& time);

  [[nodiscard]] result<slot_id> allocate(std::size_t count) override;
  void free(slot_id first, std::size_t count) override;
  [[nodiscard]] result<std::unique_ptr<channel>> open_channel(std::size_t depth) override;
  std::uint64_t tend() override;
  [[nodiscard]] bool wants_tending() const override;
  // To the tier that has servers.
  [[nodiscard]] result<void> add_server(std::string_view server) override;
  [[nodiscard]] result<std::uint64_t> remove_server(std::string_view server, removal step) override;
  void keep_in_place(bool wanted) override;
  void prepare_exit() override;
  // Where one of them does: questions about slots in the other one end with EXDEV.
  [[nodiscard]] bool reduces() const override { return members_[0]->reduces() || members_[1]->reduces(); }
  // For channels: whether the tier that has the slot answers. A function of the program's needs a server; where the
  // bytes can be read, the program calls it.
  [[nodiscard]] bool answers_at(tier_place place, const reduction& asked) const;
  [[nodiscard]] bool answers() const override { return members_[0]->answers() && members_[1]->answers(); }
  [[nodiscard]] std::uint64_t incarnation() const override {
    return members_[0]->incarnation() + members_[1]->incarnation();
  }

  [[nodiscard]] std::uint64_t scrubbed_pages_per_second() const override {
    return std::max(members_[0]->scrubbed_pages_per_second(), members_[1]->scrubbed_pages_per_second());
  }
  void report_damage(slot_id slot, std::uint8_t bad, std::uint8_t right, damage kind) override;
  // Either may be the one that has servers.
  [[nodiscard]] std::uint64_t read_patience_ns() const override {
    return std::max(members_[0]->read_patience_ns(), members_[1]->read_patience_ns());
  }

  [[nodiscard]] std::uint64_t away_since_ns(slot_id slot) const override;

  void prepare_fork() override;
  void after_fork_in_parent() override;
  void after_fork_in_child() override;
  void claim_in_child(slot_id slot) override;
  void close_claims_in_child() override;
  // Requires: the members outlive forks, one way or the other.
  [[nodiscard]] bool is_copied_by_fork() const override { return true; }

  [[nodiscard]] capacity report() const override;
  // The speed of the slower one: looking too far ahead costs less than not far enough.
  [[nodiscard]] speed expected_speed() const override { return members_[1]->expected_speed(); }
  [[nodiscard]] std::string describe() const override;

  // For channels: it was freed, and its last transfer has ended.
  void free_dead(slot_id slot, tier_place place);

  // For channels: a write to the first tier found no room there. New slots are in the next one for a while.
  void note_first_is_full();

 private:
  [[nodiscard]] result<slot_id> take_numbers(std::size_t count);
  [[nodiscard]] result<void> place(slot_id first, std::size_t count);
  [[nodiscard]] bool passes_first_by();
  [[nodiscard]] std::size_t place_in(unsigned tier, slot_id first, std::size_t count, int* failure);
  void give_back(slot_id first, std::size_t count);

  const std::array<std::unique_ptr<backend>, 2> members_;
  const platform::clock& time_;
  slot_allocator slots_;
  spin_lock growth_lock_;
  place_table places_;
  spiller spiller_;
  std::uint64_t numbered_ FAR_GUARDED_BY(growth_lock_);  // the most slots that the members have had
  std::atomic<std::uint64_t> first_full_until_ns_{0};
  std::atomic<std::uint64_t> placed_{0};  // batches, while the first tier was nearly full
};

// The tiers that "FIRST,NEXT,..." names; a comma begins a tier where a scheme follows it.
[[nodiscard]] std::vector<std::string> split_tiers(std::string_view names);

// A stack of the tiers of these names, the first of which is above the others. `open_one` opens each.
[[nodiscard]] result<std::unique_ptr<backend>> open_stacked(
    const std::vector<std::string>& names, const platform::clock& time,
    const std::function<result<std::unique_ptr<backend>>(const std::string& name)>& open_one);

}  // namespace far::backend
