#include "backend/stacked/stacked_backend.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "backend/stacked/stacked_channel.h"
#include "base/check.h"
#include "base/units.h"
#include "platform/local_memory.h"

namespace far::backend {
namespace {

constexpr std::uint64_t growth_slots = 64 * mib / page_bytes;
// 8 TiB. As many can be used as the members have slots: they may grow, as servers are added, or answer later. Under a
// limit on data, against which the addresses of the table count, fewer: so many parts of the limit are for the program.
constexpr std::uint64_t most_slots = std::uint64_t{1} << 31;
constexpr std::uint64_t parts_of_limit = 16;
constexpr std::uint64_t avoid_full_ns = 1'000'000'000;

std::uint64_t most_slots_here() {
  rlimit data{};
  if (getrlimit(RLIMIT_DATA, &data) != 0 || data.rlim_cur == RLIM_INFINITY) return most_slots;
  return std::clamp<std::uint64_t>(data.rlim_cur / parts_of_limit / sizeof(std::uint64_t), growth_slots, most_slots);
}

// The table of places, which the constructor maps.
result<void> check_room_for_table() {
  const std::uint64_t table_bytes = most_slots_here() * sizeof(std::uint64_t);
  std::byte* const probe = platform::try_map_local(table_bytes);
  if (probe == nullptr) {
    return error{"a stack of far tiers cannot reserve " + format_size(table_bytes) +
                     " of addresses for its table; name one tier, or raise the limit (ulimit -d, ulimit -v)",
                 ENOMEM};
  }
  platform::unmap_local(probe, table_bytes);
  return {};
}

std::uint64_t sum_of(std::uint64_t one, std::uint64_t other) {
  return one > capacity::no_bytes - other ? capacity::no_bytes : one + other;
}

}  // namespace

stacked_backend::stacked_backend(std::unique_ptr<backend> first, std::unique_ptr<backend> next,
                                 const platform::clock& time)
    : members_{std::move(first), std::move(next)},
      time_(time),
      slots_(most_slots_here()),
      places_(slots_.capacity()),
      spiller_(*members_[0], *members_[1], slots_, places_, time),
      numbered_(report().total_slots) {}

// ---- slots ----

result<slot_id> stacked_backend::allocate(std::size_t count) {
  const result<slot_id> first = take_numbers(count);
  if (!first) return first;
  if (const result<void> placed = place(first.value(), count); !placed) {
    slots_.free(first.value(), count);
    return placed.error();
  }
  spiller_.note_growth();
  return first;
}

result<slot_id> stacked_backend::take_numbers(std::size_t count) {
  std::optional<slot_id> first = slots_.allocate(count);
  if (first) return *first;
  const std::uint64_t total = report().total_slots;
  const lock_guard guard(growth_lock_);
  // A server that is lost takes its slots away, but not the numbers of those that were there.
  numbered_ = std::max(numbered_, total);
  while (!(first = slots_.allocate(count))) {
    const std::uint64_t limit = slots_.limit();
    const std::uint64_t missing = count - std::min<std::uint64_t>(count, slots_.free_at_end());
    if (limit == numbered_ || missing > numbered_ - limit) return out_of_slots();
    slots_.extend(std::min(numbered_, limit + std::max(missing, growth_slots)));
  }
  return *first;
}

// In one tier if that has a run for them, and in as many pieces as need be otherwise. A first tier with room, whose
// free slots are scattered, gets the pieces.
result<void> stacked_backend::place(slot_id first, std::size_t count) {
  const bool avoids_first = time_.now_ns() < first_full_until_ns_.load(std::memory_order_relaxed) || passes_first_by();
  int failure = ENOSPC;
  std::size_t done = 0;
  for (const unsigned tier : {0u, 1u}) {
    if (tier == 0 && avoids_first) continue;
    const result<slot_id> run = members_[tier]->allocate(count);
    if (!run && tier == 0 && run.error().code == ENOSPC && !spiller_.is_nearly_full()) break;
    if (!run) continue;
    for (std::size_t i = 0; i < count; ++i) places_.set_fresh(first + i, {tier, run.value() + i});
    return {};
  }
  for (const unsigned tier : {0u, 1u}) done += place_in(tier, first + done, count - done, &failure);
  if (done == count) return {};
  give_back(first, done);
  // Short enough to live inside std::string.
  return error{"far tier full", failure};
}

// What goes through the first tier only to move on costs twice. When it is nearly full, most new pages go by, so that
// those in it stay for long, and a walk over more than it holds finds a part of it there (as in bimodal insertion).
bool stacked_backend::passes_first_by() {
  constexpr std::uint64_t one_of = 8;
  return spiller_.is_nearly_full() && placed_.fetch_add(1, std::memory_order_relaxed) % one_of != 0;
}

std::size_t stacked_backend::place_in(unsigned tier, slot_id first, std::size_t count, int* failure) {
  std::size_t done = 0;
  for (std::size_t run = count; done < count && run > 0;) {
    run = std::min(run, count - done);
    const result<slot_id> taken = members_[tier]->allocate(run);
    if (!taken) {
      if (taken.error().code != ENOSPC) *failure = taken.error().code;
      run /= 2;
      continue;
    }
    for (std::size_t i = 0; i < run; ++i) places_.set_fresh(first + done + i, {tier, taken.value() + i});
    done += run;
  }
  return done;
}

void stacked_backend::give_back(slot_id first, std::size_t count) {
  for (slot_id slot = first; slot < first + count; ++slot) {
    if (const std::optional<tier_place> place = places_.release(slot)) members_[place->tier]->free(place->slot, 1);
  }
}

void stacked_backend::free(slot_id first, std::size_t count) {
  for (slot_id slot = first; slot < first + count; ++slot) {
    spiller_.note_dead();
    const std::optional<tier_place> place = places_.release(slot);
    if (!place) continue;
    free_dead(slot, *place);
  }
}

// Pinned, so that the slot stays where it is. One that has moved since was read from the copies before, and is right or
// will be reported once more.
void stacked_backend::report_damage(slot_id slot, std::uint8_t bad, std::uint8_t right, damage kind) {
  const std::optional<tier_place> place = places_.pin(slot, operation::read);
  if (!place) return;
  members_[place->tier]->report_damage(place->slot, bad, right, kind);
  if (const std::optional<tier_place> dead = places_.unpin(slot)) free_dead(slot, *dead);
}

std::uint64_t stacked_backend::away_since_ns(slot_id slot) const {
  const std::optional<tier_place> place = places_.look(slot);
  return place ? members_[place->tier]->away_since_ns(place->slot) : 0;
}

bool stacked_backend::answers_at(tier_place place, const reduction& asked) const {
  const backend& member = *members_[place.tier];
  return member.reduces() && (is_built_in(asked) || member.direct(place.slot) == nullptr);
}

void stacked_backend::free_dead(slot_id slot, tier_place place) {
  members_[place.tier]->free(place.slot, 1);
  slots_.free(slot, 1);
  spiller_.forget_dead();
}

result<std::unique_ptr<channel>> stacked_backend::open_channel(std::size_t depth) {
  result<std::unique_ptr<channel>> first = members_[0]->open_channel(depth);
  if (!first) return first;
  result<std::unique_ptr<channel>> next = members_[1]->open_channel(depth);
  if (!next) return next;
  return std::unique_ptr<channel>(
      std::make_unique<stacked_channel>(*this, places_, std::move(first).value(), std::move(next).value(), depth));
}

void stacked_backend::note_first_is_full() {
  first_full_until_ns_.store(time_.now_ns() + avoid_full_ns, std::memory_order_relaxed);
}

// ---- behind the transfers ----

std::uint64_t stacked_backend::tend() {
  std::uint64_t until_next_ns = no_tending;
  for (const std::unique_ptr<backend>& member : members_) until_next_ns = std::min(until_next_ns, member->tend());
  spiller_.note_growth();  // the first tier may have become smaller
  return std::min(until_next_ns, spiller_.step());
}

bool stacked_backend::wants_tending() const {
  return members_[0]->wants_tending() || members_[1]->wants_tending() || spiller_.wants_step();
}

result<void> stacked_backend::add_server(std::string_view server) {
  const result<void> added = members_[1]->add_server(server);
  if (added || added.error().code != ENOTSUP) return added;
  return members_[0]->add_server(server);
}

result<std::uint64_t> stacked_backend::remove_server(std::string_view server, removal step) {
  const result<std::uint64_t> left = members_[1]->remove_server(server, step);
  if (left || left.error().code != ENOTSUP) return left;
  return members_[0]->remove_server(server, step);
}

void stacked_backend::keep_in_place(bool wanted) {
  for (const std::unique_ptr<backend>& member : members_) member->keep_in_place(wanted);
}

void stacked_backend::prepare_exit() {
  for (const std::unique_ptr<backend>& member : members_) member->prepare_exit();
}

// ---- forks ----

void stacked_backend::prepare_fork() {
  for (const std::unique_ptr<backend>& member : members_) member->prepare_fork();
}

void stacked_backend::after_fork_in_parent() {
  for (const std::unique_ptr<backend>& member : members_) member->after_fork_in_parent();
}

void stacked_backend::after_fork_in_child() {
  spiller_.forget_in_child();
  for (const std::unique_ptr<backend>& member : members_) member->after_fork_in_child();
  growth_lock_.open_in_child();
  slots_.begin_again_in_child();
  places_.begin_again_in_child(slots_.limit());
}

void stacked_backend::claim_in_child(slot_id slot) {
  slots_.claim_in_child(slot);
  const tier_place place = places_.claim_in_child(slot);
  members_[place.tier]->claim_in_child(place.slot);
}

void stacked_backend::close_claims_in_child() {
  slots_.end_claims_in_child();
  places_.end_claims_in_child(slots_.limit());
  for (const std::unique_ptr<backend>& member : members_) member->close_claims_in_child();
}

// ---- what it is ----

capacity stacked_backend::report() const {
  const capacity first = members_[0]->report();
  const capacity next = members_[1]->report();
  const std::uint64_t used = slots_.used();
  return {.total_slots = std::min(sum_of(first.total_slots, next.total_slots), slots_.capacity()),
          .used_slots = used - std::min(used, spiller_.dead_slots()),
          .kept_slots = first.kept_slots + next.kept_slots,
          .stored_bytes = first.occupied_bytes() + next.occupied_bytes(),
          .most_stored_bytes = capacity::no_bytes,
          .damaged_copies = first.damaged_copies + next.damaged_copies,
          .servers = first.servers + next.servers,
          .away_servers = first.away_servers + next.away_servers,
          .lacking_copies = first.lacking_copies + next.lacking_copies,
          .repaired_copies = first.repaired_copies + next.repaired_copies,
          .degraded_ns = first.degraded_ns + next.degraded_ns};
}

std::string stacked_backend::describe() const {
  return members_[0]->describe() + " over " + members_[1]->describe();
}

// ---- names ----

std::vector<std::string> split_tiers(std::string_view names) {
  constexpr std::array<std::string_view, 9> schemes{
      "memory:", "zmem:", "file:", "shm:", "tcp://", "redis://", "rediss://", "redis+cluster://", "rediss+cluster://"};
  std::vector<std::string> tiers;
  std::size_t begin = 0;
  for (std::size_t comma = names.find(','); comma != std::string_view::npos; comma = names.find(',', comma + 1)) {
    const std::string_view rest = names.substr(comma + 1);
    const bool begins_tier = std::any_of(schemes.begin(), schemes.end(),
                                         [rest](std::string_view scheme) { return rest.starts_with(scheme); });
    if (!begins_tier) continue;
    tiers.emplace_back(names.substr(begin, comma - begin));
    begin = comma + 1;
  }
  tiers.emplace_back(names.substr(begin));
  return tiers;
}

result<std::unique_ptr<backend>> open_stacked(
    const std::vector<std::string>& names, const platform::clock& time,
    const std::function<result<std::unique_ptr<backend>>(const std::string& name)>& open_one) {
  result<std::unique_ptr<backend>> lowest = open_one(names.back());
  for (std::size_t above = names.size() - 1; lowest && above-- > 0;) {
    if (const result<void> room = check_room_for_table(); !room) return room.error();
    result<std::unique_ptr<backend>> opened = open_one(names[above]);
    if (!opened) return opened;
    lowest = std::unique_ptr<backend>(
        std::make_unique<stacked_backend>(std::move(opened).value(), std::move(lowest).value(), time));
  }
  return lowest;
}

}  // namespace far::backend
