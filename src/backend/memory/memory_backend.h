// `memory:[?latency=5us&gbps=25&capacity=8G]`: slots are plain frames of this process. For tests and experiments, with
// the latency and bandwidth of a far tier that the machine does not have.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/memory/emulated_link.h"
#include "backend/slot_allocator.h"
#include "base/spin_lock.h"

namespace far::backend {

class uri;

struct memory_options {
  std::uint64_t capacity_bytes = 0;  // 0: four times the physical memory, as address space
  std::uint64_t latency_ns = 0;
  double gigabits_per_second = 0;  // 0: no limit
};

class memory_backend final : public backend {
 public:
  // Options: latency, gbps, capacity. Errors: a path, an option without sense, more capacity than addresses.
  [[nodiscard]] static result<std::unique_ptr<backend>> open(const uri& name);
  [[nodiscard]] static result<std::unique_ptr<backend>> create(const memory_options& chosen);

  memory_backend(std::byte* frames, std::uint64_t capacity_slots, const memory_options& chosen);
  ~memory_backend() override;

  [[nodiscard]] result<slot_id> allocate(std::size_t count) override;
  void free(slot_id first, std::size_t count) override;
  [[nodiscard]] result<std::unique_ptr<channel>> open_channel(std::size_t depth) override;
  [[nodiscard]] const std::byte* direct(slot_id slot) const override;
  void after_fork_in_child() override;
  void claim_in_child(slot_id slot) override { slots_.claim_in_child(slot); }
  void close_claims_in_child() override { slots_.end_claims_in_child(); }
  [[nodiscard]] bool is_copied_by_fork() const override { return true; }
  [[nodiscard]] capacity report() const override;
  [[nodiscard]] bool reduces() const override { return true; }
  [[nodiscard]] bool reduces_rows() const override { return true; }
  [[nodiscard]] speed expected_speed() const override;
  [[nodiscard]] std::string describe() const override;

 private:
  [[nodiscard]] std::uint64_t blocks() const;
  void note_populated(slot_id first, std::size_t count);
  void release_free_blocks(slot_id first, std::size_t count);

  const memory_options chosen_;
  std::byte* const frames_;
  const std::uint64_t capacity_slots_;
  slot_allocator slots_;
  spin_lock growth_lock_;
  emulated_link link_;

  // One flag for each block of adjacent slots: whether it may have frames.
  std::atomic<bool>* const populated_;
  std::atomic<std::uint64_t> populated_slots_{0};
  // Held while the frames of a block go back to the kernel: its slots look used meanwhile, but are nobody's.
  mutable spin_lock release_lock_;
};

}  // namespace far::backend
