#include "backend/replicated/repairer.h"

#include <algorithm>
#include <cerrno>
#include <mutex>

#include "base/check.h"
#include "base/log.h"

namespace far::backend {
namespace {

constexpr std::uint64_t groups_a_step = 256;
constexpr std::size_t channel_depth = 4;

constexpr std::uint64_t busy_interval_ns = 50'000;
constexpr std::uint64_t idle_interval_ns = 50'000'000;
constexpr std::uint64_t probes_between_walks = 4;
constexpr std::uint64_t probes_between_checks = 20;

constexpr std::uint64_t probe_cookie = 0;
constexpr std::uint64_t job_cookie = 1;

}  // namespace

repairer::repairer(layer& shared, placement& groups, std::uint64_t probe_interval_ns)
    : shared_(shared),
      groups_(groups),
      probe_interval_ns_(probe_interval_ns),
      probes_(shared.member_count()),
      buffer_(platform::map_local(window_slots * page_bytes)) {}

repairer::~repairer() {
  // In the child of a fork the channels are the parent's, and nothing of theirs may be touched.
  for (std::unique_ptr<channel>& each : channels_) {
    if (shared_.detached()) static_cast<void>(each.release());
    while (each != nullptr && each->in_flight() > 0) {
      std::array<completion, channel_depth> done;
      if (each->poll(done) == 0) each->wait(10'000'000);
    }
  }
  platform::unmap_local(buffer_, window_slots * page_bytes);
}

result<void> repairer::open_channels() {
  for (std::size_t i = 0; i < shared_.member_count(); ++i) {
    result<std::unique_ptr<channel>> opened = shared_.at(i).store().open_channel(channel_depth);
    if (!opened) return opened.error();
    channels_.push_back(std::move(opened).value());
  }
  return {};
}

std::uint64_t repairer::step() {
  const std::uint64_t now_ns = shared_.time.now_ns();
  poll_channels();
  bool troubled = false;
  bool probing = false;
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    tend_member(i, now_ns);
    troubled |= !shared_.at(i).serves();
    probing |= probes_[i].sent;
  }
  advance();
  if (shared_.take_attention() || (walk_again_ns_ != 0 && now_ns >= walk_again_ns_)) start_walk();
  if (walking_ && job_.now == phase::none) walk(now_ns);
  advance();
  if (walking_ || job_.now != phase::none) return busy_interval_ns;
  if (probing) return busy_interval_ns * 4;
  return troubled ? std::min(probe_interval_ns_, idle_interval_ns) : idle_interval_ns;
}

repair_counts repairer::counts() const {
  return {repaired_slots_.load(), placed_copies_.load(), removed_copies_.load(), raced_slots_.load()};
}

// The health of one member: probes while it does not answer, and time.
void repairer::tend_member(std::size_t index, std::uint64_t now_ns) {
  member& tended = shared_.at(index);
  probe& own = probes_[index];
  const member::health seen = tended.now();
  if (seen.state == member_state::serving) {
    own.suspect_since_ns = 0;
    // A server that nobody happens to use may have lost everything, and its copies should be made again soon.
    if (!own.sent && tended.extents.load() > 0 && now_ns >= own.next_ns) {
      send_probe(index, now_ns);
      own.next_ns = now_ns + probes_between_checks * probe_interval_ns_;
    }
    return;
  }
  if (seen.state == member_state::emptied) {
    own.suspect_since_ns = 0;
    if (own.sent || tended.extents.load() > 0) return;
    drop_borrowed(index);
    static_cast<void>(tended.change(seen, member_state::suspect));
    return;
  }
  if (own.suspect_since_ns == 0) {
    own.suspect_since_ns = now_ns;
    own.next_ns = std::min(own.next_ns, now_ns + probe_interval_ns_);
  }
  const bool given_up = seen.state == member_state::suspect && now_ns - own.suspect_since_ns >= shared_.lost_after_ns;
  if (given_up && tended.change(seen, member_state::lost)) {
    log_line(log_level::warning, "far tier %s is taken for lost; %s", tended.name().c_str(),
             shared_.copies > 1 ? "its copies are made again on others" : "what it holds cannot be read");
    shared_.call_for_attention();
  }
  if (!own.sent && now_ns >= own.next_ns) send_probe(index, now_ns);
}

