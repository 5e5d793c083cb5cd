// One member of a replicated far tier: a backend, usually a memory server, and what is known of its health.
//
//     serving ----- a transfer did not reach it -----------> suspect
//     suspect ----- a probe came back ---------------------> serving
//     suspect ----- no probe came back for lost_after -----> lost
//     lost -------- a probe came back ---------------------> serving
//     any --------- it has forgotten our slots ------------> emptied
//     emptied ----- the layer has let go of all of them ---> suspect
//
// A member begins as serving, or as lost when its server does not answer yet.
//
// Independently of its health a member may be leaving: its server is about to stop, or the user has removed it. It
// serves what it holds, gets no new copies, and each of its copies is replaced by one on another member. A member that
// was removed, and holds nothing any more, is gone: it keeps its number, and nobody uses it.
//
// - serving: used for everything.
// - suspect: perhaps paused, restarting, or cut off. It gets nothing but probes. Reads wait for it when nobody
//   else has the bytes; writes go past it and leave its copies stale.
// - lost: as suspect, but no transfer waits any more, and its groups get copies elsewhere. Its slots stay in the
//   books while they are not held elsewhere: it may still come back, and reads of the bytes are tried again for as long
//   as its leases may live.
// - emptied: as lost, but what it held is gone.
//
// The requirements on a member beyond the contract of a backend (docs/decisions/0009-replication.md):
// - A transfer that was not answered ends, within a deadline, with one of the errors that is_unreachable() knows.
//   Such a write may still be stored later, but not after a write that was submitted after that end, on any channel,
//   has succeeded (the fence). Every other error means that the transfer is over.
// - Once its server has forgotten slots, transfers of slots allocated before fail with ESTALE until they are freed, and
//   incarnation() tells. A server that is away for long is told by answers(). Nobody asks a member that serves.
// - free() may be called at any time, whatever the member's health.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "backend/backend.h"
#include "backend/replicated/placement.h"

namespace far::backend {

enum class member_state : std::uint8_t { serving, suspect, lost, emptied };

[[nodiscard]] constexpr const char* name_of(member_state state) {
  switch (state) {
    case member_state::serving: return "serving";
    case member_state::suspect: return "not answering";
    case member_state::lost: return "lost";
    case member_state::emptied: return "has lost its contents";
  }
  return "?";
}

// Whether the member did not answer; it may have received the message all the same.
[[nodiscard]] constexpr bool is_unreachable(int error_code) {
  switch (error_code) {
    case ETIMEDOUT:
    case ECONNRESET:
    case ECONNREFUSED:
    case ECONNABORTED:
    case ENOTCONN:
    case EPIPE:
    case ESHUTDOWN:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case ENETRESET: return true;
    default: return false;
  }
}

// Whether the server has answered that it cannot do what was asked with these slots, though it holds them: its disk
// does not return a block, for example. It serves others, and may serve these later.
[[nodiscard]] constexpr bool is_refusal(int error_code) {
  return error_code == EIO;
}

// Thread-safe.
class member {
 public:
  // `zone`: members of one zone fail together; empty: it fails alone.
  member(std::unique_ptr<backend> store, std::string name, std::string zone = {})
      : store_(std::move(store)),
        name_(std::move(name)),
        zone_(std::move(zone)),
        name_hash_(hash_of_name(name_)),
        health_(pack({store_->answers() ? member_state::serving : member_state::lost, 0})),
        incarnation_(store_->incarnation()) {
    read_latency_ns_.store(store_->expected_speed().latency_ns, std::memory_order_relaxed);
  }

