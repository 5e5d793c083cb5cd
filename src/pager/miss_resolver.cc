#include "pager/miss_resolver.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

#include "base/log.h"
#include "engine/thread_misses.h"
#include "pager/miss_kind.h"
#include "platform/cancellation.h"
#include "platform/fault_context.h"

namespace far::pager {
namespace {

constinit thread_local engine::read_ahead_state thread_streams;

}  // namespace

miss_resolver::miss_resolver(engine::engine& with, process_host& around, const platform::heap_layout& heap,
                             const backend::backend& far, const options& chosen)
    : engine_(with),
      host_(around),
      heap_(heap),
      far_(far),
      observer_(chosen.observer),
      lost_access_(chosen.lost_access) {
  if (host_.fibers() != nullptr) parked_.emplace(engine_, host_, fetchers_, *host_.fibers());
}

result<void> miss_resolver::add_fetchers() {
  for (std::size_t i = 0; i < shared_fetchers; ++i) {
    const result<engine::fetcher*> added = engine_.transfers().add_fetcher();
    if (!added) return added.error();
    fetchers_.add(*added.value());
  }
  return {};
}

bool miss_resolver::resolve(engine::wanted_page wanted, miss_waiter::place from) noexcept {
  if (host_.on_fiber()) return parked_->resolve(wanted, from) != engine::miss::state::lost;
  const platform::uncancelled to_its_end;
  return engine::resolve_on_thread(engine_, host_, fetchers_, thread_streams, wanted) != engine::miss::state::lost;
}

void miss_resolver::resolve_hardware_miss(page_id page, bool write) noexcept {
  engine_.misses().note_unguarded(page);
  while (!resolve({.page = page, .write = write}, miss_waiter::place::fault_handler)) meet_lost_page(page);
}

void miss_resolver::resolve_fault(const void* address, const void* context) noexcept {
  resolve_fault(static_cast<const std::byte*>(address), platform::access_was_write(context), context);
}

void miss_resolver::resolve_fault(const std::byte* address, bool write, const void* context) noexcept {
  const page_id page = heap_.page_at(address);
  if (observer_ == nullptr) return resolve_hardware_miss(page, write);
  const observed_miss one{.time_ns = clock_.now_ns(),
                          .address = address,
                          .cause = kind_of_miss(engine_.view(), page, write),
                          .thread = static_cast<std::uint32_t>(syscall(SYS_gettid)),
                          .context = context,
                          .pinned = context == nullptr};
  resolve_hardware_miss(page, write);
  observer_->missed(one);
}

void miss_resolver::meet_lost_page(page_id page) noexcept {
  if (lost_access_ != nullptr && lost_access_->goes_on_with_zeros(heap_.address_of(page))) {
    return engine_.misses().forget_lost(page);
  }
  log_line(log_level::error,
           "the program needs the bytes at %p, and they are lost: %s cannot return them; the program is stopped "
           "rather than given wrong data",
           static_cast<void*>(heap_.address_of(page)), far_.describe().c_str());
  std::abort();
}

}  // namespace far::pager
