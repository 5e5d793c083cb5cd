#include "preload/shared_segments.h"

#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "preload/far_ranges.h"
#include "preload/in_runtime.h"

namespace far::preload {
namespace {

using overlap = pager::pager::overlap;

void* kernel_shmat(int segment, const void* address, int flags) {
  return reinterpret_cast<void*>(syscall(SYS_shmat, segment, address, flags));
}

int kernel_shmdt(const void* address) {
  return static_cast<int>(syscall(SYS_shmdt, address));
}

// The sizes of the segments that are attached in the far heap: shmdt does not tell how much it has unmapped. Without a
// lock, so that a fork needs no care. When there are no more entries, the addresses of a segment remain the kernel's.
class attached_segments {
 public:
  void add(std::uintptr_t address, std::size_t bytes) {
    for (entry& at : entries_) {
      std::uintptr_t none = 0;
      if (at.address.load() != address && !at.address.compare_exchange_strong(none, taken)) continue;
      at.bytes = bytes;
      at.address = address;
      return;
    }
  }

  // 0: no segment is known there.
  std::size_t remove(std::uintptr_t address) {
    for (entry& at : entries_) {
      if (at.address.load() != address) continue;
      const std::size_t bytes = at.bytes;
      at.address = 0;
      return bytes;
    }
    return 0;
  }

 private:
  static constexpr std::uintptr_t taken = 1;
  struct entry {
    std::atomic<std::uintptr_t> address{0};
    std::atomic<std::size_t> bytes{0};
  };
  std::array<entry, 64> entries_{};
};

constinit attached_segments attached;

}  // namespace

void* attach_segment(int segment, const void* address, int flags) {
  const std::uintptr_t lowest_bits = page_bytes - 1;
  const std::uintptr_t place = number_of(address) & ((flags & SHM_RND) != 0 ? ~lowest_bits : ~std::uintptr_t{0});
  auto* const wanted = reinterpret_cast<std::byte*>(place);
  shmid_ds about{};
  if (pager_of(wanted, page_bytes) == nullptr || shmctl(segment, IPC_STAT, &about) != 0) {
    return kernel_shmat(segment, address, flags);
  }
  const std::size_t bytes = round_up(about.shm_segsz, page_bytes);
  pager::pager* const far = pager_of(wanted, bytes);
  if (far == nullptr || lies(*far, wanted, bytes) != whereabouts::within) return fail_to_map(EINVAL);
  // Would it succeed at all? The segment stays attached, so that it does not end before it is attached in its place.
  const void* const probe = kernel_shmat(segment, nullptr, flags & ~(SHM_REMAP | SHM_RND));
  if (probe == MAP_FAILED) return MAP_FAILED;
  // To the kernel the place is always occupied: by the far heap.
  const auto attach = [&]() -> int {
    return kernel_shmat(segment, wanted, flags | SHM_REMAP) != MAP_FAILED ? 0 : errno;
  };
  const auto* const attaching = &attach;
  const overlap how = (flags & SHM_REMAP) != 0 ? overlap::replace : overlap::refuse;
  const result<void> handed_over =
      in_runtime([&] { return far->hand_over(wanted, bytes, how, [attaching] { return (*attaching)(); }); });
  kernel_shmdt(probe);
  if (!handed_over) return fail_to_map(handed_over.error().code == EEXIST ? EINVAL : handed_over.error().code);
  attached.add(place, bytes);
  return wanted;
}

int detach_segment(const void* address) {
  pager::pager* const far = pager_of(address, page_bytes);
  if (kernel_shmdt(address) != 0) return -1;
  const std::size_t bytes = far != nullptr ? attached.remove(number_of(address)) : 0;
  if (bytes > 0) {
    auto* const place = reinterpret_cast<std::byte*>(number_of(address));
    static_cast<void>(in_runtime([&] { return far->take_back(place, bytes); }));
  }
  return 0;
}

}  // namespace far::preload
