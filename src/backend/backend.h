// The contract of a backend: the store of remote bytes.
//
// A backend hands out slots, page-sized places named by a number, and moves bytes between slots and local memory. It
// never blocks a worker: a channel takes a batch of requests, and their completions are polled later. One test suite,
// tests/contract/, runs over every backend.
//
// Threads: `backend` may be called from any thread. A `channel` belongs to one thread at a time; users that share one
// serialise their calls. Neither may touch far memory or allocate from it.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/page_reduction.h"
#include "base/removal.h"
#include "base/result.h"
#include "base/units.h"

namespace far::backend {

// A page-sized place in a backend. Slots are numbered from 0; neighbours are adjacent in the store, so one request may
// span them.
using slot_id = std::uint64_t;
inline constexpr slot_id no_slot = std::numeric_limits<slot_id>::max();

// Slots of one affinity should lie on the same servers, so that a question can be about several of them: 1 to
// affinities. A hint. Slots of different ones are spread over all servers.
using affinity = std::uint8_t;
inline constexpr affinity no_affinity = 0;
inline constexpr unsigned affinities = 64;

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
  bool may_lend = false;     // of a read: the completion may point at the bytes and leave the buffer alone
  // Of a read, if there are several copies: bit s - 1 for each source s (completion::source) whose bytes were wrong
  // before. Such a source is read only when no other copy exists.
  std::uint64_t avoid = 0;
  bool is_needed = true;  // false, of a read: nobody waits for the bytes, so the user is not told when it fails
  // Of a read of a part of one slot, if backend::reduces(): the buffer gets answer_bytes() (base/page_reduction.h) in
  // place of the bytes. It stays valid until the completion is polled. ENOTSUP: the server does not know the question.
  // EAGAIN: it could not answer this one. EXDEV: this slot lies where nobody answers. A question about rows, if
  // backend::reduces_rows(), is a read of the first of its slots as a whole, and needs all of them in one server:
  // EXDEV: none has them all.
  const page_reduction* reduce = nullptr;

  // The bytes that a read brings, or a write takes.
  [[nodiscard]] std::uint32_t moved_bytes() const {
    return reduce == nullptr ? length_bytes : static_cast<std::uint32_t>(answer_bytes(reduce->how));
  }
};

// `error_code` is 0 or an errno value. A failed read leaves the buffer undefined; a failed write leaves the slot's
// bytes undefined (the caller still holds the good copy). ESTALE of a read: the bytes are gone for good, and another
// try is useless. ETIMEDOUT: they are out of reach. Requests of one channel complete in any order.
//
// `lent`, if not null: the read had `may_lend`, and its bytes are here, contiguous, and not in the buffer. Those of
// each slot are valid until that slot is freed or written.
struct completion {
  std::uint64_t cookie = 0;
  int error_code = 0;
  const std::byte* lent = nullptr;
  // Of a read that has not failed, if there are several copies: the one that all of the bytes came from, at most 64; 0:
  // unknown.
  std::uint8_t source = 0;
  // And one that answered with an error when it was asked for the same bytes, before that one; 0: none, or unknown.
  std::uint8_t refused_by = 0;
};

// Of a question: the server has replied, and gives no answer. The page and its server may be sound.
[[nodiscard]] constexpr bool is_unanswered(int error_code) {
  return error_code == ENOTSUP || error_code == EAGAIN;
}

// What is wrong with a copy of a page.
enum class damage : std::uint8_t { wrong_bytes, unreadable };

// A queue of transfers. Requires: destroyed before its backend, with nothing in flight.
class channel {
 public:
  virtual ~channel() = default;

  // Takes as many requests from the front of the batch as fit in the queue and starts them; returns how many. Never
  // blocks; 0 means the queue is full: poll, then try again.
  [[nodiscard]] virtual std::size_t submit(std::span<const request> batch) = 0;

  // Moves finished transfers to the front of `done`; returns how many. Never blocks, and submits nothing: the next part
  // of a transfer, or a retry, is left to submit_left().
  [[nodiscard]] virtual std::size_t poll(std::span<completion> done) = 0;

  // Sleeps until a completion may be ready or `timeout_ns` has passed; returns at once when nothing is in flight. Also
  // submits what was left.
  virtual void wait(std::uint64_t timeout_ns) = 0;

