// One configuration of `farheap-bench pressure`, in a process of its own: fibers that use memory faster than the far
// tier takes it, and what is free over time.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "clocks.h"
#include "common/json.h"
#include "far/runtime.h"
#include "far/scope.h"
#include "far/unique_ptr.h"
#include "fiber/scheduler.h"
#include "fiber/this_fiber.h"
#include "heap_bench.h"
#include "samples.h"
#include "sealed_object.h"

namespace far::bench {

namespace {

using object = sealed_object<256>;

constexpr unsigned fibers = 100;
constexpr std::chrono::microseconds between_samples{500};
constexpr std::uint64_t replaced_one_in = 4;  // accesses
// Shares of the budget: below the first the fibers are asked to yield, above the second no more. The evictor works
// between 1/32 and 1/16.
constexpr std::uint64_t little_one_in = 48;
constexpr std::uint64_t enough_one_in = 24;
constexpr unsigned most_turns = 10;  // that a fiber gives away before an access

struct sample {
  std::uint64_t at_ns = 0;
  std::int64_t free_bytes = 0;
};

// Looks at the free memory while it lives, and asks for yields when it is to.
class watcher {
 public:
  watcher(far::runtime& runtime, bool prioritises)
      : thread_([this, &runtime, prioritises] {
          const std::uint64_t start = monotonic_ns();
          while (!stop_.load()) {
            const far::runtime_statistics now = runtime.statistics();
            const auto budget = static_cast<std::int64_t>(now.budget_bytes);
            const std::int64_t free_bytes = budget - static_cast<std::int64_t>(now.local_bytes);
            samples_.push_back({monotonic_ns() - start, free_bytes});
            if (prioritises && free_bytes < budget / std::int64_t{little_one_in}) runtime.fibers().request_yield();
            if (free_bytes > budget / std::int64_t{enough_one_in}) runtime.fibers().withdraw_yield_request();
            std::this_thread::sleep_for(between_samples);
          }
          runtime.fibers().withdraw_yield_request();
        }) {}
  ~watcher() { static_cast<void>(stop()); }
  watcher(const watcher&) = delete;
  watcher& operator=(const watcher&) = delete;

  [[nodiscard]] const std::vector<sample>& stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return samples_;
  }

 private:
  std::atomic<bool> stop_ = false;
  std::vector<sample> samples_;
  std::thread thread_;
};

// The work of a fiber: accesses with some computing between, and new objects in the place of old ones.
class busy_program {
 public:
  busy_program(far::runtime& in, std::size_t count) : runtime_(in), objects_(count) {
    run_all([&](unsigned fiber) {
      for (std::size_t i = begin(fiber); i < begin(fiber + 1); ++i) objects_[i] = far::make_unique<object>(in, i);
    });
  }

  // Every fiber for so long. Returns how long the accesses took, in ticks.
  std::vector<std::uint32_t> run(std::uint64_t for_ns) {
    std::vector<std::vector<std::uint32_t>> ticks(fibers);
    const std::uint64_t end = monotonic_ns() + for_ns;
    run_all([&](unsigned fiber) {
      random_numbers random(fiber + 1);
      while (monotonic_ns() < end) {
        give_way();
        const std::uint64_t start = ticks_now();
        access(begin(fiber) + random.below(begin(fiber + 1) - begin(fiber)), random.below(replaced_one_in) == 0);
        ticks[fiber].push_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(ticks_now() - start, ~0u)));
      }
    });
    std::vector<std::uint32_t> all;
    for (const auto& one_thread : ticks) all.insert(all.end(), one_thread.begin(), one_thread.end());
    return all;
  }

 private:
  [[nodiscard]] std::size_t begin(unsigned fiber) const { return objects_.size() / fibers * fiber; }

  void access(std::size_t number, bool replaces) {
    if (replaces) {
      objects_[number] = far::make_unique<object>(runtime_, number);
      return;
    }
    const far::scope here(runtime_);
    objects_[number].deref_mut(here).rewrite(number);
  }

  // The guard of AIFM, section 5.4: under pressure a running fiber lets others run. All that it would let run are
  // fibers like itself, and the evictor is a thread, which needs the worker's processor: so the fiber sleeps. Not for
  // ever: where the fibers' own misses evict, nothing becomes free while all of them sleep.
  void give_way() {
    for (unsigned turn = 0; turn < most_turns && runtime_.fibers().should_yield(); ++turn) {
      fiber::sleep_for(std::chrono::microseconds(100));
    }
  }

  template <typename Body>
  void run_all(const Body& body) {
    std::vector<fiber::handle> running;
    for (unsigned one = 0; one < fibers; ++one) {
      running.push_back(runtime_.fibers().spawn([&body, one] { body(one); }));
    }
    for (fiber::handle& one : running) one.join();
  }

  far::runtime& runtime_;
  std::vector<far::unique_ptr<object>> objects_;
};

evaluation::json to_json(const std::vector<sample>& samples, std::uint64_t budget_bytes) {
  std::vector<double> free_shares;
  evaluation::json points = evaluation::json::array();
  double below = 0;
  for (const sample& one : samples) {
    const double share = static_cast<double>(one.free_bytes) / static_cast<double>(budget_bytes);
    free_shares.push_back(share);
    points.push_back({static_cast<double>(one.at_ns) / 1e6, share * 100});
    below += share < 0.01 ? 1 : 0;
  }
  std::sort(free_shares.begin(), free_shares.end());
  const auto count = static_cast<double>(std::max<std::size_t>(samples.size(), 1));
  return {{"metrics",
           {{"free_least_share", free_shares.empty() ? 0 : free_shares.front()},
            {"free_p1_share", free_shares.empty() ? 0 : percentile_of_sorted(free_shares, 0.01)},
            {"free_median_share", free_shares.empty() ? 0 : percentile_of_sorted(free_shares, 0.5)},
            {"time_below_1_percent_share", below / count}}},
          {"free_percent_over_ms", points}};
}

}  // namespace

result<evaluation::json> pressure_child(const evaluation::json& assignment) {
  far::runtime_options chosen;
  chosen.local_bytes = assignment.at("local_bytes").get<std::size_t>();
  chosen.far = network_uri;
  far::runtime here(chosen);
  busy_program busy(here, assignment.at("bytes").get<std::size_t>() / sizeof(object));
  watcher looks(here, assignment.at("prioritises").get<bool>());
  const std::uint64_t cpu_before = process_cpu_ns();
  const std::uint64_t start = monotonic_ns();
  std::vector<std::uint32_t> ticks = busy.run(assignment.at("for_ns").get<std::uint64_t>());
  const auto accesses = static_cast<double>(ticks.size());
  const auto elapsed_ns = static_cast<double>(monotonic_ns() - start);
  const auto cpu_ns = static_cast<double>(process_cpu_ns() - cpu_before);
  evaluation::json answer = to_json(looks.stop(), chosen.local_bytes);
  const tick_scale scale = calibrate_ticks();
  const latency_summary latency = summarise_latencies(ticks, scale.nanoseconds_per_tick, scale.overhead_ticks);
  evaluation::json& metrics = answer["metrics"];
  metrics["accesses_per_s"] = accesses / elapsed_ns * 1e9;
  metrics["cpu_ns_per_access"] = cpu_ns / accesses;
  metrics["p50_ns"] = latency.p50_ns;
  metrics["p99_ns"] = latency.p99_ns;
  metrics["max_ns"] = latency.max_ns;
  return answer;
}

}  // namespace far::bench
