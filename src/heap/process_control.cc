#include "heap/process_control.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/units.h"
#include "control/control.h"
#include "control/guest.h"
#include "control/statistics_json.h"
#include "pager/pager.h"
#include "platform/runtime_thread.h"

namespace far::heap {
namespace {

constexpr std::chrono::milliseconds exchange_period{100};

// A runtime, and the budget that the program or a command chose for it.
struct answered {
  pager::far_heap* heap = nullptr;
  std::uint64_t chosen_bytes = 0;
};

struct answering {
  std::mutex changing;  // held while a runtime comes or goes
  std::mutex lock;      // held while one is asked, and below `changing` while `all` changes
  std::vector<answered> all;
  engine::statistics departed;                      // the counts of runtimes that have left
  std::thread thread;                               // serves commands, or talks to the host
  std::unique_ptr<control::control_server> server;  // null: the host, or something else, answers
  control::host_exchange* host = nullptr;
  std::uint32_t guest_number = 0;  // at the host
  bool stops = false;              // the thread that talks to the host
  std::condition_variable stopping;
};

answering& here() {
  static answering* const only = new answering;  // the process-wide runtime is never destroyed
  return *only;
}

engine::statistics sum_of(const answering& mine) {
  engine::statistics sum = mine.departed;
  for (const answered& one : mine.all) control::add_statistics(sum, one.heap->snapshot());
  return sum;
}

engine::statistics read_statistics(void* context) {
  auto& mine = *static_cast<answering*>(context);
  const std::lock_guard guard(mine.lock);
  return sum_of(mine);
}

std::uint64_t least_bytes(const answering& mine) {
  return pager::minimum_budget_bytes * mine.all.size();
}

std::uint64_t chosen_bytes(const answering& mine) {
  std::uint64_t sum = 0;
  for (const answered& one : mine.all) sum += one.chosen_bytes;
  return sum;
}

// The part of one runtime: memory above the minima is shared in proportion to the chosen budgets. Requires:
// budget_bytes >= least_bytes().
std::uint64_t part_of(const answering& mine, const answered& one, std::uint64_t budget_bytes) {
  const std::uint64_t least = least_bytes(mine);
  const std::uint64_t chosen = chosen_bytes(mine) - least;
  const double share =
      chosen > 0 ? static_cast<double>(one.chosen_bytes - pager::minimum_budget_bytes) / static_cast<double>(chosen)
                 : 1.0 / static_cast<double>(mine.all.size());
  const auto more = static_cast<std::uint64_t>(share * static_cast<double>(budget_bytes - least));
  return pager::minimum_budget_bytes + round_down(more, page_bytes);
}

result<void> resize(void* context, std::uint64_t budget_bytes) {
  auto& mine = *static_cast<answering*>(context);
  const std::lock_guard guard(mine.lock);
  const std::uint64_t least = least_bytes(mine);
  if (budget_bytes < least) {
    return error{
        "a budget of " + format_size(budget_bytes) + " is below the working minimum; give at least " +
            format_size(least) +
            (mine.all.size() > 1 ? " to the " + std::to_string(mine.all.size()) + " runtimes of the process" : ""),
        EINVAL};
  }
  std::vector<std::uint64_t> parts;
  for (const answered& one : mine.all) parts.push_back(part_of(mine, one, budget_bytes));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const result<void> done = mine.all[i].heap->resize(parts[i]);
    if (!done) return done;
    mine.all[i].chosen_bytes = parts[i];
  }
  return {};
}

result<void> add_server(void* context, std::string_view server) {
  auto& mine = *static_cast<answering*>(context);
  const std::lock_guard guard(mine.lock);
  result<void> said = error{"this process has no far::runtime any more", ESRCH};
  bool was_added = false;
  for (const answered& one : mine.all) {
    const result<void> added = one.heap->add_server(server);
    if (!added && added.error().code != ENOTSUP) return added;
    was_added |= added.ok();
    if (!added) said = added;
  }
  return was_added ? result<void>() : said;
}

result<std::uint64_t> remove_server(void* context, std::string_view server, removal step) {
  auto& mine = *static_cast<answering*>(context);
  const std::lock_guard guard(mine.lock);
  result<std::uint64_t> said = error{"this process has no far::runtime any more", ESRCH};
  std::uint64_t sum = 0;
  bool is_known = false;
  for (const answered& one : mine.all) {
    const result<std::uint64_t> left = one.heap->remove_server(server, step);
    // Runtimes may have different far tiers.
    if (!left && left.error().code != ENOTSUP && left.error().code != ENOENT) return left;
    is_known |= left.ok();
    if (left) sum += left.value();
    if (!left) said = left;
  }
  return is_known ? result<std::uint64_t>(sum) : said;
}

// Reports the runtimes' memory to the host, and applies its answer. With `lock` held. Returns false if the host takes
// no guest.
bool exchange_with_host(answering& mine) {
  const control::guest_report said{.runtimes = static_cast<std::uint32_t>(mine.all.size()),
                                   .wanted_bytes = chosen_bytes(mine),
                                   .counted = sum_of(mine)};
  const std::uint64_t granted_bytes = mine.host(&mine.guest_number, &said);
  if (granted_bytes < least_bytes(mine)) return false;
  for (const answered& one : mine.all) {
    const std::uint64_t part = std::min(one.chosen_bytes, part_of(mine, one, granted_bytes));
    if (part == one.heap->snapshot().budget_bytes) continue;
    const result<void> resized = one.heap->resize(part);
    if (!resized) log_line(log_level::error, "%s", resized.error().message.c_str());
  }
  return true;
}

void talk_to_host(answering& mine) {
  std::unique_lock guard(mine.lock);
  while (!mine.stopping.wait_for(guard, exchange_period, [&] { return mine.stops; })) {
    static_cast<void>(exchange_with_host(mine));  // one that has taken a guest keeps it
  }
}

void warn_of_own_budget(const pager::far_heap& one) {
  log_line(log_level::warning,
           "process %d has a far::runtime with a budget of its own of %s: another runtime answers for the process, and "
           "does not know this one. Use the same version of farheap for both, or leave room for both",
           static_cast<int>(getpid()), format_size(one.snapshot().budget_bytes).c_str());
}

// A runtime that has just started holds nothing, and must not count with its chosen budget. With `lock` held.
bool introduce(answering& mine, const answered& newcomer) {
  static_cast<void>(newcomer.heap->resize(pager::minimum_budget_bytes));  // the least never fails
  if (exchange_with_host(mine)) return true;
  static_cast<void>(newcomer.heap->resize(newcomer.chosen_bytes));  // which it had
  return false;
}

// The first runtime is in `all`.
void start(answering& mine) {
  mine.host = reinterpret_cast<control::host_exchange*>(dlsym(RTLD_DEFAULT, "far_host_exchange"));
  if (mine.host != nullptr) {
    const std::lock_guard guard(mine.lock);
    if (!introduce(mine, mine.all.front())) mine.host = nullptr;
  }
  if (mine.host != nullptr) {
    mine.stops = false;
    mine.thread = platform::start_runtime_thread("farheap-guest", [&mine] { talk_to_host(mine); });
    return;
  }
  if (control::is_answered(getpid())) return warn_of_own_budget(*mine.all.front().heap);
  mine.server = control::control_server::open({&mine, resize, read_statistics, add_server, remove_server});
  mine.thread = platform::start_runtime_thread("farheap-control", [&mine] {
    while (mine.server->step(-1)) continue;
  });
}

void stop(answering& mine) {
  if (mine.host != nullptr) {
    {
      const std::lock_guard guard(mine.lock);
      mine.stops = true;
    }
    mine.stopping.notify_one();
    mine.thread.join();
    mine.host = nullptr;
    mine.departed = {};  // the host has it now
  } else if (mine.server != nullptr) {
    mine.server->wake();
    mine.thread.join();
    mine.server.reset();
  }
}

}  // namespace

