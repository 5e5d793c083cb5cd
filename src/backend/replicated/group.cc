#include "backend/replicated/group.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "backend/replicated/member.h"

namespace far::backend {
namespace {

constexpr place_mask bit(std::size_t place) {
  return static_cast<place_mask>(1u << place);
}

}  // namespace

// The fastest of those that have most of the bytes.
started_read group::begin_read(std::span<const member* const> members, byte_range bytes, const read_choice& choice) {
  struct candidate {
    std::size_t place = maximum_places;
    std::size_t end_slot = 0;
    std::uint64_t cost = std::numeric_limits<std::uint64_t>::max();
  };
  candidate best;
  candidate second;
  started_read begun;
  for (std::size_t place = 0; place < copies.size(); ++place) {
    const copy& held = copies[place];
    if (!held.present || held.leaving || (choice.tried & bit(place)) != 0) continue;
    if ((choice.avoid >> held.member & 1) != 0) continue;
    const std::size_t end_slot = std::min(stale(place).next(bytes.first_slot()), bytes.end_slot());
    if (end_slot == bytes.first_slot()) continue;
    const member_state state = members[held.member]->state();
    if (state == member_state::emptied) continue;
    if (state == member_state::suspect) begun.how = started_read::outcome::waits;
    if (state == member_state::lost && begun.how == started_read::outcome::gone) {
      begun.how = started_read::outcome::away;
    }
    if (state != member_state::serving && !choice.any_state) continue;
    const candidate found{place, end_slot, choice.costs[held.member] + (state == member_state::serving ? 0 : 1u << 30)};
    const bool better = found.end_slot > best.end_slot || (found.end_slot == best.end_slot && found.cost < best.cost);
    if (better) second = best;
    if (better) best = found;
    if (!better) second = found;
  }
  if (best.place == maximum_places) return begun;
  if (choice.explore && second.place != maximum_places && second.end_slot == best.end_slot) best = second;
  const copy& chosen = copies[best.place];
  ++in_flight_[phase_];
  return {.how = started_read::outcome::served,
          .place = static_cast<std::uint8_t>(best.place),
          .phase = phase_,
          .member = chosen.member,
          .first = chosen.first,
          .end = std::min<std::uint32_t>(bytes.end, static_cast<std::uint32_t>(best.end_slot * page_bytes))};
}

std::uint64_t group::away_since_ns(std::span<const member* const> members, std::size_t slot) const {
  std::uint64_t last_ns = 0;
  for (std::size_t place = 0; place < copies.size(); ++place) {
    const copy& held = copies[place];
    if (!held.present || held.leaving || stale(place).contains(slot)) continue;
    const member& holder = *members[held.member];
    const member_state state = holder.state();
    if (state == member_state::emptied) continue;
    const std::uint64_t since_ns = holder.away_since_ns();
    if (state == member_state::serving || since_ns == 0) return 0;
    last_ns = std::max(last_ns, since_ns);
  }
  return last_ns;
}

started_read group::begin_read_from(std::size_t member_index, std::span<const member* const> members, std::size_t slot,
                                    bool any_state) {
  for (std::size_t place = 0; place < copies.size(); ++place) {
    const copy& held = copies[place];
    if (!held.present || held.leaving || held.member != member_index) continue;
    if (stale(place).contains(slot)) continue;
    if (members[held.member]->state() != member_state::serving && !any_state) continue;
    ++in_flight_[phase_];
    return {.how = started_read::outcome::served,
            .place = static_cast<std::uint8_t>(place),
            .phase = phase_,
            .member = held.member,
            .first = held.first,
            .end = static_cast<std::uint32_t>((slot + 1) * page_bytes)};
  }
  return {};
}

started_write group::begin_write(std::span<const member* const> members, byte_range bytes, std::size_t least) {
  started_write begun;
  for (std::size_t place = 0; place < copies.size(); ++place) {
    const copy& held = copies[place];
    if (!held.present || held.leaving || !members[held.member]->serves()) continue;
    begun.places |= bit(place);
    begun.members[place] = held.member;
    begun.firsts[place] = held.first;
  }
  const bool races = window_ != nullptr && !(window_->slots & bytes.slots()).empty();
  const place_mask sure = races ? begun.places & static_cast<place_mask>(~bit(window_->target)) : begun.places;
  if (servers_of(members, sure) < least) return {.waits = servers_of(members, begun.places) >= least};
  if (races) {
    window_->touched |= bytes.slots();
    begun.raced = bit(window_->target);
  }
  begun.phase = phase_;
  ++in_flight_[phase_];
  return begun;
}

std::size_t group::first_on_server(std::span<const member* const> members, place_mask places, std::size_t place) const {
  for (std::size_t first = 0; first < place; ++first) {
    if ((places & bit(first)) == 0) continue;
    if (members[copies[first].member]->fails_with(*members[copies[place].member])) return first;
  }
  return place;
}

std::size_t group::servers_of(std::span<const member* const> members, place_mask places) const {
  std::size_t count = 0;
  for (std::size_t place = 0; place < copies.size(); ++place) {
    if ((places & bit(place)) != 0) count += first_on_server(members, places, place) == place;
  }
  return count;
}

ended_write group::end_write(std::span<const member* const> members, const started_write& write, byte_range bytes,
                             place_mask succeeded, std::size_t least) {
  const slot_set whole = bytes.whole_slots();
  // The slots that are current on the server of each place, and then those on one server, on two, and so on.
  std::array<slot_set, maximum_places> on_server;
  std::array<slot_set, maximum_places> current;
  for (std::size_t place = 0; place < copies.size(); ++place) {
    if ((succeeded & bit(place)) == 0) continue;
    if ((write.raced & bit(place)) == 0) copies[place].missing = copies[place].missing - whole;
    const member& holder = *members[copies[place].member];
    if (holder.state() == member_state::emptied || holder.has_forgotten()) continue;
    const std::size_t counted = least > 1 ? first_on_server(members, succeeded, place) : place;
    on_server[counted] |= ~copies[place].missing;
  }
  for (const slot_set& held : on_server) {
    for (std::size_t i = maximum_places; i-- > 1;) current[i] |= current[i - 1] & held;
    current[0] |= held;
  }
  const slot_set& safe = current[least - 1];
  end(write.phase);
  const slot_set written = bytes.slots();
  if (!(written - safe).empty()) return {.is_safe = false, .leaves_stale = false};
  bool leaves_stale = write.raced != 0;
  for (std::size_t place = 0; place < copies.size(); ++place) {
    if (!copies[place].present || (succeeded & bit(place)) != 0) continue;
    copies[place].missing |= written;
    leaves_stale = true;
  }
  return {.is_safe = true, .leaves_stale = leaves_stale};
}

void group::own(const slot_set& slots) {
  owned |= slots;
  if (window_ != nullptr) window_->touched |= slots & window_->slots;
  for (std::size_t place = 0; place < copies.size(); ++place) {
    const bool is_target = window_ != nullptr && window_->target == place;
    copies[place].missing = copies[place].missing - (is_target ? slots - window_->slots : slots);
  }
}

bool group::drained(bool* turned) {
  // Transfers for which an earlier drain did not wait to the end.
  const std::uint8_t other = phase_ ^ 1;
  if (in_flight_[other] != 0) return false;
  if (*turned) return true;
  phase_ = other;
  *turned = true;
  return in_flight_[phase_ ^ 1] == 0;
}

}  // namespace far::backend
