// The interface of connections to stores that channels use, for every protocol.
#pragma once

#include <atomic>
#include <cstdint>

#include "backend/tcp/transfer.h"
#include "base/spin_lock.h"

namespace far::backend {

// The number of the session with a store. When the store has lost its slots, the next session begins a new epoch, and
// requests of earlier epochs fail from then on. Thread-safe.
class session_epoch {
 public:
  [[nodiscard]] std::uint32_t epoch() const { return epoch_.load(std::memory_order_acquire); }

  // Outages are logged once, however many connections notice. Each returns whether this is the first to notice.
  [[nodiscard]] bool note_outage() { return !in_outage_.exchange(true); }
  [[nodiscard]] bool note_recovery() { return in_outage_.exchange(false); }

  // A connection of the session has heard from the store.
  void note_contact(std::uint64_t now_ns) { contact_ns_.store(now_ns, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t last_contact_ns() const { return contact_ns_.load(std::memory_order_relaxed); }

 protected:
  ~session_epoch() = default;
  void set_epoch(std::uint32_t epoch) { epoch_.store(epoch, std::memory_order_release); }

 private:
  std::atomic<std::uint32_t> epoch_{1};
  std::atomic<bool> in_outage_{false};
  std::atomic<std::uint64_t> contact_ns_{0};
};

// Moves the transfers of several channels. No call blocks, and only the stream makes system calls.
class transfer_connection {
 public:
  virtual ~transfer_connection() = default;

  // Held around every call below that does not say otherwise.
  spin_lock lock;

  // Takes a transfer of at least one byte; its owner hears of its end.
  virtual void enqueue(transfer& added) FAR_REQUIRES(lock) = 0;

  // Sends what can be sent, `sink`: for whom.
  virtual void push(const completion_sink* sink) FAR_REQUIRES(lock) = 0;

  // The same for a single small request, but the second and further ones since the last advance() wait for the next,
  // and travel together. Returns whether one waits: then somebody must not sleep without advance() before.
  [[nodiscard]] virtual bool push_soon(const completion_sink* sink) FAR_REQUIRES(lock) = 0;

  // The same for one of many questions, of which the first waits as well: what a message has in front of them is as
  // long as 20 of them.
  [[nodiscard]] virtual bool push_later(const completion_sink* sink) FAR_REQUIRES(lock) = 0;

  // Does all that can be done now: connects, receives, sends, ends what is overdue. Returns when (in the clock's time)
  // it wants to be called again, if the descriptor is silent until then.
  virtual std::uint64_t advance(const completion_sink* sink) FAR_REQUIRES(lock) = 0;

  // Without the lock. The descriptor is readable when advance() has something to do; -1: there is none.
  [[nodiscard]] virtual int descriptor() const = 0;
  // Where descriptor() is -1.
  virtual void wait(std::uint64_t timeout_ns) = 0;
};

}  // namespace far::backend
