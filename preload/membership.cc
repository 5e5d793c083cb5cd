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

namespace far::preload {
namespace {

constexpr int nudge_rounds = 25;

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

void warn_of_own_budget(const error& why, std::uint64_t budget_bytes) {
  log_line(log_level::warning, "%s; process %d (%s) has a budget of its own of %s, beside that of the others",
           why.message.c_str(), static_cast<int>(getpid()), program_invocation_short_name,
           format_size(budget_bytes).c_str());
}

}  // namespace

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
  std::uint64_t granted = member->ask();
  std::array<pid_t, 16> others{};
  std::size_t count = member->shrunk(others);
  for (const pid_t other : std::span(others).first(count)) control::nudge(other);
  for (int round = 0; round < nudge_rounds && count > 0; ++round) {
    pause_2_ms();
    granted = member->ask();
    count = member->shrunk(others);
  }
  return granted;
}

}  // namespace far::preload
