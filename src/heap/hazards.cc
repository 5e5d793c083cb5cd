#include "heap/hazards.h"

#include <array>
#include <cstdlib>

#include "base/check.h"
#include "base/log.h"
#include "heap/hazard_logs.h"
#include "heap/heap.h"

namespace far::heap {
namespace {

// A small hash table from page number to position: hazard logs hold far more pages than leave at a time.
class position_table {
 public:
  explicit position_table(std::span<const std::uint64_t> pages) {
    FAR_CHECK(pages.size() <= 64, "a batch has at most 64 pages");
    for (std::size_t i = 0; i < pages.size(); ++i) {
      std::size_t at = slot_of(pages[i]);
      while (entries_[at].position != 0) at = (at + 1) % slots;
      entries_[at] = {pages[i], static_cast<std::uint8_t>(i + 1)};
    }
  }

  // A bit for the position of this page, or 0.
  [[nodiscard]] std::uint64_t bit_of(std::uint64_t page) const {
    for (std::size_t at = slot_of(page); entries_[at].position != 0; at = (at + 1) % slots) {
      if (entries_[at].page == page) return std::uint64_t{1} << (entries_[at].position - 1);
    }
    return 0;
  }

 private:
  static constexpr std::size_t slots = 256;

  struct entry {
    std::uint64_t page = 0;
    std::uint8_t position = 0;  // from 1
  };

  [[nodiscard]] static std::size_t slot_of(std::uint64_t page) { return page * 0x9e3779b97f4a7c15u >> 56; }

  std::array<entry, slots> entries_{};
};

}  // namespace

holds held_pages(std::span<const std::uint64_t> pages, const detail::hazard_log* except) noexcept {
  const position_table positions(pages);
  fence_all_threads();
  holds found;
  const auto walk = [&] {
    for_each_hazard_log([&](const hazard_log& one) {
      if (&one == except) return;
      const bool working = one.is_working();
      std::uint64_t held = 0;
      one.for_each([&](std::uint64_t page) { held |= positions.bit_of(page); });
      found.all |= held;
      if (working) found.working |= held;
    });
  };
  // A page handed over meanwhile: the second hazard log may have been read before it held the page, and the first after
  // it had let go. Whoever holds a page of these has held it since before the fence, or has it from one who had: twice
  // is enough.
  const std::uint64_t handed_over_before = count_handed_over();
  walk();
  if (count_handed_over() != handed_over_before) walk();
  return found;
}

// Before the page is claimed, and without a fence: that a page is ready may be forgotten at any time.
// A page that came whole and of which only a small part is used, look after look, wastes the rest of its frame for as
// long as that part is in use: it leaves all the same, and what is used of it comes back among its like.
bool hazards::keeps_warm(engine::page_id page, bool fetched) noexcept {
  detail::object_heap* const heap = heap_.load(std::memory_order_acquire);
  if (heap == nullptr) return false;
  const bool was_warm = heap->pages.heat_of(page) > 0;
  if (!heap->change_heat(page, heap->pages.take_ready(page))) return false;
  return !fetched || !was_warm || heap->paths.is_dense(heap->pages.cards_in(page)) || !holds_small_objects(*heap, page);
}

engine::eviction_verdict hazards::decide(const engine::eviction_candidates& leaving, bool hard_pressed) noexcept {
  detail::object_heap* const heap = heap_.load(std::memory_order_acquire);
  engine::eviction_verdict said;
  if (heap == nullptr) return said;
  callback_(context_);
  const std::span<const engine::page_id> all = leaving.pages;
  std::array<std::uint64_t, 64> pages{};
  std::uint64_t used = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    pages[i] = heap->pages.address_of(all[i]) >> page_shift;
    // Before the fence: from then on a dereference of whoever is not seen to hold the page looks at its state.
    if (heap->pages.take_ready(all[i])) used |= std::uint64_t{1} << i;
  }
  const holds found = held_pages({pages.data(), all.size()}, nullptr);
  for (std::size_t i = 0; i < all.size(); ++i) {
    // A thread that saw the page resident before it was claimed may have called it ready since, and released it:
    // others may rely on that. It is used, and stays.
    const std::uint64_t bit = std::uint64_t{1} << i;
    if ((found.all & bit) == 0 && heap->pages.is_ready(all[i])) said.stay |= bit;
  }
  said.stay |= hard_pressed ? found.working : found.all;
  said.forced = found.all & ~said.stay;
  counters::add(heap->count.kept_pages, static_cast<std::uint64_t>(std::popcount(said.stay & found.all)));
  counters::add(heap->count.forced_pages, static_cast<std::uint64_t>(std::popcount(said.forced)));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::uint64_t bit = std::uint64_t{1} << i;
    const bool used_again = (used & bit) != 0 && heap->change_heat(all[i], true);
    if ((said.stay & bit) != 0) continue;
    if ((found.all & bit) == 0 && !heap->pages.is_loose(all[i])) said.unused |= bit;
    if ((said.forced & bit) != 0) {
      heap->pages.take_cards(all[i]);
      counters::add(heap->count.page_path_pages);
    } else if (used_again) {
      said.stay |= bit;
    } else if (comes_back_by_object(*heap, all[i], (leaving.fetched & bit) != 0)) {
      said.object_path |= bit;
    }
  }
  return said;
}

void hazards::on_unguarded_miss(engine::page_id page) noexcept {
  detail::object_heap* const heap = heap_.load(std::memory_order_acquire);
  if (heap == nullptr) return;
  const std::uintptr_t address = heap->pages.address_of(page);
  const segment_state state = heap->segments.holding(address).state.load(std::memory_order_acquire);
  if (state != segment_state::open && state != segment_state::closed) return;
  bool held = false;
  for_each_hazard_log([&](const hazard_log& one) {
    one.for_each([&](std::uint64_t held_page) { held |= held_page == address >> page_shift; });
  });
  if (held) return;
  log_line(log_level::error,
           "the program uses a far object in the page at %p outside the scope in which it was dereferenced; keep the "
           "far::scope open for as long as the reference is used, or copy the object with read(). A build with "
           "-DFARHEAP_CHECKED stops at the first such use",
           reinterpret_cast<void*>(address));
  std::abort();
}

bool hazards::holds_small_objects(detail::object_heap& heap, std::size_t page) {
  const segment_state state = heap.segments.holding(heap.pages.address_of(page)).state.load(std::memory_order_acquire);
  return state == segment_state::closed || state == segment_state::open;
}

bool hazards::comes_back_by_object(detail::object_heap& heap, std::size_t page, bool fetched) {
  const unsigned cards = heap.pages.take_cards(page);
  if (!holds_small_objects(heap, page)) return false;
  const bool object_path = heap.paths.takes_object_path(cards, heap.pages.tag_of(page), fetched);
  counters::add(object_path ? heap.count.object_path_pages : heap.count.page_path_pages);
  return object_path;
}

}  // namespace far::heap
