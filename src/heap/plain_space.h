// Memory of the far heap for plain pointers (far/memory_resource.h): it never moves, and comes back by pages, through
// the hardware guard, because no scope names it.
//
// Up to 8 KiB it comes from slabs: segments of places of one size, four sizes for each doubling. A slab's record of its
// places is in local memory, so that neither taking nor releasing one touches a page. Slabs are filled from their
// beginning; one that is empty is given back unless its kind has no other. Above, pages of their own (huge_space.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/spin_lock.h"
#include "heap/huge_space.h"
#include "heap/segments.h"

namespace far::heap {

class plain_space {
 public:
  static constexpr std::size_t largest_place_bytes = 8192;

  plain_space(segments& from, huge_space& huge) : segments_(from), huge_(huge) {}
  plain_space(const plain_space&) = delete;
  plain_space& operator=(const plain_space&) = delete;

  // Undefined bytes, perhaps not resident. Throws std::bad_alloc when the far heap's addresses run out, or the
  // alignment, a power of two, is larger than a page.
  [[nodiscard]] std::uintptr_t take(std::size_t bytes, std::size_t alignment, unsigned tag);
  // Requires: bytes and alignment as given to take().
  void release(std::uintptr_t address, std::size_t bytes, std::size_t alignment);

  // The same for memory that does not come: until other memory of its slab is given back, the slab is passed by.
  void pass_by(std::uintptr_t address, std::size_t bytes, std::size_t alignment);

  // Slabs of that tag are of the default tag afterwards; their pages keep the number (page_table::drop_tag). Throws
  // std::bad_alloc, and may have moved some of them.
  void drop_tag(unsigned tag);

  // Recomputes the counts. Requires: no other call meanwhile.
  void validate() const;

  // The sizes of places, from 16 bytes on.
  [[nodiscard]] static constexpr std::size_t size_index(std::size_t bytes);
  [[nodiscard]] static constexpr std::size_t size_at(std::size_t index);

 private:
  static constexpr std::size_t sizes = 32;

  struct slab {
    std::vector<std::uint64_t> used;  // a bit for each place; those beyond the last are set
    std::size_t live = 0;
    std::size_t first_with_room = 0;  // no word of `used` before it has a free place
    bool listed = true;               // in with_room
    bool passed_by = false;           // not listed, although it has room

    explicit slab(std::size_t places);
    // The number of a free place, or `none`.
    [[nodiscard]] std::size_t take();
    void release(std::size_t place);
    static constexpr std::size_t none = ~std::size_t{0};
  };
  // Of memory that did not come: nothing was put there, and it is not to be taken again soon.
  enum class giving_back : std::uint8_t { of_used, of_unreachable };

  // Of one size and one tag.
  struct kind {
    mutable spin_lock lock;
    std::unordered_map<std::uintptr_t, slab> slabs FAR_GUARDED_BY(lock);  // by the segment's first address
    std::vector<std::uintptr_t> with_room FAR_GUARDED_BY(lock);  // slabs that may have room; the last is tried first
  };

  [[nodiscard]] std::uintptr_t take_place(kind& from, std::size_t size_bytes, unsigned tag);
  [[nodiscard]] bool release_place(kind& in, std::uintptr_t slab_at, std::size_t place, giving_back how)
      FAR_REQUIRES(in.lock);
  void release(std::uintptr_t address, std::size_t bytes, std::size_t alignment, giving_back how);
  [[nodiscard]] static std::size_t place_bytes(std::size_t bytes, std::size_t alignment);

  segments& segments_;
  huge_space& huge_;
  std::array<std::array<kind, sizes>, most_tags> kinds_;
};

}  // namespace far::heap
