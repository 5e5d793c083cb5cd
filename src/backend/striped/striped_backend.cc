#include "backend/striped/striped_backend.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <set>
#include <utility>

#include "base/check.h"

namespace far::backend {
namespace {

constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t largest_capacity_slots = std::uint64_t{1} << 29;  // 2 TiB
constexpr std::uint64_t capacity_interval_ns = 100'000'000;

// How long a member whose server has been asked for room is waited for before others take its place.
constexpr std::uint64_t patience_ns = 1'000'000'000;

std::uint64_t room_of(const member& lender) {
  const std::uint64_t total = lender.store().report().total_slots;
  return total == unlimited ? unlimited : total / group_slots;
}

// What is left for pages when the compactor has the room that it needs.
std::uint64_t usable_pages(std::uint64_t groups, std::uint64_t group_pages) {
  if (groups > largest_capacity_slots / group_pages) return largest_capacity_slots;
  const std::uint64_t pages = groups * group_pages;
  return groups <= 2 ? pages / 2 : pages - group_pages - pages / 16;
}

}  // namespace

result<std::unique_ptr<striped_backend>> striped_backend::create(std::vector<std::unique_ptr<backend>> members,
                                                                 const striped_options& chosen) {
  const parity_shape shape = chosen.shape;
  if (members.size() < shape.places() || members.size() > most_striped_members) {
    return error{"parity=" + text_of(shape) + " takes between " + std::to_string(shape.places()) + " and " +
                     std::to_string(most_striped_members) + " servers, not " + std::to_string(members.size()),
                 EINVAL};
  }
  std::vector<std::unique_ptr<member>> named;
  std::set<std::string> seen;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::string base = i < chosen.names.size() ? chosen.names[i] : members[i]->describe();
    std::string name = base;
    // Members of the same name would compete for the same groups.
    for (int number = 2; !seen.insert(name).second; ++number) name = base + " #" + std::to_string(number);
    named.push_back(
        std::make_unique<member>(std::move(members[i]), name, i < chosen.zones.size() ? chosen.zones[i] : ""));
  }
  static const platform::monotonic_clock machine_clock;
  const platform::clock& time = chosen.clock != nullptr ? *chosen.clock : machine_clock;
  const std::uint64_t most_slots = chosen.capacity_slots != 0 ? chosen.capacity_slots : largest_capacity_slots;
  std::unique_ptr<striped_backend> created(
      new striped_backend(std::move(named), chosen, time, std::min(most_slots, largest_capacity_slots)));
  layer& all = created->shared_.members;
  for (std::size_t i = 0; i < all.member_count(); ++i) {
    const member* const twin = all.twin_of(all.at(i).store(), i);
    if (twin == nullptr) continue;
    return error{
        "far tier: " + twin->name() + " and " + all.at(i).name() + " are one and the same server; name it once",
        EINVAL};
  }
  if (result<void> ready = all.join(created->mender_); !ready) return ready.error();
  if (result<void> ready = created->compactor_.open(); !ready) return ready.error();
  return created;
}

striped_backend::striped_backend(std::vector<std::unique_ptr<member>> members, const striped_options& chosen,
                                 const platform::clock& time, std::uint64_t most_slots)
    : capacity_limit_(most_slots),
      scrubbed_pages_per_second_(chosen.scrubbed_pages_per_second),
      reduces_(members.front()->store().reduces()),
      connect_(chosen.connect),
      shared_(std::move(members), chosen.shape, most_slots,
              {.lost_after_ns = chosen.lost_after_ns, .patience_ns = chosen.patience_ns}, time,
              static_cast<row_supply&>(*this)),
      slots_(most_slots),
      mender_(shared_, static_cast<extent_supply&>(*this), chosen.probe_interval_ns),
      compactor_(shared_) {
  const lock_guard guard(tending_);
  update_capacity();
}

striped_backend::~striped_backend() = default;

