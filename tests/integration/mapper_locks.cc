// Scenarios of mapper: locked memory, and the limit on it.
#include <linux/capability.h>

#include <atomic>
#include <thread>

#include "mapper_tools.h"

namespace mapper {
namespace {

// As an ordinary user has it: so much may be locked, and no more.
void limit_locking(std::size_t bytes) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct held[2] = {};
  const std::uint32_t bit = std::uint32_t{1} << (CAP_IPC_LOCK % 32);
  if (syscall(SYS_capget, &header, held) != 0) std::exit(1);
  held[CAP_IPC_LOCK / 32].effective &= ~bit;
  held[CAP_IPC_LOCK / 32].permitted &= ~bit;
  if (syscall(SYS_capset, &header, held) != 0) std::exit(1);
  const rlimit limit{bytes, bytes};
  say("limit", setrlimit(RLIMIT_MEMLOCK, &limit));
}

// How much of the process is locked, in whole MiB.
long locked_mib() {
  std::FILE* const status = std::fopen("/proc/self/status", "r");
  long kib = -1;
  char line[256];
  while (std::fgets(line, sizeof line, status) != nullptr) {
    if (std::sscanf(line, "VmLck: %ld", &kib) == 1) break;
  }
  std::fclose(status);
  return kib / 1024;
}

}  // namespace

void locked_beyond_the_limit() {
  limit_locking(4 * mib);
  char* const block = map_aligned(8 * mib);
  munmap(block + 3 * mib, 5 * mib);
  fill(block, 3 * mib, 31);
  say("mlock", mlock(block, 3 * mib));
  say("locked", locked_mib());
  say("grows in place", mremap(block, 3 * mib, 6 * mib, 0));
  say("grows, and may move", mremap(block, 3 * mib, 6 * mib, MREMAP_MAYMOVE));
  char* const place = map_aligned(8 * mib);
  fill(place, 8 * mib, 32);
  say("to a place", mremap(block, 3 * mib, 6 * mib, MREMAP_MAYMOVE | MREMAP_FIXED, place));
  auto* const outside = reinterpret_cast<char*>(std::uintptr_t{1} << 40);
  say("out", mremap(block, 3 * mib, 6 * mib, MREMAP_MAYMOVE | MREMAP_FIXED, outside));
  say("locked", locked_mib());
  say("holds", content(block, 3 * mib, 31));
  say("DONTNEED", madvise(block, page, MADV_DONTNEED));
  press();
  char* const moved = static_cast<char*>(mremap(block, 3 * mib, 4 * mib, MREMAP_MAYMOVE));
  say("to no more than the limit", moved);
  say("locked", locked_mib());
  say("holds", content(moved, 3 * mib, 31));
  say("the tail", content(moved + 3 * mib, mib, 0));
  say("DONTNEED of the tail", madvise(moved + 3 * mib, page, MADV_DONTNEED));
  say("cut off", mremap(moved, 4 * mib, mib, 0));
  say("locked", locked_mib());
  char* const out = static_cast<char*>(mremap(moved, mib, 2 * mib, MREMAP_MAYMOVE | MREMAP_FIXED, outside));
  say("out, within the limit", out);
  say("locked", locked_mib());
  say("holds", content(outside, mib, 31));
}

// Memory that nobody can touch is locked, and moves; its old place is used again.
void locked_reservation() {
  char* const block = map_aligned(2 * mib, PROT_NONE);
  say("mlock", mlock(block, mib));
  say("moves, and the old place stays", mremap(block, mib, mib, MREMAP_MAYMOVE | MREMAP_DONTUNMAP));
  say("munmap", munmap(block, mib));
  map_over(block, mib, both, anonymous);
  fill(block, mib, 43);
  say("DONTNEED", madvise(block, mib, MADV_DONTNEED));
  say("is empty", content(block, mib, 0));
  say("munmap of all", munmap(block, 2 * mib));
}

