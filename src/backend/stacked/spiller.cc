#include "backend/stacked/spiller.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/log.h"
#include "platform/local_memory.h"

namespace far::backend {
namespace {

// Moving begins when so many eighths of the first tier are full, and ends when no more than these are.
constexpr std::uint64_t begins_at = 7;
constexpr std::uint64_t ends_at = 6;

constexpr std::uint64_t slots_a_look = 65'536;
constexpr std::uint64_t busy_ns = 100'000;
constexpr std::uint64_t soon_ns = 1'000'000;
constexpr std::uint64_t retry_ns = 10'000'000;
constexpr std::uint64_t first_pause_ns = 1'000'000'000;
constexpr std::uint64_t longest_pause_ns = 60'000'000'000;

}  // namespace

spiller::spiller(backend& first, backend& next, slot_allocator& slots, place_table& places, const platform::clock& time)
    : first_(first),
      next_(next),
      slots_(slots),
      places_(places),
      time_(time),
      buffers_(platform::map_local(batch_count * batch_pages * page_bytes)) {}

spiller::~spiller() {
  for (channel* queue : {from_.get(), to_.get()}) {
    std::array<completion, batch_pages> done;
    while (queue != nullptr && queue->in_flight() > 0) {
      if (queue->poll(done) == 0) queue->wait(soon_ns);
    }
  }
  from_.reset();
  to_.reset();
  platform::unmap_local(buffers_, batch_count * batch_pages * page_bytes);
}

bool spiller::is_fuller_than(std::uint64_t eighths) const {
  const capacity now = first_.report();
  const std::uint64_t most = now.most_stored_bytes != capacity::no_bytes         ? now.most_stored_bytes
                             : now.total_slots < capacity::no_bytes / page_bytes ? now.total_slots * page_bytes
                                                                                 : capacity::no_bytes;
  return most != capacity::no_bytes && now.occupied_bytes() > most / 8 * eighths;
}

bool spiller::is_nearly_full() const {
  return is_fuller_than(ends_at);
}

void spiller::note_growth() {
  if (!wanted_.load(std::memory_order_relaxed) && is_fuller_than(begins_at)) {
    wanted_.store(true, std::memory_order_relaxed);
  }
}

bool spiller::wants_step() const {
  return wanted_.load(std::memory_order_relaxed) && time_.now_ns() >= paused_until_ns_.load(std::memory_order_relaxed);
}

bool spiller::is_idle() const {
  return std::all_of(batches_.begin(), batches_.end(),
                     [](const batch& one) { return one.now == batch::phase::unused; });
}

std::uint64_t spiller::step() {
  if (!is_idle()) {
    poll_reads();
    poll_writes();
  }
  if (wanted_.load() && !is_fuller_than(ends_at)) wanted_.store(false);
  bool started = false;
  if (wants_step() && open_channels()) {
    looks_left_ = std::min(slots_.limit(), slots_a_look);
    for (batch& free : batches_) started = (free.now == batch::phase::unused && start_batch(free)) || started;
    // The examined slots are in use, and left alone for now.
    if (!started && wants_step() && is_idle()) paused_until_ns_.store(time_.now_ns() + soon_ns);
  }
  if (started) {
    poll_reads();
    poll_writes();
  }
  if (!is_idle()) return busy_ns;
  if (!wanted_.load()) return no_tending;
  const std::uint64_t now_ns = time_.now_ns();
  const std::uint64_t until_ns = paused_until_ns_.load();
  return until_ns > now_ns ? until_ns - now_ns : soon_ns;
}

bool spiller::open_channels() {
  if (to_ != nullptr) return true;
  result<std::unique_ptr<channel>> from = first_.open_channel(batch_count * batch_pages);
  result<std::unique_ptr<channel>> to = from ? next_.open_channel(batch_count) : std::move(from);
  if (!to) {
    pause(to.error().code);
    return false;
  }
  from_ = std::move(from).value();
  to_ = std::move(to).value();
  return true;
}

// ---- choosing ----

// As many adjacent slots as there are, up to a batch.
std::size_t spiller::allocate_next(slot_id* first) {
  for (std::size_t wanted = batch_pages; wanted > 0; wanted /= 2) {
    const result<slot_id> taken = next_.allocate(wanted);
    if (taken) {
      *first = taken.value();
      return wanted;
    }
    if (taken.error().code == EAGAIN) {
      paused_until_ns_.store(time_.now_ns() + retry_ns);
      return 0;
    }
    if (wanted == 1) pause(taken.error().code);
  }
  return 0;
}

bool spiller::start_batch(batch& into) {
  into.count = 0;
  const std::size_t room = allocate_next(&into.first_in_next);
  if (room == 0) return false;
  choose(into, room);
  if (into.count < room) next_.free(into.first_in_next + into.count, room - into.count);
  if (into.count == 0) return false;
  into.now = batch::phase::reading;
  submit_reads(into);
  return true;
}

// In one step the hand visits each slot once, so that used slots have time to be used again.
void spiller::choose(batch& into, std::size_t wanted) {
  const slot_id end = slots_.limit();
  for (; looks_left_ > 0 && into.count < wanted; --looks_left_) {
    if (hand_ >= end) hand_ = 0;
    const slot_id slot = hand_++;
    const std::optional<slot_id> from = places_.begin_move(slot);
    if (from) into.moves[into.count++] = {slot, *from, false};
  }
}

// ---- transfers ----

void spiller::submit_reads(batch& moving) {
  std::array<request, batch_pages> reads;
  const auto number = static_cast<std::uint64_t>(&moving - batches_.data());
  for (std::size_t i = 0; i < moving.count; ++i) {
    reads[i] = {.op = operation::read,
                .slot = moving.moves[i].from,
                .buffer = buffer_of(moving) + i * page_bytes,
                .cookie = number * batch_pages + i};
  }
  moving.outstanding = from_->submit({reads.data(), moving.count});
  // Slots that the queue does not take stay where they are.
  for (std::size_t i = moving.outstanding; i < moving.count; ++i) moving.moves[i].failed = true;
  if (moving.outstanding == 0) moving.now = batch::phase::settling;
}

void spiller::poll_reads() {
  from_->submit_left();
  std::array<completion, batch_pages> done;
  while (const std::size_t count = from_->poll(done)) {
    for (const completion& ended : std::span(done).first(count)) {
      batch& moving = batches_[ended.cookie / batch_pages];
      if (ended.error_code != 0) moving.moves[ended.cookie % batch_pages].failed = true;
      if (--moving.outstanding == 0) moving.now = batch::phase::read;
    }
  }
}

void spiller::submit_write(batch& moving) {
  const request write{.op = operation::write,
                      .slot = moving.first_in_next,
                      .length_bytes = static_cast<std::uint32_t>(moving.count * page_bytes),
                      .buffer = buffer_of(moving),
                      .cookie = static_cast<std::uint64_t>(&moving - batches_.data())};
  if (to_->submit({&write, 1}) == 1) moving.now = batch::phase::writing;
}

void spiller::poll_writes() {
  for (batch& current : batches_) {
    if (current.now == batch::phase::read) submit_write(current);
  }
  to_->submit_left();
  std::array<completion, batch_count> done;
  while (const std::size_t count = to_->poll(done)) {
    for (const completion& ended : std::span(done).first(count)) {
      batch& moving = batches_[ended.cookie];
      moving.now = batch::phase::settling;
      if (ended.error_code == 0) {
        pause_ns_ = 0;
        pause_is_reported_ = false;
        continue;
      }
      for (move& failed : moving.moves) failed.failed = true;
      pause(ended.error_code);
    }
  }
  for (batch& current : batches_) {
    if (current.now == batch::phase::settling) settle(current);
  }
}

// ---- the end of a move ----

void spiller::settle(batch& moving) {
  bool is_over = true;
  for (std::size_t i = 0; i < moving.count; ++i) {
    const move& ended = moving.moves[i];
    if (ended.slot == no_slot) continue;
    end_move(
        moving, i,
        ended.failed ? places_.abandon_move(ended.slot) : places_.finish_move(ended.slot, moving.first_in_next + i));
    is_over = is_over && ended.slot == no_slot;
  }
  if (is_over) moving.now = batch::phase::unused;
}

void spiller::end_move(batch& moving, std::size_t position, place_table::moved how) {
  move& ended = moving.moves[position];
  if (how == place_table::moved::is_busy) return;
  if (how != place_table::moved::done) next_.free(moving.first_in_next + position, 1);
  if (how != place_table::moved::stays) first_.free(ended.from, 1);
  if (how == place_table::moved::died) {
    slots_.free(ended.slot, 1);
    dead_slots_.fetch_sub(1, std::memory_order_relaxed);
  }
  ended.slot = no_slot;
}

void spiller::pause(int error_code) {
  pause_ns_ = std::clamp(pause_ns_ * 2, first_pause_ns, longest_pause_ns);
  paused_until_ns_.store(time_.now_ns() + pause_ns_);
  if (pause_is_reported_) return;
  pause_is_reported_ = true;
  log_line(log_level::warning, "nothing more moves from one far tier to the next for now (%s); it stays where it is",
           error_code == ENOSPC ? "that one is full" : std::strerror(error_code));
}

void spiller::forget_in_child() {
  for (std::unique_ptr<channel>* queue : {&from_, &to_}) {
    if (*queue != nullptr) (*queue)->close_in_child();
    static_cast<void>(queue->release());
  }
  for (batch& current : batches_) current.now = batch::phase::unused;
  paused_until_ns_.store(0);
  dead_slots_.store(0);
}

}  // namespace far::backend
