// A backend that misbehaves, mostly within the contract, over one that works: for tests and the simulation.
//
// It delays, reorders, lends and fails transfers, takes batches only in part, runs out of slots, and crashes. It may
// also lie, which is outside of the contract: say that a transfer was done, and return other bytes than were written.
// Everything it does follows from the seed and from the order of the calls, never from real time, so a failing run can
// be repeated.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "backend/backend.h"

namespace far::platform {
class clock;
}

namespace far::backend {

struct faulty_options {
  std::uint64_t seed = 1;

  // Each transfer takes between these many ticks, drawn evenly. With a clock a tick is a nanosecond of it. Without one
  // a tick is a call of poll() or wait() of the channel, and wait() never sleeps.
  std::uint64_t minimum_delay_ticks = 0;
  std::uint64_t maximum_delay_ticks = 0;
  const platform::clock* clock = nullptr;

  // Of the transfers that are complete, any may be polled first.
  bool reorders = false;

  // submit() takes a part of the batch, or nothing, although the queue has room.
  bool takes_partial_batches = false;

  // How many transfers in a million fail, and with what. A failed read leaves rubbish in the buffer, a failed write
  // leaves rubbish in the slots.
  std::uint32_t failing_reads_per_million = 0;
  std::uint32_t failing_writes_per_million = 0;
  int error_code = EIO;

  // How many in a million say that they succeeded, and lie. Such a read changes a bit, or returns zeros, or the bytes
  // of another slot; such a write leaves the slot as it was.
  std::uint32_t lying_reads_per_million = 0;
  std::uint32_t lying_writes_per_million = 0;

  // allocate() fails with ENOSPC rather than have more slots in use.
  std::uint64_t slot_limit = std::numeric_limits<std::uint64_t>::max();
};

// Thread-safe as the contract says; the setters may be called at any time from any thread.
class faulty_backend final : public backend {
 public:
  // `inner` does the work; it should complete transfers at once (memory:).
  faulty_backend(std::unique_ptr<backend> inner, const faulty_options& chosen);
  ~faulty_backend() override;

  void set_failing_reads_per_million(std::uint32_t failing) { failing_reads_ = failing; }
  void set_failing_writes_per_million(std::uint32_t failing) { failing_writes_ = failing; }
  void set_lying_reads_per_million(std::uint32_t lying) { lying_reads_ = lying; }
  void set_lying_writes_per_million(std::uint32_t lying) { lying_writes_ = lying; }
  [[nodiscard]] std::uint64_t lies() const { return lies_; }
  void set_slot_limit(std::uint64_t slots) { slot_limit_ = slots; }

  // The error code with which failing transfers end.
  void set_error_code(int code) { error_code_ = code; }
  [[nodiscard]] int error_code() const { return error_code_; }

  // Questions end with this code, and reads of bytes do not; 0: they are answered.
  void set_question_error_code(int code) { question_error_code_ = code; }
  [[nodiscard]] int question_error_code() const { return question_error_code_; }

  // From now on every allocation and every transfer that has not completed yet fails, until recover(). The bytes of
  // completed writes are kept.
  void crash() { crashed_ = true; }
  void recover() { crashed_ = false; }

  [[nodiscard]] result<slot_id> allocate(std::size_t count) override;
  void free(slot_id first, std::size_t count) override;
  [[nodiscard]] result<std::unique_ptr<channel>> open_channel(std::size_t depth) override;
  void after_fork_in_child() override;
  void claim_in_child(slot_id slot) override;
  void close_claims_in_child() override { inner_->close_claims_in_child(); }
  // So many calls of allocate() from now on fail with EAGAIN.
  void lend_later(std::uint64_t calls) { lent_later_ = calls; }
  void set_read_patience_ns(std::uint64_t patience_ns) { read_patience_ns_ = patience_ns; }
  [[nodiscard]] std::uint64_t read_patience_ns() const override { return read_patience_ns_; }
  void set_away_since_ns(std::uint64_t since_ns) { away_since_ns_ = since_ns; }
  [[nodiscard]] std::uint64_t away_since_ns(slot_id /*slot*/) const override { return away_since_ns_; }
  [[nodiscard]] bool reduces() const override { return inner_->reduces(); }
  [[nodiscard]] bool reduces_rows() const override { return inner_->reduces_rows(); }
  [[nodiscard]] bool is_copied_by_fork() const override { return inner_->is_copied_by_fork(); }
  [[nodiscard]] capacity report() const override;
  [[nodiscard]] speed expected_speed() const override;
  [[nodiscard]] std::string describe() const override;

  // For the channels.
  [[nodiscard]] const backend& inner() const { return *inner_; }
  [[nodiscard]] const faulty_options& options() const { return chosen_; }
  [[nodiscard]] bool has_crashed() const { return crashed_; }
  [[nodiscard]] std::uint32_t failing_per_million(operation op) const {
    return op == operation::read ? failing_reads_ : failing_writes_;
  }
  [[nodiscard]] std::uint32_t lying_per_million(operation op) const {
    return op == operation::read ? lying_reads_ : lying_writes_;
  }
  void note_lie() const { ++lies_; }

 private:
  const std::unique_ptr<backend> inner_;
  const faulty_options chosen_;
  std::atomic<std::uint32_t> failing_reads_;
  std::atomic<std::uint32_t> failing_writes_;
  std::atomic<std::uint32_t> lying_reads_;
  std::atomic<std::uint32_t> lying_writes_;
  mutable std::atomic<std::uint64_t> lies_{0};
  std::atomic<int> error_code_;
  std::atomic<int> question_error_code_{0};
  std::atomic<std::uint64_t> read_patience_ns_{0};
  std::atomic<std::uint64_t> away_since_ns_{0};
  std::atomic<std::uint64_t> slot_limit_;
  std::atomic<std::uint64_t> used_slots_{0};
  std::atomic<std::uint64_t> lent_later_{0};
  std::atomic<std::uint64_t> channels_opened_{0};
  std::atomic<bool> crashed_{false};
};

}  // namespace far::backend
