#include "device/device_group.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <sstream>
#include <utility>

#include "base/printable.h"
#include "far/plugin.h"
#include "platform/program_thread.h"
#include "wire/bytes.h"

namespace far::device_parts {
namespace {

using reason = device_error::reason;
using wire::device_op;
using wire::device_outcome;

constexpr auto keeper_pause = std::chrono::seconds(1);
// Of a server's text in a message. The texts of plugins are no longer.
constexpr std::size_t most_text_bytes = FAR_DEVICE_FAILURE_BYTES;
// Each copy has a session to itself.
constexpr std::uint64_t device_number = 1;

reason reason_for(device_outcome outcome) {
  switch (outcome) {
    case device_outcome::no_object: return reason::no_object;
    case device_outcome::unknown_plugin: return reason::no_plugin;
    case device_outcome::no_room: return reason::no_room;
    case device_outcome::timed_out: return reason::timed_out;
    case device_outcome::crashed: return reason::crashed;
    case device_outcome::no_device:
    case device_outcome::lost: return reason::lost;
    case device_outcome::ok:
    case device_outcome::refused:
    case device_outcome::repeated: break;
  }
  return reason::refused;
}

std::vector<std::byte> construction_of(std::string_view plugin, std::span<const std::byte> parameters) {
  if (!wire::is_plugin_name(plugin)) {
    throw device_error(reason::no_plugin, "no plugin is named '" + printable(plugin, 64) +
                                              "'; names have 1 to 31 letters, digits, '-', '_' and '.'");
  }
  if (parameters.size() > wire::most_device_bytes - 64) {
    throw device_error(reason::refused, "the parameters are too long for a message");
  }
  std::vector<std::byte> bytes(1 + plugin.size());
  bytes[0] = static_cast<std::byte>(plugin.size());
  std::memcpy(bytes.data() + 1, plugin.data(), plugin.size());
  bytes.insert(bytes.end(), parameters.begin(), parameters.end());
  return bytes;
}

// A longer one would only have a server waited for that does not answer.
std::uint64_t deadline_of(const device_options& chosen, const device_times& times) {
  constexpr std::uint64_t ms = device_times::ms;
  const auto longest_ms = std::max<std::int64_t>(static_cast<std::int64_t>(times.longest_call_ns / ms), 1);
  return static_cast<std::uint64_t>(std::clamp<std::int64_t>(chosen.deadline.count(), 1, longest_ms)) * ms;
}

// The lines of wire::device_op::list as "sorted 1.0, counter 2.1".
std::string names_in(std::string_view list) {
  std::istringstream lines{std::string(list)};
  std::string names;
  for (device_plugin one; lines >> one.name >> one.version >> one.interface_version;) {
    names += (names.empty() ? "" : ", ") + one.name + " " + one.version;
  }
  return names.empty() ? "no other" : printable(names, most_text_bytes);
}

}  // namespace

device_error failure_of(device_outcome outcome, const std::string& peer, std::string_view plugin,
                        std::string_view text) {
  if (outcome == device_outcome::unknown_plugin) {
    const bool is_server = peer != local_peer;
    return device_error(reason::no_plugin, peer + ": there is no plugin '" + std::string(plugin) + "', but " +
                                               names_in(text) + "; construct one of these, or load the other: " +
                                               (is_server ? "farheapd --plugin FILE" : "memory:?plugin=FILE"));
  }
  std::string what = peer + ": " + wire::name_of(outcome);
  if (!text.empty()) what.append(": ").append(printable(text, most_text_bytes));
  return device_error(reason_for(outcome), what);
}

device_group::device_group(device_tier tier, std::string_view plugin, const device_options& chosen)
    : tier_(std::move(tier)),
      plugin_(plugin),
      construction_(construction_of(plugin, chosen.parameters)),
      room_bytes_(chosen.room_bytes),
      deadline_ns_(deadline_of(chosen, tier_.times)) {
  std::array<std::byte, sizeof(std::uint32_t)> drawn;
  tier_.random(drawn);
  const std::size_t first = wire::load<std::uint32_t>(drawn.data()) % tier_.servers.size();
  // Those that answer at once come first. Servers that are away are waited for only if all are.
  for (const device_link::patience& how : {little(), usual()}) {
    for (std::size_t i = 0; i < tier_.servers.size() && copies_.size() < tier_.copies; ++i) {
      const std::size_t server = (first + i) % tier_.servers.size();
      std::unique_ptr<device_link> link = end_abandoned_on(server) ? construct_on(server, how) : nullptr;
      if (link) copies_.push_back({.link = std::move(link), .server = server});
    }
    const bool is_hopeless =
        std::ranges::none_of(failures_, [](const device_error& one) { return one.why() == reason::unreachable; });
    if (!copies_.empty() || is_hopeless) break;
  }
  if (copies_.empty()) {
    for (const copy& one : abandoned_) static_cast<void>(one.link->leave(farewell()));
    throw failures_.back();
  }
  if (tier_.has_servers && tier_.has_keeper) keeper_ = platform::start_program_thread("far-device", [this] { keep(); });
}

// The end of a session ends its devices, so those that cannot be told are gone with it.
device_group::~device_group() {
  {
    const std::lock_guard guard(ending_lock_);
    ends_ = true;
  }
  ending_.notify_all();
  if (keeper_.joinable()) keeper_.join();
  device_link::patience last = farewell();
  last.given_up = nullptr;  // that was about the keeper
  for (const copy& one : copies_) {
    const wire::device_request destruct{.op = device_op::destruct, .device = device_number, .call = ++calls_};
    static_cast<void>(one.link->ask(destruct, last));
  }
  for (const copy& one : abandoned_) static_cast<void>(one.link->leave(last));
}

void device_group::look_after() {
  const std::lock_guard guard(lock_);
  look_after_copies();
}

// A call may take long, and holds the lock; but then its servers hear of us anyway.
void device_group::keep() {
  while (waits_for_next_round()) {
    const std::unique_lock guard(lock_, std::try_to_lock);
    if (!guard.owns_lock()) continue;
    is_keeping_ = true;
    look_after_copies();
    is_keeping_ = false;
  }
}

// False: the device ends.
bool device_group::waits_for_next_round() {
  std::unique_lock ending(ending_lock_);
  return !ending_.wait_for(ending, keeper_pause, [this] { return ends_.load(); });
}

// The last copy is never given up here: its owner is to hear of it. Neither is one that is silent as all others are:
// then it is our network that is away, and nobody knows which of them will come back. So the patience with a silent one
// begins when another is heard, and ends only if that one has the device still: its server may answer without it.
void device_group::look_after_copies() {
  looked_at_ns_ = now();
  bool is_any_alive = false;
  for (std::size_t i = copies_.size(); i-- > 0 && !ends_;) {
    copy& one = copies_[i];
    const device_link::health found = one.link->keep_alive();
    is_any_alive |= found == device_link::health::alive;
    one.is_in_doubt = found != device_link::health::alive;
    if (found != device_link::health::silent) one.silent_since_ns = 0;
    if (found == device_link::health::silent && one.silent_since_ns == 0) one.silent_since_ns = now();
    if (found == device_link::health::forgotten && copies_.size() > 1) drop(i);
  }
  if (ends_) return;
  if (is_any_alive) {
    give_up_silent();
    static_cast<void>(settle());
  } else {
    for (copy& one : copies_) one.silent_since_ns = 0;
  }
  end_abandoned();
  mend();
}

void device_group::give_up_silent() {
  const auto is_overdue = [this](const copy& one) {
    return one.silent_since_ns != 0 && now() - one.silent_since_ns > tier_.patience_ns;
  };
  if (std::ranges::none_of(copies_, is_overdue)) return;
  if (ask_witness(question(), device_error(reason::lost, "")).how != told::fate::answered) return;
  for (std::size_t i = copies_.size(); i-- > 0;) {
    if (is_overdue(copies_[i])) drop(i);
  }
}

std::size_t device_group::copies() const {
  const std::lock_guard guard(lock_);
  return copies_.size();
}

device_group::told device_group::tell(device_link& link, const wire::device_request& asked,
                                      const device_link::patience& how) const {
  using kind = link_answer::kind;
  link_answer got = link.ask(asked, how);
  switch (got.how) {
    case kind::unreachable: return {told::fate::silent, {}, {}, device_error(reason::unreachable, got.why)};
    case kind::impossible: return {told::fate::silent, {}, {}, device_error(reason::unreachable, got.why)};
    case kind::forgotten: return {told::fate::gone, {}, {}, device_error(reason::lost, got.why)};
    case kind::answered: break;
  }
  const std::optional<wire::device_reply> said = wire::decode_device_reply(got.bytes);
  if (!said) {
    return {told::fate::silent, {}, {}, device_error(reason::unreachable, link.peer() + " broke the protocol")};
  }
  const std::string_view text(reinterpret_cast<const char*>(said->bytes.data()), said->bytes.size());
  told::fate fate = told::fate::answered;
  if (said->outcome == device_outcome::timed_out || said->outcome == device_outcome::crashed) fate = told::fate::died;
  if (said->outcome == device_outcome::lost || said->outcome == device_outcome::no_device) fate = told::fate::gone;
  return {fate,
          said->outcome,
          {said->bytes.begin(), said->bytes.end()},
          said->outcome == device_outcome::ok ? device_error(reason::refused, "")
                                              : failure_of(said->outcome, link.peer(), plugin_, text)};
}

std::vector<std::byte> device_group::call(wire::device_request asked) {
  if (asked.bytes.size() > device::most_bytes) throw device_error(reason::refused, "too many bytes for one call");
  const std::lock_guard guard(lock_);
  if (copies_.empty()) throw device_error(reason::lost, "all copies of the device are lost");
  // The keeper may never find the lock free between calls.
  if (tier_.has_servers && now() - looked_at_ns_ > tier_.times.longest_unlooked_ns) look_after_copies();
  if (const std::optional<device_error> failure = settle()) throw *failure;
  if (copies_.empty()) throw device_error(reason::lost, "all copies of the device are lost");
  mend();
  asked.device = device_number;
  asked.call = ++calls_;
  asked.deadline_ms = deadline_ms();
  return wire::changes_device(asked.op) ? change_all(asked) : ask_one(asked);
}

// A server permits less.
std::uint32_t device_group::deadline_ms() const {
  return static_cast<std::uint32_t>(deadline_ns_ / device_times::ms);
}

// The keeper comes again in a moment, and nobody is to wait long for it.
device_link::patience device_group::usual() const {
  return {.reach_ns = tier_.patience_ns,
          .answer_ns = std::max(tier_.patience_ns, deadline_ns_ + tier_.times.slack_ns),
          .again = !is_keeping_,
          .given_up = given_up()};
}

device_link::patience device_group::little() const {
  return {.reach_ns = tier_.times.mending_reach_ns,
          .answer_ns = deadline_ns_ + tier_.times.slack_ns,
          .again = false,
          .given_up = given_up()};
}

device_link::patience device_group::for_copying() const {
  return {.reach_ns = tier_.times.mending_reach_ns,
          .answer_ns = tier_.times.longest_call_ns + tier_.times.slack_ns,
          .again = false,
          .given_up = given_up()};
}

// To be reached again, too: a link may be broken, and the keeper breaks off what it waits for.
device_link::patience device_group::farewell() const {
  const std::uint64_t reach_ns = tier_.times.farewell_ns / 2;
  return {
      .reach_ns = reach_ns, .answer_ns = tier_.times.farewell_ns - reach_ns, .again = false, .given_up = given_up()};
}

// As long as a construction would take to reach the server: one that cannot be told could not be used either.
device_link::patience device_group::leaving() const {
  return {.reach_ns = tier_.times.mending_reach_ns,
          .answer_ns = tier_.times.mending_reach_ns,
          .again = false,
          .given_up = given_up()};
}

void device_group::abandon(std::unique_ptr<device_link> link, std::size_t server) {
  if (!link->leave(farewell())) abandoned_.push_back({.link = std::move(link), .server = server});
}

// A server that is away for good costs a 128th of the time at most, until the lease is over.
void device_group::end_abandoned() {
  if (abandoned_.empty() || now() < leave_at_ns_) return;
  const std::uint64_t began_ns = now();
  std::erase_if(abandoned_, [this](const copy& one) { return !ends_ && one.link->leave(leaving()); });
  leave_at_ns_ = now() + std::max(tier_.times.mending_pause_ns, 127 * (now() - began_ns));
}

bool device_group::end_abandoned_on(std::size_t server) {
  const auto is_there = [&](const copy& one) { return one.server == server; };
  std::erase_if(abandoned_, [&](const copy& one) { return is_there(one) && one.link->leave(leaving()); });
  return std::ranges::none_of(abandoned_, is_there);
}

void device_group::drop(std::size_t which) {
  copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(which));
  mend_at_ns_ = 0;
}

