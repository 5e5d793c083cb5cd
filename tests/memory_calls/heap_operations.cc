// malloc and its family.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "world.h"

namespace memory_calls {
namespace {

constexpr std::size_t round_up(std::size_t bytes) {
  return (bytes + page_bytes - 1) & ~(page_bytes - 1);
}

std::size_t any_size(world& w) {
  const std::size_t most = w.random.one_in(8) ? block_bytes_limit : std::size_t{4} << 20;
  return w.random.spread(most);
}

bool room_for(const world& w, std::size_t bytes) {
  return mapped_bytes(w) + bytes <= w.chosen->working_set_bytes;
}

void map_twin(world& w, block& memory, std::size_t bytes) {
  const outcome twin = kernel_call(SYS_mmap, memory.twin, round_up(bytes), PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (!twin.ok()) fail(w, "no twin for a block: errno %d", twin.error);
}

void check_place(world& w, const block& memory, std::size_t alignment) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory.main);
  if (address % alignment != 0)
    fail(w, "the block %p is not aligned to %zu", static_cast<void*>(memory.main), alignment);
  for (const block& other : w.blocks) {
    if (&other == &memory || other.main == nullptr) continue;
    if (memory.main < other.main + other.bytes && other.main < memory.main + memory.bytes) {
      fail(w, "the block %p lies over the block %p", static_cast<void*>(memory.main), static_cast<void*>(other.main));
    }
  }
  for (const area& area : w.areas) {
    for (std::size_t page = 0; page < area.pages; ++page) {
      const std::byte* const at = area.main + page * page_bytes;
      if (area.records[page].state == page_state::owned && at < memory.main + memory.bytes &&
          memory.main < at + page_bytes) {
        fail(w, "the block %p lies over mapped memory at %p", static_cast<void*>(memory.main),
             static_cast<const void*>(at));
      }
    }
  }
}

block* any_block(world& w) {
  block* const chosen = &w.blocks[w.random.below(block_count)];
  return chosen->main != nullptr ? chosen : nullptr;
}

}  // namespace

void allocate(world& w) {
  block& replaced = w.blocks[w.random.below(block_count)];
  if (replaced.main != nullptr) return;
  const std::size_t bytes = any_size(w);
  if (!room_for(w, bytes)) return;
  const std::uint64_t way = w.random.below(5);
  std::size_t alignment = std::size_t{16} << w.random.below(14);
  void* memory = nullptr;
  switch (way) {
    case 0: memory = std::calloc(bytes, 1); break;
    case 1: memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment); break;
    case 2:
      if (::posix_memalign(&memory, alignment, bytes) != 0) memory = nullptr;
      break;
    default: memory = std::malloc(bytes); alignment = bytes >= 16 ? 16 : 8;
  }
  something_was_mapped(w);
  if (memory == nullptr) fail(w, "%zu bytes cannot be allocated", bytes);
  if (way == 0) alignment = bytes >= 16 ? 16 : 8;
  replaced.main = static_cast<std::byte*>(memory);
  replaced.bytes = bytes;
  say(w, "%zu bytes at %p", bytes, memory);
  check_place(w, replaced, alignment);
  map_twin(w, replaced, bytes);
  if (way == 0) {
    verify_block(w, replaced);
  } else {
    write_both(w, replaced.main, replaced.twin, replaced.bytes);
  }
}

void reallocate(world& w) {
  block* const chosen = any_block(w);
  if (chosen == nullptr) return;
  const std::size_t old_bytes = chosen->bytes;
  const std::size_t bytes = w.random.one_in(2) ? any_size(w) : std::min(block_bytes_limit, old_bytes * 2);
  if (!room_for(w, bytes)) return;
  const bool locked = allowed(w, "lock") && w.random.one_in(16) && old_bytes < (std::size_t{1} << 20);
  if (locked) static_cast<void>(::mlock(chosen->main, old_bytes));
  void* const memory = std::realloc(chosen->main, bytes);
  something_was_mapped(w);
  if (memory == nullptr) fail(w, "%zu bytes cannot be reallocated to %zu", old_bytes, bytes);
  if (locked) static_cast<void>(::munlock(memory, std::min(old_bytes, bytes)));
  say(w, "%zu bytes at %p to %zu at %p%s", old_bytes, static_cast<void*>(chosen->main), bytes, memory,
      locked ? ", locked" : "");
  chosen->main = static_cast<std::byte*>(memory);
  chosen->bytes = std::min(old_bytes, bytes);
  verify_block(w, *chosen);
  check_place(w, *chosen, 8);
  if (round_up(bytes) != round_up(old_bytes)) {
    const outcome twin = kernel_call(SYS_mremap, chosen->twin, round_up(old_bytes), round_up(bytes), 0, 0);
    if (!twin.ok()) fail(w, "the twin of a block cannot be resized: errno %d", twin.error);
  }
  chosen->bytes = bytes;
  if (bytes > old_bytes) write_both(w, chosen->main + old_bytes, chosen->twin + old_bytes, bytes - old_bytes);
}

void release_block(world& w) {
  block* const chosen = any_block(w);
  if (chosen == nullptr) return;
  say(w, "%zu bytes at %p", chosen->bytes, static_cast<void*>(chosen->main));
  if (w.random.one_in(4)) verify_block(w, *chosen);
  std::free(chosen->main);
  kernel_call(SYS_munmap, chosen->twin, round_up(chosen->bytes));
  chosen->main = nullptr;
  chosen->bytes = 0;
}

void release_everything(world& w) {
  for (area& area : w.areas) {
    for (std::size_t page = 0; page < area.pages;) {
      std::size_t count = 0;
      while (page + count < area.pages && area.records[page + count].state == page_state::owned) ++count;
      if (count != 0) {
        const range part{&area, page, count};
        w.raw = false;
        must_agree(w, "munmap", main_munmap(w, part.main(), part.bytes()), {});
        kernel_call(SYS_munmap, part.twin(), part.bytes());
      }
      page += count + 1;
    }
    area.pages = 0;
  }
  for (block& block : w.blocks) {
    if (block.main == nullptr) continue;
    std::free(block.main);
    kernel_call(SYS_munmap, block.twin, round_up(block.bytes));
    block.main = nullptr;
    block.bytes = 0;
  }
}

}  // namespace memory_calls
