#include "backend/replicated/replicated_backend.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <set>
#include <span>
#include <utility>

#include "backend/replicated/replicated_channel.h"
#include "base/check.h"
#include "base/log.h"

namespace far::backend {
namespace {

// Groups without any owned slot that keep their extents, for the next evictions.
constexpr std::uint64_t kept_free_groups = 4;

// How long a member whose server has been asked for room is waited for before others take its place.
constexpr std::uint64_t patience_ns = 1'000'000'000;
constexpr std::uint64_t capacity_interval_ns = 100'000'000;
constexpr std::uint64_t largest_capacity_slots = std::uint64_t{1} << 31;  // 8 TiB

// Visits the parts of a run of slots by group: visit(number, first slot in the group, count).
template <typename F>
void for_each_group(slot_id first, std::uint64_t count, F&& visit) {
  for (const slot_id end = first + count; first < end;) {
    const std::uint64_t part = std::min(end - first, group_slots - first % group_slots);
    visit(first / group_slots, first % group_slots, part);
    first += part;
  }
}

// Members of the same name would compete for the same groups.
void make_distinct(std::vector<std::string>* names) {
  std::set<std::string> seen;
  for (std::string& name : *names) {
    const std::string base = name;
    for (int number = 2; !seen.insert(name).second; ++number) name = base + " #" + std::to_string(number);
  }
}

}  // namespace

result<std::unique_ptr<replicated_backend>> replicated_backend::create(std::vector<std::unique_ptr<backend>> members,
                                                                       const replicated_options& chosen) {
  if (members.empty() || members.size() > maximum_members) {
    return error{"a far tier takes between 1 and " + std::to_string(maximum_members) + " servers, not " +
                     std::to_string(members.size()),
                 EINVAL};
  }
  const std::size_t most = std::min(members.size(), maximum_copies);
  if (chosen.copies == 0 || chosen.copies > most) {
    return error{"copies=" + std::to_string(chosen.copies) + " with " + std::to_string(members.size()) +
                     " server(s): each copy needs a server of its own; write copies=1 to copies=" +
                     std::to_string(most) + ", or name more servers",
                 EINVAL};
  }
  if (chosen.least_copies == 0 || chosen.least_copies > chosen.copies) {
    return error{"min-copies=" + std::to_string(chosen.least_copies) + " with copies=" + std::to_string(chosen.copies) +
                     ": write min-copies=1 to min-copies=" + std::to_string(chosen.copies),
                 EINVAL};
  }
  std::vector<std::string> names = chosen.names;
  for (std::size_t i = names.size(); i < members.size(); ++i) names.push_back(members[i]->describe());
  make_distinct(&names);
  std::vector<std::unique_ptr<member>> named;
  for (std::size_t i = 0; i < members.size(); ++i) {
    named.push_back(
        std::make_unique<member>(std::move(members[i]), names[i], i < chosen.zones.size() ? chosen.zones[i] : ""));
  }
  // Members that are added bring room, and books that are not used cost addresses only.
  const std::uint64_t most_slots = chosen.capacity_slots != 0 ? chosen.capacity_slots : largest_capacity_slots;
  static const platform::monotonic_clock machine_clock;
  const platform::clock& time = chosen.clock != nullptr ? *chosen.clock : machine_clock;
  std::unique_ptr<replicated_backend> created(
      new replicated_backend(std::move(named), chosen, time, std::min(most_slots, largest_capacity_slots)));
  const layer& members_made = created->shared_;
  for (std::size_t i = 0; i < members_made.member_count(); ++i) {
    const member* const twin = members_made.twin_of(members_made.at(i).store(), i);
    if (twin == nullptr) continue;
    return error{"far tier: " + twin->name() + " and " + members_made.at(i).name() +
                     " are one and the same server; name it once",
                 EINVAL};
  }
  if (result<void> ready = created->shared_.join(*created->repairer_); !ready) return ready.error();
  return created;
}

replicated_backend::replicated_backend(std::vector<std::unique_ptr<member>> members, const replicated_options& chosen,
                                       const platform::clock& time, std::uint64_t most_slots)
    : capacity_limit_(most_slots),
      scrubbed_pages_per_second_(chosen.scrubbed_pages_per_second),
      reduces_(members.front()->store().reduces()),
      reduces_rows_(members.front()->store().reduces_rows()),
      connect_(chosen.connect),
      find_server_(chosen.find_server),
      shared_(std::move(members), {.copies = chosen.copies, .least = chosen.least_copies},
              (most_slots + group_slots - 1) / group_slots,
              {.lost_after_ns = chosen.lost_after_ns, .patience_ns = chosen.patience_ns}, time),
      slots_(most_slots),
      repairer_(std::make_unique<repairer>(shared_, static_cast<placement&>(*this), chosen.probe_interval_ns)) {
  update_capacity();
}

replicated_backend::~replicated_backend() = default;

member_order replicated_backend::order_of(std::uint64_t number) const {
  std::array<std::uint64_t, maximum_members> hashes{};
  for (std::size_t i = 0; i < shared_.member_count(); ++i) hashes[i] = shared_.at(i).name_hash();
  const affinity chosen_by = shared_.group_at(number).chosen_by.load(std::memory_order_relaxed);
  const std::uint64_t key = chosen_by == no_affinity ? number : ~std::uint64_t{chosen_by};  // no group's number
  return order_for({hashes.data(), shared_.member_count()}, key);
}

// Only questions about rows need slots on one server, and while every server has a copy of all, they are.
result<slot_id> replicated_backend::allocate_near(affinity with, std::size_t count) {
  if (!reduces_rows_ || shared_.member_count() <= shared_.copies || count > group_slots) with = no_affinity;
  const lock_guard guard(placement_lock_);
  while (true) {
    if (const std::optional<slot_id> first = take_slots(with, count)) {
      take_in(*first, count);
      return *first;
    }
    const int code = may_grow_for(with, count) ? place_next_group(with) : ENOSPC;
    // Where nobody could be asked, a slot that is free elsewhere is better than to wait.
    const bool is_asked = with == no_affinity || shared_.lending_servers() >= shared_.least_copies;
    if (code == EAGAIN && is_asked) return error{"far tier asked", EAGAIN};
    if (with == no_affinity && code != 0) return out_of_slots();
    with = code == 0 ? with : no_affinity;
  }
}

// Next fit: a few groups are looked at, so that a long row of full ones costs little.
std::optional<slot_id> replicated_backend::take_slots(affinity with, std::size_t count) {
  if (with == no_affinity) return slots_.allocate(count);
  constexpr std::size_t most_looks = 16;
  groups_of_affinity& near = near_[with];
  for (std::size_t looks = std::min(most_looks, near.numbers.size()); looks > 0; --looks) {
    if (near.next >= near.numbers.size()) near.next = 0;
    if (const std::optional<slot_id> first = take_slots_of(near.numbers[near.next], count)) return first;
    if (looks > 1) ++near.next;
  }
  return std::nullopt;
}

std::optional<slot_id> replicated_backend::take_slots_of(std::uint64_t number, std::size_t count) {
  const group& from = shared_.group_at(number);
  if (!from.available) return std::nullopt;
  const slot_set unowned = ~from.owned;
  for (std::size_t slot = unowned.next(0); slot < group_slots;) {
    const std::size_t run = unowned.run_from(slot);
    const slot_id first = number * group_slots + slot;
    if (run >= count && slots_.claim(first, count)) return first;
    slot = unowned.next(slot + run);
  }
  return std::nullopt;
}

void replicated_backend::take_in(slot_id first, std::size_t count) {
  for_each_group(first, count, [this](std::uint64_t number, std::size_t begin, std::size_t part) {
    placement_lock_.assert_held();
    group& taken = shared_.group_at(number);
    const lock_guard guard(taken.lock);
    if (taken.owned.empty()) --free_groups_;
    taken.own(slot_set::range(begin, part));
  });
  used_slots_ += count;
}

void replicated_backend::free(slot_id first, std::size_t count) {
  const lock_guard guard(placement_lock_);
  for_each_group(first, count, [this](std::uint64_t number, std::size_t begin, std::size_t part) {
    placement_lock_.assert_held();
    group& given = shared_.group_at(number);
    bool empty = false;
    {
      const lock_guard group_guard(given.lock);
      const slot_set freed = slot_set::range(begin, part);
      FAR_CHECK((freed - given.owned).empty(), "a slot that is not allocated was freed");
      given.owned = given.owned - freed;
      empty = given.owned.empty();
    }
    if (given.available) slots_.free(number * group_slots + begin, part);
    if (empty && given.available) ++free_groups_;
    if (empty && (!given.available || free_groups_ > kept_free_groups)) static_cast<void>(give_up(number));
  });
  used_slots_ -= count;
}

// The lowest group that has no place.
int replicated_backend::place_next_group(affinity with) {
  const std::uint64_t end = shared_.groups_end.load();
  while (first_unplaced_ < end && shared_.group_at(first_unplaced_).placed) ++first_unplaced_;
  if (first_unplaced_ == shared_.most_groups()) return ENOSPC;
  const std::uint64_t number = first_unplaced_;
  shared_.group_at(number).chosen_by.store(with, std::memory_order_relaxed);
  const int code = place_group(number);
  if (code != 0) return code;
  if (with != no_affinity) {
    near_[with].next = near_[with].numbers.size();
    near_[with].numbers.push_back(number);
  }
  if (number == end) {
    slots_.extend(std::min((number + 1) * group_slots, capacity_limit_));
    shared_.groups_end.store(end + 1);
  } else {
    const slot_id first = number * group_slots;
    slots_.free(first, std::min(group_slots, capacity_limit_ - first));
  }
  ++free_groups_;
  // Only now: a walk of the repairer ends at groups_end, and one that began before would not have seen the group.
  if (lacks_copies(number)) shared_.call_for_attention();
  return 0;
}

// It is counted first, because a member that holds nothing may change its incarnation at any moment.
int replicated_backend::take_extent(std::size_t index, slot_id* first) {
  member& lender = shared_.at(index);
  ++lender.extents;
  const int refused = lender.takes_copies() ? ask_for_extent(index, first) : EAGAIN;
  if (refused != 0) --lender.extents;
  return refused;
}

int replicated_backend::ask_for_extent(std::size_t index, slot_id* first) {
  member& lender = shared_.at(index);
  const result<slot_id> taken = lender.store().allocate(group_slots);
  if (taken && lender.has_forgotten()) {
    // Slots of its earlier incarnation must be given up first, and these would go with them.
    lender.store().free(taken.value(), group_slots);
    shared_.note_error(index, ESTALE);
    return EAGAIN;
  }
  if (taken) {
    *first = taken.value();
    asked_since_ns_[index] = 0;
    return 0;
  }
  if (is_unreachable(taken.error().code)) shared_.note_error(index, taken.error().code);
  if (taken.error().code != EAGAIN) return ENOSPC;
  const std::uint64_t now_ns = shared_.time.now_ns();
  if (asked_since_ns_[index] == 0) asked_since_ns_[index] = now_ns;
  return now_ns - asked_since_ns_[index] < patience_ns ? EAGAIN : ENOSPC;
}

// How many copies groups lack, or must have elsewhere soon. A group that is being moved has a surplus copy for a while,
// which may hide the lack of another. What a lost member holds of single copies can only be waited for.
std::uint64_t replicated_backend::missing_copies() const {
  std::uint64_t held = 0;
  for (const member* holder : shared_.view()) {
    const member_state state = holder->state();
    const bool answers = state == member_state::serving || state == member_state::suspect;
    if (answers ? !holder->is_leaving() : shared_.copies == 1) held += holder->extents.load();
  }
  const std::uint64_t wanted = placed_groups_ * shared_.copies;
  return wanted - std::min(wanted, held);
}

// Whether every group still finds room for the copies that it lacks when so many extents, at most one of a member, are
// used for something else. Each placed copy takes at most one from the room and one from the missing copies, so the
// answer stays true until all are placed, in any order, unless a member fails. Without this check, new groups took the
// room of copies that were being rebuilt. One of two conditions is enough:
// - As many zones as there are copies have room for every group that they do not hold: one of them does not hold it.
// - There is room for all, that of the roomiest zone not counted: a group may have its other copy there.
bool replicated_backend::can_spare(std::uint64_t extents) const {
  const std::uint64_t missing = missing_copies();
  if (missing == 0 || shared_.lending_servers() < shared_.copies) return true;
  // By the first member of each zone.
  struct lent {
    std::uint64_t left = 0;
    std::uint64_t held = 0;
  };
  std::array<lent, maximum_members> zones{};
  for (std::size_t i = 0; i < shared_.member_count(); ++i) {
    const member& lender = shared_.at(i);
    if (!lender.takes_copies()) continue;
    lent& zone = zones[shared_.first_of_zone(i, [](const member& other) { return other.takes_copies(); })];
    const std::uint64_t total = lender.store().report().total_slots / group_slots;
    const std::uint64_t held = lender.extents.load();
    zone.left += total - std::min(total, held);
    zone.held += held;
  }
  std::uint64_t room = 0;
  std::uint64_t most = 0;
  std::size_t roomy_zones = 0;
  for (const lent& zone : zones) {
    roomy_zones += zone.left > std::min(missing, placed_groups_ - std::min(placed_groups_, zone.held));
    room += zone.left;
    most = std::max(most, zone.left);
  }
  return roomy_zones >= shared_.copies || room - most >= missing + extents;
}

// If fewer servers serve and lend than there should be copies, it places fewer, but not fewer than may be written to;
// the repairer adds the others later.
int replicated_backend::place_group(std::uint64_t number) {
  const std::size_t wanted = std::min(shared_.copies, shared_.lending_servers());
  if (wanted < shared_.least_copies) return EAGAIN;
  if (!can_spare(shared_.copies)) return ENOSPC;
  std::array<copy, maximum_places> taken{};
  std::size_t count = 0;
  int code = ENOSPC;
  const member_order order = order_of(number);
  for (const std::uint8_t index : order.all()) {
    if (count == wanted) break;
    if (!shared_.at(index).takes_copies()) continue;
    const auto fails_together = [&](const copy& held) { return shared_.fail_together(held.member, index); };
    if (std::ranges::any_of(std::span(taken).first(count), fails_together)) continue;
    slot_id first = no_slot;
    const int refused = take_extent(index, &first);
    if (refused == EAGAIN) code = EAGAIN;
    if (refused == EAGAIN) break;
    if (refused == 0)
      taken[count++] = {.present = true, .leaving = false, .member = index, .first = first, .missing = {}};
  }
  if (count < wanted) {
    for (const copy& copy : std::span(taken).first(count)) {
      shared_.at(copy.member).store().free(copy.first, group_slots);
      --shared_.at(copy.member).extents;
    }
    return code;
  }
  group& placed = shared_.group_at(number);
  const lock_guard guard(placed.lock);
  ++placed_groups_;
  placed.placed = true;
  placed.available = true;
  placed.owned = {};
  placed.copies = taken;
  return 0;
}

bool replicated_backend::lacks_copies(std::uint64_t number) const {
  group& looked_at = shared_.group_at(number);
  const lock_guard guard(looked_at.lock);
  const auto is_present = [](const copy& held) { return held.present; };
  return static_cast<std::size_t>(std::ranges::count_if(looked_at.copies, is_present)) < shared_.copies;
}

// Returns false, and leaves the group as it is, while the repairer is at work on it. Requires: no slot of it is owned.
bool replicated_backend::give_up(std::uint64_t number) {
  group& leaving = shared_.group_at(number);
  const slot_id first = number * group_slots;
  const bool was_available = leaving.available;
  std::array<copy, maximum_places> freed;
  {
    const lock_guard guard(leaving.lock);
    if (leaving.holds > 0) return false;
    freed = leaving.copies;
    leaving.copies = {};
    leaving.placed = false;
    leaving.available = false;
  }
  if (was_available) {
    FAR_CHECK(slots_.claim(first, std::min(group_slots, capacity_limit_ - first)), "nobody owns a slot of the group");
    --free_groups_;
  }
  for (const copy& copy : freed) {
    if (!copy.present) continue;
    shared_.at(copy.member).store().free(copy.first, group_slots);
    --shared_.at(copy.member).extents;
  }
  if (const affinity chosen_by = leaving.chosen_by.exchange(no_affinity); chosen_by != no_affinity) {
    std::erase(near_[chosen_by].numbers, number);
  }
  --placed_groups_;
  first_unplaced_ = std::min(first_unplaced_, number);
  return true;
}

// A copy must not be in one zone with another that counts: with one that stays, or, if the copy is a better one than
// the worst, with one on a better member, since it may replace a worse one of its zone. Nor on one server with any.
int replicated_backend::place_copy(std::uint64_t number, bool better) {
  const lock_guard guard(placement_lock_);
  group& grown = shared_.group_at(number);
  std::array<bool, maximum_members> holds{};
  std::array<bool, maximum_members> counts{};
  std::size_t place = maximum_places;
  std::size_t holders = 0;
  {
    const lock_guard group_guard(grown.lock);
    for (std::size_t i = 0; i < grown.copies.size(); ++i) {
      if (grown.copies[i].present) {
        const member& holder = shared_.at(grown.copies[i].member);
        holds[grown.copies[i].member] = true;
        counts[grown.copies[i].member] =
            !better && !grown.copies[i].leaving && !holder.is_leaving() && holder.may_serve_again();
        ++holders;
      } else {
        place = i;
      }
    }
  }
  if (!grown.placed || place == maximum_places) return ENOSPC;
  if (better && !can_spare(1)) return EAGAIN;
  int code = ENOSPC;
  const member_order order = order_of(number);
  for (const std::uint8_t index : order.all()) {
    if (holds[index] && --holders == 0 && better) break;
    counts[index] |= better && holds[index];
    if (holds[index] || !shared_.at(index).takes_copies()) continue;
    bool fails_together = false;
    for (std::size_t other = 0; other < shared_.member_count(); ++other) {
      fails_together |= holds[other] && (counts[other] ? shared_.fail_together(other, index)
                                                       : shared_.at(other).is_same_server(shared_.at(index)));
    }
    if (fails_together) continue;
    slot_id first = no_slot;
    const int refused = take_extent(index, &first);
    if (refused == EAGAIN) code = EAGAIN;
    if (refused != 0) continue;
    const lock_guard group_guard(grown.lock);
    grown.copies[place] = {
        .present = true, .leaving = false, .member = index, .first = first, .missing = slot_set::everything()};
    return 0;
  }
  return code;
}

void replicated_backend::remove_copy(std::uint64_t number, std::size_t place) {
  const lock_guard guard(placement_lock_);
  copy removed;
  {
    group& shrunk = shared_.group_at(number);
    const lock_guard group_guard(shrunk.lock);
    removed = shrunk.copies[place];
    FAR_CHECK(removed.present && removed.leaving, "only a copy that is leaving is removed");
    shrunk.copies[place] = {};
    --shrunk.holds;
  }
  shared_.note_removal(removed.member);
  shared_.at(removed.member).store().free(removed.first, group_slots);
  --shared_.at(removed.member).extents;
}

void replicated_backend::set_available(std::uint64_t number, bool available) {
  const lock_guard guard(placement_lock_);
  group& changed = shared_.group_at(number);
  if (!changed.placed || changed.available == available) return;
  if (changed.owned.empty() && !available && give_up(number)) return;
  const std::uint64_t end = std::min(group_slots, capacity_limit_ - number * group_slots);
  const slot_set unowned = slot_set::range(0, end) - changed.owned;
  for (std::size_t slot = unowned.next(0); slot < group_slots; slot = unowned.next(slot)) {
    const std::size_t run = unowned.run_from(slot);
    if (available) {
      slots_.free(number * group_slots + slot, run);
    } else {
      FAR_CHECK(slots_.claim(number * group_slots + slot, run), "a free slot can be taken");
    }
    slot += run;
  }
  const lock_guard group_guard(changed.lock);
  changed.available = available;
  if (changed.owned.empty()) free_groups_ += available ? 1 : std::uint64_t(-1);
}

result<std::unique_ptr<channel>> replicated_backend::open_channel(std::size_t depth) {
  return replicated_channel::open(shared_, depth);
}

result<void> replicated_backend::add_server(std::string_view server) {
  if (!connect_) return backend::add_server(server);
  result<named_backend> connected = connect_(server);
  if (!connected) return connected.error();
  named_backend& added = connected.value();
  return add_member(std::move(added.store), std::move(added.name), std::move(added.zone));
}

result<void> replicated_backend::add_member(std::unique_ptr<backend> store, std::string name, std::string zone) {
  auto added = std::make_unique<member>(std::move(store), std::move(name), std::move(zone));
  const lock_guard guard(tending_);
  if (result<void> done = shared_.add(std::move(added)); !done) return done;
  update_capacity();
  return {};
}

result<std::uint64_t> replicated_backend::remove_server(std::string_view server, removal step) {
  if (shared_.detached()) return backend::remove_server(server, step);
  std::uint64_t used_groups = 0;
  {
    const lock_guard guard(placement_lock_);
    used_groups = placed_groups_ - free_groups_;
  }
  const result<std::uint64_t> left = shared_.remove(server, step, used_groups);
  if (!left) return left.error();
  return left.value() * group_slots * page_bytes;
}

// Nothing is placed on it any more after the look under the lock.
bool replicated_backend::let_go(std::size_t index) {
  const lock_guard guard(placement_lock_);
  if (shared_.at(index).extents.load() > 0) return false;
  shared_.at(index).be_gone();
  return true;
}

// Only if the right bytes are still there: the copies may have moved meanwhile.
void replicated_backend::report_damage(slot_id slot, std::uint8_t bad, std::uint8_t right, damage kind) {
  if (shared_.detached() || bad == right) return;
  const slot_set damaged = slot_set::range(slot % group_slots, 1);
  {
    group& holder = shared_.group_at(slot / group_slots);
    const lock_guard guard(holder.lock);
    copy* bad_copy = nullptr;
    bool is_held_elsewhere = false;
    for (copy& held : holder.copies) {
      if (!held.present || held.leaving || held.missing.contains(slot % group_slots)) continue;
      if (held.member + 1 == bad) bad_copy = &held;
      is_held_elsewhere |= held.member + 1 == right && shared_.at(held.member).serves();
    }
    if (bad_copy == nullptr || !is_held_elsewhere) return;
    bad_copy->missing |= damaged;
  }
  shared_.note_damage(kind, bad - 1u, right - 1u);
}

// One that does not answer could only be waited for, and each for its second.
void replicated_backend::prepare_exit() {
  for (const member* member : shared_.view()) {
    if (!member->is_gone() && member->store().answers()) member->store().prepare_exit();
  }
}

// While the parent of a fork lives, its connections keep the child's slots alive on the servers. When it has ended,
// only the child's own do, and those are opened when the child reads, which may be too late.
std::uint64_t replicated_backend::keep_as_child() {
  constexpr std::uint64_t look_at_parent_ns = 1'000'000'000;
  if (getppid() == parent_) return look_at_parent_ns;
  std::uint64_t next_ns = look_at_parent_ns;
  for (std::size_t i = 0; i < shared_.member_count(); ++i) {
    if (shared_.at(i).extents.load() > 0) next_ns = std::min(next_ns, shared_.at(i).store().tend());
  }
  return next_ns;
}

std::uint64_t replicated_backend::tend() {
  if (shared_.detached()) return keep_as_child();
  if (!tending_.try_lock()) return 1'000'000;
  const lock_guard guard(tending_, std::adopt_lock);
  std::uint64_t next_ns = no_tending;
  for (const member* member : shared_.view()) next_ns = std::min(next_ns, member->store().tend());
  if (shared_.time.now_ns() >= next_capacity_ns_) {
    update_capacity();
    take_in_found_server();
  }
  return std::min(next_ns, repairer_->step());
}

void replicated_backend::take_in_found_server() {
  std::optional<named_backend> found = find_server_ ? find_server_() : std::nullopt;
  if (!found) return;
  const result<void> added =
      shared_.add(std::make_unique<member>(std::move(found->store), std::move(found->name), std::move(found->zone)));
  if (!added) log_line(log_level::error, "far tier: %s", added.error().message.c_str());
}

void replicated_backend::update_capacity() {
  next_capacity_ns_ = shared_.time.now_ns() + capacity_interval_ns;
  shared_.report_shortage();
  const std::uint64_t groups = shared_.fitting_groups();
  total_slots_.store(groups > capacity_limit_ / group_slots ? capacity_limit_ : groups * group_slots);
  redundancy_.look(shared_, shared_.groups_end.load(), repairer_->idle(),
                   [this](std::uint64_t number) { return lacking_copies(number); });
}

void replicated_backend::after_fork_in_child() {
  parent_ = std::exchange(process_, getpid());  // not getppid(): it may have ended by now
  placement_lock_.open_in_child();
  shared_.detach();
}

capacity replicated_backend::report() const {
  return {.total_slots = total_slots_.load(std::memory_order_relaxed),
          .used_slots = used_slots_.load(std::memory_order_relaxed),
          .damaged_copies = shared_.damaged_slots(),
          .servers = redundancy::servers(shared_),
          .away_servers = redundancy::away_servers(shared_),
          .lacking_copies = redundancy_.lacking_copies(),
          .repaired_copies = repairer_->counts().repaired_slots,
          .degraded_ns = redundancy_.degraded_ns()};
}

// A read goes to one member, and many reads go to all of them.
speed replicated_backend::expected_speed() const {
  speed sum;
  for (const member* member : shared_.view()) {
    if (member->is_gone()) continue;
    const speed one = member->store().expected_speed();
    sum.latency_ns = std::max(sum.latency_ns, one.latency_ns);
    sum.bytes_per_second += one.bytes_per_second;
  }
  return sum;
}

}  // namespace far::backend
