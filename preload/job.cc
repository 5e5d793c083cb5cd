#include "preload/job.h"

#include <errno.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/units.h"
#include "control/statistics_json.h"
#include "pager/pager.h"
#include "platform/clock.h"
#include "platform/system_memory.h"
#include "preload/job_shares.h"
#include "preload/pressure_budget.h"
#include "preload/process_identity.h"

namespace far::preload {
namespace {

constexpr int joining_deadline_ms = 1000;
constexpr int asking_deadline_ms = 50;
constexpr std::uint64_t period_ns = 150'000'000;  // between two decisions, at least
constexpr std::uint64_t newcomer_ns = 1'000'000'000;
constexpr std::uint64_t longest_look_us = 2'000'000;  // the counts of a longer time say nothing about the present
constexpr double idle_share = 0.02;                   // of one processor

using engine::statistics;

std::uint64_t now_ns() {
  return platform::monotonic_clock().now_ns();
}

// How a member of `statistics` adds up over processes, and over successive programs (exec) of one process.
// most: processes have it in common, so the largest figure of now stands for all.
enum class kind { now, most, peak, sum };
kind kind_of(std::size_t index) {
  static_assert(job_statistics == 34, "a new member of statistics must be given its kind here");
  const auto at = [](std::uint64_t statistics::* member) {
    const statistics none;
    return static_cast<std::size_t>(&(none.*member) - &none.budget_bytes);
  };
  for (const auto member : {&statistics::budget_bytes, &statistics::local_bytes, &statistics::far_bytes,
                            &statistics::far_stored_bytes, &statistics::lacking_copies}) {
    if (index == at(member)) return kind::now;
  }
  for (const auto member : {&statistics::servers, &statistics::away_servers}) {
    if (index == at(member)) return kind::most;
  }
  for (const auto member : {&statistics::peak_local_bytes, &statistics::peak_far_bytes,
                            &statistics::peak_far_stored_bytes, &statistics::over_budget_pages}) {
    if (index == at(member)) return kind::peak;
  }
  return kind::sum;
}

// Adds the counts of one process. A process that has ended holds nothing any more.
void add(statistics& to, const statistics& from, bool running) {
  auto sums = std::bit_cast<std::array<std::uint64_t, job_statistics>>(to);
  const auto more = std::bit_cast<std::array<std::uint64_t, job_statistics>>(from);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    switch (kind_of(i)) {
      case kind::now: sums[i] += running ? more[i] : 0; break;
      case kind::most: sums[i] = std::max(sums[i], running ? more[i] : 0); break;
      case kind::peak: sums[i] = std::max(sums[i], more[i]); break;
      case kind::sum: sums[i] += more[i]; break;
    }
  }
  to = std::bit_cast<statistics>(sums);
}

void add(process_usage& to, const process_usage& from) {
  to.user_ns += from.user_ns;
  to.system_ns += from.system_ns;
  to.peak_rss_bytes = std::max(to.peak_rss_bytes, from.peak_rss_bytes);
}

// What the processes may still fill of their budgets, or of what they are to have next.
std::uint64_t promised_bytes(std::span<const job_share> shares) {
  std::uint64_t sum = 0;
  for (const job_share& one : shares) {
    const std::uint64_t most = std::max(one.granted_bytes, one.limit_bytes);
    sum += most - std::min(most, one.used_bytes);
  }
  return sum;
}

bool is_new(const job_slot& slot, std::uint64_t now) {
  return now - std::min(now, slot.came_ns.load()) < newcomer_ns;
}

// What the process may hold before it learns of its newest share. A newcomer may be about to fill its working minimum.
// Of those that have been there for longer, many never do: a job may have dozens of shells.
std::uint64_t filled_soon(const job_share& one) {
  return one.is_new ? std::max({one.used_bytes, one.limit_bytes, one.granted_bytes})
                    : most_held(one, one.granted_bytes);
}

void set_program(job_slot& slot, const char* name) {
  const std::size_t length = std::min(std::strlen(name), slot.program.size());
  for (std::size_t i = 0; i < slot.program.size(); ++i) slot.program[i].store(i < length ? name[i] : '\0');
}

// With the lock of the job. The slot may be used again; its counts stay in the sums.
void forget(job_region& region, job_slot& slot) {
  statistics sums = region.forgotten_account.statistics();
  process_usage used = region.forgotten_account.usage();
  add(sums, slot.account.statistics(), false);
  add(used, slot.account.usage());
  region.forgotten_account.store(sums, used);
  region.forgotten.fetch_add(1);
  slot.state.store(job_slot_state::free);
  slot.owner.store(0);
}

void end_slot(job_slot& slot, job_slot_state how) {
  slot.ended_ns.store(now_ns());
  slot.state.store(how);
}

result<std::uint64_t> new_owner() {
  std::uint64_t owner = 0;
  if (getrandom(&owner, sizeof owner, 0) != sizeof owner) {
    return error{std::string("no random numbers: ") + std::strerror(errno), errno};
  }
  return owner | 1;
}

error job_is_held() {
  return {"another process of the job holds its lock and does not release it (is it stopped?)", ETIMEDOUT};
}

error job_is_full() {
  return {"the job has " + std::to_string(job_slots) + " processes already", EAGAIN};
}

}  // namespace

