#include "backend/replicated/layer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/units.h"

namespace far::backend {
namespace {

constexpr std::size_t shared_bytes = maximum_members * sizeof(std::atomic<std::uint32_t>);
constexpr std::uint64_t report_interval_ns = 1'000'000'000;
constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

// The least patience, if no server has granted a longer lease.
constexpr std::uint64_t least_patience_ns = 30'000'000'000;

// Zeroed memory that a child of fork keeps in common with its parent.
std::byte* map_shared() {
  void* const mapped = mmap(nullptr, shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  FAR_CHECK(mapped != MAP_FAILED, "no memory to share with children");
  return static_cast<std::byte*>(mapped);
}

}  // namespace

// Zero bytes are groups that are not placed and counters of nothing.
layer::layer(std::vector<std::unique_ptr<member>> members, copy_counts counts, std::uint64_t most_groups,
             waiting_times waits, const platform::clock& clock)
    : copies(counts.copies),
      least_copies(counts.least),
      parity(std::move(counts.parity)),
      group_bytes(counts.data * group_slots * page_bytes),
      lost_after_ns(waits.lost_after_ns),
      time(clock),
      most_groups_(most_groups),
      groups_(reinterpret_cast<group*>(platform::map_local(most_groups * sizeof(group)))),
      removals_(reinterpret_cast<std::atomic<std::uint32_t>*>(map_shared())),
      patience_ns_(waits.patience_ns) {
  FAR_CHECK(members.size() <= maximum_members, "more members than a layer can hold");
  std::size_t count = 0;
  for (std::unique_ptr<member>& member : members) {
    view_[count] = member.get();
    members_[count++] = std::move(member);
  }
  count_.store(count);
}

layer::~layer() {
  platform::unmap_local(reinterpret_cast<std::byte*>(groups_), most_groups_ * sizeof(group));
  munmap(removals_, shared_bytes);
}

result<void> layer::join(queue_holder& joining) {
  const lock_guard guard(members_lock_);
  for (std::size_t i = 0; i < member_count(); ++i) {
    result<std::unique_ptr<channel>> opened = joining.open_queue(at(i).store());
    if (!opened) return opened.error();
    joining.take_queue(std::move(opened).value());
  }
  joining.has_joined();
  holders_.push_back(&joining);
  return {};
}

void layer::leave(queue_holder& leaving) {
  const lock_guard guard(members_lock_);
  std::erase(holders_, &leaving);
}

const member* layer::twin_of(const backend& store, std::size_t end) const {
  const std::uint64_t identity = store.server_identity();
  for (std::size_t i = 0; i < end && identity != 0; ++i) {
    if (at(i).is_gone() || &at(i).store() == &store) continue;
    if (at(i).store().server_identity() == identity) return &at(i);
  }
  return nullptr;
}

bool layer::fail_together(std::size_t one, std::size_t other) const {
  return at(one).fails_with(at(other));
}

std::size_t layer::lending_servers(member_mask without) const {
  std::size_t count = 0;
  const auto lends = [&](std::size_t index) { return (without >> index & 1) == 0 && at(index).takes_copies(); };
  for (std::size_t i = 0; i < member_count(); ++i) {
    bool is_first = lends(i);
    for (std::size_t other = 0; other < i && is_first; ++other) {
      is_first = !lends(other) || !fail_together(i, other);
    }
    count += is_first;
  }
  return count;
}

result<void> layer::check_new(const member& added) const {
  if (const member* const twin = twin_of(added.store(), member_count())) {
    return error{"server " + added.name() + " is " + twin->name() +
                     " under another name, which already belongs to the " + "far tier",
                 EEXIST};
  }
  for (const member* member : view()) {
    if (member->name() != added.name() || member->is_gone()) continue;
    return error{"server " + added.name() + " already belongs to the far tier (" + name_of(member->state()) + ")",
                 EEXIST};
  }
  if (member_count() < maximum_members) return {};
  return error{"the far tier has " + std::to_string(maximum_members) +
                   " servers already, and cannot take another; give those more memory",
               ENOSPC};
}

// The member becomes visible only when every holder has a queue to it.
result<void> layer::add(std::unique_ptr<member> added) {
  const lock_guard guard(members_lock_);
  if (result<void> fits = check_new(*added); !fits) return fits;
  std::vector<std::unique_ptr<channel>> queues;
  for (queue_holder* holder : holders_) {
    result<std::unique_ptr<channel>> opened = holder->open_queue(added->store());
    if (!opened) return opened.error();
    queues.push_back(std::move(opened).value());
  }
  const std::size_t index = member_count();
  view_[index] = added.get();
  members_[index] = std::move(added);
  for (std::size_t i = 0; i < queues.size(); ++i) holders_[i]->take_queue(std::move(queues[i]));
  count_.store(index + 1, std::memory_order_release);
  want_spreading();
  return {};
}

std::uint64_t layer::fitting_groups(member_mask without) const {
  std::vector<std::uint64_t, platform::local_allocator<std::uint64_t>> room;
  std::vector<std::size_t, platform::local_allocator<std::size_t>> first_of_server;
  for (std::size_t i = 0; i < member_count(); ++i) {
    const member& lender = at(i);
    if ((without >> i & 1) != 0 || lender.state() == member_state::lost || lender.is_leaving()) continue;
    const std::uint64_t total = lender.store().report().total_slots;
    const std::uint64_t groups = total == unlimited ? unlimited : total / group_slots;
    // Two members on one server hold one copy of a group at most.
    const auto fails_together = [&](std::size_t other) { return fail_together(other, i); };
    const auto found = std::ranges::find_if(first_of_server, fails_together);
    if (found != first_of_server.end()) {
      std::uint64_t& shared = room[static_cast<std::size_t>(found - first_of_server.begin())];
      shared = groups > unlimited - shared ? unlimited : shared + groups;
      continue;
    }
    room.push_back(groups);
    first_of_server.push_back(i);
  }
  return room.empty() ? 0 : placeable_groups(room, std::min(copies, room.size()));
}

result<void> layer::check_removal(std::string_view name, member_mask removed, std::uint64_t used_groups) const {
  const std::string begin = "server " + std::string(name) + " cannot be removed: ";
  const std::size_t staying = lending_servers(removed);  // a lost one could not take any copies
  if (staying < copies) {
    const std::string count = std::to_string(copies);
    const std::string need = !parity.empty() ? parity + " needs " + count + " servers"
                             : copies == 1   ? "1 copy needs a server"
                                             : count + " copies need as many servers";
    return error{begin + need + ", and " + std::to_string(staying) +
                     " would be left; add one first (farheap add-server PID HOST:PORT)",
                 EBUSY};
  }
  const std::uint64_t room = fitting_groups(removed);
  if (room >= used_groups) return {};
  return error{begin + "the others have room for " + format_size(room * group_bytes) + ", and " +
                   format_size(used_groups * group_bytes) +
                   " are stored; add a server first (farheap add-server PID HOST:PORT), or give those more memory",
               ENOSPC};
}

result<std::uint64_t> layer::remove(std::string_view name, removal step, std::uint64_t used_groups) {
  const lock_guard guard(members_lock_);
  std::string known;
  member_mask named = 0;
  bool is_retired = false;
  for (std::size_t i = member_count(); i-- > 0;) {
    const bool has_name = step == removal::begin && (at(i).name() == name || at(i).store().is_at(name));
    const bool is_named = has_name || (at(i).is_removed() && at(i).removed_as() == name);
    if (is_named && !at(i).is_retired()) named |= member_mask{1} << i;
    is_retired |= is_named && at(i).is_retired();
    if (!at(i).is_gone()) known += (known.empty() ? "" : ", ") + at(i).name();
  }
  if (named == 0 && is_retired) return std::uint64_t{0};
  if (named == 0 && step == removal::go_on)
    return error{"server " + std::string(name) + " is not being removed", ENOENT};
  if (named == 0) {
    return error{"server " + std::string(name) + " does not belong to the far tier, which has " + known, ENOENT};
  }
  const auto is_in = [&](std::size_t index) { return (named >> index & 1) != 0; };
  bool is_news = false;
  for (std::size_t i = 0; i < member_count(); ++i) is_news |= is_in(i) && !at(i).is_removed();
  if (is_news) {
    if (result<void> fits = check_removal(name, named, used_groups); !fits) return fits.error();
  }
  std::uint64_t left = 0;
  for (std::size_t i = 0; i < member_count(); ++i) {
    if (!is_in(i)) continue;
    if (!at(i).is_removed()) at(i).begin_leaving(name);
    left += at(i).extents.load();
  }
  if (is_news) call_for_attention();
  // Not 0 before their connections are closed: whoever reads 0 may end the servers at once.
  return std::max<std::uint64_t>(left, 1);
}

void layer::note_error(std::size_t index, int error_code) {
  const member_state before = at(index).state();
  if (!at(index).note_error(error_code)) return;
  call_for_attention();
  const member_state after = at(index).state();
  if (detached_ || after == before) return;
  if (after == member_state::emptied) {
    // The member held nothing, so nothing is lost.
    if (at(index).extents.load() == 0) return;
    log_line(log_level::warning, "far tier %s has lost its contents (it was restarted, or its lease expired)",
             at(index).name().c_str());
  } else {
    log_line(log_level::warning, "far tier %s does not answer (%s); continuing without it", at(index).name().c_str(),
             std::strerror(error_code));
  }
}

bool layer::may_report(std::atomic<std::uint64_t>* last_ns) const {
  std::uint64_t before_ns = last_ns->load();
  const std::uint64_t now_ns = time.now_ns();
  if (before_ns != 0 && now_ns - before_ns < report_interval_ns) return false;
  return last_ns->compare_exchange_strong(before_ns, now_ns);
}

std::uint64_t layer::damaged_slots() const {
  std::uint64_t sum = 0;
  for (const member* one : view()) sum += one->damaged_slots.load(std::memory_order_relaxed);
  return sum;
}

void layer::note_damage(damage kind, std::size_t bad, std::size_t right) {
  at(bad).damaged_slots.fetch_add(1, std::memory_order_relaxed);
  call_for_attention();
  if (!may_report(&reported_damage_at_ns_)) return;
  const std::uint64_t count = damaged_slots();
  if (kind == damage::unreadable) {
    log_line(log_level::warning,
             "far tier %s did not return pages that it holds; they were read from %s, and are written again (damaged "
             "page %llu); see that server's log, test its disk, and replace it if this goes on",
             at(bad).name().c_str(), at(right).name().c_str(), static_cast<unsigned long long>(count));
    return;
  }
  log_line(log_level::warning,
           "far tier %s returned other bytes than were written to it; they were read from %s, and are written again "
           "(page %llu of this kind); test the memory of that server (dmesg, memtest), and replace it if this goes on",
           at(bad).name().c_str(), at(right).name().c_str(), static_cast<unsigned long long>(count));
}

void layer::note_refusal(std::size_t index) {
  if (!may_report(&reported_refusal_at_ns_)) return;
  log_line(log_level::warning,
           "far tier %s does not return or take pages that are being copied; others are used where there are any; see "
           "that server's log, test its disk, and replace it if this goes on",
           at(index).name().c_str());
}

void layer::report_unreadable(std::uint64_t number) {
  if (!may_report_unreadable()) return;
  std::array<char, 512> holders{};
  name_holders(number, holders);
  log_line(log_level::error, "pages in the far tier cannot be read; they were on %s",
           holders[0] != '\0' ? holders.data() : "a server that is gone");
}

void layer::name_holders(std::uint64_t number, std::span<char> into) {
  std::size_t length = 0;
  group& named = group_at(number);
  const lock_guard guard(named.lock);
  for (const copy& held : named.copies) {
    if (!held.present || length >= into.size()) continue;
    const member& holder = at(held.member);
    const int added = std::snprintf(into.data() + length, into.size() - length, "%s%s (%s)", length > 0 ? ", " : "",
                                    holder.name().c_str(), name_of(holder.state()));
    if (added > 0) length += static_cast<std::size_t>(added);
  }
}

void layer::report_waiting(std::uint64_t number) {
  if (!may_report_waiting()) return;
  std::array<char, 512> holders{};
  name_holders(number, holders);
  log_line(
      log_level::warning,
      "the program waits for pages on %s; reads are tried again for up to %s (option patience=), and go on as soon "
      "as a server answers",
      holders.data(), format_duration(read_patience_ns()).c_str());
}

void layer::report_shortage() {
  if (least_copies == 1) return;
  const std::size_t lending = lending_servers();
  const bool is_short = lending < least_copies;
  if (is_short == std::exchange(shortage_reported_, is_short)) return;
  if (is_short) {
    log_line(
        log_level::warning,
        "far tier: %zu of its servers take pages (others do not answer, or are about to stop), and min-copies=%zu: "
        "pages stay in local memory, which may exceed the budget, until there are more",
        lending, least_copies);
  } else {
    log_line(log_level::info, "far tier: %zu servers take pages again, enough for min-copies=%zu", lending,
             least_copies);
  }
}

std::uint64_t layer::read_patience_ns() const {
  if (patience_ns_ != 0) return patience_ns_;
  std::uint64_t longest_ns = least_patience_ns;
  for (const member* member : view()) {
    if (!member->is_gone()) longest_ns = std::max(longest_ns, member->store().lease_ns());
  }
  return longest_ns;
}

// In the child of a fork nobody notices that a member is back.
std::uint64_t layer::away_since_ns(slot_id slot) const {
  if (detached_) return 0;
  group& holding = group_at(slot / group_slots);
  const lock_guard guard(holding.lock);
  return holding.away_since_ns(view(), slot % group_slots);
}

std::uint64_t layer::away_since_ns_without(std::size_t spared) const {
  if (detached_) return 0;
  std::size_t away = 0;
  std::uint64_t last_ns = 0;
  for (const member* held : view()) {
    if (held->is_gone() || held->serves() || held->extents.load() == 0) continue;
    const std::uint64_t since_ns = held->away_since_ns();
    if (since_ns == 0) return 0;
    ++away;
    last_ns = std::max(last_ns, since_ns);
  }
  return away > spared ? last_ns : 0;
}

void layer::detach() {
  detached_ = true;
  members_lock_.open_in_child();
  members_lock_.assert_held();  // the child has one thread
  holders_.clear();
  for (std::size_t i = 0; i < member_count(); ++i) {
    removals_at_fork_[i] = removals_[i].load();
    members_[i]->store().after_fork_in_child();
  }
  // A thread that held a group's lock is not in this process. It was changing one word or one set of a copy, and a set
  // that is half changed names too many missing slots or those of a write that has not been reported.
  for (std::uint64_t number = 0; number < groups_end.load(); ++number) group_at(number).lock.open_in_child();
}

}  // namespace far::backend
