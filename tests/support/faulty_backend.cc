#include "tests/support/faulty_backend.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "backend/slot_allocator.h"
#include "base/check.h"
#include "platform/clock.h"

namespace far::backend {
namespace {

constexpr std::byte rubbish{0xdb};

class faulty_channel final : public channel {
 public:
  faulty_channel(const faulty_backend& owner, std::unique_ptr<channel> inner, std::size_t depth, std::uint64_t number)
      : owner_(owner), inner_(std::move(inner)), depth_(depth), random_(owner.options().seed * 1'000'003 + number) {
    transfers_.reserve(depth);
  }
  ~faulty_channel() override { FAR_CHECK(transfers_.empty(), "a channel was destroyed with transfers in flight"); }

  std::size_t submit(std::span<const request> batch) override;
  std::size_t poll(std::span<completion> done) override;
  void wait(std::uint64_t /*timeout_ns*/) override { ++ticks_; }
  std::size_t in_flight() const override { return transfers_.size(); }

 private:
  struct transfer {
    request io;
    std::uint64_t due_ticks;
    bool is_moved;  // the bytes already are where they belong
    bool fails;
    bool lies;
  };

  std::uint64_t draw(std::uint64_t bound) { return random_() % bound; }
  std::uint64_t now_ticks() const {
    return owner_.options().clock == nullptr ? ticks_ : owner_.options().clock->now_ns();
  }
  completion complete(const transfer& ended);
  const std::byte* lend(const request& io);
  int run_inner(const request& io);
  void spoil(const request& io);
  void lie(const request& io);
  void lie_about_numbers(const request& io);
  void lie_about_rows(const request& io);
  void read_page(slot_id slot, std::byte* to);

