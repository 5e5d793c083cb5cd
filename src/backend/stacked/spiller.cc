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
  for (channel* each : {from_.get(), to_.get()}) {
    std::array<completion, batch_pages> done;
    while (each != nullptr && each->in_flight() > 0) {
      if (each->poll(done) == 0) each->wait(soon_ns);
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
                     [](const batch& each) { return each.now == batch::phase::unused; });
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
    for (batch& each : batches_) started = (each.now == batch::phase::unused && start_batch(each)) || started;
    // What is in use is left alone for now.
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

// In one step the hand comes by each slot once: what is used is given time to be used again.
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

void spiller::submit_reads(batch& which) {
  std::array<request, batch_pages> reads;
  const auto number = static_cast<std::uint64_t>(&which - batches_.data());
  for (std::size_t i = 0; i < which.count; ++i) {
    reads[i] = {.op = operation::read,
                .slot = which.moves[i].from,
                .buffer = buffer_of(which) + i * page_bytes,
                .cookie = number * batch_pages + i};
  }
  which.outstanding = from_->submit({reads.data(), which.count});
  // What the queue does not take stays where it is.
  for (std::size_t i = which.outstanding; i < which.count; ++i) which.moves[i].failed = true;
  if (which.outstanding == 0) which.now = batch::phase::settling;
}

void spiller::poll_reads() {
  from_->submit_left();
  std::array<completion, batch_pages> done;
  while (const std::size_t count = from_->poll(done)) {
    for (const completion& each : std::span(done).first(count)) {
      batch& which = batches_[each.cookie / batch_pages];
      if (each.error_code != 0) which.moves[each.cookie % batch_pages].failed = true;
      if (--which.outstanding == 0) which.now = batch::phase::read;
    }
  }
}

void spiller::submit_write(batch& which) {
  const request write{.op = operation::write,
                      .slot = which.first_in_next,
                      .length_bytes = static_cast<std::uint32_t>(which.count * page_bytes),
                      .buffer = buffer_of(which),
                      .cookie = static_cast<std::uint64_t>(&which - batches_.data())};
  if (to_->submit({&write, 1}) == 1) which.now = batch::phase::writing;
}

void spiller::poll_writes() {
  for (batch& each : batches_) {
    if (each.now == batch::phase::read) submit_write(each);
  }
  to_->submit_left();
  std::array<completion, batch_count> done;
  while (const std::size_t count = to_->poll(done)) {
    for (const completion& each : std::span(done).first(count)) {
      batch& which = batches_[each.cookie];
      which.now = batch::phase::settling;
      if (each.error_code == 0) {
        pause_ns_ = 0;
        told_ = false;
        continue;
      }
      for (move& failed : which.moves) failed.failed = true;
      pause(each.error_code);
    }
  }
  for (batch& each : batches_) {
    if (each.now == batch::phase::settling) settle(each);
  }
}

// ---- the end of a move ----

void spiller::settle(batch& which) {
  bool is_over = true;
  for (std::size_t i = 0; i < which.count; ++i) {
    const move& ended = which.moves[i];
    if (ended.slot == no_slot) continue;
    end_move(
        which, i,
        ended.failed ? places_.abandon_move(ended.slot) : places_.finish_move(ended.slot, which.first_in_next + i));
    is_over = is_over && ended.slot == no_slot;
  }
  if (is_over) which.now = batch::phase::unused;
}

void spiller::end_move(batch& which, std::size_t position, place_table::moved how) {
  move& ended = which.moves[position];
  if (how == place_table::moved::is_busy) return;
  if (how != place_table::moved::done) next_.free(which.first_in_next + position, 1);
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
  if (told_) return;
  told_ = true;
  log_line(log_level::warning, "nothing more moves from one far tier to the next for now (%s); it stays where it is",
           error_code == ENOSPC ? "that one is full" : std::strerror(error_code));
}

void spiller::forget_in_child() {
  for (std::unique_ptr<channel>* each : {&from_, &to_}) {
    if (*each != nullptr) (*each)->close_in_child();
    static_cast<void>(each->release());
  }
  for (batch& each : batches_) each.now = batch::phase::unused;
  paused_until_ns_.store(0);
  dead_slots_.store(0);
}

}  // namespace far::backend
