#include "simulated_server.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "platform/local_memory.h"
#include "trace.h"

namespace far::simulation {
namespace {

using far::backend::completion;
using far::backend::operation;
using far::backend::request;
using far::backend::slot_id;

constexpr std::uint64_t slots_a_grant = 512;
constexpr std::uint64_t block_slots = 512;
constexpr std::byte rubbish{0xdb};

std::size_t first_byte(const request& io) {
  return io.slot * page_bytes + io.offset_bytes;
}

}  // namespace

class simulated_server::server_channel final : public far::backend::channel {
 public:
  server_channel(simulated_server& owner, std::size_t depth) : owner_(owner), depth_(depth) {}
  ~server_channel() override {
    if (!under_way_.empty()) fail("a channel to %s is closed with transfers in flight", owner_.chosen_.name.c_str());
  }

  std::size_t submit(std::span<const request> batch) override {
    const scheduler::uninterrupted body;
    owner_.threads_.switch_point();
    std::size_t taken = std::min(batch.size(), depth_ - under_way_.size());
    if (taken > 1 && owner_.random_.chance(100)) taken = owner_.random_.between(1, taken);
    const std::uint64_t now_ns = owner_.time_.now_ns();
    for (const request& io : batch.first(taken)) {
      const std::uint64_t delay_ns = owner_.random_.below(owner_.chosen_.maximum_delay_ns + 1);
      const bool dropped = owner_.random_.chance(owner_.drops_per_mille_);
      owner_.count_transfers(io, true);
      owner_.note("submit", io);
      if (dropped) ++owner_.doomed_;
      under_way_.push_back({.io = io,
                            .due_ns = now_ns + delay_ns,
                            .deadline_ns = now_ns + owner_.chosen_.deadline_ns,
                            .submitted_at = ++owner_.events_,
                            .request_dropped = dropped && owner_.random_.chance(500),
                            .reply_dropped = dropped,
                            .done = false,
                            .code = 0});
    }
    return taken;
  }

  std::size_t poll(std::span<completion> done) override {
    const scheduler::uninterrupted body;
    owner_.threads_.switch_point();
    for (transfer& current : under_way_) advance(current);
    std::size_t count = 0;
    while (count < done.size()) {
      std::vector<std::size_t> ended;
      for (std::size_t i = 0; i < under_way_.size(); ++i) {
        if (under_way_[i].done) ended.push_back(i);
      }
      if (ended.empty()) break;
      const std::size_t chosen = ended[owner_.random_.below(ended.size())];
      done[count++] = {under_way_[chosen].io.cookie, under_way_[chosen].code};
      owner_.count_transfers(under_way_[chosen].io, false);
      under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(chosen));
    }
    if (count > 0 && owner_.longest_hold_up_ns_ > 0 && owner_.random_.chance(200)) {
      owner_.threads_.sleep(1 + owner_.random_.below(owner_.longest_hold_up_ns_));
    }
    return count;
  }

  void wait(std::uint64_t timeout_ns) override {
    if (under_way_.empty()) return;
    const std::uint64_t longest = std::min<std::uint64_t>(timeout_ns, 1 + owner_.chosen_.maximum_delay_ns);
    owner_.threads_.sleep(1 + owner_.random_.below(longest));
  }

  std::size_t in_flight() const override { return under_way_.size(); }

 private:
  struct transfer {
    request io;
    std::uint64_t due_ns;
    std::uint64_t deadline_ns;
    std::uint64_t submitted_at;
    bool request_dropped;
    bool reply_dropped;
    bool done;
    int code;
  };

  void advance(transfer& moved) {
    if (moved.done) return;
    const std::uint64_t now_ns = owner_.time_.now_ns();
    const bool arrives = now_ns >= moved.due_ns && !owner_.cut_off_;
    if (owner_.crashed_) {
      finish(moved, ECONNRESET);
    } else if (arrives && !moved.request_dropped) {
      const int code = owner_.run(moved.io, moved.submitted_at);
      if (!moved.reply_dropped) return finish(moved, code);
      moved.request_dropped = true;  // it has run, and nobody will hear of it
    }
    if (!moved.done && now_ns >= moved.deadline_ns) {
      if (moved.io.op == operation::write) owner_.keep_for_later(moved.io);
      finish(moved, ETIMEDOUT);
    }
  }

  void finish(transfer& moved, int code) {
    moved.done = true;
    moved.code = code;
    if (moved.reply_dropped) --owner_.doomed_;
    owner_.note(code == 0 ? "done" : code == ETIMEDOUT ? "time-out" : "failed", moved.io);
    if (code != 0 && moved.io.op == operation::read) {
      std::memset(moved.io.buffer, static_cast<int>(rubbish), moved.io.length_bytes);
    }
  }

  simulated_server& owner_;
  const std::size_t depth_;
  std::vector<transfer> under_way_;
};

simulated_server::simulated_server(scheduler& threads, random_source& random, const simulated_clock& time,
                                   server_options chosen)
    : threads_(threads),
      random_(random),
      time_(time),
      chosen_(std::move(chosen)),
      slots_(chosen_.slots),
      states_(chosen_.slots),
      store_(platform::map_local(chosen_.slots * page_bytes)) {}

simulated_server::~simulated_server() {
  platform::unmap_local(store_, chosen_.slots * page_bytes);
}

