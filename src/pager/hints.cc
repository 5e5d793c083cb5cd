#include "pager/hints.h"

#include <algorithm>
#include <cerrno>

#include "base/units.h"
#include "pager/pager.h"

namespace far::pager {
namespace {

void miss(const void* address, const far_hint_options* options, far_hint_site* site);

// Programs hold its address from their start on, before there is a far heap.
const std::uint8_t no_time = 0;
far_hint_view view{0, 0, nullptr, &no_time, miss};
pager* serving = nullptr;
far_hint_site* sites = nullptr;  // the newest first; none ever leaves

void list(far_hint_site& fresh) {
  unsigned unlisted = 0;
  if (!__atomic_compare_exchange_n(&fresh.is_listed, &unlisted, 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return;
  far_hint_site* first = __atomic_load_n(&sites, __ATOMIC_RELAXED);
  do {
    fresh.next = first;
  } while (!__atomic_compare_exchange_n(&sites, &first, &fresh, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

void miss(const void* address, const far_hint_options* options, far_hint_site* site) {
  pager* const by = __atomic_load_n(&serving, __ATOMIC_ACQUIRE);
  if (by == nullptr) return;
  const int error_before = errno;
  if (__atomic_load_n(&site->is_listed, __ATOMIC_RELAXED) == 0) list(*site);
  __atomic_fetch_add(&site->calls, 1, __ATOMIC_RELAXED);
  const hint said{.write = options->mutate,
                  .read_ahead_pages = options->read_ahead,
                  .eviction_priority = std::min<unsigned>(options->eviction_priority, 3)};
  if (by->expect_use(static_cast<const std::byte*>(address), options->size, said)) {
    __atomic_fetch_add(&site->misses, 1, __ATOMIC_RELAXED);
  }
  errno = error_before;
}

}  // namespace

void serve_hints(pager& by) {
  pager* none = nullptr;
  if (!__atomic_compare_exchange_n(&serving, &none, &by, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return;
  view.base = reinterpret_cast<std::uintptr_t>(by.start());
  view.use = by.use_bytes();
  view.now = by.use_time();
  __atomic_store_n(&view.bytes, by.pages() << page_shift, __ATOMIC_RELEASE);
}

void stop_serving_hints(const pager& by) {
  if (__atomic_load_n(&serving, __ATOMIC_RELAXED) != &by) return;
  __atomic_store_n(&view.bytes, 0, __ATOMIC_RELEASE);
  __atomic_store_n(&serving, nullptr, __ATOMIC_RELEASE);
}

const far_hint_site* first_hint_site() noexcept {
  return __atomic_load_n(&sites, __ATOMIC_ACQUIRE);
}

const far_hint_view& hint_view() noexcept {
  return view;
}

}  // namespace far::pager
