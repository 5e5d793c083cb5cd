#include "heap/huge_space.h"

#include <bit>
#include <new>

#include "base/check.h"
#include "platform/local_memory.h"

namespace far::heap {
namespace {

constexpr std::uint64_t mask_of(std::size_t first, std::size_t count) {
  return (count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1) << first;
}

// The first page of `count` free ones in a row, or 64.
std::size_t find_run(std::uint64_t in_use, std::size_t count) {
  for (std::size_t first = 0; first + count <= 64; ++first) {
    if ((in_use & mask_of(first, count)) == 0) return first;
  }
  return 64;
}

}  // namespace

huge_space::huge_space(far_memory& memory, segments& from, page_table& pages)
    : memory_(memory),
      segments_(from),
      pages_(pages),
      sizes_(reinterpret_cast<std::uint64_t*>(platform::map_local(memory.pages() * sizeof(std::uint64_t)))) {}

std::uintptr_t huge_space::take(std::size_t bytes, unsigned tag, bool unheld, backend::affinity beside) {
  const std::size_t count = pages_for(bytes);
  const std::uintptr_t object =
      count <= most_run_pages ? take_run(count) : memory_.map(count << page_shift, page_bytes);
  sizes_[pages_.page_of(object)] = bytes;
  memory_.keep_together(object, count << page_shift, beside);
  if (unheld || count > most_held_pages) {
    segments_.begin_loose_use(object, count, tag);
  } else {
    pages_.begin_use(pages_.page_of(object), count, tag, false);
  }
  return object;
}

void huge_space::release(std::uintptr_t object) {
  const std::size_t count = pages_for(bytes_of(object));
  memory_.keep_together(object, count << page_shift, backend::no_affinity);
  if (count > most_run_pages) return memory_.unmap(object, count << page_shift);
  memory_.discard(object, count << page_shift);
  release_run(object, count);
}

std::uintptr_t huge_space::take_run(std::size_t run_pages) {
  while (true) {
    {
      const lock_guard guard(lock_);
      while (!with_room_.empty()) {
        segment& in = segments_.holding(with_room_.back());
        const std::size_t first = find_run(in.pages_in_use, run_pages);
        if (first < 64) {
          in.pages_in_use |= mask_of(first, run_pages);
          return with_room_.back() + (first << page_shift);
        }
        in.listed = false;
        with_room_.pop_back();
      }
    }
    const std::uintptr_t fresh = segments_.take(segment_state::runs, 0);
    const lock_guard guard(lock_);
    try {
      if (run_segments_ >= with_room_.capacity()) with_room_.reserve(2 * run_segments_ + 1);
    } catch (const std::bad_alloc&) {
      segments_.release_runs(fresh);
      throw;
    }
    ++run_segments_;
    segments_.holding(fresh).listed = true;
    with_room_.push_back(fresh);
  }
}

void huge_space::release_run(std::uintptr_t object, std::size_t run_pages) {
  const std::uintptr_t first = object - object % segment_bytes;
  segment& in = segments_.holding(object);
  bool empty = false;
  {
    const lock_guard guard(lock_);
    in.pages_in_use &= ~mask_of((object - first) >> page_shift, run_pages);
    empty = in.pages_in_use == 0;
    if (empty && in.listed) {
      std::erase(with_room_, first);
    } else if (!empty && !in.listed) {
      with_room_.push_back(first);
    }
    in.listed = !empty;
    run_segments_ -= empty ? 1 : 0;
  }
  if (empty) segments_.release_runs(first);
}

bool huge_space::is_any_lost(std::uintptr_t object) const {
  const std::uintptr_t end = object + bytes_of(object);
  for (std::uintptr_t page = object; page < end; page += page_bytes) {
    if (memory_.is_lost(page)) return true;
  }
  return false;
}

}  // namespace far::heap
