#include "heap/object_waits.h"

#include "far/detail/word.h"

namespace far::heap {

// The object may have been replaced by a huge one meanwhile, which nobody is going to announce.
void object_waits::wait_while_fetching(const std::atomic<std::uint64_t>& word) noexcept {
  bucket& in = bucket_of(&word);
  while (detail::word::is_fetching(word.load(std::memory_order_acquire))) {
    fiber::waiter self;
    {
      const lock_guard guard(in.lock);
      in.count.fetch_add(1, std::memory_order_seq_cst);
      in.waiting.append(self);
    }
    // Look once more: the thread that clears the flag looks at the count afterwards. Not under the lock: the word may
    // be part of a far object, and the access may miss.
    fiber::wake_up notice;
    if (!detail::word::is_fetching(word.load(std::memory_order_seq_cst)) && self.claim(notice)) {
      const lock_guard guard(in.lock);
      in.waiting.remove(self);
      in.count.fetch_sub(1, std::memory_order_relaxed);
      return;
    }
    self.park();  // a fetch always ends, with the object or without
  }
}

void object_waits::wake_all(const std::atomic<std::uint64_t>& word) noexcept {
  bucket& in = bucket_of(&word);
  // The flag was taken away before this in the one order of all such accesses (ThreadSanitizer knows no fences).
  if (in.count.load(std::memory_order_seq_cst) == 0) return;
  // Waits for other words in the bucket look again and wait again: each is woken once.
  std::size_t left = 0;
  {
    const lock_guard guard(in.lock);
    left = in.waiting.size();
  }
  for (; left > 0; --left) {
    fiber::wake_up notice;
    {
      const lock_guard guard(in.lock);
      if (!in.waiting.claim_first(notice)) return;
      in.count.fetch_sub(1, std::memory_order_relaxed);
    }
    notice.deliver();
  }
}

}  // namespace far::heap
