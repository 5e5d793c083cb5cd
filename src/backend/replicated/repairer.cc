#include "backend/replicated/repairer.h"

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "base/check.h"

namespace far::backend {
namespace {

constexpr std::size_t channel_depth = 4;

constexpr std::uint64_t busy_interval_ns = 50'000;
constexpr std::uint64_t idle_interval_ns = 50'000'000;
constexpr std::uint64_t probes_between_walks = 4;

// After copying a window for a move, the repairer pauses moves for so many times as long.
constexpr std::uint64_t rests_a_move = 1;

}  // namespace

repairer::repairer(layer& shared, placement& groups, std::uint64_t probe_interval_ns)
    : shared_(shared),
      groups_(groups),
      probe_interval_ns_(probe_interval_ns),
      care_(shared, *this, probe_interval_ns,
            shared.copies > 1 ? "its copies are being rebuilt on other servers"
                              : "the pages that it holds cannot be read while it does not answer"),
      buffer_(platform::map_local(window_slots * page_bytes)) {
  channels_.reserve(maximum_members);
}

repairer::~repairer() {
  shared_.leave(*this);
  // In the child of a fork the channels are the parent's, and nothing of theirs may be touched.
  for (std::unique_ptr<channel>& channel : channels_) {
    if (shared_.detached()) static_cast<void>(channel.release());
    while (channel != nullptr && channel->in_flight() > 0) {
      std::array<completion, channel_depth> done;
      if (channel->poll(done) == 0) channel->wait(10'000'000);
    }
  }
  platform::unmap_local(buffer_, window_slots * page_bytes);
}

result<std::unique_ptr<channel>> repairer::open_queue(backend& store) {
  return store.open_channel(channel_depth);
}

void repairer::take_queue(std::unique_ptr<channel> queue) {
  channels_.push_back(std::move(queue));
  care_.add();
}

std::uint64_t repairer::step() {
  const std::uint64_t now_ns = shared_.time.now_ns();
  poll_channels();
  const member_care::found members = care_.step(now_ns);
  advance();
  const bool is_called = shared_.take_attention() || (walk_again_ns_ != 0 && now_ns >= walk_again_ns_);
  if (is_called && walking_ && !moving_) {
    // Writes that go past a member call all the time: the groups at the end have their turn, too.
    walk_found_work_ = true;
  } else if (is_called) {
    start_walk(false);
  }
  if (walking_ && job_.now == phase::none && !rests(now_ns)) walk(now_ns);
  advance();
  if (job_.now != phase::none || (walking_ && !rests(now_ns))) return busy_interval_ns;
  if (walking_) return std::min(rest_until_ns_ - now_ns, idle_interval_ns);
  if (members.is_probing) return busy_interval_ns * 4;
  return members.is_troubled ? std::min(probe_interval_ns_, idle_interval_ns) : idle_interval_ns;
}

slot_id repairer::hold_slot(std::size_t index) {
  held_group& own = held_[index];
  const std::uint64_t end = shared_.groups_end.load();
  for (std::uint64_t i = 0; i < std::min(groups_a_step, end); ++i) {
    const std::uint64_t number = own.cursor++ % end;
    group& looked_at = shared_.group_at(number);
    const lock_guard guard(looked_at.lock);
    for (const copy& held : looked_at.copies) {
      // One that leaves is not held: with one probe after the other it would never be gone.
      if (!held.present || held.leaving || held.member != index) continue;
      ++looked_at.holds;
      own.number = number;
      return held.first;
    }
  }
  return no_slot;
}

void repairer::release_slot(std::size_t index) {
  group& held = shared_.group_at(std::exchange(held_[index].number, no_group));
  const lock_guard guard(held.lock);
  --held.holds;
}

bool repairer::send_probe(std::size_t index, const request& probe) {
  request numbered = probe;
  numbered.cookie = probe_cookie;
  return channels_[index]->submit({&numbered, 1}) == 1;
}

repair_counts repairer::counts() const {
  return {repaired_slots_.load(), placed_copies_.load(), moved_groups_.load(), removed_copies_.load(),
          raced_slots_.load()};
}

void repairer::poll_channels() {
  for (std::size_t i = 0; i < channels_.size(); ++i) {
    std::array<completion, channel_depth> done;
    const std::size_t count = channels_[i]->in_flight() > 0 ? channels_[i]->poll(done) : 0;
    for (const completion& completed : std::span(done).first(count)) {
      if (completed.cookie == probe_cookie) {
        care_.on_probe(i, completed.error_code);
      } else {
        if (completed.error_code != 0) shared_.note_error(i, completed.error_code);
        on_moved(completed.error_code);
      }
    }
  }
}

void repairer::start_walk(bool moving) {
  idle_.store(false, std::memory_order_release);
  walking_ = true;
  moving_ = moving;
  walk_wanted_spreadings_ = shared_.spreadings_wanted();
  walk_found_work_ = false;
  walk_again_ns_ = 0;
  walk_missed_ = false;
  sources_of_ = no_group;
  cursor_ = 0;
}

// Ends when all groups have been examined and none needed anything.
void repairer::walk(std::uint64_t now_ns) {
  for (std::uint64_t looked_at = 0; looked_at < groups_a_step; ++looked_at) {
    if (cursor_ >= shared_.groups_end.load()) return end_walk(now_ns);
    if (look_at(cursor_)) {
      if (job_.now != phase::none) return;
      walk_found_work_ = true;
    } else {
      ++cursor_;
    }
  }
}

void repairer::end_walk(std::uint64_t now_ns) {
  walking_ = false;
  if (walk_found_work_) return start_walk(false);
  if (!moving_ && shared_.is_spreading()) return start_walk(true);
  if (walk_missed_) {
    walk_again_ns_ = now_ns + probes_between_walks * probe_interval_ns_;
    return;
  }
  if (moving_) {
    care_.note_spread();
    shared_.note_spread(walk_wanted_spreadings_);
  }
  idle_.store(true, std::memory_order_release);
}

// Does or begins what the group needs most; false when it needs nothing, or nothing can be done.
bool repairer::look_at(std::uint64_t number) {
  group& seen = shared_.group_at(number);
  bool available = false;
  std::size_t written_to = 0;  // servers
  std::size_t useless = maximum_places;
  {
    const lock_guard guard(seen.lock);
    if (!seen.placed) return false;
    available = seen.available;
    place_mask serving = 0;
    for (std::size_t place = 0; place < seen.copies.size(); ++place) {
      const copy& held = seen.copies[place];
      if (!held.present || held.leaving) continue;
      const member_state state = shared_.at(held.member).state();
      if (state == member_state::serving) serving |= static_cast<place_mask>(1u << place);
      const bool is_broken = held.refusals.is_broken() && !shared_.is_kept_in_place() && is_held_elsewhere(seen, place);
      if (state == member_state::emptied || (state == member_state::serving && is_broken)) useless = place;
    }
    written_to = seen.servers_of(shared_.view(), serving);
    if (useless != maximum_places) {
      begin_leaving(seen, number, useless);
      return true;
    }
  }
  if (const bool writable = written_to >= shared_.least_copies; available != writable) {
    groups_.set_available(number, writable);
    return true;
  }
  return replace_copies(number) || begin_repair(number) || (moving_ && begin_move(number));
}

// Adds a copy that is missing, and gives up one that is surplus.
bool repairer::replace_copies(std::uint64_t number) {
  group& seen = shared_.group_at(number);
  std::size_t expected = 0;
  {
    const lock_guard guard(seen.lock);
    std::size_t present = 0;
    for (std::size_t place = 0; place < seen.copies.size(); ++place) {
      const copy& held = seen.copies[place];
      if (!held.present) continue;
      ++present;
      const member& holder = shared_.at(held.member);
      const member_state state = holder.state();
      const bool is_expected = state == member_state::serving || state == member_state::suspect;
      expected += is_expected && !holder.is_leaving() && !fails_with_earlier(seen, place);
    }
    std::size_t surplus = present > shared_.copies ? surplus_of(seen, number, false) : maximum_places;
    if (surplus == maximum_places && present == maximum_places) surplus = surplus_of(seen, number, true);
    if (surplus != maximum_places) {
      begin_leaving(seen, number, surplus);
      return true;
    }
    // A copy that is needed now may become surplus at any moment: a write or a free can make the last stale copy whole.
    walk_missed_ |= present > shared_.copies;
  }
  if (expected >= shared_.copies) return false;
  if (groups_.place_copy(number, false) == 0) {
    ++placed_copies_;
    return true;
  }
  walk_missed_ = true;
  return false;
}

// The copy to give up: the least useful one among those that are not needed, or none (maximum_places). `make_room`:
// among those on lost members, if that loses nothing.
std::size_t repairer::surplus_of(const group& seen, std::uint64_t number, bool make_room) {
  const member_order order = groups_.order_of(number);
  std::array<std::size_t, maximum_members> position{};
  for (std::size_t i = 0; i < order.count; ++i) position[order.members[i]] = i;
  std::size_t worst_whole = 0;
  for (std::size_t place = 0; place < seen.copies.size(); ++place) {
    const copy& held = seen.copies[place];
    if (held.present && seen.stale(place).empty()) worst_whole = std::max(worst_whole, position[held.member]);
  }
  std::size_t surplus = maximum_places;
  std::size_t surplus_rank = 0;
  for (std::size_t place = 0; place < seen.copies.size(); ++place) {
    const copy& held = seen.copies[place];
    if (!held.present) continue;
    const member_state state = shared_.at(held.member).state();
    const bool is_stale = !seen.stale(place).empty();
    const bool is_lost = state == member_state::lost;
    if (make_room ? !is_lost || !is_held_elsewhere(seen, place) : !is_whole_without(seen, place)) continue;
    // The group is moving there.
    if (shared_.is_spreading() && state == member_state::serving && is_stale && position[held.member] < worst_whole) {
      continue;
    }
    const bool is_leaving = shared_.at(held.member).is_leaving();
    const std::size_t worth = is_lost ? 5 : is_leaving ? 4 : is_stale ? 3 : state == member_state::suspect ? 2 : 1;
    const std::size_t rank = worth * maximum_members + position[held.member];
    if (rank < surplus_rank) continue;
    surplus = place;
    surplus_rank = rank;
  }
  const bool may_stay = surplus != maximum_places && shared_.at(seen.copies[surplus].member).may_serve_again();
  if (!may_stay || !shared_.is_kept_in_place()) return surplus;
  walk_missed_ = true;
  return maximum_places;
}

// Whether enough other copies have everything. Two on one server are one. Those that leave count only for one another:
// of two members that leave, one waits for the place of the other.
bool repairer::is_whole_without(const group& seen, std::size_t place) const {
  const bool is_leaving = shared_.at(seen.copies[place].member).is_leaving();
  std::array<std::size_t, maximum_places> members{};
  std::size_t whole = 0;
  for (std::size_t other = 0; other < seen.copies.size(); ++other) {
    const copy& held = seen.copies[other];
    if (other == place || !held.present || held.leaving || !shared_.at(held.member).serves()) continue;
    if (!is_leaving && shared_.at(held.member).is_leaving()) continue;
    if (!seen.stale(other).empty()) continue;
    const auto fails_together = [&](std::size_t counted) { return shared_.fail_together(counted, held.member); };
    if (std::ranges::any_of(std::span(members).first(whole), fails_together)) continue;
    members[whole++] = held.member;
  }
  return whole >= shared_.copies;
}

bool repairer::fails_with_earlier(const group& seen, std::size_t place) const {
  for (std::size_t other = 0; other < place; ++other) {
    const copy& held = seen.copies[other];
    const bool counts = held.present && !held.leaving && shared_.at(held.member).takes_copies();
    if (counts && shared_.fail_together(held.member, seen.copies[place].member)) return true;
  }
  return false;
}

// Whether the group could do without this copy.
bool repairer::is_held_elsewhere(const group& seen, std::size_t place) const {
  slot_set elsewhere;
  for (std::size_t other = 0; other < seen.copies.size(); ++other) {
    const copy& held = seen.copies[other];
    if (other == place || !held.present || held.leaving || !shared_.at(held.member).serves()) continue;
    elsewhere |= ~held.missing;
  }
  return (seen.owned - elsewhere).empty();
}

// Without a break in the lock since the copy was chosen; otherwise its place could be empty by now.
void repairer::begin_leaving(group& shrunk, std::uint64_t number, std::size_t place) {
  shrunk.copies[place].leaving = true;
  ++shrunk.holds;
  job_ = {};
  job_.now = phase::leaving;
  job_.group = number;
  job_.place = place;
}

bool repairer::begin_repair(std::uint64_t number) {
  group& seen = shared_.group_at(number);
  const lock_guard guard(seen.lock);
  for (std::size_t place = 0; place < seen.copies.size(); ++place) {
    const copy& held = seen.copies[place];
    const slot_set stale = seen.stale(place);
    if (!held.present || held.leaving || stale.empty()) continue;
    // Moving has its own time.
    const bool is_move = is_whole_without(seen, place);
    if (is_move && !moving_) continue;
    walk_missed_ = true;
    if (!shared_.at(held.member).serves()) continue;
    if (std::exchange(sources_of_, number) != number) sources_ = {};
    const std::size_t first = first_repairable(seen, place, stale);
    if (first == group_slots) continue;
    job_ = {};
    job_.now = phase::draining;
    job_.is_move = is_move;
    job_.begun_ns = shared_.time.now_ns();
    job_.group = number;
    job_.place = place;
    job_.window.target = static_cast<std::uint8_t>(place);
    job_.window.slots = slot_set::range(first, std::min(window_slots, group_slots - first));
    seen.open_window(&job_.window);
    ++seen.holds;
    return true;
  }
  return false;
}

// Puts a copy on a better member, if the group needs nothing else.
bool repairer::begin_move(std::uint64_t number) {
  {
    group& seen = shared_.group_at(number);
    const lock_guard guard(seen.lock);
    std::size_t whole = 0;
    for (std::size_t place = 0; place < seen.copies.size(); ++place) {
      const copy& held = seen.copies[place];
      if (!held.present) continue;
      const member& holder = shared_.at(held.member);
      if (held.leaving || !holder.serves() || holder.is_leaving() || !seen.stale(place).empty()) return false;
      ++whole;
    }
    if (whole != shared_.copies) return false;
  }
  if (shared_.is_kept_in_place()) {
    walk_missed_ = true;
    return false;
  }
  const int code = groups_.place_copy(number, true);
  if (code == EAGAIN) walk_missed_ = true;
  if (code != 0) return false;
  ++placed_copies_;
  ++moved_groups_;
  return true;
}

// The first of these slots that another copy has.
std::size_t repairer::first_repairable(const group& seen, std::size_t place, const slot_set& stale) const {
  std::size_t first = group_slots;
  for (std::size_t other = 0; other < seen.copies.size(); ++other) {
    if (other != place) first = std::min(first, found_in(seen, other, stale).next(0));
  }
  return first;
}

slot_set repairer::found_in(const group& seen, std::size_t source, const slot_set& wanted) const {
  const copy& held = seen.copies[source];
  if (!held.present || held.leaving || !shared_.at(held.member).serves()) return {};
  return wanted - held.missing - sources_[source].refused;
}

void repairer::advance() {
  switch (job_.now) {
    case phase::none: return;
    case phase::draining: return start_copying();
    case phase::reading:
    case phase::writing:
    case phase::asking:
      if (job_.unsent) send();
      return;
    case phase::leaving: break;
  }
  group& shrunk = shared_.group_at(job_.group);
  {
    const lock_guard guard(shrunk.lock);
    const bool is_probed = shrunk.holds > 1;
    if (is_probed || !shrunk.drained(&job_.turned)) return;
    walk_found_work_ = true;
    copy& leaving = shrunk.copies[job_.place];
    const member_state state = shared_.at(leaving.member).state();
    const bool is_read_by_children = shared_.is_kept_in_place() && shared_.at(leaving.member).may_serve_again();
    const bool must_stay = is_read_by_children || (state == member_state::serving && !leaving.refusals.is_broken() &&
                                                   !is_whole_without(shrunk, job_.place));
    if (must_stay || (state != member_state::emptied && !is_held_elsewhere(shrunk, job_.place))) {
      // A child was forked meanwhile; or a write that was under way has failed on all the others.
      leaving.leaving = false;
      --shrunk.holds;
      job_.now = phase::none;
      return;
    }
  }
  // Held until the copy is gone: were the group given up before, its place could be another's.
  groups_.remove_copy(job_.group, job_.place);
  ++removed_copies_;
  job_.now = phase::none;
}

void repairer::start_copying() {
  {
    group& mended = shared_.group_at(job_.group);
    const lock_guard guard(mended.lock);
    if (!mended.drained(&job_.turned)) return;
    const slot_set wanted = (mended.stale(job_.place) & job_.window.slots) - job_.window.touched;
    if (choose_source(mended, wanted)) job_.now = phase::reading;
  }
  if (job_.now == phase::reading) return send();
  // They were written meanwhile, or those that have them are gone.
  walk_found_work_ = true;
  close(false);
}

// One that has not refused anything, if there is one; then the first of the slots, and as many as possible.
bool repairer::choose_source(const group& mended, const slot_set& wanted) {
  job_.count = 0;
  for (std::size_t other = 0; other < mended.copies.size(); ++other) {
    if (other == job_.place) continue;
    const slot_set found = found_in(mended, other, wanted);
    const std::size_t first = found.next(0);
    if (first == group_slots) continue;
    const std::size_t count = std::min(found.run_from(first), sources_[other].most);
    const unsigned refusals = sources_[other].in_a_row;
    const unsigned least = sources_[job_.source].in_a_row;
    if (job_.count > 0 && refusals > least) continue;
    if (job_.count > 0 && refusals == least && (first > job_.first || (first == job_.first && count <= job_.count))) {
      continue;
    }
    job_.first = first;
    job_.count = count;
    job_.source = other;
  }
  return job_.count > 0;
}

void repairer::send() {
  group& mended = shared_.group_at(job_.group);
  const bool writing = job_.now == phase::writing;
  copy used;
  {
    const lock_guard guard(mended.lock);
    used = mended.copies[job_.now == phase::reading ? job_.source : job_.place];
  }
  const std::size_t count = job_.now == phase::asking ? 1 : job_.count;
  const request moved{.op = writing ? operation::write : operation::read,
                      .slot = used.first + job_.first,
                      .offset_bytes = 0,
                      .length_bytes = static_cast<std::uint32_t>(count * page_bytes),
                      .buffer = buffer_,
                      .cookie = job_cookie};
  job_.unsent = channels_[used.member]->submit({&moved, 1}) == 0;
}

void repairer::on_moved(int error_code) {
  if (job_.now == phase::asking || error_code != 0) return on_error(error_code);
  if (job_.now == phase::writing) return close(true);
  sources_[job_.source].note_success();
  job_.now = phase::writing;
  send();
}

// After a source has refused, another one is asked, or for less. Otherwise the group's turn comes again with the next
// walk.
void repairer::on_error(int error_code) {
  walk_missed_ = true;
  group& mended = shared_.group_at(job_.group);
  const bool is_refused = job_.now != phase::asking && is_refusal(error_code);
  std::size_t refuser = 0;
  {
    const lock_guard guard(mended.lock);
    copy& target = mended.copies[job_.place];
    refuser = job_.now == phase::reading ? mended.copies[job_.source].member : target.member;
    if (job_.now == phase::asking) target.refusals.note(is_refusal(error_code));
  }
  if (is_refused) shared_.note_refusal(refuser);  // it writes to the log, which may wait
  if (job_.now == phase::writing && is_refusal(error_code)) {
    job_.now = phase::asking;
    return send();
  }
  if (job_.now == phase::reading && is_refusal(error_code)) {
    sources_[job_.source].note_refusal(job_.first, job_.count);
  } else {
    ++cursor_;
  }
  close(false);
}

void repairer::close(bool copied) {
  group& mended = shared_.group_at(job_.group);
  const lock_guard guard(mended.lock);
  if (copied) {
    const slot_set moved = slot_set::range(job_.first, job_.count);
    const slot_set current = moved - job_.window.touched;
    mended.copies[job_.place].missing = mended.copies[job_.place].missing - current;
    mended.copies[job_.place].refusals.note(false);
    walk_found_work_ = true;
    repaired_slots_ += current.size();
    raced_slots_ += moved.size() - current.size();
  }
  mended.close_window();
  --mended.holds;
  const std::uint64_t now_ns = shared_.time.now_ns();
  if (job_.is_move) rest_until_ns_ = now_ns + rests_a_move * (now_ns - job_.begun_ns);
  job_.now = phase::none;
}

}  // namespace far::backend
