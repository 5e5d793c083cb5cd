// The engine around fork(2): a consistent copy for the child, and what the child makes of it.
#include <array>
#include <mutex>

#include "engine/engine.h"

namespace far::engine {

// With these locks held no miss and no eviction is half done.
void engine::lock_for_fork() {
  tending_.lock();
  fetchers_lock_.lock();
  for (std::size_t i = 0; i < fetcher_count_.load(); ++i) fetchers_[i]->lock.lock();
  for (std::size_t i = 0; i < reader_count_.load(); ++i) readers_[i]->lock.lock();
  for (const std::unique_ptr<evictor>& each : evictors_) each->lock.lock();
  shared_.lock_kept_slots();
}

void engine::unlock_after_fork() {
  shared_.unlock_kept_slots();
  for (const std::unique_ptr<evictor>& each : evictors_) each->lock.unlock();
  for (std::size_t i = 0; i < reader_count_.load(); ++i) readers_[i]->lock.unlock();
  for (std::size_t i = 0; i < fetcher_count_.load(); ++i) fetchers_[i]->lock.unlock();
  fetchers_lock_.unlock();
  tending_.unlock();
}

result<void> engine::resume_in_child() {
  shared_.detached = true;
  shared_.far.after_fork_in_child();
  shared_.allow_excess();
  platform::unlock_local_memory_after_fork();
  tending_.unlock();
  shared_.unlock_kept_slots();
  fetchers_lock_.unlock();
  for (const std::unique_ptr<evictor>& each : evictors_) each->lock.unlock();
  for (std::size_t i = 0; i < fetcher_count_.load(); ++i) {
    const result<void> restarted = fetchers_[i]->restart_in_child();
    if (!restarted) return restarted;
  }
  shared_.reads.restart_in_child();
  for (std::size_t i = 0; i < reader_count_.load(); ++i) {
    const result<void> restarted = readers_[i]->restart_in_child();
    if (!restarted) return restarted;
  }
  const block_id end = shared_.blocks.used_end();
  for (block_id which = 0; which < end; ++which) {
    block& each = shared_.blocks.at(which);
    each.lock.unlock();  // whoever held it is not in this process
    if (each.kind != block_kind::guarded) continue;
    const result<void> guarded = shared_.space.guard(pages_of(which));
    if (!guarded) return guarded;
    for (page_id page = pages_of(which).first; page < pages_of(which).end(); ++page) resume_page(page);
  }
  return {};
}

// Puts a page that another thread was at work on into a settled state again.
void engine::resume_page(page_id page) {
  const page_word word = shared_.pages.load(page);
  state next = word.where();
  if (word.where() == state::fetching) {
    next = word.has_place() ? state::remote : state::untouched;
  } else if (word.where() == state::evicting && !word.lifted()) {
    // Claimed by a thread of the program that was unmapping or moving it.
    bool filled = false;
    shared_.space.query_filled({page, 1}, {&filled, 1});
    next = filled ? state::resident : state::untouched;
  }
  if (next == word.where()) return;
  shared_.pages.update(page, [next](page_word each) {
    const page_word settled = each.with_state(next);
    return next == state::untouched ? settled.with_dirty(false).with_place(page_word::no_place) : settled;
  });
}

}  // namespace far::engine
