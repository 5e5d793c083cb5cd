// Scenarios of mapper: memory that moves with its guards, calls that limits refuse, ranges without end.
#include <atomic>
#include <thread>

#include "mapper_tools.h"

namespace mapper {
namespace {

constexpr std::size_t part = 8 * page;

// "fault" or "readable" for each eighth of 64 pages.
std::string accesses(const char* at) {
  std::string all;
  for (std::size_t i = 0; i < 8; ++i) all += std::strcmp(access(at + i * part), "fault") == 0 ? 'x' : '-';
  return all;
}

// 64 pages, of which those from the third eighth on and the last eighth are guarded.
char* with_guards(bool pressed) {
  char* const block = map_aligned(2 * mib);
  munmap(block + 8 * part, 2 * mib - 8 * part);
  fill(block, 8 * part, 30);
  if (pressed) press();
  say("guards", madvise(block + 2 * part, part, MADV_GUARD_INSTALL));
  say("guards at the end", madvise(block + 7 * part, part, MADV_GUARD_INSTALL));
  return block;
}

}  // namespace

void guards_moved() {
  for (const bool pressed : {false, true}) {
    char* block = with_guards(pressed);
    say("grows in place", mremap(block, 8 * part, 16 * part, 0));
    say("the tail of it is", accesses(block + 8 * part));
    say("holds", content(block + 8 * part, 8 * part, 0));
    char* const grown = static_cast<char*>(mremap(block, 16 * part, 4 * mib, MREMAP_MAYMOVE));
    say("grows, and moves", grown);
    say("it is", accesses(grown));
    say("behind it", accesses(grown + 8 * part));
    say("holds", content(grown, 2 * part, 30));
    say("holds behind it", content(grown + 8 * part, 4 * mib - 8 * part, 0));
    say("removes guards", madvise(grown, 8 * part, MADV_GUARD_REMOVE));
    say("it is", accesses(grown));
    say("empty there", content(grown + 2 * part, part, 0));
    munmap(grown, 4 * mib);

    block = with_guards(pressed);
    char* const moved = static_cast<char*>(mremap(block, 8 * part, 8 * part, MREMAP_MAYMOVE | MREMAP_DONTUNMAP));
    say("moves, and the old place stays", moved);
    say("it is", accesses(moved));
    say("the old place is", accesses(block));
    say("holds", content(block, 8 * part, 0));
    munmap(moved, 8 * part);
    munmap(block, 8 * part);

    // All of it guarded, moved to a place far from the far heap, with and without what was there before.
    block = with_guards(pressed);
    auto* const outside = reinterpret_cast<char*>(std::uintptr_t{1} << 40);
    say("out of the far heap", mremap(block, 8 * part, 8 * part, MREMAP_MAYMOVE | MREMAP_FIXED, outside));
    say("it is", accesses(outside));
    say("holds", content(outside, 2 * part, 30));
    say("munmap", munmap(outside, 8 * part));
    block = with_guards(pressed);
    say("guards all", madvise(block, 8 * part, MADV_GUARD_INSTALL));
    char* const larger = static_cast<char*>(mremap(block, 8 * part, 4 * mib, MREMAP_MAYMOVE));
    say("all of it guarded, grows", larger);
    say("it is", accesses(larger));
    say("behind it", content(larger + 8 * part, 4 * mib - 8 * part, 0));
    munmap(larger, 4 * mib);
  }
}

// MADV_POPULATE_* fills what is before a guard, and says what the kernel says: of the mapping's access first.
void guards_populated() {
  for (const int protection : {PROT_NONE, PROT_READ, both}) {
    for (const bool pressed : {false, true}) {
      char* const block = with_guards(pressed);
      mprotect(block, 8 * part, protection);
      for (const int advice : {MADV_POPULATE_READ, MADV_POPULATE_WRITE}) {
        std::printf("protection %d, advice %d\n", protection, advice);
        say("before them", madvise(block, 2 * part, advice));
        say("up to them", madvise(block, 8 * part, advice));
        say("at them", madvise(block + 2 * part, part, advice));
        say("from within them", madvise(block + 2 * part + page, 3 * part, advice));
        say("behind them", madvise(block + 3 * part, 4 * part, advice));
      }
      say("accesses", accesses(block));
      say("removes guards", madvise(block, 8 * part, MADV_GUARD_REMOVE));
      say("all", madvise(block, 8 * part, MADV_POPULATE_READ));
    }
  }
}

void guards_in_child() {
  char* const block = with_guards(true);
  say("wipe", madvise(block, 4 * part, MADV_WIPEONFORK));
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    say("child", accesses(block));
    say("child, wiped", content(block, 4 * part, 0));
    std::fflush(stdout);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  say("parent", accesses(block));
}

// What a child is to have of memory is kept by a move out of the far heap.
void moved_out_in_child() {
  auto* const outside = reinterpret_cast<char*>(std::uintptr_t{1} << 40);
  for (const int advice : {MADV_WIPEONFORK, MADV_DONTFORK, MADV_KEEPONFORK}) {
    char* const block = map_aligned(2 * mib, both);
    fill(block, 2 * mib, 35);
    say("advice", madvise(block, 2 * mib, advice));
    say("out of the far heap", mremap(block, 2 * mib, 4 * mib, MREMAP_MAYMOVE | MREMAP_FIXED, outside));
    say("holds", content(outside, 2 * mib, 35));
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      const bool there = msync(outside, 4 * mib, MS_ASYNC) == 0;
      say("child has it", static_cast<long>(there));
      if (there) say("child, wiped", content(outside, 2 * mib, 0));
      if (there) say("child, kept", content(outside, 2 * mib, 35));
      std::fflush(stdout);
      _exit(0);
    }
    waitpid(child, nullptr, 0);
    say("parent holds", content(outside, 2 * mib, 35));
    munmap(outside, 4 * mib);
  }
}

