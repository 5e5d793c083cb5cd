// The runtime of the link door: one budget of local memory, one far tier, and the fibers that hide its latency.
//
//     far::runtime farheap({.local_bytes = std::size_t{2} << 30, .far = "tcp://storage:7070"});
//     auto cell = far::make_unique<int>(farheap, 7);
//     farheap.run([&] {
//       far::scope here(farheap);
//       cell.deref_mut(here) += 1;
//     });
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "far/detail/api.h"
#include "far/detail/view.h"
#include "far/task.h"

namespace far {

namespace fiber {
class scheduler;
}

class runtime;

namespace detail {
class object_heap;
[[nodiscard]] FAR_API object_heap& heap_of(runtime& user_runtime) noexcept;
}  // namespace detail

struct runtime_options {
  std::size_t local_bytes = std::size_t{1} << 30;  // the budget: local memory for objects; at least 16 MiB
  std::string far = "memory:";                     // the far tier, as for `farheap run --far`
  std::size_t address_bytes = 0;  // addresses to reserve, which limit what it can hold; 0: many times the memory
  unsigned workers = 0;           // OS threads that run fibers, at most 1024; 0: one for each CPU
  std::string policy = "2q";      // which pages leave first, as for `farheap run --policy`
  // A share of the budget: when less is free, pages leave ahead of need until twice as much is free. At most 0.25; 0:
  // 1/32, but 512 KiB to 16 MiB.
  double free_ahead_share = 0;
  std::size_t eviction_batch = 64;  // pages that leave at a time, 1 to 64
  // The share of a page that objects in use must take for it to come back as a whole (after Atlas, section
  // 4.1). Above 1: objects always come back one by one; 0: pages always come back whole.
  double page_path_share = 0.8;
  // Segments of which at least this share is garbage are evacuated; above 1: only by evacuate().
  double evacuate_garbage_share = 0.5;
  // The thread that resolves accesses that no software guard has seen. `thread`: a thread of the runtime. `in_line`:
  // the accessing thread itself. This is cheaper, but system calls fail with EFAULT on far memory that is not resident.
  // Objects that a scope holds are resident, unless scopes hold more than the budget.
  enum class guard { thread, in_line } hardware_guard = guard::thread;
  // Whether the program goes on with zeros when it needs a page that is lost where no exception can be thrown: memory
  // for plain pointers (far/memory_resource.h), and objects above a page that are used beyond what their dereference
  // brought in. Without it, or when it returns false, the process ends. It is given the first byte of the page. Called
  // on any thread, in a signal handler with the guard `in_line`: it must not wait, throw, or use far memory.
  std::function<bool(const void* page)> goes_on_without = {};
  // Whether `farheap stats`, `top`, `resize` and `add-server` reach it by the process number. They treat all such
  // runtimes of a process as one. Under `farheap run` these runtimes and all other far memory of the program share its
  // budget, and each gets `local_bytes` at most. A runtime that does not answer has a budget of its own beside that.
  bool answers_commands = true;
  bool process_wide = false;  // runtime::process() returns this one; at most one at a time
};

// Counters since the start, and sizes now.
struct runtime_statistics {
  std::uint64_t budget_bytes = 0;
  std::uint64_t local_bytes = 0;
  std::uint64_t far_bytes = 0;
  std::uint64_t object_fetches = 0;  // objects that came in over the object path
  std::uint64_t object_fetch_bytes = 0;
  std::uint64_t page_fetches = 0;   // dereferences that waited for a page
  std::uint64_t fetched_pages = 0;  // prefetched ones included
  std::uint64_t evicted_pages = 0;
  std::uint64_t object_path_pages = 0;  // of them, those that come back object by object
  std::uint64_t page_path_pages = 0;
  std::uint64_t held_pages = 0;    // victims that stayed because a scope held them
  std::uint64_t forced_pages = 0;  // held pages that left because nothing else could (docs/heap.md)
  std::uint64_t evacuated_objects = 0;
  std::uint64_t evacuated_segments = 0;
  std::uint64_t lost_races = 0;         // moves that a dereference called off
  std::uint64_t reduced_pages = 0;      // pages whose numbers were reduced where they are (far/summary.h)
  std::uint64_t handled_objects = 0;    // calls of handlers for leaving objects (far/tag.h)
  std::uint64_t backend_errors = 0;     // transfers that failed
  std::uint64_t lost_pages = 0;         // pages whose bytes the far tier could not return (far/page_lost.h)
  std::uint64_t abandoned_objects = 0;  // lost objects that were destroyed and whose own objects leak
};

// Children of fork cannot use it: they have neither its threads nor its far heap, and may only call exec.
class FAR_API runtime {
 public:
  // Throws std::runtime_error when it cannot start; the message says what to do about it.
  explicit runtime(const runtime_options& chosen = {});
  // Waits until its fibers have ended. Requires: every far pointer of this runtime is gone.
  ~runtime();
  runtime(const runtime&) = delete;
  runtime& operator=(const runtime&) = delete;

