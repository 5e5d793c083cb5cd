#include "engine/waiting_fibers.h"

#include "base/lock_guard.h"

namespace far::engine {

void waiting_fibers::put(bucket& in, waiting& mine) noexcept {
  const lock_guard guard(in.lock);
  mine.listed = true;
  mine.next = in.first.load(std::memory_order_relaxed);
  in.first.store(&mine, std::memory_order_seq_cst);
}

// Returns false when somebody has taken it off the list, to wake it; by now it is woken.
bool waiting_fibers::take_back(bucket& from, waiting& mine) noexcept {
  const lock_guard guard(from.lock);
  if (!mine.listed) return false;
  mine.listed = false;
  waiting* const first = from.first.load(std::memory_order_relaxed);
  if (first == &mine) {
    from.first.store(mine.next, std::memory_order_seq_cst);
    return true;
  }
  waiting* before = first;
  while (before->next != &mine) before = before->next;
  before->next = mine.next;
  return true;
}

void waiting_fibers::wait_for_page(const residency& pages, page_id page, miss_waiter::place from) noexcept {
  bucket& in = buckets_[page % bucket_count];
  waiting mine;
  mine.page = page;
  fibers_.open(mine.ticket);
  put(in, mine);
  // Either we see that the page has settled, or the thread that settles it sees us: it changes the word first and looks
  // at the list then.
  if (pages.load_in_order(page).where() != state::fetching) {
    static_cast<void>(take_back(in, mine));
    fibers_.close(mine.ticket);
    return;
  }
  fibers_.poll_soon();
  fibers_.park(mine.ticket, from);
}

// Called at every change of a page's state, mostly with nobody waiting: then it is one load. Wakes all that wait for
// this page, and leaves others of the bucket in their order.
void waiting_fibers::settled(page_id page) noexcept {
  bucket& in = buckets_[page % bucket_count];
  if (in.first.load(std::memory_order_seq_cst) == nullptr) return;
  const lock_guard guard(in.lock);
  waiting* before = nullptr;
  waiting* entry = in.first.load(std::memory_order_relaxed);
  while (entry != nullptr) {
    waiting* const next = entry->next;
    if (entry->page != page) {
      before = entry;
    } else {
      entry->listed = false;
      if (before != nullptr) {
        before->next = next;
      } else {
        in.first.store(next, std::memory_order_seq_cst);
      }
      fibers_.wake(entry->ticket);
    }
    entry = next;
  }
}

void waiting_fibers::wait_for(reason why, miss_waiter::place from) noexcept {
  queue& in = queues_[static_cast<std::size_t>(why)];
  waiting mine;
  fibers_.open(mine.ticket);
  {
    const lock_guard guard(in.lock);
    (in.last == nullptr ? in.first : in.last->next) = &mine;
    in.last = &mine;
    in.count.fetch_add(1, std::memory_order_relaxed);
  }
  // The poller looks at the list, and is called at least once from now on.
  fibers_.poll_soon();
  fibers_.park(mine.ticket, from);
}

void waiting_fibers::wake(reason why, std::size_t most) noexcept {
  queue& in = queues_[static_cast<std::size_t>(why)];
  if (most == 0 || !any(why)) return;
  const lock_guard guard(in.lock);
  while (most-- > 0 && in.first != nullptr) {
    waiting& oldest = *in.first;
    in.first = oldest.next;
    if (in.first == nullptr) in.last = nullptr;
    in.count.fetch_sub(1, std::memory_order_relaxed);
    fibers_.wake(oldest.ticket);
  }
}

}  // namespace far::engine
