#include "preload/far_ranges.h"

#include <algorithm>
#include <atomic>

#include "platform/runtime_thread.h"
#include "preload/kernel_calls.h"
#include "preload/runtime.h"

namespace far::preload {
namespace {

bool page_aligned(const void* address) {
  return (number_of(address) & (page_bytes - 1)) == 0;
}

// The end of the addresses of programs: the kernel refuses to map or unmap a range that extends beyond it. It depends
// on the machine, so it is found by mapping a single page for a moment.
std::uintptr_t find_end_of_user_space() {
  constexpr int reservation = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  const auto mappable = [](std::uintptr_t at) {
    void* const place = reinterpret_cast<void*>(at);
    if (kernel_mmap(place, page_bytes, PROT_NONE, reservation, -1, 0) == MAP_FAILED) return errno == EEXIST;
    kernel_munmap(place, page_bytes);
    return true;
  };
  for (const unsigned bits : {56U, 52U, 48U, 47U}) {
    const std::uintptr_t end = std::uintptr_t{1} << bits;
    if (mappable(end - page_bytes)) return end;
    if (mappable(end - 2 * page_bytes)) return end - page_bytes;
  }
  return address_end;
}

}  // namespace

pager::pager* pager_for_caller() noexcept {
  return platform::on_runtime_thread() ? nullptr : active_pager();
}

bool sensible(const void* address, std::size_t bytes, std::size_t* rounded) {
  if (!page_aligned(address) || bytes > address_end || number_of(address) > address_end) return false;
  *rounded = round_up(bytes, page_bytes);
  return true;
}

bool ends_in_user_space(const void* address, std::size_t bytes) {
  static std::atomic<std::uintptr_t> known{0};
  std::uintptr_t end = known.load(std::memory_order_relaxed);
  if (end == 0) {
    const int saved_errno = errno;
    end = find_end_of_user_space();
    known.store(end, std::memory_order_relaxed);
    errno = saved_errno;
  }
  return number_of(address) <= end && bytes <= end - number_of(address);
}

whereabouts lies(const pager::pager& far, const void* address, std::size_t bytes) {
  bool inside = false;
  if (far.uniform_bytes(address, bytes, &inside) < bytes) return whereabouts::across;
  return inside ? whereabouts::within : whereabouts::outside;
}

std::size_t within_addresses(const void* address, std::size_t bytes) {
  const std::uintptr_t first = number_of(address);
  const bool wraps = bytes > ~std::size_t{0} - (page_bytes - 1) - first;
  return wraps || first >= address_end ? bytes : std::min(bytes, address_end - first);
}

pager::pager* pager_of(const void* address, std::size_t bytes) noexcept {
  pager::pager* const far = pager_for_caller();
  std::size_t rounded = 0;
  if (far == nullptr || !sensible(address, bytes, &rounded) || rounded == 0) return nullptr;
  return lies(*far, address, rounded) != whereabouts::outside ? far : nullptr;
}

}  // namespace far::preload
