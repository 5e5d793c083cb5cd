#include "simulated_backend.h"

#include <algorithm>
#include <cstring>

#include "trace.h"

namespace far::simulation {
namespace {

using far::backend::completion;
using far::backend::operation;
using far::backend::request;
using far::backend::slot_id;

std::uint64_t sum_of(const request& io) {
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at < io.length_bytes; at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, io.buffer + at, sizeof word);
    sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
  }
  return sum;
}

}  // namespace

class simulated_backend::checked_channel final : public far::backend::channel {
 public:
  checked_channel(simulated_backend& owner, std::unique_ptr<far::backend::channel> inner)
      : owner_(owner), inner_(std::move(inner)) {}

  std::size_t submit(std::span<const request> batch) override {
    owner_.threads_.switch_point();
    for (const request& io : batch) {
      request numbered = io;
      {
        const scheduler::uninterrupted body;
        numbered.cookie = owner_.begin(io);
        under_way_.push_back({io, numbered.cookie, io.op == operation::write ? sum_of(io) : 0});
      }
      if (inner_->submit({&numbered, 1}) != 1) fail("more transfers in a channel than it was opened for");
      owner_.threads_.switch_point();
    }
    return batch.size();
  }

  std::size_t poll(std::span<completion> done) override {
    owner_.threads_.switch_point();
    const std::size_t count = inner_->poll(done);
    const scheduler::uninterrupted body;
    for (completion& outcome : done.first(count)) {
      const auto found = std::find_if(under_way_.begin(), under_way_.end(),
                                      [&](const transfer& one) { return one.number == outcome.cookie; });
      const transfer ended = *found;
      under_way_.erase(found);
      if (owner_.end(ended.number, ended.io, outcome.error_code != 0)) {
        std::memset(ended.io.buffer, 0xdb, ended.io.length_bytes);
      }
      if (ended.io.op == operation::read && outcome.error_code != 0) spoil(ended.io, outcome);
      if (ended.io.op == operation::write && sum_of(ended.io) != ended.sum) {
        fail("the buffer of a write to slot %llu changed under way", static_cast<unsigned long long>(ended.io.slot));
      }
      outcome.cookie = ended.io.cookie;
    }
    return count;
  }

  void wait(std::uint64_t timeout_ns) override {
    const scheduler::uninterrupted body;
    if (inner_->in_flight() == 0) return;
    const std::uint64_t longest = std::min<std::uint64_t>(timeout_ns, 1 + owner_.chosen_.maximum_delay_ns);
    owner_.threads_.sleep(1 + owner_.random_.below(longest));
  }

  std::size_t in_flight() const override { return inner_->in_flight(); }
  bool needs_its_submitter() const override { return owner_.chosen_.needs_its_submitter; }

 private:
  // Whoever looks at what a failed read has left takes it for damage.
  void spoil(const request& io, completion& outcome) {
    std::memset(io.buffer, 0xdb, io.moved_bytes());
    outcome.source = static_cast<std::uint8_t>(owner_.random_.between(1, 4));
  }

  struct transfer {
    request io;
    std::uint64_t number;
    std::uint64_t sum;  // of the bytes to write
  };

  simulated_backend& owner_;
  std::unique_ptr<far::backend::channel> inner_;
  std::vector<transfer> under_way_;
};

simulated_backend::simulated_backend(scheduler& threads, random_source& random, const simulated_clock& time,
                                     const far_tier& chosen)
    : threads_(threads), random_(random), chosen_(chosen), slots_(chosen.slots) {
  auto opened = far::backend::open("memory:?capacity=" + std::to_string(chosen.slots * page_bytes));
  memory_ = opened.value().get();
  far::backend::faulty_options options;
  options.seed = chosen.seed;
  options.maximum_delay_ticks = chosen.maximum_delay_ns;
  options.clock = &time;
  options.reorders = chosen.reorders;
  auto faulty = std::make_unique<far::backend::faulty_backend>(std::move(opened).value(), options);
  faulty_ = faulty.get();
  inner_ = std::move(faulty);
}

simulated_backend::simulated_backend(scheduler& threads, random_source& random, const far_tier& chosen,
                                     std::unique_ptr<far::backend::backend> inner)
    : threads_(threads), random_(random), chosen_(chosen), inner_(std::move(inner)), slots_(chosen.slots) {}

simulated_backend::~simulated_backend() = default;

