#include "backend/replicated/member_care.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.h"

namespace far::backend {

member_care::member_care(layer& shared, host& owner, std::uint64_t interval_ns, const char* fate_of_lost)
    : shared_(shared), owner_(owner), interval_ns_(interval_ns), fate_of_lost_(fate_of_lost) {
  // A probe's buffer stays where it is while others are added.
  probes_.reserve(maximum_members);
}

void member_care::add() {
  const member& added = shared_.at(probes_.size());
  probes_.emplace_back();
  probes_.back().is_spread_to = added.serves();
}

member_care::found member_care::step(std::uint64_t now_ns) {
  found seen;
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    if (shared_.at(i).is_leaving() || probes_[i].was_leaving) see_off(i);
    if (shared_.at(i).is_gone()) continue;
    heed_server(i);
    tend_member(i, now_ns);
    seen.is_troubled |= !shared_.at(i).serves();
    seen.is_probing |= probes_[i].is_sent;
  }
  return seen;
}

void member_care::note_spread() {
  for (std::size_t i = 0; i < probes_.size(); ++i) probes_[i].is_spread_to |= shared_.at(i).serves();
}

// Notes the reports of its server. Serving members are not probed. If nobody uses a member, its own connection notices
// that it has lost everything, or is gone.
void member_care::heed_server(std::size_t index) {
  const member& heeded = shared_.at(index);
  const member_state state = heeded.state();
  // A server that others use, too, may hold two copies of a group.
  const std::uint64_t identity = heeded.store().server_identity();
  if (std::exchange(probes_[index].identity, identity) != identity) shared_.call_for_attention();
  if (state != member_state::emptied && heeded.has_forgotten()) shared_.note_error(index, ESTALE);
  if (state == member_state::serving && !heeded.store().answers()) shared_.note_error(index, ETIMEDOUT);
}

// A member that leaves: what it holds is wanted elsewhere. In the end it holds nothing, and when the user has removed
// it it is told so. One whose server was about to stop comes back when another one is started there.
void member_care::see_off(std::size_t index) {
  member& leaving = shared_.at(index);
  probe& own = probes_[index];
  const bool is_leaving = leaving.is_leaving();
  if (is_leaving != own.was_leaving) {
    own.was_leaving = is_leaving;
    own.is_emptiness_reported = false;
    shared_.call_for_attention();
    if (is_leaving) {
      log_line(log_level::info, "far tier %s %s; what it holds is being copied to other servers",
               leaving.name().c_str(), leaving.is_removed() ? "is being removed" : "is about to stop");
    }
  }
  if (!is_leaving || own.is_sent || leaving.extents.load() > 0) return;
  if (!own.is_emptiness_reported) {
    own.is_emptiness_reported = true;
    log_line(log_level::info, "far tier %s holds nothing of this program any more", leaving.name().c_str());
  }
  if (!leaving.is_removed() || leaving.is_retired()) return;
  drop_borrowed(index);
  if ((leaving.is_gone() || owner_.let_go(index)) && leaving.store().retire()) leaving.be_retired();
}

// The health of one member: probes while it does not answer, and time.
void member_care::tend_member(std::size_t index, std::uint64_t now_ns) {
  member& tended = shared_.at(index);
  probe& own = probes_[index];
  const member::health seen = tended.now();
  if (seen.state == member_state::serving) {
    own.suspect_since_ns = 0;
    return;
  }
  if (seen.state == member_state::emptied) {
    own.suspect_since_ns = 0;
    if (own.is_sent || tended.extents.load() > 0) return;
    drop_borrowed(index);
    tended.recognise();
    static_cast<void>(tended.change(seen, member_state::suspect));
    return;
  }
  if (tended.away_since_ns() == 0) tended.set_away_since(now_ns);
  if (own.suspect_since_ns == 0) {
    own.suspect_since_ns = now_ns;
    own.next_ns = std::min(own.next_ns, now_ns + interval_ns_);
  }
  const bool is_given_up =
      seen.state == member_state::suspect && now_ns - own.suspect_since_ns >= shared_.lost_after_ns;
  if (is_given_up && tended.change(seen, member_state::lost)) {
    if (tended.extents.load() > 0) {
      log_line(log_level::warning, "far tier %s is considered lost; %s", tended.name().c_str(), fate_of_lost_);
    }
    shared_.call_for_attention();
  }
  if (!own.is_sent && now_ns >= own.next_ns) send(index, now_ns);
}

void member_care::send(std::size_t index, std::uint64_t now_ns) {
  probe& own = probes_[index];
  const slot_id slot = slot_to_probe(index);
  if (slot == no_slot) return;
  own.seen = shared_.at(index).now();
  own.is_sent = owner_.send_probe(index, {.op = operation::read,
                                          .slot = slot,
                                          .length_bytes = static_cast<std::uint32_t>(own.bytes.size()),
                                          .buffer = own.bytes.data()});
  if (own.is_sent) {
    own.next_ns = now_ns + interval_ns_;
  } else {
    release(index);
  }
}

void member_care::release(std::size_t index) {
  if (probes_[index].holds_slot) owner_.release_slot(index);
  probes_[index].holds_slot = false;
}

// When the member holds nothing, a slot of an extent that is borrowed for this: a single slot would leave a hole before
// the extents that follow, for which a full member lacks the last one.
slot_id member_care::slot_to_probe(std::size_t index) {
  probe& own = probes_[index];
  if (own.borrowed != no_slot) return own.borrowed;
  if (shared_.at(index).extents.load() == 0) {
    const result<slot_id> taken = shared_.at(index).store().allocate(group_slots);
    if (taken) own.borrowed = taken.value();
    return own.borrowed;
  }
  const slot_id held = owner_.hold_slot(index);
  own.holds_slot = held != no_slot;
  return held;
}

void member_care::on_probe(std::size_t index, int error_code) {
  member& asked = shared_.at(index);
  probe& own = probes_[index];
  own.is_sent = false;
  release(index);
  if (error_code != 0) {
    shared_.note_error(index, error_code);
    if (error_code == ESTALE) drop_borrowed(index);
    return;
  }
  if (own.seen.state == member_state::emptied || own.seen.state == member_state::serving) return;
  if (is_twin(index)) return;
  asked.set_away_since(0);
  if (!asked.change(own.seen, member_state::serving)) return;
  drop_borrowed(index);
  log_line(log_level::info, "far tier %s answers%s", asked.name().c_str(), own.is_spread_to ? " again" : "");
  shared_.note_return();
  if (!own.is_spread_to) shared_.want_spreading();
  shared_.call_for_attention();
}

// Of two that come late, the first one to answer is used.
bool member_care::is_twin(std::size_t index) {
  probe& own = probes_[index];
  const member& asked = shared_.at(index);
  const member* const twin = own.is_spread_to ? nullptr : shared_.twin_of(asked.store(), shared_.member_count());
  if (twin == nullptr || (!twin->serves() && twin->extents.load() == 0)) return false;
  if (!own.is_twin_reported) {
    log_line(log_level::error, "far tier %s is %s under another name, and is not used; name each server once",
             asked.name().c_str(), twin->name().c_str());
  }
  own.is_twin_reported = true;
  return true;
}

void member_care::drop_borrowed(std::size_t index) {
  probe& own = probes_[index];
  if (own.borrowed != no_slot) shared_.at(index).store().free(own.borrowed, group_slots);
  own.borrowed = no_slot;
}

}  // namespace far::backend
