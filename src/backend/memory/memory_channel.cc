#include "backend/memory/memory_channel.h"

#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "backend/slot_allocator.h"
#include "base/backoff.h"
#include "base/check.h"
#include "platform/clock.h"
#include "platform/own_descriptors.h"

namespace far::backend {
namespace {

// A sleep of less than this would end too late, so a shorter wait spins. A longer one is woken a little early, because
// waking up takes 5 to 20 us, and spins for the rest.
constexpr std::uint64_t shortest_sleep_ns = 20'000;
constexpr std::uint64_t wake_early_ns = 10'000;

std::uint64_t now_ns() {
  return platform::monotonic_clock().now_ns();
}

timespec to_timespec(std::uint64_t ns) {
  return {static_cast<time_t>(ns / 1'000'000'000u), static_cast<long>(ns % 1'000'000'000u)};
}

bool is_refused(const request& io) {
  return io.reduce != nullptr && !is_built_in(io.reduce->how);
}

}  // namespace

memory_channel::memory_channel(const slot_allocator& slots, std::byte* frames, emulated_link& link, std::size_t depth)
    : slots_(slots), frames_(frames), link_(link), depth_(depth), directions_{direction(depth), direction(depth)} {
  // Without a timer (no descriptor left) wait() makes do with nanosleep, and there is no event descriptor.
  if (!link.instant()) timer_ = platform::own_descriptor(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
}

memory_channel::~memory_channel() {
  FAR_CHECK(in_flight() == 0, "a channel was destroyed with transfers in flight");
  if (timer_ >= 0) close(timer_);
}

std::size_t memory_channel::in_flight() const {
  return directions_[0].count + directions_[1].count;
}

memory_channel::direction* memory_channel::next_due() {
  direction& reads = directions_[0];
  direction& writes = directions_[1];
  if (reads.empty() || writes.empty()) return reads.empty() ? (writes.empty() ? nullptr : &writes) : &reads;
  return reads.front().due_ns <= writes.front().due_ns ? &reads : &writes;
}

const memory_channel::direction* memory_channel::next_due() const {
  return const_cast<memory_channel*>(this)->next_due();
}

void memory_channel::copy(const request& io) const {
  if (io.length_bytes == 0) return;  // then the buffer may be null
  std::byte* const far_bytes = address_of(io);
  if (io.reduce != nullptr) {
    if (is_refused(io)) return;
    if (io.reduce->how.kind == reduction_kind::of_rows) return answer_rows(io);
    answer(*io.reduce, far_bytes - io.offset_bytes, {far_bytes, io.length_bytes}, io.buffer);
  } else if (io.op == operation::read) {
    std::memcpy(io.buffer, far_bytes, io.length_bytes);
  } else {
    std::memcpy(far_bytes, io.buffer, io.length_bytes);
  }
}

void memory_channel::answer_rows(const request& io) const {
  std::array<const std::byte*, detail::most_row_pages> pages{};
  const std::span<const std::uint64_t> slots = io.reduce->slots;
  std::ranges::transform(slots, pages.begin(), [&](slot_id slot) { return frames_ + slot * page_bytes; });
  answer_about_rows(*io.reduce, std::span(pages).first(slots.size()), io.buffer);
}

std::size_t memory_channel::submit(std::span<const request> batch) {
  const std::size_t taken = std::min(batch.size(), depth_ - in_flight());
  const bool instant = link_.instant();
  const std::uint64_t submitted_ns = instant ? 0 : now_ns();
  for (const request& io : batch.first(taken)) {
    FAR_DCHECK(slots_.all_allocated(io.slot, pages_for(std::uint64_t{io.offset_bytes} + io.length_bytes)),
               "a transfer of slots that are not allocated");
    if (io.op == operation::write || (instant && !io.may_lend)) copy(io);
    const std::uint64_t due_ns = instant ? 0 : link_.completion_ns(io.op, io.moved_bytes(), submitted_ns);
    directions_[io.op == operation::read ? 0 : 1].push({due_ns, io});
  }
  if (timer_is_watched_ && taken > 0) watch_next();
  return taken;
}

std::size_t memory_channel::poll(std::span<completion> done) {
  const bool instant = link_.instant();
  const std::uint64_t polled_ns = instant || in_flight() == 0 ? 0 : now_ns();
  std::size_t count = 0;
  while (count < done.size()) {
    direction* const next = next_due();
    if (next == nullptr || next->front().due_ns > polled_ns) break;
    const request& io = next->front().io;
    const bool lends = io.op == operation::read && io.may_lend;
    if (!instant && io.op == operation::read && !lends) copy(io);
    done[count++] = {io.cookie, is_refused(io) ? ENOTSUP : 0, lends ? address_of(io) : nullptr};
    next->pop();
  }
  if (timer_is_watched_ && count > 0) watch_next();
  return count;
}

void memory_channel::set_timer(std::uint64_t when_ns) const {
  const itimerspec when{.it_interval = {}, .it_value = to_timespec(when_ns)};
  // Fails only when the program has closed our descriptor; then read() in wait() fails too and is dealt with there.
  static_cast<void>(timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr));
}

void memory_channel::watch_next() const {
  const direction* const next = next_due();
  set_timer(next == nullptr ? 0 : next->front().due_ns);
}

void memory_channel::wait(std::uint64_t timeout_ns) {
  const direction* const next = next_due();
  if (next == nullptr || link_.instant()) return;
  std::uint64_t current_ns = now_ns();
  const std::uint64_t due_ns = next->front().due_ns;
  const std::uint64_t until_ns = timeout_ns < due_ns - std::min(due_ns, current_ns) ? current_ns + timeout_ns : due_ns;
  bool slept = false;
  for (; current_ns < until_ns; current_ns = now_ns()) {
    if (until_ns - current_ns < shortest_sleep_ns) {
      cpu_relax();
      continue;
    }
    slept = true;
    const std::uint64_t wake_ns = until_ns - wake_early_ns;
    set_timer(wake_ns);
    std::uint64_t expirations = 0;
    if (timer_ >= 0 && (read(timer_, &expirations, sizeof expirations) > 0 || errno == EINTR)) continue;
    const timespec wake = to_timespec(wake_ns);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, nullptr);
  }
  if (slept && timer_is_watched_) watch_next();
}

int memory_channel::event_descriptor() const {
  if (timer_ >= 0 && !timer_is_watched_) {
    timer_is_watched_ = true;
    watch_next();
  }
  return timer_;
}

}  // namespace far::backend
