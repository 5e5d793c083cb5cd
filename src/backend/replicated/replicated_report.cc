// What a replicated far tier says of itself, and its validator.
#include <algorithm>
#include <array>

#include "backend/replicated/replicated_backend.h"
#include "base/check.h"

namespace far::backend {

std::string replicated_backend::describe() const {
  if (shared_.member_count() == 1 && shared_.at(0).serves()) return shared_.at(0).store().describe();
  std::string text = shared_.copies > 1 ? std::to_string(shared_.copies) + " copies on " : "striped over ";
  const char* separator = "";
  for (const member* member : shared_.view()) {
    if (member->is_gone()) continue;
    text += separator + member->name();
    if (!member->serves()) text += std::string(" (") + name_of(member->state()) + ")";
    if (member->is_leaving()) text += " (leaving)";
    separator = ", ";
  }
  return text;
}

std::vector<replicated_backend::member_status> replicated_backend::members() const {
  std::vector<member_status> all;
  for (const member* member : shared_.view()) {
    all.push_back({member->name(), member->state(), member->extents.load(), member->read_latency_ns()});
  }
  return all;
}

bool replicated_backend::is_whole() const {
  const auto is_well = [](const member* member) { return member->is_gone() || member->serves(); };
  if (!std::ranges::all_of(shared_.view(), is_well) || !repairer_->idle()) return false;
  for (std::uint64_t number = 0; number < shared_.groups_end.load(); ++number) {
    group& checked = shared_.group_at(number);
    const lock_guard guard(checked.lock);
    if (!checked.placed) continue;
    std::size_t up_to_date = 0;
    for (std::size_t place = 0; place < checked.copies.size(); ++place) {
      const copy& held = checked.copies[place];
      if (!held.present) continue;
      if (held.leaving || !checked.stale(place).empty()) return false;
      const auto fails_together = [&](const copy& other) {
        return other.present && shared_.fail_together(other.member, held.member);
      };
      if (std::ranges::any_of(std::span(checked.copies).first(place), fails_together)) return false;
      ++up_to_date;
    }
    if (up_to_date != shared_.copies) return false;
  }
  return true;
}

// Of each page that is owned, as many as fewer servers than wanted hold it now. Copies that a replacement makes beyond
// that, or that share a server, make up for nothing.
std::uint64_t replicated_backend::lacking_copies(std::uint64_t number) const {
  group& counted = shared_.group_at(number);
  const lock_guard guard(counted.lock);
  if (!counted.placed) return 0;
  const std::uint64_t pages = counted.owned.size();
  std::uint64_t lacking = shared_.copies * pages;
  for (std::size_t place = 0; place < counted.copies.size(); ++place) {
    const copy& held = counted.copies[place];
    const auto fails_together = [&](const copy& other) {
      return other.present && shared_.fail_together(other.member, held.member);
    };
    if (!held.present || !shared_.at(held.member).serves()) continue;
    if (std::ranges::any_of(std::span(counted.copies).first(place), fails_together)) continue;
    lacking -= std::min(lacking, pages - counted.stale(place).size());
  }
  return lacking;
}

void replicated_backend::validate() const {
  const lock_guard guard(placement_lock_);
  std::uint64_t used = 0;
  std::uint64_t free_groups = 0;
  std::uint64_t placed_groups = 0;
  std::uint64_t groups_with_affinity = 0;
  std::array<std::uint64_t, maximum_members> extents{};
  for (std::uint64_t number = 0; number < shared_.groups_end.load(); ++number) {
    group& checked = shared_.group_at(number);
    const lock_guard group_guard(checked.lock);
    used += checked.owned.size();
    FAR_CHECK(checked.placed || (!checked.available && checked.owned.empty()), "a group without a place holds nothing");
    free_groups += checked.available && checked.owned.empty();
    placed_groups += checked.placed;
    if (const affinity by = checked.chosen_by.load(); checked.placed && by != no_affinity) {
      FAR_CHECK(std::ranges::count(near_[by].numbers, number) == 1, "a group is listed once with its affinity");
      ++groups_with_affinity;
    }
    std::array<bool, maximum_members> seen{};
    for (const copy& held : checked.copies) {
      if (!held.present) continue;
      FAR_CHECK(checked.placed, "a group without a place has no copies");
      FAR_CHECK(!seen[held.member], "a member holds one copy of a group");
      seen[held.member] = true;
      ++extents[held.member];
    }
    const std::uint64_t end = std::min(group_slots, capacity_limit_ - number * group_slots);
    for (std::uint64_t slot = 0; slot < end; ++slot) {
      const bool taken = slots_.all_allocated(number * group_slots + slot, 1);
      FAR_CHECK(taken == (checked.owned.contains(slot) || !checked.available), "the slot map agrees with the groups");
    }
  }
  for (const groups_of_affinity& near : near_) groups_with_affinity -= near.numbers.size();
  FAR_CHECK(groups_with_affinity == 0, "only placed groups are listed with an affinity");
  FAR_CHECK(used == used_slots_.load(), "used slots are counted");
  FAR_CHECK(free_groups == free_groups_, "free groups are counted");
  FAR_CHECK(placed_groups == placed_groups_, "groups with a place are counted");
  for (std::size_t i = 0; i < shared_.member_count(); ++i) {
    FAR_CHECK(extents[i] == shared_.at(i).extents.load(), "extents of a member are counted");
  }
}

}  // namespace far::backend