  [[nodiscard]] backend& store() const { return *store_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::uint64_t name_hash() const { return name_hash_; }

  // Whether the same server is behind both now.
  [[nodiscard]] bool is_same_server(const member& other) const {
    const std::uint64_t identity = store_->server_identity();
    return this == &other || (identity != 0 && identity == other.store_->server_identity());
  }
  // Whether one failure may take both: they are in one zone, or on one server. Then two copies on them are one.
  [[nodiscard]] bool fails_with(const member& other) const {
    return (!zone_.empty() && zone_ == other.zone_) || is_same_server(other);
  }

  // The state, and the number of errors so far: a successful probe says nothing about errors after it was sent.
  struct health {
    member_state state = member_state::serving;
    std::uint64_t errors = 0;
    bool operator==(const health&) const = default;
  };
  [[nodiscard]] health now() const { return unpack(health_.load()); }
  [[nodiscard]] member_state state() const { return now().state; }
  [[nodiscard]] bool serves() const { return state() == member_state::serving; }
  // Whether what it holds may be readable in a moment, if it is not now.
  [[nodiscard]] bool may_serve_again() const {
    const member_state seen = state();
    return seen == member_state::serving || seen == member_state::suspect;
  }

  // Whether its copies are to be replaced by others.
  [[nodiscard]] bool is_leaving() const { return departure_.load() != departure::none || !store_->lends(); }
  // Whether the user has removed it, whether nothing is placed on it any more, and whether its connections are closed,
  // so that the server may end without anybody's notice.
  [[nodiscard]] bool is_removed() const { return departure_.load() >= departure::leaving; }
  [[nodiscard]] bool is_gone() const { return departure_.load() >= departure::gone; }
  [[nodiscard]] bool is_retired() const { return departure_.load() == departure::retired; }
  // Whether it may get new copies.
  [[nodiscard]] bool takes_copies() const { return serves() && !is_leaving(); }
  // In this order, and for good. begin_leaving() takes the name by which the user removes it; one thread at a time
  // calls it and removed_as(). be_gone() requires that it holds nothing and that nobody is giving it anything.
  void begin_leaving(std::string_view name) {
    removed_as_ = name;
    store_->note_removal(name);
    departure_.store(departure::leaving);
  }
  [[nodiscard]] const std::string& removed_as() const { return removed_as_; }
  void be_gone() { departure_.store(departure::gone); }
  void be_retired() { departure_.store(departure::retired); }

  // A transfer ended with this error. Returns whether the state changed.
  bool note_error(int error_code) {
    if (error_code != ESTALE && !is_unreachable(error_code)) return false;
    std::uint64_t seen = health_.load(std::memory_order_relaxed);
    health next;
    do {
      next = unpack(seen);
      ++next.errors;
      if (error_code == ESTALE) next.state = member_state::emptied;
      if (next.state == member_state::serving) next.state = member_state::suspect;
    } while (!health_.compare_exchange_weak(seen, pack(next)));
    return next.state != unpack(seen).state;
  }

  // Changes to `state` unless anything has happened since `seen`; returns whether it did.
  bool change(health seen, member_state state) {
    std::uint64_t expected = pack(seen);
    return health_.compare_exchange_strong(expected, pack({state, seen.errors}));
  }

  // Since when it has not answered; 0: it answers, or that has not been noticed yet. Only the thread that tends members
  // sets it, and takes it back before the member serves again: nobody sees the time of an earlier outage.
  [[nodiscard]] std::uint64_t away_since_ns() const { return away_since_ns_.load(); }
  void set_away_since(std::uint64_t since_ns) { away_since_ns_.store(since_ns); }

  // Whether the server has forgotten slots since recognise(). A slot that was allocated before this was false is known
  // to be of the present incarnation.
  [[nodiscard]] bool has_forgotten() const { return store_->incarnation() != incarnation_.load(); }
  // Requires: the layer holds nothing of it (`extents`).
  void recognise() { incarnation_.store(store_->incarnation()); }

  // Moving average of how long reads take.
  [[nodiscard]] std::uint64_t read_latency_ns() const { return read_latency_ns_.load(std::memory_order_relaxed); }
  void note_read(std::uint64_t took_ns) {
    // Two threads may overwrite each other's sample; an average survives that.
    const std::uint64_t before = read_latency_ns_.load(std::memory_order_relaxed);
    read_latency_ns_.store(before == 0 ? took_ns : before - before / 8 + took_ns / 8, std::memory_order_relaxed);
  }

  // How many groups it holds a copy of. Counted up before an extent is allocated, and before the state is looked at.
  std::atomic<std::uint64_t> extents{0};
  // How many of its copies were found to be wrong, or not to be had, and were given up.
  std::atomic<std::uint64_t> damaged_slots{0};

 private:
  static constexpr unsigned state_bits = 2;
  static constexpr std::uint64_t pack(health from) {
    return from.errors << state_bits | static_cast<std::uint64_t>(from.state);
  }
  static constexpr health unpack(std::uint64_t from) {
    return {static_cast<member_state>(from & ((1u << state_bits) - 1)), from >> state_bits};
  }

  enum class departure : std::uint8_t { none, leaving, gone, retired };

  const std::unique_ptr<backend> store_;
  const std::string name_;
  const std::string zone_;
  const std::uint64_t name_hash_;
  std::atomic<std::uint64_t> health_;
  std::atomic<std::uint64_t> incarnation_;
  std::atomic<std::uint64_t> away_since_ns_{0};
  std::atomic<departure> departure_{departure::none};
  std::string removed_as_;
  std::atomic<std::uint64_t> read_latency_ns_{0};
};

}  // namespace far::backend
