#include "backend/striped/prober.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.h"

namespace far::backend {
namespace {

constexpr std::size_t channel_depth = 2;
constexpr std::uint64_t busy_interval_ns = 200'000;
constexpr std::uint64_t idle_interval_ns = 50'000'000;

}  // namespace

prober::prober(stripes& shared, std::uint64_t interval_ns) : shared_(shared), interval_ns_(interval_ns) {
  // A probe's buffer stays where it is while others are added.
  channels_.reserve(maximum_members);
  probes_.reserve(maximum_members);
}

prober::~prober() {
  shared_.members.leave(*this);
  // In the child of a fork the channels are the parent's, and nothing of theirs may be touched.
  for (std::unique_ptr<channel>& channel : channels_) {
    if (shared_.members.detached()) static_cast<void>(channel.release());
    while (channel != nullptr && channel->in_flight() > 0) {
      std::array<completion, channel_depth> done;
      if (channel->poll(done) == 0) channel->wait(10'000'000);
    }
  }
}

result<std::unique_ptr<channel>> prober::open_queue(backend& store) {
  return store.open_channel(channel_depth);
}

void prober::take_queue(std::unique_ptr<channel> queue) {
  const bool serves = shared_.members.at(channels_.size()).serves();
  channels_.push_back(std::move(queue));
  probes_.emplace_back();
  probes_.back().has_served = serves;
}

std::uint64_t prober::step() {
  const std::uint64_t now_ns = shared_.members.time.now_ns();
  bool is_probing = false;
  bool is_troubled = false;
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    std::array<completion, channel_depth> done;
    const std::size_t count = channels_[i]->in_flight() > 0 ? channels_[i]->poll(done) : 0;
    for (const completion& ended : std::span(done).first(count)) on_probe(i, ended.error_code);
    heed_server(i);
    tend_member(i, now_ns);
    is_troubled |= !shared_.members.at(i).serves();
    is_probing |= probes_[i].is_sent;
  }
  if (is_probing) return busy_interval_ns;
  return is_troubled ? std::min(interval_ns_, idle_interval_ns) : idle_interval_ns;
}

// Notes the reports of its server. Serving members are not probed. If nobody uses a member, its own connection notices
// that it has lost everything, or is gone.
void prober::heed_server(std::size_t index) {
  const member& heeded = shared_.members.at(index);
  const member_state state = heeded.state();
  if (state != member_state::emptied && heeded.has_forgotten()) shared_.members.note_error(index, ESTALE);
  if (state == member_state::serving && !heeded.store().answers()) shared_.members.note_error(index, ETIMEDOUT);
}

void prober::tend_member(std::size_t index, std::uint64_t now_ns) {
  member& tended = shared_.members.at(index);
  probe& own = probes_[index];
  const member::health seen = tended.now();
  if (seen.state == member_state::serving || seen.state == member_state::emptied) own.suspect_since_ns = 0;
  if (seen.state == member_state::serving) return;
  if (seen.state == member_state::emptied) {
    if (own.is_sent || tended.extents.load() > 0) return;
    drop_borrowed(index);
    tended.recognise();
    static_cast<void>(tended.change(seen, member_state::suspect));
    return;
  }
  if (own.suspect_since_ns == 0) {
    own.suspect_since_ns = now_ns;
    own.next_ns = std::min(own.next_ns, now_ns + interval_ns_);
  }
  const bool is_given_up =
      seen.state == member_state::suspect && now_ns - own.suspect_since_ns >= shared_.members.lost_after_ns;
  if (is_given_up && tended.change(seen, member_state::lost)) {
    log_line(log_level::warning, "far tier %s is considered lost; its pages are being rebuilt on other servers",
             tended.name().c_str());
    shared_.members.call_for_attention();
  }
  if (!own.is_sent && now_ns >= own.next_ns) send(index, now_ns);
}

void prober::send(std::size_t index, std::uint64_t now_ns) {
  probe& own = probes_[index];
  const slot_id slot = slot_to_probe(index);
  if (slot == no_slot) return;
  own.seen = shared_.members.at(index).now();
  const request asked{.op = operation::read,
                      .slot = slot,
                      .offset_bytes = 0,
                      .length_bytes = static_cast<std::uint32_t>(own.bytes.size()),
                      .buffer = own.bytes.data()};
  own.is_sent = channels_[index]->submit({&asked, 1}) == 1;
  if (own.is_sent) own.next_ns = now_ns + interval_ns_;
}

// A slot of an extent that the member holds; when it holds none, of one that is borrowed for this.
slot_id prober::slot_to_probe(std::size_t index) {
  probe& own = probes_[index];
  if (own.borrowed != no_slot) return own.borrowed;
  stripe_table& table = shared_.table;
  if (shared_.members.at(index).extents.load() == 0) {
    const result<slot_id> taken = shared_.members.at(index).store().allocate(group_slots);
    if (taken) own.borrowed = taken.value();
    return own.borrowed;
  }
  const lock_guard guard(table.lock);
  if (own.held_group != no_group) table.end(own.held_group, own.held_phase);
  own.held_group = no_group;
  for (std::uint64_t number = 0; number < table.groups_end(); ++number) {
    for (const holder& held : table.group_at(number).holders) {
      if (!held.present || held.member != index) continue;
      own.held_group = number;
      own.held_phase = table.begin(number);
      return held.first;
    }
  }
  return no_slot;
}

void prober::on_probe(std::size_t index, int error_code) {
  member& asked = shared_.members.at(index);
  probe& own = probes_[index];
  own.is_sent = false;
  if (own.held_group != no_group) {
    const lock_guard guard(shared_.table.lock);
    shared_.table.end(own.held_group, own.held_phase);
    own.held_group = no_group;
  }
  if (error_code != 0) {
    shared_.members.note_error(index, error_code);
    if (error_code == ESTALE) drop_borrowed(index);
    return;
  }
  if (own.seen.state == member_state::emptied || own.seen.state == member_state::serving) return;
  if (is_twin(index) || !asked.change(own.seen, member_state::serving)) return;
  drop_borrowed(index);
  log_line(log_level::info, "far tier %s answers%s", asked.name().c_str(), own.has_served ? " again" : "");
  own.has_served = true;
  shared_.note_return();
  shared_.members.call_for_attention();
}

// Of two that come late, the first one to answer is used.
bool prober::is_twin(std::size_t index) {
  probe& own = probes_[index];
  const member& asked = shared_.members.at(index);
  const member* const twin =
      own.has_served ? nullptr : shared_.members.twin_of(asked.store(), shared_.members.member_count());
  if (twin == nullptr || (!twin->serves() && twin->extents.load() == 0)) return false;
  if (!own.is_twin_reported) {
    log_line(log_level::error, "far tier %s is %s under another name, and is not used; name each server once",
             asked.name().c_str(), twin->name().c_str());
  }
  own.is_twin_reported = true;
  return true;
}

void prober::drop_borrowed(std::size_t index) {
  probe& own = probes_[index];
  if (own.borrowed != no_slot) shared_.members.at(index).store().free(own.borrowed, group_slots);
  own.borrowed = no_slot;
}

}  // namespace far::backend
