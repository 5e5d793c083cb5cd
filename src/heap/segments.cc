#include "heap/segments.h"

#include <new>

#include "base/check.h"
#include "base/log.h"
#include "platform/local_memory.h"

namespace far::heap {

segments::segments(far_memory& memory, page_table& pages)
    : memory_(memory),
      pages_(pages),
      base_(memory.base()),
      most_(memory.pages() / segment_pages),
      table_(reinterpret_cast<segment*>(platform::map_local(most_ * sizeof(segment)))) {}

segments::~segments() {
  platform::unmap_local(reinterpret_cast<std::byte*>(table_), most_ * sizeof(segment));
}

std::uintptr_t segments::take(segment_state as, unsigned tag) {
  while (true) {
    {
      const lock_guard guard(lock_);
      if (!free_.empty()) {
        const std::size_t index = free_.back();
        free_.pop_back();
        segment& taken = table_[index];
        taken.live_units.store(0, std::memory_order_relaxed);
        // Whoever counts on top of this sees that the segment was free, if not yet what it is now.
        taken.objects.store(1, std::memory_order_release);
        taken.pages_in_use = 0;
        taken.listed = false;
        taken.live_units_left.store(0, std::memory_order_relaxed);
        pages_.begin_use(pages_.page_of(address_of(index)), segment_pages, tag, false);
        taken.state.store(as, std::memory_order_release);
        return address_of(index);
      }
    }
    add_arena();
  }
}

void segments::add_arena() {
  const lock_guard growing(growing_);
  {
    const lock_guard guard(lock_);
    if (!free_.empty()) return;
  }
  {
    // Room for all of them: let_go() must not throw.
    const lock_guard guard(lock_);
    const std::size_t all = segments_ + arena_bytes / segment_bytes;
    if (all > free_.capacity()) free_.reserve(2 * all);
  }
  const std::uintptr_t first = memory_.map(arena_bytes, segment_bytes);
  const std::size_t index = index_of(first);
  const lock_guard guard(lock_);
  segments_ += arena_bytes / segment_bytes;
  for (std::size_t i = arena_bytes / segment_bytes; i-- > 0;) {
    table_[index + i].state.store(segment_state::free, std::memory_order_relaxed);
    free_.push_back(static_cast<std::uint32_t>(index + i));
  }
  const std::size_t end = index + arena_bytes / segment_bytes;
  if (end > used_.load(std::memory_order_relaxed)) used_.store(end, std::memory_order_release);
}

void segments::close(std::uintptr_t first) {
  segment& closing = holding(first);
  FAR_CHECK(closing.state.load(std::memory_order_relaxed) == segment_state::open, "an open segment is closed once");
  closing.state.store(segment_state::closed, std::memory_order_seq_cst);
  // Pages whose last object died while more could still come.
  for (std::uintptr_t page = first; page < first + segment_bytes; page += page_bytes) {
    if (pages_.objects_in(pages_.page_of(page)) == 0) memory_.discard(page, page_bytes);
  }
  let_go(first, closing);
}

void segments::add_object(std::uintptr_t object, std::size_t units) {
  segment& in = holding(object);
  pages_.count_object(object, units);
  in.objects.fetch_add(1, std::memory_order_relaxed);
  in.live_units.fetch_add(static_cast<std::uint32_t>(units), std::memory_order_relaxed);
}

void segments::remove_object(std::uintptr_t object, std::size_t units) {
  segment& in = holding(object);
  in.live_units.fetch_sub(static_cast<std::uint32_t>(units), std::memory_order_relaxed);
  const std::size_t page = pages_.page_of(object);
  // The thread that removes the last object of a page discards the page, unless it is still being filled.
  if (pages_.uncount_object(object) == 0 && in.state.load(std::memory_order_seq_cst) == segment_state::closed) {
    memory_.discard(pages_.address_of(page), page_bytes);
  }
  let_go(object, in);
}

// It counts twice, in its page, too, whose bytes would be discarded otherwise.
void segments::keep_object(std::uintptr_t object) {
  pages_.count_again(object);
  holding(object).objects.fetch_add(1, std::memory_order_relaxed);
}

bool segments::keep(segment& one, which meant) {
  std::uint32_t now = one.objects.load(std::memory_order_relaxed);
  while (now > 0) {
    if (one.objects.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel)) {
      const segment_state now_is = one.state.load(std::memory_order_acquire);
      if (now_is == segment_state::closed || (meant == also_open && now_is == segment_state::open)) return true;
      let_go(address_of(static_cast<std::size_t>(&one - table_)), one);
      return false;
    }
  }
  return false;
}

// A page that nobody had may be here all the same, as zeros ahead of what its neighbours' owner writes, and be leaving
// as one that nobody can write to. The evictor claims a page, and looks then whether it is loose. So either it sees
// that this one is, or the page is seen on its way out here (page_table::begin_use), and is waited for.
void segments::begin_loose_use(std::uintptr_t first, std::size_t count, unsigned tag) {
  pages_.begin_use(pages_.page_of(first), count, tag, true);
  for (std::uintptr_t page = first; page < first + (count << page_shift); page += page_bytes) {
    if (!memory_.is_resident(page) && !memory_.is_away(page)) memory_.discard(page, page_bytes);
  }
}

void segments::release_runs(std::uintptr_t first) {
  let_go(first, holding(first));
}

// The last one out puts the segment on the free list: objects, and the holder of an open segment.
void segments::let_go(std::uintptr_t object_or_first, segment& emptied) {
  if (emptied.objects.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::size_t index = index_of(object_or_first);
  memory_.discard(address_of(index), segment_bytes);
  pages_.forget(pages_.page_of(address_of(index)), segment_pages);
  emptied.state.store(segment_state::free, std::memory_order_release);
  freed_.fetch_add(1, std::memory_order_relaxed);
  const lock_guard guard(lock_);
  free_.push_back(static_cast<std::uint32_t>(index));
}

}  // namespace far::heap
