#include "backend/lineage/lineage_channel.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "backend/lineage/lineage_backend.h"
#include "backend/watch_queue.h"
#include "base/check.h"
#include "platform/own_descriptors.h"

namespace far::backend {
namespace {

constexpr std::size_t requests_at_once = 64;
// While several queues have something under way.
constexpr std::uint64_t short_wait_ns = 50'000;

}  // namespace

lineage_channel::~lineage_channel() {
  holder_.forget(*this);
  delete own_.load();
  platform::close_own_descriptor(events_);
}

void lineage_channel::give_own(slot_id base, std::unique_ptr<channel> queue) {
  FAR_CHECK(own_.load() == nullptr, "a channel has one queue to its own tier");
  own_base_ = base;
  own_.store(queue.release(), std::memory_order_release);
}

template <typename Visit>
void lineage_channel::for_each_queue(Visit visit) const {
  for (const part& ancestor : inherited_) visit(*ancestor.queue);
  if (channel* const own = own_.load(std::memory_order_acquire)) visit(*own);
}

channel& lineage_channel::queue_of(slot_id slot, slot_id* base, slot_id* end) const {
  channel* const own = own_.load(std::memory_order_acquire);
  if (own != nullptr && slot >= own_base_) {
    *base = own_base_;
    *end = no_slot;
    return *own;
  }
  const auto found = std::find_if(inherited_.begin(), inherited_.end(), [slot](const part& ancestor) {
    return slot >= ancestor.base && slot < ancestor.end;
  });
  FAR_CHECK(found != inherited_.end(), "a transfer is of a slot that exists");
  *base = found->base;
  *end = found->end;
  return *found->queue;
}

std::size_t lineage_channel::submit(std::span<const request> batch) {
  const std::size_t wanted = std::min(batch.size(), depth_ - in_flight());
  std::size_t done = 0;
  while (done < wanted) {
    slot_id base = 0;
    slot_id end = 0;
    channel& queue = queue_of(batch[done].slot, &base, &end);
    std::array<request, requests_at_once> portion;
    std::size_t count = 0;
    while (done + count < wanted && count < portion.size()) {
      const request& next = batch[done + count];
      if (next.slot < base || next.slot >= end) break;
      portion[count] = next;
      portion[count++].slot -= base;
    }
    const std::size_t taken = queue.submit({portion.data(), count});
    done += taken;
    if (taken < count) break;
  }
  return done;
}

std::size_t lineage_channel::poll(std::span<completion> done) {
  std::size_t count = 0;
  for_each_queue([&](channel& queue) {
    // Also queues with nothing under way, because poll() resets what makes their descriptors readable.
    if (count < done.size()) count += queue.poll(done.subspan(count));
  });
  return count;
}

void lineage_channel::wait(std::uint64_t timeout_ns) {
  channel* busy = nullptr;
  std::size_t busy_count = 0;
  for_each_queue([&](channel& queue) {
    if (queue.in_flight() == 0) return;
    busy = &queue;
    ++busy_count;
  });
  if (busy != nullptr) busy->wait(busy_count > 1 ? std::min(timeout_ns, short_wait_ns) : timeout_ns);
}

std::size_t lineage_channel::in_flight() const {
  std::size_t sum = 0;
  for_each_queue([&sum](const channel& queue) { sum += queue.in_flight(); });
  return sum;
}

bool lineage_channel::needs_its_submitter() const {
  bool any = false;
  for_each_queue([&any](const channel& queue) { any |= queue.needs_its_submitter(); });
  return any;
}

bool lineage_channel::has_left() const {
  bool any = false;
  for_each_queue([&any](const channel& queue) { any |= queue.has_left(); });
  return any;
}

bool lineage_channel::waits_for_time() const {
  bool any = false;
  for_each_queue([&any](const channel& queue) { any |= queue.waits_for_time(); });
  return any;
}

void lineage_channel::submit_left() {
  for_each_queue([](channel& queue) { queue.submit_left(); });
}

void lineage_channel::close_in_child() {
  for_each_queue([](channel& queue) { queue.close_in_child(); });
  platform::close_own_descriptor(std::exchange(events_, -1));
}

// If one queue has no descriptor, this channel has none.
int lineage_channel::event_descriptor() const {
  bool all = true;
  for_each_queue([&all](const channel& queue) { all &= queue.event_descriptor() >= 0; });
  if (!all) return -1;
  if (events_ < 0) {
    events_ = platform::own_descriptor(epoll_create1(EPOLL_CLOEXEC));
    if (events_ < 0) return -1;
    for (const part& ancestor : inherited_) all &= watch_queue(events_, ancestor.queue->event_descriptor());
    // It must not be used the next time as if it watched all queues.
    if (!all) platform::close_own_descriptor(std::exchange(events_, -1));
    if (!all) return -1;
  }
  channel* const own = own_.load(std::memory_order_acquire);
  if (own != nullptr && !own_is_watched_) own_is_watched_ = watch_queue(events_, own->event_descriptor());
  return all && (own == nullptr || own_is_watched_) ? events_ : -1;
}

}  // namespace far::backend
