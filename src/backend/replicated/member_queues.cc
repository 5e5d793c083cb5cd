#include "backend/replicated/member_queues.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "backend/watch_queue.h"
#include "base/check.h"
#include "platform/own_descriptors.h"
#include "platform/wait_for_events.h"

namespace far::backend {

member_queues::~member_queues() {
  for (const int descriptor : {events_, ready_event_}) {
    if (descriptor < 0) continue;
    platform::disown_descriptor(descriptor);
    close(descriptor);
  }
}

result<std::unique_ptr<channel>> member_queues::open_queue(backend& store) {
  result<std::unique_ptr<channel>> opened = store.open_channel(depth_);
  // A thread that sleeps on our descriptor must also be woken for the new queue.
  if (opened && events_ >= 0 && !watch_queue(events_, opened.value()->event_descriptor())) {
    return error{"server " + store.describe() +
                     " cannot be polled together with the others; raise the limit on descriptors (ulimit -n)",
                 EMFILE};
  }
  return opened;
}

void member_queues::take_queue(std::unique_ptr<channel> added) {
  const std::size_t index = count_.load(std::memory_order_relaxed);
  queues_[index].transfers = std::move(added);
  queues_[index].unsent.reserve(depth_);
  count_.store(index + 1, std::memory_order_release);
}

void member_queues::abandon() {
  for (queue& member : all()) static_cast<void>(member.transfers.release());
}

void member_queues::has_joined() {
  for (const queue& member : all()) {
    if (member.transfers->event_descriptor() < 0) return;
  }
  events_ = platform::own_descriptor(epoll_create1(EPOLL_CLOEXEC));
  ready_event_ = platform::own_descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  bool is_watched = events_ >= 0 && ready_event_ >= 0 && watch_queue(events_, ready_event_);
  for (const queue& member : all()) {
    is_watched = is_watched && watch_queue(events_, member.transfers->event_descriptor());
  }
  if (is_watched) return;
  for (int* const descriptor : {&events_, &ready_event_}) {
    if (*descriptor >= 0) platform::disown_descriptor(*descriptor);
    if (*descriptor >= 0) close(*descriptor);
    *descriptor = -1;
  }
}

std::size_t member_queues::in_flight() {
  std::size_t sum = 0;
  for (const queue& member : all()) sum += member.transfers->in_flight();
  return sum;
}

void member_queues::flush() {
  for (queue& member : all()) {
    if (member.unsent.empty()) continue;
    const std::size_t sent = member.transfers->submit(member.unsent);
    member.unsent.erase(member.unsent.begin(), member.unsent.begin() + static_cast<std::ptrdiff_t>(sent));
  }
}

member_queues::taken member_queues::take(std::size_t most) {
  taken found;
  const std::span<queue> queues = all();
  const std::size_t wanted = std::min(most, found.completions.size());
  for (std::size_t i = 0; i < queues.size() && found.count == 0; ++i) {
    found.member = next_++ % queues.size();
    channel& transfers = *queues[found.member].transfers;
    if (transfers.in_flight() > 0) found.count = transfers.poll({found.completions.data(), wanted});
  }
  return found;
}

void member_queues::announce(bool is_ready) {
  if (ready_event_ < 0 || is_announced_ == is_ready) return;
  std::uint64_t count = 1;
  const ssize_t moved = is_ready ? write(ready_event_, &count, sizeof count) : read(ready_event_, &count, sizeof count);
  FAR_CHECK(moved == sizeof count, "an eventfd takes and gives its count");
  is_announced_ = is_ready;
}

bool member_queues::waits_for_time() const {
  const std::span<const queue> members(queues_.data(), count());
  return std::any_of(members.begin(), members.end(),
                     [](const queue& one) { return !one.unsent.empty() || one.transfers->waits_for_time(); });
}

void member_queues::wait(std::uint64_t timeout_ns) {
  constexpr std::uint64_t longest_without_events_ns = 50'000;
  channel* busy = nullptr;
  std::size_t busy_count = 0;
  for (const queue& member : all()) {
    // Transfers that could not be sent are tried again soon.
    if (!member.unsent.empty()) timeout_ns = std::min(timeout_ns, longest_without_events_ns);
    if (member.transfers->in_flight() == 0) continue;
    busy = member.transfers.get();
    ++busy_count;
  }
  if (busy_count == 1) return busy->wait(timeout_ns);
  if (events_ < 0 && busy != nullptr) return busy->wait(std::min(timeout_ns, longest_without_events_ns));
  pollfd watched{.fd = events_, .events = POLLIN, .revents = 0};
  platform::wait_for_events({&watched, 1}, static_cast<std::int64_t>(timeout_ns));
}

}  // namespace far::backend
