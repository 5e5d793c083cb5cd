// `farheap-bench fiber`: the cost of fibers, beside that of OS threads that do the same.
#include <errno.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "benchmark.h"
#include "clocks.h"
#include "fiber/channel.h"
#include "fiber/context.h"
#include "fiber/mutex.h"
#include "fiber/scheduler.h"
#include "fiber/semaphore.h"
#include "fiber/this_fiber.h"
#include "fiber_faults.h"
#include "instructions.h"
#include "platform/kernel_features.h"

namespace far::bench {

namespace {

constexpr const char* fibers_name = "fibers, 1 worker";
constexpr const char* fibers_apart_name = "fibers, 2 workers";
constexpr const char* threads_name = "std::thread";
constexpr const char* faults_workload = "hardware_fault_20us";

// One sample, for each operation.
struct cost {
  double elapsed_ns = 0;
  double instructions = 0;  // of the one thread that runs everything; 0 where several do or nothing counts
  double cpu_ns = 0;        // of the process; 0: all that it used during the sample
};

struct measured {
  const char* workload;
  const char* configuration;
  unsigned operations;
  std::function<cost(unsigned operations)> run;
};

fiber::scheduler_options with_workers(unsigned count) {
  fiber::scheduler_options chosen;
  chosen.workers = count;
  return chosen;
}

// Runs `work`, which does `operations`, on the calling thread.
cost measure_here(unsigned operations, const std::function<void()>& work) {
  const instruction_counter counter;
  const std::uint64_t instructions = counter.now();
  const std::uint64_t start_ns = monotonic_ns();
  work();
  const double elapsed_ns = static_cast<double>(monotonic_ns() - start_ns);
  return {elapsed_ns / operations, static_cast<double>(counter.now() - instructions) / operations};
}

// The same on a fiber of a scheduler with one worker.
cost measure_on_fiber(unsigned operations, const std::function<void(fiber::scheduler&)>& work) {
  fiber::scheduler workers(with_workers(1));
  cost found;
  workers.spawn([&] { found = measure_here(operations, [&] { work(workers); }); }).join();
  return found;
}

// `count` threads on one CPU run `work`; the time of all of them.
cost measure_threads(unsigned operations, unsigned count, bool one_cpu, const std::function<void(unsigned)>& work) {
  std::atomic<unsigned> waiting = 0;
  std::atomic<bool> go = false;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      cpu_set_t first;
      CPU_ZERO(&first);
      CPU_SET(0, &first);
      if (one_cpu) sched_setaffinity(0, sizeof first, &first);
      ++waiting;
      while (!go) std::this_thread::yield();
      work(i);
    });
  }
  while (waiting < count) std::this_thread::yield();
  const std::uint64_t start_ns = monotonic_ns();
  go = true;
  for (std::thread& one : threads) one.join();
  return {static_cast<double>(monotonic_ns() - start_ns) / operations, 0};
}

// ---- switching ----

struct bare_pair {
  fiber::context main;
  fiber::context other;
};

cost switch_bare(unsigned operations) {
  std::vector<std::byte> stack(64 << 10);
  bare_pair pair;
  pair.other.prepare(stack.data(), stack.size(), [](void* data) {
    auto& both = *static_cast<bare_pair*>(data);
    while (true) fiber::context::switch_to(both.other, both.main, nullptr, false);
  });
  return measure_here(operations, [&] {
    for (unsigned i = 0; i < operations; i += 2) fiber::context::switch_to(pair.main, pair.other, &pair, false);
  });
}

cost switch_fibers(unsigned operations) {
  return measure_on_fiber(operations, [operations](fiber::scheduler& workers) {
    fiber::handle other = workers.spawn([operations] {
      for (unsigned i = 0; i < operations / 2; ++i) fiber::yield();
    });
    for (unsigned i = 0; i < operations / 2; ++i) fiber::yield();
    other.join();
  });
}

cost switch_threads(unsigned operations) {
  return measure_threads(operations, 2, true, [operations](unsigned) {
    for (unsigned i = 0; i < operations / 2; ++i) sched_yield();
  });
}

// ---- spawning ----

cost spawn_fibers(unsigned operations) {
  return measure_on_fiber(operations, [operations](fiber::scheduler& workers) {
    for (unsigned i = 0; i < operations; ++i) workers.spawn([] {}).join();
  });
}

cost spawn_threads(unsigned operations) {
  return measure_here(operations, [operations] {
    for (unsigned i = 0; i < operations; ++i) std::thread([] {}).join();
  });
}

// ---- mutexes ----