// The kernel moves one mapping at a time, at least when it grows on the way.
void several_moved_out() {
  auto* const outside = reinterpret_cast<char*>(std::uintptr_t{1} << 40);
  for (const bool by_advice : {false, true}) {
    char* const block = map_aligned(2 * mib, both);
    fill(block, 2 * mib, 36);
    say("half is another mapping",
        by_advice ? madvise(block + mib, mib, MADV_WIPEONFORK) : mprotect(block + mib, mib, PROT_NONE));
    say("both", mremap(block, 2 * mib, 4 * mib, MREMAP_MAYMOVE | MREMAP_FIXED, outside));
    say("holds", content(block, mib, 36));
    say("one", mremap(block, mib, 4 * mib, MREMAP_MAYMOVE | MREMAP_FIXED, outside));
    say("holds", content(outside, mib, 36));
    munmap(block + mib, mib);
    munmap(outside, 4 * mib);
  }
}

// Memory that was read and never written, of which the kernel gives a child no pages.
void zeros_in_child() {
  char* const block = map_aligned(2 * mib, PROT_READ);
  say("reads", content(block, 2 * mib, 0));
  say("one page leaves", madvise(block + mib, page, MADV_PAGEOUT));
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    press();
    say("child", content(block, 2 * mib, 0));
    say("may write", mprotect(block, 2 * mib, both));
    fill(block, 2 * mib, 34);
    say("holds", content(block, 2 * mib, 34));
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  say("child ends", static_cast<long>(status));
  say("parent", content(block, 2 * mib, 0));
}