statistics difference(const statistics& before, const statistics& after) noexcept {
  const auto then = std::bit_cast<std::array<std::uint64_t, job_statistics>>(before);
  auto left = std::bit_cast<std::array<std::uint64_t, job_statistics>>(after);
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (kind_of(i) == kind::sum) left[i] -= std::min(left[i], then[i]);
    if (kind_of(i) == kind::peak && left[i] <= then[i]) left[i] = 0;
  }
  return std::bit_cast<statistics>(left);
}

bool read_process(const job_region& region, std::size_t index, job_process& into) noexcept {
  const job_slot& slot = region.slots[index];
  const job_slot_state state = slot.state.load(std::memory_order_acquire);
  if (state == job_slot_state::free) return false;
  into.pid = slot.pid.load();
  into.running = state == job_slot_state::running;
  for (std::size_t i = 0; i < slot.program.size(); ++i) into.program[i] = slot.program[i].load();
  into.program[slot.program.size()] = 0;
  const std::uint64_t until_ns = into.running ? now_ns() : slot.ended_ns.load();
  into.started_ns = std::min(until_ns, slot.joined_ns.load());
  into.elapsed_ns = until_ns - into.started_ns;
  into.counted = slot.account.statistics();
  into.used = slot.account.usage();
  if (!into.running) control::forget_what_is_held(into.counted);
  return true;
}

// Reads the accounts while their owners change them. The sums may be off by what is counted meanwhile, which is good
// enough for a report. A shared budget is taken from the job, because the sum of the processes' budgets would differ.
job_totals totals_of(const job_region& region) noexcept {
  job_totals all;
  const std::uint64_t forgotten = region.forgotten.load();
  all.counted = region.forgotten_account.statistics();
  all.used = region.forgotten_account.usage();
  all.processes = all.unlisted = forgotten;
  job_process one;
  for (std::size_t i = 0; i < region.slots.size(); ++i) {
    if (!read_process(region, i, one)) continue;
    ++all.processes;
    all.running += one.running ? 1 : 0;
    add(all.counted, one.counted, one.running);
    add(all.used, one.used);
  }
  if (region.shares.load() != 0) all.counted.budget_bytes = region.budget.load().bytes;
  if (all.processes > 1) {
    const auto raise = [](std::uint64_t& to, std::uint64_t value) { to = std::max(to, value); };
    raise(all.counted.peak_local_bytes, std::max(region.peak_local_bytes.load(), all.counted.local_bytes));
    raise(all.counted.peak_far_bytes, std::max(region.peak_far_bytes.load(), all.counted.far_bytes));
    raise(all.counted.peak_far_stored_bytes,
          std::max(region.peak_far_stored_bytes.load(), all.counted.far_stored_bytes));
  }
  const std::uint64_t now = now_ns();
  all.elapsed_ns = now - std::min(now, region.started_ns.load());
  return all;
}

result<std::unique_ptr<job>> job::join(job_mapping mapping, job_name name) {
  std::unique_ptr<job> joined(new job(std::move(mapping), std::move(name)));
  const result<void> entered = joined->enter();
  if (!entered) return entered.error();
  return joined;
}