  const faulty_backend& owner_;
  const std::unique_ptr<channel> inner_;
  const std::size_t depth_;
  std::mt19937_64 random_;
  std::vector<transfer> transfers_;
  std::uint64_t ticks_ = 0;
};

std::size_t faulty_channel::submit(std::span<const request> batch) {
  const faulty_options& chosen = owner_.options();
  std::size_t taken = std::min(batch.size(), depth_ - transfers_.size());
  if (chosen.takes_partial_batches) taken = draw(taken + 1);
  const std::uint64_t now = now_ticks();
  for (const request& io : batch.first(taken)) {
    const std::uint64_t delay =
        chosen.minimum_delay_ticks + draw(chosen.maximum_delay_ticks - chosen.minimum_delay_ticks + 1);
    const bool fails = draw(1'000'000) < owner_.failing_per_million(io.op);
    // Drawn only when asked for, so that honest runs stay what they were.
    const std::uint32_t lying = owner_.lying_per_million(io.op);
    const bool lies = !fails && lying != 0 && io.length_bytes > 0 && draw(1'000'000) < lying;
    // The bytes may move at any time between submission and completion; the two ends are the interesting ones.
    const bool moves_now = !fails && !lies && !owner_.has_crashed() && draw(2) == 0 && run_inner(io) == 0;
    transfers_.push_back({io, now + delay, moves_now, fails, lies});
  }
  return taken;
}

std::size_t faulty_channel::poll(std::span<completion> done) {
  ++ticks_;
  const std::uint64_t now = now_ticks();
  std::size_t count = 0;
  while (count < done.size()) {
    std::vector<transfer>::iterator chosen = transfers_.end();
    std::uint64_t candidates = 0;
    for (auto candidate = transfers_.begin(); candidate != transfers_.end(); ++candidate) {
      if (candidate->due_ticks > now && !owner_.has_crashed()) continue;
      ++candidates;
      // Each candidate ends up chosen with the same probability.
      if (candidates == 1 || (owner_.options().reorders && draw(candidates) == 0)) chosen = candidate;
    }
    if (chosen == transfers_.end()) break;
    const transfer ended = *chosen;
    transfers_.erase(chosen);
    done[count++] = complete(ended);
  }
  return count;
}

completion faulty_channel::complete(const transfer& ended) {
  int code = 0;
  // A store in this process calls no functions, and refuses them.
  const bool is_refused = ended.io.reduce != nullptr && !is_built_in(ended.io.reduce->how);
  if (ended.fails || owner_.has_crashed()) {
    spoil(ended.io);
    code = owner_.error_code();
  } else if (ended.io.reduce != nullptr && owner_.question_error_code() != 0) {
    spoil(ended.io);
    code = owner_.question_error_code();
  } else if (ended.lies && !is_refused) {
    lie(ended.io);
    return {ended.io.cookie, 0, nullptr};
  } else if (!ended.is_moved) {
    code = run_inner(ended.io);
  }
  return {ended.io.cookie, code, code == 0 ? lend(ended.io) : nullptr};
}

// Half of the reads that may be lent are, and then leave rubbish in the buffer.
const std::byte* faulty_channel::lend(const request& io) {
  if (io.op != operation::read || !io.may_lend || draw(2) == 0) return nullptr;
  const std::byte* const slot_bytes = owner_.inner().direct(io.slot);
  if (slot_bytes == nullptr) return nullptr;
  spoil(io);
  return slot_bytes + io.offset_bytes;
}

void faulty_channel::spoil(const request& io) {
  if (io.op == operation::read) {
    if (io.length_bytes > 0) std::memset(io.buffer, static_cast<int>(rubbish), io.moved_bytes());
    return;
  }
  std::vector<std::byte> bytes(io.length_bytes, rubbish);
  request rubbish_write = io;
  rubbish_write.buffer = bytes.data();
  static_cast<void>(run_inner(rubbish_write));  // whether it arrives or not, the slots' bytes are undefined
}

// The errors that disks and memory have made: a bit that is another one, zeros, the bytes of a neighbour, or those of
// before.
void faulty_channel::lie(const request& io) {
  owner_.note_lie();
  if (io.op == operation::write) return;
  if (io.reduce != nullptr) return lie_about_numbers(io);
  const std::byte* const neighbour = owner_.inner().direct(io.slot ^ 1);
  const bool within_a_page = io.offset_bytes + io.length_bytes <= page_bytes;
  const std::uint64_t kind = draw(3);
  if (kind == 0) {
    std::memset(io.buffer, 0, io.length_bytes);
  } else if (kind == 1 && neighbour != nullptr && within_a_page) {
    std::memcpy(io.buffer, neighbour + io.offset_bytes, io.length_bytes);
  } else {
    static_cast<void>(run_inner(io));
    io.buffer[draw(io.length_bytes)] ^= std::byte{static_cast<unsigned char>(1u << draw(8))};
  }
}

void faulty_channel::read_page(slot_id slot, std::byte* to) {
  static_cast<void>(run_inner({.op = operation::read, .slot = slot, .buffer = to}));
}

// The results of wrong bytes; or those of the right ones, with more values than a group has rows.
void faulty_channel::lie_about_rows(const request& io) {
  if (draw(2) == 0) {
    static_cast<void>(run_inner(io));
    const std::size_t at = found_bytes(io.reduce->how) - 8;
    std::memset(io.buffer + at, 0xff, 8);
    return;
  }
  std::vector<std::byte> bytes(io.reduce->slots.size() * page_bytes);
  std::vector<const std::byte*> pages;
  for (std::size_t i = 0; i < io.reduce->slots.size(); ++i) {
    read_page(io.reduce->slots[i], &bytes[i * page_bytes]);
    pages.push_back(&bytes[i * page_bytes]);
  }
  bytes[draw(bytes.size())] ^= std::byte{static_cast<unsigned char>(1u << draw(8))};
  answer_about_rows(*io.reduce, pages, io.buffer);
}

// The results of wrong bytes.
void faulty_channel::lie_about_numbers(const request& io) {
  if (io.reduce->how.kind == reduction_kind::of_rows) return lie_about_rows(io);
  std::vector<std::byte> page(page_bytes);
  read_page(io.slot, page.data());
  page[draw(page_bytes)] ^= std::byte{static_cast<unsigned char>(1u << draw(8))};
  answer(*io.reduce, page.data(), {page.data() + io.offset_bytes, io.length_bytes}, io.buffer);
}

int faulty_channel::run_inner(const request& io) {
  request copied = io;
  copied.may_lend = false;
  const std::size_t taken = inner_->submit(std::span(&copied, 1));
  FAR_CHECK(taken == 1, "an empty queue takes a request");
  completion done;
  while (inner_->poll(std::span(&done, 1)) == 0) inner_->wait(1'000'000);
  return done.error_code;
}

}  // namespace

faulty_backend::faulty_backend(std::unique_ptr<backend> inner, const faulty_options& chosen)
    : inner_(std::move(inner)),
      chosen_(chosen),
      failing_reads_(chosen.failing_reads_per_million),
      failing_writes_(chosen.failing_writes_per_million),
      lying_reads_(chosen.lying_reads_per_million),
      lying_writes_(chosen.lying_writes_per_million),
      error_code_(chosen.error_code),
      slot_limit_(chosen.slot_limit) {
  FAR_CHECK(chosen.minimum_delay_ticks <= chosen.maximum_delay_ticks, "delays begin above their maximum");
}

faulty_backend::~faulty_backend() = default;

result<slot_id> faulty_backend::allocate(std::size_t count) {
  if (crashed_) return error{"far tier down", error_code()};
  for (std::uint64_t left = lent_later_; left > 0;) {
    if (lent_later_.compare_exchange_weak(left, left - 1)) return error{"asked for more", EAGAIN};
  }
  if (used_slots_.fetch_add(count) + count > slot_limit_) {
    used_slots_ -= count;
    return out_of_slots();
  }
  result<slot_id> first = inner_->allocate(count);
  if (!first.ok()) used_slots_ -= count;
  return first;
}

void faulty_backend::free(slot_id first, std::size_t count) {
  inner_->free(first, count);
  used_slots_ -= count;
}

result<std::unique_ptr<channel>> faulty_backend::open_channel(std::size_t depth) {
  if (depth == 0) return error{"a channel holds at least 1 request, not 0", EINVAL};
  result<std::unique_ptr<channel>> inner = inner_->open_channel(1);
  if (!inner) return inner.error();
  const std::uint64_t number = channels_opened_++;
  return std::unique_ptr<channel>(std::make_unique<faulty_channel>(*this, std::move(inner).value(), depth, number));
}

void faulty_backend::after_fork_in_child() {
  used_slots_.store(0);
  inner_->after_fork_in_child();
}

void faulty_backend::claim_in_child(slot_id slot) {
  used_slots_.fetch_add(1);
  inner_->claim_in_child(slot);
}

capacity faulty_backend::report() const {
  return {std::min<std::uint64_t>(inner_->report().total_slots, slot_limit_), used_slots_};
}

speed faulty_backend::expected_speed() const {
  return inner_->expected_speed();
}

std::string faulty_backend::describe() const {
  return "faulty (seed " + std::to_string(chosen_.seed) + ") over " + inner_->describe();
}

}  // namespace far::backend
