#include "backend/tcp/tcp_channel.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "base/check.h"
#include "platform/own_descriptors.h"
#include "platform/processors.h"
#include "platform/wait_for_events.h"

namespace far::backend {
namespace {

// Sending a long transfer may take longer than the timeout, so it gets a second more for each of these.
constexpr std::uint64_t bytes_a_second = 16 * mib;
constexpr std::uint64_t second_ns = 1'000'000'000;

// How long wait() polls for answers before it sleeps: about the cost of waking a processor, so that polling in vain at
// most doubles the price (docs/decisions/0007-tcp-far-tier.md).
constexpr std::uint64_t longest_spin_ns = 50'000;

void close_owned(int descriptor) {
  if (descriptor < 0) return;
  platform::disown_descriptor(descriptor);
  ::close(descriptor);
}

}  // namespace

result<std::unique_ptr<channel>> tcp_channel::open(const tcp_lanes& lanes, const block_table& blocks,
                                                   const session_epoch& session, const platform::clock& time,
                                                   std::uint64_t timeout_ns, std::size_t depth) {
  if (depth == 0 || depth > largest_depth) {
    return error{"a channel of a memory server holds between 1 and " + std::to_string(largest_depth) +
                     " requests, not " + std::to_string(depth),
                 EINVAL};
  }
  const auto is_watched = [&](int watch, int event) {
    return std::unique_ptr<channel>(new tcp_channel(lanes, blocks, session, time, timeout_ns, depth, watch, event));
  };
  if (lanes.reads->descriptor() < 0) return is_watched(-1, -1);
  const int watch = platform::own_descriptor(epoll_create1(EPOLL_CLOEXEC));
  const int event = platform::own_descriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  epoll_event events{.events = EPOLLIN, .data = {}};
  if (watch < 0 || event < 0 || epoll_ctl(watch, EPOLL_CTL_ADD, event, &events) != 0) {
    const int code = errno;
    close_owned(watch);
    close_owned(event);
    return error{std::string("no descriptor for a channel (") + std::strerror(code) + "); raise ulimit -n", code};
  }
  return is_watched(watch, event);
}

tcp_channel::tcp_channel(const tcp_lanes& lanes, const block_table& blocks, const session_epoch& session,
                         const platform::clock& time, std::uint64_t timeout_ns, std::size_t depth, int watch, int event)
    : blocks_(blocks),
      session_(session),
      time_(time),
      timeout_ns_(timeout_ns),
      depth_(depth),
      watch_(watch),
      // A channel without descriptors has no processor to wake: its clock is not the machine's.
      spin_ns_(watch >= 0 && platform::has_several_processors() ? longest_spin_ns : 0),
      event_(event),
      lanes_{{{lanes.reads}, {lanes.writes}}},
      lane_count_(lanes.reads == lanes.writes ? 1 : 2),
      transfers_(reinterpret_cast<transfer*>(platform::map_local(depth * sizeof(transfer)))) {
  unused_.reserve(depth);
  for (std::size_t i = depth; i > 0; --i) unused_.push_back(static_cast<std::uint32_t>(i - 1));
}

tcp_channel::~tcp_channel() {
  FAR_CHECK(in_flight() == 0, "a channel was destroyed with transfers in flight");
  platform::unmap_local(reinterpret_cast<std::byte*>(transfers_), depth_ * sizeof(transfer));
  close_owned(event_);
  close_owned(watch_);
}

std::uint64_t tcp_channel::deadline_of(const request& io, std::uint64_t now_ns) const {
  return now_ns + timeout_ns_ + io.length_bytes / bytes_a_second * second_ns;
}

std::size_t tcp_channel::submit(std::span<const request> batch) {
  const std::size_t taken = std::min(batch.size(), unused_.size());
  if (taken == 0) return 0;
  const std::uint64_t now_ns = time_.now_ns();
  for (const request& io : batch.first(taken)) prepare(io, now_ns);
  for (std::size_t i = 0; i < lane_count_; ++i) {
    transfer* current = std::exchange(prepared_first_[i], nullptr);
    if (current == nullptr) continue;
    watch_lane(lanes_[i]);
    transfer_connection& over = *lanes_[i].over;
    const lock_guard guard(over.lock);
    while (current != nullptr) {
      transfer& added = *current;
      current = added.next;
      over.enqueue(added);
    }
    if (taken > 1 || batch[0].length_bytes > page_bytes) {
      over.push(this);
    } else if (batch[0].reduce != nullptr ? over.push_later(this) : over.push_soon(this)) {
      wake_owner();
    }
  }
  return taken;
}

// Of several slots, some may be those of a session before. A server takes one that it has not lent for the mistake of a
// client that has lost track, and ends the connection.
bool tcp_channel::asks_about_other_epochs(const request& io, std::uint32_t epoch) const {
  return io.reduce != nullptr &&
         std::ranges::any_of(io.reduce->slots, [&](slot_id slot) { return blocks_.epoch_of(slot) != epoch; });
}

// Makes a transfer of the request and puts it in line for its lane.
void tcp_channel::prepare(const request& io, std::uint64_t now_ns) {
  const std::size_t index = lane_count_ == 1 || io.op == operation::read ? 0 : 1;
  transfer& added = *new (&transfers_[unused_.back()]) transfer;
  unused_.pop_back();
  added.io = io;
  added.owner = this;
  added.lane = static_cast<std::uint32_t>(index);
  added.deadline_ns = deadline_of(io, now_ns);
  added.epoch = blocks_.epoch_of(io.slot);
  ++lanes_[index].in_flight;
  const bool lost = added.epoch != session_.epoch() || asks_about_other_epochs(io, added.epoch);
  if (lost || io.length_bytes == 0) {
    added.error_code = lost ? ESTALE : 0;
    return complete(added, this);
  }
  (prepared_first_[index] == nullptr ? prepared_first_[index] : prepared_last_[index]->next) = &added;
  prepared_last_[index] = &added;
}

// A lane is watched from its first use on, so that a channel that only reads is not woken by writes of others.
void tcp_channel::watch_lane(lane& used) {
  const int descriptor = used.over->descriptor();
  if (used.watched == descriptor || watch_ < 0) return;
  epoll_event events{.events = EPOLLIN, .data = {}};
  // Without it, wait() looks again after a while.
  static_cast<void>(epoll_ctl(watch_, EPOLL_CTL_ADD, descriptor, &events));
  used.watched = descriptor;
}

void tcp_channel::complete(transfer& ended, const completion_sink* sink) {
  const lock_guard guard(queue_lock_);
  ended.next = nullptr;
  (done_first_ == nullptr ? done_first_ : done_last_->next) = &ended;
  done_last_ = &ended;
  if (sink != this && watched_) signal(true);
}

// A thread that sleeps on the descriptor polls first.
void tcp_channel::wake_owner() const {
  const lock_guard guard(queue_lock_);
  if (watched_) signal(true);
}

void tcp_channel::signal(bool wanted) const {
  if (signalled_ == wanted || event_ < 0) return;
  signalled_ = wanted;
  std::uint64_t number = 1;
  // An eventfd of ours takes and gives a small number at any time.
  static_cast<void>(wanted ? write(event_, &number, sizeof number) : read(event_, &number, sizeof number));
}

std::size_t tcp_channel::poll(std::span<completion> done) {
  // With nothing in flight it is only of interest why our descriptor was readable.
  for (lane& current : std::span(lanes_).first(lane_count_)) {
    if (current.in_flight == 0 && !(watched_ && current.watched >= 0)) continue;
    // The holder brings our completions as well.
    if (!current.over->lock.try_lock()) continue;
    const lock_guard guard(current.over->lock, std::adopt_lock);
    current.over->advance(this);
  }
  return pop(done);
}

std::size_t tcp_channel::pop(std::span<completion> done) {
  const lock_guard guard(queue_lock_);
  std::size_t count = 0;
  while (count < done.size() && done_first_ != nullptr) {
    transfer& ended = *done_first_;
    done_first_ = ended.next;
    done[count++] = {ended.io.cookie, ended.error_code};
    --lanes_[ended.lane].in_flight;
    unused_.push_back(static_cast<std::uint32_t>(&ended - transfers_));
  }
  if (watched_) signal(done_first_ != nullptr);
  return count;
}

// Looks for answers until there are some, or it is `until_ns`.
bool tcp_channel::spin(std::uint64_t until_ns) {
  while (time_.now_ns() < until_ns) {
    for (lane& current : std::span(lanes_).first(lane_count_)) {
      if (current.in_flight == 0 || !current.over->lock.try_lock()) continue;
      const lock_guard guard(current.over->lock, std::adopt_lock);
      current.over->advance(this);
    }
    const lock_guard guard(queue_lock_);
    if (has_done()) return true;
  }
  return false;
}

bool tcp_channel::has_done() const {
  if (done_first_ == nullptr) return false;
  // A caller that asked for the descriptor before may look at that next, and not poll.
  if (watched_) signal(true);
  return true;
}

void tcp_channel::wait(std::uint64_t timeout_ns) {
  if (in_flight() == 0) return;
  if (spin_ns_ > 0 && spin(time_.now_ns() + std::min(timeout_ns, spin_ns_))) return;
  const std::uint64_t now_ns = time_.now_ns();
  std::uint64_t until_ns = timeout_ns > std::numeric_limits<std::uint64_t>::max() - now_ns ? 0 : now_ns + timeout_ns;
  if (until_ns == 0) until_ns = std::numeric_limits<std::uint64_t>::max();
  for (lane& current : std::span(lanes_).first(lane_count_)) {
    if (current.in_flight == 0) continue;
    const lock_guard guard(current.over->lock);
    until_ns = std::min(until_ns, current.over->advance(this));
  }
  bool was_watched = false;
  {
    const lock_guard guard(queue_lock_);
    if (has_done()) return;
    was_watched = std::exchange(watched_, true);
  }
  if (until_ns > now_ns) sleep(until_ns - now_ns);
  const lock_guard guard(queue_lock_);
  if (!was_watched) signal(false);
  watched_ = was_watched;
}

void tcp_channel::sleep(std::uint64_t ns) const {
  if (watch_ < 0) return lanes_[0].over->wait(ns);
  pollfd watched{.fd = watch_, .events = POLLIN, .revents = 0};
  platform::wait_for_events({&watched, 1}, static_cast<std::int64_t>(ns));
}

int tcp_channel::event_descriptor() const {
  if (watch_ < 0) return -1;
  const lock_guard guard(queue_lock_);
  watched_ = true;
  if (done_first_ != nullptr) signal(true);
  return watch_;
}

}  // namespace far::backend
