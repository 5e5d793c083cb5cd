#include "fiber_faults.h"

#include <sys/mman.h>

#include <memory>
#include <random>
#include <vector>

#include "clocks.h"
#include "fiber/scheduler.h"
#include "heap/fiber_misses.h"
#include "pager/pager.h"

namespace far::bench {
namespace {

constexpr std::uint64_t budget_bytes = 32 * mib;
constexpr std::size_t heap_bytes = 8 * budget_bytes;
constexpr std::size_t heap_pages = heap_bytes / page_bytes;

// Runs `body(number)` on `count` fibers and waits for them.
template <typename Body>
void run_fibers(fiber::scheduler& workers, unsigned count, const Body& body) {
  std::vector<fiber::handle> all;
  for (unsigned i = 0; i < count; ++i) all.push_back(workers.spawn([&body, i] { body(i); }));
}

void read_at_random(const std::byte* start, unsigned seed, unsigned accesses) {
  std::mt19937_64 random(seed);
  for (unsigned i = 0; i < accesses; ++i) {
    static_cast<void>(*static_cast<const volatile std::byte*>(start + random() % heap_pages * page_bytes));
  }
}

fault_cost measure(fiber::scheduler& workers, const pager::pager& far, const std::byte* start, unsigned fibers,
                   unsigned accesses) {
  const std::uint64_t misses = far.snapshot().misses;
  const std::uint64_t cpu_ns = process_cpu_ns();
  const std::uint64_t start_ns = monotonic_ns();
  run_fibers(workers, fibers, [&](unsigned self) { read_at_random(start, self + 1, accesses / fibers); });
  const auto elapsed_ns = static_cast<double>(monotonic_ns() - start_ns);
  const auto all_cpu_ns = static_cast<double>(process_cpu_ns() - cpu_ns);
  const auto missed = static_cast<double>(far.snapshot().misses - misses);
  return {elapsed_ns / missed, all_cpu_ns / missed};
}

}  // namespace

result<fault_cost> measure_faults(unsigned fibers, unsigned accesses) {
  fiber::scheduler_options one_worker;
  one_worker.workers = 1;
  fiber::scheduler workers(one_worker);
  heap::fiber_misses misses(workers);
  pager::options chosen;
  chosen.budget_bytes = budget_bytes;
  chosen.mode = pager::fault_mode::in_line;
  chosen.far_uri = "memory:?latency=20us";
  chosen.fibers = &misses;
  result<std::unique_ptr<pager::pager>> created = pager::pager::create(chosen);
  if (!created) return created.error();
  const std::unique_ptr<pager::pager> far = std::move(created).value();
  misses.serve(*far);
  const result<std::byte*> mapped = far->map(heap_bytes, PROT_READ | PROT_WRITE, page_bytes);
  if (!mapped) return mapped.error();
  std::byte* const start = mapped.value();
  run_fibers(workers, 1, [&](unsigned) {
    for (std::size_t page = 0; page < heap_pages; ++page) start[page * page_bytes] = std::byte{1};
  });
  // So that most pages have been evicted since they were written, and are clean.
  run_fibers(workers, fibers, [&](unsigned self) { read_at_random(start, 1000 + self, heap_pages / fibers); });
  const fault_cost found = measure(workers, *far, start, fibers, accesses);
  misses.stop();
  return found;
}

}  // namespace far::bench
