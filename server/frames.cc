#include "server/frames.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "base/check.h"
#include "base/units.h"
#include "platform/system_memory.h"
#include "server/store.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace far::server {
namespace {

constexpr int huge_page_of_2_mib = MAP_HUGETLB | (21 << 26);  // MAP_HUGE_SHIFT

// How many blocks are handed out between two checks of the machine's memory; a check costs about as much as a block.
constexpr std::uint64_t takes_between_looks = 16;

std::byte* map(std::byte* where, std::uint64_t bytes, int protection, int flags) {
  void* const got = mmap(where, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return got == MAP_FAILED ? nullptr : static_cast<std::byte*>(got);
}

std::byte* align(std::byte* address) {
  return reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(address), block_bytes));
}

// Brings every page of the block into memory; false when there is none.
bool fill(std::byte* block) {
  if (madvise(block, block_bytes, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;
  // Linux before 5.14. A shortage here ends the process rather than the request.
  for (std::size_t at = 0; at < block_bytes; at += page_bytes) *const_cast<volatile std::byte*>(block + at) = {};
  return true;
}

}  // namespace

bool frames::region::holds(const std::byte* block) const {
  return block >= begin && block < begin + blocks * block_bytes;
}

std::uint64_t frames::free_in_pool() {
  std::ifstream file("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
  std::uint64_t count = 0;
  if (!(file >> count)) return 0;
  return count;
}

result<std::unique_ptr<frames>> frames::reserve(std::uint64_t most_blocks, std::uint64_t pool_blocks) {
  std::unique_ptr<frames> created(new frames);
  if (!reserve_ordinary(created->ordinary_, most_blocks)) {
    return error{"cannot reserve address space for " + format_size(most_blocks * block_bytes) + " (" +
                     std::strerror(errno) + "); lower --memory, or raise the limit on address space (ulimit -v)",
                 ENOMEM};
  }
  reserve_pool(created->pool_, std::min(most_blocks, pool_blocks));
  const result<platform::system_memory> machine = platform::read_system_memory();
  if (machine) created->floor_bytes_ = machine.value().usable_bytes() / 64;
  return created;
}

bool frames::reserve_ordinary(region& into, std::uint64_t blocks) {
  const std::uint64_t bytes = (blocks + 1) * block_bytes;
  std::byte* const got = map(nullptr, bytes, PROT_NONE, MAP_NORESERVE);
  if (got == nullptr) return false;
  into.reserved = got;
  into.reserved_bytes = bytes;
  into.begin = align(got);
  into.blocks = blocks;
  into.returned.reserve(blocks);
  // Only advice: not every kernel has transparent huge pages.
  static_cast<void>(madvise(into.begin, blocks * block_bytes, MADV_HUGEPAGE));
  // Blocks are of no use in a child process or a core file.
  static_cast<void>(madvise(into.begin, blocks * block_bytes, MADV_DONTFORK));
  static_cast<void>(madvise(into.begin, blocks * block_bytes, MADV_DONTDUMP));
  return true;
}

// There are no such blocks if there is no pool, or if others have taken its pages.
void frames::reserve_pool(region& into, std::uint64_t blocks) {
  if (blocks == 0) return;
  std::byte* const got = map(nullptr, blocks * block_bytes, PROT_READ | PROT_WRITE, huge_page_of_2_mib);
  if (got == nullptr) return;
  into.reserved = into.begin = got;
  into.reserved_bytes = blocks * block_bytes;
  into.blocks = blocks;
  into.returned.reserve(blocks);
}

frames::~frames() {
  for (const region& part : {std::cref(pool_), std::cref(ordinary_)}) {
    if (part.reserved != nullptr) munmap(part.reserved, part.reserved_bytes);
  }
}

std::byte* frames::next_of(region& from) {
  if (!from.returned.empty()) {
    std::byte* const block = from.returned.back();
    from.returned.pop_back();
    return block;
  }
  return from.fresh < from.blocks ? from.begin + from.fresh++ * block_bytes : nullptr;
}

std::byte* frames::take() {
  std::byte* const block = take_from_pool();
  return block != nullptr ? block : take_ordinary();
}

std::byte* frames::take_from_pool() {
  std::byte* block = nullptr;
  {
    const lock_guard guard(lock_);
    block = next_of(pool_);
  }
  if (block == nullptr || fill(block)) return block;
  // Somebody else has taken the page since then; perhaps it comes back.
  const lock_guard guard(lock_);
  pool_.returned.insert(pool_.returned.begin(), block);
  return nullptr;
}

std::byte* frames::take_ordinary() {
  std::byte* block = nullptr;
  {
    const lock_guard guard(lock_);
    if (!machine_can_spare()) return nullptr;
    block = next_of(ordinary_);
  }
  if (block == nullptr) return nullptr;
  // Blocks become writable one by one: if the kernel is strict about overcommitment, only these count.
  if (mprotect(block, block_bytes, PROT_READ | PROT_WRITE) == 0 && fill(block)) return block;
  give_back(block);
  return nullptr;
}

bool frames::machine_can_spare() {
  if (unchecked_takes_++ % takes_between_looks == 0 || !enough_memory_) {
    const result<platform::system_memory> machine = platform::read_system_memory();
    enough_memory_ = !machine || machine.value().available_bytes > floor_bytes_ + takes_between_looks * block_bytes;
  }
  return enough_memory_;
}

void frames::give_back(std::byte* block) {
  region& owner = pool_.holds(block) ? pool_ : ordinary_;
  FAR_CHECK(owner.holds(block), "a block that does not come from here");
  // Pages of the pool can be given back since Linux 5.18; before that they are kept, and zeroed.
  if (madvise(block, block_bytes, MADV_DONTNEED) != 0) std::memset(block, 0, block_bytes);
  const lock_guard guard(lock_);
  owner.returned.push_back(block);
}

}  // namespace far::server
