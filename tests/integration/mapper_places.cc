// Scenarios of mapper: memory whose place matters to the program, a reservation as large as an address space, and sizes
// beyond it.
#include "mapper_tools.h"

namespace mapper {
namespace {

constexpr std::size_t gib = std::size_t{1} << 30;

// As LuaJIT looks for memory that its code can jump to: proposes places until one is granted.
char* map_near(std::uintptr_t code, std::size_t bytes, int protection, unsigned* random) {
  for (int tries = 0; tries < 200; ++tries) {
    *random = *random * 1664525 + 1013904223;
    const std::uintptr_t wanted = ((code & ~std::uintptr_t{0xffff}) - gib) + (*random >> 16) * std::uintptr_t{0x8000};
    auto* const hint = reinterpret_cast<char*>(wanted & ~std::uintptr_t{0xffff});
    auto* const got = static_cast<char*>(mmap(hint, bytes, protection, anonymous, -1, 0));
    const auto at = reinterpret_cast<std::uintptr_t>(got);
    if (got != MAP_FAILED && (at > code ? at - code : code - at) < 2 * gib - 2 * mib) return got;
    if (got != MAP_FAILED) munmap(got, bytes);
  }
  return nullptr;
}

}  // namespace

void near_code() {
  const auto code = reinterpret_cast<std::uintptr_t>(&near_code);
  unsigned random = 7;
  for (const std::size_t bytes : {64 * std::size_t{1024}, 2 * mib}) {
    for (int i = 0; i < 3; ++i) {
      char* const block = map_near(code, bytes, both, &random);
      say("memory near the code", block);
      if (block == nullptr) return;
      fill(block, bytes, i);
      press();
      say("holds", content(block, bytes, i));
      say("becomes code", mprotect(block, bytes, PROT_READ | PROT_EXEC));
      say("munmap", munmap(block, bytes));
    }
  }
}

// As the JVM's ZGC reserves its heap: at a place that it can compute with, and nowhere else.
void reserved_in_place() {
  constexpr std::size_t bytes = 6 * gib;
  constexpr std::uintptr_t first = std::uintptr_t{1} << 42;
  char* reserved = nullptr;
  for (std::uintptr_t i = 0; i < 1000 && reserved == nullptr; ++i) {
    auto* const place = reinterpret_cast<char*>(first + i * gib);
    void* const got = mmap(place, bytes, PROT_NONE, anonymous | MAP_NORESERVE, -1, 0);
    if (got == place) reserved = place;
    if (got != place && got != MAP_FAILED) munmap(got, bytes);
  }
  say("a place that the program wants", reserved);
  if (reserved == nullptr) return;
  say("in use", mprotect(reserved + gib, mib, both));
  fill(reserved + gib, mib, 1);
  press();
  say("holds", content(reserved + gib, mib, 1));
  say("munmap", munmap(reserved, bytes));
}

// As mimalloc and V8 map their memory: at proposed places, with MAP_NORESERVE; or reserved there first. It stays far.
void used_and_given_back() {
  constexpr std::size_t bytes = 64 * mib;
  auto* const place = reinterpret_cast<char*>(std::uintptr_t{1} << 41);
  for (int i = 0; i < 300; ++i) {
    auto* const used = static_cast<char*>(mmap(place, bytes, both, anonymous | MAP_NORESERVE, -1, 0));
    used[0] = 1;
    munmap(used, bytes);
    auto* const opened = static_cast<char*>(mmap(place, bytes, PROT_NONE, anonymous | MAP_NORESERVE, -1, 0));
    mprotect(opened, mib, both);
    munmap(opened, bytes);
  }
  auto* const block = static_cast<char*>(mmap(place, bytes, PROT_NONE, anonymous | MAP_NORESERVE, -1, 0));
  say("in use", mprotect(block, bytes, both));
  fill(block, bytes, 1);
  auto* const second = static_cast<char*>(mmap(place + bytes, bytes, both, anonymous | MAP_NORESERVE, -1, 0));
  fill(second, bytes, 2);
  say("holds", content(block, bytes, 1));
  say("holds", content(second, bytes, 2));
}

// The heap of a Haskell program: a terabyte is reserved, and mapped again part by part where it is needed.
void terabyte() {
  constexpr std::size_t block = 64 * mib;
  char* const reserved = map(1024 * gib, PROT_NONE, anonymous | MAP_NORESERVE);
  for (std::size_t at = 0; at < 3 * 256 * gib; at += 256 * gib) {
    say("commits", mmap(reserved + at, block, both, anonymous | MAP_FIXED | MAP_NORESERVE, -1, 0));
    fill(reserved + at, block, static_cast<int>(at >> 38));
  }
  for (std::size_t at = 0; at < 3 * 256 * gib; at += 256 * gib) {
    say("holds", content(reserved + at, block, static_cast<int>(at >> 38)));
    say("behind it", access(reserved + at + block));
    say("decommits", madvise(reserved + at, block, MADV_DONTNEED));
    say("reads", content(reserved + at, block, 0));
  }
  say("munmap", munmap(reserved, 1024 * gib));
}

void absurd_lengths() {
  void* volatile kept = std::malloc(3 * mib);
  std::memset(kept, 5, 3 * mib);
  const std::size_t sizes[] = {SIZE_MAX,
                               SIZE_MAX - 1,
                               SIZE_MAX - 4096,
                               SIZE_MAX / 2 + 1,
                               std::size_t{PTRDIFF_MAX},
                               std::size_t{1} << 60,
                               std::size_t{1} << 47};
  for (const std::size_t size : sizes) {
    const volatile std::size_t bytes = size;
    errno = 0;
    say("malloc", std::malloc(bytes));
    errno = 0;
    say("calloc", std::calloc(1, bytes));
    errno = 0;
    say("calloc of many", std::calloc(bytes, 4));
    errno = 0;
    say("realloc", std::realloc(kept, bytes));
    errno = 0;
    say("reallocarray", reallocarray(kept, bytes, 16));
    errno = 0;
    say("aligned_alloc", aligned_alloc(4096, bytes));
    void* block = nullptr;
    std::printf("posix_memalign: %s\n", std::strerror(posix_memalign(&block, 64, bytes)));
    errno = 0;
    say("mmap", mmap(nullptr, bytes, both, anonymous, -1, 0));
    errno = 0;
    say("mmap with a hint", mmap(kept, bytes, both, anonymous, -1, 0));
    errno = 0;
    say("pvalloc", pvalloc(bytes));
  }
  errno = 0;
  say("mmap of nothing", mmap(nullptr, 0, both, anonymous, -1, 0));
  say("still there", std::string(static_cast<char*>(kept)[3 * mib - 1] == 5 ? "yes" : "no"));
  char* const block = map(4 * mib);
  fill(block, 4 * mib, 8);
  say("munmap of absurdly much", munmap(block, SIZE_MAX - 4096));
  say("munmap of nothing", munmap(block, 0));
  say("munmap, unaligned", munmap(block + 1, page));
  say("mprotect of absurdly much", mprotect(block, SIZE_MAX - 4096, PROT_READ));
  say("mprotect of nothing", mprotect(block, 0, PROT_READ));
  say("mprotect, unaligned", mprotect(block + 1, page, PROT_READ));
  say("mprotect, unknown bits", mprotect(block, page, 0x700));
  say("madvise of absurdly much", madvise(block, SIZE_MAX - 4096, MADV_DONTNEED));
  say("madvise of nothing", madvise(block, 0, MADV_DONTNEED));
  say("madvise, unaligned", madvise(block + 1, page, MADV_DONTNEED));
  say("madvise, unknown", madvise(block, page, 77));
  say("munmap of more than there is", munmap(block, std::size_t{1} << 47));
  say("mremap of nothing", mremap(block, 0, page, MREMAP_MAYMOVE));
  say("mremap to nothing", mremap(block, page, 0, MREMAP_MAYMOVE));
  say("mremap, unaligned", mremap(block + 1, page, page, MREMAP_MAYMOVE));
  say("mremap to absurdly much", mremap(block, 4 * mib, SIZE_MAX - 4096, MREMAP_MAYMOVE));
  say("mremap to too much", mremap(block, 4 * mib, std::size_t{1} << 46, MREMAP_MAYMOVE));
  say("mremap, unknown flags", mremap(block, 4 * mib, mib, 64));
  say("mremap, fixed and not to move", mremap(block, mib, mib, MREMAP_FIXED, block + 2 * mib));
  say("mremap onto itself", mremap(block, 2 * mib, 2 * mib, MREMAP_FIXED | MREMAP_MAYMOVE, block + mib));
  say("what was there", content(block, 4 * mib, 8));
}

}  // namespace mapper
