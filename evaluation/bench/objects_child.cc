// One configuration of `farheap-bench objects` and one size of objects, in a process of its own: far objects and
// fibers, or plain memory and threads, which the kernel may swap.
#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/units.h"
#include "clocks.h"
#include "common/json.h"
#include "far/runtime.h"
#include "far/scope.h"
#include "far/unique_ptr.h"
#include "fiber/scheduler.h"
#include "heap_bench.h"
#include "sealed_object.h"
#include "system_file.h"

namespace far::bench {

namespace {

enum class operation { read, read_modify_write };

constexpr std::size_t accesses_between_looks = 16;  // at the clock
constexpr std::uint64_t longest_warm_up_ns = 20'000'000'000;

// Lanes (fibers or threads) use all objects: one that runs for long without a miss must not find all of its own local.
// So a writer locks the object, while it is local; nobody waits for a miss with a lock held, or rarely, on a thread.
class object_locks {
 public:
  template <typename Body>
  void with(std::size_t number, const Body& body) {
    std::atomic_flag& mine = locks_[number % locks_.size()];
    while (mine.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
    body();
    mine.clear(std::memory_order_release);
  }

 private:
  std::vector<std::atomic_flag> locks_ = std::vector<std::atomic_flag>(1 << 16);
};

std::uint64_t kernel_cpu_ns_or_zero() {
  const result<std::uint64_t> measured = kernel_threads_cpu_ns();
  return measured ? measured.value() : 0;
}

// Far objects, and fibers.
template <std::size_t bytes>
class far_objects {
 public:
  far_objects(const evaluation::json& assignment, std::size_t count)
      : runtime_(options_for(assignment)), objects_(count) {
    // All lanes help, as the far tier takes its time.
    constexpr unsigned fillers = 16;
    run_lanes(fillers, [&](unsigned lane) {
      for (std::size_t i = lane * count / fillers; i < (lane + 1) * count / fillers; ++i) {
        objects_[i] = far::make_unique<sealed_object<bytes>>(runtime_, i);
      }
    });
  }

  [[nodiscard]] std::size_t count() const { return objects_.size(); }

  void access(std::size_t number, operation kind) {
    const far::scope here(runtime_);
    if (kind == operation::read) {
      objects_[number].deref(here).check(number);
    } else {
      sealed_object<bytes>& one = objects_[number].deref_mut(here);
      locks_.with(number, [&] { one.rewrite(number); });
    }
  }

  void run_lanes(unsigned lanes, const std::function<void(unsigned)>& body) {
    std::vector<fiber::handle> running;
    for (unsigned lane = 0; lane < lanes; ++lane) {
      running.push_back(runtime_.fibers().spawn([&body, lane] { body(lane); }));
    }
    for (fiber::handle& one : running) one.join();
  }

  [[nodiscard]] transfer_counts counters() const { return count_transfers(runtime_); }

 private:
  static far::runtime_options options_for(const evaluation::json& assignment) {
    far::runtime_options chosen;
    chosen.local_bytes = assignment.at("local_bytes").get<std::size_t>();
    chosen.far = assignment.at("far_uri").get<std::string>();
    chosen.address_bytes = assignment.value("address_bytes", std::size_t{0});
    chosen.page_path_share = assignment.at("page_path_share").get<double>();
    return chosen;
  }

  far::runtime runtime_;
  std::vector<far::unique_ptr<sealed_object<bytes>>> objects_;
  object_locks locks_;
};

// Plain memory, and threads.
template <std::size_t bytes>
class near_objects {
 public:
  using object = sealed_object<bytes>;

  near_objects(const evaluation::json& /*assignment*/, std::size_t count)
      : count_(count), mapped_bytes_(count * sizeof(object)) {
    void* const mapped =
        mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) throw std::runtime_error(fmt::format("cannot map the objects: {}", strerror(errno)));
    madvise(mapped, mapped_bytes_, MADV_NOHUGEPAGE);  // huge pages would come and go whole
    objects_ = static_cast<object*>(mapped);
    for (std::size_t i = 0; i < count; ++i) new (&objects_[i]) object(i);
  }
  ~near_objects() { munmap(objects_, mapped_bytes_); }
  near_objects(const near_objects&) = delete;
  near_objects& operator=(const near_objects&) = delete;

  [[nodiscard]] std::size_t count() const { return count_; }

  void access(std::size_t number, operation kind) {
    if (kind == operation::read) {
      objects_[number].check(number);
    } else {
      static_cast<void>(*static_cast<volatile std::uint64_t*>(objects_[number].word.data()));
      locks_.with(number, [&] { objects_[number].rewrite(number); });
    }
  }

