// A program that makes the memory calls which allocators, language runtimes and databases make, and unusual ones, and
// prints what came of each: the results, and the bytes that are there afterwards. It knows nothing of Farheap: run with
// and without it, it prints the same. `mapper NAME` runs one scenario; `mapper` lists their names.
#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "mapper_tools.h"

namespace {

using namespace mapper;

// ---- scenarios ----

void foreign_neighbours() {
  char* const block = map_aligned(2 * mib);
  fill(block, mib, 1);
  map_over(block + mib, mib, both, anonymous | MAP_STACK);
  fill(block + mib, mib, 2);
  press();
  say("far part", content(block, mib, 1));
  press();
  say("munmap of the far part", munmap(block, mib));
  say("foreign part", content(block + mib, mib, 2));
  say("munmap of the other", munmap(block + mib, mib));
  char* const again = static_cast<char*>(mmap(block, 2 * mib, both, anonymous | MAP_FIXED, -1, 0));
  say("what is mapped there next", content(again, 2 * mib, 0));
  fill(again, 2 * mib, 3);
  press();
  say("and holds", content(again, 2 * mib, 3));
}

void foreign_shared_file() {
  const int file = file_of(64 * page, 5);
  char* const block = map_aligned(4 * mib);
  fill(block, 4 * mib, 4);
  press();  // guarded by now
  map_over(block + mib, 64 * page, both, MAP_SHARED, file);
  say("file", content(block + mib, 64 * page, 5));
  fill(block + mib, 64 * page, 6);
  press();
  say("file, written", content(block + mib, 64 * page, 6));
  say("before it", content(block, mib, 4));
  // Advice, protection, and unmapping of a range that holds both, and a hole.
  munmap(block + 2 * mib, page);
  say("madvise(DONTNEED) over both and a hole", madvise(block + mib - page, mib + 2 * page, MADV_DONTNEED));
  say("far page before", content(block + mib - page, page, 0));
  say("file page", content(block + mib, 64 * page, 6));
  say("mprotect over both", mprotect(block + mib - page, 2 * page, PROT_READ));
  say("mprotect over a hole", mprotect(block + 2 * mib - page, 3 * page, PROT_READ));
  say("mprotect of both again", mprotect(block + mib - page, 2 * page, both));
  fill(block + mib, page, 6);
  say("file again", content(block + mib, 64 * page, 6));
  say("munmap of all", munmap(block, 4 * mib));
  say("which is gone", access(block + mib));
  std::vector<char> read_back(64 * page);
  if (pread(file, read_back.data(), read_back.size(), 0) != static_cast<ssize_t>(read_back.size())) std::exit(1);
  say("the file itself", content(read_back.data(), read_back.size(), 6));
}

void foreign_again_and_again() {
  char* const block = map_aligned(4 * mib);
  for (int round = 0; round < 40; ++round) {
    char* const at = block + static_cast<std::size_t>(round * 37 % 900) * page;
    const std::size_t bytes = static_cast<std::size_t>(1 + round % 60) * page;
    const bool foreign = round % 3 != 0;
    if (mmap(at, bytes, both, anonymous | MAP_FIXED | (foreign ? MAP_STACK : 0), -1, 0) == MAP_FAILED)
      std::printf("fails\n");
    if (content(at, bytes, 0) != "zeros") std::printf("round %d: stale bytes\n", round);
    fill(at, bytes, round);
    if (round % 10 == 9) press();
    if (content(at, bytes, round) != "kept") std::printf("round %d: lost bytes\n", round);
    if (round % 4 == 0) munmap(at + page, bytes / 2);
  }
  say("munmap of all", munmap(block, 4 * mib));
}

void failed_fixed() {
  char* const block = map_aligned(4 * mib);
  fill(block, 4 * mib, 7);
  const int closed = 987;
  say("bad descriptor", mmap(block, mib, both, MAP_PRIVATE | MAP_FIXED, closed, 0));
  const int file = open("/dev/null", O_RDONLY);
  say("read-only file, shared and writable", mmap(block, mib, both, MAP_SHARED | MAP_FIXED, file, 0));
  say("no type", mmap(block, mib, both, MAP_ANONYMOUS | MAP_FIXED, -1, 0));
  say("no length", mmap(block, 0, both, anonymous | MAP_FIXED, -1, 0));
  say("unaligned", mmap(block + 1, mib, both, anonymous | MAP_FIXED, -1, 0));
  say("absurd length", mmap(block, SIZE_MAX - 100, both, anonymous | MAP_FIXED, -1, 0));
  say("huge length", mmap(block, std::size_t{1} << 50, both, anonymous | MAP_FIXED, -1, 0));
  say("unaligned offset", mmap(block, mib, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 1));
  say("not to replace anything", mmap(block, mib, both, anonymous | MAP_FIXED_NOREPLACE, -1, 0));
  say("what was there", content(block, 4 * mib, 7));
  munmap(block + mib, mib);
  say("into a hole", mmap(block + mib, mib, both, anonymous | MAP_FIXED_NOREPLACE, -1, 0));
  say("holds", content(block + mib, mib, 0));
  press();
  say("the rest", content(block, mib, 7));
}

void big_alignments() {
  std::size_t wrong = 0;
  for (std::size_t alignment = page; alignment <= 64 * mib; alignment *= 4) {
    for (const std::size_t bytes : {page, 3 * mib}) {
      wrong += reinterpret_cast<std::uintptr_t>(aligned_alloc(alignment, bytes)) % alignment != 0;
    }
  }
  say("misaligned", static_cast<long>(wrong));
}

void advice_table() {
  const int table[] = {
      MADV_NORMAL,         MADV_RANDOM,          MADV_SEQUENTIAL,    MADV_WILLNEED,     MADV_DONTNEED,
      MADV_FREE,           MADV_REMOVE,          MADV_DONTFORK,      MADV_DOFORK,       MADV_MERGEABLE,
      MADV_UNMERGEABLE,    MADV_HUGEPAGE,        MADV_NOHUGEPAGE,    MADV_DONTDUMP,     MADV_DODUMP,
      MADV_WIPEONFORK,     MADV_KEEPONFORK,      MADV_COLD,          MADV_PAGEOUT,      MADV_POPULATE_READ,
      MADV_POPULATE_WRITE, MADV_DONTNEED_LOCKED, MADV_GUARD_INSTALL, MADV_GUARD_REMOVE, 33};
  for (const int advice : table) {
    char* const block = map_aligned(4 * mib);
    fill(block, 4 * mib, 9);
    press();
    errno = 0;
    const int result = madvise(block + mib, mib, advice);
    const bool forgets = advice == MADV_FREE;  // may keep its bytes for a while
    const bool fenced = result == 0 && advice == MADV_GUARD_INSTALL;
    std::printf("advice %d: %d %s, then %s, neighbours %s\n", advice, result, result != 0 ? std::strerror(errno) : "",
                fenced    ? access(block + mib)
                : forgets ? "-"
                          : content(block + mib, mib, 9).c_str(),
                content(block, mib, 9).c_str());
    if (fenced) {
      say("mprotect of a guard", mprotect(block + mib, mib, both));
      say("still", access(block + mib));
      madvise(block + mib, mib, MADV_GUARD_REMOVE);
    }
    munmap(block + mib + page, page);
    errno = 0;
    std::printf("over a hole: %d %s\n", madvise(block + mib, mib, advice), std::strerror(errno));
    mprotect(block, page, PROT_NONE);
    errno = 0;
    if (advice == MADV_POPULATE_READ || advice == MADV_POPULATE_WRITE)
      say("without access", madvise(block, page, advice));
    munmap(block, 4 * mib);
  }
}

void wipe_on_fork() {
  char* const block = map_aligned(4 * mib);
  fill(block, 4 * mib, 10);
  say("wipe", madvise(block, mib, MADV_WIPEONFORK));
  say("not there", madvise(block + mib, mib, MADV_DONTFORK));
  press();
  for (int generation = 0; generation < 2; ++generation) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      say("child, wiped", content(block, mib, 0));
      say("child, not there", access(block + mib));
      say("child, the rest", content(block + 2 * mib, mib, static_cast<int>(2 * mib / page * 7 + 2 * mib / 64 + 10)));
      fill(block, mib, 11);
      std::fflush(stdout);
      const pid_t grandchild = fork();
      if (grandchild == 0) {
        say("grandchild, wiped", content(block, mib, 0));
        std::fflush(stdout);
        _exit(0);
      }
      waitpid(grandchild, nullptr, 0);
      _exit(0);
    }
    waitpid(child, nullptr, 0);
    say("parent", content(block, 4 * mib, 10));
  }
  madvise(block, mib, MADV_KEEPONFORK);
  madvise(block + mib, mib, MADV_DOFORK);
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    say("child, kept", content(block, 4 * mib, 10));
    std::fflush(stdout);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
}

