#include "heap/scope_filter.h"

#include <array>
#include <bit>
#include <cstdlib>

#include "base/log.h"
#include "heap/checked.h"
#include "heap/grace_periods.h"
#include "heap/heap.h"
#include "heap/scope_records.h"

namespace far::heap {
namespace {

using detail::object_heap;

// A look is at up to 64 pages. So a period begins for a thousand together, long before any is looked at again.
constexpr unsigned looks_a_period = 16;

bool holds_small_objects(const object_heap& heap, std::size_t page) {
  return heap.segments.holds_small_objects(heap.pages.address_of(page));
}

// Whether nobody has a pointer into a page that is Evicting, or none that matters. Says no when it was used since it
// was condemned.
bool is_out_of_reach(const page_table& pages, std::size_t page) {
  if (pages.is_ready(page)) return false;
  const grace_number number = pages.condemned_under(page);
  return number != 0 && scopes_without_log.is_over(number);
}

// Whether it is now out of reach of threads that have not reached it; otherwise it was before. A page may have been
// remote for so long that its number means nothing any more.
bool put_out_of_reach(page_table& pages, std::size_t page, grace_number number) {
  const grace_number before = pages.condemned_under(page);
  if (before != 0 && !pages.is_ready(page) && number - before < oldest_grace) return false;
  pages.condemn(page, number);
  return true;
}

// If a page came whole, and look after look only a small part of it is used, it wastes the rest of its frame. It leaves
// all the same, and the objects in use come back among their like.
bool keeps_warm(object_heap& heap, std::size_t page, bool was_used, bool fetched) {
  const bool was_warm = heap.pages.heat_of(page) > 0;
  if (was_warm && was_used) heap.pages.note_use_again(page);
  if (!heap.change_heat(page, was_used)) return false;
  return !fetched || !was_warm || heap.paths.is_dense(heap.pages.use_of(page)) || !holds_small_objects(heap, page);
}

bool comes_back_by_object(object_heap& heap, std::size_t page, bool fetched) {
  const page_use used = heap.pages.take_use(page);
  if (!holds_small_objects(heap, page)) return false;
  const bool object_path = heap.paths.takes_object_path(used, heap.pages.tag_of(page), fetched);
  counters::add(object_path ? heap.count.object_path_pages : heap.count.page_path_pages);
  return object_path;
}

// Nobody has a pointer into the page, and a dereference that wants one waits until the page has left, or stays.
void call_handler(object_heap& heap, std::size_t page) {
  if (!heap.leaving.has_handler(heap.pages.tag_of(page)) || !holds_small_objects(heap, page)) return;
  counters::add(heap.count.handled_objects, heap.leaving.call(heap.pages, page));
}

}  // namespace

engine::eviction_look scope_filter::look(const engine::eviction_candidates& named, bool hard_pressed) noexcept {
  object_heap* const heap = heap_.load(std::memory_order_acquire);
  engine::eviction_look said;
  if (heap == nullptr) return said;
  page_table& pages = heap->pages;
  std::uint64_t used = 0;
  scopes_without_log.stamp([&](grace_number number) {
    bool is_any = false;
    for (std::size_t i = 0; i < named.pages.size(); ++i) {
      if (pages.is_ready(named.pages[i])) used |= std::uint64_t{1} << i;
      is_any |= put_out_of_reach(pages, named.pages[i], number);
    }
    return is_any;
  });
  scopes_without_log.advance(false);
  for (std::size_t i = 0; i < named.pages.size(); ++i) {
    const std::size_t page = named.pages[i];
    const std::uint64_t bit = std::uint64_t{1} << i;
    // Both count the look.
    const bool is_warm = keeps_warm(*heap, page, (used & bit) != 0, (named.fetched & bit) != 0);
    const bool others_first = !heap->priorities.may_leave(heap->priority_of(page));
    if (is_warm || (others_first && !hard_pressed)) {
      said.warm |= bit;
    } else if (!hard_pressed && !pages.is_loose(page) && !is_out_of_reach(pages, page)) {
      said.ripens |= bit;
    }
  }
  // Pages that stay need no period before their next look, and most of those that leave have been out of reach since
  // their last one.
  const bool is_due = looks_.fetch_add(1, std::memory_order_relaxed) % looks_a_period == 0;
  scopes_without_log.advance(is_due || hard_pressed || said.ripens != 0);
  said.ripening = scopes_without_log.last_over();
  for (std::uint64_t left = said.ripens; left != 0; left &= left - 1) {
    const auto i = static_cast<std::size_t>(std::countr_zero(left));
    if (is_out_of_reach(pages, named.pages[i])) said.ripens &= ~(std::uint64_t{1} << i);
  }
  return said;
}

// The pages were claimed before this, so a thread that dereferences one which is found out of reach here waits for it.
engine::eviction_verdict scope_filter::decide(const engine::eviction_candidates& leaving, bool hard_pressed) noexcept {
  object_heap* const heap = heap_.load(std::memory_order_acquire);
  engine::eviction_verdict said;
  if (heap == nullptr) return said;
  callback_(context_);
  const std::span<const engine::page_id> all = leaving.pages;
  std::array<std::uint64_t, 64> numbers{};
  std::uint64_t in_reach = 0;
  // Before the hazard logs are read: a page is handed over from a scope to a log.
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::uint64_t bit = std::uint64_t{1} << i;
    numbers[i] = heap->pages.address_of(all[i]) >> page_shift;
    if (is_out_of_reach(heap->pages, all[i])) {
      if (!heap->pages.is_loose(all[i])) said.unused |= bit;
    } else if (!heap->pages.is_loose(all[i]) || heap->pages.is_ready(all[i])) {
      in_reach |= bit;
    }
  }
  const held_pages held = find_held({numbers.data(), all.size()}, nullptr);
  in_reach |= held.by_scopes;
  // After the logs are read: no grace period has waited for a scope that logged, made its page ready, and ended.
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (heap->pages.is_ready(all[i])) in_reach |= std::uint64_t{1} << i;
  }
  said.unused &= ~in_reach;
  hard_pressed |= heap->forces_out();
  said.stay = held.by_work | (hard_pressed ? 0 : in_reach);
  said.forced = in_reach & ~said.stay;
  said.unused &= ~said.stay;
  counters::add(heap->count.kept_pages, static_cast<std::uint64_t>(std::popcount(said.stay)));
  counters::add(heap->count.forced_pages, static_cast<std::uint64_t>(std::popcount(said.forced)));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::uint64_t bit = std::uint64_t{1} << i;
    if ((said.stay & bit) != 0) continue;
    if ((said.forced & bit) != 0) {
      heap->pages.take_use(all[i]);
      counters::add(heap->count.page_path_pages);
    } else if (comes_back_by_object(*heap, all[i], (leaving.fetched & bit) != 0)) {
      said.object_path |= bit;
    }
    // After the marks of uses are taken: who learns from the handler that an object leaves finds none (is_local).
    if ((said.unused & leaving.dirty & bit) != 0) call_handler(*heap, all[i]);
  }
  return said;
}

