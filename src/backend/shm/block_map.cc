#include "backend/shm/block_map.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "platform/advice.h"
#include "platform/local_memory.h"
#include "platform/own_descriptors.h"

namespace far::backend::shm {
namespace {

// How many whole blocks the file has; 0 when it may become smaller behind our back, or is no such file.
std::uint64_t blocks_of(int memory) {
  struct stat about{};
  const int seals = fcntl(memory, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(memory, &about) != 0 || about.st_size < 0) return 0;
  // A file of the machine's pool of huge pages ends whoever touches it when the pool is empty.
  struct statfs home{};
  if (fstatfs(memory, &home) != 0 || home.f_type != TMPFS_MAGIC) return 0;
  return static_cast<std::uint64_t>(about.st_size) / block_bytes;
}

void close_own(int descriptor) {
  if (descriptor < 0) return;
  platform::disown_descriptor(descriptor);
  close(descriptor);
}

}  // namespace

result<std::unique_ptr<block_map>> block_map::create(int memory, std::uint64_t most_blocks) {
  std::unique_ptr<block_map> created(new block_map);
  created->memory_ = memory;
  created->blocks_ = std::min(blocks_of(memory), most_blocks);
  created->reachable_blocks_ = created->blocks_;
  if (created->blocks_ == 0) {
    return error{"the server lends no memory: its --memory, or the tenant's quota, is less than 2 MiB", ENOSPC};
  }
  created->states_ = reinterpret_cast<state*>(platform::map_local(created->blocks_ * sizeof(state)));
  // One block more than needed, to align the first one for huge pages. Straight to the kernel: the program's mmap
  // symbol may be the one that the preload library defines.
  const std::uint64_t bytes = created->blocks_ * block_bytes;
  const long reserved =
      syscall(SYS_mmap, nullptr, bytes + block_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0L);
  if (reserved == -1) {
    return error{"no address space for " + format_size(bytes) +
                     "; choose a smaller capacity (capacity=8G), or raise the limit (ulimit -v)",
                 ENOMEM};
  }
  const auto address = static_cast<std::uint64_t>(reserved);
  const std::uint64_t aligned = round_up(address, block_bytes);
  if (aligned > address) syscall(SYS_munmap, address, aligned - address);
  if (address + block_bytes > aligned) syscall(SYS_munmap, aligned + bytes, address + block_bytes - aligned);
  created->base_ = reinterpret_cast<std::byte*>(aligned);
  if (!created->map_blocks(0, created->blocks_)) {
    return error{std::string("cannot map the server's memory: ") + std::strerror(errno), errno};
  }
  return created;
}

block_map::~block_map() {
  if (base_ != nullptr) syscall(SYS_munmap, base_, blocks_ * block_bytes);
  if (states_ != nullptr) {
    platform::unmap_local(reinterpret_cast<std::byte*>(states_), blocks_ * sizeof(state));
  }
  close_own(memory_);
}

bool block_map::map_blocks(std::uint64_t first, std::uint64_t count) {
  std::byte* const where = base_ + first * block_bytes;
  const long mapped = syscall(SYS_mmap, where, count * block_bytes, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_NORESERVE | MAP_FIXED, memory_, static_cast<long>(first * block_bytes));
  if (mapped == -1) return false;
  // Only wishes. A core file would otherwise touch, and so fill, every page that the server has not granted.
  syscall(SYS_madvise, where, count * block_bytes, MADV_DONTDUMP);
  syscall(SYS_madvise, where, count * block_bytes, MADV_HUGEPAGE);
  return true;
}

void block_map::populate(std::uint64_t first, std::uint64_t count) {
  if (count == 0) return;
  // Where this fails (Linux before 5.14) the first transfer of each page takes a fault.
  syscall(SYS_madvise, base_ + first * block_bytes, count * block_bytes, MADV_POPULATE_WRITE);
}

void block_map::discard_orphan(std::uint64_t block) {
  // Should the kernel refuse, the bytes stay as long as this process: nothing depends on them.
  syscall(SYS_madvise, base_ + block * block_bytes, block_bytes, MADV_REMOVE);
  states_[block] = state::absent;
  // Not mapped: the block keeps the old file behind it, and must not be asked for. It stays an orphan without bytes.
  if (block < reachable_blocks_ && !map_blocks(block, 1)) states_[block] = state::orphan;
}

result<std::uint64_t> block_map::adopt(int memory) {
  const std::uint64_t reachable = std::min(blocks_of(memory), blocks_);
  if (reachable == 0) {
    close_own(memory);
    return error{"the server lends no memory: its --memory, or the tenant's quota, is less than 2 MiB", ENOSPC};
  }
  close_own(memory_);
  memory_ = memory;
  reachable_blocks_ = reachable;
  std::uint64_t orphans = 0;
  for (std::uint64_t block = 0; block < blocks_;) {
    if (states_[block] != state::absent) {
      states_[block++] = state::orphan;
      ++orphans;
      continue;
    }
    std::uint64_t end = block + 1;
    while (end < reachable && states_[end] == state::absent) ++end;
    if (block < reachable && !map_blocks(block, end - block)) {
      // Absent blocks are still backed by another file, so no blocks may be requested from here on.
      reachable_blocks_ = block;
      for (; end < blocks_; ++end) {
        if (states_[end] == state::absent) continue;
        states_[end] = state::orphan;
        ++orphans;
      }
      return orphans;
    }
    block = end;
  }
  return orphans;
}

}  // namespace far::backend::shm
