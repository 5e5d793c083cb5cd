// The pager: an engine on real memory. It owns the far heap, the hardware guard that notices accesses to memory that is
// not resident, and the threads that resolve misses and evict ahead of need.
//
// Everything here may be called from any thread that is not one of the pager's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "engine/eviction_pace.h"
#include "engine/miss_waiter.h"
#include "pager/mappings.h"
#include "pager/page_guard.h"

namespace far::engine {
class eviction_filter;
}

namespace far::pager {

class miss_observer;
using engine::miss_waiter;

// The thread that resolves a miss. `thread`: a handler thread, also for accesses that the kernel makes on behalf of a
// system call; always correct for unmodified programs. `in_line`: the missing thread itself, inside a SIGBUS handler; 2
// to 4 times cheaper, but a system call given a buffer that is not resident fails with EFAULT: pin() such buffers
// first.
enum class fault_mode { thread, in_line };

// "thread", "inline", or "auto", which leaves the choice to the door: nullopt.
[[nodiscard]] result<std::optional<fault_mode>> parse_fault_mode(const std::string& name);

// Whether a limit on data (ulimit -d) leaves room for the tables of a far heap of the usual size.
[[nodiscard]] result<void> check_limit_on_data();

// Asked about accesses to pages whose bytes are lost, where only the hardware guard has seen the access: an exception
// cannot be thrown from there.
class lost_access_handler {
 public:
  // Whether the program continues with a page of zeros; otherwise it ends. `page`: its first byte. Any thread, perhaps
  // inside a signal handler, with locks of the pager held: must not wait, nor touch the far heap.
  [[nodiscard]] virtual bool goes_on_with_zeros(const std::byte* page) noexcept = 0;

 protected:
  ~lost_access_handler() = default;
};

// How much address space the far heap of an unmodified program reserves. Such programs may reserve terabytes (each
// Haskell program one) that are native where the far heap has no room for them: so it is at least 4 TiB, unless a limit
// on address space or data, or strict overcommitment, counts the tables' addresses; then as by default.
[[nodiscard]] std::uint64_t heap_bytes_for_programs();

struct options {
  std::uint64_t budget_bytes = 0;   // frames the far heap may hold; at least minimum_budget_bytes
  std::string far_uri = "memory:";  // see backend::open
  fault_mode mode = fault_mode::thread;
  std::string policy = "2q";        // see engine::make_policy
  engine::eviction_pace pace = {};  // how much is evicted ahead of need, and at a time
  std::uint64_t heap_bytes = 0;     // address space to reserve; 0: chosen from the machine
  // Existing memory that becomes part of the far heap and keeps its place: private, anonymous, readable and writable, a
  // multiple of 2 MiB at a multiple of it, at most heap_layout::most_static_ranges. Software guards do not know it. It
  // stays with the far heap for good.
  std::span<const std::span<std::byte>> static_memory = {};
  // Where to evict (engine/eviction_place.h): as measured while the program runs, or always in one place.
  enum class eviction { measured, background, at_miss } where = eviction::measured;
  // How fibers wait (miss_waiter.h): a fiber that misses lets others run. The code that sets this calls poll() from
  // then on, and keeps it until the pager is gone. The threads' signal stacks are not used for misses then: threads
  // that touch the far heap have stacks of local memory, with room for the handler.
  miss_waiter* fibers = nullptr;
  engine::eviction_filter* filter = nullptr;   // asked before pages leave; outlives the pager
  lost_access_handler* lost_access = nullptr;  // outlives the pager; null: the process ends
  miss_observer* observer = nullptr;           // told of every miss of the hardware guard; outlives the pager
  // Called once in each child of fork that lives for a second, on a thread of the pager. It must be short.
  std::function<void()> child_settled = {};
  bool states_by_address = false;  // keep the states where compiled guards find them, if there is room
  unsigned object_readers = 0;     // queues to the far tier for read_slot(); without one it must not be called
  // Copies of parts of remote pages are kept, of so many bytes each (engine/line_cache.h), for page_guard::find_copy().
  // 0: none. Requires: a size that line_cache takes, and object_readers.
  std::size_t copied_bytes = 0;
};

inline constexpr std::uint64_t minimum_budget_bytes = std::uint64_t{16} << 20;

// One far heap, for software guards (page_guard.h) and for programs that map memory (mappings.h).
class pager : public page_guard, public mappings {
 public:
  // Reserves the far heap, opens the far tier, checks permissions, starts the threads. Errors say what to do. In one
  // process at most eight pagers may use fault_mode::in_line.
  [[nodiscard]] static result<std::unique_ptr<pager>> create(const options& chosen);
};

// The same for programs that use software guards alone.
[[nodiscard]] result<std::unique_ptr<page_guard>> create_page_guard(const options& chosen);

}  // namespace far::pager
