// The pager: an engine on real memory. It owns the far heap, the hardware guard that notices accesses to memory that is
// not resident, and the threads that resolve misses and evict ahead of need.
//
// Everything here may be called from any thread that is not one of the pager's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/statistics.h"

namespace far::pager {

// Who resolves a miss. `thread`: a handler thread, also for accesses that the kernel makes on behalf of a system call;
// always correct for unmodified programs. `in_line`: the missing thread itself, inside a SIGBUS handler; 2 to 4 times
// cheaper, but a system call given a buffer that is not resident fails with EFAULT: pin() such buffers first.
enum class fault_mode { thread, in_line };

[[nodiscard]] result<fault_mode> parse_fault_mode(const std::string& name);  // "thread", "inline"

struct options {
  std::uint64_t budget_bytes = 0;   // frames the far heap may hold; at least minimum_budget_bytes
  std::string far_uri = "memory:";  // see backend::open
  fault_mode mode = fault_mode::thread;
  std::string policy = "second-chance";  // see engine::make_policy
  std::uint64_t heap_bytes = 0;          // address space to reserve; 0: chosen from the machine
  // Where to evict (engine/eviction_place.h): as measured while the program runs, or always in one place.
  enum class eviction { measured, background, at_miss } where = eviction::measured;
};

inline constexpr std::uint64_t minimum_budget_bytes = std::uint64_t{16} << 20;

class pager {
 public:
  // Reserves the far heap, opens the far tier, checks permissions, starts the threads. Errors say what to do.
  // In one process at most one pager may use fault_mode::in_line.
  [[nodiscard]] static result<std::unique_ptr<pager>> create(const options& chosen);
  virtual ~pager() = default;  // requires: nobody touches the far heap any more

  // Whether `address` lies in the far heap. Lock-free.
  [[nodiscard]] virtual bool contains(const void* address) const = 0;

  // Like mmap(MAP_PRIVATE | MAP_ANONYMOUS): zeroed pages with protection `protection` (PROT_*), aligned to
  // `alignment_bytes` (a power of two, at least a page). Fails with ENOMEM when the far heap's addresses run out.
  [[nodiscard]] virtual result<std::byte*> map(std::size_t bytes, int protection, std::size_t alignment_bytes) = 0;

  // The same at this very place of the far heap, replacing what is there (MAP_FIXED).
  [[nodiscard]] virtual result<void> map_at(std::byte* address, std::size_t bytes, int protection) = 0;

  // The kernel is about to map something else over this place of the far heap (MAP_FIXED): drops what is there and
  // leaves the place alone until it is unmapped.
  [[nodiscard]] virtual result<void> hand_over(std::byte* address, std::size_t bytes) = 0;

  // The protection that map() or protect() gave the page at `address`; EFAULT where nothing is mapped.
  [[nodiscard]] virtual result<int> protection_of(const std::byte* address) const = 0;

  // Like munmap: drops the pages and their far copies. The range may cover parts of one or of several mappings.
  [[nodiscard]] virtual result<void> unmap(std::byte* address, std::size_t bytes) = 0;

  // Like madvise(MADV_DONTNEED): drops the bytes here and far; the next access reads zeros.
  [[nodiscard]] virtual result<void> discard(std::byte* address, std::size_t bytes) = 0;

  // Like mprotect.
  [[nodiscard]] virtual result<void> protect(std::byte* address, std::size_t bytes, int protection) = 0;

  // Like mremap: `may_move` is MREMAP_MAYMOVE. Remote pages move by name only: nothing is fetched.
  [[nodiscard]] virtual result<std::byte*> remap(std::byte* address, std::size_t old_bytes, std::size_t new_bytes,
                                                 bool may_move) = 0;

  // Makes the range resident and keeps it so until unpin(), for buffers of system calls in fault_mode::in_line.
  virtual void pin(const std::byte* address, std::size_t bytes) = 0;
  virtual void unpin(const std::byte* address, std::size_t bytes) = 0;

  // Evicts what it can of the range now, whatever the budget says (MADV_PAGEOUT). For tests and benchmarks too.
  virtual void evict(std::byte* address, std::size_t bytes) = 0;

  // Changes the budget while the program runs, both ways. Returns at once; a smaller budget is reached by eviction.
  [[nodiscard]] virtual result<void> resize(std::uint64_t budget_bytes) = 0;

  // Around fork(2), in this order, on the forking thread. The child's pager serves every byte as it was, but evicts
  // nothing: a child has no budget. The parent keeps the slots that the child may read until the child has ended or
  // called exec, and release_slots_of_ended_children() has noticed.
  virtual void prepare_fork() = 0;
  virtual void after_fork_in_parent() = 0;
  virtual void after_fork_in_child() = 0;
  virtual void release_slots_of_ended_children() = 0;

  [[nodiscard]] virtual engine::statistics snapshot() const = 0;

  // Recomputes every invariant of the design from scratch and stops the process when one is broken. Slow.
  virtual void validate() const = 0;
};

}  // namespace far::pager