void repairer::send_probe(std::size_t index, std::uint64_t now_ns) {
  probe& own = probes_[index];
  const slot_id slot = slot_to_probe(index);
  if (slot == no_slot) return;
  own.seen = shared_.at(index).now();
  const request asked{.op = operation::read,
                      .slot = slot,
                      .offset_bytes = 0,
                      .length_bytes = static_cast<std::uint32_t>(own.bytes.size()),
                      .buffer = own.bytes.data(),
                      .cookie = probe_cookie};
  own.sent = channels_[index]->submit({&asked, 1}) == 1;
  if (own.sent) own.next_ns = now_ns + probe_interval_ns_;
}

// A slot of a copy that the member holds; when it holds none, one that is allocated for this. no_slot: not found yet.
slot_id repairer::slot_to_probe(std::size_t index) {
  probe& own = probes_[index];
  if (own.borrowed != no_slot) return own.borrowed;
  if (own.held_group != no_group) return own.held_slot;
  if (shared_.at(index).extents.load() == 0) {
    const result<slot_id> taken = shared_.at(index).store().allocate(1);
    if (taken) own.borrowed = taken.value();
    return own.borrowed;
  }
  const std::uint64_t end = shared_.groups_end.load();
  for (std::uint64_t i = 0; i < std::min(groups_a_step, end); ++i) {
    const std::uint64_t number = own.cursor++ % end;
    group& looked_at = shared_.group_at(number);
    const std::lock_guard guard(looked_at.lock);
    for (const copy& held : looked_at.copies) {
      if (!held.present || held.member != index) continue;
      ++looked_at.holds;
      own.held_group = number;
      own.held_slot = held.first;
      return own.held_slot;
    }
  }
  return no_slot;
}

void repairer::on_probe(std::size_t index, int error_code) {
  member& asked = shared_.at(index);
  probe& own = probes_[index];
  own.sent = false;
  if (own.held_group != no_group) {
    group& held = shared_.group_at(own.held_group);
    const std::lock_guard guard(held.lock);
    --held.holds;
    own.held_group = no_group;
  }
  if (error_code != 0) {
    shared_.note_error(index, error_code);
    if (error_code == ESTALE) drop_borrowed(index);
    return;
  }
  if (own.seen.state == member_state::emptied || own.seen.state == member_state::serving) return;
  if (!asked.change(own.seen, member_state::serving)) return;
  drop_borrowed(index);
  log_line(log_level::info, "far tier %s answers again", asked.name().c_str());
  shared_.call_for_attention();
}

void repairer::drop_borrowed(std::size_t index) {
  probe& own = probes_[index];
  if (own.borrowed != no_slot) shared_.at(index).store().free(own.borrowed, 1);
  own.borrowed = no_slot;
}

void repairer::poll_channels() {
  for (std::size_t i = 0; i < channels_.size(); ++i) {
    std::array<completion, channel_depth> done;
    const std::size_t count = channels_[i]->in_flight() > 0 ? channels_[i]->poll(done) : 0;
    for (const completion& each : std::span(done).first(count)) {
      if (each.cookie == probe_cookie) {
        on_probe(i, each.error_code);
      } else {
        if (each.error_code != 0) shared_.note_error(i, each.error_code);
        on_moved(each.error_code);
      }
    }
  }
}

void repairer::start_walk() {
  idle_.store(false, std::memory_order_release);
  walking_ = true;
  walk_found_work_ = false;
  walk_again_ns_ = 0;
  walk_missed_ = false;
  cursor_ = 0;
}

