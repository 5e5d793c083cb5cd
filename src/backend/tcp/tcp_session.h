// The session on one server that all connections of a backend join.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "backend/tcp/control_source.h"
#include "backend/tcp/transfer_connection.h"
#include "base/spin_lock.h"
#include "wire/handshake.h"

namespace far::backend {

// When the server loses a session, all its slots are lost. The next session begins a new epoch, and requests of earlier
// epochs fail from then on. Thread-safe.
class tcp_session final : public session_epoch {
 public:
  struct view {
    wire::session_id id{};  // all zero: to be opened
    std::uint32_t epoch = 1;
    std::uint16_t version = wire::oldest_version;  // that it was opened with
    std::size_t address = 0;                       // of those that the server's name has: where it was opened
  };

  [[nodiscard]] view now() const {
    const lock_guard guard(lock_);
    return now_;
  }

  // A connection has opened a session for `epoch`. False when that is over, or has a session already.
  [[nodiscard]] bool opened(std::uint32_t epoch, const wire::welcome& welcome, std::uint16_t version,
                            std::size_t address) {
    const lock_guard guard(lock_);
    if (now_.epoch != epoch || now_.id != wire::session_id{}) return false;
    now_.id = welcome.session;
    now_.version = version;
    now_.address = address;
    quota_slots_.store(welcome.quota_slots, std::memory_order_relaxed);
    lease_ms_.store(welcome.lease_ms, std::memory_order_relaxed);
    return true;
  }

  // The server of the session of `epoch` has been found at another of its addresses. Returns whether that is news.
  bool moved(std::uint32_t epoch, std::size_t address) {
    const lock_guard guard(lock_);
    if (now_.epoch != epoch || now_.address == address) return false;
    now_.address = address;
    return true;
  }

  // The server does not know the session of `epoch` any more. Returns whether that is news.
  bool lost(std::uint32_t epoch) {
    const lock_guard guard(lock_);
    if (now_.epoch != epoch) return false;
    now_ = {.epoch = epoch + 1};
    set_epoch(now_.epoch);
    return true;
  }

  // Another server answers under the same name. Returns whether that is news in this epoch.
  [[nodiscard]] bool note_stranger(std::uint32_t epoch) { return told_of_stranger_.exchange(epoch) != epoch; }

  // The most that the server lends, by its last report; 0 before the first.
  [[nodiscard]] std::uint64_t quota_slots() const { return quota_slots_.load(std::memory_order_relaxed); }

  // Whether the server may have ended the session, as it has not been reached for so long. It notices that nobody is
  // there up to its --silence later than we do, which is not known here: its default is.
  [[nodiscard]] bool lease_is_over(std::uint64_t now_ns) const {
    constexpr std::uint64_t usual_lease_ns = 3'600'000'000'000;  // of a server too old to say
    constexpr std::uint64_t usual_silence_ns = 60'000'000'000;
    const std::uint64_t granted_ns = lease_ns();
    return now_ns > last_contact_ns() + (granted_ns == 0 ? usual_lease_ns : granted_ns) + usual_silence_ns;
  }

  // How long the server keeps the session without a connection, by its last report; 0 before the first.
  [[nodiscard]] std::uint64_t lease_ns() const { return lease_ms_.load(std::memory_order_relaxed) * 1'000'000; }

  // Whether its end would lose anything, as far as the source of its blocks knows.
  void watch(const control_source* blocks) { blocks_.store(blocks, std::memory_order_release); }
  [[nodiscard]] bool stores_anything() const {
    const control_source* const blocks = blocks_.load(std::memory_order_acquire);
    return blocks == nullptr || blocks->stores_anything();
  }

  // Of the process that the last connection has reached; 0: it has not said.
  [[nodiscard]] std::uint64_t identity() const { return identity_.load(std::memory_order_relaxed); }
  void note_identity(const wire::server_id& said) {
    std::uint64_t number = 0;
    std::memcpy(&number, said.data(), sizeof number);
    identity_.store(number, std::memory_order_relaxed);
  }

  // In the child of a fork, where nobody else holds it.
  void unlock_after_fork() { lock_.open_in_child(); }

 private:
  mutable spin_lock lock_;
  view now_ FAR_GUARDED_BY(lock_);
  std::atomic<std::uint64_t> quota_slots_{0};
  std::atomic<std::uint64_t> lease_ms_{0};
  std::atomic<std::uint64_t> identity_{0};
  std::atomic<std::uint32_t> told_of_stranger_{0};
  std::atomic<const control_source*> blocks_{nullptr};
};

}  // namespace far::backend