member_order striped_backend::order_of(std::uint64_t number) const {
  std::array<std::uint64_t, maximum_members> hashes{};
  const std::size_t count = shared_.members.member_count();
  for (std::size_t i = 0; i < count; ++i) hashes[i] = shared_.members.at(i).name_hash();
  return order_for({hashes.data(), count}, number);
}

result<slot_id> striped_backend::allocate(std::size_t count) {
  const lock_guard guard(placement_lock_);
  const std::uint64_t total = total_slots_.load();
  if (count > total - std::min(total, used_slots_.load())) return out_of_slots();
  const int code = provide_rows(count);
  if (code == EAGAIN) return error{"far tier asked", EAGAIN};
  if (code != 0) return out_of_slots();
  while (true) {
    if (const std::optional<slot_id> first = slots_.allocate(count)) {
      used_slots_ += count;
      return *first;
    }
    // Numbers are cheap: where runs of them are short, there are more.
    const std::uint64_t limit = slots_.limit();
    if (limit == capacity_limit_) return out_of_slots();
    slots_.extend(
        std::min(limit + std::max<std::uint64_t>(group_slots, round_up(count, group_slots)), capacity_limit_));
  }
}

// Rows for what is allocated and not written, as far as they are filled.
int striped_backend::provide_rows(std::size_t count) {
  while (true) {
    {
      const lock_guard guard(shared_.table.lock);
      const std::uint64_t unwritten = used_slots_.load() - std::min(used_slots_.load(), shared_.table.live_pages());
      if (shared_.table.free_rows() * shape().data >= unwritten + count) {
        starved_since_ns_ = 0;
        return 0;
      }
    }
    const int code = place_group_locked();
    if (code == 0) continue;
    if (code == EAGAIN) return EAGAIN;
    // The compactor finds room, since less is in use than there is, unless others have taken the servers' memory.
    shared_.is_starved.store(true);
    const std::uint64_t now_ns = shared_.members.time.now_ns();
    if (starved_since_ns_ == 0) starved_since_ns_ = now_ns;
    return now_ns - starved_since_ns_ < patience_ns ? EAGAIN : ENOSPC;
  }
}

void striped_backend::free(slot_id first, std::size_t count) {
  {
    const lock_guard guard(shared_.table.lock);
    for (slot_id slot = first; slot < first + count; ++slot) static_cast<void>(shared_.table.clear_page(slot));
  }
  slots_.free(first, count);
  used_slots_ -= count;
}

result<std::unique_ptr<channel>> striped_backend::open_channel(std::size_t depth) {
  result<std::unique_ptr<striped_channel>> opened = striped_channel::open(shared_, depth);
  if (!opened) return opened.error();
  return std::unique_ptr<channel>(std::move(opened).value());
}

// It is counted first, because a member that holds nothing may change its incarnation at any moment.
int striped_backend::take_extent(std::size_t index, slot_id* first) {
  member& lender = shared_.members.at(index);
  ++lender.extents;
  const int refused = lender.serves() ? ask_for_extent(index, first) : EAGAIN;
  if (refused != 0) --lender.extents;
  return refused;
}

int striped_backend::ask_for_extent(std::size_t index, slot_id* first) {
  member& lender = shared_.members.at(index);
  const result<slot_id> taken = lender.store().allocate(group_slots);
  if (taken && lender.has_forgotten()) {
    // Slots of its earlier incarnation must be given up first, and these would go with them.
    lender.store().free(taken.value(), group_slots);
    shared_.members.note_error(index, ESTALE);
    return EAGAIN;
  }
  if (taken) {
    *first = taken.value();
    asked_since_ns_[index] = 0;
    return 0;
  }
  if (is_unreachable(taken.error().code)) shared_.members.note_error(index, taken.error().code);
  if (taken.error().code != EAGAIN) return ENOSPC;
  const std::uint64_t now_ns = shared_.members.time.now_ns();
  if (asked_since_ns_[index] == 0) asked_since_ns_[index] = now_ns;
  return now_ns - asked_since_ns_[index] < patience_ns ? EAGAIN : ENOSPC;
}

