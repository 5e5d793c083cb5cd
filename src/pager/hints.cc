#include "pager/hints.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "base/units.h"
#include "pager/page_guard.h"

namespace far::pager {
namespace {

// Programs hold its address from their start on, before there is a far heap.
const std::uint8_t no_time = 0;
far_hint_view view{0, 0, nullptr, &no_time, take_hint};
page_guard* serving = nullptr;

// Copies: the library with the line may be unloaded before anybody asks.
constexpr unsigned most_sites = 1024;
std::array<hint_site, most_sites> sites;  // the first is for the number 1; the last for all that find no room
std::atomic<unsigned> numbers{0};

// The number of a line that is listed already; 0: it is not. A library that is opened again brings its lines anew.
unsigned find(std::string_view file, unsigned line) {
  const unsigned listed = std::min(numbers.load(std::memory_order_relaxed), most_sites - 1);
  for (unsigned i = 0; i < listed; ++i) {
    if (sites[i].line.load(std::memory_order_acquire) == line && file == sites[i].file) return i + 1;
  }
  return 0;
}

// Two threads may list a line at a time: then one of the entries stays unused, or both are used.
hint_site& list(far_hint_site& fresh) {
  const std::string_view whole = fresh.file;
  const std::string_view name = whole.substr(whole.size() - std::min(whole.size(), hint_site::longest_file));
  const unsigned known = find(name, fresh.line);
  const unsigned mine = known != 0 ? known : std::min(numbers.fetch_add(1, std::memory_order_relaxed) + 1, most_sites);
  hint_site& entry = sites[mine - 1];
  unsigned unlisted = 0;
  if (!__atomic_compare_exchange_n(&fresh.number, &unlisted, mine, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    return sites[unlisted - 1];
  }
  if (known != 0) return entry;
  const std::string_view file = mine < most_sites ? name : "(further lines)";
  std::copy(file.begin(), file.end(), entry.file);
  entry.line.store(mine < most_sites ? fresh.line : 1, std::memory_order_release);
  return entry;
}

hint_site& entry_of(far_hint_site& site) {
  const unsigned number = __atomic_load_n(&site.number, __ATOMIC_RELAXED);
  return number != 0 ? sites[number - 1] : list(site);
}

std::atomic<std::size_t> thread_numbers{0};
constinit thread_local std::size_t thread_number = 0;  // from 1 on

hint_site::tally& tally_of(far_hint_site& site) {
  if (thread_number == 0) thread_number = thread_numbers.fetch_add(1, std::memory_order_relaxed) + 1;
  return entry_of(site).counted[thread_number % hint_site::tallies];
}

// Not inline, and opaque to the optimiser: a fiber that waited may continue on another thread, with another errno.
[[gnu::noinline]] int read_errno() {
  asm volatile("");
  return errno;
}
[[gnu::noinline]] void write_errno(int value) {
  asm volatile("");
  errno = value;
}

}  // namespace

void take_hint(const void* address, std::size_t size, std::uint64_t packed_options, far_hint_site* site) {
  page_guard* const guard = __atomic_load_n(&serving, __ATOMIC_ACQUIRE);
  if (guard == nullptr) return;
  const int error_before = read_errno();
  hint_site::tally& counted = tally_of(*site);
  counted.calls.fetch_add(1, std::memory_order_relaxed);
  const hint hinted{.write = (packed_options & 1) != 0,
                    .sequential = (packed_options & 2) != 0,
                    .prefetch = (packed_options & 4) != 0,
                    .overwrite = (packed_options & far_hint_overwrite) != 0,
                    .read_ahead_pages = static_cast<std::int32_t>(packed_options >> 32),
                    .eviction_priority = std::min<unsigned>(packed_options >> 8 & 0xff, 3)};
  if (guard->expect_use(static_cast<const std::byte*>(address), size, hinted)) {
    counted.misses.fetch_add(1, std::memory_order_relaxed);
  }
  write_errno(error_before);
}

void serve_hints(page_guard& guard, hint_entry entry) {
  page_guard* none = nullptr;
  if (!__atomic_compare_exchange_n(&serving, &none, &guard, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return;
  view.base = reinterpret_cast<std::uintptr_t>(guard.start());
  view.use = guard.use_bytes();
  view.now = guard.use_time();
  view.miss = entry;
  __atomic_store_n(&view.bytes, guard.pages() << page_shift, __ATOMIC_RELEASE);
}

void stop_serving_hints(const page_guard& guard) {
  if (__atomic_load_n(&serving, __ATOMIC_RELAXED) != &guard) return;
  __atomic_store_n(&view.bytes, 0, __ATOMIC_RELEASE);
  __atomic_store_n(&serving, nullptr, __ATOMIC_RELEASE);
}

std::span<const hint_site> hint_sites() noexcept {
  return {sites.data(), std::min<std::size_t>(numbers.load(std::memory_order_relaxed), most_sites)};
}

const far_hint_view& hint_view() noexcept {
  return view;
}

}  // namespace far::pager