// Copies that are silent are given up only for one that answers: they may come back.
std::vector<std::byte> device_group::ask_one(const wire::device_request& asked) {
  std::size_t silent = 0;  // the first ones
  for (;;) {
    told got = tell(*copies_[silent].link, asked, usual());
    copies_[silent].is_in_doubt = got.how == told::fate::silent;
    if (got.how == told::fate::silent) {
      if (++silent == copies_.size()) throw got.failure;
      continue;
    }
    if (got.how == told::fate::answered) {
      for (; silent > 0; --silent) drop(0);
      if (got.outcome != device_outcome::ok) throw got.failure;
      return std::move(got.bytes);
    }
    drop(silent);
    if (got.how == told::fate::died) mend();
    if (got.how == told::fate::died || copies_.empty()) throw got.failure;
    if (silent == copies_.size()) throw device_error(reason::unreachable, got.failure.what());
  }
}

std::vector<std::byte> device_group::change_all(const wire::device_request& asked) {
  told got = tell_all(asked);
  if (got.how == told::fate::silent) {
    unsettled_ = asked;
    unsettled_bytes_.assign(asked.bytes.begin(), asked.bytes.end());
    unsettled_->bytes = unsettled_bytes_;
    throw got.failure;
  }
  mend();
  if (got.how != told::fate::answered || got.outcome != device_outcome::ok) throw got.failure;
  return std::move(got.bytes);
}