void striped_backend::free_extent(std::size_t index, slot_id first, bool held_pages) {
  const lock_guard guard(placement_lock_);
  if (held_pages) shared_.members.note_removal(index);
  shared_.members.at(index).store().free(first, group_slots);
  --shared_.members.at(index).extents;
}

// Whether the places that groups lack still find room when so many extents, at most one of a member, are used for
// something else: the roomiest member may hold another place of the group.
bool striped_backend::can_spare(std::uint64_t extents) const {
  std::uint64_t held = 0;
  std::uint64_t room = 0;
  std::array<std::uint64_t, maximum_members> room_of_zone{};
  const layer& members = shared_.members;
  for (std::size_t i = 0; i < members.member_count(); ++i) {
    const member& keeper = members.at(i);
    const member_state state = keeper.state();
    const std::uint64_t used = keeper.extents.load();
    // What is on a leaving member is wanted elsewhere.
    const bool stays = (state == member_state::serving || state == member_state::suspect) && !keeper.is_leaving();
    if (stays) held += used;
    if (!keeper.takes_copies()) continue;
    const std::uint64_t total = std::min(room_of(keeper), largest_capacity_slots);
    const std::uint64_t left = total - std::min(total, used);
    room += left;
    room_of_zone[members.first_of_zone(i, [](const member& other) { return other.takes_copies(); })] += left;
  }
  const std::uint64_t most = *std::ranges::max_element(room_of_zone);
  std::uint64_t wanted = 0;
  {
    const lock_guard guard(shared_.table.lock);
    wanted = shared_.table.placed_groups() * shape().places();
  }
  if (held >= wanted || members.lending_servers() < shape().places()) return true;
  return room - most >= wanted - held + extents;
}

int striped_backend::place_group() {
  const lock_guard guard(placement_lock_);
  return place_group_locked();
}

// If fewer members serve and lend than a row has places, the last ones stay empty; the mender fills them later.
int striped_backend::place_group_locked() {
  const std::size_t wanted = std::min(shared_.members.lending_servers(), shape().places());
  if (wanted < shape().data) return EAGAIN;
  if (!can_spare(shape().places())) return ENOSPC;
  std::uint64_t number = 0;
  {
    const lock_guard guard(shared_.table.lock);
    if (shared_.table.placed_groups() == shared_.table.most_groups()) return ENOSPC;
    number = shared_.table.next_group();
  }
  std::array<holder, most_places> holders{};
  std::size_t count = 0;
  int code = ENOSPC;
  const member_order order = order_of(number);
  for (const std::uint8_t index : order.all()) {
    if (count == wanted) break;
    const auto fails_together = [&](const holder& held) { return shared_.members.fail_together(held.member, index); };
    if (!shared_.members.at(index).takes_copies()) continue;
    if (std::ranges::any_of(std::span(holders).first(count), fails_together)) continue;
    slot_id first = no_slot;
    const int refused = take_extent(index, &first);
    if (refused == EAGAIN) code = EAGAIN;
    if (refused == EAGAIN) break;
    if (refused == 0) holders[count++] = {.present = true, .member = index, .first = first, .missing = {}};
  }
  if (count < wanted) {
    for (const holder& held : std::span(holders).first(count)) {
      shared_.members.at(held.member).store().free(held.first, group_slots);
      --shared_.members.at(held.member).extents;
    }
    return code;
  }
  {
    const lock_guard guard(shared_.table.lock);
    // A group that was removed meanwhile may be the lowest now. The number only chose the members.
    static_cast<void>(shared_.table.place_group(holders));
  }
  if (count < shape().places()) shared_.members.call_for_attention();
  return 0;
}

