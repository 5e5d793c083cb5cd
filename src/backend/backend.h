// The contract of a backend: where bytes live while remote.
//
// A backend hands out slots, page-sized places named by a number, and moves bytes between slots and local memory. It
// never blocks a worker: a channel takes a batch of requests, and their completions are polled later. One test suite,
// tests/contract/, runs over every backend.
//
// Threads: `backend` may be called from any thread. A `channel` belongs to one thread at a time; users who share one
// serialises the calls. Neither may touch far memory or allocate from it.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/units.h"

namespace far::backend {

// A page-sized place in a backend. Slots are numbered from 0; neighbours are adjacent in the store, so one request may
// span them.
using slot_id = std::uint64_t;
inline constexpr slot_id no_slot = std::numeric_limits<slot_id>::max();

enum class operation : std::uint8_t { read, write };

// One transfer between `slot` and `buffer`. `offset_bytes` + `length_bytes` may reach into the slots that follow
// `slot`; all of them must be allocated. `buffer` stays valid, and for a write unchanged, until the completion is
// polled. A backend that needs alignment for speed (O_DIRECT) still accepts any offset and length.
struct request {
  operation op = operation::read;
  slot_id slot = no_slot;
  std::uint32_t offset_bytes = 0;
  std::uint32_t length_bytes = page_bytes;
  std::byte* buffer = nullptr;
  std::uint64_t cookie = 0;  // returned with the completion
  bool may_lend = false;     // of a read: the completion may say where the bytes are, and the buffer is left alone
  // Of a read, where there are several copies: bit s - 1 for each source s (completion::source) whose bytes were wrong
  // before. It is read only when no other copy exists.
  std::uint64_t avoid = 0;
  bool is_needed = true;  // false, of a read: nobody waits for the bytes, so the user is not told when it fails
};

// `error_code` is 0 or an errno value. A failed read leaves the buffer undefined; a failed write leaves the slot's
// bytes undefined (the caller still holds the good copy). ESTALE of a read: the bytes are gone for good, and another
// try is no use. ETIMEDOUT: they are out of reach. Requests of one channel complete in any order.
//
// `lent`, if not null: the read had `may_lend`, and its bytes are here, contiguous, and not in the buffer. Those of
// each slot are valid until that slot is freed or written.
struct completion {
  std::uint64_t cookie = 0;
  int error_code = 0;
  const std::byte* lent = nullptr;
  // Of a read, where there are several copies: the one that all of the bytes came from, at most 64; 0: it is not told.
  std::uint8_t source = 0;
};

// A queue of transfers. Requires: destroyed before its backend, with nothing in flight.
class channel {
 public:
  virtual ~channel() = default;

  // Takes as many requests from the front of the batch as fit in the queue and starts them; returns how many. Never
  // blocks; 0 means the queue is full: poll, then try again.
  [[nodiscard]] virtual std::size_t submit(std::span<const request> batch) = 0;

  // Moves finished transfers to the front of `done`; returns how many. Never blocks, and submits nothing: what has to
  // be (the next part of a transfer, one that failed for now) is left.
  [[nodiscard]] virtual std::size_t poll(std::span<completion> done) = 0;

  // Sleeps until a completion may be ready or `timeout_ns` has passed; returns at once when nothing is in flight.
  // Submits what was left, too.
  virtual void wait(std::uint64_t timeout_ns) = 0;

  // Whether something waits for submit(), submit_left() or wait(), whose caller becomes its submitter
  // (needs_its_submitter()).
  [[nodiscard]] virtual bool has_left() const { return false; }
  virtual void submit_left() {}

  [[nodiscard]] virtual std::size_t in_flight() const = 0;

  // Whether a transfer may be told of as complete only when the thread that submitted it runs: one that waits inside
  // the kernel for something else holds it up, however long that takes. Then a read that is wanted is submitted again,
  // by another thread, and the first one's completion ignored; writes are left to a thread that does not wait so.
  [[nodiscard]] virtual bool needs_its_submitter() const { return false; }

  // A descriptor that becomes readable (for poll(2)) when completions may be ready, or -1 when there is none; then the
  // owner sleeps in wait(). The channel owns it and consumes the readiness in poll(); a thread that has slept on it
  // calls submit_left() after that.
  [[nodiscard]] virtual int event_descriptor() const { return -1; }

  // In the child of a fork, of a channel of its parent's: gives descriptors back, for the child to use. No other call
  // comes after it.
  virtual void close_in_child() {}
};

struct capacity {
  std::uint64_t total_slots = 0;  // the most that could be allocated; max() when only the device limits it
  std::uint64_t used_slots = 0;
  std::uint64_t kept_slots = 0;  // of these: freed here, but children of a fork may still read them
  // The bytes that slots occupy, and may at most, where they differ in size; no_bytes: each occupies a page.
  static constexpr std::uint64_t no_bytes = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t stored_bytes = no_bytes;
  std::uint64_t most_stored_bytes = no_bytes;
  std::uint64_t damaged_copies = 0;  // since the start: those that report_damage() has had written again

  [[nodiscard]] std::uint64_t occupied_bytes() const {
    return stored_bytes == no_bytes ? used_slots * page_bytes : stored_bytes;
  }
};

// The far tier's expected performance, for sizing prefetch windows: window >= latency * bandwidth. An estimate; 0 is
// "unknown".
struct speed {
  std::uint64_t latency_ns = 0;
  std::uint64_t bytes_per_second = 0;
};

// Returned by tend() when there is nothing to do.
inline constexpr std::uint64_t no_tending = std::numeric_limits<std::uint64_t>::max();

class backend {
 public:
  virtual ~backend() = default;

