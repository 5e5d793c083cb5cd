#include "preload/program_memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "base/units.h"
#include "preload/in_runtime.h"
#include "preload/memory_file.h"
#include "preload/runtime.h"
#if defined(__x86_64__)
#include "preload/syscall_stubs.h"
#endif

namespace far::preload {
namespace {

constexpr std::uintptr_t mask_bytes = 8;

// rt_sigprocmask(2), which reads a mask, or writes one, at an address. Returns -errno.
long exchange_mask(long how, std::uintptr_t read_from, std::uintptr_t written_to) noexcept {
#if defined(__x86_64__)
  return far_raw_syscall(SYS_rt_sigprocmask, how, static_cast<long>(read_from), static_cast<long>(written_to),
                         mask_bytes);
#else
  const int saved_errno = errno;
  const long failed = syscall(SYS_rt_sigprocmask, how, read_from, written_to, mask_bytes) == 0 ? 0 : -errno;
  errno = saved_errno;
  return failed;
#endif
}

std::uintptr_t number_of(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

// The current mask is written there, which is about to be written over anyway.
bool is_writable(const void* memory, std::size_t bytes) noexcept {
  const std::uintptr_t last = number_of(memory) + bytes - mask_bytes;
  if (last < number_of(memory)) return false;
  for (std::uintptr_t at = number_of(memory);; at = std::min(round_down(at, page_bytes) + page_bytes, last)) {
    if (exchange_mask(SIG_BLOCK, 0, at) != 0) return false;
    if (at == last) return true;
  }
}

// What the map of far memory says of each page, which must allow any of `access`; `elsewhere(page)` decides about pages
// that are not far.
template <typename Elsewhere>
bool all_allow(const pager::pager& pager, int access, const std::byte* memory, std::size_t bytes,
               const Elsewhere& elsewhere) {
  const std::byte* const end = memory + bytes;
  const auto* page = reinterpret_cast<const std::byte*>(round_down(number_of(memory), page_bytes));
  for (; page < end; page += page_bytes) {
    const bool is_in_heap = pager.contains(page);
    const auto found =
        is_in_heap ? pager.mapping_at(page, page_bytes) : result<pager::pager::mapping>(error{"", EFAULT});
    if (!found && !elsewhere(page)) return false;
    if (found && (found.value().guarded || (found.value().protection & access) == 0)) return false;
  }
  return true;
}

// The map does not know what the program may do to memory of another kind that it has put among far memory: the kernel
// is asked, for which the far part is held.
bool may_be_written(const pager::pager& pager, const std::byte* memory, std::size_t bytes) {
  bool is_all_far = true;
  const auto elsewhere = [&is_all_far](const std::byte*) {
    is_all_far = false;
    return true;
  };
  if (!all_allow(pager, PROT_WRITE, memory, bytes, elsewhere)) return false;
  if (is_all_far) return true;
  const pinned_part held(number_of(memory), bytes);
  return is_writable(memory, bytes);
}

// The pager, if any of this memory may be far. The runtime's own never is; what the program gave to a call may be read
// in a section of the runtime, too.
const pager::pager* pager_of_memory(const void* memory, std::size_t bytes) {
  const pager::pager* const pager = active_pager();
  return pager != nullptr && pager->overlaps(memory, bytes) ? pager : nullptr;
}

}  // namespace

bool is_readable(const void* memory, std::size_t bytes) noexcept {
  const std::uintptr_t first = number_of(memory);
  if (first + bytes < first) return false;            // beyond the last address, like MAP_FAILED
  std::uintptr_t at = round_down(first, mask_bytes);  // a mask there lies within a page
  for (; at < first + bytes; at = round_down(at, page_bytes) + page_bytes) {
    if (exchange_mask(-1, at, 0) != -EINVAL) return false;
  }
  return true;
}

// The kernel knows only what is resident, and pages that may only be read do not stay.
bool may_be_read(const pager::pager& pager, const std::byte* memory, std::size_t bytes) {
  if (!pager.overlaps(memory, bytes)) return is_readable(memory, bytes);
  // What may be written can be read, too: no processor here has memory that can only be written.
  constexpr int readable = PROT_READ | PROT_WRITE;
  return all_allow(pager, readable, memory, bytes, [](const std::byte* page) { return is_readable(page, 1); });
}

bool load_bytes(void* copy, const void* place, std::size_t bytes) noexcept {
  const auto* const memory = static_cast<const std::byte*>(place);
  const pager::pager* const pager = pager_of_memory(place, bytes);
  const bool is_good =
      pager == nullptr ? is_readable(place, bytes) : in_runtime([&] { return may_be_read(*pager, memory, bytes); });
  if (is_good) std::memcpy(copy, place, bytes);
  return is_good;
}

bool store_bytes(void* place, const void* from, std::size_t bytes) noexcept {
  const auto* const memory = static_cast<const std::byte*>(place);
  const pager::pager* const pager = pager_of_memory(place, bytes);
  const bool is_good =
      pager == nullptr ? is_writable(place, bytes) : in_runtime([&] { return may_be_written(*pager, memory, bytes); });
  if (is_good) std::memcpy(place, from, bytes);
  return is_good;
}

bool is_readable_text(const char* text) noexcept {
  while (true) {
    const std::size_t bytes = page_bytes - number_of(text) % page_bytes;
    char first = 0;
    if (!load_bytes(&first, text, 1)) return false;
    if (std::memchr(text, 0, bytes) != nullptr) return true;
    text += bytes;
  }
}

}  // namespace far::preload
