#include "preload/membership.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "base/log.h"
#include "base/units.h"
#include "control/control.h"
#include "platform/clock.h"

namespace far::preload {
namespace {

// A newcomer fills its working minimum at once, whatever the others hold. So it waits for those that come down for it,
// as long as they do: they are not for one that is stopped, nor for a disk that takes longer than a program may take to
// start.
constexpr std::uint64_t longest_wait_ns = 1'000'000'000;
constexpr int patient_rounds = 25;
constexpr int rounds_between_nudges = 10;

void pause_2_ms() {
  const timespec pause{0, 2'000'000};
  nanosleep(&pause, nullptr);
}

// From a process that has it open.
result<job_mapping> ask_relatives(const job_name& name, const settings& chosen, const error& otherwise) {
  const std::string secret = name.secret_text();
  for (const pid_t relative : {getppid(), chosen.main_pid}) {
    if (relative <= 1 || relative == getpid()) continue;
    const result<int> sent = control::request_job(relative, secret);
    if (sent) return job_mapping::adopt(sent.value(), name);
  }
  return otherwise;
}

result<std::unique_ptr<job>> try_to_join(const settings& chosen) {
  const result<job_name> name = parse_job_name(chosen.job);
  if (!name) return name.error();
  result<job_mapping> opened = job_mapping::open(
      name.value(), {{chosen.budget_bytes, chosen.local_auto && !chosen.local_each}, !chosen.local_each});
  if (opened) return job::join(std::move(opened).value(), name.value());
  result<job_mapping> given = ask_relatives(name.value(), chosen, opened.error());
  if (!given) return given.error();
  return job::join(std::move(given).value(), name.value());
}

}  // namespace

void warn_of_own_budget(const error& why, std::uint64_t budget_bytes) noexcept {
  log_line(log_level::warning, "%s; process %d (%s) has a budget of its own of %s, beside that of the others",
           why.message.c_str(), static_cast<int>(getpid()), program_invocation_short_name,
           format_size(budget_bytes).c_str());
}

std::unique_ptr<job> join_job(const settings& chosen) {
  if (chosen.job.empty()) return nullptr;
  result<std::unique_ptr<job>> joined = try_to_join(chosen);
  if (joined) return std::move(joined).value();
  warn_of_own_budget(joined.error(), chosen.budget_bytes);
  return nullptr;
}

void join_as_child(job& member, const engine::statistics& since_fork, const process_usage& used) {
  const result<void> joined = member.join_as_child(since_fork, used);
  if (!joined) warn_of_own_budget(joined.error(), since_fork.budget_bytes);
}

std::uint64_t first_budget(job* member, std::uint64_t whole_bytes) noexcept {
  if (member == nullptr || !member->shares()) return whole_bytes;
  std::array<pid_t, job_slots> others{};
  std::uint64_t granted = member->ask_as_newcomer();
  coming_down waits_for = member->shrunk(others);
  std::uint64_t least_excess_bytes = ~std::uint64_t{0};
  int rounds_without_progress = 0;
  const std::uint64_t until_ns = platform::monotonic_clock().now_ns() + longest_wait_ns;
  for (int round = 0; waits_for.processes > 0 && platform::monotonic_clock().now_ns() < until_ns; ++round) {
    if (round % rounds_between_nudges == 0) {
      for (const pid_t other : std::span(others).first(waits_for.processes)) control::nudge(other);
    }
    pause_2_ms();
    granted = member->ask_as_newcomer();
    waits_for = member->shrunk(others);
    const bool progresses = waits_for.excess_bytes < least_excess_bytes;
    least_excess_bytes = std::min(least_excess_bytes, waits_for.excess_bytes);
    rounds_without_progress = progresses ? 0 : rounds_without_progress + 1;
    if (rounds_without_progress == patient_rounds) break;
  }
  return granted;
}

}  // namespace far::preload