bool scope_filter::leaves_unused(engine::page_id page) const noexcept {
  const object_heap* const heap = heap_.load(std::memory_order_acquire);
  return heap != nullptr && !heap->pages.is_loose(page);
}

void scope_filter::on_unguarded_miss(engine::page_id page) noexcept {
  object_heap* const heap = heap_.load(std::memory_order_acquire);
  if (heap == nullptr || !holds_small_objects(*heap, page)) return;
  const std::uintptr_t address = heap->pages.address_of(page);
  bool may_be_in_use = false;
  for (owner_record* one = first_record(); one != nullptr && !may_be_in_use; one = one->next) {
    may_be_in_use = is_checked() ? has_checked(*one, address >> page_shift) : one->is_open();
    one->work.for_each([&](std::uint64_t held) { may_be_in_use |= held == address >> page_shift; });
  }
  // A page that nobody had a pointer into when it left has none now.
  if (may_be_in_use && !heap->memory.takes_object_path(address)) return;
  log_line(log_level::error,
           "the program uses a far object in the page at %p outside the scope in which it was dereferenced; keep the "
           "far::scope open for as long as the reference is used, or copy the object with read(). A build with "
           "-DFARHEAP_CHECKED stops at the first such use",
           reinterpret_cast<void*>(address));
  std::abort();
}

}  // namespace far::heap