void simulated_server::note(const char* event, const request& io) {
  threads_.note(io.slot * 64 + io.length_bytes / page_bytes);
  if (!tracing()) return;
  trace("%8llu %-10s   %s: %s %s slots %llu+%u", static_cast<unsigned long long>(threads_.slices()),
        threads_.inside_thread() ? threads_.name_of(threads_.current()).c_str() : "-", chosen_.name.c_str(), event,
        io.op == operation::read ? "read" : "write", static_cast<unsigned long long>(io.slot),
        static_cast<unsigned>(io.length_bytes / page_bytes));
}

void simulated_server::count_transfers(const request& io, bool begin) {
  const slot_id end = (first_byte(io) + io.length_bytes + page_bytes - 1) / page_bytes;
  for (slot_id slot = io.slot; slot < end; ++slot) {
    if (begin && !states_[slot].allocated) {
      fail("%s: slot %llu is used and is not allocated", chosen_.name.c_str(), static_cast<unsigned long long>(slot));
    }
    states_[slot].transfers += begin ? 1u : ~0u;
  }
}

// The server does what was asked of it.
int simulated_server::run(const request& io, std::uint64_t submitted_at) {
  if (states_[io.slot].epoch != epoch_) {
    known_epoch_ = epoch_;
    return ESTALE;
  }
  if (io.op == operation::write) pass_fence(submitted_at);
  const bool is_broken = broken_ != far::backend::no_slot && io.slot / block_slots == broken_ / block_slots;
  if (is_broken || random_.chance(failures_per_mille_)) {
    if (io.op == operation::read) wrong_pages_ += (io.length_bytes + page_bytes - 1) / page_bytes;
    if (io.op == operation::write && !is_broken) std::memset(store_ + first_byte(io), 0xdb, io.length_bytes);
    return EIO;
  }
  std::byte* const stored = store_ + first_byte(io);
  if (io.op == operation::read) {
    std::memcpy(io.buffer, stored, io.length_bytes);
    if (random_.chance(lies_per_mille_)) {
      if (chosen_.on_lie) chosen_.on_lie();
      ++wrong_pages_;
      io.buffer[random_.below(io.length_bytes)] ^= std::byte{1};
    }
  } else {
    std::memcpy(stored, io.buffer, io.length_bytes);
  }
  return 0;
}

// Writes that timed out before this one was submitted are stored now or never.
void simulated_server::pass_fence(std::uint64_t submitted_at) {
  for (const late_write& write : late_) {
    if (write.failed_at < submitted_at && random_.chance(500)) store(write);
  }
  std::erase_if(late_, [=](const late_write& write) { return write.failed_at < submitted_at; });
}

void simulated_server::store(const late_write& late) {
  ++late_stored_;
  std::memcpy(store_ + late.begin, late.bytes.data(), late.bytes.size());
}

void simulated_server::keep_for_later(const request& io) {
  late_.push_back({first_byte(io), {io.buffer, io.buffer + io.length_bytes}, ++events_});
}

// As if they had been on their way all the time.
void simulated_server::store_some_late() {
  if (crashed_ || cut_off_) return;
  for (const late_write& write : late_) {
    if (random_.chance(300)) store(write);
  }
}

// One that lent slots lie in, if there is any.
void simulated_server::break_block() {
  const std::uint64_t blocks = states_.size() / block_slots;
  const std::uint64_t from = random_.below(blocks);
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const slot_id first = (from + i) % blocks * block_slots;
    if (!states_[first].allocated) continue;
    broken_ = first;
    ++broken_blocks_;
    return;
  }
}

void simulated_server::crash() {
  crashed_ = true;
  ++epoch_;
  late_.clear();
}

const std::byte* simulated_server::bytes(slot_id slot) const {
  return states_[slot].epoch == epoch_ ? store_ + slot * page_bytes : nullptr;
}

result<slot_id> simulated_server::allocate(std::size_t count) {
  const scheduler::uninterrupted body;
  threads_.switch_point();
  if (draining_) return far::backend::out_of_slots();
  const std::optional<slot_id> first = slots_.allocate(count);
  if (!first) {
    if (slots_.limit() == chosen_.slots) return far::backend::out_of_slots();
    if (asked_at_ns_ == 0) asked_at_ns_ = time_.now_ns();
    return error{"asked", EAGAIN};
  }
  for (slot_id slot = *first; slot < *first + count; ++slot) states_[slot] = {true, known_epoch_, 0};
  return *first;
}

void simulated_server::free(slot_id first, std::size_t count) {
  const scheduler::uninterrupted body;
  for (slot_id slot = first; slot < first + count; ++slot) {
    const auto number = static_cast<unsigned long long>(slot);
    if (!states_[slot].allocated) fail("%s: slot %llu is freed twice", chosen_.name.c_str(), number);
    if (states_[slot].transfers > 0) fail("%s: slot %llu is freed under a transfer", chosen_.name.c_str(), number);
    if (slot == broken_) mend_block();
    states_[slot] = {};
  }
  slots_.free(first, count);
}

result<std::unique_ptr<far::backend::channel>> simulated_server::open_channel(std::size_t depth) {
  return std::unique_ptr<far::backend::channel>(std::make_unique<server_channel>(*this, depth));
}

std::uint64_t simulated_server::tend() {
  const scheduler::uninterrupted body;
  if (answers()) known_epoch_ = epoch_;
  if (asked_at_ns_ == 0) return far::backend::no_tending;
  if (!crashed_ && !cut_off_ && time_.now_ns() >= asked_at_ns_ + chosen_.grant_after_ns) {
    asked_at_ns_ = 0;
    slots_.extend(std::min(chosen_.slots, slots_.limit() + slots_a_grant));
  }
  return chosen_.grant_after_ns + 1;
}

}  // namespace far::simulation