  // Whether a part or a retry waits for submit(), submit_left() or wait(). The caller becomes its submitter
  // (needs_its_submitter()).
  [[nodiscard]] virtual bool has_left() const { return false; }
  virtual void submit_left() {}
  // Whether something under way waits for time alone, of which the descriptor does not tell: a retry, or what the
  // kernel lacks now. Then poll() and submit_left() are called soon.
  [[nodiscard]] virtual bool waits_for_time() const { return has_left(); }

  [[nodiscard]] virtual std::size_t in_flight() const = 0;

  // Whether a completion may be reported only when the thread that submitted the transfer runs. A thread that waits
  // inside the kernel for something else delays it for that long. Then another thread submits an urgent read again, and
  // the first one's completion is ignored; writes are left to a thread that does not wait in that way.
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
  // The bytes that slots occupy, and the most that they may occupy, if slots differ in size; no_bytes: each occupies a
  // page.
  static constexpr std::uint64_t no_bytes = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t stored_bytes = no_bytes;
  std::uint64_t most_stored_bytes = no_bytes;
  std::uint64_t damaged_copies = 0;  // since the start: copies that were written again after report_damage()
  // Of a tier on several servers.
  std::uint64_t servers = 0;          // now: in use, whether they answer or not
  std::uint64_t away_servers = 0;     // now: the part of them that does not answer
  std::uint64_t lacking_copies = 0;   // a moment ago: copies of pages (or pages of rows) that are to be made again
  std::uint64_t repaired_copies = 0;  // since the start: that were made again
  std::uint64_t degraded_ns = 0;      // since the start: time in which servers were away or copies were lacking

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
  // tries again later, without a message. The contents of a new slot are undefined.
  [[nodiscard]] virtual result<slot_id> allocate(std::size_t count) = 0;

  // The same with an affinity, on several servers.
  [[nodiscard]] virtual result<slot_id> allocate_near(affinity with, std::size_t count) {
    static_cast<void>(with);
    return allocate(count);
  }

  // Requires: the slots are allocated, and no transfer of theirs is in flight.
  virtual void free(slot_id first, std::size_t count) = 0;

  // A new queue that holds up to `depth` requests.
  [[nodiscard]] virtual result<std::unique_ptr<channel>> open_channel(std::size_t depth) = 0;

  // The address where the bytes of `slot` can be read right now at the cost of a memory access, or nullptr. The address
  // is valid until the slot is freed or written. Adjacent slots have adjacent addresses.
  [[nodiscard]] virtual const std::byte* direct(slot_id slot) const {
    static_cast<void>(slot);
    return nullptr;
  }

  // Whether reads may ask for a reduction (AIFM, section 4.3: active remote components).
  [[nodiscard]] virtual bool reduces() const { return false; }
  // Whether they may ask about rows, too, whose pages lie in several slots.
  [[nodiscard]] virtual bool reduces_rows() const { return false; }

  // Does a step of what is to be done behind the transfers (connect again, make slots available ahead of need, restore
  // copies) and returns after how many nanoseconds it wants the next call; never blocks. One thread at a time calls it.
  virtual std::uint64_t tend() { return no_tending; }

  // Adds a server while transfers are under way. `server`: as in the tier's name. May wait for some seconds, so a
  // thread that others wait for must not call it. Errors: no such server, a server that is used already, a tier that
  // has no servers.
  [[nodiscard]] virtual result<void> add_server(std::string_view server) {
    static_cast<void>(server);
    return error{"far tier '" + describe() + "' takes no servers; tcp: does, started as farheap run --far tcp://...",
                 ENOTSUP};
  }

  // Begins to move everything that a server holds to the others, or goes on with that; returns how many bytes it still
  // holds. After a return of 0 the server is not used any more. Never blocks. Errors: no such server, or none that is
  // being removed, the others are too few or too small, a tier that has no servers.
  [[nodiscard]] virtual result<std::uint64_t> remove_server(std::string_view server, removal step) {
    static_cast<void>(server);
    static_cast<void>(step);
    return error{"far tier '" + describe() + "' has no servers to remove", ENOTSUP};
  }

  // Its user gives it up for good, and holds no slots any more: it tells its server, and connects to it no more.
  // Returns false until that is done; then it is to be called again. Blocks nobody.
  [[nodiscard]] virtual bool retire() { return true; }

  // While `wanted`, stored bytes stay in their places unless a failure forces them to move: children of a fork read
  // them where they were at the fork.
  virtual void keep_in_place(bool wanted) { static_cast<void>(wanted); }

  // The process is about to end, but continues to read and write its slots until it does. Servers that would keep them
  // for long afterwards are told to keep them for seconds. Blocks, for up to a second.
  virtual void prepare_exit() {}

