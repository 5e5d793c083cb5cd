// Resolves the misses of the calling thread or fiber, which waits here until the page has come.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/engine.h"
#include "engine/fetcher_pool.h"
#include "engine/parked_misses.h"
#include "pager/miss_observer.h"
#include "pager/pager.h"
#include "pager/process_host.h"
#include "platform/clock.h"
#include "platform/heap_layout.h"

namespace far::pager {

using engine::miss_waiter;
using platform::page_id;

class miss_resolver {
 public:
  // Requires: all references outlive this object. Of `chosen`: observer, lost_access.
  miss_resolver(engine::engine& with, process_host& around, const platform::heap_layout& heap,
                const backend::backend& far, const options& chosen);

  // Once, before the first miss.
  [[nodiscard]] result<void> add_fetchers();
  // For threads and fibers that resolve their own misses.
  [[nodiscard]] const engine::fetcher_pool& fetchers() const { return fetchers_; }

  // Resolves an access of the calling thread to a page that is not resident, or not writable. Waits until it is done;
  // on a fiber, others run meanwhile. Returns false if the page is lost.
  [[nodiscard]] bool resolve(engine::wanted_page wanted, miss_waiter::place from) noexcept;
  // The same for an access that raised a signal (`context` is its ucontext_t), or that a system call would make
  // (`context` is null).
  void resolve_fault(const void* address, const void* context) noexcept;
  void resolve_fault(const std::byte* address, bool write, const void* context) noexcept;

  // For signal handlers: which accesses are ours to resolve, and on whose stack they run.
  [[nodiscard]] bool contains(const void* address) const { return heap_.contains(address); }
  // Whether the program has mapped something of the kernel's there.
  [[nodiscard]] bool is_foreign(const void* address) const { return engine_.view().is_foreign(heap_.page_at(address)); }
  [[nodiscard]] bool has_fibers() const { return parked_.has_value(); }

  // With fibers: see page_guard::poll(). The second parks the calling fiber until the next poll().
  [[nodiscard]] std::uint64_t poll() noexcept { return parked_->poll(); }
  void wait_for_turn() noexcept { parked_->wait_for_turn(miss_waiter::place::call); }

  // An access that only the hardware guard has seen needs a page that is lost. Returns when the program goes on with
  // zeros in its place (options::lost_access); otherwise the process ends.
  void meet_lost_page(page_id page) noexcept;

 private:
  static constexpr std::size_t shared_fetchers = 8;

  void resolve_hardware_miss(page_id page, bool write) noexcept;

  engine::engine& engine_;
  process_host& host_;
  const platform::heap_layout& heap_;
  const backend::backend& far_;
  miss_observer* observer_;
  lost_access_handler* lost_access_;
  platform::monotonic_clock clock_;
  engine::fetcher_pool fetchers_;
  std::optional<engine::parked_misses> parked_;  // where there are fibers
};

}  // namespace far::pager
