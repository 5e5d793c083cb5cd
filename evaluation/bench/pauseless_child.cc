// One configuration of `farheap-bench pauseless`, in a process of its own: a program that makes garbage all the time,
// and what compacts it.
#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/units.h"
#include "clocks.h"
#include "common/json.h"
#include "far/runtime.h"
#include "far/scope.h"
#include "far/unique_ptr.h"
#include "heap_bench.h"
#include "sealed_object.h"

namespace far::bench {

namespace {

using object = sealed_object<64>;

constexpr double garbage_share = 0.25;
constexpr std::uint64_t replaced_one_in = 8;  // accesses
constexpr std::size_t accesses_between_gates = 16;

// Stops the program for a while, as a runtime without a protocol for moving objects must. The program asks at every
// gate; the thread that stops it waits until it stands at one.
class world {
 public:
  void gate() {
    if (!wanted_.load(std::memory_order_relaxed)) return;
    stands_.store(true, std::memory_order_release);
    stands_.notify_one();
    wanted_.wait(true, std::memory_order_acquire);
    stands_.store(false, std::memory_order_release);
  }

  // The program has ended: it stands for good.
  void leave() {
    left_.store(true, std::memory_order_release);
    stands_.store(true, std::memory_order_release);
    stands_.notify_one();
  }

  template <typename Body>
  void stop_during(const Body& body) {
    wanted_.store(true, std::memory_order_release);
    stands_.wait(false, std::memory_order_acquire);
    body();
    wanted_.store(false, std::memory_order_release);
    wanted_.notify_one();
    // Not to be taken for the next stop.
    while (!left_.load(std::memory_order_acquire) && stands_.load(std::memory_order_acquire)) std::this_thread::yield();
  }

 private:
  std::atomic<bool> wanted_ = false;
  std::atomic<bool> stands_ = false;
  std::atomic<bool> left_ = false;
};

// Evacuates again and again, on a thread of its own, while it lives.
class compactor {
 public:
  compactor(far::runtime& runtime, world* stopped)
      : thread_([this, &runtime, stopped] {
          while (!stop_.load()) {
            const std::uint64_t start = monotonic_ns();
            if (stopped != nullptr) {
              stopped->stop_during([&] { static_cast<void>(runtime.evacuate(garbage_share)); });
            } else {
              static_cast<void>(runtime.evacuate(garbage_share));
            }
            busy_ns_ += monotonic_ns() - start;
            ++rounds_;
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
          }
        }) {}
  ~compactor() { stop(); }
  compactor(const compactor&) = delete;
  compactor& operator=(const compactor&) = delete;

  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // After stop().
  [[nodiscard]] std::uint64_t rounds() const { return rounds_; }
  [[nodiscard]] std::uint64_t busy_ns() const { return busy_ns_; }

 private:
  std::atomic<bool> stop_ = false;
  std::uint64_t rounds_ = 0;
  std::uint64_t busy_ns_ = 0;
  std::thread thread_;
};

struct iteration {
  double elapsed_ns = 0;
  double cpu_ns = 0;  // of the program's thread
};

class program {
 public:
  program(far::runtime& in, std::size_t count) : runtime_(in), objects_(count) {
    for (std::size_t i = 0; i < count; ++i) objects_[i] = far::make_unique<object>(in, i);
  }

  iteration iterate(std::size_t accesses, world& shared) {
    const std::uint64_t cpu_before = thread_cpu_ns();
    const std::uint64_t start = monotonic_ns();
    for (std::size_t i = 0; i < accesses; ++i) {
      if (i % accesses_between_gates == 0) shared.gate();
      const std::size_t number = random_.below(objects_.size());
      if (random_.below(replaced_one_in) == 0) {
        objects_[number] = far::make_unique<object>(runtime_, number);
      } else {
        const far::scope here(runtime_);
        objects_[number].deref(here).check(number);
      }
    }
    return {static_cast<double>(monotonic_ns() - start), static_cast<double>(thread_cpu_ns() - cpu_before)};
  }

 private:
  far::runtime& runtime_;
  std::vector<far::unique_ptr<object>> objects_;
  random_numbers random_{3};
};

double worst_over_median(std::vector<double> times) {
  return times.empty() ? 0 : *std::max_element(times.begin(), times.end()) / summarise(times).median;
}

evaluation::json to_json(const std::vector<iteration>& all) {
  std::vector<double> elapsed;
  std::vector<double> cpu;
  for (const iteration& one : all) {
    elapsed.push_back(one.elapsed_ns);
    cpu.push_back(one.cpu_ns);
  }
  std::vector<double> sorted = elapsed;
  std::sort(sorted.begin(), sorted.end());
  return {{"metrics",
           {{"median_ns", summarise(elapsed).median},
            {"p99_ns", percentile_of_sorted(sorted, 0.99)},
            {"worst_ns", sorted.back()},
            {"worst_over_median", worst_over_median(elapsed)},
            {"worst_cpu_over_median", worst_over_median(cpu)}}},
          {"elapsed_ns", elapsed}};
}

}  // namespace

result<evaluation::json> pauseless_child(const evaluation::json& assignment) {
  far::runtime_options chosen;
  chosen.local_bytes = std::size_t{4} << 30;  // nothing is evicted
  chosen.workers = 1;
  chosen.evacuate_garbage_share = 2;
  far::runtime here(chosen);
  const std::string evacuation = assignment.at("evacuation");
  program runs(here, assignment.at("bytes").get<std::size_t>() / sizeof(object));
  world stopped;
  const auto accesses = assignment.at("accesses").get<std::size_t>();
  for (unsigned i = 0; i < 10; ++i) static_cast<void>(runs.iterate(accesses, stopped));

  const far::runtime_statistics before = here.statistics();
  std::vector<iteration> all;
  evaluation::json answer;
  {
    std::unique_ptr<compactor> beside;
    if (evacuation != "none") beside = std::make_unique<compactor>(here, evacuation == "stopped" ? &stopped : nullptr);
    for (unsigned i = 0; i < assignment.at("iterations").get<unsigned>(); ++i)
      all.push_back(runs.iterate(accesses, stopped));
    stopped.leave();
    answer = to_json(all);
    if (beside != nullptr) {
      beside->stop();
      answer["metrics"]["evacuation_rounds"] = beside->rounds();
      answer["metrics"]["evacuation_round_ns"] =
          static_cast<double>(beside->busy_ns()) / static_cast<double>(std::max<std::uint64_t>(beside->rounds(), 1));
    }
  }
  const far::runtime_statistics after = here.statistics();
  answer["metrics"]["evacuated_objects"] = after.evacuated_objects - before.evacuated_objects;
  answer["metrics"]["lost_races"] = after.lost_races - before.lost_races;
  answer["metrics"]["local_bytes"] = after.local_bytes;
  return answer;
}

}  // namespace far::bench