int striped_backend::take_spare(std::uint64_t number, holder* taken, std::size_t than, bool better) {
  const lock_guard guard(placement_lock_);
  if (better && !can_spare(1)) return EAGAIN;
  std::array<bool, maximum_members> holds{};
  std::array<bool, maximum_members> stays{};
  {
    const lock_guard table_guard(shared_.table.lock);
    const stripe_group& seen = shared_.table.group_at(number);
    for (const holder& held : seen.holders) {
      if (!held.present) continue;
      const member& keeper = shared_.members.at(held.member);
      holds[held.member] = true;
      stays[held.member] = held.member != than && !keeper.is_leaving() && keeper.may_serve_again();
    }
    if (seen.leaving.present) holds[seen.leaving.member] = true;
  }
  int code = ENOSPC;
  const member_order order = order_of(number);
  for (const std::uint8_t index : order.all()) {
    if (better && index == than) break;
    if (holds[index] || !shared_.members.at(index).takes_copies()) continue;
    bool fails_together = false;
    for (std::size_t other = 0; other < shared_.members.member_count(); ++other) {
      fails_together |= stays[other] && shared_.members.fail_together(other, index);
    }
    if (fails_together) continue;
    slot_id first = no_slot;
    const int refused = take_extent(index, &first);
    if (refused == EAGAIN) code = EAGAIN;
    if (refused != 0) continue;
    *taken = {.present = true, .member = index, .first = first, .missing = {}};
    return 0;
  }
  return code;
}

result<void> striped_backend::add_server(std::string_view server) {
  if (!connect_) return backend::add_server(server);
  result<named_backend> connected = connect_(server);
  if (!connected) return connected.error();
  named_backend& added = connected.value();
  return add_member(std::move(added.store), std::move(added.name), std::move(added.zone));
}

result<std::uint64_t> striped_backend::remove_server(std::string_view server, removal step) {
  if (shared_.members.detached()) return backend::remove_server(server, step);
  std::uint64_t needed_groups = 0;
  {
    const lock_guard guard(shared_.table.lock);
    needed_groups = shared_.table.placed_groups();
  }
  // The compactor needs room in those that are left.
  while (usable_pages(needed_groups, group_slots * shape().data) < used_slots_.load()) ++needed_groups;
  const result<std::uint64_t> left = shared_.members.remove(server, step, needed_groups);
  if (!left) return left.error();
  return left.value() * group_slots * page_bytes;
}

// Nothing is placed on it any more after the look under the lock.
bool striped_backend::let_go(std::size_t index) {
  const lock_guard guard(placement_lock_);
  if (shared_.members.at(index).extents.load() > 0) return false;
  shared_.members.at(index).be_gone();
  return true;
}

result<void> striped_backend::add_member(std::unique_ptr<backend> store, std::string name, std::string zone) {
  auto added = std::make_unique<member>(std::move(store), std::move(name), std::move(zone));
  const lock_guard guard(tending_);
  if (shared_.members.member_count() == most_striped_members) {
    return error{"the far tier has " + std::to_string(most_striped_members) +
                     " servers already, and cannot take another; give those more memory",
                 ENOSPC};
  }
  if (result<void> done = shared_.members.add(std::move(added)); !done) return done;
  update_capacity();
  return {};
}

// Only if the right bytes can still be had: places may have moved meanwhile.
std::uint64_t striped_backend::away_since_ns(slot_id /*slot*/) const {
  return shared_.members.away_since_ns_without(shared_.table.shape().parity);
}

void striped_backend::report_damage(slot_id slot, std::uint8_t bad, std::uint8_t right, damage kind) {
  if (shared_.members.detached() || bad == right || bad >= first_decoded_source) return;
  std::size_t other = 0;
  {
    const lock_guard guard(shared_.table.lock);
    const page_place place = shared_.table.place_of(slot);
    if (place == 0) return;
    const located where = shared_.table.locate(place);
    stripe_group& seen = shared_.table.group_at(where.group);
    holder* bad_holder = nullptr;
    for (std::size_t index = 0; index < most_holders; ++index) {
      holder& held = seen.holders[index];
      if (held.present && seen.place_of(index) == where.column && held.member + 1 == bad) bad_holder = &held;
    }
    if (bad_holder == nullptr || bad_holder->missing.contains(where.row)) return;
    read_plan plan;
    plan.group = where.group;
    plan.place = where.column;
    if (shared_.table.rows_with_sources(shared_.members.view(), where.row, 1, &plan) == 0) return;
    // The mender would compute it from other pages than those that were right. One of them is damaged, and comes first.
    if (right >= first_decoded_source && plan.choice != right - first_decoded_source) return;
    bad_holder->missing |= slot_set::range(where.row, 1);
    for (const read_plan::source& source : std::span(plan.sources).first(shape().data)) {
      if (!source.is_zero) other = source.member;
    }
  }
  shared_.members.note_damage(kind, bad - 1u, other);
}

