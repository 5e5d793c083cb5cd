// The validator of the object heap: counts, recomputed from live bits and headers.
#include "base/check.h"
#include "heap/heap.h"

namespace far::detail {

void object_heap::validate() const {
  plain.validate();
  for (std::size_t index = 0; index < segments.count(); ++index) {
    const heap::segment_state state = segments.at(index).state.load();
    const std::size_t first = pages.page_of(segments.address_of(index));
    std::size_t objects = 0;
    std::size_t live_units = 0;
    for (std::size_t page = first; page < first + heap::segment_pages; ++page) {
      std::size_t in_page = 0;
      std::uintptr_t end_of_last = 0;
      pages.for_each_live(page, [&](std::size_t unit) {
        const std::uintptr_t object = pages.address_of(page) + unit * unit_bytes;
        ++in_page;
        FAR_CHECK(object >= end_of_last, "objects do not overlap");
        if (!memory.is_resident(object)) return;
        const std::uint64_t value = heap::header::at(object).load();
        end_of_last = object + heap::header::bytes(value);
        FAR_CHECK((value & heap::header::locked) == 0, "no header is locked between calls");
        live_units += heap::units_for(heap::header::bytes(value));
        if (pages.stale_in(page) > 0) return;
        // The owner may be remote itself; otherwise it names the object.
        const owner_word* const owner = heap::header::owner(value);
        FAR_CHECK(owner != nullptr, "a live object has an owner");
        const auto at = reinterpret_cast<std::uintptr_t>(owner);
        if (memory.contains(at) && !memory.is_resident(at)) return;
        // One that was lost may be zeros now.
        if (owner->load() == 0 && memory.contains(at) && !segments.holds_small_objects(at)) return;
        FAR_CHECK(word::address(owner->load()) == object, "the owner that the header names owns the object");
      });
      FAR_CHECK(in_page == pages.objects_in(page), "the page's count is the number of its live bits");
      FAR_CHECK(pages.stale_in(page) <= in_page, "only live objects have stale headers");
      objects += in_page;
    }
    const bool open = state == heap::segment_state::open;
    const bool of_objects = open || state == heap::segment_state::closed;
    FAR_CHECK(of_objects || objects == 0, "only open and closed segments hold objects");
    FAR_CHECK(!of_objects || segments.at(index).objects.load() == objects + (open ? 1 : 0),
              "the segment's count is the sum of its pages'");
    FAR_CHECK(!of_objects || live_units <= segments.at(index).live_units.load(), "live units are counted");
  }
}

}  // namespace far::detail