// One after the other: a call that ends its device is not tried on the other copies, so that these live on.
device_group::told device_group::tell_all(const wire::device_request& asked) {
  using fate = told::fate;
  told reached{fate::gone, {}, {}, device_error(reason::lost, "all copies of the device are lost")};
  for (copy& one : copies_) one.is_in_doubt = false;
  for (std::size_t i = 0; i < copies_.size();) {
    told got = tell(*copies_[i].link, asked, usual());
    if (got.how == fate::silent) {
      copies_[i++].is_in_doubt = true;
      if (reached.how == fate::gone) reached = std::move(got);
    } else if (got.how == fate::answered) {
      const bool is_first = reached.how != fate::answered;
      // Not the texts of refusals, which servers of other versions cut in another way.
      const bool is_equal = is_first || (got.outcome == reached.outcome &&
                                         (got.outcome != device_outcome::ok || got.bytes == reached.bytes));
      if (is_first) reached = std::move(got);
      if (is_equal) {
        ++i;
      } else {
        drop(i);  // it is no copy any more
      }
    } else {
      drop(i);
      if (reached.how == fate::gone) reached.failure = got.failure;
      if (got.how == fate::died && reached.how != fate::answered) {
        reached = std::move(got);
        break;
      }
    }
  }
  return give_up_doubtful(asked, std::move(reached));
}