// The locks that mlockall(MCL_FUTURE) asks for, where far memory is mapped over.
void locked_in_future() {
  limit_locking(4 * mib);
  char* const block = map_aligned(16 * mib);
  fill(block, 16 * mib, 38);
  std::fflush(stdout);
  const int locked = mlockall(MCL_FUTURE);
  const void* const much = mmap(block, 8 * mib, both, anonymous | MAP_STACK | MAP_FIXED, -1, 0);
  const int failure = errno;
  const void* const little = mmap(block + 8 * mib, mib, both, anonymous | MAP_STACK | MAP_FIXED, -1, 0);
  const int dropped = madvise(block + 8 * mib, page, MADV_DONTNEED);
  const int dropped_failure = errno;
  munlockall();
  say("mlockall", locked);
  errno = failure;
  say("more than may be locked", much);
  say("holds", content(block, 8 * mib, 38));
  say("no more than that", little);
  errno = dropped_failure;
  say("which is locked", dropped);
}

// A range that is partly far, partly files and partly locked already is locked as a whole, or not at all.
void locked_in_parts() {
  char* const block = map_aligned(12 * mib);
  fill(block, 12 * mib, 44);
  map_over(block + 4 * mib, 4 * mib, PROT_READ, MAP_PRIVATE, file_of(4 * mib, 45));
  press();
  limit_locking(8 * mib);
  say("mlock of all", mlock(block, 12 * mib));
  say("locked", locked_mib());
  say("DONTNEED", madvise(block, page, MADV_DONTNEED));
  say("mlock2 of all", mlock2(block, 12 * mib, 1));
  say("locked", locked_mib());
  say("mlock of the first part", mlock(block, 3 * mib));
  say("and what is behind it", mlock(block, 8 * mib));
  say("locked", locked_mib());
  say("mlock of all", mlock(block, 12 * mib));
  say("again", mlock(block + mib, 7 * mib));
  say("locked", locked_mib());
  say("DONTNEED of what is locked", madvise(block + 2 * mib, page, MADV_DONTNEED));
  say("DONTNEED of what is not", madvise(block + 8 * mib, page, MADV_DONTNEED));
  say("munlock of all", munlock(block, 12 * mib));
  say("locked", locked_mib());
  say("holds", content(block + page, 4 * mib - page, 44 + 7 + 64));
  say("the file", content(block + 4 * mib, 4 * mib, 45));
  limit_locking(0);
  say("without permission", mlock(block, page));
}

// Memory that cannot be filled ends the filling; the memory behind it, of whatever kind, is locked all the same.
void locked_unfilled() {
  char* const block = map_aligned(8 * mib);
  fill(block, 8 * mib, 46);
  map_over(block + 4 * mib, 2 * mib, PROT_READ, MAP_PRIVATE, file_of(2 * mib, 47));
  mprotect(block + mib, page, PROT_NONE);
  press();
  say("mlock", mlock(block, 8 * mib));
  say("locked", locked_mib());
  for (const std::size_t at : {0 * mib, 2 * mib, 4 * mib, 6 * mib, 8 * mib - page}) {
    say("DONTNEED", madvise(block + at, page, MADV_DONTNEED));
  }
  press();
  say("holds", content(block + 2 * mib, 2 * mib, static_cast<int>(2 * mib / page * 7 + 2 * mib / 64 + 46)));
  say("munlock", munlock(block, 8 * mib));
  say("locked", locked_mib());
  for (const std::size_t at : {0 * mib, 2 * mib, 4 * mib, 6 * mib, 8 * mib - page}) {
    say("DONTNEED", madvise(block + at, page, MADV_DONTNEED));
  }
  say("munmap", munmap(block, 8 * mib));
}

