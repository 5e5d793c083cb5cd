#include "backend/stacked/stacked_channel.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "backend/stacked/stacked_backend.h"
#include "backend/watch_queue.h"
#include "base/check.h"
#include "base/units.h"
#include "platform/own_descriptors.h"

namespace far::backend {
namespace {

// While both tiers have something under way.
constexpr std::uint64_t short_wait_ns = 50'000;

}  // namespace

// Of parts there are as many as both queues hold.
stacked_channel::stacked_channel(stacked_backend& owner, place_table& places, std::unique_ptr<channel> first,
                                 std::unique_ptr<channel> next, std::size_t depth)
    : owner_(owner),
      places_(places),
      queues_{std::move(first), std::move(next)},
      depth_(depth),
      wholes_(depth),
      parts_(2 * depth) {
  for (std::uint32_t i = 0; i < wholes_.size(); ++i) free_wholes_.push_back(i);
  for (std::uint32_t i = 0; i < parts_.size(); ++i) free_parts_.push_back(i);
  unfinished_.reserve(depth);
  ended_.reserve(depth);
  for (local_vector<request>& queued : unsent_) queued.reserve(depth);
}

stacked_channel::~stacked_channel() {
  FAR_CHECK(in_flight_ == 0, "a channel was destroyed with transfers in flight");
  platform::close_own_descriptor(events_);
}

// ---- submitting ----

std::size_t stacked_channel::submit(std::span<const request> batch) {
  begin_left();
  const std::size_t taken = std::min(batch.size(), depth_ - in_flight_);
  for (const request& io : batch.first(taken)) {
    const std::uint32_t index = free_wholes_.back();
    free_wholes_.pop_back();
    wholes_[index] = {.left = io};
    // A place may be another one before the bytes are looked at.
    wholes_[index].left.may_lend = false;
    unfinished_.push_back(index);
    ++in_flight_;
  }
  begin_left();
  flush();
  return taken;
}

void stacked_channel::begin_left() {
  std::size_t kept = 0;
  for (const std::uint32_t index : unfinished_) {
    begin_parts(index);
    const bool has_more = !wholes_[index].begun || wholes_[index].left.length_bytes > 0;
    if (has_more) unfinished_[kept++] = index;
  }
  unfinished_.resize(kept);
}

void stacked_channel::begin_parts(std::uint32_t index) {
  while (!wholes_[index].begun || wholes_[index].left.length_bytes > 0) {
    if (!begin_part(index)) return;
  }
}

bool stacked_channel::has_room(unsigned tier) const {
  return queues_[tier]->in_flight() + unsent_[tier].size() < depth_ && !free_parts_.empty();
}

// Returns false where there is no room for it.
bool stacked_channel::begin_part(std::uint32_t index) {
  whole& entry = wholes_[index];
  request& left = entry.left;
  left.slot += left.offset_bytes / page_bytes;
  left.offset_bytes %= page_bytes;
  tier_place where;
  const std::uint32_t count = pin_run(left, &where);
  const auto unpin_all = [&] {
    for (std::uint32_t i = 0; i < count; ++i) unpin(left.slot + i);
  };
  const bool is_question = count > 0 && left.reduce != nullptr;
  const bool asks_nobody = is_question && !owner_.answers_at(where, left.reduce->how);
  if (count == 0 || asks_nobody) {
    unpin_all();
    entry.error_code = asks_nobody ? EXDEV : EIO;
    entry.begun = true;
    left.length_bytes = 0;
    end_if_over(index);
    return true;
  }
  if (!has_room(where.tier)) return unpin_all(), false;
  const auto most = static_cast<std::uint32_t>(count * page_bytes - left.offset_bytes);
  const std::uint32_t length = std::min(left.length_bytes, most);
  const std::uint32_t number = free_parts_.back();
  free_parts_.pop_back();
  parts_[number] = {index, left.slot, count};
  request transfer = left;
  transfer.slot = where.slot;
  transfer.length_bytes = length;
  transfer.cookie = number;
  unsent_[where.tier].push_back(transfer);
  ++entry.parts;
  entry.is_split |= entry.begun;
  entry.begun = true;
  left.offset_bytes += length;
  left.length_bytes -= length;
  if (left.buffer != nullptr) left.buffer += length;
  return true;
}

// Returns how many slots from the first on, and no more than the request reaches into, lie side by side; none where the
// first was freed, because nobody waits for the request any more.
std::uint32_t stacked_channel::pin_run(const request& left, tier_place* where) {
  const std::uint64_t bytes = std::uint64_t{left.offset_bytes} + left.length_bytes;
  const auto most = static_cast<std::uint32_t>(std::max<std::uint64_t>(pages_for(bytes), 1));
  std::uint32_t count = 0;
  for (; count < most; ++count) {
    const std::optional<tier_place> next = places_.pin(left.slot + count, left.op);
    if (!next) break;
    if (count == 0) *where = *next;
    if (next->tier == where->tier && next->slot == where->slot + count) continue;
    unpin(left.slot + count);
    break;
  }
  return count;
}

void stacked_channel::unpin(slot_id slot) {
  if (const std::optional<tier_place> dead = places_.unpin(slot)) owner_.free_dead(slot, *dead);
}

void stacked_channel::flush() {
  for (const unsigned tier : {0u, 1u}) {
    local_vector<request>& unsent = unsent_[tier];
    if (unsent.empty()) continue;
    const std::size_t taken = queues_[tier]->submit(unsent);
    unsent.erase(unsent.begin(), unsent.begin() + static_cast<std::ptrdiff_t>(taken));
  }
}

void stacked_channel::submit_left() {
  for (const std::unique_ptr<channel>& queue : queues_) queue->submit_left();
  begin_left();
  flush();
}

bool stacked_channel::has_left() const {
  return !unfinished_.empty() || !unsent_[0].empty() || !unsent_[1].empty() || queues_[0]->has_left() ||
         queues_[1]->has_left();
}

bool stacked_channel::waits_for_time() const {
  return has_left() || queues_[0]->waits_for_time() || queues_[1]->waits_for_time();
}

bool stacked_channel::needs_its_submitter() const {
  return queues_[0]->needs_its_submitter() || queues_[1]->needs_its_submitter();
}

// ---- completing ----

std::size_t stacked_channel::poll(std::span<completion> done) {
  std::array<completion, 32> ended;
  for (const unsigned tier : {0u, 1u}) {
    while (ended_.size() < done.size()) {
      const std::size_t wanted = std::min(done.size() - ended_.size(), ended.size());
      const std::size_t count = queues_[tier]->poll({ended.data(), wanted});
      for (const completion& completed : std::span(ended).first(count)) end_part(tier, completed);
      // Some tiers make transfers when they are polled, so this polls for no more than somebody waits for.
      if (count < wanted) break;
    }
  }
  if (!needs_its_submitter() && has_left()) submit_left();
  const std::size_t count = std::min(done.size(), ended_.size());
  std::copy_n(ended_.begin(), count, done.begin());
  ended_.erase(ended_.begin(), ended_.begin() + static_cast<std::ptrdiff_t>(count));
  in_flight_ -= count;
  return count;
}

void stacked_channel::end_part(unsigned tier, const completion& ended) {
  const auto number = static_cast<std::uint32_t>(ended.cookie);
  const part& over = parts_[number];
  const std::uint32_t index = over.whole;
  for (std::uint32_t i = 0; i < over.count; ++i) unpin(over.first + i);
  free_parts_.push_back(number);
  whole& entry = wholes_[index];
  if (ended.error_code != 0) {
    if (tier == 0 && entry.left.op == operation::write && ended.error_code == ENOSPC) owner_.note_first_is_full();
    entry.error_code = ended.error_code;
  }
  entry.source = entry.is_split ? std::uint8_t{0} : ended.source;
  entry.refused_by = entry.is_split ? std::uint8_t{0} : ended.refused_by;
  --entry.parts;
  end_if_over(index);
}

void stacked_channel::end_if_over(std::uint32_t index) {
  const whole& entry = wholes_[index];
  if (entry.parts > 0 || entry.left.length_bytes > 0) return;
  ended_.push_back({.cookie = entry.left.cookie,
                    .error_code = entry.error_code,
                    .source = entry.source,
                    .refused_by = entry.refused_by});
  free_wholes_.push_back(index);
}

void stacked_channel::wait(std::uint64_t timeout_ns) {
  if (in_flight_ == 0 || !ended_.empty()) return;
  submit_left();
  const bool both = queues_[0]->in_flight() > 0 && queues_[1]->in_flight() > 0;
  for (const std::unique_ptr<channel>& queue : queues_) {
    if (queue->in_flight() > 0) queue->wait(both ? std::min(timeout_ns, short_wait_ns) : timeout_ns);
    if (both) return;
  }
}

// If one queue has no descriptor, this channel has none.
int stacked_channel::event_descriptor() const {
  // Asked each time: a queue may have come to one of its own meanwhile (lineage_channel).
  const std::array<int, 2> of_queues{queues_[0]->event_descriptor(), queues_[1]->event_descriptor()};
  if (of_queues[0] < 0 || of_queues[1] < 0) return -1;
  if (events_ >= 0) return events_;
  const int watcher = platform::own_descriptor(epoll_create1(EPOLL_CLOEXEC));
  if (watcher < 0) return -1;
  if (!watch_queue(watcher, of_queues[0]) || !watch_queue(watcher, of_queues[1])) {
    platform::close_own_descriptor(watcher);
    return -1;
  }
  events_ = watcher;
  return events_;
}

void stacked_channel::close_in_child() {
  for (const std::unique_ptr<channel>& queue : queues_) queue->close_in_child();
  platform::close_own_descriptor(std::exchange(events_, -1));
}

}  // namespace far::backend