result<void> job::enter() {
  const lock_guard held(lock_);
  pid_ = getpid();
  const result<std::uint64_t> owner = new_owner();
  if (!owner) return owner.error();
  owner_ = owner.value();
  if (!mapping_.lock_job(joining_deadline_ms)) return job_is_held();
  const bool taken = take_slot();
  if (taken) decide(true);
  mapping_.unlock(job_mapping::job_lock);
  if (!taken) return job_is_full();
  return {};
}

int job::descriptor() const noexcept {
  const lock_guard held(lock_);
  return mapping_.descriptor();
}

bool job::is_mine() const noexcept {
  return getpid() == pid_;
}

// With the lock of the job. Prefers the slot that the process had before exec, then a free one, then that of the
// process that ended longest ago.
bool job::take_slot() noexcept {
  bury_the_dead();
  const std::uint64_t start_time = start_time_of_this_process();
  const std::uint64_t space = pid_namespace_of_this_process();
  std::size_t best = job_slots;
  for (std::size_t i = 0; i < job_slots; ++i) {
    const job_slot& slot = region().slots[i];
    const job_slot_state state = slot.state.load();
    if (state == job_slot_state::running) continue;
    const bool was_mine = state != job_slot_state::free && start_time != 0 && slot.pid.load() == pid_ &&
                          slot.start_time.load() == start_time && slot.pid_namespace.load() == space;
    if (was_mine) {
      before_ = slot.account.statistics();
      fill_slot(i);
      return true;
    }
    if (best < job_slots && region().slots[best].state.load() == job_slot_state::free) continue;
    if (best == job_slots || state == job_slot_state::free ||
        slot.ended_ns.load() < region().slots[best].ended_ns.load()) {
      best = i;
    }
  }
  if (best == job_slots) return false;
  job_slot& slot = region().slots[best];
  if (slot.state.load() != job_slot_state::free) forget(region(), slot);
  slot.account.store({}, {});
  slot.joined_ns.store(now_ns());
  slot.start_time.store(start_time);
  slot.pid_namespace.store(space);
  fill_slot(best);
  return true;
}

void job::resume_slot(std::size_t index) noexcept {
  slot_ = index;
  if (!mapping_.try_lock(job_mapping::lock_of_slot(index))) {
    log_line(log_level::verbose, "slot %zu of the job cannot be locked", index);
  }
  mine().state.store(job_slot_state::running);
}

void job::fill_slot(std::size_t index) noexcept {
  job_slot& slot = region().slots[index];
  slot_ = index;
  slot.pid.store(pid_);
  slot.owner.store(owner_);
  slot.granted_bytes.store(0);
  slot.came_ns.store(now_ns());
  slot.demand.store(0);
  // Before the rest becomes visible: another process that finds the slot taken but not locked would bury it.
  if (!mapping_.try_lock(job_mapping::lock_of_slot(index))) {
    log_line(log_level::verbose, "slot %zu of the job cannot be locked", index);
  }
  statistics nothing = before_;
  control::forget_what_is_held(nothing);
  slot.account.store(nothing, slot.account.usage());
  slot.seen_need.store(need_of(nothing));
  slot.seen_cpu_ns.store(slot.account.user_ns.load() + slot.account.system_ns.load());
  set_program(slot, program_invocation_short_name);
  slot.state.store(job_slot_state::running, std::memory_order_release);
}

// With the lock of the job. The slot may have been buried meanwhile, and even be another process's.
bool job::take_slot_again() noexcept {
  if (mine().owner.load() != owner_) return take_slot();
  resume_slot(slot_);
  return true;
}

bool job::still_has_slot() const noexcept {
  return mine().owner.load(std::memory_order_relaxed) == owner_ &&
         mine().state.load(std::memory_order_relaxed) == job_slot_state::running;
}

// With the lock of the job.
void job::bury_the_dead() noexcept {
  for (std::size_t i = 0; i < job_slots; ++i) {
    job_slot& slot = region().slots[i];
    if (slot.state.load() != job_slot_state::running || slot.owner.load() == owner_) continue;
    if (!mapping_.is_locked_elsewhere(job_mapping::lock_of_slot(i))) end_slot(slot, job_slot_state::lost);
  }
}

// How much the process needed in the time since the last decision.
void job::observe(job_slot& slot, double seconds) noexcept {
  demand_meter meter{slot.seen_need.load(), std::bit_cast<double>(slot.demand.load())};
  meter.measure(need_of(slot.account.statistics()), seconds);
  slot.seen_need.store(meter.seen);
  slot.demand.store(std::bit_cast<std::uint64_t>(meter.rate));
}