// Ends when all groups were seen and none needed anything.
void repairer::walk(std::uint64_t now_ns) {
  for (std::uint64_t looked_at = 0; looked_at < groups_a_step; ++looked_at) {
    if (cursor_ >= shared_.groups_end.load()) {
      walking_ = false;
      if (walk_found_work_) return start_walk();
      if (walk_missed_) {
        walk_again_ns_ = now_ns + probes_between_walks * probe_interval_ns_;
      } else {
        idle_.store(true, std::memory_order_release);
      }
      return;
    }
    if (look_at(cursor_)) {
      walk_found_work_ = true;
      if (job_.now != phase::none) return;
    } else {
      ++cursor_;
    }
  }
}

// Does or begins what the group needs most; false when it needs nothing, or nothing can be done.
bool repairer::look_at(std::uint64_t number) {
  group& seen = shared_.group_at(number);
  bool available = false;
  bool writable = false;
  std::size_t forgotten = maximum_places;
  {
    const std::lock_guard guard(seen.lock);
    if (!seen.placed) return false;
    available = seen.available;
    for (std::size_t place = 0; place < seen.copies.size(); ++place) {
      const copy& held = seen.copies[place];
      if (!held.present || held.leaving) continue;
      const member_state state = shared_.at(held.member).state();
      writable |= state == member_state::serving;
      if (state == member_state::emptied) forgotten = place;
    }
    if (forgotten != maximum_places) {
      begin_leaving(seen, number, forgotten);
      return true;
    }
  }
  if (available != writable) {
    groups_.set_available(number, writable);
    return true;
  }
  return replace_copies(number) || begin_repair(number);
}

// Adds a copy where one is missing, and lets go of one where there is one more than needed.
bool repairer::replace_copies(std::uint64_t number) {
  group& seen = shared_.group_at(number);
  std::size_t expected = 0;
  std::size_t current = 0;
  std::size_t surplus = maximum_places;
  unsigned surplus_rank = 0;
  std::size_t present = 0;
  {
    const std::lock_guard guard(seen.lock);
    for (std::size_t place = 0; place < seen.copies.size(); ++place) {
      const copy& held = seen.copies[place];
      if (!held.present) continue;
      ++present;
      const member_state state = shared_.at(held.member).state();
      const bool complete = seen.stale(place).empty();
      expected += state == member_state::serving || state == member_state::suspect;
      current += state == member_state::serving && complete;
      const unsigned rank = state == member_state::lost ? 4 : !complete ? 3 : state == member_state::suspect ? 2 : 1;
      if (rank > surplus_rank && is_held_elsewhere(seen, place)) {
        surplus = place;
        surplus_rank = rank;
      }
    }
    const bool no_place_left = present == maximum_places && surplus_rank == 4;
    if (surplus != maximum_places && (no_place_left || (present > shared_.copies && current >= shared_.copies))) {
      begin_leaving(seen, number, surplus);
      return true;
    }
  }
  if (expected >= shared_.copies) return false;
  if (groups_.place_copy(number) == 0) {
    ++placed_copies_;
    return true;
  }
  walk_missed_ = true;
  return false;
}

// Whether the group could do without this copy. Requires: the group's lock.
bool repairer::is_held_elsewhere(const group& seen, std::size_t place) const {
  slot_set elsewhere;
  for (std::size_t other = 0; other < seen.copies.size(); ++other) {
    const copy& held = seen.copies[other];
    if (other == place || !held.present || held.leaving || !shared_.at(held.member).serves()) continue;
    elsewhere |= ~held.missing;
  }
  return (seen.owned - elsewhere).empty();
}

