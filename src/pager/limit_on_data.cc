#include "pager/limit_on_data.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "base/units.h"
#include "engine/engine.h"
#include "pager/pager.h"
#include "platform/local_memory.h"

namespace far::pager {

std::uint64_t default_heap_bytes() {
  const auto physical_pages = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES));
  const std::uint64_t wanted = std::bit_ceil(16 * physical_pages * page_bytes);
  return std::clamp<std::uint64_t>(wanted, 256 * gib, 8 * tib);
}

namespace {

bool addresses_are_limited() {
  rlimit all{};
  rlimit data{};
  return getrlimit(RLIMIT_AS, &all) != 0 || getrlimit(RLIMIT_DATA, &data) != 0 || all.rlim_cur != RLIM_INFINITY ||
         data.rlim_cur != RLIM_INFINITY;
}

// vm.overcommit_memory is 2: the kernel promises no memory that it might not have.
bool overcommits_strictly() {
  const int file = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
  char mode = '0';
  const bool known = file >= 0 && read(file, &mode, 1) == 1;
  if (file >= 0) close(file);
  return known && mode == '2';
}

}  // namespace

std::uint64_t heap_bytes_for_programs() {
  const bool cost_nothing = !addresses_are_limited() && !overcommits_strictly();
  return cost_nothing ? std::max<std::uint64_t>(default_heap_bytes(), 4 * tib) : default_heap_bytes();
}

room_under_limit::room_under_limit(std::uint64_t heap_bytes, bool reads_parts, std::uint64_t more_bytes) {
  constexpr std::uint64_t buffers_bytes = 512 * mib;  // and stacks of threads
  rlimit limit{};
  if (getrlimit(RLIMIT_DATA, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  wanted_bytes_ = engine::engine::table_bytes(heap_bytes >> page_shift, reads_parts) + buffers_bytes + more_bytes;
  held_bytes_ = wanted_bytes_ + limit.rlim_cur / 2;
  held_ = platform::try_map_local(held_bytes_);
  fits_ = held_ != nullptr;
}

result<void> room_under_limit::fits() const {
  if (fits_) return {};
  return error{"the limit on data (ulimit -d) is too low: the far heap's tables take up to " +
                   format_size(wanted_bytes_) + " of it, and may take no more than half; raise it",
               ENOMEM};
}

void room_under_limit::release() {
  if (held_ != nullptr) platform::unmap_local(std::exchange(held_, nullptr), held_bytes_);
}

result<void> check_limit_on_data() {
  return room_under_limit(default_heap_bytes(), false).fits();
}

}  // namespace far::pager
