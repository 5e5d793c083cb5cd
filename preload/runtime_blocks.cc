#include "preload/runtime_blocks.h"

#include <algorithm>
#include <cstdint>
#include <new>

#include "base/units.h"

namespace far::preload {
namespace {

// Before each block.
struct block_head {
  std::byte* start;
  std::size_t bytes;  // all, from `start` on
};
constexpr std::size_t least_alignment_bytes = 16;
static_assert(sizeof(block_head) == least_alignment_bytes);

const block_head& head_of(const void* block) {
  return static_cast<const block_head*>(block)[-1];
}

}  // namespace

void* allocate_runtime_block(std::size_t bytes, std::size_t alignment_bytes) noexcept {
  const std::size_t alignment = std::max(alignment_bytes, least_alignment_bytes);
  if (bytes > platform::largest_block_bytes || alignment > platform::largest_block_bytes) return nullptr;
  const std::size_t all_bytes = bytes + alignment;
  if (all_bytes > platform::largest_block_bytes) return nullptr;
  auto* const start = static_cast<std::byte*>(platform::allocate_local(all_bytes));
  if (!platform::is_local_block(start)) {
    platform::free_local(start, all_bytes);
    return nullptr;
  }
  const auto first = reinterpret_cast<std::uintptr_t>(start);
  std::byte* const block = start + (round_up(first + sizeof(block_head), alignment) - first);
  new (block - sizeof(block_head)) block_head{start, all_bytes};
  return block;
}

void free_runtime_block(void* block) noexcept {
  const block_head head = head_of(block);
  platform::free_local(head.start, head.bytes);
}

std::size_t runtime_block_bytes(const void* block) noexcept {
  const block_head& head = head_of(block);
  return head.bytes - static_cast<std::size_t>(static_cast<const std::byte*>(block) - head.start);
}

}  // namespace far::preload
