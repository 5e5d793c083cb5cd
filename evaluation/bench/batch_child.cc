// Taking pages out in batches of a given size, for `farheap-bench eden`: the engine's own eviction on real memory, by
// one thread, with no program and no other thread of the runtime beside it.
#include <string.h>
#include <sys/mman.h>

#include <memory>
#include <mutex>

#include "backend/backend.h"
#include "base/check.h"
#include "clocks.h"
#include "common/json.h"
#include "engine/engine.h"
#include "heap_bench.h"
#include "platform/far_address_space.h"

namespace far::bench {
namespace {

// A virtual machine's host puts memory behind frames and slots that are used for the first time.
constexpr unsigned warm_up_passes = 2;

struct batch_plan {
  std::size_t pages = 0;
  std::size_t pages_a_batch = 1;
  bool dirty = false;
  bool neighbours = false;  // else no two of them are, and the kernel sees every page as a range of its own
  unsigned passes = 1;

  [[nodiscard]] std::size_t stride() const { return neighbours ? 1 : 2; }
  [[nodiscard]] engine::page_range heap() const { return {0, pages * stride()}; }
};

struct heap_release {
  std::uint64_t bytes;
  void operator()(std::byte* base) const { platform::far_address_space::release(base, bytes); }
};

// Makes the pages resident: zeros that were only read, or written to.
void fill(engine::engine& far, engine::fetcher& fetcher, const batch_plan& plan) {
  engine::read_ahead_state streams;
  const far::lock_guard guard(fetcher.lock);
  for (engine::page_id page = 0; page < plan.heap().end(); page += plan.stride()) {
    if (far.view().accessible(page, plan.dirty)) continue;
    const engine::outcome filled = far.misses().handle(fetcher, streams, page, plan.dirty);
    FAR_CHECK(filled == engine::outcome::resolved, "an untouched page within the budget can always be filled");
  }
}

struct eviction_cost {
  double elapsed_ns = 0;
  double cpu_ns = 0;
};

// Fills the heap, evicts all of it, and forgets it; only the eviction is measured.
void pass(engine::engine& far, engine::fetcher& fetcher, const batch_plan& plan, eviction_cost& sum) {
  fill(far, fetcher, plan);
  const std::uint64_t cpu_before = thread_cpu_ns();
  const std::uint64_t start_ns = monotonic_ns();
  far.eviction().evict(plan.heap(), plan.pages_a_batch);
  sum.elapsed_ns += static_cast<double>(monotonic_ns() - start_ns);
  sum.cpu_ns += static_cast<double>(thread_cpu_ns() - cpu_before);
  far.ranges().discard(plan.heap());
}

result<evaluation::json> measure(engine::engine& far, const batch_plan& plan) {
  const result<engine::fetcher*> fetcher = far.transfers().add_fetcher();
  if (!fetcher) return fetcher.error();
  const result<void> allocated = far.ranges().allocate_guarded(plan.heap());
  if (!allocated) return allocated.error();
  eviction_cost ignored;
  eviction_cost sum;
  for (unsigned i = 0; i < warm_up_passes; ++i) pass(far, *fetcher.value(), plan, ignored);
  const engine::statistics before = far.snapshot();
  for (unsigned i = 0; i < plan.passes; ++i) pass(far, *fetcher.value(), plan, sum);
  const engine::statistics after = far.snapshot();
  const std::size_t wanted = plan.pages * plan.passes;
  if (after.evicted_pages - before.evicted_pages != wanted ||
      after.written_pages - before.written_pages != (plan.dirty ? wanted : 0)) {
    return error{"other pages were evicted or written than should be", EPROTO};
  }
  const auto pages = static_cast<double>(wanted);
  return evaluation::json{{"evicted_pages_per_s", pages / sum.elapsed_ns * 1e9},
                          {"cpu_ns_per_page", sum.cpu_ns / pages}};
}

}  // namespace

result<evaluation::json> batch_child(const evaluation::json& assignment) {
  const batch_plan plan{.pages = assignment.at("pages").get<std::size_t>(),
                        .pages_a_batch = assignment.at("pages_a_batch").get<std::size_t>(),
                        .dirty = assignment.at("dirty").get<bool>(),
                        .neighbours = assignment.at("neighbours").get<bool>(),
                        .passes = assignment.at("passes").get<unsigned>()};
  const platform::kernel_features& features = platform::probe_kernel();
  if (!features.write_protect) return error{"clean pages are known only with write-protection by userfaultfd", ENOTSUP};
  result<platform::userfaultfd> faults = platform::userfaultfd::open(features, true);
  if (!faults) return faults.error();
  result<std::unique_ptr<backend::backend>> tier = backend::open(assignment.at("far_uri").get<std::string>());
  if (!tier) return tier.error();
  const std::uint64_t heap_bytes = round_up(plan.heap().count * page_bytes, 2 * mib);
  const result<std::byte*> base = platform::far_address_space::reserve(heap_bytes);
  if (!base) return base.error();
  const std::unique_ptr<std::byte, heap_release> heap(base.value(), heap_release{heap_bytes});
  if (mprotect(heap.get(), heap_bytes, PROT_READ | PROT_WRITE) != 0) return error{strerror(errno), errno};
  platform::far_address_space space(platform::heap_layout(heap.get(), heap_bytes), faults.value(), features);
  const platform::monotonic_clock clock;
  const auto far =
      engine::engine::create(space, *tier.value(), clock,
                             {.heap_pages = heap_bytes / page_bytes, .budget_pages = 2 * heap_bytes / page_bytes});
  if (!far) return far.error();
  return measure(*far.value(), plan);
}

}  // namespace far::bench