// Nobody knows what a silent copy holds. But one that has answered may have ended since, and the silent ones be only
// out of our reach: it is asked once more, which is answered from memory, before they are given up for it. Where one
// has died of the call, another that lives has not been told of it, and is not to be.
device_group::told device_group::give_up_doubtful(const wire::device_request& asked, told reached) {
  using fate = told::fate;
  const auto is_in_doubt = [](const copy& one) { return one.is_in_doubt; };
  const bool is_taken = reached.how == fate::answered;
  if (std::ranges::none_of(copies_, is_in_doubt) || !(is_taken || reached.how == fate::died)) return reached;
  // The keeper has asked once only, and comes again: its patience with the silent ones ends in give_up_silent().
  if (is_keeping_) return {fate::silent, {}, {}, device_error(reason::unreachable, "a copy of the device is silent")};
  told witness = ask_witness(is_taken ? asked : question(), reached.failure);
  if (witness.how != fate::answered) {
    return {fate::silent, {}, {}, device_error(reason::unreachable, witness.failure.what())};
  }
  for (std::size_t i = copies_.size(); i-- > 0;) {
    if (copies_[i].is_in_doubt) drop(i);
  }
  return reached;
}

device_group::told device_group::ask_witness(const wire::device_request& asked, device_error why) {
  using fate = told::fate;
  told last{fate::gone, {}, {}, std::move(why)};
  for (;;) {
    copy* const witness = first_heard();
    if (witness == nullptr) return last;
    last = tell(*witness->link, asked, usual());
    if (last.how == fate::answered || last.how == fate::silent) return last;
    drop(static_cast<std::size_t>(witness - copies_.data()));
  }
}

// Whatever the device answers, it lives.
wire::device_request device_group::question() {
  return {.op = device_op::read, .device = device_number, .call = ++calls_, .deadline_ms = deadline_ms()};
}

