#include "backend/striped/stripe_table.h"

#include <algorithm>

#include "base/check.h"
#include "platform/local_memory.h"

namespace far::backend {
namespace {

constexpr holder_mask bit(std::size_t index) {
  return static_cast<holder_mask>(1u << index);
}

// A shorter run of free rows is taken only from the emptiest group.
constexpr std::size_t short_run = 8;

struct run_of_rows {
  std::size_t first = 0;
  std::size_t count = 0;
};

// The first run that is long enough, or else the longest.
run_of_rows best_run(const slot_set& rows, std::size_t wanted) {
  run_of_rows best;
  for (std::size_t row = rows.next(0); row < group_slots && best.count < wanted;) {
    const std::size_t count = rows.run_from(row);
    if (count > best.count) best = {row, std::min(count, wanted)};
    row = rows.next(row + count);
  }
  return best;
}

}  // namespace

stripe_table::stripe_table(parity_shape shape, std::uint64_t most_slots)
    : shape_(shape),
      most_slots_(most_slots),
      most_groups_(most_page_places / (group_slots * shape.data)),
      groups_(reinterpret_cast<stripe_group*>(platform::map_local(most_groups_ * sizeof(stripe_group)))),
      place_of_(reinterpret_cast<page_place*>(platform::map_local(most_slots * sizeof(page_place)))),
      owners_(reinterpret_cast<std::uint32_t*>(
          platform::map_local(most_groups_ * group_slots * shape.data * sizeof(std::uint32_t)))),
      filled_(reinterpret_cast<std::uint8_t*>(platform::map_local(most_groups_ * group_slots))) {}

stripe_table::~stripe_table() {
  platform::unmap_local(reinterpret_cast<std::byte*>(groups_), most_groups_ * sizeof(stripe_group));
  platform::unmap_local(reinterpret_cast<std::byte*>(place_of_), most_slots_ * sizeof(page_place));
  platform::unmap_local(reinterpret_cast<std::byte*>(owners_),
                        most_groups_ * group_slots * shape_.data * sizeof(std::uint32_t));
  platform::unmap_local(reinterpret_cast<std::byte*>(filled_), most_groups_ * group_slots);
}

located stripe_table::locate(page_place place) const {
  const std::uint64_t number = place - 1;
  const std::uint64_t row = number / shape_.data;
  return {row / group_slots, static_cast<std::uint32_t>(row % group_slots),
          static_cast<std::uint8_t>(number % shape_.data)};
}

slot_id stripe_table::owner_of(page_place place) const {
  return owners_[place - 1] == 0 ? no_slot : owners_[place - 1] - 1;
}

// Moves it between the lists.
void stripe_table::set_free(stripe_group& group, const slot_set& rows) {
  const std::size_t before = group.free.size();
  const std::size_t after = rows.size();
  group.free = rows;
  free_rows_ += after - before;
  if (std::bit_width(before) == std::bit_width(after)) return;
  std::uint32_t& left = with_free_rows_[static_cast<std::size_t>(std::bit_width(before))];
  std::uint32_t& joined = with_free_rows_[static_cast<std::size_t>(std::bit_width(after))];
  const auto own = static_cast<std::uint32_t>(&group - groups_ + 1);
  if (before > 0) {
    (group.before != 0 ? groups_[group.before - 1].next : left) = group.next;
    if (group.next != 0) groups_[group.next - 1].before = group.before;
  }
  group.next = 0;
  group.before = 0;
  if (after == 0) return;
  group.next = joined;
  if (joined != 0) groups_[joined - 1].before = own;
  joined = own;
}

std::uint64_t stripe_table::place_group(const std::array<holder, most_places>& holders) {
  const std::uint64_t number = next_group();
  FAR_CHECK(number < most_groups_, "a group is left");
  groups_end_ = std::max(groups_end_, number + 1);
  stripe_group& placed = groups_[number];
  const std::uint32_t turns = placed.turns;
  placed = {};
  placed.turns = turns;
  placed.placed = true;
  set_free(placed, slot_set::everything());
  std::copy(holders.begin(), holders.end(), placed.holders.begin());
  ++placed_groups_;
  while (next_group_ < groups_end_ && groups_[next_group_].placed) ++next_group_;
  return number;
}

void stripe_table::remove_group(std::uint64_t number) {
  stripe_group& removed = groups_[number];
  FAR_CHECK(removed.placed && removed.is_empty() && !removed.leaving.present, "only an empty group is given up");
  removed.placed = false;
  removed.holders = {};
  set_free(removed, {});
  --placed_groups_;
  next_group_ = std::min(next_group_, number);
  if (filled_group_ == number) filled_group_ = no_group;
}

std::size_t stripe_table::writable_places(std::span<const member* const> members, const stripe_group& group) const {
  holder_mask places = 0;
  for (std::size_t index = 0; index < most_holders; ++index) {
    const holder& held = group.holders[index];
    if (held.present && members[held.member]->serves()) places |= bit(group.place_of(index));
  }
  return static_cast<std::size_t>(std::popcount(places));
}

// About the emptiest one, among groups that can be written to in full, or else at all. While a member is away, not all
// groups are asked whether they can do without it.
std::uint64_t stripe_table::emptiest_group(std::span<const member* const> members, std::uint64_t except) const {
  constexpr std::size_t most_looks = 256;
  std::uint64_t best = no_group;
  std::size_t looks = 0;
  for (std::size_t listed = free_classes; listed-- > 0;) {
    for (std::uint32_t link = with_free_rows_[listed]; link != 0; link = groups_[link - 1].next) {
      const std::uint64_t number = link - 1;
      if (number == except) continue;
      const std::size_t writable = writable_places(members, groups_[number]);
      if (writable == shape_.places()) return number;
      if (best == no_group && writable >= shape_.data) best = number;
      if (++looks >= most_looks && best != no_group) return best;
    }
  }
  return best;
}

row_run stripe_table::take_rows(std::span<const member* const> members, std::size_t wanted, std::uint64_t except) {
  run_of_rows found;
  if (filled_group_ != no_group && filled_group_ != except &&
      writable_places(members, groups_[filled_group_]) == shape_.places()) {
    found = best_run(groups_[filled_group_].free, wanted);
  }
  std::uint64_t number = filled_group_;
  if (found.count < std::min(wanted, short_run)) {
    number = emptiest_group(members, except);
    if (number == no_group) return {};
    filled_group_ = number;
    found = best_run(groups_[number].free, wanted);
  }
  stripe_group& taken = groups_[number];
  set_free(taken, taken.free - slot_set::range(found.first, found.count));
  row_run run{.group = number,
              .first = static_cast<std::uint32_t>(found.first),
              .count = static_cast<std::uint32_t>(found.count),
              .phase = begin(number),
              .spare_for = taken.spare_for};
  for (std::size_t index = 0; index < most_holders; ++index) {
    const holder& held = taken.holders[index];
    if (!held.present || !members[held.member]->serves()) continue;
    run.targets |= bit(index);
    run.members[index] = held.member;
    run.firsts[index] = held.first;
  }
  return run;
}

// Holders may have come and gone since the write began; one is the same if its extent is.
stripe_table::sealed_rows stripe_table::seal(std::span<const member* const> members, const row_run& run,
                                             std::size_t pages, holder_mask succeeded) {
  stripe_group& written = groups_[run.group];
  const slot_set rows = slot_set::range(run.first, run.count);
  holder_mask stored = 0;  // by place
  bool leaves_stale = false;
  for (std::size_t index = 0; index < most_holders; ++index) {
    holder& held = written.holders[index];
    if (!held.present) continue;
    bool is_stored = false;
    for (std::size_t target = 0; target < most_holders; ++target) {
      is_stored |=
          (succeeded >> target & 1) != 0 && run.members[target] == held.member && run.firsts[target] == held.first;
    }
    held.missing = is_stored ? held.missing - rows : held.missing | rows;
    leaves_stale |= !is_stored;
    const member& keeper = *members[held.member];
    if (is_stored && keeper.state() != member_state::emptied && !keeper.has_forgotten()) {
      stored |= bit(written.place_of(index));
    }
  }
  for (std::size_t i = 0; i < run.count; ++i) {
    std::uint8_t filled = 0;
    std::size_t known = 0;
    for (std::size_t place = 0; place < shape_.places(); ++place) {
      const bool is_filled = place >= shape_.data || i < filled_rows(pages, run.count, place);
      if (is_filled && place < shape_.data) filled |= static_cast<std::uint8_t>(bit(place));
      known += !is_filled || (stored >> place & 1) != 0;
    }
    if (known < shape_.data) {
      written.dying |= rows;
      return {};
    }
    filled_[run.group * group_slots + run.first + i] = filled;
  }
  written.sealed |= rows;
  return {.is_safe = true, .leaves_stale = leaves_stale};
}

bool stripe_table::holds_pages(std::uint64_t group, std::size_t row) const {
  const page_place first = number_of(group, row, 0) - 1;
  return std::any_of(owners_ + first, owners_ + first + shape_.data, [](std::uint32_t owner) { return owner != 0; });
}

void stripe_table::disown(page_place place) {
  const located where = locate(place);
  stripe_group& holding = groups_[where.group];
  owners_[place - 1] = 0;
  --holding.live_pages;
  --live_pages_;
  if (holds_pages(where.group, where.row)) return;
  const slot_set row = slot_set::range(where.row, 1);
  holding.sealed = holding.sealed - row;
  holding.dying |= row;
  settle(holding);
}

void stripe_table::set_page(slot_id slot, page_place place) {
  const page_place before = place_of_[slot];
  place_of_[slot] = place;
  owners_[place - 1] = static_cast<std::uint32_t>(slot + 1);
  ++groups_[locate(place).group].live_pages;
  ++live_pages_;
  if (before != 0) disown(before);
}

bool stripe_table::clear_page(slot_id slot) {
  const page_place before = place_of_[slot];
  if (before == 0) return false;
  place_of_[slot] = 0;
  disown(before);
  return true;
}

void stripe_table::end_write(const row_run& run) {
  stripe_group& written = groups_[run.group];
  for (std::size_t row = run.first; row < run.first + run.count; ++row) {
    if (!written.sealed.contains(row) || holds_pages(run.group, row)) continue;
    written.sealed = written.sealed - slot_set::range(row, 1);
    written.dying |= slot_set::range(row, 1);
  }
  end(run.group, run.phase);
}

bool stripe_table::is_usable(std::span<const member* const> members, const holder& held, std::size_t row,
                             const read_limits& limits) const {
  if (!held.present || held.missing.contains(row) || (limits.shunned >> held.member & 1) != 0) return false;
  const member_state state = members[held.member]->state();
  return state == member_state::serving || (limits.any_state && state != member_state::emptied);
}

bool stripe_table::find_sources(std::span<const member* const> members, std::size_t row, const read_limits& limits,
                                read_plan* plan) const {
  for (plan->choice = 0; plan->choice < shape_.choices(); ++plan->choice) {
    const bool is_shunned = (limits.shunned_choices >> plan->choice & 1) != 0;
    if (!is_shunned && find_choice(members, row, limits, plan)) return true;
  }
  return false;
}

// The choice number is plan->choice.
bool stripe_table::find_choice(std::span<const member* const> members, std::size_t row, const read_limits& limits,
                               read_plan* plan) const {
  const stripe_group& holding = groups_[plan->group];
  const std::size_t left_out = shape_.parity == 1 ? most_places : shape_.places() - 2 - plan->choice;
  std::size_t others = 0;
  std::size_t found = 0;
  for (std::size_t other = 0; other < shape_.places(); ++other) {
    if (other == plan->place || others++ == left_out) continue;
    if (!is_filled(plan->group, row, other)) {
      plan->sources[found++] = {.place = static_cast<std::uint8_t>(other), .is_zero = true};
      continue;
    }
    for (std::size_t index = 0; index < most_holders; ++index) {
      const holder& held = holding.holders[index];
      if (holding.place_of(index) != other || !is_usable(members, held, row, limits)) continue;
      plan->sources[found++] = {.place = static_cast<std::uint8_t>(other),
                                .member = held.member,
                                .is_zero = false,
                                .first = held.first + row};
      break;
    }
  }
  FAR_CHECK(found <= shape_.data, "a choice has as many pages as a row");
  return found == shape_.data;
}

bool stripe_table::same_sources(std::span<const member* const> members, const read_plan& plan, std::size_t row,
                                const read_limits& limits) const {
  read_plan other = plan;
  if (!find_sources(members, row, limits, &other)) return false;
  for (std::size_t i = 0; i < shape_.data; ++i) {
    if (other.sources[i].place != plan.sources[i].place || other.sources[i].is_zero != plan.sources[i].is_zero ||
        other.sources[i].member != plan.sources[i].member) {
      return false;
    }
  }
  return true;
}

// Why a page cannot be read.
read_plan::outcome stripe_table::trouble(std::span<const member* const> members, const located& where,
                                         const read_limits& limits) const {
  const stripe_group& holding = groups_[where.group];
  std::size_t soon = 0;
  std::size_t perhaps = 0;
  for (std::size_t place = 0; place < shape_.places(); ++place) {
    bool is_soon = !is_filled(where.group, where.row, place);
    bool is_perhaps = is_soon;
    for (std::size_t index = 0; index < most_holders; ++index) {
      const holder& held = holding.holders[index];
      if (holding.place_of(index) != place || !held.present || held.missing.contains(where.row)) continue;
      if ((limits.shunned >> held.member & 1) != 0) continue;
      const member_state state = members[held.member]->state();
      is_perhaps |= state != member_state::emptied;
      is_soon |= state == member_state::serving || state == member_state::suspect;
    }
    // The page itself is as good as all the others together.
    const std::size_t worth = place == where.column ? shape_.data : 1;
    soon += is_soon ? worth : 0;
    perhaps += is_perhaps ? worth : 0;
  }
  if (soon >= shape_.data) return read_plan::outcome::waits;
  return perhaps >= shape_.data ? read_plan::outcome::away : read_plan::outcome::gone;
}

read_plan stripe_table::plan_read(std::span<const member* const> members, slot_id slot, std::size_t pages,
                                  std::size_t most_decoded, const read_limits& limits) const {
  read_plan plan;
  const page_place place = place_of_[slot];
  if (place == 0) {
    plan.how = read_plan::outcome::zeros;
    while (plan.pages < pages && place_of_[slot + plan.pages] == 0) ++plan.pages;
    return plan;
  }
  const located where = locate(place);
  const stripe_group& holding = groups_[where.group];
  plan.group = where.group;
  plan.row = where.row;
  plan.place = where.column;
  plan.pages = 1;
  const auto follows = [&] {
    lock.assert_held();
    return plan.pages < pages && where.row + plan.pages < group_slots &&
           place_of_[slot + plan.pages] == place + plan.pages * shape_.data;
  };
  for (std::size_t index = 0; index < most_holders; ++index) {
    const holder& held = holding.holders[index];
    if (holding.place_of(index) != where.column || !is_usable(members, held, where.row, limits)) continue;
    plan.how = read_plan::outcome::direct;
    plan.sources[0] = {.place = where.column, .member = held.member, .is_zero = false, .first = held.first + where.row};
    while (follows() && !held.missing.contains(where.row + plan.pages)) ++plan.pages;
    plan.phase = begin(plan.group);
    return plan;
  }
  if (!find_sources(members, where.row, limits, &plan)) {
    plan.how = trouble(members, where, limits);
    return plan;
  }
  plan.how = read_plan::outcome::decoded;
  while (plan.pages < most_decoded && follows() && same_sources(members, plan, where.row + plan.pages, limits)) {
    ++plan.pages;
  }
  plan.phase = begin(plan.group);
  return plan;
}

slot_set stripe_table::movable_rows(std::uint64_t number) const {
  const stripe_group& seen = groups_[number];
  return seen.passed_over_in == round_ ? seen.sealed - seen.passed_over : seen.sealed;
}

std::size_t stripe_table::pages_in(std::uint64_t number, const slot_set& rows) const {
  std::size_t pages = 0;
  for (std::size_t row = rows.next(0); row < group_slots; row = rows.next(row + 1)) {
    const page_place first = number_of(number, row, 0) - 1;
    pages += shape_.data - static_cast<std::size_t>(std::count(owners_ + first, owners_ + first + shape_.data, 0u));
  }
  return pages;
}

void stripe_table::pass_over(std::uint64_t number, const slot_set& rows) {
  stripe_group& seen = groups_[number];
  seen.passed_over = seen.passed_over_in == round_ ? seen.passed_over | rows : rows;
  seen.passed_over_in = round_;
}

std::size_t stripe_table::rows_with_sources(std::span<const member* const> members, std::size_t row, std::size_t most,
                                            read_plan* plan, const read_limits& limits) const {
  if (!find_sources(members, row, limits, plan)) return 0;
  std::size_t rows = 1;
  while (rows < most && same_sources(members, *plan, row + rows, limits)) ++rows;
  return rows;
}

std::uint8_t stripe_table::begin(std::uint64_t group) const {
  stripe_group& used = groups_[group];
  ++used.in_flight[used.phase];
  return used.phase;
}

void stripe_table::end(std::uint64_t group, std::uint8_t phase) {
  stripe_group& used = groups_[group];
  FAR_CHECK(used.in_flight[phase] > 0, "a transfer ends once");
  --used.in_flight[phase];
  settle(used);
}

void stripe_table::settle(stripe_group& group) {
  for (int turn = 0; turn < 2 && group.in_flight[group.phase ^ 1] == 0; ++turn) {
    const bool is_awaited = group.leaving.present || !group.is_spare_settled();
    if (group.dying.empty() && group.dying_before.empty() && !is_awaited) break;
    set_free(group, group.free | group.dying_before);
    group.dying_before = group.dying;
    group.dying = {};
    group.phase ^= 1;
    ++group.turns;
  }
  has_emptied_ |= group.is_empty();
}

bool stripe_table::begin_leaving(stripe_group& group, std::size_t index) {
  if (group.leaving.present) return false;
  group.leaving = group.holders[index];
  group.holders[index] = {};
  group.leaves_at_turn = group.turns + 2;
  settle(group);
  return true;
}

void stripe_table::validate() const {
  std::uint64_t free_rows = 0;
  std::uint64_t live = 0;
  std::uint64_t placed = 0;
  for (std::uint64_t number = 0; number < groups_end_; ++number) {
    const stripe_group& checked = groups_[number];
    placed += checked.placed;
    free_rows += checked.free.size();
    const slot_set dying = checked.dying | checked.dying_before;
    FAR_CHECK(
        (checked.free & checked.sealed).empty() && (checked.free & dying).empty() && (checked.sealed & dying).empty(),
        "a row is in one state");
    std::array<bool, maximum_members> seen{};
    for (const holder& held : checked.holders) {
      if (!held.present) continue;
      FAR_CHECK(checked.placed, "a group without a place has no holders");
      FAR_CHECK(!seen[held.member], "a member holds one page of a row");
      seen[held.member] = true;
    }
    std::uint32_t live_here = 0;
    for (std::size_t row = 0; row < group_slots; ++row) {
      for (std::size_t column = 0; column < shape_.data; ++column) {
        const page_place place = number_of(number, row, column);
        const slot_id owner = owner_of(place);
        if (owner == no_slot) continue;
        ++live_here;
        FAR_CHECK(checked.sealed.contains(row) && is_filled(number, row, column), "a page lies in a sealed row");
        FAR_CHECK(place_of_[owner] == place, "a page knows its slot, and the slot its page");
      }
      FAR_CHECK(!checked.sealed.contains(row) || holds_pages(number, row), "a sealed row holds a page");
    }
    FAR_CHECK(live_here == checked.live_pages, "pages of a group are counted");
    live += live_here;
  }
  std::uint64_t listed_rows = 0;
  for (std::size_t listed = 1; listed < free_classes; ++listed) {
    for (std::uint32_t link = with_free_rows_[listed]; link != 0; link = groups_[link - 1].next) {
      const std::size_t free = groups_[link - 1].free.size();
      FAR_CHECK(static_cast<std::size_t>(std::bit_width(free)) == listed, "a group is in the list of its like");
      listed_rows += free;
    }
  }
  FAR_CHECK(listed_rows == free_rows_, "groups with free rows are in lists");
  FAR_CHECK(next_group_ == groups_end_ || !groups_[next_group_].placed, "the next group is not placed");
  FAR_CHECK(free_rows == free_rows_, "free rows are counted");
  FAR_CHECK(live == live_pages_, "pages are counted");
  FAR_CHECK(placed == placed_groups_, "groups are counted");
}

}  // namespace far::backend
