// The allocator behind the run door's malloc: jemalloc on far memory for small blocks, page ranges for large ones,
// local memory for the runtime's own threads.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "pager/pager.h"

namespace far::preload {

// From this size on a block is a page range of its own, given back when it is freed. glibc, too, stops recycling such
// blocks here (the largest value of its dynamic M_MMAP_THRESHOLD).
inline constexpr std::size_t large_block_bytes = std::size_t{32} << 20;

// From now on the program's blocks come from `pager`. Blocks handed out before stay where they are. Called once.
[[nodiscard]] result<void> use_far_memory(pager::pager& pager);

// Allocate a zeroed structure of the C library, or make a block one. Always local, see c_library.h. So is what a
// program says to be local (far/local.h). `alignment_bytes`: a power of two.
void* allocate_record(std::size_t bytes, std::size_t alignment_bytes = 1) noexcept;
void* reallocate_record(void* block, std::size_t bytes) noexcept;

// The malloc family. Each sets errno as the C library's would.
void* allocate(std::size_t bytes) noexcept;
void* allocate_zeroed(std::size_t count, std::size_t bytes) noexcept;
void* allocate_aligned(std::size_t alignment_bytes, std::size_t bytes) noexcept;  // a power of two; else nullptr
void* reallocate(void* block, std::size_t bytes) noexcept;
void release(void* block) noexcept;
[[nodiscard]] std::size_t usable_bytes(void* block) noexcept;

// Gives freed memory that jemalloc still holds back to the pager, so that it is not written to the far tier.
void purge_freed_memory() noexcept;

// From now on freed memory goes back to the pager at once, addresses and all: for a program whose memory is limited.
void give_back_addresses() noexcept;
// The same for a process without far memory, if its memory is limited now.
void give_back_local_addresses_if_limited() noexcept;

// Around a fork, so that the child's list of large blocks is whole. Inside jemalloc's locks, outside the pager's.
void lock_large_blocks_for_fork() noexcept;
void unlock_large_blocks_after_fork() noexcept;

}  // namespace far::preload