// Copies that have taken it already only repeat their reply. Its caller has been told that it may take effect, so what
// comes of it does not matter.
std::optional<device_error> device_group::settle() {
  if (!unsettled_) return std::nullopt;
  const told got = tell_all(*unsettled_);
  if (got.how == told::fate::silent) return got.failure;
  unsettled_.reset();
  return std::nullopt;
}

bool device_group::is_used(std::size_t server, const device_link* link) const {
  return std::ranges::any_of(copies_, [&](const copy& one) {
    const bool is_same =
        link != nullptr && link->identity() != wire::server_id{} && link->identity() == one.link->identity();
    return one.server == server || is_same;
  });
}

std::unique_ptr<device_link> device_group::construct_on(std::size_t server, device_link::patience how) {
  if (is_used(server, nullptr)) return nullptr;
  result<std::unique_ptr<device_link>> link = tier_.servers[server]();
  if (!link) {
    failures_.emplace_back(reason::unreachable, link.error().message);
    return nullptr;
  }
  const std::uint64_t start_ns = std::max(deadline_ns_, tier_.times.least_start_ns);
  how.answer_ns = std::max(how.answer_ns, start_ns + tier_.times.slack_ns);
  const wire::device_request construct{.op = device_op::construct,
                                       .device = device_number,
                                       .call = ++calls_,
                                       .room_bytes = room_bytes_,
                                       .deadline_ms = static_cast<std::uint32_t>(start_ns / device_times::ms),
                                       .bytes = construction_};
  const told got = tell(*link.value(), construct, how);
  if (got.how != told::fate::answered || got.outcome != device_outcome::ok) {
    failures_.push_back(got.failure);
    // It may have been constructed all the same.
    if (got.how == told::fate::silent) abandon(std::move(link).value(), server);
    return nullptr;
  }
  if (is_used(server, link.value().get())) {
    failures_.emplace_back(reason::unreachable, link.value()->peer() + " is a server that has a copy already");
    return nullptr;
  }
  return std::move(link).value();
}

void device_group::mend() {
  if (copies_.empty() || unsettled_ || copies_.size() >= std::min(tier_.copies, tier_.servers.size())) return;
  if (now() < mend_at_ns_ || first_heard() == nullptr) return;
  failures_.clear();
  const std::uint64_t began_ns = now();
  for (std::size_t server = 0; server < tier_.servers.size() && copies_.size() < tier_.copies; ++server) {
    copy* const from = first_heard();
    if (from == nullptr || ends_) break;
    // Half a copy takes room that a new one may need.
    std::unique_ptr<device_link> link = end_abandoned_on(server) ? construct_on(server, little()) : nullptr;
    if (!link) continue;
    if (copy_contents(*from, *link)) {
      copies_.push_back({.link = std::move(link), .server = server});
    } else {
      abandon(std::move(link), server);
    }
  }
  // Servers that cannot be reached are tried in a fifth of the time at most.
  mend_at_ns_ = now() + std::max(tier_.times.mending_pause_ns, 4 * (now() - began_ns));
}

device_group::copy* device_group::first_heard() {
  const auto found = std::ranges::find_if_not(copies_, [](const copy& one) { return one.is_in_doubt; });
  return found != copies_.end() ? &*found : nullptr;
}

// As long as the servers permit: a device that took longer than a call may would be ended, and it may be the last one.
bool device_group::copy_contents(copy& from, device_link& into) {
  std::uint64_t position = 0;
  while (!ends_) {
    const wire::device_request save{
        .op = device_op::save, .device = device_number, .call = ++calls_, .object = position, .deadline_ms = 0};
    const told part = tell(*from.link, save, for_copying());
    from.is_in_doubt = part.how == told::fate::silent;
    if (part.how != told::fate::answered || part.outcome != device_outcome::ok) return false;
    if (part.bytes.size() < sizeof(std::uint64_t)) return false;
    const auto all = wire::load<std::uint64_t>(part.bytes.data());
    const std::span<const std::byte> bytes = std::span(part.bytes).subspan(sizeof(std::uint64_t));
    position += bytes.size();
    if (position < all && bytes.empty()) return false;
    const wire::device_request load{.op = device_op::load,
                                    .code = position >= all ? 1u : 0u,
                                    .device = device_number,
                                    .call = ++calls_,
                                    .deadline_ms = 0,
                                    .bytes = bytes};
    const told loaded = tell(into, load, for_copying());
    if (loaded.how != told::fate::answered || loaded.outcome != device_outcome::ok) return false;
    if (position >= all) return true;
  }
  return false;
}

}  // namespace far::device_parts