  // The state of its server, as far as it is known without asking. Cheap, for any thread. Whether the server can be
  // reached; and a number that changes when it has forgotten all slots, before the first transfer ends with ESTALE, and
  // before allocate() returns a slot that is not among the forgotten ones.
  [[nodiscard]] virtual bool answers() const { return true; }
  [[nodiscard]] virtual std::uint64_t incarnation() const { return 0; }

  // The lease that its server has granted: how long it keeps our slots without hearing from us; 0: unknown, or there is
  // no server. For any thread.
  [[nodiscard]] virtual std::uint64_t lease_ns() const { return 0; }

  // Whether its server still lends new slots. A server that is about to stop serves only those that it has lent. For
  // any thread.
  [[nodiscard]] virtual bool lends() const { return true; }

  // The identity of its server, a number that two backends share if they use the same server; 0: unknown, or there is
  // none. For any thread.
  [[nodiscard]] virtual std::uint64_t server_identity() const { return 0; }

  // Whether its server is known by this name now, beside the one that it was opened with: a part of a cluster goes from
  // node to node. For any thread.
  [[nodiscard]] virtual bool is_at(std::string_view server) const {
    static_cast<void>(server);
    return false;
  }

  // The user removes its server, which is known by this name now. What the tier stores stays readable until retire().
  virtual void note_removal(std::string_view server) { static_cast<void>(server); }

  // How long it is worth repeating a failed read, because a server that is out of reach may still have its bytes; 0:
  // unknown, the caller decides. A tier that returns anything else tells the user itself that reads wait. For any
  // thread.
  [[nodiscard]] virtual std::uint64_t read_patience_ns() const { return 0; }

  // Since when nobody who has the slot's bytes has answered, by the clock that the tier was opened with: the patience
  // counts from then, for all reads there together. 0: somebody answers, or it is not known. For any thread.
  [[nodiscard]] virtual std::uint64_t away_since_ns(slot_id slot) const {
    static_cast<void>(slot);
    return 0;
  }

  // Whether tend() should be called now, regardless of its last result. For any thread.
  [[nodiscard]] virtual bool wants_tending() const { return false; }

  // Around a fork, on the thread that forks, while nobody allocates slots or calls tend(). They take no memory from the
  // program's allocator.
  virtual void prepare_fork() {}
  virtual void after_fork_in_parent() {}

  // One copy of the slot has returned other bytes than were written, or an error, and another one the right bytes; they
  // are named by completion::source and refused_by. The bad copy is written again from a good one. Requires: the slot
  // is allocated, and nobody writes to it.
  virtual void report_damage(slot_id slot, std::uint8_t bad, std::uint8_t right, damage kind) {
    static_cast<void>(slot);
    static_cast<void>(bad);
    static_cast<void>(right);
    static_cast<void>(kind);
  }

  // How many pages a second are scrubbed: read from all of their copies, though nobody needs them, and compared with
  // their hashes; 0: none. It never changes.
  [[nodiscard]] virtual std::uint64_t scrubbed_pages_per_second() const { return 0; }

  // In the child of a fork, before its first open_channel(): connections belong to the parent, and slots are only read,
  // unless the fork has copied them. The parent's channels must not be touched any more, not even to destroy them: only
  // close_in_child() comes before.
  virtual void after_fork_in_child() {}
  // After after_fork_in_child(): claims the slots that the child's pages refer to, each once, then says that these are
  // all. The child has no others.
  virtual void claim_in_child(slot_id slot) { static_cast<void>(slot); }
  virtual void close_claims_in_child() {}

  // Whether stored bytes lie in the process's own memory, so that the child of a fork has a copy, which it may use,
  // write and free.
  [[nodiscard]] virtual bool is_copied_by_fork() const { return false; }

  [[nodiscard]] virtual capacity report() const = 0;
  [[nodiscard]] virtual speed expected_speed() const = 0;

  // For messages: "memory:", "file:/var/tmp (unlinked)".
  [[nodiscard]] virtual std::string describe() const = 0;
};

// Opens the far tier that `uri` names (memory:, zmem:, file:PATH, tcp://HOST:PORT, shm:NAME; see docs/run.md). Errors
// say what to write instead.
[[nodiscard]] result<std::unique_ptr<backend>> open(std::string_view uri);

// The same name for processes in other directories: paths begin at the root. One that could then be read as something
// else, because a directory above holds what has a meaning in names, stays as it is.
[[nodiscard]] std::string name_from_root(std::string_view uri);

}  // namespace far::backend