// The holder of the mutex lets the others run, so that every lock finds it held and every unlock hands it over.
template <typename Mutex, typename Yield>
void pass_around(Mutex& lock, unsigned operations, Yield let_others_run) {
  for (unsigned i = 0; i < operations; ++i) {
    const std::lock_guard guard(lock);
    let_others_run();
  }
}

constexpr unsigned contenders = 4;

cost hand_over_fibers(unsigned operations) {
  return measure_on_fiber(operations, [operations](fiber::scheduler& workers) {
    fiber::mutex lock;
    std::vector<fiber::handle> all;
    for (unsigned i = 0; i < contenders; ++i) {
      all.push_back(workers.spawn([&] { pass_around(lock, operations / contenders, fiber::yield); }));
    }
    all.clear();
  });
}

cost hand_over_threads(unsigned operations) {
  std::mutex lock;
  return measure_threads(operations, contenders, true,
                         [&](unsigned) { pass_around(lock, operations / contenders, sched_yield); });
}

template <typename Mutex>
cost lock_alone(unsigned operations) {
  Mutex lock;
  return measure_here(operations, [&] { pass_around(lock, operations, [] { asm volatile("" ::: "memory"); }); });
}

// ---- channels ----

constexpr std::size_t channel_items = 64;

cost channel_fibers(unsigned operations, unsigned worker_count) {
  fiber::scheduler workers(with_workers(worker_count));
  fiber::channel<std::uint64_t> items(channel_items);
  const std::uint64_t start_ns = monotonic_ns();
  fiber::handle receiver = workers.spawn([&] {
    while (items.receive()) continue;
  });
  workers
      .spawn([&] {
        for (unsigned i = 0; i < operations; ++i) items.send(i);
        items.close();
      })
      .join();
  receiver.join();
  return {static_cast<double>(monotonic_ns() - start_ns) / operations, 0};
}

// The same with what the standard library has.
struct thread_channel {
  std::mutex lock;
  std::condition_variable room;
  std::condition_variable arrived;
  std::array<std::uint64_t, channel_items> items{};
  std::size_t first = 0;
  std::size_t count = 0;

  void send(std::uint64_t item) {
    std::unique_lock guard(lock);
    room.wait(guard, [this] { return count < items.size(); });
    items[(first + count++) % items.size()] = item;
    guard.unlock();
    arrived.notify_one();
  }
  std::uint64_t receive() {
    std::unique_lock guard(lock);
    arrived.wait(guard, [this] { return count > 0; });
    const std::uint64_t item = items[first];
    first = (first + 1) % items.size();
    --count;
    guard.unlock();
    room.notify_one();
    return item;
  }
};

cost channel_threads(unsigned operations) {
  thread_channel items;
  return measure_threads(operations, 2, false, [&](unsigned index) {
    for (unsigned i = 0; i < operations; ++i) index == 0 ? items.send(i) : static_cast<void>(items.receive());
  });
}

// ---- waking ----

// Each side wakes the other and waits for it; an operation is one wake.
template <typename Semaphore>
void answer_each_other(Semaphore& mine, Semaphore& others, unsigned operations, bool begins) {
  for (unsigned i = 0; i < operations / 2; ++i) {
    if (begins) others.release();
    mine.acquire();
    if (!begins) others.release();
  }
}

cost wake_fibers(unsigned operations, bool apart) {
  fiber::scheduler one(with_workers(1));
  fiber::scheduler two(with_workers(1));
  fiber::semaphore ping;
  fiber::semaphore pong;
  const std::uint64_t start_ns = monotonic_ns();
  fiber::handle first = one.spawn([&] { answer_each_other(ping, pong, operations, true); });
  (apart ? two : one).spawn([&] { answer_each_other(pong, ping, operations, false); }).join();
  first.join();
  return {static_cast<double>(monotonic_ns() - start_ns) / operations, 0};
}

cost wake_threads(unsigned operations) {
  std::counting_semaphore<> sides[2] = {std::counting_semaphore<>(0), std::counting_semaphore<>(0)};
  return measure_threads(operations, 2, false, [&](unsigned index) {
    answer_each_other(sides[index], sides[1 - index], operations, index == 0);
  });
}

// ---- waiting in a signal handler ----

std::atomic<fiber::waiter*> waits_in_handler;
fiber::semaphore* handler_waits;

void wait_in_handler(int /*signal*/) {
  fiber::waiter mine;
  waits_in_handler = &mine;
  handler_waits->release();
  static_cast<void>(mine.park_in_fault_handler());
}