// With the lock of the job, by the control thread, which may allocate and wait. Where /proc cannot be read, another
// process may be able to.
void job::follow_machine(std::uint64_t now) noexcept {
  const budget_terms before = region().budget.load();
  if (!before.automatic || now - std::min(now, region().decided_ns.load()) < period_ns) return;
  const result<platform::system_memory> read = platform::read_system_memory();
  if (!read) return;
  const platform::system_memory& memory = read.value();
  const std::uint64_t elapsed_us = (now - looked_ns_) / 1000;
  // It may have moved to another cgroup, whose counters start anew.
  const std::uint64_t stalled_us = memory.stalled_us - std::min(memory.stalled_us, seen_stalled_us_);
  const bool looked_lately = looked_ns_ != 0 && elapsed_us < longest_look_us;
  const memory_outlook outlook{memory.usable_bytes(), memory.available_bytes, totals_of(region()).counted.local_bytes,
                               looked_lately ? static_cast<double>(stalled_us) / static_cast<double>(elapsed_us) : 0,
                               looked_lately && memory.failures > seen_failures_};
  looked_ns_ = now;
  seen_stalled_us_ = memory.stalled_us;
  seen_failures_ = memory.failures;
  const std::uint64_t next = next_budget(before.bytes, outlook);
  if (!region().budget.follow(before, next)) return;
  if (next < before.bytes - before.bytes / 64) {
    log_line(log_level::verbose, "memory is short (%s available): the budget is %s now",
             format_size(outlook.available_bytes).c_str(), format_size(next).c_str());
  }
}

// With the lock of the job. `at_once`: a process has come or left, or the budget was changed.
void job::decide(bool at_once) noexcept {
  const std::uint64_t now = now_ns();
  const std::uint64_t since_ns = now - std::min(now, region().decided_ns.load());
  if (!at_once && since_ns < period_ns) return;
  bury_the_dead();
  const bool observes = since_ns >= period_ns;
  const double seconds = static_cast<double>(since_ns) / 1e9;
  std::array<job_share, job_slots> shares{};
  std::array<std::size_t, job_slots> slot_of{};
  std::size_t count = 0;
  std::uint64_t local_bytes = 0;
  std::uint64_t far_bytes = 0;
  std::uint64_t far_stored_bytes = 0;
  for (std::size_t i = 0; i < job_slots; ++i) {
    job_slot& slot = region().slots[i];
    if (slot.state.load() != job_slot_state::running) continue;
    const statistics counted = slot.account.statistics();
    local_bytes += counted.local_bytes;
    far_bytes += counted.far_bytes;
    far_stored_bytes += counted.far_stored_bytes;
    const std::uint64_t cpu_ns = slot.account.user_ns.load() + slot.account.system_ns.load();
    const std::uint64_t cpu_before_ns = slot.seen_cpu_ns.load();
    const bool idle = static_cast<double>(cpu_ns - std::min(cpu_ns, cpu_before_ns)) < idle_share * 1e9 * seconds;
    if (observes) {
      observe(slot, seconds);
      slot.seen_cpu_ns.store(cpu_ns);
    }
    shares[count] = {.used_bytes = counted.local_bytes,
                     .limit_bytes = counted.budget_bytes,
                     .demand = std::bit_cast<double>(slot.demand.load()),
                     .idle = observes && idle,
                     .is_new = is_new(slot, now),
                     .granted_bytes = slot.granted_bytes.load()};
    slot_of[count++] = i;
  }
  region().peak_local_bytes.store(std::max(region().peak_local_bytes.load(), local_bytes));
  region().peak_far_bytes.store(std::max(region().peak_far_bytes.load(), far_bytes));
  region().peak_far_stored_bytes.store(std::max(region().peak_far_stored_bytes.load(), far_stored_bytes));
  if (observes) region().decided_ns.store(now);
  const std::span<job_share> all(shares.data(), count);
  if (count > 0 && this->shares()) {
    divide_budget(region().budget.load().bytes, all);
    for (std::size_t i = 0; i < count; ++i) region().slots[slot_of[i]].granted_bytes.store(shares[i].granted_bytes);
    warn_of_minima(local_bytes, count);
  }
  region().compressed.promised_bytes.store(promised_bytes(all));
}