namespace {

std::string judged(bool well) {
  return well ? "as it should be" : "lost";
}

// Whether the page of a block with this number holds what fill() has put into it.
bool is_full(const char* block, std::size_t number, int salt) {
  constexpr std::size_t salt_a_page = 7 + page / 64;
  return content(block + number * page, page, static_cast<int>(number * salt_a_page) + salt) == "kept";
}

// A page of memory that is full is mapped over. Where that is refused, nothing of it is lost.
void map_over_full(const char* name, char* block, std::size_t number, int protection, int flags) {
  char* const at = block + number * page;
  const bool mapped = mmap(at, page, protection, flags | MAP_FIXED, -1, 0) != MAP_FAILED;
  say(name, judged(mapped ? content(at, page, 0) == "zeros" : is_full(block, number, 35)));
}

// Takes all mappings that the kernel has left. Every second one can be given back by itself.
std::vector<char*> use_up_mappings() {
  constexpr std::size_t bytes = 512 * mib;
  auto* const place = static_cast<char*>(mmap(nullptr, bytes, both, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<char*> mappings;
  for (std::size_t at = page; at < bytes && mprotect(place + at, page, PROT_READ) == 0; at += 2 * page) {
    mappings.push_back(place + at);
  }
  if (mappings.size() < 10000 || mappings.size() >= bytes / (2 * page)) std::printf("mappings do not run out\n");
  return mappings;
}

}  // namespace

void replaced_at_the_limit() {
  char* const block = map_aligned(4 * mib);
  char* const place = map_aligned(4 * mib);
  fill(block, 4 * mib, 35);
  fill(place, 4 * mib, 36);
  std::vector<char*> mappings = use_up_mappings();
  for (std::size_t round = 0; round < 24; ++round) {
    const std::size_t number = round * 16;
    map_over_full("ordinary", block, number + 1, both, anonymous);
    map_over_full("read-only", block, number + 3, PROT_READ, anonymous);
    map_over_full("special", block, number + 5, both, anonymous | MAP_STACK);
    char* const from = block + (number + 7) * page;
    const bool moved = mremap(from, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, place + number * page) != MAP_FAILED;
    const int arrived = 35 + static_cast<int>((number + 7) * (7 + page / 64));
    const bool kept = is_full(place, number, 36) && is_full(block, number + 7, 35);
    say("moved", judged(moved ? content(place + number * page, page, arrived) == "kept" : kept));
    mprotect(mappings.back(), page, both);
    mappings.pop_back();
  }
  for (std::size_t number = 0; number < 24 * 16; number += 2) {
    if (!is_full(block, number, 35)) std::printf("page %zu is lost\n", number);
  }
}

// More mappings than half of what a process may have by default, of which one is to be left.
void replaced_in_many_parts() {
  constexpr std::size_t pages = 40'000;
  char* const block = map_aligned(pages * page);
  for (std::size_t number = 0; number < pages; number += 2) mprotect(block + number * page, page, PROT_READ);
  say("mmap", mmap(block, pages * page, both, anonymous | MAP_FIXED, -1, 0));
  block[(pages - 1) * page] = 1;
  say("holds", content(block, page, 0));
  munmap(block, pages * page);
}

// The limit on writable memory.
void replaced_beyond_the_limit() {
  char* const block = map_aligned(8 * mib);
  fill(block, 8 * mib, 37);
  mprotect(block, 8 * mib, PROT_READ);
  press();
  rlimit before{};
  getrlimit(RLIMIT_DATA, &before);
  const rlimit none{page, before.rlim_max};
  setrlimit(RLIMIT_DATA, &none);
  const void* const mapped = mmap(block, 4 * mib, both, anonymous | MAP_FIXED, -1, 0);
  const int failure = errno;
  setrlimit(RLIMIT_DATA, &before);
  errno = failure;
  say("mmap", mapped);
  say("holds", content(block, 8 * mib, 37));
  say("mmap", mmap(block, 4 * mib, both, anonymous | MAP_FIXED, -1, 0));
  say("is empty", content(block, 4 * mib, 0));
}

// Ranges that end behind all addresses: the kernel changes what there is up to the first hole.
void endless_ranges() {
  for (const int bits : {46, 47, 48, 55, 56, 57, 60, 63}) {
    const volatile std::size_t bytes = std::size_t{1} << bits;
    char* const block = map_aligned(4 * mib);
    munmap(block + 2 * mib, 2 * mib);
    fill(block, 2 * mib, 39);
    std::printf("%d bits\n", bits);
    say("mlock", mlock(block + mib, bytes));
    say("DONTNEED of locked memory", madvise(block + mib, page, MADV_DONTNEED));
    say("munlock", munlock(block + mib, bytes));
    say("mprotect", mprotect(block, bytes, PROT_NONE));
    char* const moved = static_cast<char*>(mremap(block, 2 * mib, 8 * mib, MREMAP_MAYMOVE));
    say("inaccessible memory grows", moved);
    say("it is", access(moved));
    say("gives access", mprotect(moved, 8 * mib, both));
    say("holds", content(moved, 2 * mib, 39));
  }
}

// Huge pages asked for in memory that comes and goes.
void huge_pages() {
  char* const block = map_aligned(8 * mib);
  fill(block, 8 * mib, 40);
  press();
  say("HUGEPAGE", madvise(block, 8 * mib, MADV_HUGEPAGE));
  say("holds", content(block, 8 * mib, 40));
  static_cast<void>(madvise(block, 8 * mib, MADV_COLLAPSE));  // there may be no huge pages to be had
  say("holds", content(block, 8 * mib, 40));
  fill(block, 8 * mib, 41);
  press();
  say("holds", content(block, 8 * mib, 41));
  say("DONTNEED", madvise(block + 2 * mib + page, 2 * mib, MADV_DONTNEED));
  say("is empty", content(block + 2 * mib + page, 2 * mib, 0));
  static_cast<void>(madvise(block, 8 * mib, MADV_COLLAPSE));
  fill(block, 8 * mib, 42);
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    say("child holds", content(block, 8 * mib, 42));
    std::fflush(stdout);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  press();
  say("NOHUGEPAGE", madvise(block, 4 * mib, MADV_NOHUGEPAGE));
  say("holds", content(block, 8 * mib, 42));
}

// Two threads give themselves access to the same memory, of several kinds: each may write there as soon as its own call
// has returned.
void opened_at_once() {
  constexpr std::size_t piece = 64 * page / 4;
  constexpr std::size_t bytes = 2 * mib;
  char* const block = map_aligned(bytes);
  std::atomic<long> arrived = 0;
  const auto meet = [&](long meeting) {
    for (arrived.fetch_add(1); arrived.load() < 2 * meeting;) {  // awake, so that both call at the same moment
    }
  };
  std::atomic<long> refused = 0;
  const auto use = [&](std::size_t at) {
    for (int round = 0; round < 500; ++round) {
      for (std::size_t closed = 0; at == 0 && closed < bytes; closed += 2 * piece)
        mprotect(block + closed, piece, PROT_NONE);
      meet(2 * round + 1);
      if (mprotect(block, bytes, both) != 0) ++refused;
      for (std::size_t left = bytes; left > 0; left -= piece) block[left - piece + at] = static_cast<char>(round);
      meet(2 * round + 2);
    }
  };
  std::thread other(use, 1);
  use(0);
  other.join();
  std::printf("refused %ld, first %d, last %d\n", refused.load(), block[0], block[bytes - piece + 1]);
}

namespace {

// The salt of what fill() has put so far behind the beginning of a block.
int salt_at(std::size_t offset, int salt) {
  return static_cast<int>(offset / page * 7 + offset / 64) + salt;
}

constexpr std::size_t middle = mib / 2;
constexpr std::size_t middle_bytes = mib / 4;

// Two MiB whose middle is another mapping, or none.
char* with_middle(const char* kind) {
  char* const block = map_aligned(2 * mib);
  fill(block, 2 * mib, 51);
  const std::string name = kind;
  if (name == "protection") mprotect(block + middle, middle_bytes, PROT_READ);
  if (name == "advice") madvise(block + middle, middle_bytes, MADV_DONTFORK);
  if (name == "guards") madvise(block + middle, middle_bytes, MADV_GUARD_INSTALL);
  if (name == "hole") munmap(block + middle, middle_bytes);
  if (name == "file") map_over(block + middle, middle_bytes, PROT_READ, MAP_SHARED, file_of(middle_bytes, 52));
  press();
  return block;
}

void move_several(const char* kind, bool out, int more_flags) {
  char* const block = with_middle(kind);
  char* const place = out ? reinterpret_cast<char*>(std::uintptr_t{1} << 40) : map_aligned(2 * mib);
  if (!out) fill(place, 2 * mib, 53);
  std::printf("%s, %s\n", kind, out ? "out of the far heap" : "within it");
  const void* const moved = mremap(block, 2 * mib, 2 * mib, MREMAP_MAYMOVE | MREMAP_FIXED | more_flags, place);
  say("moves", moved);
  if (moved == MAP_FAILED) return;
  say("before the middle", content(place, middle, 51));
  say("the middle", std::string(access(place + middle)));
  const bool is_there = std::strcmp(access(place + middle), "readable") == 0;
  if (is_there) say("is", content(place + middle, middle_bytes, salt_at(middle, 51)));
  if (is_there) say("is of a file", content(place + middle, middle_bytes, 52));
  if (is_there) say("is what was there", content(place + middle, middle_bytes, salt_at(middle, 53)));
  const std::size_t behind = middle + middle_bytes;
  say("behind the middle", content(place + behind, 2 * mib - behind, salt_at(behind, 51)));
  say("the old place", std::string(access(block)));
  say("and its middle", std::string(access(block + middle)));
  say("and its end", std::string(access(block + 2 * mib - page)));
  munmap(place, 2 * mib);
  munmap(block, 2 * mib);
}

}  // namespace

// Since Linux 6.17 a move to another place takes all mappings of a range.
void several_moved() {
  for (const char* const kind : {"protection", "advice", "guards", "hole", "file"}) {
    for (const bool out : {false, true}) move_several(kind, out, 0);
    if (std::strcmp(kind, "file") != 0) move_several(kind, false, MREMAP_DONTUNMAP);
  }
  char* const block = with_middle("hole");
  char* const place = map_aligned(2 * mib);
  say("from a hole on", mremap(block + middle, mib, mib, MREMAP_MAYMOVE | MREMAP_FIXED, place));
  say("to a hole", mremap(block, middle + page, middle + page, MREMAP_MAYMOVE | MREMAP_FIXED, place));
}

namespace {

// Whether the kernel has this flag for the mapping that holds an address.
bool is_flagged(const char* at, const char* flag) {
  std::FILE* const maps = std::fopen("/proc/self/smaps", "r");
  char line[512];
  bool is_here = false;
  bool found = false;
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    std::uintptr_t first = 0;
    std::uintptr_t end = 0;
    if (std::sscanf(line, "%lx-%lx ", &first, &end) == 2) {
      is_here = first <= reinterpret_cast<std::uintptr_t>(at) && reinterpret_cast<std::uintptr_t>(at) < end;
    }
    if (is_here && std::strncmp(line, "VmFlags:", 8) == 0) found = std::strstr(line, flag) != nullptr;
  }
  std::fclose(maps);
  return found;
}

}  // namespace

// Memory of which a part was marked is several mappings to the kernel, until the mark is taken away. A mark moves
// along.
void marked_and_unmarked() {
  constexpr int pairs[][2] = {{MADV_DONTDUMP, MADV_DODUMP},
                              {MADV_DONTFORK, MADV_DOFORK},
                              {MADV_WIPEONFORK, MADV_KEEPONFORK},
                              {MADV_NOHUGEPAGE, MADV_HUGEPAGE}};
  for (const auto& [mark, unmark] : pairs) {
    char* const block = map_aligned(4 * mib);
    fill(block, 4 * mib, 54);
    press();
    std::printf("advice %d\n", mark);
    say("marks a part", madvise(block + mib, mib, mark));
    say("grows", mremap(block, 4 * mib, 8 * mib, MREMAP_MAYMOVE));
    say("unmarks it", madvise(block + mib, mib, unmark));
    char* const grown = static_cast<char*>(mremap(block, 4 * mib, 8 * mib, MREMAP_MAYMOVE));
    say("grows", grown);
    if (grown == MAP_FAILED) continue;
    say("holds", content(grown, 4 * mib, 54));
    say("marks all", madvise(grown, 8 * mib, mark));
    char* const larger = static_cast<char*>(mremap(grown, 8 * mib, 32 * mib, MREMAP_MAYMOVE));
    say("grows", larger);
    say("holds", content(larger, 4 * mib, 54));
    if (mark == MADV_DONTDUMP)
      std::printf("marked %d %d\n", is_flagged(larger, " dd"), is_flagged(larger + 31 * mib, " dd"));
    munmap(larger, 32 * mib);
  }
  char* const block = map_aligned(4 * mib);
  fill(block, 4 * mib, 55);
  const int key = pkey_alloc(0, 0);
  say("key for a part", key < 0 ? -1L : static_cast<long>(pkey_mprotect(block + mib, mib, both, key)));
  if (key >= 0) say("grows", mremap(block, 4 * mib, 8 * mib, MREMAP_MAYMOVE));
  if (key >= 0) say("without it", pkey_mprotect(block + mib, mib, both, 0));
  char* const grown = static_cast<char*>(mremap(block, 4 * mib, 8 * mib, MREMAP_MAYMOVE));
  say("grows", grown);
  say("holds", content(grown, 4 * mib, 55));
  // Memory whose key was freed moves out of far memory, and its old place stays.
  if (key < 0) return;
  say("the key again", pkey_mprotect(grown, mib, PROT_NONE, key));
  say("pkey_free", pkey_free(key));
  auto* const outside = reinterpret_cast<char*>(std::uintptr_t{1} << 40);
  constexpr int keeps = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
  say("moves out", mremap(grown, mib, mib, keeps, outside));
  say("the new place", std::string(access(outside)));
  say("the old place", std::string(access(grown)));
}

// The kernel cuts off what lies behind the mapping that moves, whatever it is.
void cut_behind_a_file() {
  for (const bool out : {false, true}) {
    char* const block = map_aligned(4 * mib);
    fill(block, 4 * mib, 56);
    map_over(block, 2 * mib, both, MAP_SHARED, file_of(2 * mib, 57));
    press();
    char* const place = out ? reinterpret_cast<char*>(std::uintptr_t{1} << 40) : map_aligned(2 * mib);
    say("moves the file", mremap(block, 4 * mib, 2 * mib, MREMAP_MAYMOVE | MREMAP_FIXED, place));
    say("holds", content(place, 2 * mib, 57));
    say("the end", std::string(access(block + 2 * mib)));
    say("new memory there", mmap(block, 4 * mib, both, anonymous | MAP_FIXED_NOREPLACE, -1, 0));
    say("is empty", content(block, 4 * mib, 0));
    fill(block, 4 * mib, 58);
    press();
    say("holds", content(block, 4 * mib, 58));
    munmap(block, 4 * mib);
    munmap(place, 2 * mib);
  }
}

// Of memory that was reserved, what was used moves out of the far heap.
void reservation_moved_out() {
  constexpr std::size_t bytes = 1024 * mib;
  auto* const outside = reinterpret_cast<char*>(std::uintptr_t{1} << 40);
  for (const bool keeps : {false, true}) {
    char* const block = map(bytes, PROT_NONE, anonymous | MAP_NORESERVE);
    mprotect(block + bytes / 2, mib, both);
    fill(block + bytes / 2, mib, 59);
    press();
    mprotect(block + bytes / 2, mib, PROT_NONE);
    const int flags = MREMAP_MAYMOVE | MREMAP_FIXED | (keeps ? MREMAP_DONTUNMAP : 0);
    say("moves out", mremap(block, bytes, bytes, flags, outside));
    say("it is", std::string(access(outside)) + ", " + access(outside + bytes / 2));
    say("gives access", mprotect(outside, bytes, both));
    say("holds", content(outside + bytes / 2, mib, 59));
    say("before it", content(outside + bytes / 2 - mib, mib, 0));
    say("the old place", std::string(access(block)) + ", " + access(block + bytes / 2));
    if (keeps) say("gives access there", mprotect(block, bytes, both));
    if (keeps) say("holds", content(block + bytes / 2, mib, 0));
    munmap(outside, bytes);
    munmap(block, bytes);
  }
}

// To be read, inaccessible memory is to become a mapping of its own, for which there may be no room.
void moved_out_at_the_limit() {
  constexpr std::size_t rounds = 24;
  auto* const outside = reinterpret_cast<char*>(std::uintptr_t{1} << 40);
  char* const block = map_aligned(2 * mib);
  fill(block, 2 * mib, 60);
  say("takes access away", mprotect(block, 2 * mib, PROT_NONE));
  std::vector<char*> mappings = use_up_mappings();
  char* places[rounds];
  for (std::size_t round = 0; round < rounds; ++round) {
    char* const from = block + (4 * round + 1) * page;
    void* const moved = mremap(from, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, outside + 2 * round * page);
    places[round] = moved != MAP_FAILED ? static_cast<char*>(moved) : from;
    mprotect(mappings.back(), page, both);
    mappings.pop_back();
  }
  for (char* const one : mappings) mprotect(one, page, both);
  for (std::size_t round = 0; round < rounds; ++round) {
    mprotect(places[round], page, both);
    say("moved", judged(content(places[round], page, salt_at((4 * round + 1) * page, 60)) == "kept"));
  }
}

}  // namespace mapper