  // Allocates `count` adjacent slots and returns the first. Fails with ENOSPC when there is no such run; the caller may
  // ask for fewer. Fails with EAGAIN when there may be one soon, because a server has been asked for more: the caller
  // tries again later and tells nobody. The contents of a new slot are undefined.
  [[nodiscard]] virtual result<slot_id> allocate(std::size_t count) = 0;

  // Requires: the slots are allocated, and no transfer of theirs is in flight.
  virtual void free(slot_id first, std::size_t count) = 0;

  // A new queue that holds up to `depth` requests.
  [[nodiscard]] virtual result<std::unique_ptr<channel>> open_channel(std::size_t depth) = 0;

  // Where the bytes of `slot` can be read right now at the cost of a memory access, or nullptr. The address is valid
  // until the slot is freed or written. Adjacent slots have adjacent addresses.
  [[nodiscard]] virtual const std::byte* direct(slot_id slot) const {
    static_cast<void>(slot);
    return nullptr;
  }

  // Does a step of what is to be done behind the transfers (connect again, make slots available ahead of need, restore
  // copies) and returns after how many nanoseconds it wants the next call; never blocks. One thread at a time calls it.
  virtual std::uint64_t tend() { return no_tending; }

  // Takes one more server into use, beside the transfers that are under way. `server`: as in the tier's name. May wait
  // for some seconds, so not for a thread that others wait for. Errors: no such server, one that is used already, a
  // tier that has no servers.
  [[nodiscard]] virtual result<void> add_server(std::string_view server) {
    static_cast<void>(server);
    return error{"far tier '" + describe() + "' takes no servers; tcp: does, started as farheap run --far tcp://...",
                 ENOTSUP};
  }

  // While `wanted`, what is stored stays where it is unless a failure forces it to move: children of a fork go on
  // reading where it was at the fork.
  virtual void keep_in_place(bool wanted) { static_cast<void>(wanted); }

  // The process is about to end, but goes on to read and write what is stored until it does. Servers that would keep it
  // for long afterwards are told to keep it for seconds. Blocks, for up to a second.
  virtual void prepare_exit() {}

  // Of the server behind it, as far as it is known without asking. Cheap, for any thread. Whether it can be reached;
  // and a number that changes when it has forgotten all slots, before the first transfer ends with ESTALE, and before
  // allocate() returns a slot that is not among the forgotten.
  [[nodiscard]] virtual bool answers() const { return true; }
  [[nodiscard]] virtual std::uint64_t incarnation() const { return 0; }

  // Of the server behind it: how long it keeps our slots while it does not hear from us, as it has granted; 0: unknown,
  // or there is none. For any thread.
  [[nodiscard]] virtual std::uint64_t lease_ns() const { return 0; }

  // Of the server behind it: whether it still lends new slots. One that is about to stop serves those that it has lent.
  // For any thread.
  [[nodiscard]] virtual bool lends() const { return true; }

  // Of the server behind it: a number that two backends share when one and the same server is behind both; 0: unknown,
  // or there is none. For any thread.
  [[nodiscard]] virtual std::uint64_t server_identity() const { return 0; }

  // How long a read that fails is worth trying again, because its bytes may be alive on a server that is out of reach;
  // 0: nothing is known, the caller decides. A tier that returns anything else tells the user itself that reads wait.
  // For any thread.
  [[nodiscard]] virtual std::uint64_t read_patience_ns() const { return 0; }

  // Whether tend() should be called now, whatever it returned. For any thread.
  [[nodiscard]] virtual bool wants_tending() const { return false; }

  // Around a fork, on the thread that forks, while nobody allocates slots or calls tend(). They take no memory from the
  // program's allocator.
  virtual void prepare_fork() {}
  virtual void after_fork_in_parent() {}

  // The bytes that one copy of the slot returned were not those that were written, and another copy has returned the
  // right ones; both are named by completion::source. The wrong copy is written again from a good one. Requires: the
  // slot is allocated, and nobody writes to it.
  virtual void report_damage(slot_id slot, std::uint8_t wrong, std::uint8_t right) {
    static_cast<void>(slot);
    static_cast<void>(wrong);
    static_cast<void>(right);
  }

  // How many pages a second are to be read from all of their copies, and compared with what was written, though nobody
  // needs them; 0: none. It stays the same.
  [[nodiscard]] virtual std::uint64_t scrubbed_pages_per_second() const { return 0; }

  // In the child of a fork, before its first open_channel(): connections belong to the parent, and slots are only read,
  // unless the fork has copied them. The parent's channels must not be touched any more, not even to destroy them: only
  // close_in_child() comes before.
  virtual void after_fork_in_child() {}
  // After it: the slots that the child's pages refer to, each once; then, that these are all. The child has no others.
  virtual void claim_in_child(slot_id slot) { static_cast<void>(slot); }
  virtual void close_claims_in_child() {}

  // Whether what is stored lies in the process's own memory, so that the child of a fork has a copy, which it may go on
  // to use, write and free.
  [[nodiscard]] virtual bool is_copied_by_fork() const { return false; }

  [[nodiscard]] virtual capacity report() const = 0;
  [[nodiscard]] virtual speed expected_speed() const = 0;

  // For messages: "memory:", "file:/var/tmp (unlinked)".
  [[nodiscard]] virtual std::string describe() const = 0;
};

// Opens the far tier that `uri` names (memory:, zmem:, file:PATH, tcp://HOST:PORT, shm:NAME; see docs/run.md). Errors
// say what to write instead.
[[nodiscard]] result<std::unique_ptr<backend>> open(std::string_view uri);

}  // namespace far::backend
