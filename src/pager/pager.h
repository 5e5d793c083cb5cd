// The pager: an engine on real memory. It owns the far heap, the hardware guard that notices accesses to memory that is
// not resident, and the threads that resolve misses and evict ahead of need.
//
// Everything here may be called from any thread that is not one of the pager's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/hint.h"
#include "engine/miss_waiter.h"
#include "engine/statistics.h"

namespace far::engine {
class eviction_filter;
}

namespace far::pager {

class miss_observer;
using engine::hint;
using engine::miss_waiter;

// Who resolves a miss. `thread`: a handler thread, also for accesses that the kernel makes on behalf of a system call;
// always correct for unmodified programs. `in_line`: the missing thread itself, inside a SIGBUS handler; 2 to 4 times
// cheaper, but a system call given a buffer that is not resident fails with EFAULT: pin() such buffers first.
enum class fault_mode { thread, in_line };

[[nodiscard]] result<fault_mode> parse_fault_mode(const std::string& name);  // "thread", "inline"

// Whether a limit on data (ulimit -d) leaves room for the tables of a far heap of the usual size.
[[nodiscard]] result<void> check_limit_on_data();

struct options {
  std::uint64_t budget_bytes = 0;   // frames the far heap may hold; at least minimum_budget_bytes
  std::string far_uri = "memory:";  // see backend::open
  fault_mode mode = fault_mode::thread;
  std::string policy = "second-chance";  // see engine::make_policy
  std::uint64_t heap_bytes = 0;          // address space to reserve; 0: chosen from the machine
  // Memory that was there before, becomes part of the far heap, and keeps its place: private, anonymous, readable and
  // writable, a multiple of 2 MiB at a multiple of it, at most heap_layout::most_static_ranges. Software guards do not
  // know it. It stays with the far heap for good.
  std::span<const std::span<std::byte>> static_memory = {};
  // Where to evict (engine/eviction_place.h): as measured while the program runs, or always in one place.
  enum class eviction { measured, background, at_miss } where = eviction::measured;
  // How fibers wait (miss_waiter.h): a fiber that misses lets others run. Whoever sets this calls poll() from then on,
  // and keeps it until the pager is gone. The threads' signal stacks are not used for misses then: threads that touch
  // the far heap have stacks of local memory, with room for the handler.
  miss_waiter* fibers = nullptr;
  engine::eviction_filter* filter = nullptr;  // asked before pages leave; outlives the pager
  miss_observer* observer = nullptr;          // told of every miss of the hardware guard; outlives the pager
  // In each child of fork that lives for a second: called once, on a thread of the pager's, and soon done.
  std::function<void()> child_settled = {};
  unsigned object_readers = 0;  // queues to the far tier for read_slot(); without one it must not be called
};

// What became of pager::read_slot().
enum class slot_read {
  done,        // the bytes are in the buffer, and were the newest when the read ended
  not_remote,  // the page is not Remote, or was not for a moment: look again
  failed,      // the far tier keeps failing; fetch() finds out whether the bytes are lost
};

// What pager::poll() returns when it need not be called before miss_waiter::poll_soon().
inline constexpr std::uint64_t no_poll = ~std::uint64_t{0};

inline constexpr std::uint64_t minimum_budget_bytes = std::uint64_t{16} << 20;

class pager {
 public:
  // Reserves the far heap, opens the far tier, checks permissions, starts the threads. Errors say what to do.
  // In one process at most eight pagers may use fault_mode::in_line.
  [[nodiscard]] static result<std::unique_ptr<pager>> create(const options& chosen);
  virtual ~pager() = default;  // requires: nobody touches the far heap any more

  // Whether `address` lies in the far heap. Lock-free.
  [[nodiscard]] virtual bool contains(const void* address) const = 0;

  // How many bytes of a range, from its beginning on, lie in one piece of the far heap (`*inside`), or outside of it.
  [[nodiscard]] virtual std::size_t uniform_bytes(const void* address, std::size_t bytes, bool* inside) const = 0;

  // Like mmap(MAP_PRIVATE | MAP_ANONYMOUS): zeroed pages with protection `protection` (PROT_*), aligned to
  // `alignment_bytes` (a power of two, at least a page). Fails with ENOMEM when the far heap's addresses run out.
  [[nodiscard]] virtual result<std::byte*> map(std::size_t bytes, int protection, std::size_t alignment_bytes) = 0;

