#include "engine/transfer_queues.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/lock_guard.h"

namespace far::engine {
namespace {

// Creates another queue, behind the existing ones.
template <typename Queue, std::size_t Most>
result<Queue*> add(core& shared, std::array<std::unique_ptr<Queue>, Most>& queues, std::atomic<std::size_t>& count,
                   const char* refusal) {
  const std::size_t index = count.load(std::memory_order_relaxed);
  if (index == Most) return error{refusal, 0};
  result<std::unique_ptr<Queue>> created = Queue::create(shared);
  if (!created) return created.error();
  queues[index] = std::move(created).value();
  count.store(index + 1, std::memory_order_release);
  return queues[index].get();
}

// Whether `asked` is true for one of the queues.
template <typename Queues, typename Question>
bool any(const Queues& queues, const Question& asked) {
  return std::any_of(queues.begin(), queues.end(), [&asked](const auto& queue) { return asked(*queue); });
}

// Polls the queues that nobody holds.
template <typename Queues>
bool poll_each(const Queues& queues, caller who) {
  bool progress = false;
  for (const auto& queue : queues) {
    if (queue->idle() || !queue->lock.try_lock()) continue;
    progress |= queue->poll(who);
    queue->lock.unlock();
  }
  return progress;
}

// Every queue's lock is opened, whatever fails.
template <typename Queues>
result<void> restart_each(const Queues& queues) {
  result<void> outcome;
  for (const auto& queue : queues) {
    result<void> restarted = queue->restart_in_child();
    if (!restarted && outcome) outcome = std::move(restarted);
  }
  return outcome;
}

}  // namespace

result<void> transfer_queues::open_evictors() {
  for (std::size_t i = 0; i < evictor_count; ++i) {
    result<std::unique_ptr<evictor>> created = evictor::create(shared_, i * evictor::staging_pages);
    if (!created) return created.error();
    evictors_[i] = std::move(created).value();
  }
  return {};
}

result<fetcher*> transfer_queues::add_fetcher() {
  const lock_guard guard(adding_);
  return add(shared_, fetchers_, fetcher_count_, "too many fetchers");
}

result<object_reader*> transfer_queues::add_object_reader() {
  FAR_CHECK(shared_.checks.by_pieces(), "object readers were announced when the engine was made");
  const lock_guard guard(adding_);
  return add(shared_, readers_, reader_count_, "too many object readers");
}

bool transfer_queues::help(caller who) {
  bool progress = poll_each(fetchers(), who);
  progress |= poll_each(readers(), who);
  for (const std::unique_ptr<evictor>& evictor : evictors_) {
    if (evictor->idle() || !evictor->lock.try_lock()) continue;
    progress |= evictor->step(false, who);
    evictor->lock.unlock();
  }
  return progress;
}

bool transfer_queues::has_left_writes() const {
  return any(evictors_, [](const evictor& queue) { return queue.has_left_writes(); });
}

bool transfer_queues::has_left() const {
  return any(fetchers(), [](const fetcher& queue) { return queue.has_left(); }) ||
         any(readers(), [](const object_reader& queue) { return queue.has_left(); }) || has_left_writes();
}

bool transfer_queues::under_way() const {
  return any(fetchers(), [](const fetcher& queue) { return !queue.idle(); }) ||
         any(readers(), [](const object_reader& queue) { return !queue.idle(); }) ||
         any(evictors_, [](const evictor& queue) { return !queue.idle(); });
}

bool transfer_queues::unattended() const {
  return any(fetchers(), [](const fetcher& queue) { return queue.unattended(); }) ||
         any(evictors_, [](const evictor& queue) { return !queue.idle(); });
}

// The analysis does not follow locks in arrays.
void transfer_queues::lock_all() FAR_UNCHECKED_LOCKING {
  adding_.lock();
  for (const auto& fetcher : fetchers()) fetcher->lock.lock();
  for (const auto& reader : readers()) reader->lock.lock();
  for (const auto& reader : evictors_) reader->lock.lock();
}

void transfer_queues::unlock_all() FAR_UNCHECKED_LOCKING {
  for (const auto& queue : evictors_) queue->lock.unlock();
  for (const auto& reader : readers()) reader->lock.unlock();
  for (const auto& fetcher : fetchers()) fetcher->lock.unlock();
  adding_.unlock();
}

// A queue has no transfers where they could not be opened: in a child without misses, which forks again.
void transfer_queues::close_in_child() {
  for (const auto& queue : evictors_) queue->close_in_child();
  for (const auto& fetcher : fetchers()) fetcher->close_in_child();
  for (const auto& reader : readers()) reader->close_in_child();
}

result<void> transfer_queues::restart_in_child() {
  const result<void> evicting = restart_each(evictors_);
  const result<void> fetching = restart_each(fetchers());
  const result<void> reading = restart_each(readers());
  return !evicting ? evicting : !fetching ? fetching : reading;
}

}  // namespace far::engine
