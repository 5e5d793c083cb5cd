#include "preload/allocator.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "base/check.h"
#include "base/log.h"
#include "base/spin_lock.h"
#include "base/units.h"
#include "platform/fork_order.h"
#include "platform/local_memory.h"
#include "platform/runtime_thread.h"
#include "platform/signal_shield.h"
#include "preload/in_runtime.h"
#include "preload/jemalloc.h"
#include "preload/kernel_calls.h"
#include "preload/resource_limits.h"
#include "preload/runtime_blocks.h"

// Read by jemalloc when it starts. One automatic arena, which is local; the far arenas are made explicitly. Freed
// memory goes back within seconds, or at once under pressure (purge_freed_memory).
extern "C" {
__attribute__((visibility("hidden"))) const char* far_je_malloc_conf =
    "narenas:1,dirty_decay_ms:5000,muzzy_decay_ms:0,oversize_threshold:0,background_thread:false";
}

namespace far::preload {
namespace {

constexpr std::size_t maximum_arenas = 64;
// As in the C library, no block is larger than the largest difference of two pointers. Sizes that would wrap around
// when they are rounded up exceed it.
constexpr std::size_t most_bytes = PTRDIFF_MAX;

// Before every call of jemalloc's that may take its locks.
void check_order_of_locks() noexcept {
  FAR_DCHECK(platform::forks_held_up == 0, "a thread that holds up a fork stays out of the program's allocator");
}

void* refuse() noexcept {
  errno = ENOMEM;
  return nullptr;
}
// The local arena: for structures of the C library that the program's threads request, and for allocations of the
// runtime that are too large for its own blocks.
constexpr int local_arena_flags = MALLOCX_ARENA(0) | MALLOCX_TCACHE_NONE;

std::atomic<pager::pager*> far_memory{nullptr};
std::array<unsigned, maximum_arenas> arenas{};
unsigned arena_count = 0;
std::atomic<unsigned> next_arena{0};
thread_local bool bound_to_arena = false;

// Large blocks by their first byte. Few and big, so one lock does.
spin_lock large_lock;
using large_map =
    std::map<std::byte*, std::size_t, std::less<>, platform::local_allocator<std::pair<std::byte* const, std::size_t>>>;
large_map& large_blocks() FAR_REQUIRES(large_lock) {
  // Built in place and never destroyed: blocks are freed until the very end of the process.
  alignas(large_map) static std::byte storage[sizeof(large_map)];
  static large_map* const blocks = new (storage) large_map;
  return *blocks;
}

void* extent_alloc(extent_hooks_t*, void* wanted, std::size_t bytes, std::size_t alignment, bool* zero, bool* commit,
                   unsigned) {
  if (wanted != nullptr || !has_addresses_for(bytes)) return nullptr;
  // jemalloc's locks are held.
  const result<std::byte*> mapped =
      in_runtime([&] { return far_memory.load()->map(bytes, PROT_READ | PROT_WRITE, alignment); });
  if (!mapped) return nullptr;
  *zero = true;
  *commit = true;
  return mapped.value();
}

// jemalloc gives up an arena.
void extent_destroy(extent_hooks_t*, void* address, std::size_t bytes, bool, unsigned) {
  const result<void> unmapped =
      in_runtime([&] { return far_memory.load()->unmap(static_cast<std::byte*>(address), bytes); });
  if (unmapped) return;
  log_line(log_level::warning, "freed memory could not be unmapped: %s", unmapped.error().message.c_str());
}

bool extent_purge(extent_hooks_t*, void* address, std::size_t, std::size_t offset, std::size_t bytes, unsigned) {
  return !in_runtime([&] { return far_memory.load()->discard(static_cast<std::byte*>(address) + offset, bytes); }).ok();
}

// The pager frees and forgets any range of pages, so extents may be cut and joined freely.
bool extent_split(extent_hooks_t*, void*, std::size_t, std::size_t, std::size_t, bool, unsigned) {
  return false;
}
bool extent_merge(extent_hooks_t*, void*, std::size_t, void*, std::size_t, bool, unsigned) {
  return false;
}

// Whether it stays jemalloc's.
bool extent_dalloc(extent_hooks_t*, void* address, std::size_t bytes, bool, unsigned) {
  return !in_runtime([&] { return far_memory.load()->unmap(static_cast<std::byte*>(address), bytes); }).ok();
}

constexpr extent_hooks_t far_extents_with(decltype(extent_hooks_t::dalloc) dalloc) {
  return {.alloc = extent_alloc,
          .dalloc = dalloc,
          .destroy = extent_destroy,
          .commit = nullptr,
          .decommit = nullptr,
          .purge_lazy = nullptr,
          .purge_forced = extent_purge,
          .split = extent_split,
          .merge = extent_merge};
}

// Without a hook to give addresses back, jemalloc discards their contents and uses them again. If they were given back,
// it would request an ever larger stretch of new ones each time, and the kernel would keep page tables for all of them.
constinit extent_hooks_t far_extents = far_extents_with(nullptr);
constinit extent_hooks_t returned_extents = far_extents_with(extent_dalloc);

// Of memory that the kernel has mapped, with jemalloc's own functions for the rest.
extent_hooks_t returned_local_extents;

bool local_extent_dalloc(extent_hooks_t*, void* address, std::size_t bytes, bool, unsigned) {
  return kernel_munmap(address, bytes) != 0;
}

// Sets what jemalloc calls arena.I.NAME.
template <typename Value>
void set_for_arena(unsigned arena, const char* name, Value value) noexcept {
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "arena.%u.%s", arena, name);
  const int failure = far_je_mallctl(path.data(), nullptr, nullptr, &value, sizeof value);
  if (failure != 0) log_line(log_level::verbose, "jemalloc refuses %s (%s)", path.data(), std::strerror(failure));
}

void give_back_extents(unsigned arena, extent_hooks_t* hooks) noexcept {
  set_for_arena(arena, "extent_hooks", hooks);
  set_for_arena(arena, "dirty_decay_ms", ssize_t{0});
  set_for_arena(arena, "muzzy_decay_ms", ssize_t{0});
}

bool is_limited(__rlimit_resource kind) {
  rlimit now{};
  return syscall(SYS_prlimit64, 0, kind, nullptr, &now) == 0 && now.rlim_cur != RLIM_INFINITY;
}

void bind_to_arena() noexcept {
  bound_to_arena = true;
  unsigned arena = arenas[next_arena.fetch_add(1, std::memory_order_relaxed) % arena_count];
  if (far_je_mallctl("thread.arena", nullptr, nullptr, &arena, sizeof arena) != 0) {
    log_line(log_level::warning, "a thread could not be bound to far memory; its allocations stay local");
  }
}

// The pager that provides the calling thread's blocks; nullptr: local memory.
pager::pager* far_memory_for_caller() noexcept {
  pager::pager* const far = far_memory.load(std::memory_order_acquire);
  if (far == nullptr || platform::on_runtime_thread()) return nullptr;
  if (__builtin_expect(!bound_to_arena, 0)) bind_to_arena();
  return far;
}

void* allocate_for_runtime(std::size_t bytes, std::size_t alignment_bytes) noexcept {
  bytes = std::max<std::size_t>(bytes, 1);
  if (void* const block = allocate_runtime_block(bytes, alignment_bytes)) return block;
  check_order_of_locks();
  return far_je_mallocx(bytes, MALLOCX_ALIGN(alignment_bytes) | local_arena_flags);
}

void* allocate_zeroed_for_runtime(std::size_t bytes, std::size_t alignment_bytes) noexcept {
  void* const block = allocate_for_runtime(bytes, alignment_bytes);
  if (block != nullptr) std::memset(block, 0, bytes);
  return block;
}

// Reallocates a block of the runtime. The new block belongs to the program if the program asks.
void* reallocate_runtime_block(void* block, std::size_t bytes) noexcept {
  const std::size_t old_bytes = runtime_block_bytes(block);
  if (bytes > 0 && bytes <= old_bytes && old_bytes / 4 <= bytes) return block;
  void* const moved = bytes > 0 ? allocate(bytes) : nullptr;
  if (moved == nullptr && bytes > 0) return nullptr;
  if (moved != nullptr) std::memcpy(moved, block, std::min(bytes, old_bytes));
  release(block);
  return moved;
}

void* map_large(pager::pager& far, std::size_t bytes, std::size_t alignment_bytes) noexcept {
  const platform::signal_shield shield;
  const result<std::byte*> mapped = far.map(bytes, PROT_READ | PROT_WRITE, std::max(alignment_bytes, page_bytes));
  if (!mapped) {
    errno = ENOMEM;
    return nullptr;
  }
  const lock_guard guard(large_lock);
  large_blocks()[mapped.value()] = round_up(bytes, page_bytes);
  return mapped.value();
}

void* allocate_large(pager::pager& far, std::size_t bytes, std::size_t alignment_bytes) noexcept {
  if (!has_addresses_for(bytes)) return nullptr;
  return in_runtime([&] { return map_large(far, bytes, alignment_bytes); });
}

// The size of a large block, or 0. Large blocks start at huge-page borders, where few others do.
std::size_t large_size(void* block) noexcept {
  if ((reinterpret_cast<std::uintptr_t>(block) & (2 * mib - 1)) != 0) return 0;
  return in_runtime([block] {
    const platform::signal_shield shield;
    const lock_guard guard(large_lock);
    const auto found = large_blocks().find(static_cast<std::byte*>(block));
    return found == large_blocks().end() ? 0 : found->second;
  });
}

void forget_large(void* block) noexcept {
  const platform::signal_shield shield;
  const lock_guard guard(large_lock);
  large_blocks().erase(static_cast<std::byte*>(block));
}

void* remap_large(pager::pager& far, void* block, std::size_t old_bytes, std::size_t bytes) noexcept {
  const platform::signal_shield shield;
  const std::size_t rounded = round_up(bytes, page_bytes);
  // Before its place becomes free: a moment later it may be another thread's block.
  forget_large(block);
  const result<std::byte*> moved = far.remap(static_cast<std::byte*>(block), old_bytes, rounded, {.may_move = true});
  const lock_guard guard(large_lock);
  if (!moved) {
    large_blocks()[static_cast<std::byte*>(block)] = old_bytes;
    errno = ENOMEM;
    return nullptr;
  }
  large_blocks()[moved.value()] = rounded;
  return moved.value();
}

void* resize_large(pager::pager& far, void* block, std::size_t old_bytes, std::size_t bytes) noexcept {
  if (bytes > old_bytes && !has_addresses_for(bytes - old_bytes)) return nullptr;
  return in_runtime([&] { return remap_large(far, block, old_bytes, bytes); });
}

}  // namespace

