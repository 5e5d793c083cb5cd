// `farheap-bench primitives`: the costs of the kernel's primitives for a page of 4 KiB, and of whole replacements built
// from them. The design's way of moving pages is chosen from these figures (docs/decisions/0001-moving-pages.md).
#include <fmt/format.h>
#include <string.h>
#include <sys/mman.h>

#include <functional>
#include <thread>

#include "base/check.h"
#include "benchmark.h"
#include "clocks.h"
#include "kernel_stage.h"
#include "primitives.h"

namespace far::bench {

namespace {

// Runs `body` on every page in scattered order; returns nanoseconds a page, by the clock given.
template <typename Body>
double for_scattered(kernel_stage& stage, Body body, std::uint64_t (*clock_ns)() = thread_cpu_ns) {
  const std::uint64_t start = clock_ns();
  for (const std::uint32_t page : stage.scattered()) body(stage.heap_page(page), page);
  return static_cast<double>(clock_ns() - start) / static_cast<double>(stage.pages());
}

// Runs `body` on every run of `run_pages`, in address order; returns nanoseconds a page.
template <typename Body>
double for_runs(kernel_stage& stage, std::size_t run_pages, Body body) {
  const std::uint64_t start = thread_cpu_ns();
  for (std::size_t i = 0; i < stage.pages(); i += run_pages) body(i);
  return static_cast<double>(thread_cpu_ns() - start) / static_cast<double>(stage.pages());
}

double measure_copy(kernel_stage& stage, std::size_t run_pages, bool write_protected) {
  stage.empty_heap();
  if (run_pages == 1) {
    return for_scattered(stage, [&](std::byte* page, std::size_t) { stage.copy_in(page, 1, write_protected); });
  }
  return for_runs(stage, run_pages,
                  [&](std::size_t i) { stage.copy_in(stage.heap_page(i), run_pages, write_protected); });
}

double measure_move(kernel_stage& stage, std::size_t run_pages, bool out) {
  stage.fill_heap(false);
  stage.empty_staging();
  const auto pass = [&](bool outwards) {
    const auto one = [&](std::size_t i, std::size_t count) {
      std::byte* to = outwards ? stage.staging_page(i) : stage.heap_page(i);
      std::byte* from = outwards ? stage.heap_page(i) : stage.staging_page(i);
      stage.move(to, from, count);
    };
    if (run_pages == 1) return for_scattered(stage, [&](std::byte*, std::size_t i) { one(i, 1); });
    return for_runs(stage, run_pages, [&](std::size_t i) { one(i, run_pages); });
  };
  const double outwards_ns = pass(true);
  return out ? outwards_ns : pass(false);
}

// As for_scattered(), but `body` gets batches of pages.
template <typename Body>
double for_scattered_batches(kernel_stage& stage, Body body) {
  std::vector<std::byte*> batch;
  return for_scattered(stage, [&](std::byte* page, std::size_t) {
    batch.push_back(page);
    if (batch.size() < batch_pages) return;
    body(batch);
    batch.clear();
  });
}

double measure_drop_scattered(kernel_stage& stage, std::size_t pages_a_call) {
  stage.fill_heap(false);
  if (pages_a_call == 1) {
    return for_scattered(stage, [&](std::byte* page, std::size_t) { stage.drop_one(page); });
  }
  return for_scattered_batches(stage, [&](const std::vector<std::byte*>& batch) { stage.drop(batch, 1); });
}

// A page that nobody can write to meanwhile.
double measure_copy_out(kernel_stage& stage) {
  stage.fill_heap(false);
  stage.empty_staging();
  return for_scattered(stage, [&](std::byte* page, std::size_t i) { stage.copy_out(stage.staging_page(i), page); });
}

double measure_read_out(kernel_stage& stage) {
  stage.fill_heap(false);
  return for_scattered_batches(stage, [&](const std::vector<std::byte*>& batch) { stage.read_out(batch); });
}

double measure_drop_run(kernel_stage& stage) {
  stage.fill_heap(false);
  return for_runs(stage, batch_pages, [&](std::size_t i) { stage.drop({stage.heap_page(i)}, batch_pages); });
}

double measure_protect(kernel_stage& stage, std::size_t run_pages, bool protect) {
  stage.fill_heap(!protect);
  if (run_pages == 1) {
    return for_scattered(stage, [&](std::byte* page, std::size_t) { stage.write_protect(page, 1, protect); });
  }
  return for_runs(stage, run_pages,
                  [&](std::size_t i) { stage.write_protect(stage.heap_page(i), run_pages, protect); });
}

double measure_fault(kernel_stage& stage, kernel_stage::guard guard, resolution how) {
  stage.empty_heap();
  stage.choose_guard(guard, how);
  if (how == resolution::allow_write) stage.fill_heap(true);
  const double page_ns = for_scattered(
      stage, [&](std::byte* page, std::size_t) { *static_cast<volatile std::byte*>(page) = std::byte{1}; },
      guard == kernel_stage::guard::in_line ? thread_cpu_ns : monotonic_ns);
  stage.empty_heap();
  stage.choose_guard(kernel_stage::guard::in_line, resolution::copy_page);
  return page_ns;
}

// Of the pages of a span, every fourth is resident and dirty, and every `share`-th of those leaves. The whole span is
// write-protected by one call, whatever lies in between; its victims are copied and dropped; the rest is allowed again.
double measure_protected_span(kernel_stage& stage, std::size_t share) {
  constexpr std::size_t sparseness = 4;
  stage.empty_heap();
  stage.empty_staging();
  stage.choose_guard(kernel_stage::guard::in_line, resolution::allow_write);
  for (std::size_t i = 0; i < stage.pages(); i += sparseness) stage.copy_in(stage.heap_page(i), 1, false);
  const std::size_t span = batch_pages * sparseness * share;
  FAR_CHECK(stage.pages() % span == 0, "the spans do not fill the heap");
  std::vector<std::byte*> victims;
  const std::uint64_t start_ns = thread_cpu_ns();
  for (std::size_t first = 0; first < stage.pages(); first += span) {
    victims.clear();
    for (std::size_t i = first; i < first + span; i += sparseness * share) victims.push_back(stage.heap_page(i));
    stage.write_protect(stage.heap_page(first), span, true);
    for (std::byte* page : victims) memcpy(stage.next_far_run(1), page, page_bytes);
    stage.drop(victims, 1);
    stage.write_protect(stage.heap_page(first), span, false);
  }
  const std::uint64_t end_ns = thread_cpu_ns();
  return static_cast<double>(end_ns - start_ns) / static_cast<double>(stage.pages() / sparseness / share);
}

double measure_memcpy(kernel_stage& stage) {
  stage.fill_heap(false);
  return for_scattered(stage, [&](std::byte* page, std::size_t) { memcpy(page, stage.next_far_run(1), page_bytes); });
}

double measure_pagemap(kernel_stage& stage) {
  stage.fill_heap(false);
  std::uint64_t seen = 0;
  const double page_ns =
      for_runs(stage, 512, [&](std::size_t i) { seen |= stage.read_pagemap(stage.heap_page(i), 512); });
  FAR_CHECK((seen >> 63) == 1, "pagemap shows no page of a full heap");
  return page_ns;
}

// One block of 2 MiB starts and stops being guarded while its neighbours stay as they are.
double measure_guard_block(kernel_stage& stage) {
  constexpr std::size_t block_bytes = 2 * mib;
  constexpr std::size_t blocks = 16;
  void* area = mmap(nullptr, blocks * block_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  FAR_CHECK(area != MAP_FAILED, "no memory for blocks");
  madvise(area, blocks * block_bytes, MADV_NOHUGEPAGE);
  memset(area, 1, blocks * block_bytes);
  const std::uint64_t start_ns = thread_cpu_ns();
  for (std::size_t i = 0; i < blocks; i += 2) {
    const auto start = reinterpret_cast<std::uintptr_t>(area) + i * block_bytes;
    FAR_CHECK(stage.current_guard().register_range(start, block_bytes, true) == 0, "cannot guard a block");
    FAR_CHECK(stage.current_guard().unregister_range(start, block_bytes) == 0, "cannot stop guarding a block");
  }
  const std::uint64_t end_ns = thread_cpu_ns();
  munmap(area, blocks * block_bytes);
  return static_cast<double>(end_ns - start_ns) / static_cast<double>(blocks / 2) /
         static_cast<double>(block_bytes / page_bytes);
}

void add_moving(std::vector<primitive>& list) {
  for (const std::size_t run : {std::size_t{1}, std::size_t{16}, std::size_t{64}}) {
    const std::string pages = run == 1 ? "1 scattered page a call" : fmt::format("run of {} pages a call", run);
    const std::string fetch = "moving pages in";
    const std::string evict = "moving pages out";
    list.push_back({fetch, "UFFDIO_COPY, " + pages, [=](kernel_stage& s) { return measure_copy(s, run, false); }});
    list.push_back(
        {fetch, "UFFDIO_COPY protected, " + pages, [=](kernel_stage& s) { return measure_copy(s, run, true); }});
    list.push_back({fetch, "UFFDIO_MOVE in, " + pages, [=](kernel_stage& s) { return measure_move(s, run, false); }});
    list.push_back({evict, "UFFDIO_MOVE out, " + pages, [=](kernel_stage& s) { return measure_move(s, run, true); }});
  }
}

std::vector<primitive> single_primitives() {
  using guard = kernel_stage::guard;
  std::vector<primitive> list;
  add_moving(list);
  const std::string evict = "moving pages out";
  list.push_back({evict, "UFFDIO_COPY out, 1 scattered page a call", measure_copy_out});
  list.push_back({evict, "process_vm_readv out, 64 scattered", measure_read_out});
  list.push_back({evict, "madvise DONTNEED, 1 page", [](kernel_stage& s) { return measure_drop_scattered(s, 1); }});
  list.push_back(
      {evict, "process_madvise, 64 scattered", [](kernel_stage& s) { return measure_drop_scattered(s, batch_pages); }});
  list.push_back({evict, "process_madvise, run of 64", measure_drop_run});
  for (const std::size_t share : {1, 2, 4}) {
    list.push_back({evict, fmt::format("span protected, one resident page in {} out", share),
                    [=](kernel_stage& s) { return measure_protected_span(s, share); }});
  }
  const std::string protect = "write-protection";
  for (const std::size_t run : {std::size_t{1}, batch_pages}) {
    const std::string pages = run == 1 ? "1 scattered page a call" : "run of 64 pages a call";
    list.push_back({protect, "protect, " + pages, [=](kernel_stage& s) { return measure_protect(s, run, true); }});
    list.push_back({protect, "allow, " + pages, [=](kernel_stage& s) { return measure_protect(s, run, false); }});
  }
  const std::string fault = "faults, with their resolution";
  for (const auto& [who, name] :
       {std::pair{guard::in_line, "inline"}, std::pair{guard::sleeping_thread, "thread, poll"},
        std::pair{guard::spinning_thread, "thread, spinning"}}) {
    const guard chosen = who;
    list.push_back({fault, fmt::format("miss, COPY, {}", name),
                    [=](kernel_stage& s) { return measure_fault(s, chosen, resolution::copy_page); },
                    who == guard::in_line});
    list.push_back({fault, fmt::format("first write, {}", name),
                    [=](kernel_stage& s) { return measure_fault(s, chosen, resolution::allow_write); },
                    who == guard::in_line});
  }
  const std::string other = "other work for a page";
  list.push_back({other, "memcpy from cold memory", measure_memcpy});
  list.push_back({other, "pagemap, 512 entries a call", measure_pagemap});
  list.push_back({other, "guard and unguard 2 MiB blocks", measure_guard_block});
  return list;
}

// One sample of everything, into `kept` if it is there; beside `other` if it is there.
void measure_all(kernel_stage& stage, const std::vector<primitive>& list, neighbour* other, report* kept) {
  for (const primitive& one : list) {
    if (other != nullptr && !one.beside_neighbour) continue;
    const std::uint64_t start_ns = monotonic_ns();
    const std::uint64_t other_start_ns = other != nullptr ? other->cpu_ns() : 0;
    const double page_ns = one.measure(stage);
    if (kept == nullptr) continue;
    const row_key key{one.group, one.name, other != nullptr ? 2 : 1};
    kept->add(key, "page_ns", page_ns);
    if (other == nullptr) continue;
    const auto other_ns = static_cast<double>(other->cpu_ns() - other_start_ns);
    kept->add(key, "neighbour_share", other_ns / static_cast<double>(monotonic_ns() - start_ns));
  }
}

}  // namespace

result<outcome> run_primitives(const settings& chosen) {
  const std::size_t pages = chosen.quick ? 1024 : 4096;
  const unsigned runs = chosen.runs != 0 ? chosen.runs : (chosen.quick ? 3 : 15);
  auto opened = kernel_stage::open(pages);
  if (!opened) return opened.error();
  kernel_stage& stage = *opened.value();
  report figures("primitives");
  figures.set("runs", runs);
  figures.set("pages_per_sample", static_cast<double>(pages));
  std::vector<primitive> list = single_primitives();
  add_replacements(list);
  if (const char* reason = add_hashing(list)) figures.skip("XXH3 of a page, and replacement with a hash", reason);
  std::erase_if(list, [&](const primitive& one) { return one.name.find(chosen.only) == std::string::npos; });
  const bool can_have_neighbour = std::thread::hardware_concurrency() >= 2;
  if (!can_have_neighbour) figures.skip("beside another thread", "needs two processors");
  for (unsigned run = 0; run <= runs && !stop_requested(); ++run) {
    report* kept = run > 0 ? &figures : nullptr;  // the first run warms up
    measure_all(stage, list, nullptr, kept);
    if (can_have_neighbour) {
      neighbour other;
      measure_all(stage, list, &other, kept);
    }
    fmt::print(stderr, "\rprimitives: run {} of {}", run, runs);
  }
  fmt::print(stderr, "\n");
  if (stop_requested()) return error{"stopped by a signal", 0};
  figures.note(
      "CPU time of the calling thread, for one page of 4 KiB; elapsed time where a thread resolves faults; with 2 "
      "threads, the other one computes meanwhile, so that the page table's changes must interrupt its processor");
  return outcome{
      std::move(figures),
      {{{"page_ns", "ns/page", 1, 0}, {"neighbour_share", "other ran", 1, 2}}, "page_ns", chosen_replacement}};
}

}  // namespace far::bench