// The transfers stayed with the parent.
void simulated_backend::after_fork_in_child() {
  inner_->after_fork_in_child();
  for (slot_state& state : slots_) state = {.written = state.written, .failed_reads = state.failed_reads};
  under_way_.clear();
}

void simulated_backend::claim_in_child(slot_id slot) {
  if (!slots_[slot].written)
    fail("the child of a fork refers to slot %llu, which was never written", static_cast<unsigned long long>(slot));
  slots_[slot].allocated = true;
  inner_->claim_in_child(slot);
}

void simulated_backend::note(const char* call, slot_id first, std::size_t count) {
  threads_.note(first * 64 + count);
  if (!tracing()) return;
  trace("%8llu %-10s %s slots %llu+%zu", static_cast<unsigned long long>(threads_.slices()),
        threads_.inside_thread() ? threads_.name_of(threads_.current()).c_str() : "-", call,
        static_cast<unsigned long long>(first), count);
}

result<slot_id> simulated_backend::allocate(std::size_t count) {
  threads_.switch_point();
  const std::uint64_t number = note_begin();
  result<slot_id> first = inner_->allocate(count);
  {
    const scheduler::uninterrupted body;
    under_way_.erase(number);
    if (first) {
      note("allocate", first.value(), count);
      for (slot_id id = first.value(); id < first.value() + count; ++id) {
        if (id >= slots_.size()) slots_.resize(id + 1);
        slots_[id].allocated = true;
      }
    }
  }
  threads_.switch_point();
  return first;
}

void simulated_backend::free(slot_id first, std::size_t count) {
  threads_.switch_point();
  {
    const scheduler::uninterrupted body;
    note("free", first, count);
    for (slot_id id = first; id < first + count; ++id) {
      const auto number = static_cast<unsigned long long>(id);
      if (!slots_[id].allocated) fail("slot %llu is freed twice", number);
      if (slots_[id].writes > 0) fail("slot %llu is freed under a write", number);
      slots_[id] = {.first_transfer = calls_begun_};
    }
    // Somebody who still reads what was lent to him reads rubbish.
    if (memory_ != nullptr) std::memset(const_cast<std::byte*>(memory_->direct(first)), 0xdb, count * page_bytes);
  }
  inner_->free(first, count);
}

result<std::unique_ptr<far::backend::channel>> simulated_backend::open_channel(std::size_t depth) {
  result<std::unique_ptr<far::backend::channel>> inner = inner_->open_channel(depth);
  if (!inner) return inner.error();
  return std::unique_ptr<far::backend::channel>(std::make_unique<checked_channel>(*this, std::move(inner).value()));
}

const std::byte* simulated_backend::direct(slot_id slot) const {
  const scheduler::uninterrupted body;
  if (!chosen_.is_direct) return nullptr;
  if (!slots_[slot].written) fail("slot %llu is read and was not written", static_cast<unsigned long long>(slot));
  return memory_->direct(slot);
}

std::uint64_t simulated_backend::note_begin() {
  const scheduler::uninterrupted body;
  under_way_.insert(calls_begun_);
  return calls_begun_++;
}

std::uint64_t simulated_backend::begin(const request& io) {
  note(io.op == operation::read ? "read" : "write", io.slot, io.length_bytes / page_bytes);
  for (slot_id id = io.slot; id < io.slot + io.length_bytes / page_bytes; ++id) {
    slot_state& used = slots_[id];
    const auto number = static_cast<unsigned long long>(id);
    if (!used.allocated) fail("slot %llu is used and is not allocated", number);
    if (io.op == operation::read && !used.written) fail("slot %llu is read and was not written", number);
    if (io.op == operation::write && used.transfers > 0) fail("slot %llu is written under a transfer", number);
    ++used.transfers;
    if (io.op == operation::write) ++used.writes;
  }
  return note_begin();
}

bool simulated_backend::end(std::uint64_t number, const request& io, bool failed) {
  under_way_.erase(number);
  note(failed ? "failed" : "done", io.slot, io.length_bytes / page_bytes);
  bool was_freed = false;
  for (slot_id id = io.slot; id < io.slot + io.length_bytes / page_bytes; ++id) {
    slot_state& used = slots_[id];
    if (number < used.first_transfer) {
      was_freed = true;
      continue;
    }
    --used.transfers;
    if (failed && io.op == operation::read) ++used.failed_reads;
    if (io.op == operation::read) continue;
    --used.writes;
    used.written = !failed;
  }
  return was_freed;
}

}  // namespace far::simulation
