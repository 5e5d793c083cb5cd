// Scenarios of mapper: memory whose place matters to the program, and a reservation as large as an address space.
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

}  // namespace mapper