// A signal as a fault raises it, on a fiber; its handler returns at once, or waits until another fiber wakes it.
cost signal_on_fiber(unsigned operations, bool waits) {
  fiber::semaphore wanted;
  handler_waits = &wanted;
  struct sigaction ours{};
  struct sigaction before{};
  ours.sa_handler = waits ? wait_in_handler : [](int) {};
  sigfillset(&ours.sa_mask);
  sigaction(SIGTRAP, &ours, &before);
  const cost found = measure_on_fiber(operations, [&](fiber::scheduler& workers) {
    fiber::handle far_tier = workers.spawn([&] {
      for (unsigned i = 0; waits && i < operations; ++i) wanted.acquire(), waits_in_handler.load()->wake();
    });
    for (unsigned i = 0; i < operations; ++i) raise(SIGTRAP);
    far_tier.join();
  });
  sigaction(SIGTRAP, &before, nullptr);
  return {found.elapsed_ns, 0};
}

// ---- missing ----

cost fault(unsigned operations, unsigned fibers) {
  const result<fault_cost> found = measure_faults(fibers, operations);
  if (!found) return {};
  return {found.value().elapsed_ns, 0, found.value().cpu_ns};
}

std::vector<measured> all_measured() {
  return {
      {"switch", "context only", 400'000, switch_bare},
      {"switch", fibers_name, 400'000, switch_fibers},
      {"switch", threads_name, 100'000, switch_threads},
      {"spawn_join", fibers_name, 100'000, spawn_fibers},
      {"spawn_join", threads_name, 2'000, spawn_threads},
      {"mutex_alone", fibers_name, 1'000'000, lock_alone<fiber::mutex>},
      {"mutex_alone", threads_name, 1'000'000, lock_alone<std::mutex>},
      {"mutex_hand_over", fibers_name, 200'000, hand_over_fibers},
      {"mutex_hand_over", threads_name, 20'000, hand_over_threads},
      {"channel", fibers_name, 400'000, [](unsigned n) { return channel_fibers(n, 1); }},
      {"channel", fibers_apart_name, 400'000, [](unsigned n) { return channel_fibers(n, 2); }},
      {"channel", threads_name, 100'000, channel_threads},
      {"wake", fibers_name, 200'000, [](unsigned n) { return wake_fibers(n, false); }},
      {"wake", fibers_apart_name, 20'000, [](unsigned n) { return wake_fibers(n, true); }},
      {"wake", threads_name, 20'000, wake_threads},
      {"signal", "handler returns", 50'000, [](unsigned n) { return signal_on_fiber(n, false); }},
      {"signal", "handler parks its fiber", 50'000, [](unsigned n) { return signal_on_fiber(n, true); }},
      {faults_workload, "1 fiber, 1 worker", 20'000, [](unsigned n) { return fault(n, 1); }},
      {faults_workload, "64 fibers, 1 worker", 200'000, [](unsigned n) { return fault(n, 64); }},
  };
}

}  // namespace

result<outcome> run_fiber(const settings& chosen) {
  const unsigned runs = chosen.runs != 0 ? chosen.runs : (chosen.quick ? 3 : 9);
  report figures("fiber");
  figures.set("runs", runs);
  const instruction_counter counter;
  if (!counter.works()) figures.skip("instructions", counter.why_not());
  const bool can_miss = platform::probe_kernel().userfaultfd;
  if (!can_miss) figures.skip(faults_workload, "no permission for userfaultfd");
  const std::vector<measured> list = all_measured();
  for (unsigned run = 0; run < runs; ++run) {
    fmt::print(stderr, "fiber: run {} of {}\n", run + 1, runs);
    for (const measured& one : list) {
      if (std::string(one.configuration).find(chosen.only) == std::string::npos) continue;
      if (one.workload == faults_workload && !can_miss) continue;
      const unsigned operations = chosen.quick ? one.operations / 10 : one.operations;
      const std::uint64_t cpu_ns = process_cpu_ns();
      const cost found = one.run(operations);
      if (found.elapsed_ns == 0) return error{"a far heap could not be made; `farheap doctor` says why", 0};
      const row_key key{one.workload, one.configuration, 1};
      figures.add(key, "elapsed_ns", found.elapsed_ns);
      const double all_cpu_ns = static_cast<double>(process_cpu_ns() - cpu_ns) / operations;
      figures.add(key, "cpu_ns", found.cpu_ns > 0 ? found.cpu_ns : all_cpu_ns);
      if (found.instructions > 0) figures.add(key, "instructions", found.instructions);
      if (stop_requested()) return error{"stopped by a signal", EINTR};
    }
  }
  table_layout layout;
  layout.columns = {{"elapsed_ns", "elapsed, ns", 1, 1}, {"cpu_ns", "CPU, ns", 1, 1}};
  if (counter.works()) layout.columns.push_back({"instructions", "instructions", 1, 1});
  layout.ratio_metric = "elapsed_ns";
  layout.baseline = threads_name;
  return outcome{std::move(figures), std::move(layout)};
}

}  // namespace far::bench
