// Places for objects above a page, or of a whole page: pages of their own, on the page path (Atlas, section 4.3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/spin_lock.h"
#include "heap/segments.h"

namespace far::heap {

class huge_space {
 public:
  // A scope holds all of an object up to so many pages, and only the beginning of a larger one.
  static constexpr std::size_t most_held_pages = 16;

  huge_space(far_memory& memory, segments& from, page_table& pages);
  huge_space(const huge_space&) = delete;
  huge_space& operator=(const huge_space&) = delete;

  // Zeroed bytes, none of them resident. Throws std::bad_alloc when the far heap's addresses run out. `unheld`: they
  // are used without scopes. `beside`: on which servers they should lie.
  [[nodiscard]] std::uintptr_t take(std::size_t bytes, unsigned tag, bool unheld,
                                    backend::affinity beside = backend::no_affinity);
  void release(std::uintptr_t object);

  [[nodiscard]] std::size_t bytes_of(std::uintptr_t object) const { return sizes_[pages_.page_of(object)]; }
  // Whether one of its pages is lost.
  [[nodiscard]] bool is_any_lost(std::uintptr_t object) const;

 private:
  static constexpr std::size_t most_run_pages = segment_pages / 2;

  [[nodiscard]] std::uintptr_t take_run(std::size_t run_pages);
  void release_run(std::uintptr_t object, std::size_t run_pages);

  far_memory& memory_;
  segments& segments_;
  page_table& pages_;
  std::uint64_t* sizes_;  // by first page
  spin_lock lock_;
  // Segments of runs that may have room; the last is tried first. There is room for all of them, because release() must
  // not throw.
  std::vector<std::uintptr_t> with_room_ FAR_GUARDED_BY(lock_);
  std::size_t run_segments_ FAR_GUARDED_BY(lock_) = 0;
};

}  // namespace far::heap
