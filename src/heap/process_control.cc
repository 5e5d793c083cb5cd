#include "heap/process_control.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/units.h"
#include "control/control.h"
#include "control/statistics_json.h"
#include "pager/pager.h"
#include "platform/runtime_thread.h"

namespace far::heap {
namespace {

struct answering {
  std::mutex changing;  // held while a runtime comes or goes
  std::mutex lock;      // held while one is asked, and below `changing` while `all` changes
  std::vector<pager::far_heap*> all;
  std::unique_ptr<control::control_server> server;  // null: another runtime of this process answers
  std::thread thread;
};

answering& here() {
  static answering* const only = new answering;  // the process-wide runtime is never destroyed
  return *only;
}

engine::statistics read_statistics(void* context) {
  auto& mine = *static_cast<answering*>(context);
  const std::lock_guard guard(mine.lock);
  engine::statistics sum;
  for (const pager::far_heap* one : mine.all) control::add_statistics(sum, one->snapshot());
  return sum;
}

result<void> resize(void* context, std::uint64_t budget_bytes) {
  auto& mine = *static_cast<answering*>(context);
  const std::lock_guard guard(mine.lock);
  const std::uint64_t least = pager::minimum_budget_bytes * mine.all.size();
  if (budget_bytes < least) {
    return error{
        "a budget of " + format_size(budget_bytes) + " is below the working minimum; give at least " +
            format_size(least) +
            (mine.all.size() > 1 ? " to the " + std::to_string(mine.all.size()) + " runtimes of the process" : ""),
        EINVAL};
  }
  // The budget above the minima goes to each as before.
  std::uint64_t before = 0;
  for (const pager::far_heap* one : mine.all) before += one->snapshot().budget_bytes - pager::minimum_budget_bytes;
  for (pager::far_heap* const one : mine.all) {
    const std::uint64_t had = one->snapshot().budget_bytes - pager::minimum_budget_bytes;
    const double share = before > 0 ? static_cast<double>(had) / static_cast<double>(before)
                                    : 1.0 / static_cast<double>(mine.all.size());
    const auto more = static_cast<std::uint64_t>(share * static_cast<double>(budget_bytes - least));
    const result<void> done = one->resize(pager::minimum_budget_bytes + more / page_bytes * page_bytes);
    if (!done) return done;
  }
  return {};
}

result<void> add_server(void* context, std::string_view server) {
  auto& mine = *static_cast<answering*>(context);
  const std::lock_guard guard(mine.lock);
  result<void> said = error{"this process has no far::runtime any more", ESRCH};
  bool was_added = false;
  for (pager::far_heap* const one : mine.all) {
    const result<void> added = one->add_server(server);
    if (!added && added.error().code != ENOTSUP) return added;
    was_added |= added.ok();
    if (!added) said = added;
  }
  return was_added ? result<void>() : said;
}

void start(answering& mine, const pager::far_heap& first) {
  // A program under `farheap run`, or one with a second copy of this library: one of them answers for the process.
  if (control::is_answered(getpid())) {
    log_line(log_level::warning,
             "process %d has a far::runtime with a budget of its own of %s, beside that of `farheap run`, whose "
             "`resize`, `stats` and `top` do not count it; run the program by itself, or leave room for both",
             static_cast<int>(getpid()), format_size(first.snapshot().budget_bytes).c_str());
    return;
  }
  mine.server = control::control_server::open({&mine, resize, read_statistics, add_server});
  mine.thread = platform::start_runtime_thread("farheap-control", [&mine] {
    while (mine.server->step(-1)) continue;
  });
}

}  // namespace

void answer_for(pager::far_heap& one) {
  answering& mine = here();
  const std::lock_guard changing(mine.changing);
  const bool is_first = mine.all.empty();
  {
    const std::lock_guard guard(mine.lock);
    mine.all.push_back(&one);
  }
  if (is_first) start(mine, one);
}

void stop_answering_for(pager::far_heap& one) noexcept {
  answering& mine = here();
  const std::lock_guard changing(mine.changing);
  {
    const std::lock_guard guard(mine.lock);
    std::erase(mine.all, &one);
  }
  if (!mine.all.empty() || mine.server == nullptr) return;
  mine.server->wake();
  mine.thread.join();
  mine.server.reset();
}

}  // namespace far::heap