  // The same at this very place of the far heap: in place of what is there (MAP_FIXED), or only if it is free
  // (MAP_FIXED_NOREPLACE; else EEXIST).
  enum class placement : std::uint8_t { replace, if_free };
  [[nodiscard]] virtual result<void> map_at(std::byte* address, std::size_t bytes, int protection, placement how) = 0;

  // Something that is not ours comes to this place: `place` maps it there, in one step, and returns 0 or an errno
  // value. What was there is dropped before; the range is the kernel's until it is unmapped. Where `place` fails,
  // nothing is mapped any more.
  [[nodiscard]] virtual result<void> hand_over(std::byte* address, std::size_t bytes, placement how,
                                               const std::function<int()>& place) = 0;
  // The same where all of the range is the kernel's already, for which `place` need only be kept apart from other
  // calls. False: it is not, and nothing was done. Where `place` fails, what is there is the kernel's to say.
  [[nodiscard]] virtual result<bool> replace_foreign(std::byte* address, std::size_t bytes,
                                                     const std::function<int()>& place) = 0;
  // The kernel has moved away (mremap) what was mapped at a place that was handed over.
  [[nodiscard]] virtual result<void> take_back(std::byte* address, std::size_t bytes) = 0;

  // Whose mappings fill the range: ours, or the kernel's. EFAULT where both do, or nothing is mapped.
  enum class origin : std::uint8_t { far, foreign };
  [[nodiscard]] virtual result<origin> origin_of(const std::byte* address, std::size_t bytes) const = 0;

  // What the program made of the page at `address`, and how many bytes from there on are alike, of `bytes` at most;
  // EFAULT where nothing of ours is mapped.
  struct mapping {
    int protection = 0;    // PROT_*
    bool guarded = false;  // MADV_GUARD_INSTALL: inaccessible, whatever the protection
    bool locked = false;   // mlock
    std::size_t bytes = 0;
  };
  [[nodiscard]] virtual result<mapping> mapping_at(const std::byte* address, std::size_t bytes) const = 0;

  // Like munmap: drops the pages and their far copies. The range may cover parts of one or of several mappings, of the
  // kernel's as well, and holes.
  [[nodiscard]] virtual result<void> unmap(std::byte* address, std::size_t bytes) = 0;

  // Like madvise(MADV_DONTNEED): drops the bytes here and far; the next access reads zeros.
  [[nodiscard]] virtual result<void> discard(std::byte* address, std::size_t bytes) = 0;

  // Like madvise, of any advice that the kernel knows; docs/run.md tells what becomes of each.
  [[nodiscard]] virtual result<void> advise(std::byte* address, std::size_t bytes, int advice) = 0;

  // Like mprotect.
  [[nodiscard]] virtual result<void> protect(std::byte* address, std::size_t bytes, int protection) = 0;

  // Like mlock2 and munlock.
  [[nodiscard]] virtual result<void> lock(std::byte* address, std::size_t bytes, unsigned flags) = 0;
  [[nodiscard]] virtual result<void> unlock(std::byte* address, std::size_t bytes) = 0;
  virtual void unlock_all() = 0;

  // Like mremap of private memory. Remote pages move by name only: nothing is fetched.
  struct remapping {
    bool may_move = false;        // MREMAP_MAYMOVE
    bool keep_source = false;     // MREMAP_DONTUNMAP
    std::byte* target = nullptr;  // MREMAP_FIXED, to a place within the far heap that does not overlap the old one
  };
  [[nodiscard]] virtual result<std::byte*> remap(std::byte* address, std::size_t old_bytes, std::size_t new_bytes,
                                                 const remapping& how) = 0;

  // Makes the range resident and keeps it so until unpin(), for buffers of system calls in fault_mode::in_line.
  virtual void pin(const std::byte* address, std::size_t bytes) = 0;
  virtual void unpin(const std::byte* address, std::size_t bytes) = 0;

  // ---- software guards ----
  // A software guard finds out by a look at a byte whether an access would miss, and fetches without a hardware fault.
  // All of this works from fibers and OS threads; on a fiber, others run while it waits.

