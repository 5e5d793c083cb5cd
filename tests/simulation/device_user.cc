#include "device_user.h"

#include <algorithm>
#include <utility>

#include "trace.h"

namespace far::simulation {

using wire::device_op;
using wire::device_outcome;

device_counts& device_counts::operator+=(const device_counts& other) {
  calls += other.calls;
  constructions += other.constructions;
  doubtful += other.doubtful;
  happened += other.happened;
  crashed += other.crashed;
  timed_out += other.timed_out;
  lost += other.lost;
  return *this;
}

device_user::device_user(scheduler& threads, random_source& random, const simulated_clock& time,
                         device_user_options chosen)
    : threads_(threads), random_(random), time_(time), chosen_(std::move(chosen)) {}

void device_user::run() {
  while (!is_to_end_) {
    if (device_ == nullptr) construct();
    rest(random_.between(1, random_.chance(100) ? 10'000 : 400) * chosen_.slice_ns);
    if (device_ != nullptr) do_something();
  }
  if (device_ != nullptr) verify_all();
  device_ = nullptr;
  has_ended_ = true;
}

// In place of the device's keeper.
void device_user::rest(std::uint64_t ns) {
  const std::uint64_t until_ns = time_.now_ns() + ns;
  for (std::uint64_t at_ns = time_.now_ns(); at_ns < until_ns; at_ns = time_.now_ns()) {
    threads_.sleep(std::min(until_ns - at_ns, chosen_.tier.times.ping_after_ns));
    const bool is_time = at_ns + chosen_.tier.times.ping_after_ns < until_ns || random_.chance(200);
    if (device_ != nullptr && is_time) device_->look_after();
  }
}

void device_user::construct() {
  const auto number = std::as_bytes(std::span(&counts_.constructions, 1));
  try {
    device_ = std::make_unique<device_parts::device_group>(
        chosen_.tier, ledger_plugin().name,
        device_options{.parameters = number,
                       .room_bytes = std::size_t{1} << 20,
                       .deadline = std::chrono::milliseconds(chosen_.deadline_ms)});
    ++counts_.constructions;
    possible_.assign(1, {});
    changes_ = 0;
    is_promised_ = false;
    whole_since_ns_ = 0;
  } catch (const device_error& failure) {
    trace("%8llu no device: %s", static_cast<unsigned long long>(threads_.slices()), failure.what());
    // Some servers are always well, and let us in.
    const reason why = failure.why();
    if (why != reason::unreachable && why != reason::no_room && why != reason::crashed && why != reason::lost) {
      fail("a device cannot be constructed: %s", failure.what());
    }
  }
}

wire::device_request device_user::draw(std::vector<std::byte>& bytes) {
  const std::uint64_t object = random_.below(ledger::most_objects);
  const std::uint64_t drawn = random_.below(100);
  const auto fill = [&](std::size_t size) {
    bytes.resize(size);
    for (std::byte& one : bytes) one = static_cast<std::byte>(random_.next() & 0xff);
  };
  const auto draw_change = [&](device_op op) {
    return wire::device_request{.op = op, .object = ledger::name(object, ++changes_), .bytes = bytes};
  };
  if (drawn < 30) {
    // Now and then, one whose copy takes several messages.
    fill(random_.chance(10) ? random_.between(100'000, 400'000) : random_.below(300));
    return draw_change(device_op::write);
  }
  if (drawn < 40) return draw_change(device_op::erase);
  if (drawn < 60) {
    for (const std::uint64_t number : {++changes_, random_.next()}) {
      const auto part = std::as_bytes(std::span(&number, 1));
      bytes.insert(bytes.end(), part.begin(), part.end());
    }
    return {.op = device_op::compute, .code = ledger_add, .bytes = bytes};
  }
  if (drawn < 85) return {.op = device_op::read, .object = object};
  if (drawn < 95) return {.op = device_op::ask, .code = ledger_summary};
  const device_op how = random_.chance(500) ? device_op::compute : device_op::ask;
  if (drawn < 98 || chosen_.is_calm) return {.op = how, .code = ledger_refuse};
  return {.op = how, .code = random_.chance(500) ? ledger_crash : ledger_hang};
}

void device_user::do_something() {
  std::vector<std::byte> bytes;
  // What happened to the last change is found out before the next one.
  const bool is_in_doubt = possible_.size() > 1;
  static_cast<void>(
      call(is_in_doubt ? wire::device_request{.op = device_op::ask, .code = ledger_summary} : draw(bytes)));
}

bool device_user::call(const wire::device_request& asked) {
  ++counts_.calls;
  const bool is_deadly = asked.code == ledger_crash || asked.code == ledger_hang;
  if (is_deadly) {
    whole_since_ns_ = 0;
    is_promised_ = false;
  }
  const std::uint64_t began_ns = time_.now_ns();
  const std::uint64_t kills_before = chosen_.kills();
  try {
    const std::vector<std::byte> got = device_->call(asked);
    compare(asked, {device_outcome::ok, got});
  } catch (const device_error& failure) {
    fail_for(asked, failure);
    if (failure.why() != reason::refused && failure.why() != reason::no_object) return false;
  }
  if (wire::changes_device(asked.op)) note_changed(began_ns, kills_before);
  return true;
}

// Each copy that there still is has taken it.
void device_user::note_changed(std::uint64_t began_ns, std::uint64_t kills_before) {
  if (device_->copies() < chosen_.tier.copies) return;
  whole_since_ns_ = began_ns;
  is_promised_ = chosen_.is_durable;
  kills_when_whole_ = kills_before;
}

// What the device may have held, and still may after this answer.
void device_user::compare(const wire::device_request& asked, const ledger::answer& got) {
  std::vector<ledger> still;
  for (ledger& one : possible_) {
    ledger after = one;
    const ledger::answer wanted = after.apply(asked);
    const bool is_equal =
        wanted.outcome == got.outcome && (got.outcome != device_outcome::ok || wanted.bytes == got.bytes);
    if (is_equal) still.push_back(std::move(after));
  }
  if (still.empty()) {
    fail("a device answers operation %u, code %u with outcome %u and %zu bytes, which it cannot (%zu states)",
         static_cast<unsigned>(asked.op), asked.code, static_cast<unsigned>(got.outcome), got.bytes.size(),
         possible_.size());
  }
  counts_.happened += possible_.size() > 1 && still.size() == 1 && still.front() == possible_.back();
  possible_ = std::move(still);
}

void device_user::fail_for(const wire::device_request& asked, const device_error& failure) {
  trace("%8llu a call of a device fails: %s", static_cast<unsigned long long>(threads_.slices()), failure.what());
  const bool is_deadly = asked.code == ledger_crash || asked.code == ledger_hang;
  const bool were_killed = chosen_.kills() > kills_when_whole_;
  switch (failure.why()) {
    case reason::refused: return compare(asked, {device_outcome::refused, {}});
    case reason::no_object: return compare(asked, {device_outcome::no_object, {}});
    case reason::crashed:
      ++counts_.crashed;
      if (asked.code != ledger_crash && !were_killed) break;
      if (is_promised_ && device_->copies() == 0) break;
      return;
    case reason::timed_out:
      ++counts_.timed_out;
      if (asked.code != ledger_hang) break;
      return;
    case reason::unreachable:
      ++counts_.doubtful;
      if (wire::changes_device(asked.op) && !is_deadly) {
        std::vector<ledger> changed = possible_;
        for (ledger& one : changed) static_cast<void>(one.apply(asked));
        std::erase_if(changed, [&](const ledger& one) { return std::ranges::count(possible_, one) > 0; });
        possible_.insert(possible_.end(), changed.begin(), changed.end());
      }
      return;
    case reason::lost:
      ++counts_.lost;
      if (is_promised_) break;
      device_ = nullptr;
      return;
    case reason::bad_tier:
    case reason::no_plugin:
    case reason::no_room: break;
  }
  fail("a call of a device fails for no reason: %s", failure.what());
}

// In the end all servers are well.
void device_user::verify_all() {
  for (std::uint64_t object = 0; object < ledger::most_objects && device_ != nullptr; ++object) {
    while (device_ != nullptr && !call({.op = device_op::read, .object = object})) {
    }
  }
}

}  // namespace far::simulation