void job::warn_of_minima(std::uint64_t used_bytes, std::size_t processes) noexcept {
  const std::uint64_t budget_bytes = region().budget.load().bytes;
  if (used_bytes <= budget_bytes || processes * pager::minimum_budget_bytes <= budget_bytes) return;
  if (region().warned.exchange(1) != 0) return;
  log_line(log_level::warning,
           "%zu processes share a budget of %s, and each needs %s at least; the budget is exceeded: give more with "
           "--local, or run fewer at a time",
           processes, format_size(budget_bytes).c_str(), format_size(pager::minimum_budget_bytes).c_str());
}

void job::tell(const engine::statistics& counted, const process_usage& used) noexcept {
  if (!is_mine()) return;  // and in a child, who knows who holds the lock
  const lock_guard held(lock_);
  if (published_last_ || left_ || !still_has_slot()) return;
  statistics all = counted;
  add(all, before_, false);
  mine().account.store(all, used);
}

void job::tell_last(const engine::statistics& counted, const process_usage& used) noexcept {
  tell(counted, used);
  const lock_guard held(lock_);
  published_last_ = true;
}

// If another process holds the job's lock, that process decides, and this one keeps its share until the next time. A
// process that has lost its slot or its descriptor joins again, or keeps its share for good.
std::optional<std::uint64_t> job::exchange(const engine::statistics& counted, const process_usage& used) noexcept {
  if (!is_mine()) return std::nullopt;
  tell(counted, used);
  const lock_guard held(lock_);
  // The program may have closed our descriptor by a raw system call, and so released the locks.
  const bool intact = mapping_.is_intact();
  if (!intact && !left_ && !mapping_.reopen(name_.path)) {
    log_line(log_level::warning, "process %d lost its descriptor of the job, and keeps its share of the budget",
             static_cast<int>(pid_.load()));
    left_ = true;
  }
  if (left_) return std::nullopt;
  if (mapping_.try_lock(job_mapping::job_lock)) {
    if (!intact || !still_has_slot()) left_ = !take_slot_again();
    if (!left_) {
      follow_machine(now_ns());
      decide(false);
    }
    mapping_.unlock(job_mapping::job_lock);
  }
  const std::uint64_t granted = mine().granted_bytes.load();
  if (!shares() || left_ || granted == 0) return std::nullopt;
  return granted;
}

std::uint64_t job::ask_and_apply(bool applies) noexcept {
  if (!is_mine()) return 0;
  const lock_guard held(lock_);
  const bool decides = !left_ && mapping_.is_intact() && mapping_.lock_job(asking_deadline_ms);
  if (decides) decide(true);
  const std::uint64_t granted = mine().granted_bytes.load();
  if (applies) mine().account.store_budget(granted);  // before others decide
  if (decides) mapping_.unlock(job_mapping::job_lock);
  return granted;
}

void job::resize(std::uint64_t budget_bytes) noexcept {
  const lock_guard held(lock_);
  region().budget.resize(budget_bytes);
  // If another process is just deciding, the next decision takes the new budget.
  if (!mapping_.is_intact() || !mapping_.lock_job(asking_deadline_ms)) return;
  region().warned.store(0);
  decide(true);
  mapping_.unlock(job_mapping::job_lock);
}

void job::forget_parent() noexcept {
  lock_.open_in_child();  // another thread of the parent may have held it
  const lock_guard held(lock_);
  pid_ = 0;
  published_last_ = false;
}

// Takes the lock of the job. If everybody else has left it, its file was removed, and the job is founded again.
bool job::lock_living_job(int deadline_ms) noexcept {
  for (int attempt = 0; attempt < 10; ++attempt) {
    if (!mapping_.lock_job(deadline_ms)) return false;
    if (!mapping_.is_removed()) return true;
    mapping_.unlock(job_mapping::job_lock);
    if (!mapping_.found_again(name_)) return false;
  }
  return false;
}