  void run_lanes(unsigned lanes, const std::function<void(unsigned)>& body) {
    std::vector<std::thread> running;
    for (unsigned lane = 0; lane < lanes; ++lane) running.emplace_back([&body, lane] { body(lane); });
    for (std::thread& one : running) one.join();
  }

  [[nodiscard]] transfer_counts counters() const { return {}; }

 private:
  std::size_t count_;
  std::size_t mapped_bytes_;
  object* objects_ = nullptr;
  object_locks locks_;
};

// The figures of a pass.
struct pass {
  std::uint64_t accesses = 0;
  std::uint64_t elapsed_ns = 0;
  std::uint64_t cpu_ns = 0;
  std::uint64_t kernel_cpu_ns = 0;
};

// Uniformly random accesses by all lanes until the time is over, or so many were done.
template <typename Objects>
pass run_pass(Objects& over, unsigned lanes, operation kind, std::uint64_t for_ns, std::uint64_t most_accesses,
              std::uint64_t seed) {
  std::atomic<std::uint64_t> done = 0;
  const std::uint64_t kernel_before = kernel_cpu_ns_or_zero();
  const std::uint64_t cpu_before = process_cpu_ns();
  const std::uint64_t start = monotonic_ns();
  over.run_lanes(lanes, [&](unsigned lane) {
    random_numbers random(seed * 1000 + lane);
    std::uint64_t mine = 0;
    do {
      for (std::size_t i = 0; i < accesses_between_looks; ++i) over.access(random.below(over.count()), kind);
      mine += accesses_between_looks;
    } while (mine < most_accesses / lanes && monotonic_ns() - start < for_ns);
    done.fetch_add(mine);
  });
  pass found;
  found.elapsed_ns = monotonic_ns() - start;
  found.accesses = done.load();
  found.cpu_ns = process_cpu_ns() - cpu_before;
  const std::uint64_t kernel_after = kernel_cpu_ns_or_zero();
  found.kernel_cpu_ns = kernel_after > kernel_before ? kernel_after - kernel_before : 0;  // threads may have ended
  return found;
}

template <typename Objects>
evaluation::json measure(Objects& over, const evaluation::json& assignment) {
  const auto pass_ns = assignment.at("pass_ns").get<std::uint64_t>();
  // Until what is local is what random accesses leave there.
  static_cast<void>(run_pass(over, assignment.at("warm_up_lanes").get<unsigned>(), operation::read, longest_warm_up_ns,
                             over.count() / 2, 1));
  evaluation::json passes = evaluation::json::array();
  std::uint64_t seed = 2;
  for (const unsigned lanes : assignment.at("lanes").get<std::vector<unsigned>>()) {
    for (const operation kind : {operation::read, operation::read_modify_write}) {
      const transfer_counts before = over.counters();
      const pass found = run_pass(over, lanes, kind, pass_ns, ~std::uint64_t{0}, seed++);
      const auto accesses = static_cast<double>(found.accesses);
      evaluation::json metrics = {
          {"accesses_per_s", accesses / static_cast<double>(found.elapsed_ns) * 1e9},
          {"cpu_ns_per_access", static_cast<double>(found.cpu_ns) / accesses},
          {"kernel_thread_cpu_ns_per_access", static_cast<double>(found.kernel_cpu_ns) / accesses}};
      add_transfers(before, over.counters(), accesses, metrics);
      passes.push_back({{"operation", kind == operation::read ? "read" : "read-modify-write"},
                        {"lanes", lanes},
                        {"metrics", std::move(metrics)}});
    }
  }
  return passes;
}

template <template <std::size_t> typename Objects>
evaluation::json measure_size(const evaluation::json& assignment) {
  const auto size = assignment.at("object_bytes").get<std::size_t>();
  const std::size_t count = assignment.at("bytes").get<std::size_t>() / size;
  const auto run = [&]<std::size_t bytes>() {
    Objects<bytes> objects(assignment, count);
    return measure(objects, assignment);
  };
  switch (size) {
    case 64: return run.template operator()<64>();
    case 256: return run.template operator()<256>();
    case 1024: return run.template operator()<1024>();
    default: return run.template operator()<4096>();
  }
}

}  // namespace

result<evaluation::json> objects_child(const evaluation::json& assignment) {
  const std::string members_file = assignment.at("cgroup_members_file").get<std::string>();
  if (!members_file.empty()) {
    const result<void> joined = write_system_file(members_file, std::to_string(getpid()));
    if (!joined) return joined.error();
  }
  return assignment.at("far_uri").get<std::string>().empty() ? measure_size<near_objects>(assignment)
                                                             : measure_size<far_objects>(assignment);
}

}  // namespace far::bench
