#include "heap/allocator.h"

#include <cxxabi.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "base/check.h"
#include "heap/header.h"
#include "heap/leaving.h"

extern "C" void* __dso_handle;  // of the library or program that this is in

namespace far::heap {

// A stretch of an open segment that is still free: [next, end). No object begins at next == 0.
struct open_segment {
  std::uintptr_t next = 0;
  std::uintptr_t end = 0;

  // Takes a place within one page, or returns 0. The object's header lies in the second half of the unit before it.
  [[nodiscard]] std::uintptr_t bump(std::size_t bytes, std::size_t alignment) {
    const auto place_from = [alignment](std::uintptr_t from) {
      return (from + unit_bytes + alignment - 1) & ~(alignment - 1);
    };
    const std::uintptr_t end_of_page = next + (page_bytes - next % page_bytes);
    if (next != end && place_from(next) + bytes > end_of_page) next = end_of_page;
    if (next == end) return 0;
    const std::uintptr_t object = place_from(next);
    next = object - unit_bytes + units_for(bytes) * unit_bytes;
    return object;
  }
};

namespace {

// The allocators that threads may close segments of, so that a thread that ends knows the owners of its own.
struct living_allocators {
  spin_lock lock;
  std::vector<allocator*> all FAR_GUARDED_BY(lock);
  std::uint64_t last_number FAR_GUARDED_BY(lock) = 0;
};

living_allocators& living() {
  static auto* const only = new living_allocators;  // outlives every thread
  return *only;
}

}  // namespace

// Discards pages, which may wait: so the allocator is kept from stopping, and the lock is free for other threads.
void allocator::close(std::uint64_t number, std::uintptr_t first) {
  allocator* owner = nullptr;
  {
    living_allocators& known = living();
    const lock_guard guard(known.lock);
    const auto found = std::find_if(known.all.begin(), known.all.end(),
                                    [number](const allocator* one) { return one->number_ == number; });
    if (found == known.all.end()) return;
    owner = *found;
    owner->closing_.fetch_add(1, std::memory_order_relaxed);
  }
  owner->from_.close(first);
  owner->closing_.fetch_sub(1, std::memory_order_release);
}

// The open segments of one OS thread, for the allocators that it used last.
struct thread_segments {
  static constexpr std::size_t most_allocators = 4;

  // Those of one tag, or of one that had its number before.
  struct tag_segments {
    tag_key tag = 0;
    std::array<open_segment, segment_kinds> open{};
  };

  struct set {
    std::uint64_t number = 0;
    std::array<tag_segments, most_tags> of{};
  };

  ~thread_segments() {
    for (set& member : sets) let_go(member);
  }

  static void let_go(set& old) {
    for (const tag_segments& of_tag : old.of) {
      for (const open_segment& segment : of_tag.open) {
        if (segment.end != 0) allocator::close(old.number, segment.end - segment_bytes);
      }
    }
    old = {};
  }

  [[nodiscard]] set& set_of(std::uint64_t number) {
    if (sets[0].number == number) [[likely]]
      return sets[0];
    auto found = std::find_if(sets.begin(), sets.end(), [number](const set& known) { return known.number == number; });
    if (found == sets.end()) {
      found = sets.end() - 1;
      let_go(*found);
      found->number = number;
    }
    std::rotate(sets.begin(), found, found + 1);
    return sets[0];
  }

  std::array<set, most_allocators> sets{};
};

namespace {

// A pointer, because a library that comes in by dlopen has little room for thread-local variables of this model.
thread_local constinit thread_segments* of_thread = nullptr;

// Destructors of thread-local variables may allocate after this: then there are others, and another call.
void end_thread(void* /*nothing*/) {
  check_outside_handlers();  // of exit(): the pages of this thread may be those that are leaving
  delete std::exchange(of_thread, nullptr);
}

// Opaque, so that no address of a thread-local variable is kept while a fiber changes workers.
[[gnu::noinline]] thread_segments& segments_of_thread() {
  asm volatile("");
  if (of_thread == nullptr) [[unlikely]] {
    of_thread = new thread_segments;
    abi::__cxa_thread_atexit(end_thread, nullptr, &__dso_handle);
  }
  return *of_thread;
}

}  // namespace

allocator::allocator(class segments& from) : from_(from) {
  living_allocators& known = living();
  const lock_guard guard(known.lock);
  number_ = ++known.last_number;
  known.all.push_back(this);
}

void allocator::stop() noexcept {
  {
    living_allocators& known = living();
    const lock_guard guard(known.lock);
    std::erase(known.all, this);
  }
  backoff waiting;
  while (closing_.load(std::memory_order_acquire) > 0) waiting.pause();
}

std::uintptr_t allocator::take(std::size_t bytes, std::size_t alignment, segment_kind where, tag_key tag) {
  FAR_CHECK(bytes > 0 && fits_a_page(bytes, alignment), "a small object has at least a byte, and fits a page");
  while (true) {
    thread_segments::tag_segments& of_tag = segments_of_thread().set_of(number_).of[number_of(tag)];
    if (of_tag.tag != tag) [[unlikely]] {
      for (const open_segment& segment : of_tag.open) {
        if (segment.end != 0) from_.close(segment.end - segment_bytes);
      }
      of_tag = {.tag = tag};
    }
    open_segment& open = of_tag.open[static_cast<std::size_t>(where)];
    const std::uintptr_t object = open.bump(bytes, alignment);
    if (object != 0) {
      from_.add_object(object, units_for(bytes));
      return object;
    }
    if (open.end != 0) from_.close(open.end - segment_bytes);
    open = {};
    const std::uintptr_t first = from_.take(segment_state::open, number_of(tag));
    // take() does not let other fibers run, so this is still the thread's, and still without a segment.
    open = {first, first + segment_bytes};
  }
}

// A fiber may have changed threads since: the other one finds out for itself.
void allocator::abandon(std::uintptr_t place, segment_kind where, tag_key tag) {
  thread_segments::tag_segments& of_tag = segments_of_thread().set_of(number_).of[number_of(tag)];
  open_segment& open = of_tag.open[static_cast<std::size_t>(where)];
  if (of_tag.tag != tag || open.end == 0 || open.end - segment_bytes != place - place % segment_bytes) return;
  from_.close(open.end - segment_bytes);
  open = {};
}

}  // namespace far::heap