// There are more arenas than processors, so that threads seldom share one.
result<void> use_far_memory(pager::pager& pager) {
  const long processors = std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
  const unsigned wanted = std::min<unsigned>(maximum_arenas, 2 * static_cast<unsigned>(processors));
  // Set before the hooks can be called.
  far_memory.store(&pager);
  const platform::runtime_mark until_ready;
  for (unsigned i = 0; i < wanted; ++i) {
    // jemalloc's metadata of far extents stay local, because jemalloc reads them with its locks held.
    struct {
      extent_hooks_t* hooks;
      bool metadata_use_hooks;
    } config{&far_extents, false};
    std::size_t length = sizeof arenas[i];
    const int failure = far_je_mallctl("experimental.arenas_create_ext", &arenas[i], &length, &config, sizeof config);
    if (failure != 0) {
      far_memory.store(nullptr);
      return error{std::string("jemalloc refuses an arena (") + std::strerror(failure) + ")", failure};
    }
  }
  arena_count = wanted;
  return {};
}

void* allocate_record(std::size_t bytes, std::size_t alignment_bytes) noexcept {
  if (platform::on_runtime_thread()) return allocate_zeroed_for_runtime(bytes, alignment_bytes);
  check_order_of_locks();
  return far_je_mallocx(std::max<std::size_t>(bytes, 1),
                        MALLOCX_ALIGN(alignment_bytes) | local_arena_flags | MALLOCX_ZERO);
}