  // The first address of the far heap, and how many pages it has.
  [[nodiscard]] virtual const std::byte* start() const = 0;
  [[nodiscard]] virtual std::uint64_t pages() const = 0;

  // Like map(), readable and writable, for memory that is filled by fetch() and never by the kernel behind our back, so
  // that its state bytes tell the truth from the beginning.
  [[nodiscard]] virtual result<std::byte*> map_guarded(std::size_t bytes, std::size_t alignment_bytes) = 0;

  // The bytes of software guards, one a page from start(); engine/residency.h says exactly when they change. A page is
  // resident when its byte is engine::residency::byte_of_resident; another value means: find out, by fetch(). Read them
  // as atomics (__atomic_load_n).
  [[nodiscard]] virtual const std::uint8_t* state_bytes() const = 0;

  // Makes the range resident, and writable if `write`; of a longer range, everything is on its way before the first
  // page is waited for. A page may be evicted again at once: look again in the protocol that keeps it. Where the
  // program has more memory than it used so far, the kernel fills the page at the access itself; then there is nothing
  // to do.
  virtual void fetch(const std::byte* address, std::size_t bytes, bool write) = 0;

  // The hinted path: the range will be used. Makes up to 64 pages of it resident and marks them as used, unless a scan
  // passes by; the rest is read ahead. A prefetch only starts what is missing. Lost pages are left to the hardware
  // guard. Returns whether anything was missing (of a prefetch: was started). May be called about any address of the
  // far heap.
  virtual bool expect_use(const std::byte* address, std::size_t bytes, const hint& about) noexcept = 0;
  // The marks that it sets, one a page, and the time that they carry: engine/reference_marks.h.
  [[nodiscard]] virtual const std::uint8_t* use_bytes() const = 0;
  [[nodiscard]] virtual const std::uint8_t* use_time() const = 0;

  // Starts to fetch what of the range is remote, as far as frames are free ahead of need; does not wait. When none are
  // free it first evicts a batch.
  virtual void prefetch(const std::byte* address, std::size_t bytes) = 0;

  // Whether frames run out faster than they are freed: time for those who use them up to let others run.
  [[nodiscard]] virtual bool under_pressure() const = 0;

  // Whether the page is resident, and a write to it does not fault.
  [[nodiscard]] virtual bool is_writable(const std::byte* address) const = 0;

  // Whether the page is neither resident nor on its way in or out. One that is on its way out may come back at once, so
  // a state byte that does not say "resident" does not say this.
  [[nodiscard]] virtual bool is_away(const std::byte* address) const = 0;

  // Whether the page left a short while ago: since then, an eighth of the budget has been evicted, or a quarter at
  // most.
  [[nodiscard]] virtual bool left_just_now(const std::byte* address) const = 0;

  // Whether the page is remote, and its path selector says that it comes back object by object.
  [[nodiscard]] virtual bool takes_object_path(const std::byte* address) const = 0;

  // Reads bytes of one remote page from the far tier without making the page resident (engine/object_reader.h). Several
  // such reads of a page may run at once, and others may fetch, discard or move it meanwhile. Requires: the range lies
  // within a page; `buffer` is local memory; options::object_readers > 0.
  [[nodiscard]] virtual slot_read read_slot(const std::byte* address, std::size_t bytes, std::byte* buffer) = 0;

  // With options::fibers: finishes what has arrived and wakes whom it can; never waits, touches no far memory. Returns
  // after how many nanoseconds it wants the next call. One thread at a time, outside fibers.
  [[nodiscard]] virtual std::uint64_t poll() noexcept = 0;

  // Evicts what it can of the range now, whatever the budget says (MADV_PAGEOUT). For tests and benchmarks too.
  virtual void evict(std::byte* address, std::size_t bytes) = 0;

  // Changes the budget while the program runs, both ways. Returns at once; a smaller budget is reached by eviction.
  [[nodiscard]] virtual result<void> resize(std::uint64_t budget_bytes) = 0;

  // Takes one more server of the far tier into use (backend::add_server). May wait for some seconds.
  [[nodiscard]] virtual result<void> add_server(std::string_view server) = 0;

  // Around fork(2), in this order, on the forking thread. The child's pager serves every byte as it was, and goes on
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