// One that does not answer could only be waited for, and each for its second.
void striped_backend::prepare_exit() {
  for (std::size_t i = 0; i < shared_.members.member_count(); ++i) {
    const member& told = shared_.members.at(i);
    if (!told.is_gone() && told.store().answers()) told.store().prepare_exit();
  }
}

// While the parent of a fork lives, its connections keep the child's slots alive on the servers.
std::uint64_t striped_backend::keep_as_child() {
  constexpr std::uint64_t look_at_parent_ns = 1'000'000'000;
  if (getppid() == parent_) return look_at_parent_ns;
  std::uint64_t next_ns = look_at_parent_ns;
  for (std::size_t i = 0; i < shared_.members.member_count(); ++i) {
    member& keeper = shared_.members.at(i);
    if (keeper.extents.load() > 0) next_ns = std::min(next_ns, keeper.store().tend());
  }
  return next_ns;
}

std::uint64_t striped_backend::tend() {
  if (shared_.members.detached()) return keep_as_child();
  if (!tending_.try_lock()) return 1'000'000;
  const lock_guard guard(tending_, std::adopt_lock);
  std::uint64_t next_ns = no_tending;
  for (const member* member : shared_.members.view()) next_ns = std::min(next_ns, member->store().tend());
  if (shared_.members.time.now_ns() >= next_capacity_ns_) update_capacity();
  next_ns = std::min(next_ns, compactor_.step());
  return std::min(next_ns, mender_.step());
}

void striped_backend::update_capacity() {
  next_capacity_ns_ = shared_.members.time.now_ns() + capacity_interval_ns;
  std::array<std::uint64_t, maximum_members> room_of_zone{};
  const auto stays = [](const member& keeper) { return keeper.state() != member_state::lost && !keeper.is_leaving(); };
  const layer& members = shared_.members;
  std::vector<std::uint64_t, platform::local_allocator<std::uint64_t>> room;
  for (std::size_t i = 0; i < members.member_count(); ++i) {
    if (!stays(members.at(i))) continue;
    std::uint64_t& zone = room_of_zone[members.first_of_zone(i, stays)];
    const std::uint64_t more = room_of(members.at(i));
    zone = more > unlimited - zone ? unlimited : zone + more;
  }
  for (std::size_t i = 0; i < members.member_count(); ++i) {
    if (stays(members.at(i)) && members.first_of_zone(i, stays) == i) room.push_back(room_of_zone[i]);
  }
  std::uint64_t groups = 0;
  if (room.size() >= shape().data) groups = placeable_groups(room, std::min(shape().places(), room.size()));
  total_slots_.store(std::min(capacity_limit_, usable_pages(groups, group_slots * shape().data)));
  std::uint64_t end = 0;
  {
    const lock_guard guard(shared_.table.lock);
    if (shared_.table.take_emptied()) shared_.members.call_for_attention();
    end = shared_.table.groups_end();
  }
  redundancy_.look(shared_.members, end, mender_.is_idle(),
                   [this](std::uint64_t number) { return lacking_pages(number); });
}

