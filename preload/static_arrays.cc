#include "preload/static_arrays.h"

#include <link.h>

#include <algorithm>
#include <cstdint>

#include "base/units.h"
#include "platform/heap_layout.h"
#include "preload/watchers.h"

namespace far::preload {
namespace {

// Below this size, the gain is not worth a program whose static memory differs from that of a native run.
constexpr std::uint64_t least_bytes = 8 * mib;
// More than the variables of the C library that an executable can have copies of.
constexpr std::uint64_t kept_local_bytes = 64 * kib;

void add_zeroed_part(const dl_phdr_info& object, const ElfW(Phdr) & segment, std::vector<std::span<std::byte>>& found) {
  constexpr std::uint64_t alignment = platform::heap_layout::alignment_bytes;
  const std::uint64_t start = object.dlpi_addr + segment.p_vaddr;
  const std::uint64_t first = round_up(start + segment.p_filesz + kept_local_bytes, alignment);
  const std::uint64_t end = round_down(start + segment.p_memsz, alignment);
  if (end < first + least_bytes || found.size() == platform::heap_layout::most_static_ranges) return;
  found.emplace_back(reinterpret_cast<std::byte*>(first), end - first);
}

int visit_executable(dl_phdr_info* object, std::size_t, void* found) {
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    const bool writable = (segment.p_flags & (PF_R | PF_W | PF_X)) == (PF_R | PF_W);
    if (segment.p_type != PT_LOAD || !writable) continue;
    add_zeroed_part(*object, segment, *static_cast<std::vector<std::span<std::byte>>*>(found));
  }
  return 1;  // the executable comes first, and it is enough
}

}  // namespace

std::vector<std::span<std::byte>> find_static_arrays() {
  std::vector<std::span<std::byte>> found;
  if (has_sanitizer_of_calls()) return found;
  dl_iterate_phdr(visit_executable, &found);
  return found;
}

}  // namespace far::preload
