// A memory server in the simulation, seen through its client: a member of a replicated far tier.
//
// It behaves as backend/replicated/member.h allows, as badly as it can: transfers are delayed and overtake each other;
// requests and replies are dropped, and end with a time-out; a write that timed out is stored late, or a second time,
// up to the fence (the next write that was submitted after the time-out); the server can be cut off, and crash and
// forget everything; and its memory can be damaged, so that reads return wrong bytes. And it stops the run when the
// layer above breaks the contract of a backend.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/slot_allocator.h"
#include "random_source.h"
#include "scheduler.h"

namespace far::simulation {

struct server_options {
  std::string name;
  std::uint64_t slots = 0;
  std::uint64_t maximum_delay_ns = 0;
  std::uint64_t deadline_ns = 0;     // of a transfer
  std::uint64_t grant_after_ns = 0;  // how long the client waits when it has asked for slots
  std::function<void()> on_lie;      // it is about to return wrong bytes
};

class simulated_server final : public backend::backend {
 public:
  simulated_server(scheduler& threads, random_source& random, const simulated_clock& time, server_options chosen);
  ~simulated_server() override;

  // The server's faults.
  void set_drops(std::uint64_t per_mille) { drops_per_mille_ = per_mille; }
  void set_failures(std::uint64_t per_mille) { failures_per_mille_ = per_mille; }
  // Reads return other bytes than are stored.
  void set_lies(std::uint64_t per_mille) { lies_per_mille_ = per_mille; }
  // The thread that takes completions is now and then held up for up to so long before it can make use of them.
  void set_hold_up(std::uint64_t longest_ns) { longest_hold_up_ns_ = longest_ns; }
  void set_cut_off(bool cut_off) { cut_off_ = cut_off; }
  // Its disk does not return a block, and so takes nothing for it, until mend_block(), or until the block is freed.
  void break_block();
  void mend_block() { broken_ = far::backend::no_slot; }
  [[nodiscard]] std::uint64_t broken_blocks() const { return broken_blocks_; }
  // It lends nothing more.
  void set_draining(bool draining) { draining_ = draining; }
  void crash();  // what it holds is gone, and it refuses
  void restart() { crashed_ = false; }
  void store_some_late();
  [[nodiscard]] bool is_well() const {
    return !cut_off_ && !crashed_ && !draining_ && drops_per_mille_ == 0 && failures_per_mille_ == 0 &&
           lies_per_mille_ == 0 && doomed_ == 0 && broken_ == far::backend::no_slot;
  }
  // Whether its client knows that it has forgotten everything, if it has.
  [[nodiscard]] bool is_known() const { return known_epoch_ == epoch_; }

  // For validators: where the bytes of a slot are, or nullptr when the server has forgotten it.
  [[nodiscard]] const std::byte* bytes(far::backend::slot_id slot) const;
  // Pages of reads that it has refused, and those that it has answered with other bytes.
  [[nodiscard]] std::uint64_t wrong_pages() const { return wrong_pages_; }
  [[nodiscard]] std::uint64_t late_writes() const { return late_stored_; }

  [[nodiscard]] result<far::backend::slot_id> allocate(std::size_t count) override;
  void free(far::backend::slot_id first, std::size_t count) override;
  [[nodiscard]] result<std::unique_ptr<far::backend::channel>> open_channel(std::size_t depth) override;
  std::uint64_t tend() override;
  [[nodiscard]] bool answers() const override { return !crashed_ && !cut_off_; }
  [[nodiscard]] bool lends() const override { return !draining_; }
  [[nodiscard]] std::uint64_t incarnation() const override { return known_epoch_; }
  [[nodiscard]] far::backend::capacity report() const override { return {chosen_.slots, slots_.used()}; }
  [[nodiscard]] far::backend::speed expected_speed() const override { return {}; }
  [[nodiscard]] std::string describe() const override { return chosen_.name; }

 private:
  class server_channel;

  struct slot_state {
    bool allocated = false;
    std::uint64_t epoch = 0;  // of the server, as far as known when it was allocated
    unsigned transfers = 0;
  };
  struct late_write {
    std::size_t begin = 0;  // byte of the store
    std::vector<std::byte> bytes;
    std::uint64_t failed_at = 0;  // event
  };

  [[nodiscard]] int run(const far::backend::request& io, std::uint64_t submitted_at);
  void pass_fence(std::uint64_t submitted_at);
  void store(const late_write& late);
  void keep_for_later(const far::backend::request& io);
  void count_transfers(const far::backend::request& io, bool begin);
  void note(const char* event, const far::backend::request& io);

  scheduler& threads_;
  random_source& random_;
  const simulated_clock& time_;
  const server_options chosen_;
  far::backend::slot_allocator slots_;
  std::vector<slot_state> states_;
  std::byte* const store_;
  std::vector<late_write> late_;
  std::uint64_t events_ = 0;       // a clock of events, for their order
  std::uint64_t epoch_ = 1;        // of the server
  std::uint64_t known_epoch_ = 1;  // to its client
  std::uint64_t drops_per_mille_ = 0;
  std::uint64_t failures_per_mille_ = 0;
  std::uint64_t lies_per_mille_ = 0;
  std::uint64_t longest_hold_up_ns_ = 0;
  std::uint64_t asked_at_ns_ = 0;
  std::uint64_t late_stored_ = 0;
  std::uint64_t broken_blocks_ = 0;
  std::uint64_t wrong_pages_ = 0;
  far::backend::slot_id broken_ = far::backend::no_slot;  // the first of the block
  std::uint64_t doomed_ = 0;                              // transfers under way that were dropped, and will time out
  bool cut_off_ = false;
  bool crashed_ = false;
  bool draining_ = false;
};

}  // namespace far::simulation
