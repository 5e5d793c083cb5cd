// The far tier of a simulation: faulty_backend over memory:, or several simulated servers (simulated_cluster.h), with
// switch points, and with checks that the engine keeps its side of the backend contract: no transfer of a slot that is
// not allocated, no slot freed under a write, no read of a slot that was never written, no change of a buffer while it
// is being written. A slot may be freed under a read, when somebody else has read it in the meantime: then that read
// ends in rubbish.
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "backend/backend.h"
#include "scheduler.h"
#include "tests/support/faulty_backend.h"

namespace far::simulation {

struct far_tier {
  std::uint64_t slots = 0;
  std::uint64_t maximum_delay_ns = 0;
  bool reorders = false;
  bool is_direct = false;  // bytes can be read in place
  bool needs_its_submitter = false;
  std::uint64_t seed = 1;
  backend::speed speed;
  std::uint64_t tended_every_ns =
      ~std::uint64_t{0};  // at least: time-outs are much shorter here than on a real network
};

class simulated_backend final : public backend::backend {
 public:
  simulated_backend(scheduler& threads, random_source& random, const simulated_clock& time, const far_tier& chosen);
  // Over `inner`, which may be preempted in its calls.
  simulated_backend(scheduler& threads, random_source& random, const far_tier& chosen,
                    std::unique_ptr<far::backend::backend> inner);
  ~simulated_backend() override;

  // The faults; not with an `inner` of its own.
  [[nodiscard]] far::backend::faulty_backend& faults() { return *faulty_; }
  // How many reads of a slot have failed since it was allocated.
  [[nodiscard]] std::uint64_t failed_reads(far::backend::slot_id slot) const { return slots_[slot].failed_reads; }
  [[nodiscard]] std::uint64_t lies() const { return faulty_ == nullptr ? 0 : faulty_->lies(); }
  // Whether the slot holds bytes that were written and that nobody is at work on.
  [[nodiscard]] bool is_settled(far::backend::slot_id slot) const {
    return slot < slots_.size() && slots_[slot].written && slots_[slot].transfers == 0;
  }

  // Transfers and allocations are numbered in the order in which they begin. How many have begun; and whether the first
  // `count` of them have ended, and their users been told.
  [[nodiscard]] std::uint64_t calls_begun() const { return calls_begun_; }
  [[nodiscard]] bool have_ended(std::uint64_t count) const {
    return under_way_.empty() || *under_way_.begin() >= count;
  }

  [[nodiscard]] result<far::backend::slot_id> allocate(std::size_t count) override;
  void free(far::backend::slot_id first, std::size_t count) override;
  [[nodiscard]] result<std::unique_ptr<far::backend::channel>> open_channel(std::size_t depth) override;
  [[nodiscard]] const std::byte* direct(far::backend::slot_id slot) const override;
  void after_fork_in_child() override;
  void claim_in_child(far::backend::slot_id slot) override;
  void close_claims_in_child() override { inner_->close_claims_in_child(); }
  [[nodiscard]] std::uint64_t tend() override { return std::min(inner_->tend(), chosen_.tended_every_ns); }
  [[nodiscard]] bool wants_tending() const override { return inner_->wants_tending(); }
  void report_damage(far::backend::slot_id slot, std::uint8_t bad, std::uint8_t right,
                     far::backend::damage kind) override {
    inner_->report_damage(slot, bad, right, kind);
  }
  [[nodiscard]] std::uint64_t scrubbed_pages_per_second() const override { return inner_->scrubbed_pages_per_second(); }
  [[nodiscard]] std::uint64_t read_patience_ns() const override { return inner_->read_patience_ns(); }
  [[nodiscard]] std::uint64_t away_since_ns(far::backend::slot_id slot) const override {
    return inner_->away_since_ns(slot);
  }
  [[nodiscard]] bool reduces() const override { return inner_->reduces(); }
  [[nodiscard]] bool reduces_rows() const override { return inner_->reduces_rows(); }
  [[nodiscard]] bool is_copied_by_fork() const override { return inner_->is_copied_by_fork(); }
  [[nodiscard]] far::backend::capacity report() const override { return inner_->report(); }
  [[nodiscard]] far::backend::speed expected_speed() const override { return chosen_.speed; }
  [[nodiscard]] std::string describe() const override { return inner_->describe(); }

 private:
  class checked_channel;

  struct slot_state {
    bool allocated = false;
    bool written = false;
    unsigned transfers = 0;
    unsigned writes = 0;  // of the transfers
    unsigned failed_reads = 0;
    std::uint64_t first_transfer = 0;  // those with smaller numbers are of an earlier life of the slot
  };

  void note(const char* call, far::backend::slot_id first, std::size_t count);
  [[nodiscard]] std::uint64_t note_begin();
  [[nodiscard]] std::uint64_t begin(const far::backend::request& io);
  // Returns whether a slot was freed under it.
  bool end(std::uint64_t number, const far::backend::request& io, bool failed);

  scheduler& threads_;
  random_source& random_;
  const far_tier chosen_;
  far::backend::backend* memory_ = nullptr;
  far::backend::faulty_backend* faulty_ = nullptr;
  std::unique_ptr<far::backend::backend> inner_;
  mutable std::vector<slot_state> slots_;
  std::uint64_t calls_begun_ = 0;
  std::set<std::uint64_t> under_way_;
};

}  // namespace far::simulation
