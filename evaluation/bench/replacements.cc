// Whole replacements of pages, from and to far memory in this process: the design's choice and its alternatives. Each
// handles batches of 64 pages, scattered or as one run: 64 pages come in, the program accesses each, 64 pages leave.
#include <string.h>

#include <array>

#include "base/check.h"
#include "clocks.h"
#include "primitives.h"

#ifdef FAR_BENCH_XXHASH
#define XXH_INLINE_ALL
#include <xxhash.h>
#endif

namespace far::bench {

namespace {

// The program's use of a page while it is resident.
enum class access { read, read_then_write, write };

struct batch {
  std::vector<std::byte*> pages;  // one a page
  bool one_run = false;           // they are neighbours, in order
  access kind = access::read;

  // The ranges for calls that take runs.
  [[nodiscard]] std::size_t run_pages() const { return one_run ? pages.size() : 1; }
};

void access_all(const batch& current) {
  static std::uint64_t written = 0;  // a new value each time, so that every write changes its page
  for (std::byte* page : current.pages) {
    auto* word = reinterpret_cast<volatile std::uint64_t*>(page);
    if (current.kind != access::write) static_cast<void>(*word);
    if (current.kind != access::read) *word = ++written;
  }
}

template <typename Body>
void for_each_run(const batch& current, Body body) {
  const std::size_t step = current.run_pages();
  for (std::size_t i = 0; i < current.pages.size(); i += step) body(current.pages[i], i, step);
}

void drop_all(kernel_stage& stage, const batch& current) {
  if (current.one_run) {
    stage.drop({current.pages[0]}, current.pages.size());
  } else {
    stage.drop(current.pages, 1);
  }
}

// Fetch by COPY, protected when a read missed; evict clean pages by one drop, dirty pages by MOVE into staging.
void replace_chosen(kernel_stage& stage, const batch& current) {
  const bool protect = current.kind != access::write;
  for_each_run(current, [&](std::byte* page, std::size_t, std::size_t count) { stage.copy_in(page, count, protect); });
  access_all(current);  // a write to a protected page faults, inline
  if (current.kind == access::read) {
    drop_all(stage, current);
    return;
  }
  for_each_run(current, [&](std::byte* page, std::size_t i, std::size_t count) {
    stage.move(stage.staging_page(i), page, count);
  });
  memcpy(stage.next_far_run(batch_pages), stage.staging_page(0), batch_pages * page_bytes);
  stage.drop({stage.staging_page(0)}, batch_pages);
}

// Fetch by COPY, protected when a read missed; evict dirty pages by protecting them, writing them from where they are,
// and dropping them.
void replace_protect_drop(kernel_stage& stage, const batch& current) {
  const bool protect = current.kind != access::write;
  for_each_run(current, [&](std::byte* page, std::size_t, std::size_t count) { stage.copy_in(page, count, protect); });
  access_all(current);
  if (current.kind != access::read) {
    for_each_run(current,
                 [&](std::byte* page, std::size_t, std::size_t count) { stage.write_protect(page, count, true); });
    for (std::byte* page : current.pages) memcpy(stage.next_far_run(1), page, page_bytes);
  }
  drop_all(stage, current);
}

#ifdef FAR_BENCH_XXHASH
// Frames circulate by MOVE both ways; a hash tells whether a page changed.
void replace_move_hash(kernel_stage& stage, const batch& current) {
  std::array<XXH128_hash_t, batch_pages> hashes;
  for (std::size_t i = 0; i < batch_pages; ++i) {
    memcpy(stage.staging_page(i), stage.next_far_run(1), page_bytes);  // the backend's read
    hashes[i] = XXH3_128bits(stage.staging_page(i), page_bytes);
  }
  for_each_run(current, [&](std::byte* page, std::size_t i, std::size_t count) {
    stage.move(page, stage.staging_page(i), count);
  });
  access_all(current);
  for_each_run(current, [&](std::byte* page, std::size_t i, std::size_t count) {
    stage.move(stage.staging_page(i), page, count);
  });
  for (std::size_t i = 0; i < batch_pages; ++i) {
    const XXH128_hash_t now = XXH3_128bits(stage.staging_page(i), page_bytes);
    const bool same = XXH128_isEqual(now, hashes[i]) != 0;
    FAR_CHECK(same == (current.kind == access::read), "the hash misjudged a page");
    if (!same) memcpy(stage.next_far_run(1), stage.staging_page(i), page_bytes);
  }
}

// `resident` bytes are hot when they were just written, cold when they come from far memory.
double measure_hash(kernel_stage& stage, bool hot) {
  std::uint64_t sum = 0;
  const std::byte* same = stage.next_far_run(1);
  const std::uint64_t start = thread_cpu_ns();
  for (std::size_t i = 0; i < stage.pages(); ++i) {
    sum += XXH3_128bits(hot ? same : stage.next_far_run(1), page_bytes).low64;
  }
  const std::uint64_t end = thread_cpu_ns();
  FAR_CHECK(sum != 0, "every hash was zero");
  return static_cast<double>(end - start) / static_cast<double>(stage.pages());
}
#endif

using replacement = void (*)(kernel_stage&, const batch&);

double measure(kernel_stage& stage, replacement replace, bool one_run, access kind) {
  stage.empty_heap();
  stage.empty_staging();
  // Circulating frames are there from the start; other ways begin with empty staging.
#ifdef FAR_BENCH_XXHASH
  if (replace == replace_move_hash) stage.copy_in(stage.staging_page(0), batch_pages, false);
#endif
  stage.choose_guard(kernel_stage::guard::in_line, resolution::allow_write);
  batch current{{}, one_run, kind};
  const std::uint64_t start = thread_cpu_ns();
  for (std::size_t first = 0; first < stage.pages(); first += batch_pages) {
    current.pages.clear();
    for (std::size_t i = first; i < first + batch_pages; ++i) {
      current.pages.push_back(stage.heap_page(one_run ? i : stage.scattered()[i]));
    }
    replace(stage, current);
  }
  const std::uint64_t end = thread_cpu_ns();
  return static_cast<double>(end - start) / static_cast<double>(stage.pages());
}

void add_replacement(std::vector<primitive>& list, const std::string& name, replacement replace) {
  for (const bool one_run : {false, true}) {
    const std::string shape = one_run ? "a run of 64" : "64 scattered pages";
    for (const auto& [kind, title] :
         {std::pair{access::read, "read only"}, std::pair{access::read_then_write, "read, then written"},
          std::pair{access::write, "written at once"}}) {
      const access chosen = kind;
      list.push_back({"replacing " + shape + ", " + title, name,
                      [=](kernel_stage& stage) { return measure(stage, replace, one_run, chosen); }});
    }
  }
}

}  // namespace

void add_replacements(std::vector<primitive>& list) {
  add_replacement(list, chosen_replacement, replace_chosen);
  add_replacement(list, "COPY in; protect, write, drop", replace_protect_drop);
}

const char* add_hashing(std::vector<primitive>& list) {
#ifdef FAR_BENCH_XXHASH
  add_replacement(list, "MOVE in and out, hash both times", replace_move_hash);
  list.push_back({"other work for a page", "XXH3 of 128 bits, page in cache",
                  [](kernel_stage& stage) { return measure_hash(stage, true); }});
  list.push_back({"other work for a page", "XXH3 of 128 bits, page not in cache",
                  [](kernel_stage& stage) { return measure_hash(stage, false); }});
  return nullptr;
#else
  static_cast<void>(list);
  return "this build found no xxhash.h; install libxxhash-dev and build again";
#endif
}

}  // namespace far::bench
