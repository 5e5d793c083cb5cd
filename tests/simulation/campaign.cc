#include "campaign.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/check.h"
#include "platform/clock.h"

namespace far::simulation {
namespace {

constexpr std::uint64_t most_failures = 20;

// A run takes a tenth of a second, and under a sanitizer some seconds. One that takes longer than this hangs without
// any simulated time passing; SIGALRM ends it.
constexpr unsigned longest_run_seconds = 600;

template <typename T>
T& map_shared() {
  void* const mapped = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  FAR_CHECK(mapped != MAP_FAILED, "no memory to share with the processes of a campaign");
  return *static_cast<T*>(mapped);
}

// Until the time is over or there are no more seeds. `begun`: how many seeds have been taken, by any process.
[[noreturn]] void run_worker(const campaign_options& chosen, std::uint64_t end_ns, std::atomic<std::uint64_t>& begun,
                             tally& sum, const std::function<report(const run_options&)>& run_one) {
  const platform::monotonic_clock time;
  while (time.now_ns() < end_ns) {
    const std::uint64_t number = begun.fetch_add(1);
    if (number >= chosen.most_seeds) break;
    run_options one = chosen.first;
    one.seed += number;
    alarm(longest_run_seconds);
    sum.add(run_one(one), one.tier);
  }
  std::fflush(nullptr);
  _exit(0);
}

}  // namespace

tally& make_shared_tally() {
  return map_shared<tally>();
}

std::uint64_t run_campaign(const campaign_options& chosen, tally& sum,
                           const std::function<report(const run_options&)>& run_one) {
  const platform::monotonic_clock time;
  const std::uint64_t end_ns = time.now_ns() + chosen.seconds * 1'000'000'000;
  auto& begun = map_shared<std::atomic<std::uint64_t>>();
  std::uint64_t failures = 0;
  std::uint64_t running = 0;
  while (true) {
    const bool goes_on = time.now_ns() < end_ns && begun < chosen.most_seeds && failures < most_failures;
    while (goes_on && running < chosen.jobs) {
      std::fflush(nullptr);
      const pid_t child = fork();
      FAR_CHECK(child >= 0, "a process for simulations can be started");
      if (child == 0) run_worker(chosen, end_ns, begun, sum, run_one);
      ++running;
    }
    if (running == 0) break;
    int status = 0;
    while (wait(&status) < 0 && errno == EINTR) {
    }
    --running;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) ++failures;
  }
  munmap(&begun, sizeof begun);
  if (failures >= most_failures)
    std::fprintf(stderr, "simulation: given up after %llu failures\n", static_cast<unsigned long long>(failures));
  return failures;
}

}  // namespace far::simulation