// Requires: the group's lock, since the copy was chosen; otherwise its place could be empty by now.
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
  const std::lock_guard guard(seen.lock);
  for (std::size_t place = 0; place < seen.copies.size(); ++place) {
    const copy& held = seen.copies[place];
    const slot_set stale = seen.stale(place);
    if (!held.present || held.leaving || stale.empty()) continue;
    walk_missed_ = true;
    if (!shared_.at(held.member).serves()) continue;
    const std::size_t first = first_repairable(seen, place, stale);
    if (first == group_slots) continue;
    job_ = {};
    job_.now = phase::draining;
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

// The first of these slots that somebody else has. Requires: the group's lock.
std::size_t repairer::first_repairable(const group& seen, std::size_t place, const slot_set& stale) const {
  std::size_t first = group_slots;
  for (std::size_t other = 0; other < seen.copies.size(); ++other) {
    const copy& held = seen.copies[other];
    if (other == place || !held.present || held.leaving || !shared_.at(held.member).serves()) continue;
    first = std::min(first, (stale - held.missing).next(0));
  }
  return first;
}

void repairer::advance() {
  switch (job_.now) {
    case phase::none: return;
    case phase::draining: return start_copying();
    case phase::reading:
    case phase::writing:
      if (job_.unsent) send();
      return;
    case phase::leaving: break;
  }
  group& shrunk = shared_.group_at(job_.group);
  {
    const std::lock_guard guard(shrunk.lock);
    const bool is_probed = shrunk.holds > 1;
    if (is_probed || !shrunk.drained(&job_.turned)) return;
    copy& leaving = shrunk.copies[job_.place];
    const bool is_gone = shared_.at(leaving.member).state() == member_state::emptied;
    if (!is_gone && !is_held_elsewhere(shrunk, job_.place)) {
      // A write that was under way has failed on all the others.
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
    const std::lock_guard guard(mended.lock);
    if (!mended.drained(&job_.turned)) return;
    const slot_set wanted = (mended.stale(job_.place) & job_.window.slots) - job_.window.touched;
    for (std::size_t other = 0; other < mended.copies.size(); ++other) {
      const copy& held = mended.copies[other];
      if (other == job_.place || !held.present || held.leaving || !shared_.at(held.member).serves()) continue;
      const slot_set found = wanted - held.missing;
      const std::size_t first = found.next(0);
      if (first == group_slots) continue;
      const std::size_t count = found.run_from(first);
      if (job_.count > 0 && (first > job_.first || (first == job_.first && count <= job_.count))) continue;
      job_.first = first;
      job_.count = count;
      job_.source = other;
    }
  }
  if (job_.count == 0) return close(false);
  job_.now = phase::reading;
  send();
}

void repairer::send() {
  group& mended = shared_.group_at(job_.group);
  const bool reading = job_.now == phase::reading;
  copy used;
  {
    const std::lock_guard guard(mended.lock);
    used = mended.copies[reading ? job_.source : job_.place];
  }
  const request moved{.op = reading ? operation::read : operation::write,
                      .slot = used.first + job_.first,
                      .offset_bytes = 0,
                      .length_bytes = static_cast<std::uint32_t>(job_.count * page_bytes),
                      .buffer = buffer_,
                      .cookie = job_cookie};
  job_.unsent = channels_[used.member]->submit({&moved, 1}) == 0;
}

void repairer::on_moved(int error_code) {
  if (error_code != 0) {
    // The group's turn comes again with the next walk.
    walk_missed_ = true;
    ++cursor_;
    return close(false);
  }
  if (job_.now == phase::writing) return close(true);
  job_.now = phase::writing;
  send();
}

void repairer::close(bool copied) {
  group& mended = shared_.group_at(job_.group);
  const std::lock_guard guard(mended.lock);
  if (copied) {
    const slot_set moved = slot_set::range(job_.first, job_.count);
    const slot_set current = moved - job_.window.touched;
    mended.copies[job_.place].missing = mended.copies[job_.place].missing - current;
    repaired_slots_ += current.size();
    raced_slots_ += moved.size() - current.size();
  }
  mended.close_window();
  --mended.holds;
  job_.now = phase::none;
}

}  // namespace far::backend
