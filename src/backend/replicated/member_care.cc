// The part of the repairer that looks after members: their health, probes, and leave-taking.
#include <algorithm>
#include <cerrno>

#include "backend/replicated/repairer.h"
#include "base/log.h"

namespace far::backend {

// Notes the reports of its server. Serving members are not probed. If nobody uses a member, its own connection notices
// that it has lost everything, or is gone.
void repairer::heed_server(std::size_t index) {
  const member& heeded = shared_.at(index);
  const member_state state = heeded.state();
  // A server that others use, too, may hold both copies of a group.
  const std::uint64_t identity = heeded.store().server_identity();
  if (std::exchange(probes_[index].identity, identity) != identity) shared_.call_for_attention();
  if (state != member_state::emptied && heeded.has_forgotten()) shared_.note_error(index, ESTALE);
  if (state == member_state::serving && !heeded.store().answers()) shared_.note_error(index, ETIMEDOUT);
}

// A member that leaves: its groups want copies elsewhere. In the end it holds nothing, and when the user has removed it
// it is told so. One whose server was about to stop comes back when another one is started there.
void repairer::see_off(std::size_t index) {
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
  if (!is_leaving || own.sent || leaving.extents.load() > 0) return;
  if (!own.is_emptiness_reported) {
    own.is_emptiness_reported = true;
    log_line(log_level::info, "far tier %s holds nothing of this program any more", leaving.name().c_str());
  }
  if (!leaving.is_removed() || leaving.is_retired()) return;
  drop_borrowed(index);
  if ((leaving.is_gone() || groups_.let_go(index)) && leaving.store().retire()) leaving.be_retired();
}

// The health of one member: probes while it does not answer, and time.
void repairer::tend_member(std::size_t index, std::uint64_t now_ns) {
  member& tended = shared_.at(index);
  probe& own = probes_[index];
  const member::health seen = tended.now();
  if (seen.state == member_state::serving) {
    own.suspect_since_ns = 0;
    return;
  }
  if (seen.state == member_state::emptied) {
    own.suspect_since_ns = 0;
    if (own.sent || tended.extents.load() > 0) return;
    drop_borrowed(index);
    tended.recognise();
    static_cast<void>(tended.change(seen, member_state::suspect));
    return;
  }
  if (own.suspect_since_ns == 0) {
    own.suspect_since_ns = now_ns;
    own.next_ns = std::min(own.next_ns, now_ns + probe_interval_ns_);
  }
  const bool given_up = seen.state == member_state::suspect && now_ns - own.suspect_since_ns >= shared_.lost_after_ns;
  if (given_up && tended.change(seen, member_state::lost)) {
    if (tended.extents.load() > 0) {
      log_line(log_level::warning, "far tier %s is considered lost; %s", tended.name().c_str(),
               shared_.copies > 1 ? "its copies are being rebuilt on other servers"
                                  : "the pages that it holds cannot be read while it does not answer");
    }
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

// A slot of a copy that the member holds; when it holds none, one of an extent that is borrowed for this: a single slot
// would leave a hole before the extents that follow, for which a full member lacks the last one. no_slot: not found
// yet.
slot_id repairer::slot_to_probe(std::size_t index) {
  probe& own = probes_[index];
  if (own.borrowed != no_slot) return own.borrowed;
  if (own.held_group != no_group) return own.held_slot;
  if (shared_.at(index).extents.load() == 0) {
    const result<slot_id> taken = shared_.at(index).store().allocate(group_slots);
    if (taken) own.borrowed = taken.value();
    return own.borrowed;
  }
  const std::uint64_t end = shared_.groups_end.load();
  for (std::uint64_t i = 0; i < std::min(groups_a_step, end); ++i) {
    const std::uint64_t number = own.cursor++ % end;
    group& looked_at = shared_.group_at(number);
    const lock_guard guard(looked_at.lock);
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
    const lock_guard guard(held.lock);
    --held.holds;
    own.held_group = no_group;
  }
  if (error_code != 0) {
    shared_.note_error(index, error_code);
    if (error_code == ESTALE) drop_borrowed(index);
    return;
  }
  if (own.seen.state == member_state::emptied || own.seen.state == member_state::serving) return;
  const member* const twin = own.is_spread_to ? nullptr : shared_.twin_of(asked.store(), shared_.member_count());
  // Of two that come late, the first one to answer is used.
  if (twin != nullptr && (twin->serves() || twin->extents.load() > 0)) {
    if (!own.is_twin_reported) {
      log_line(log_level::error, "far tier %s is %s under another name, and is not used; name each server once",
               asked.name().c_str(), twin->name().c_str());
    }
    own.is_twin_reported = true;
    return;
  }
  if (!asked.change(own.seen, member_state::serving)) return;
  drop_borrowed(index);
  log_line(log_level::info, "far tier %s answers%s", asked.name().c_str(), own.is_spread_to ? " again" : "");
  shared_.note_return();
  if (!own.is_spread_to) shared_.want_spreading();
  shared_.call_for_attention();
}

void repairer::drop_borrowed(std::size_t index) {
  probe& own = probes_[index];
  if (own.borrowed != no_slot) shared_.at(index).store().free(own.borrowed, group_slots);
  own.borrowed = no_slot;
}

}  // namespace far::backend