// Of its sealed rows: the pages in places whose holder is away or misses them. A spare has them only when it takes
// over.
std::uint64_t striped_backend::lacking_pages(std::uint64_t number) const {
  const lock_guard guard(shared_.table.lock);
  const stripe_group& counted = shared_.table.group_at(number);
  if (!counted.placed) return 0;
  std::uint64_t lacking = 0;
  for (std::size_t place = 0; place < shape().places(); ++place) {
    const holder& held = counted.holders[place];
    const bool serves = held.present && shared_.members.at(held.member).serves();
    lacking += serves ? counted.stale(place).size() : counted.sealed.size();
  }
  return lacking;
}

void striped_backend::after_fork_in_child() {
  parent_ = std::exchange(process_, getpid());  // not getppid(): it may have ended by now
  placement_lock_.open_in_child();
  shared_.table.lock.open_in_child();
  shared_.members.detach();
}

capacity striped_backend::report() const {
  return {.total_slots = total_slots_.load(std::memory_order_relaxed),
          .used_slots = used_slots_.load(std::memory_order_relaxed),
          .damaged_copies = shared_.members.damaged_slots(),
          .servers = redundancy::servers(shared_.members),
          .away_servers = redundancy::away_servers(shared_.members),
          .lacking_copies = redundancy_.lacking_copies(),
          .repaired_copies = mender_.counts().mended_rows,
          .degraded_ns = redundancy_.degraded_ns()};
}

// A read goes to one member, and many reads go to all of them.
speed striped_backend::expected_speed() const {
  speed sum;
  for (const member* member : shared_.members.view()) {
    if (member->is_gone()) continue;
    const speed one = member->store().expected_speed();
    sum.latency_ns = std::max(sum.latency_ns, one.latency_ns);
    sum.bytes_per_second += one.bytes_per_second;
  }
  return sum;
}

std::string striped_backend::describe() const {
  std::string text = "parity " + text_of(shape()) + " on ";
  const char* separator = "";
  for (const member* member : shared_.members.view()) {
    if (member->is_gone()) continue;
    text += separator + member->name();
    if (!member->serves()) text += std::string(" (") + name_of(member->state()) + ")";
    if (member->is_leaving()) text += " (leaving)";
    separator = ", ";
  }
  return text;
}

striped_backend::counts striped_backend::counted() const {
  counts all{.decoded_pages = shared_.decoded_pages.load(),
             .moved_pages = compactor_.moved_pages(),
             .mended = mender_.counts()};
  for (const member* member : shared_.members.view()) all.stored_slots += member->extents.load() * group_slots;
  const lock_guard guard(shared_.table.lock);
  all.pages = shared_.table.live_pages();
  return all;
}

bool striped_backend::is_whole() const {
  if (shared_.members.is_spreading()) return false;
  for (const member* keeper : shared_.members.view()) {
    if (keeper->is_gone()) continue;
    if (!keeper->serves() || (keeper->is_leaving() && keeper->extents.load() > 0)) return false;
  }
  const lock_guard guard(shared_.table.lock);
  for (std::uint64_t number = 0; number < shared_.table.groups_end(); ++number) {
    const stripe_group& seen = shared_.table.group_at(number);
    if (seen.placed && !seen.is_whole(shape().places())) return false;
  }
  return true;
}

void striped_backend::validate() const {
  std::array<std::uint64_t, maximum_members> extents{};
  const lock_guard guard(placement_lock_);
  const lock_guard table_guard(shared_.table.lock);
  shared_.table.validate();
  for (std::uint64_t number = 0; number < shared_.table.groups_end(); ++number) {
    const stripe_group& seen = shared_.table.group_at(number);
    for (const holder& held : seen.holders) extents[held.member] += held.present;
    extents[seen.leaving.member] += seen.leaving.present;
  }
  for (std::size_t i = 0; i < shared_.members.member_count(); ++i) {
    FAR_CHECK(extents[i] == shared_.members.at(i).extents.load(), "extents of a member are counted");
  }
  FAR_CHECK(slots_.used() == used_slots_.load(), "used slots are counted");
  FAR_CHECK(shared_.table.live_pages() <= used_slots_.load(), "pages are those of used slots");
}

}  // namespace far::backend
