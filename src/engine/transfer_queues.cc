#include "engine/transfer_queues.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/lock_guard.h"

namespace far::engine {
namespace {

// Creates one more of them, behind those that are there.
template <typename Queue, std::size_t Most>
result<Queue*> add(core& shared, std::array<std::unique_ptr<Queue>, Most>& queues, std::atomic<std::size_t>& count,
                   const char* refusal) {
  const std::size_t index = count.load(std::memory_order_relaxed);
  if (index == Most) return error{refusal, 0};
  result<std::unique_ptr<Queue>> made = Queue::create(shared);
  if (!made) return made.error();
  queues[index] = std::move(made).value();
  count.store(index + 1, std::memory_order_release);
  return queues[index].get();
}

// Whether `asked` is true of one of them.
template <typename Queues, typename Question>
bool any(const Queues& queues, const Question& asked) {
  return std::any_of(queues.begin(), queues.end(), [&asked](const auto& each) { return asked(*each); });
}

// Polls what nobody holds.
template <typename Queues>
bool poll_each(const Queues& queues, caller who) {
  bool progress = false;
  for (const auto& each : queues) {
    if (each->idle() || !each->lock.try_lock()) continue;
    progress |= each->poll(who);
    each->lock.unlock();
  }
  return progress;
}

template <typename Queues>
result<void> restart_each(const Queues& queues) {
  for (const auto& each : queues) {
    const result<void> restarted = each->restart_in_child();
    if (!restarted) return restarted;
  }
  return {};
}

}  // namespace

result<void> transfer_queues::open_evictors() {
  for (std::size_t i = 0; i < evictor_count; ++i) {
    result<std::unique_ptr<evictor>> made = evictor::create(shared_, i * evictor::staging_pages);
    if (!made) return made.error();
    evictors_[i] = std::move(made).value();
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
  for (const std::unique_ptr<evictor>& each : evictors_) {
    if (each->idle() || !each->lock.try_lock()) continue;
    progress |= each->step(false, who);
    each->lock.unlock();
  }
  return progress;
}

bool transfer_queues::has_left_writes() const {
  return any(evictors_, [](const evictor& each) { return each.has_left_writes(); });
}

bool transfer_queues::has_left() const {
  return any(fetchers(), [](const fetcher& each) { return each.has_left(); }) ||
         any(readers(), [](const object_reader& each) { return each.has_left(); }) || has_left_writes();
}

bool transfer_queues::under_way() const {
  return any(fetchers(), [](const fetcher& each) { return !each.idle(); }) ||
         any(readers(), [](const object_reader& each) { return !each.idle(); }) ||
         any(evictors_, [](const evictor& each) { return !each.idle(); });
}

bool transfer_queues::unattended() const {
  return any(fetchers(), [](const fetcher& each) { return each.unattended(); }) ||
         any(evictors_, [](const evictor& each) { return !each.idle(); });
}

// The analysis knows no locks of arrays.
void transfer_queues::lock_all() FAR_UNCHECKED_LOCKING {
  adding_.lock();
  for (const auto& each : fetchers()) each->lock.lock();
  for (const auto& each : readers()) each->lock.lock();
  for (const auto& each : evictors_) each->lock.lock();
}

void transfer_queues::unlock_all() FAR_UNCHECKED_LOCKING {
  for (const auto& each : evictors_) each->lock.unlock();
  for (const auto& each : readers()) each->lock.unlock();
  for (const auto& each : fetchers()) each->lock.unlock();
  adding_.unlock();
}

void transfer_queues::close_in_child() {
  for (const auto& each : evictors_) each->close_in_child();
  for (const auto& each : fetchers()) each->close_in_child();
  for (const auto& each : readers()) each->close_in_child();
}

result<void> transfer_queues::restart_in_child() {
  result<void> restarted = restart_each(evictors_);
  if (restarted) restarted = restart_each(fetchers());
  if (restarted) restarted = restart_each(readers());
  return restarted;
}

}  // namespace far::engine
