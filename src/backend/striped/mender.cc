#include "backend/striped/mender.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "backend/striped/galois.h"
#include "base/check.h"
#include "base/log.h"
#include "platform/local_memory.h"

namespace far::backend {
namespace {

constexpr std::uint64_t groups_a_step = 256;
constexpr std::size_t queue_depth = 4;
constexpr std::size_t chunk_bytes = rows_together * page_bytes;
constexpr std::uint64_t probe_cookie = 1;
constexpr std::uint64_t busy_interval_ns = 50'000;
constexpr std::uint64_t idle_interval_ns = 50'000'000;
constexpr std::uint64_t walk_again_after_ns = 200'000'000;

// Groups without pages that keep their extents, for the next evictions.
constexpr std::size_t kept_empty_groups = 1;

}  // namespace

mender::mender(stripes& shared, extent_supply& extents, std::uint64_t probe_interval_ns)
    : shared_(shared),
      extents_(extents),
      queues_(queue_depth),
      probe_interval_ns_(probe_interval_ns),
      care_(shared.members, *this, probe_interval_ns, "its pages are being rebuilt on other servers"),
      memory_(platform::map_local((shared.code.shape().data + 1) * chunk_bytes)) {}

mender::~mender() {
  shared_.members.leave(*this);
  if (shared_.members.detached()) queues_.abandon();
  while (!shared_.members.detached() && queues_.in_flight() > 0) {
    if (queues_.take(queue_depth).count == 0) queues_.wait(10'000'000);
  }
  platform::unmap_local(memory_, (shared_.code.shape().data + 1) * chunk_bytes);
}

void mender::take_queue(std::unique_ptr<channel> queue) {
  queues_.take_queue(std::move(queue));
  care_.add();
}

std::byte* mender::chunk(std::size_t source) const {
  return memory_ + source * chunk_bytes;
}

mend_counts mender::counts() const {
  return {.mended_rows = mended_rows_.load(),
          .decoded_rows = decoded_rows_.load(),
          .spares = spares_.load(),
          .moved_extents = moved_extents_.load(),
          .removed_groups = removed_groups_.load()};
}

std::uint64_t mender::step() {
  const std::uint64_t now_ns = shared_.members.time.now_ns();
  while (true) {
    queues_.flush();
    const member_queues::taken taken = queues_.take(queue_depth);
    if (taken.count == 0) break;
    for (const completion& ended : std::span(taken.completions).first(taken.count)) {
      if (ended.cookie == probe_cookie) {
        care_.on_probe(taken.member, ended.error_code);
      } else {
        on_transfer(taken.member, ended.error_code);
      }
    }
  }
  const member_care::found members = care_.step(now_ns);
  const bool is_called = shared_.members.take_attention() || (walk_again_ns_ != 0 && now_ns >= walk_again_ns_);
  if (is_called && is_walking_ && !is_moving_) {
    // Writes that go past a member call all the time: the groups at the end have their turn, too.
    has_found_work_ = true;
  } else if (is_called) {
    start_walk(false);
  }
  if (is_walking_ && job_.now == phase::none) walk(now_ns);
  queues_.flush();
  if (job_.now != phase::none || is_walking_) return busy_interval_ns;
  if (members.is_probing) return busy_interval_ns * 4;
  return members.is_troubled ? std::min(probe_interval_ns_, idle_interval_ns) : idle_interval_ns;
}

slot_id mender::hold_slot(std::size_t index) {
  held_group& own = held_[index];
  const lock_guard guard(shared_.table.lock);
  const std::uint64_t end = shared_.table.groups_end();
  for (std::uint64_t i = 0; i < std::min(groups_a_step, end); ++i) {
    const std::uint64_t number = own.cursor++ % end;
    for (const holder& held : shared_.table.group_at(number).holders) {
      if (!held.present || held.member != index) continue;
      own.number = number;
      own.phase = shared_.table.begin(number);
      return held.first;
    }
  }
  return no_slot;
}

void mender::release_slot(std::size_t index) {
  const lock_guard guard(shared_.table.lock);
  shared_.table.end(held_[index].number, held_[index].phase);
}

bool mender::send_probe(std::size_t index, const request& probe) {
  request numbered = probe;
  numbered.cookie = probe_cookie;
  queues_.push(index, numbered);
  return true;
}

void mender::start_walk(bool is_moving) {
  is_idle_.store(false);
  is_walking_ = true;
  is_moving_ = is_moving;
  spreadings_before_ = shared_.members.spreadings_wanted();
  has_found_work_ = false;
  has_missed_ = false;
  has_met_unprotected_ = false;
  walk_again_ns_ = 0;
  sources_of_ = stripe_table::no_group;
  cursor_ = 0;
  empty_groups_ = 0;
}

// Ends when all groups have been looked at and none needed anything.
void mender::walk(std::uint64_t now_ns) {
  for (std::uint64_t looked_at = 0; looked_at < groups_a_step; ++looked_at) {
    bool is_over = false;
    {
      const lock_guard guard(shared_.table.lock);
      is_over = cursor_ >= shared_.table.groups_end();
    }
    if (is_over) return end_walk(now_ns);
    if (free_left(cursor_) || remove_empty(cursor_)) continue;
    if (!look_at(cursor_)) {
      has_met_unprotected_ |= !is_protected(cursor_);
      ++cursor_;
      continue;
    }
    has_met_unprotected_ = true;
    if (job_.now != phase::none) return;
    has_found_work_ = true;
  }
}

void mender::end_walk(std::uint64_t now_ns) {
  is_walking_ = false;
  // A member may have failed after its groups were looked at.
  const auto is_away = [](const member* one) { return !one->is_gone() && !one->serves() && one->extents.load() > 0; };
  has_met_unprotected_ |= std::ranges::any_of(shared_.members.view(), is_away);
  note_losses();
  // Where groups are filled and emptied all the time, there may be work in each walk.
  if (!has_met_unprotected_) tell_of_mended_pages();
  if (has_found_work_) return start_walk(false);
  if (!is_moving_ && shared_.members.is_spreading()) return start_walk(true);
  if (has_missed_) {
    walk_again_ns_ = now_ns + walk_again_after_ns;
    return;
  }
  if (is_moving_) {
    care_.note_spread();
    shared_.members.note_spread(spreadings_before_);
  }
  is_idle_.store(true);
}

bool mender::is_protected(std::uint64_t number) const {
  const std::span<const member* const> members = shared_.members.view();
  const lock_guard guard(shared_.table.lock);
  const stripe_group& seen = shared_.table.group_at(number);
  if (!seen.placed || seen.is_empty()) return true;
  for (std::size_t place = 0; place < shared_.code.shape().places(); ++place) {
    const holder& held = seen.holders[place];
    if (!held.present || !members[held.member]->serves() || !seen.stale(place).empty()) return false;
  }
  return true;
}

void mender::note_losses() {
  member_mask lost = 0;
  for (std::size_t i = 0; i < shared_.members.member_count(); ++i) {
    if (shared_.members.at(i).state() == member_state::lost) lost |= member_mask{1} << i;
  }
  has_lost_ |= (lost & ~lost_) != 0;
  lost_ = lost;
}

// None are mended where the program has freed all that a lost member held. Whoever has read that it is lost waits for
// the good news all the same.
void mender::tell_of_mended_pages() {
  const std::uint64_t mended = mended_rows_.load() - told_rows_;
  told_rows_ += mended;
  if (mended == 0 && !has_lost_) return;
  has_lost_ = false;
  log_line(log_level::info, "far tier: %llu pages were written again; all are protected by parity",
           static_cast<unsigned long long>(mended));
}

// Does or begins what pages of the group need most; false when they need nothing, or nothing can be done.
bool mender::look_at(std::uint64_t number) {
  return change_holders(number) || add_spare(number) || begin_mending(number) || (is_moving_ && begin_move(number));
}

bool mender::free_left(std::uint64_t number) {
  holder left;
  {
    const lock_guard guard(shared_.table.lock);
    stripe_group& seen = shared_.table.group_at(number);
    if (!seen.leaving.present) return false;
    shared_.table.settle(seen);
    // A child of a fork may read it where it was.
    const bool is_kept =
        shared_.members.is_kept_in_place() && shared_.members.at(seen.leaving.member).may_serve_again();
    if (is_kept || static_cast<std::int32_t>(seen.turns - seen.leaves_at_turn) < 0) {
      has_missed_ = true;
      return false;
    }
    left = seen.leaving;
    seen.leaving = {};
  }
  extents_.free_extent(left.member, left.first, true);
  return true;
}

// An empty group gets no spare. If it lacks a place, another one is placed when it is needed, with all of them.
bool mender::remove_empty(std::uint64_t number) {
  const std::size_t places = shared_.code.shape().places();
  const bool are_enough = shared_.members.lending_servers() >= places;
  std::array<holder, most_holders> freed;
  {
    const lock_guard guard(shared_.table.lock);
    stripe_group& seen = shared_.table.group_at(number);
    if (!seen.placed || seen.leaving.present || !seen.is_empty()) return false;
    std::size_t usable = 0;
    bool is_usable = true;
    for (const holder& held : seen.holders) {
      usable += held.present;
      is_usable = is_usable && (!held.present || shared_.members.at(held.member).takes_copies());
    }
    if (is_usable && usable < places && !are_enough) has_missed_ = true;
    if (is_usable && (usable >= places || !are_enough) && ++empty_groups_ <= kept_empty_groups) return false;
    freed = seen.holders;
    shared_.table.remove_group(number);
  }
  for (const holder& held : freed) {
    if (held.present) extents_.free_extent(held.member, held.first, false);
  }
  ++removed_groups_;
  return true;
}

// Holders that are gone leave, a spare that is complete takes its place, and one that is not needed any more leaves.
bool mender::change_holders(std::uint64_t number) {
  const lock_guard guard(shared_.table.lock);
  stripe_group& seen = shared_.table.group_at(number);
  for (std::size_t index = 0; index < most_holders; ++index) {
    const holder& held = seen.holders[index];
    if (!held.present) continue;
    const member& keeper = shared_.members.at(held.member);
    const bool is_broken = held.refusals.is_broken() && keeper.serves() && !shared_.members.is_kept_in_place() &&
                           can_do_without(number, index);
    if (keeper.state() != member_state::emptied && !is_broken) continue;
    if (shared_.table.begin_leaving(seen, index)) return true;
    has_missed_ = true;
  }
  holder& spare = seen.holders[spare_holder];
  if (!spare.present) return false;
  // It would be in the way of another one.
  if (shared_.members.at(spare.member).state() == member_state::lost && can_do_without(number, spare_holder)) {
    if (shared_.table.begin_leaving(seen, spare_holder)) return true;
    has_missed_ = true;
    return false;
  }
  // As long as the one that it was for can be read: it may be about to be lost, and then the spare takes its place.
  const holder& kept = seen.holders[seen.spare_for];
  const bool is_surplus = kept.present && shared_.members.at(kept.member).serves() &&
                          !is_needed(seen, seen.spare_for) && seen.stale(seen.spare_for).empty();
  if (is_surplus && !is_moving_ && !shared_.members.is_spreading()) {
    const bool is_kept = shared_.members.is_kept_in_place() && shared_.members.at(spare.member).may_serve_again();
    if (!is_kept && shared_.table.begin_leaving(seen, spare_holder)) return true;
    has_missed_ = true;
    return false;
  }
  if (!shared_.members.at(spare.member).serves() || !seen.stale(spare_holder).empty()) return false;
  shared_.table.settle(seen);
  if (!seen.is_spare_settled()) {
    has_missed_ = true;
    return false;
  }
  holder& place = seen.holders[seen.spare_for];
  const bool could_stay = place.present && shared_.members.at(place.member).may_serve_again();
  if ((could_stay && shared_.members.is_kept_in_place()) || seen.leaving.present) {
    has_missed_ = true;
    return false;
  }
  if (place.present) static_cast<void>(shared_.table.begin_leaving(seen, seen.spare_for));
  place = spare;
  spare = {};
  return true;
}

// Whether every page that the holder has can be computed from those of other places.
bool mender::can_do_without(std::uint64_t number, std::size_t index) const {
  shared_.table.lock.assert_held();
  const stripe_group& seen = shared_.table.group_at(number);
  const slot_set held = seen.sealed - seen.holders[index].missing;
  read_plan plan;
  plan.group = number;
  plan.place = static_cast<std::uint8_t>(seen.place_of(index));
  for (std::size_t row = held.next(0); row < group_slots; row = held.next(row + 1)) {
    if (!shared_.table.is_filled(number, row, plan.place)) continue;
    if (shared_.table.rows_with_sources(shared_.members.view(), row, 1, &plan) == 0) return false;
  }
  return true;
}

// Whether another member should take the place over.
bool mender::is_needed(const stripe_group& seen, std::size_t place) const {
  const holder& held = seen.holders[place];
  if (!held.present) return true;
  const member& keeper = shared_.members.at(held.member);
  const member_state state = keeper.state();
  return state == member_state::lost || state == member_state::emptied ||
         (state == member_state::serving && keeper.is_leaving());
}

bool mender::add_spare(std::uint64_t number) {
  std::size_t wanted = most_places;
  std::size_t member = maximum_members;
  {
    const lock_guard guard(shared_.table.lock);
    const stripe_group& seen = shared_.table.group_at(number);
    if (!seen.placed || seen.is_empty()) return false;
    for (std::size_t place = shared_.code.shape().places(); place-- > 0;) {
      if (is_needed(seen, place)) wanted = place;
    }
    if (wanted == most_places) return false;
    has_missed_ = true;
    if (seen.holders[spare_holder].present) return false;
    if (seen.holders[wanted].present) member = seen.holders[wanted].member;
  }
  holder taken;
  return extents_.take_spare(number, &taken, member, false) == 0 && install(number, wanted, taken);
}

bool mender::install(std::uint64_t number, std::size_t place, const holder& taken) {
  {
    const lock_guard guard(shared_.table.lock);
    stripe_group& seen = shared_.table.group_at(number);
    // Only the mender adds spares and removes groups.
    FAR_CHECK(seen.placed && !seen.holders[spare_holder].present, "a group has one spare");
    seen.spare_for = static_cast<std::uint8_t>(place);
    seen.holders[spare_holder] = taken;
    seen.holders[spare_holder].missing = slot_set::everything();
    seen.spare_settles_at_turn = seen.turns + 2;
  }
  ++spares_;
  return true;
}

// The place on the worst member moves to a better one, if the group needs nothing else.
bool mender::begin_move(std::uint64_t number) {
  if (shared_.members.is_kept_in_place()) {
    has_missed_ = true;
    return false;
  }
  const member_order order = extents_.order_of(number);
  std::array<std::size_t, maximum_members> rank{};
  for (std::size_t i = 0; i < order.count; ++i) rank[order.members[i]] = i;
  std::size_t worst = most_places;
  {
    const lock_guard guard(shared_.table.lock);
    const stripe_group& seen = shared_.table.group_at(number);
    if (!seen.placed || seen.is_empty() || seen.holders[spare_holder].present) return false;
    for (std::size_t place = 0; place < shared_.code.shape().places(); ++place) {
      if (!seen.holders[place].present || !shared_.members.at(seen.holders[place].member).serves()) return false;
      if (worst == most_places || rank[seen.holders[place].member] > rank[seen.holders[worst].member]) worst = place;
    }
  }
  std::size_t worst_member = 0;
  {
    const lock_guard guard(shared_.table.lock);
    worst_member = shared_.table.group_at(number).holders[worst].member;
  }
  holder taken;
  const int code = extents_.take_spare(number, &taken, worst_member, true);
  if (code == EAGAIN) has_missed_ = true;
  if (code != 0 || !install(number, worst, taken)) return false;
  ++moved_extents_;
  return true;
}

bool mender::begin_mending(std::uint64_t number) {
  {
    const lock_guard guard(shared_.table.lock);
    const stripe_group& seen = shared_.table.group_at(number);
    if (!seen.placed) return false;
    bool has_begun = false;
    for (std::size_t index = 0; index < most_holders && !has_begun; ++index) {
      const holder& held = seen.holders[index];
      if (!held.present || seen.stale(index).empty()) continue;
      has_missed_ = true;
      if (shared_.members.at(held.member).serves()) has_begun = find_work(number, index);
    }
    if (!has_begun) return false;
  }
  read();
  return true;
}

// The first rows that the holder misses and that can be had.
bool mender::find_work(std::uint64_t number, std::size_t index) {
  stripe_table& table = shared_.table;
  table.lock.assert_held();
  stripe_group& seen = table.group_at(number);
  const std::size_t place = seen.place_of(index);
  const slot_set stale = seen.stale(index);
  const std::span<const member* const> members = shared_.members.view();
  if (std::exchange(sources_of_, number) != number) sources_ = {};
  job_ = {};
  job_.plan.group = number;
  job_.plan.place = static_cast<std::uint8_t>(place);
  for (std::size_t row = stale.next(0); row < group_slots; row = stale.next(row + 1)) {
    if (!table.is_filled(number, row, place)) {
      seen.holders[index].missing = seen.holders[index].missing - slot_set::range(row, 1);
      continue;
    }
    const std::size_t most = std::min(stale.run_from(row), rows_together);
    std::size_t rows = 0;
    for (std::size_t other = 0; other < most_holders && rows == 0; ++other) {
      if (other != index && seen.place_of(other) == place) rows = rows_to_copy(seen, other, row, most);
    }
    job_.is_copy = rows > 0;
    if (rows == 0) {
      rows = table.rows_with_sources(members, row, most_to_decode(most), &job_.plan,
                                     {.shunned = refusing_members(seen, row)});
    }
    if (rows == 0) continue;
    job_.now = phase::reading;
    job_.group = number;
    job_.transfer = table.begin(number);
    job_.index = index;
    job_.target = seen.holders[index];
    job_.row = static_cast<std::uint32_t>(row);
    job_.rows = static_cast<std::uint32_t>(rows);
    return true;
  }
  return false;
}

// How many rows can be copied from this holder; then it is the job's source.
std::size_t mender::rows_to_copy(const stripe_group& seen, std::size_t source, std::size_t row, std::size_t most) {
  const holder& held = seen.holders[source];
  if (!held.present || !shared_.members.at(held.member).serves()) return 0;
  const slot_set unavailable = held.missing | sources_[source].refused;
  const std::size_t rows = std::min({most, sources_[source].most, unavailable.next(row) - row});
  job_.plan.sources[0] = {
      .place = static_cast<std::uint8_t>(seen.place_of(source)), .member = held.member, .first = held.first + row};
  return rows;
}

std::size_t mender::most_to_decode(std::size_t most) const {
  for (const source_record& record : sources_) most = std::min(most, record.most);
  return most;
}

member_mask mender::refusing_members(const stripe_group& seen, std::size_t row) const {
  member_mask refusing = 0;
  for (std::size_t index = 0; index < most_holders; ++index) {
    if (sources_[index].refused.contains(row)) refusing |= member_mask{1} << seen.holders[index].member;
  }
  return refusing;
}

void mender::read() {
  const std::size_t sources = job_.is_copy ? 1 : shared_.code.shape().data;
  for (std::size_t i = 0; i < sources; ++i) {
    const read_plan::source& source = job_.plan.sources[i];
    if (source.is_zero) continue;
    ++job_.outstanding;
    queues_.push(source.member, {.op = operation::read,
                                 .slot = source.first,
                                 .length_bytes = static_cast<std::uint32_t>(job_.rows * page_bytes),
                                 .buffer = chunk(i)});
  }
  if (job_.outstanding == 0) write();
}

void mender::write() {
  const std::size_t data = shared_.code.shape().data;
  const std::size_t bytes = job_.rows * page_bytes;
  std::byte* bytes_to_write = chunk(0);
  if (!job_.is_copy) {
    std::array<std::uint8_t, most_data> places{};
    for (std::size_t i = 0; i < data; ++i) places[i] = job_.plan.sources[i].place;
    const parity_code::factors factors = shared_.code.recover({places.data(), data}, job_.plan.place);
    bytes_to_write = chunk(data);
    std::memset(bytes_to_write, 0, bytes);
    for (std::size_t i = 0; i < data; ++i) {
      if (!job_.plan.sources[i].is_zero) galois::add_multiple(bytes_to_write, chunk(i), factors[i], bytes);
    }
  }
  job_.now = phase::writing;
  job_.outstanding = 1;
  queues_.push(job_.target.member, {.op = operation::write,
                                    .slot = job_.target.first + job_.row,
                                    .length_bytes = static_cast<std::uint32_t>(bytes),
                                    .buffer = bytes_to_write});
}

void mender::ask() {
  job_.now = phase::asking;
  job_.has_failed = false;
  job_.refusing = 0;
  job_.outstanding = 1;
  queues_.push(job_.target.member, {.op = operation::read, .slot = job_.target.first + job_.row, .buffer = chunk(0)});
}

void mender::on_transfer(std::size_t member, int error_code) {
  if (error_code != 0) shared_.members.note_error(member, error_code);
  if (is_refusal(error_code)) {
    shared_.members.note_refusal(member);
    job_.refusing |= member_mask{1} << member;
  }
  job_.has_failed |= error_code != 0;
  if (--job_.outstanding > 0) return;
  if (job_.now == phase::reading) note_sources();
  if (job_.now == phase::asking) note_target();
  if (job_.now == phase::reading && !job_.has_failed) return write();
  if (job_.now == phase::writing && !job_.has_failed) return close(true);
  if (job_.now == phase::writing && job_.refusing != 0) return ask();
  // After a source has refused, others are asked, or for less. Otherwise the group's turn comes again with the next
  // walk.
  has_missed_ = true;
  if (job_.now != phase::reading || job_.refusing == 0) ++cursor_;
  close(false);
}

void mender::note_sources() {
  const lock_guard guard(shared_.table.lock);
  const stripe_group& seen = shared_.table.group_at(job_.group);
  const std::size_t sources = job_.is_copy ? 1 : shared_.code.shape().data;
  for (std::size_t index = 0; index < most_holders; ++index) {
    const holder& held = seen.holders[index];
    const auto is_holder = [&](const read_plan::source& asked) {
      return !asked.is_zero && asked.member == held.member;
    };
    if (!held.present || !std::ranges::any_of(std::span(job_.plan.sources).first(sources), is_holder)) continue;
    if ((job_.refusing >> held.member & 1) != 0) {
      sources_[index].note_refusal(job_.row, job_.rows);
    } else {
      sources_[index].note_success();
    }
  }
}

// It has been asked for what it had there before.
void mender::note_target() {
  const lock_guard guard(shared_.table.lock);
  holder& target = shared_.table.group_at(job_.group).holders[job_.index];
  target.refusals.note(job_.refusing != 0);
}

void mender::close(bool is_mended) {
  const lock_guard guard(shared_.table.lock);
  stripe_group& mended = shared_.table.group_at(job_.group);
  if (is_mended) {
    const slot_set rows = slot_set::range(job_.row, job_.rows);
    for (holder& held : mended.holders) {
      // The spare may have become its place meanwhile.
      if (held.present && held.member == job_.target.member && held.first == job_.target.first) {
        held.missing = held.missing - rows;
        held.refusals.note(false);
      }
    }
    has_found_work_ = true;
    mended_rows_ += job_.rows;
    if (!job_.is_copy) decoded_rows_ += job_.rows;
  }
  shared_.table.end(job_.group, job_.transfer);
  job_.now = phase::none;
}

}  // namespace far::backend