void moved() {
  char* const block = map_aligned(8 * mib);
  char* const place = map_aligned(8 * mib);
  fill(block, 8 * mib, 12);
  press();
  void* moved = mremap(block, 2 * mib, 2 * mib, MREMAP_MAYMOVE | MREMAP_FIXED, place);
  say("to a place", moved);
  say("holds", content(place, 2 * mib, 12));
  say("left", access(block));
  moved = mremap(place, 2 * mib, mib, MREMAP_MAYMOVE | MREMAP_FIXED, block);
  say("back, shorter", moved);
  say("holds", content(block, mib, 12));
  say("left", access(place));
  say("cut off", access(place + mib));
  moved = mremap(block, mib, mib, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
  say("moved, and the old place stays", moved);
  say("holds", content(static_cast<char*>(moved), mib, 12));
  say("old place", content(block, mib, 0));
  mprotect(block + 4 * mib, page, PROT_READ);
  say("of two protections", mremap(block + 3 * mib, 2 * mib, 3 * mib, MREMAP_MAYMOVE));
  munmap(block + 6 * mib, page);
  say("over a hole", mremap(block + 5 * mib, 3 * mib, 4 * mib, MREMAP_MAYMOVE));
  say("of what is not mapped", mremap(block + 6 * mib, page, 2 * page, MREMAP_MAYMOVE));
  say("shrinks over a hole", mremap(block + 5 * mib, 3 * mib, page, 0));
  say("shrinks over two protections", mremap(block + 3 * mib, 2 * mib, 2 * mib - page, 0));
  say("to its own length, over both", mremap(block + 3 * mib, mib + page, mib + page, MREMAP_MAYMOVE));
  // Inaccessible memory, full of bytes, grows.
  char* const closed = map_aligned(2 * mib);
  fill(closed, 2 * mib, 13);
  mprotect(closed, 2 * mib, PROT_NONE);
  press();
  char* const grown = static_cast<char*>(mremap(closed, 2 * mib, 12 * mib, MREMAP_MAYMOVE));
  say("inaccessible memory grows", grown);
  say("it is", access(grown));
  mprotect(grown, 12 * mib, both);
  say("and holds", content(grown, 2 * mib, 13));
  say("and behind it", content(grown + 2 * mib, 10 * mib, 0));
}

void moved_foreign() {
  const int file = file_of(64 * page, 14);
  char* const block = map_aligned(8 * mib);
  fill(block, 8 * mib, 15);
  map_over(block + mib, 64 * page, both, MAP_SHARED, file);
  press();
  char* const away =
      static_cast<char*>(mremap(block + mib, 64 * page, 64 * page, MREMAP_MAYMOVE | MREMAP_FIXED, block + 4 * mib));
  say("file within", away);
  say("holds", content(block + 4 * mib, 64 * page, 14));
  say("left", access(block + mib));
  say("second mapping", mremap(block + 4 * mib, 0, 64 * page, MREMAP_MAYMOVE | MREMAP_FIXED, block + 5 * mib));
  say("holds", content(block + 5 * mib, 64 * page, 14));
  char* const outside = static_cast<char*>(mmap(nullptr, 64 * page, both, MAP_SHARED, file, 0));
  say("file into", mremap(outside, 64 * page, 64 * page, MREMAP_MAYMOVE | MREMAP_FIXED, block + 6 * mib));
  say("holds", content(block + 6 * mib, 64 * page, 14));
  press();
  say("the first", content(block, mib, 15));
  say("mixed", mremap(block + 4 * mib - page, 2 * page, 3 * page, MREMAP_MAYMOVE));
  say("mixed, to less", mremap(block + 4 * mib - page, 4 * page, 3 * page, 0));
  say("holds", content(block + 4 * mib, 2 * page, 14));
  say("munmap", munmap(block, 8 * mib));
  char* const shared = static_cast<char*>(mmap(nullptr, mib, both, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  char* const place = map_aligned(2 * mib);
  munmap(place, mib);
  fill(place + mib, mib, 16);
  fill(shared, mib, 17);
  say("into a hole", mremap(shared, mib, mib, MREMAP_MAYMOVE | MREMAP_FIXED, place));
  say("holds", content(place, mib, 17));
  say("beside it", content(place + mib, mib, 16));
}

void reservations() {
  // As V8, the JVM, .NET and Go do.
  constexpr std::size_t gib = std::size_t{1} << 30;
  for (const std::size_t size : {gib, 64 * gib, 1024 * gib, 4096 * gib}) {
    char* const reserved = static_cast<char*>(mmap(nullptr, size, PROT_NONE, anonymous | MAP_NORESERVE, -1, 0));
    say("reserves", reserved);
    say("which is", access(reserved + size / 2));
    char* const part = reserved + size / 2;
    say("commits", mprotect(part, 40 * mib, both));
    fill(part, 40 * mib, 18);
    press();
    say("holds", content(part, 40 * mib, 18));
    say("beside it", access(part + 40 * mib));
    say("decommits", madvise(part, 20 * mib, MADV_DONTNEED));
    say("and takes away", mprotect(part, 20 * mib, PROT_NONE));
    say("so it is", access(part));
    say("commits again", mprotect(part, 20 * mib, both));
    say("reads", content(part, 20 * mib, 0));
    say("maps anew", mmap(part, 10 * mib, PROT_NONE, anonymous | MAP_NORESERVE | MAP_FIXED, -1, 0));
    say("so it is", access(part));
    say("munmap", munmap(reserved, size));
    say("so it is", access(part + 30 * mib));
  }
}

// Nothing of this costs memory: addresses are reserved, and memory is given back by taking access away.
void reserver() {
  std::vector<char*> reserved;
  for (int i = 0; i < 16; ++i) reserved.push_back(map(1024 * mib, PROT_NONE));
  char* const block = map_aligned(2 * mib, PROT_NONE);
  for (int round = 0; round < 20; ++round) {
    mprotect(block, 2 * mib, both);
    fill(block, 2 * mib, round);
    if (round % 2 == 0) madvise(block, 2 * mib, MADV_DONTNEED);
    mprotect(block, 2 * mib, PROT_NONE);
    if (round % 2 == 1) madvise(block, 2 * mib, MADV_DONTNEED);
    // The next of many such blocks, in the same program.
    char* const other = map_aligned(2 * mib);
    fill(other, 2 * mib, round);
    madvise(other, 2 * mib, MADV_DONTNEED);
    mprotect(other, 2 * mib, PROT_NONE);
    reserved.push_back(other);
  }
  for (char* const old : reserved)
    if (std::strcmp(access(old), "fault") != 0) std::printf("accessible\n");
  say("reserved", static_cast<long>(reserved.size()));
}

void inaccessible_pages() {
  char* const block = map_aligned(16 * mib);
  fill(block, 16 * mib, 19);
  say("takes away", mprotect(block, 8 * mib, PROT_NONE));
  say("read-only", mprotect(block + 8 * mib, 4 * mib, PROT_READ));
  press();
  say("it is", access(block));
  say("read-only part", content(block + 8 * mib, 4 * mib, static_cast<int>(8 * mib / page * 7 + 8 * mib / 64 + 19)));
  press();
  say("gives back", mprotect(block, 16 * mib, both));
  say("holds", content(block, 16 * mib, 19));
}

void locked() {
  char* const block = map_aligned(4 * mib);
  fill(block, 4 * mib, 20);
  press();
  say("mlock", mlock(block, 2 * mib));
  say("holds", content(block, 4 * mib, 20));
  say("DONTNEED of locked memory", madvise(block, mib, MADV_DONTNEED));
  say("FREE of locked memory", madvise(block, mib, MADV_FREE));
  say("still", content(block, 4 * mib, 20));
  say("DONTNEED_LOCKED", madvise(block, page, MADV_DONTNEED_LOCKED));
  say("reads", content(block, page, 0));
  fill(block, page, 20);
  char* const grown = static_cast<char*>(mremap(block, 2 * mib, 16 * mib, MREMAP_MAYMOVE));
  say("grows", grown);
  say("holds", content(grown, 2 * mib, 20));
  say("behind", content(grown + 2 * mib, 14 * mib, 0));
  // The old place, used again, holds nothing of it.
  char* const again = static_cast<char*>(mmap(block, 2 * mib, both, anonymous | MAP_FIXED, -1, 0));
  say("old place", content(again, 2 * mib, 0));
  say("munlock", munlock(grown, 16 * mib));
  press();
  say("holds", content(grown, 2 * mib, 20));
  munmap(again + mib, page);
  say("mlock over a hole", mlock(again, 2 * mib));
  say("munlock over a hole", munlock(again, 2 * mib));
  say("mlock2, unknown flags", mlock2(again, page, 8));
  // Memory that cannot be touched is locked, and so is the memory behind it, though neither is filled.
  char* const closed = map_aligned(2 * mib);
  mprotect(closed + mib, page, PROT_NONE);
  say("mlock of inaccessible memory", mlock(closed + mib, page));
  say("mlock of both kinds", mlock(closed, 2 * mib));
  say("DONTNEED behind it", madvise(closed + 2 * mib - page, page, MADV_DONTNEED));
  say("GUARD_INSTALL in locked memory", madvise(closed, page, MADV_GUARD_INSTALL));
  say("GUARD_REMOVE in locked memory", madvise(closed, page, MADV_GUARD_REMOVE));
  say("munlock of both kinds", munlock(closed, 2 * mib));
  void* heap = std::malloc(4 * mib);
  fill(static_cast<char*>(heap), 4 * mib, 21);
  mlock(heap, 4 * mib);
  heap = std::realloc(heap, 24 * mib);
  say("realloc of locked memory", content(static_cast<char*>(heap), 4 * mib, 21));
  std::free(heap);
}

void all_locked() {
  char* const block = map_aligned(24 * mib);
  fill(block, 24 * mib, 22);
  press();
  say("no flags", mlockall(0));
  say("unknown flags", mlockall(64));
  say("only on fault", mlockall(MCL_ONFAULT));
  say("mlockall", mlockall(MCL_CURRENT | MCL_FUTURE));
  say("holds", content(block, 24 * mib, 22));
  char* const later = map_aligned(24 * mib);
  fill(later, 24 * mib, 23);
  press();
  say("later", content(later, 24 * mib, 23));
  const int file = file_of(64 * page, 24);
  char* const text = static_cast<char*>(mmap(nullptr, 64 * page, PROT_READ, MAP_PRIVATE, file, 0));
  say("file", content(text, 64 * page, 24));
  unsigned char resident = 0;
  say("mincore", mincore(text, page, &resident));
  say("is in core", static_cast<long>(resident & 1));
  say("munlockall", munlockall());
  press();
  say("holds", content(block, 24 * mib, 22));
  say("later", content(later, 24 * mib, 23));
  say("mlockall, on fault", mlockall(MCL_CURRENT | MCL_ONFAULT));
  say("munlockall", munlockall());
}

// Programs look in these ways whether an address may be read.
void looked_at() {
  char* const block = map_aligned(4 * mib);
  fill(block, 4 * mib, 25);
  munmap(block + mib, mib);
  press();
  std::vector<unsigned char> resident(4 * mib / page);
  constexpr unsigned char untouched = 0xee;
  const auto say_how_many = [&] { say("results", std::ranges::find(resident, untouched) - resident.begin()); };
  const auto look = [&](const char* title, char* from, std::size_t bytes) {
    errno = 0;
    std::ranges::fill(resident, untouched);
    say(title, mincore(from, bytes, resident.data()));
    say_how_many();
    errno = 0;
    say(title, msync(from, bytes, MS_ASYNC));
    errno = 0;
    std::ranges::fill(resident, untouched);
    say("by number", syscall(SYS_mincore, from, bytes, resident.data()));
    say_how_many();
    errno = 0;
    say("by number", syscall(SYS_msync, from, bytes, MS_ASYNC));
  };
  look("mapped", block, mib);
  look("a hole", block + mib, mib);
  look("into a hole", block, 2 * mib);
  look("over a hole", block, 4 * mib);
  look("a page before it", block + mib - page, page);
  look("a byte after it", block + 2 * mib, 1);
  look("unaligned", block + 1, page);
  look("nothing", block + mib, 0);
  look("absurdly much", block, SIZE_MAX - 4096);
  say("msync, unknown flags", msync(block + mib, page, 64));
  const int file = file_of(16 * page, 26);
  mmap(block + mib, 16 * page, both, MAP_SHARED | MAP_FIXED, file, 0);
  block[mib] = 27;
  look("a file in the hole", block, mib + 16 * page);
  look("and a hole again", block, 2 * mib);
  char* const reserved = static_cast<char*>(mmap(nullptr, 4 * mib, PROT_NONE, anonymous, -1, 0));
  look("inaccessible", reserved, 4 * mib);
  say("the rest", content(block + 2 * mib, 2 * mib, 25));
}

void many_mappings() {
  // Alternating protections, until the kernel has no more mappings (vm.max_map_count), and on.
  constexpr std::size_t bytes = 400 * mib;
  char* const block = map(bytes);
  std::size_t refused = 0;
  for (std::size_t at = 0; at < bytes; at += 2 * page) {
    block[at] = static_cast<char>(at / page);
    refused += mprotect(block + at, page, PROT_READ) != 0;
  }
  std::fprintf(stderr, "%zu refused\n", refused);
  say("refused at all", static_cast<long>(refused > 0));
  std::vector<char*> more;
  for (int i = 0; i < 20; ++i) {
    void* const block_of_its_own = mmap(nullptr, 3 * mib, both, anonymous, -1, 0);
    if (block_of_its_own == MAP_FAILED) continue;
    more.push_back(static_cast<char*>(block_of_its_own));
    fill(more.back(), 3 * mib, i);
  }
  std::size_t wrong = 0;
  for (std::size_t at = 0; at < bytes; at += 2 * page) wrong += block[at] != static_cast<char>(at / page);
  say("wrong", static_cast<long>(wrong));
  for (char* const old : more) munmap(old, 3 * mib);
  say("munmap", munmap(block, bytes));
  char* const after = map(64 * mib);
  fill(after, 64 * mib, 26);
  press();
  say("afterwards", content(after, 64 * mib, 26));
}

void by_process() {
  char* const block = map_aligned(4 * mib);
  fill(block, 4 * mib, 27);
  press();
  const int self = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  const iovec ranges[] = {{block, mib}, {block + 2 * mib, mib}};
  say("process_madvise", process_madvise(self, ranges, 2, MADV_DONTNEED, 0));
  say("first", content(block, mib, 0));
  say("second", content(block + mib, mib, static_cast<int>(mib / page * 7 + mib / 64 + 27)));
  say("third", content(block + 2 * mib, mib, 0));
  std::vector<iovec> many(300, iovec{block + 3 * mib, page});
  press();
  say("many ranges", process_madvise(self, many.data(), many.size(), MADV_DONTNEED, 0));
  say("bad flags", process_madvise(self, ranges, 2, MADV_DONTNEED, 5));
  say("bad advice", process_madvise(self, ranges, 2, 55, 0));
  std::printf("posix_madvise: %s\n", std::strerror(posix_madvise(block, 4 * mib, POSIX_MADV_DONTNEED)));
  say("keeps", content(block + mib, mib, static_cast<int>(mib / page * 7 + mib / 64 + 27)));
}

struct scenario {
  const char* name;
  void (*run)();
};

constexpr scenario scenarios[] = {{"foreign_neighbours", foreign_neighbours},
                                  {"foreign_shared_file", foreign_shared_file},
                                  {"foreign_again_and_again", foreign_again_and_again},
                                  {"failed_fixed", failed_fixed},
                                  {"absurd_lengths", absurd_lengths},
                                  {"big_alignments", big_alignments},
                                  {"advice_table", advice_table},
                                  {"wipe_on_fork", wipe_on_fork},
                                  {"moved", moved},
                                  {"moved_foreign", moved_foreign},
                                  {"reservations", reservations},
                                  {"reserver", reserver},
                                  {"inaccessible_pages", inaccessible_pages},
                                  {"locked", locked},
                                  {"all_locked", all_locked},
                                  {"looked_at", looked_at},
                                  {"many_mappings", many_mappings},
                                  {"by_process", by_process},
                                  {"guards_moved", guards_moved},
                                  {"guards_populated", guards_populated},
                                  {"guards_in_child", guards_in_child},
                                  {"moved_out_in_child", moved_out_in_child},
                                  {"several_moved_out", several_moved_out},
                                  {"zeros_in_child", zeros_in_child},
                                  {"replaced_at_the_limit", replaced_at_the_limit},
                                  {"replaced_in_many_parts", replaced_in_many_parts},
                                  {"replaced_beyond_the_limit", replaced_beyond_the_limit},
                                  {"locked_beyond_the_limit", locked_beyond_the_limit},
                                  {"locked_reservation", locked_reservation},
                                  {"locked_in_future", locked_in_future},
                                  {"locked_in_parts", locked_in_parts},
                                  {"locked_unfilled", locked_unfilled},
                                  {"locked_read_only", locked_read_only},
                                  {"resized_in_parts", resized_in_parts},
                                  {"opened_at_once", opened_at_once},
                                  {"several_moved", several_moved},
                                  {"marked_and_unmarked", marked_and_unmarked},
                                  {"cut_behind_a_file", cut_behind_a_file},
                                  {"reservation_moved_out", reservation_moved_out},
                                  {"moved_out_at_the_limit", moved_out_at_the_limit},
                                  {"locked_while_protected", locked_while_protected},
                                  {"locked_on_fault_grows", locked_on_fault_grows},
                                  {"protection_keys", protection_keys},
                                  {"sealed", sealed},
                                  {"sealed_neighbours", sealed_neighbours},
                                  {"moved_sealed", moved_sealed},
                                  {"segment_of_attachments", segment_of_attachments},
                                  {"shared_segments", shared_segments},
                                  {"memory_policies", memory_policies},
                                  {"pointers_in_structures", pointers_in_structures},
                                  {"signals_on_stacks", signals_on_stacks},
                                  {"signals_together", signals_together},
                                  {"refused_actions", refused_actions},
                                  {"wrong_structures", wrong_structures},
                                  {"endless_ranges", endless_ranges},
                                  {"reset_handlers", reset_handlers},
                                  {"numbers_of_children", numbers_of_children},
                                  {"memory_of_others", memory_of_others},
                                  {"reservation_looked_at", reservation_looked_at},
                                  {"huge_pages", huge_pages},
                                  {"residency_of_much", residency_of_much},
                                  {"many_arguments", many_arguments},
                                  {"much_peeked_at", much_peeked_at},
                                  {"much_sent", much_sent},
                                  {"most_written", most_written},
                                  {"messages_of_devices", messages_of_devices},
                                  {"refused_buffers", refused_buffers},
                                  {"own_memory_with_holes", own_memory_with_holes},
                                  {"near_code", near_code},
                                  {"reserved_in_place", reserved_in_place},
                                  {"used_and_given_back", used_and_given_back},
                                  {"terabyte", terabyte},
                                  {"structures_that_lead_far", structures_that_lead_far},
                                  {"structures_under_a_filter", structures_under_a_filter},
                                  {"chosen_number", chosen_number},
                                  {"words_of_futexes", words_of_futexes},
                                  {"messages_beyond_the_end", messages_beyond_the_end},
                                  {"handlers_without_stack", handlers_without_stack},
                                  {"named_memory", named_memory},
                                  {"bad_pointers", bad_pointers},
                                  {"masks_from_afar", masks_from_afar},
                                  {"bad_environments", bad_environments}};

}  // namespace

int main(int count, char** arguments) {
  signal(SIGSEGV, on_fault);
  signal(SIGBUS, on_fault);
  for (const scenario& scenario : scenarios) {
    if (count < 2) std::printf("%s\n", scenario.name);
    if (count == 2 && std::strcmp(arguments[1], scenario.name) == 0) {
      scenario.run();
      return 0;
    }
  }
  return count < 2 ? 0 : 2;
}