// In a child of fork, which has inherited the mapping but none of the locks of the file.
result<void> job::take_slot_as_child(const statistics& since_fork, const process_usage& used, int deadline_ms) {
  if (is_mine()) return {};
  const result<std::uint64_t> owner = new_owner();
  if (!owner) return owner.error();
  if (!mapping_.is_intact() && !mapping_.reopen(name_.path)) return error{"the descriptor of the job is lost", EBADF};
  if (!lock_living_job(deadline_ms)) return job_is_held();
  owner_ = owner.value();
  before_ = {};
  pid_ = getpid();
  left_ = !take_slot();
  if (!left_) {
    // The child begins with the memory of its parent.
    mine().account.store(since_fork, used);
    mine().granted_bytes.store(since_fork.budget_bytes);
    mine().seen_need.store(need_of(since_fork));
    mine().seen_cpu_ns.store(used.user_ns + used.system_ns);
  }
  mapping_.unlock(job_mapping::job_lock);
  if (left_) return job_is_full();
  return {};
}

result<void> job::join_as_child(const statistics& since_fork, const process_usage& used) {
  const lock_guard held(lock_);
  return take_slot_as_child(since_fork, used, joining_deadline_ms);
}

void job::record_child(const statistics& since_fork, const process_usage& used) noexcept {
  {
    const lock_guard held(lock_);
    if (!take_slot_as_child(since_fork, used, asking_deadline_ms)) return;
  }
  tell(since_fork, used);
  leave();
}

// With the lock of the job, when this process has left its slot. The file stays for those who hold no lock and will
// come back to it: a process that is just becoming another program, and a child that has not joined yet. It has the
// budget that the user has given the job since its start.
bool job::is_last() const noexcept {
  const bool any = std::any_of(region().slots.begin(), region().slots.end(), [](const job_slot& slot) {
    const job_slot_state state = slot.state.load();
    return state == job_slot_state::running || (state == job_slot_state::lost && still_runs(slot).value_or(true));
  });
  return !any && !has_living_children();
}

void job::leave() noexcept {
  if (!is_mine()) return;
  const lock_guard held(lock_);
  if (left_) return;
  left_ = true;
  if (!mapping_.is_intact() || !mapping_.lock_job(joining_deadline_ms)) return;  // the others will notice that it ended
  if (still_has_slot()) end_slot(mine(), job_slot_state::ended);
  bury_the_dead();
  // It may have no right to do so, after a change of its user; then `farheap run` does it later.
  if (is_last()) unlink(name_.path.c_str());
  mapping_.unlock(job_mapping::lock_of_slot(slot_));
  mapping_.unlock(job_mapping::job_lock);
}

bool job::first_to_name(std::uint64_t hash) noexcept {
  hash |= 1;  // 0 is an empty place
  for (shared_number& place : region().named) {
    std::uint64_t empty = 0;
    if (place.compare_exchange_strong(empty, hash)) return true;
    if (empty == hash) return false;
  }
  return false;  // so many were named that more would not be read
}

coming_down job::shrunk(std::span<pid_t> room) const noexcept {
  const lock_guard held(lock_);
  const std::uint64_t now = now_ns();
  coming_down all;
  std::size_t unaware = 0;
  std::uint64_t filled_bytes = pager::minimum_budget_bytes;
  for (const job_slot& slot : region().slots) {
    if (slot.state.load() != job_slot_state::running || slot.owner.load() == owner_) continue;
    const statistics counted = slot.account.statistics();
    const job_share one{.used_bytes = counted.local_bytes,
                        .limit_bytes = counted.budget_bytes,
                        .demand = std::bit_cast<double>(slot.demand.load()),
                        .is_new = is_new(slot, now),
                        .granted_bytes = slot.granted_bytes.load()};
    filled_bytes += filled_soon(one);
    const std::uint64_t most = std::max(one.used_bytes, one.limit_bytes);
    if (most <= one.granted_bytes) continue;
    all.excess_bytes += most - one.granted_bytes;
    unaware += one.limit_bytes > one.granted_bytes ? 1 : 0;
    if (all.processes < room.size()) room[all.processes++] = slot.pid.load();
  }
  const std::uint64_t budget_bytes = region().budget.load().bytes;
  all.excess_bytes = std::min(all.excess_bytes, filled_bytes - std::min(filled_bytes, budget_bytes));
  // Where there is room, nobody waits for one that stays above its share.
  if (all.excess_bytes == 0 && unaware == 0) all.processes = 0;
  return all;
}

}  // namespace far::preload
