// `shm:NAME[?token-file=F&capacity=8G&tenant=T&timeout=10s&copy=client|server]`: slots are in memory that a farheapd on
// this machine lends and counts. The client maps that memory, so a transfer is one copy, made by the client.
//
// The design, and what a client can do that behaves badly: docs/decisions/0008-shared-memory.md.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/lease_table.h"
#include "backend/shm/block_exchange.h"
#include "backend/shm/block_map.h"
#include "backend/shm/connection.h"
#include "base/spin_lock.h"

namespace far::backend {

class uri;

struct shm_options {
  std::string name;
  std::string tenant = "default";
  std::string token;                 // empty: none
  std::uint64_t capacity_bytes = 0;  // 0: all that the server lends
  std::uint64_t timeout_ns = 5'000'000'000;
  bool server_copies = false;  // transfers go through the rings, and the server copies
};

// Errors: unknown options, and values that are none.
[[nodiscard]] result<shm_options> parse_shm(const uri& name);

class shm_backend final : public backend {
 public:
  // Both wait for the server, at most `timeout`. Errors: no server, refused, no memory; what to do.
  [[nodiscard]] static result<std::unique_ptr<backend>> open(const uri& name);
  [[nodiscard]] static result<std::unique_ptr<backend>> create(const shm_options& chosen);
  ~shm_backend() override;

  [[nodiscard]] result<slot_id> allocate(std::size_t count) override;
  void free(slot_id first, std::size_t count) override;
  [[nodiscard]] result<std::unique_ptr<channel>> open_channel(std::size_t depth) override;
  [[nodiscard]] const std::byte* direct(slot_id slot) const override;
  std::uint64_t tend() override;
  void after_fork_in_child() override;
  [[nodiscard]] capacity report() const override;
  [[nodiscard]] speed expected_speed() const override;
  [[nodiscard]] std::string describe() const override;

  // For channels. Whether bytes read from the slots may be wrong because the server has taken them away.
  [[nodiscard]] bool revoked() const { return current_.load(std::memory_order_acquire)->revoked(); }
  [[nodiscard]] std::byte* address_of(slot_id slot) const { return base_ + slot * page_bytes; }
  [[nodiscard]] const slot_allocator& slots() const { return leases_.slots(); }

 private:
  shm_backend(const shm_options& chosen, std::unique_ptr<shm::connection> control,
              std::unique_ptr<shm::block_map> blocks, std::uint64_t capacity_slots);
  [[nodiscard]] shm::connection_options connection_settings(bool joins) const;
  [[nodiscard]] result<void> wait_for_first_blocks();

  void reconnect(std::uint64_t current_ns);
  void populate_granted();

  [[nodiscard]] far::error why_no_slot(std::size_t count) FAR_REQUIRES(control_lock_);
  void note_lost() FAR_REQUIRES(control_lock_);
  void adopt(std::unique_ptr<shm::connection> next);

  const shm_options chosen_;
  std::unique_ptr<shm::block_map> blocks_;
  std::byte* const base_;
  lease_table leases_;
  std::atomic<bool> in_child_{false};

  // Never destroyed before the backend: channels look at it without a lock.
  std::atomic<shm::connection*> current_;
  std::unique_ptr<shm::connection> control_ FAR_GUARDED_BY(control_lock_);

  mutable spin_lock control_lock_;
  shm::block_exchange exchange_ FAR_GUARDED_BY(control_lock_);
  bool lost_noted_ FAR_GUARDED_BY(control_lock_) = false;
  bool hang_noted_ FAR_GUARDED_BY(control_lock_) = false;

  // tend() alone:
  std::unique_ptr<shm::connection> next_;                  // its handshake is under way
  std::vector<std::unique_ptr<shm::connection>> retired_;  // channels may be looking at them
  std::uint64_t next_deadline_ns_ = 0;
  std::uint64_t next_attempt_ns_ = 0;
  std::uint64_t pause_ns_ = 0;
};

}  // namespace far::backend
