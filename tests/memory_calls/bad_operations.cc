// Calls that must fail, and must then change nothing; and reservations of more than any machine has.
#include <cstdlib>

#include "world.h"

namespace memory_calls {
namespace {

constexpr std::size_t most_bytes = ~std::size_t{0} & ~(page_bytes - 1);
// More than any machine maps: with five levels of page tables a program has 56 bits of addresses.
constexpr std::size_t absurd_bytes = std::size_t{1} << 56;
constexpr int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
constexpr int both = PROT_READ | PROT_WRITE;

using call = outcome (*)(world&, std::byte* at, std::size_t bytes, bool main);

outcome make_mmap(world& w, bool main, void* at, std::size_t bytes, int protection, int flags, int file, long offset) {
  return main ? main_mmap(w, at, bytes, protection, flags, file, offset)
              : kernel_call(SYS_mmap, at, bytes, protection, flags, file, offset);
}
outcome make_mprotect(world& w, bool main, void* at, std::size_t bytes, int protection) {
  return main ? main_mprotect(w, at, bytes, protection) : kernel_call(SYS_mprotect, at, bytes, protection);
}
outcome make_madvise(world& w, bool main, void* at, std::size_t bytes, int advice) {
  return main ? main_madvise(w, at, bytes, advice) : kernel_call(SYS_madvise, at, bytes, advice);
}
outcome make_munmap(world& w, bool main, void* at, std::size_t bytes) {
  return main ? main_munmap(w, at, bytes) : kernel_call(SYS_munmap, at, bytes);
}
outcome make_mremap(world& w, bool main, void* at, std::size_t old_bytes, std::size_t new_bytes, int flags, void* to) {
  return main ? main_mremap(w, at, old_bytes, new_bytes, flags, to)
              : kernel_call(SYS_mremap, at, old_bytes, new_bytes, flags, to);
}

outcome bad_mremap_length(world& w, std::byte* at, std::size_t bytes, bool main) {
  return make_mremap(w, main, at, bytes, most_bytes, MREMAP_MAYMOVE, nullptr);
}

outcome bad_mremap_absurd(world& w, std::byte* at, std::size_t bytes, bool main) {
  return make_mremap(w, main, at, bytes, absurd_bytes, MREMAP_MAYMOVE, nullptr);
}

struct bad_call {
  const char* name;
  call make;
};

#define FAR_CALL(CALL)                                                                                     \
  [](world& w, [[maybe_unused]] std::byte* at, [[maybe_unused]] std::size_t bytes, bool main) -> outcome { \
    return CALL;                                                                                           \
  }

constexpr bad_call bad_calls[] = {
    {"bad-mmap-length", FAR_CALL(make_mmap(w, main, nullptr, most_bytes, both, anonymous, -1, 0))},
    {"bad-mmap-absurd", FAR_CALL(make_mmap(w, main, nullptr, absurd_bytes, both, anonymous, -1, 0))},
    {"bad-mmap-overflow", FAR_CALL(make_mmap(w, main, nullptr, ~std::size_t{0}, both, anonymous, -1, 0))},
    {"bad-mmap-zero", FAR_CALL(make_mmap(w, main, nullptr, 0, both, anonymous, -1, 0))},
    {"bad-mmap-kind", FAR_CALL(make_mmap(w, main, nullptr, bytes, both, MAP_ANONYMOUS, -1, 0))},
    {"bad-fixed-file", FAR_CALL(make_mmap(w, main, at, bytes, both, MAP_PRIVATE | MAP_FIXED, -1, 0))},
    {"bad-fixed-closed", FAR_CALL(make_mmap(w, main, at, bytes, both, MAP_SHARED | MAP_FIXED, 987654, 0))},
    {"bad-fixed-access",
     FAR_CALL(make_mmap(w, main, at, bytes, both, MAP_SHARED | MAP_FIXED, constants().read_only, 0))},
    {"bad-fixed-offset",
     FAR_CALL(make_mmap(w, main, at, bytes, both, MAP_PRIVATE | MAP_FIXED, constants().descriptor, 5))},
    {"bad-fixed-place", FAR_CALL(make_mmap(w, main, at + 8, bytes, both, anonymous | MAP_FIXED, -1, 0))},
    {"bad-fixed-length", FAR_CALL(make_mmap(w, main, at, absurd_bytes, both, anonymous | MAP_FIXED, -1, 0))},
    {"bad-fixed-most", FAR_CALL(make_mmap(w, main, at, most_bytes, both, anonymous | MAP_FIXED, -1, 0))},
    {"bad-fixed-zero", FAR_CALL(make_mmap(w, main, at, 0, both, anonymous | MAP_FIXED, -1, 0))},
    {"bad-fixed-kind", FAR_CALL(make_mmap(w, main, at, bytes, both, MAP_ANONYMOUS | MAP_FIXED, -1, 0))},
    {"bad-noreplace", FAR_CALL(make_mmap(w, main, at, bytes, both, anonymous | MAP_FIXED_NOREPLACE, -1, 0))},
    {"bad-munmap-zero", FAR_CALL(make_munmap(w, main, at, 0))},
    {"bad-munmap-place", FAR_CALL(make_munmap(w, main, at + 1, bytes))},
    {"bad-munmap-length", FAR_CALL(make_munmap(w, main, at, most_bytes))},
    {"bad-munmap-absurd", FAR_CALL(make_munmap(w, main, at, absurd_bytes))},
    {"bad-mprotect-place", FAR_CALL(make_mprotect(w, main, at + 1, bytes, PROT_READ))},
    {"bad-mprotect-bits", FAR_CALL(make_mprotect(w, main, at, bytes, 0x40000000))},
    {"bad-mprotect-length", FAR_CALL(make_mprotect(w, main, at, most_bytes, both))},
    {"bad-mprotect-zero", FAR_CALL(make_mprotect(w, main, at, 0, PROT_NONE))},
    {"bad-advice", FAR_CALL(make_madvise(w, main, at, bytes, 7777))},
    {"bad-advice-place", FAR_CALL(make_madvise(w, main, at + 1, bytes, MADV_DONTNEED))},
    {"bad-advice-zero", FAR_CALL(make_madvise(w, main, at, 0, MADV_DONTNEED))},
    {"bad-advice-length", FAR_CALL(make_madvise(w, main, at, most_bytes + 1, MADV_DONTNEED))},
    {"bad-advice-overflow", FAR_CALL(make_madvise(w, main, at, ~std::size_t{0}, MADV_DONTNEED))},
    {"bad-mremap-zero", FAR_CALL(make_mremap(w, main, at, bytes, 0, MREMAP_MAYMOVE, nullptr))},
    {"bad-mremap-flags", FAR_CALL(make_mremap(w, main, at, bytes, bytes, 64, nullptr))},
    {"bad-mremap-fixed", FAR_CALL(make_mremap(w, main, at, bytes, bytes, MREMAP_FIXED, at))},
    {"bad-mremap-overlap", FAR_CALL(make_mremap(w, main, at, bytes, bytes, MREMAP_FIXED | MREMAP_MAYMOVE, at))},
    {"bad-mremap-place", FAR_CALL(make_mremap(w, main, at + 1, bytes, bytes, MREMAP_MAYMOVE, nullptr))},
    {"bad-mremap-target", FAR_CALL(make_mremap(w, main, at, bytes, bytes, MREMAP_FIXED | MREMAP_MAYMOVE, at + 8))},
    {"bad-mremap-absurd", bad_mremap_absurd},
    {"bad-mremap-length", bad_mremap_length},
    {"bad-dontunmap", FAR_CALL(make_mremap(w, main, at, bytes, bytes, MREMAP_DONTUNMAP, nullptr))},
};

#undef FAR_CALL

// Behind the compiler's back, which knows that such sizes are wrong.
std::size_t size_of(world& w) {
  static constexpr std::size_t sizes[] = {~std::size_t{0},      ~std::size_t{0} - 4095,     most_bytes,
                                          ~std::size_t{0} >> 1, (~std::size_t{0} >> 1) + 1, std::size_t{1} << 62,
                                          std::size_t{1} << 48};
  volatile std::size_t chosen = sizes[w.random.below(sizeof sizes / sizeof sizes[0])];
  return chosen;
}

}  // namespace

void call_badly(world& w) {
  const bad_call& chosen = bad_calls[w.random.below(sizeof bad_calls / sizeof bad_calls[0])];
  range pages;
  if (!allowed(w, chosen.name) || !pick_range(w, pages) || any_hole(pages)) return;
  // Within one page record of a kind: mremap says EFAULT for several mappings before it looks further.
  pages.count = 1;
  say(w, "%s, at %p", chosen.name, static_cast<void*>(pages.main()));
  const outcome main = chosen.make(w, pages.main(), pages.bytes(), true);
  const outcome twin = chosen.make(w, pages.twin(), pages.bytes(), false);
  // Newer kernels find such a length invalid, older ones find no memory for it.
  const bool lengthy = chosen.make == bad_mremap_absurd || chosen.make == bad_mremap_length;
  const auto refused = [](const outcome& one) { return one.error == ENOMEM || one.error == EINVAL; };
  if (!lengthy || !refused(main) || !refused(twin)) must_agree(w, chosen.name, main, twin);
  verify_range(w, pages);
}

void allocate_badly(world& w) {
  const std::size_t bytes = size_of(w);
  void* created = nullptr;
  say(w, "%zu bytes", bytes);
  errno = 0;
  switch (w.random.below(6)) {
    case 0: created = std::malloc(bytes); break;
    case 1: created = std::calloc(bytes / 8, 16); break;
    case 2: created = std::aligned_alloc(64, bytes & ~std::size_t{63}); break;
    case 3:
      if (::posix_memalign(&created, 24, 64) != EINVAL) fail(w, "posix_memalign takes an alignment of 24");
      return;
    case 4: errno = ::posix_memalign(&created, 4096, bytes); break;
    default: {
      block* chosen = &w.blocks[w.random.below(block_count)];
      if (chosen->main == nullptr) return;
      created = std::realloc(chosen->main, bytes);
      if (created == nullptr) verify_block(w, *chosen);
    }
  }
  if (created != nullptr) fail(w, "%zu bytes are allocated, at %p", bytes, created);
  if (errno != ENOMEM) fail(w, "%zu bytes cannot be had, but errno is %d", bytes, errno);
}

// Address space of which little will ever be used, as garbage collectors take it.
void reserve_much(world& w) {
  const std::size_t bytes = std::size_t{1} << (30 + w.random.below(17));
  say(w, "%zu GiB", bytes >> 30);
  const int protection = w.random.one_in(2) ? PROT_NONE : both;
  const outcome main = main_mmap(w, nullptr, bytes, protection, anonymous | MAP_NORESERVE, -1, 0);
  const outcome twin = kernel_call(SYS_mmap, 0, bytes, protection, anonymous | MAP_NORESERVE, -1, 0);
  if (twin.ok()) kernel_call(SYS_munmap, twin.address(), bytes);
  something_was_mapped(w);
  must_agree(w, "a reservation", main, twin);
  if (!main.ok()) return;
  std::byte* const at = main.address() + w.random.below(bytes / page_bytes) / 2 * page_bytes;
  const std::size_t used = w.random.spread(16) * page_bytes;
  const outcome opened = main_mprotect(w, at, used, both);
  if (!opened.ok()) fail(w, "mprotect in a reservation ends with errno %d", opened.error);
  for (std::size_t i = 0; i < used; ++i) {
    if (at[i] != std::byte{0}) fail(w, "a reservation is not empty at %p", static_cast<void*>(at + i));
  }
  for (std::size_t i = 0; i < used; ++i) at[i] = static_cast<std::byte>(i * 7);
  if (w.random.one_in(2)) write(w);
  for (std::size_t i = 0; i < used; ++i) {
    if (at[i] != static_cast<std::byte>(i * 7))
      fail(w, "wrong data in a reservation at %p", static_cast<void*>(at + i));
  }
  const outcome unmapped = main_munmap(w, main.address(), bytes);
  if (!unmapped.ok()) fail(w, "munmap of a reservation ends with errno %d", unmapped.error);
}

}  // namespace memory_calls