void* reallocate_record(void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return allocate_record(bytes);
  const bool elsewhere =
      is_runtime_block(block) || (far_memory.load(std::memory_order_acquire) != nullptr && large_size(block) != 0);
  if (!elsewhere && !platform::on_runtime_thread()) return far_je_rallocx(block, bytes, local_arena_flags);
  void* const moved = allocate_record(bytes);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, block, std::min(bytes, usable_bytes(block)));
  release(block);
  return moved;
}

void* allocate(std::size_t bytes) noexcept {
  if (bytes > most_bytes) return refuse();
  pager::pager* const far = far_memory_for_caller();
  if (far == nullptr && platform::on_runtime_thread()) return allocate_for_runtime(bytes, 1);
  check_order_of_locks();
  if (far == nullptr) return far_je_malloc(bytes);
  return bytes < large_block_bytes ? far_je_malloc(bytes) : allocate_large(*far, bytes, page_bytes);
}

void* allocate_zeroed(std::size_t count, std::size_t bytes) noexcept {
  std::size_t all = 0;
  if (__builtin_mul_overflow(count, bytes, &all) || all > most_bytes) return refuse();
  pager::pager* const far = far_memory_for_caller();
  if (far == nullptr && platform::on_runtime_thread()) return allocate_zeroed_for_runtime(all, 1);
  check_order_of_locks();
  if (far == nullptr) return far_je_calloc(count, bytes);
  return all < large_block_bytes ? far_je_calloc(count, bytes) : allocate_large(*far, all, page_bytes);
}