  // The process-wide runtime, for code that is not handed one. It is the one constructed with `process_wide`. Without
  // that, the first call constructs it from the environment: FARHEAP_LOCAL (1 GiB unless set) and FARHEAP_FAR
  // ("memory:" unless set).
  [[nodiscard]] static runtime& process();

  // Runs `body` on a fiber of this runtime, waits for its end, and returns what it returned, or throws what it threw.
  template <std::invocable F>
  std::invoke_result_t<F> run(F&& body) {
    return spawn([&body]() -> std::invoke_result_t<F> { return std::invoke(std::forward<F>(body)); }).join();
  }
  // Runs `body`, which is copied or moved, on a new fiber; the task gives what it returns, also after the runtime has
  // ended, which waits for its fibers. What is returned holds no far pointer then. A fiber that waits for a far object
  // lets others run. Throws std::system_error when there is no memory for its stack, and what copying or moving `body`
  // throws.
  template <typename F>
    requires std::invocable<std::decay_t<F>>
  [[nodiscard]] task<std::invoke_result_t<std::decay_t<F>>> spawn(F&& body, const spawn_options& how = {}) {
    using closure = detail::task_state<std::decay_t<F>, std::invoke_result_t<std::decay_t<F>>>;
    task<std::invoke_result_t<std::decay_t<F>>> started;
    auto state = std::make_unique<closure>(std::forward<F>(body));
    closure* const mine = state.get();
    started.result_ = std::move(state);
    started.running_ = detail::running_fiber(detail::start_fiber(*this, how, &closure::run, mine));
    return started;
  }
  // The scheduler itself, for the library's own programs: its header is not installed. Mutexes, channels and the like,
  // with which fibers wait, are in far/fiber.h. OS threads may use far pointers as well.
  [[nodiscard]] fiber::scheduler& fibers() noexcept;

  // Raises or lowers the budget; under `farheap run`, the most that it gets. Returns at once; a smaller budget is
  // reached by eviction. Throws std::runtime_error below 16 MiB.
  void resize(std::size_t local_bytes);
  // Adds a memory server to the far tier, as `farheap add-server` does: "HOST:PORT", with the options of the others
  // (docs/server.md). Waits for the connection. Throws std::runtime_error when the far tier does not consist of
  // servers, or the server cannot be reached.
  void add_server(std::string_view server);
  // Begins to move what a memory server holds to the others, as `farheap remove-server` does, or goes on with that;
  // returns at once how many bytes are left to move. When it or removal_left() returns 0, the server is not used any
  // more. Throws std::runtime_error when the far tier does not have this server, or the others are too few or too
  // small.
  [[nodiscard]] std::uint64_t remove_server(std::string_view server);
  // How many bytes are left to move from a server that remove_server() is removing, or has removed. A server of that
  // name that was added since stays. Throws std::runtime_error when none was removed.
  [[nodiscard]] std::uint64_t removal_left(std::string_view server);

  // Evacuates every segment that has at least this share of garbage, now, on the calling fiber or thread. Returns how
  // many segments became free. Others may use the objects meanwhile.
  std::size_t evacuate(double garbage_share = 0);
  // Evicts everything that no scope holds, regardless of the budget. Waits for up to a second until scopes that are
  // open have ended; while one stays open, pages that may be in its reach stay. The same for a server's slots.
  void evict_all();

  void set_page_path_share(double share);
  [[nodiscard]] runtime_statistics statistics() const;
  [[nodiscard]] runtime_statistics snapshot() const { return statistics(); }  // its name before

  // Recomputes every invariant and stops the process when one is broken. Requires: no other call meanwhile. Slow.
  void validate() const;

 private:
  friend detail::object_heap& detail::heap_of(runtime& user_runtime) noexcept;
  friend class scope;
  struct parts;

  detail::heap_view view_;
  detail::heap_view slow_view_;  // in which no page is ready
  parts* const parts_;
};

}  // namespace far
