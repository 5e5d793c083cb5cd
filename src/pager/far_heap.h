// The part of a far heap that all users share: addresses, a budget, and the process around them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/removal.h"
#include "base/result.h"
#include "engine/statistics.h"

namespace far::pager {

class far_heap {
 public:
  virtual ~far_heap() = default;  // requires: nobody touches the far heap any more

  // Whether `address` lies in the far heap. Lock-free.
  [[nodiscard]] virtual bool contains(const void* address) const = 0;

  // Whether any byte of the range does. Static arrays begin and end beside memory that is not far. Lock-free.
  [[nodiscard]] virtual bool overlaps(const void* address, std::size_t bytes) const = 0;

  // The first address of the far heap, and how many pages it has.
  [[nodiscard]] virtual const std::byte* start() const = 0;
  [[nodiscard]] virtual std::uint64_t pages() const = 0;

  // Like munmap: drops the pages and their far copies. The range may cover parts of one or of several mappings, of the
  // kernel's as well, and holes.
  [[nodiscard]] virtual result<void> unmap(std::byte* address, std::size_t bytes) = 0;

  // Like madvise(MADV_DONTNEED): drops the bytes here and far; the next access reads zeros.
  [[nodiscard]] virtual result<void> discard(std::byte* address, std::size_t bytes) = 0;

  // Evicts the pages of the range that can leave, now and regardless of the budget (MADV_PAGEOUT). Also for tests and
  // benchmarks.
  virtual void evict(std::byte* address, std::size_t bytes) = 0;

  // Changes the budget while the program runs, both ways. Returns at once; a smaller budget is reached by eviction.
  [[nodiscard]] virtual result<void> resize(std::uint64_t budget_bytes) = 0;

  // Adds a server to the far tier (backend::add_server). May wait for some seconds.
  [[nodiscard]] virtual result<void> add_server(std::string_view server) = 0;
  // Has a server's contents moved to the others (backend::remove_server).
  [[nodiscard]] virtual result<std::uint64_t> remove_server(std::string_view server, removal step) = 0;

  // The process is about to end (backend::prepare_exit). May wait for a second.
  virtual void prepare_exit() = 0;

  // Around fork(2), in this order, on the forking thread. The child's pager serves every byte as it was, and continues
  // with a budget of its own, as large as its parent's. Slots that both may read are freed with the last of them.
  virtual void prepare_fork() = 0;
  virtual void after_fork_in_parent() = 0;
  // `pinned`: by the calling thread, each as often as it will unpin it. Pins of other threads are gone.
  virtual void after_fork_in_child(std::span<const std::span<const std::byte>> pinned = {}) = 0;

  [[nodiscard]] virtual engine::statistics snapshot() const = 0;

  // Recomputes every invariant of the design from scratch and stops the process when one is broken. Requires: nobody
  // uses the far heap meanwhile; the pager's own threads are made to stand still. Slow.
  virtual void validate() const = 0;
};

}  // namespace far::pager