void* allocate_aligned(std::size_t alignment_bytes, std::size_t bytes) noexcept {
  if (!std::has_single_bit(alignment_bytes) || bytes > most_bytes) return refuse();
  pager::pager* const far = far_memory_for_caller();
  if (far != nullptr && bytes >= large_block_bytes) return allocate_large(*far, bytes, alignment_bytes);
  if (platform::on_runtime_thread()) return allocate_for_runtime(bytes, alignment_bytes);
  check_order_of_locks();
  return far_je_mallocx(std::max<std::size_t>(bytes, 1), MALLOCX_ALIGN(alignment_bytes));
}

// Where both sizes are large, pages change their address and nothing is fetched. A block that changes between small and
// large has to be copied.
void* reallocate(void* block, std::size_t bytes) noexcept {
  if (bytes > most_bytes) return refuse();
  if (block == nullptr) return allocate(bytes);
  if (is_runtime_block(block)) return reallocate_runtime_block(block, bytes);
  check_order_of_locks();
  pager::pager* const far = far_memory_for_caller();
  const std::size_t large = far != nullptr ? large_size(block) : 0;
  if (large == 0 && (far == nullptr || bytes < large_block_bytes)) {
    if (platform::on_runtime_thread()) return far_je_rallocx(block, std::max<std::size_t>(bytes, 1), local_arena_flags);
    return far_je_realloc(block, bytes);
  }
  if (large != 0 && bytes >= large_block_bytes) {
    // The kernel moves no mapping of several kinds, as of a block that is locked in part. Such a block stays, or is
    // copied.
    if (void* const resized = resize_large(*far, block, large, bytes); resized != nullptr) return resized;
    if (bytes <= large) return block;
  }
  if (bytes == 0) {
    release(block);
    return nullptr;
  }
  void* const moved = allocate(bytes);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, block, std::min(bytes, usable_bytes(block)));
  release(block);
  return moved;
}

void release(void* block) noexcept {
  if (block == nullptr) return;
  if (is_runtime_block(block)) return in_runtime([block] { free_runtime_block(block); });
  pager::pager* const far = far_memory.load(std::memory_order_acquire);
  const std::size_t large = far != nullptr ? large_size(block) : 0;
  if (large == 0) {
    check_order_of_locks();
    return far_je_free(block);
  }
  const int saved_errno = errno;
  in_runtime([&] {
    forget_large(block);
    const result<void> unmapped = far->unmap(static_cast<std::byte*>(block), large);
    if (!unmapped) {
      log_line(log_level::warning, "a freed block could not be unmapped: %s", unmapped.error().message.c_str());
    }
  });
  errno = saved_errno;
}

std::size_t usable_bytes(void* block) noexcept {
  if (block == nullptr) return 0;
  if (is_runtime_block(block)) return runtime_block_bytes(block);
  const std::size_t large = far_memory.load(std::memory_order_acquire) != nullptr ? large_size(block) : 0;
  return large != 0 ? large : far_je_malloc_usable_size(block);
}

// From one step of a fork to another, which the analysis cannot follow.
void lock_large_blocks_for_fork() noexcept FAR_UNCHECKED_LOCKING {
  large_lock.lock();
}

void unlock_large_blocks_after_fork() noexcept FAR_UNCHECKED_LOCKING {
  large_lock.unlock();
}

void purge_freed_memory() noexcept {
  for (unsigned i = 0; i < arena_count; ++i) {
    std::array<char, 32> name{};
    std::snprintf(name.data(), name.size(), "arena.%u.purge", arenas[i]);
    if (far_je_mallctl(name.data(), nullptr, nullptr, nullptr, 0) != 0) {
      log_line(log_level::verbose, "freed memory could not be purged");
      return;
    }
  }
}

void give_back_addresses() noexcept {
  static std::atomic<bool> gives{false};
  if (gives.exchange(true)) return;
  for (unsigned i = 0; i < arena_count; ++i) give_back_extents(arenas[i], &returned_extents);
}

void give_back_local_addresses_if_limited() noexcept {
  if (!is_limited(RLIMIT_AS) && !is_limited(RLIMIT_DATA)) return;
  extent_hooks_t* usual = nullptr;
  std::size_t bytes = sizeof usual;
  if (far_je_mallctl("arena.0.extent_hooks", &usual, &bytes, nullptr, 0) != 0) return;
  returned_local_extents = *usual;
  returned_local_extents.dalloc = local_extent_dalloc;
  give_back_extents(0, &returned_local_extents);
}

}  // namespace far::preload