// Pages that may only be read, and never were touched, beside so many that are elsewhere that the pager must make room.
void locked_read_only() {
  constexpr std::size_t untouched = 8 * mib;
  constexpr std::size_t filled = 20 * mib;
  char* const block = map_aligned(untouched + filled);
  fill(block + untouched, filled, 48);
  press();
  munmap(block, untouched);
  map_over(block, untouched, both, anonymous);
  mprotect(block, untouched + filled, PROT_READ);
  static_cast<void>(map(8 * mib));  // counts, too
  say("mlock", mlock(block, untouched + filled));
  say("DONTNEED of the first page", madvise(block, page, MADV_DONTNEED));
  say("DONTNEED of the last page", madvise(block + untouched + filled - page, page, MADV_DONTNEED));
  say("is empty", content(block, untouched, 0));
  say("holds", content(block + untouched, filled, 48));
  say("munlock", munlock(block, untouched + filled));
  press();
  say("is empty", content(block, untouched, 0));
  say("holds", content(block + untouched, filled, 48));
}

// Blocks of several kinds of memory become larger and smaller, though mremap() refuses to move such.
void resized_in_parts() {
  for (const int advice : {-1, MADV_DONTFORK, MADV_DONTDUMP}) {
    char* block = static_cast<char*>(std::malloc(64 * mib));
    fill(block, 64 * mib, 49);
    char* const inside = block + mib - reinterpret_cast<std::uintptr_t>(block) % mib;
    say("set", advice < 0 ? mlock(inside, page) : madvise(inside, mib, advice));
    block = static_cast<char*>(std::realloc(block, 128 * mib));
    say("grown", block != nullptr);
    say("holds", content(block, 64 * mib, 49));
    fill(block + 64 * mib, 64 * mib, 50);
    press();
    block = static_cast<char*>(std::realloc(block, 40 * mib));
    say("cut", block != nullptr);
    say("holds", content(block, 40 * mib, 49));
    std::free(block);
  }
}

// A thread that changes the protection of memory does not undo what another one tells of a part of it.
void locked_while_protected() {
  constexpr std::size_t pages = 512;
  char* const block = map_aligned(pages * page);
  fill(block, pages * page, 51);
  std::atomic<bool> ends = false;
  std::thread other([&] {
    while (!ends.load()) mprotect(block, pages * page, both);
  });
  long unlocked = 0;
  long still_locked = 0;
  long unguarded = 0;
  long still_guarded = 0;
  for (std::size_t round = 0; round < 4000; ++round) {
    char* const at = block + round % pages * page;
    mlock(at, page);
    unlocked += madvise(at, page, MADV_DONTNEED) == 0;
    munlock(at, page);
    still_locked += madvise(at, page, MADV_DONTNEED) != 0;
    madvise(at, page, MADV_GUARD_INSTALL);
    unguarded += std::strcmp(access(at), "readable") == 0;
    madvise(at, page, MADV_GUARD_REMOVE);
    still_guarded += std::strcmp(access(at), "fault") == 0;
  }
  long overlooked = 0;
  for (std::size_t round = 0; round < 4000; ++round) {
    char* const at = block + round % pages * page;
    mlock(at, page);
    munlockall();
    overlooked += madvise(at, page, MADV_DONTNEED) != 0;
  }
  ends.store(true);
  other.join();
  std::printf("not locked %ld, not unlocked %ld, %ld by munlockall, no guard %ld, a guard still %ld\n", unlocked,
              still_locked, overlooked, unguarded, still_guarded);
}

// Memory that is locked as it is touched (MLOCK_ONFAULT) is not filled by a move either.
void locked_on_fault_grows() {
  constexpr std::size_t bytes = 64 * mib;
  char* const block = map_aligned(bytes);
  fill(block, mib, 52);
  say("mlock2", mlock2(block, bytes, 1));
  char* const grown = static_cast<char*>(mremap(block, bytes, 2 * bytes, MREMAP_MAYMOVE));
  say("grows", grown);
  say("locked", locked_mib());
  std::vector<unsigned char> resident(2 * bytes / page);
  say("mincore", mincore(grown, 2 * bytes, resident.data()));
  long count = 0;
  for (const unsigned char one : resident) count += one & 1;
  // The kernel may have given huge pages to what was filled.
  say("filled by the move", static_cast<long>(count > static_cast<long>(4 * mib / page)));
  say("holds", content(grown, mib, 52));
  say("DONTNEED of the tail", madvise(grown + bytes, page, MADV_DONTNEED));
}

}  // namespace mapper