void answer_for(pager::far_heap& one) {
  answering& mine = here();
  const std::lock_guard changing(mine.changing);
  const bool is_first = mine.all.empty();
  {
    const std::lock_guard guard(mine.lock);
    mine.all.push_back({&one, one.snapshot().budget_bytes});
    if (mine.host != nullptr) static_cast<void>(introduce(mine, mine.all.back()));
  }
  if (!is_first) return;
  try {
    start(mine);
  } catch (...) {  // no thread can be started: the next runtime is the first again
    const std::lock_guard guard(mine.lock);
    mine.all.clear();
    mine.host = nullptr;
    mine.server.reset();
    throw;
  }
}

void stop_answering_for(pager::far_heap& one) noexcept {
  answering& mine = here();
  const std::lock_guard changing(mine.changing);
  {
    const std::lock_guard guard(mine.lock);
    std::erase_if(mine.all, [&](const answered& other) { return other.heap == &one; });
    engine::statistics counted = one.snapshot();
    control::forget_what_is_held(counted);
    control::add_statistics(mine.departed, counted);
    if (mine.host != nullptr) static_cast<void>(exchange_with_host(mine));
  }
  if (mine.all.empty()) stop(mine);
}

result<void> choose_budget(pager::far_heap& one, std::uint64_t budget_bytes) {
  answering& mine = here();
  const std::lock_guard guard(mine.lock);
  const auto found =
      std::find_if(mine.all.begin(), mine.all.end(), [&](const answered& other) { return other.heap == &one; });
  if (found == mine.all.end() || mine.host == nullptr || budget_bytes < pager::minimum_budget_bytes) {
    const result<void> resized = one.resize(budget_bytes);
    if (resized && found != mine.all.end()) found->chosen_bytes = budget_bytes;
    return resized;
  }
  found->chosen_bytes = round_down(budget_bytes, page_bytes);  // as it is applied
  static_cast<void>(exchange_with_host(mine));
  return {};
}

}  // namespace far::heap
