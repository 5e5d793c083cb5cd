// Ranges of memory calls: whether they touch the far heap, and calls served part by part, as the far heap's or the
// kernel's. Results are those of the C library: errno is set.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/units.h"
#include "pager/pager.h"
#include "preload/in_runtime.h"

namespace far::preload {

// The end of what a program can map; none of the kernels that we run on gives it more.
inline constexpr std::uintptr_t address_end = std::uintptr_t{1} << 56;

inline int fail(int code) {
  errno = code;
  return -1;
}

inline void* fail_to_map(int code) {
  errno = code;
  return MAP_FAILED;
}

inline int done(const result<void>& outcome) {
  return outcome ? 0 : fail(outcome.error().code != 0 ? outcome.error().code : ENOMEM);
}

inline std::uintptr_t number_of(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

inline std::byte* bytes_at(void* address) {
  return static_cast<std::byte*>(address);
}

// The pager, unless the runtime itself makes the call.
[[nodiscard]] pager::pager* pager_for_caller() noexcept;

// Whether the kernel would accept the range: it begins at a page and does not overflow. `*rounded` gets its length in
// whole pages.
[[nodiscard]] bool sensible(const void* address, std::size_t bytes, std::size_t* rounded);

// Whether memory could be mapped there.
[[nodiscard]] bool ends_in_user_space(const void* address, std::size_t bytes);

// Whether a range, in whole pages, lies in the far heap.
enum class whereabouts : std::uint8_t { outside, within, across };
[[nodiscard]] whereabouts lies(const pager::pager& far, const void* address, std::size_t bytes);

// mprotect, madvise and mlock accept ranges that extend beyond all addresses, as long as they do not wrap around. Such
// a range ends where addresses end, in a hole.
[[nodiscard]] std::size_t within_addresses(const void* address, std::size_t bytes);

// The pager, if the range of a call is sensible and touches the far heap. Everything else is the kernel's to judge.
[[nodiscard]] pager::pager* pager_of(const void* address, std::size_t bytes) noexcept;

// Serves a call about a range piece by piece, as the kernel goes through mappings: `outside(address, bytes)` returns 0
// or -1 with errno, `inside` a result. The first error ends it. But with `past_holes`, the ENOMEM of a hole is reported
// after the rest has been done.
template <typename Outside, typename Inside>
int serve(const pager::pager& far, void* address, std::size_t bytes, bool past_holes, const Outside& outside,
          const Inside& inside) {
  bool holes = false;
  std::byte* at = bytes_at(address);
  std::byte* const end = at + round_up(bytes, page_bytes);
  while (at < end) {
    bool is_far = false;
    const std::size_t part = far.uniform_bytes(at, static_cast<std::size_t>(end - at), &is_far);
    const int failed = is_far ? done(in_runtime([&] { return inside(at, part); })) : outside(at, part);
    if (failed != 0 && (errno != ENOMEM || !past_holes)) return -1;
    holes |= failed != 0;
    at += part;
  }
  return holes ? fail(ENOMEM) : 0;
}

}  // namespace far::preload
