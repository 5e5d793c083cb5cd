// madvise with every advice, mlock and its family.
#include <algorithm>
#include <cstring>

#include "world.h"

namespace memory_calls {
namespace {

struct advice {
  const char* name;
  int number;
  int weight;
};

// Newer than some C libraries' headers. MADV_HWPOISON and MADV_SOFT_OFFLINE are left out: they harm the machine.
constexpr advice advices[] = {
    {"normal", 0, 1},           {"random", 1, 1},          {"sequential", 2, 1},
    {"willneed", 3, 4},         {"dontneed", 4, 12},       {"free", 8, 6},
    {"remove", 9, 3},           {"dontfork", 10, 2},       {"dofork", 11, 2},
    {"mergeable", 12, 1},       {"unmergeable", 13, 1},    {"hugepage", 14, 2},
    {"nohugepage", 15, 1},      {"dontdump", 16, 1},       {"dodump", 17, 1},
    {"wipeonfork", 18, 3},      {"keeponfork", 19, 2},     {"cold", 20, 6},
    {"pageout", 21, 8},         {"populate-read", 22, 3},  {"populate-write", 23, 3},
    {"dontneed-locked", 24, 3}, {"collapse", 25, 1},       {"guard-install", 102, 3},
    {"guard-remove", 103, 3},   {"unknown-advice", 77, 1},
};

const advice& any_advice(world& w) {
  int total = 0;
  for (const advice& advice : advices) total += advice.weight;
  int at = static_cast<int>(w.random.below(static_cast<std::uint64_t>(total)));
  for (const advice& advice : advices) {
    if (at < advice.weight) return advice;
    at -= advice.weight;
  }
  return advices[0];
}

constexpr int advice_free = 8;
constexpr int advice_remove = 9;
constexpr int advice_dont_fork = 10;
constexpr int advice_do_fork = 11;
constexpr int advice_collapse = 25;
constexpr int advice_guard_install = 102;

// The kernel may take what is freed; the twin must not lose what the main copy may keep. A write cancels.
void keep_twin(const range& pages) {
  for (std::size_t page = 0; page < pages.count; ++page) {
    const page_record& record = pages.records()[page];
    if (record.state != page_state::owned || (record.protection & PROT_WRITE) == 0 || record.shared) continue;
    constexpr int populate_write = 23;
    kernel_call(SYS_madvise, pages.twin() + page * page_bytes, page_bytes, populate_write);
  }
}

}  // namespace

void advise(world& w) {
  const advice& chosen = any_advice(w);
  range pages;
  if (!allowed(w, chosen.name) || !pick_range(w, pages)) return;
  if (any_hole(pages) && !allowed(w, "holes")) return;
  if (chosen.number == advice_remove && w.frozen && any_shared(pages)) return;
  say(w, "%s, %zu pages at %p", chosen.name, pages.count, static_cast<void*>(pages.main()));
  const outcome main = main_madvise(w, pages.main(), pages.bytes(), chosen.number);
  const outcome twin = kernel_call(SYS_madvise, pages.twin(), pages.bytes(), chosen.number);
  // Whether there are huge pages to be had at this moment is nobody's promise.
  if (chosen.number != advice_collapse) {
    char text[64];
    std::strcpy(text, "madvise ");
    must_agree(w, std::strcat(text, chosen.name), main, twin);
  }
  for (std::size_t page = 0; page < pages.count; ++page) {
    page_record& record = pages.records()[page];
    if (record.state != page_state::owned) continue;
    if (chosen.number == advice_free && !record.shared) record.maybe_free = true;
    if (chosen.number == advice_guard_install) record.guarded = true;
    if (chosen.number == advice_dont_fork) record.dont_fork = true;
    if (chosen.number == advice_do_fork) record.dont_fork = false;
  }
  if (chosen.number == advice_free) keep_twin(pages);
  if (w.random.one_in(3)) verify_range(w, pages);
}

void lock(world& w) {
  range pages;
  if (!pick_range(w, pages)) return;
  constexpr std::size_t most_pages = 1024;
  pages.count = std::min(pages.count, most_pages);
  if (any_hole(pages) && !allowed(w, "holes")) return;
  if (w.random.one_in(3)) {
    say(w, "unlock %zu pages at %p", pages.count, static_cast<void*>(pages.main()));
    must_agree(w, "munlock", main_munlock(w, pages.main(), pages.bytes()),
               kernel_call(SYS_munlock, pages.twin(), pages.bytes()));
    return;
  }
  say(w, "%zu pages at %p", pages.count, static_cast<void*>(pages.main()));
  const outcome twin = kernel_call(SYS_mlock, pages.twin(), pages.bytes());
  const outcome main = main_mlock(w, pages.main(), pages.bytes());
  must_agree(w, "mlock", main, twin);
  verify_range(w, pages);
  // Most programs unlock soon. Locked memory cannot be evicted.
  if (!w.random.one_in(4)) {
    must_agree(w, "munlock", main_munlock(w, pages.main(), pages.bytes()),
               kernel_call(SYS_munlock, pages.twin(), pages.bytes()));
  }
}

void lock_all(world& w) {
  static constexpr int ways[] = {MCL_CURRENT | MCL_ONFAULT, MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT, MCL_CURRENT,
                                 MCL_FUTURE};
  const int way = ways[w.random.below(4)];
  if (!w.holes_are_safe) return;  // of the whole process: other threads compare what they may lock
  say(w, "flags %d", way);
  const outcome locked = library_call([&] { return ::mlockall(way); });
  if (!locked.ok() && locked.error != ENOMEM && locked.error != EAGAIN && locked.error != EPERM) {
    fail(w, "mlockall ends with errno %d", locked.error);
  }
  for (std::uint64_t step = w.random.below(3); step > 0; --step) {
    if (w.random.one_in(2)) {
      map_area(w);
    } else {
      write(w);
    }
  }
  const outcome unlocked = library_call([] { return ::munlockall(); });
  if (!unlocked.ok()) fail(w, "munlockall ends with errno %d", unlocked.error);
}

}  // namespace memory_calls
