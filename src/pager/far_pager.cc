#include "pager/far_pager.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "backend/lineage/lineage_backend.h"
#include "base/check.h"
#include "base/log.h"
#include "pager/inline_guard.h"
#include "platform/runtime_thread.h"
#include "platform/signal_shield.h"

namespace far::pager {
namespace {

constexpr std::size_t huge_page_bytes = 2 * mib;

std::uint64_t default_heap_bytes() {
  // Address space costs nothing until it is used; programs reserve far more than they touch.
  const auto physical_pages = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES));
  const std::uint64_t wanted = std::bit_ceil(16 * physical_pages * page_bytes);
  return std::clamp<std::uint64_t>(wanted, 256 * gib, 8 * tib);
}

constinit const platform::monotonic_clock clock_of_tiers;

// A limit on data (ulimit -d) counts the addresses of our tables as it counts the program's memory: they must fit, and
// leave half of it to the program. Held while the far tier is opened, so that it takes no more than there is besides.
class room_under_limit {
 public:
  room_under_limit(std::uint64_t heap_bytes, bool reads_parts) {
    constexpr std::uint64_t buffers_bytes = 512 * mib;  // and stacks of threads
    rlimit limit{};
    if (getrlimit(RLIMIT_DATA, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    wanted_bytes_ = engine::engine::table_bytes(heap_bytes >> page_shift, reads_parts) + buffers_bytes;
    held_bytes_ = wanted_bytes_ + limit.rlim_cur / 2;
    held_ = platform::try_map_local(held_bytes_);
    fits_ = held_ != nullptr;
  }
  ~room_under_limit() { release(); }
  room_under_limit(const room_under_limit&) = delete;
  room_under_limit& operator=(const room_under_limit&) = delete;

  [[nodiscard]] result<void> fits() const {
    if (fits_) return {};
    return error{"the limit on data (ulimit -d) is too low: the far heap's tables take up to " +
                     format_size(wanted_bytes_) + " of it, and may take no more than half; raise it",
                 ENOMEM};
  }
  void release() {
    if (held_ != nullptr) platform::unmap_local(std::exchange(held_, nullptr), held_bytes_);
  }

 private:
  bool fits_ = true;
  std::uint64_t wanted_bytes_ = 0;
  std::uint64_t held_bytes_ = 0;
  std::byte* held_ = nullptr;
};

}  // namespace

result<fault_mode> parse_fault_mode(const std::string& name) {
  if (name == "thread") return fault_mode::thread;
  if (name == "inline") return fault_mode::in_line;
  return error{"unknown fault mode '" + name + "'; known are: thread, inline", EINVAL};
}

result<void> check_limit_on_data() {
  return room_under_limit(default_heap_bytes(), false).fits();
}

result<std::unique_ptr<pager>> pager::create(const options& chosen) {
  result<std::unique_ptr<far_pager>> created = far_pager::create(chosen);
  if (!created) return created.error();
  return std::unique_ptr<pager>(std::move(created).value());
}

result<std::unique_ptr<page_guard>> create_page_guard(const options& chosen) {
  result<std::unique_ptr<far_pager>> created = far_pager::create(chosen);
  if (!created) return created.error();
  return std::unique_ptr<page_guard>(std::move(created).value());
}

result<std::unique_ptr<far_pager>> far_pager::create(const options& chosen) {
  const platform::runtime_mark allocate_locally;
  if (chosen.budget_bytes < minimum_budget_bytes) {
    return error{"a budget of " + format_size(chosen.budget_bytes) + " is below the working minimum; give at least " +
                     format_size(minimum_budget_bytes),
                 EINVAL};
  }
  const std::uint64_t heap_bytes =
      round_up(chosen.heap_bytes != 0 ? chosen.heap_bytes : default_heap_bytes(), huge_page_bytes);
  room_under_limit room(heap_bytes, chosen.object_readers > 0);
  const result<void> fits = room.fits();
  if (!fits) return fits.error();
  const platform::kernel_features& features = platform::probe_kernel();
  result<platform::userfaultfd> faults = platform::userfaultfd::open(features, chosen.mode == fault_mode::in_line);
  if (!faults) return faults.error();
  platform::keep_userfaultfd_device();
  result<std::unique_ptr<backend::backend>> far = backend::open_for_forks(chosen.far_uri, clock_of_tiers);
  if (!far) return far.error();
  room.release();
  const result<std::byte*> base = platform::far_address_space::reserve(heap_bytes);
  if (!base) return base.error();
  platform::heap_layout heap(base.value(), heap_bytes);
  for (const std::span<std::byte> range : chosen.static_memory) heap.add_static_range(range);
  std::unique_ptr<far_pager> created(
      new far_pager(chosen, features, heap, std::move(faults).value(), std::move(far).value()));
  const result<void> started = created->start(chosen);
  if (!started) return started.error();
  return created;
}

far_pager::far_pager(const options& chosen, const platform::kernel_features& features,
                     const platform::heap_layout& heap, platform::userfaultfd faults,
                     std::unique_ptr<backend::backend> far)
    : chosen_(chosen),
      heap_(heap),
      faults_(std::move(faults)),
      space_(heap, faults_, features),
      far_(std::move(far)),
      addresses_(heap.bytes() >> page_shift, reinterpret_cast<std::uintptr_t>(heap.base()) >> page_shift) {}

result<void> far_pager::start(const options& chosen) {
  const bool at_misses = chosen.where == options::eviction::at_miss;
  const engine::options settings{
      .heap_pages = heap_.pages(),
      .budget_pages = chosen.budget_bytes >> page_shift,
      .policy = chosen.policy,
      .reads_parts = chosen.object_readers > 0,
      .tracks_writes = platform::probe_kernel().write_protect,
      .where = at_misses ? engine::eviction_place::at_miss : engine::eviction_place::background,
      .measures_where = chosen.where == options::eviction::measured,
      .filter = chosen.filter};
  result<std::unique_ptr<engine::engine>> made = engine::engine::create(space_, *far_, clock_, settings);
  if (!made) return made.error();
  engine_ = std::move(made).value();
  for (std::size_t i = 0; i < shared_fetchers; ++i) {
    const result<engine::fetcher*> added = engine_->transfers().add_fetcher();
    if (!added) return added.error();
    fetchers_.add(*added.value());
  }
  for (unsigned i = 0; i < chosen.object_readers; ++i) {
    const result<engine::object_reader*> added = engine_->transfers().add_object_reader();
    if (!added) return added.error();
    readers_.push_back(added.value());
  }
  hinted_ = std::make_unique<engine::hinted_path>(*engine_, *this, fetchers_, *this);
  if (chosen.fibers != nullptr) {
    parked_ = std::make_unique<engine::parked_misses>(*engine_, *this, fetchers_, *chosen.fibers);
  }
  const result<void> adopted = adopt_static_memory();
  if (!adopted) return adopted;
  reclaimer_ = std::make_unique<reclaimer>(*engine_, *this);
  reclaimer_->start();
  if (chosen.mode == fault_mode::in_line) {
    const result<void> installed = install_inline_guard(*this);
    handles_signals_ = installed.ok();
    return installed;
  }
  return start_fault_thread();
}

result<void> far_pager::adopt_static_memory() {
  for (std::size_t i = 0; i < heap_.static_ranges(); ++i) {
    const page_range range = heap_.static_pages(i);
    const result<void> adopted = engine_->ranges().adopt(range);
    if (!adopted) return adopted;
    addresses_.adopt(range, PROT_READ | PROT_WRITE);
  }
  return {};
}

result<void> far_pager::start_fault_thread() {
  if (fault_fetcher_ == nullptr) {
    const result<engine::fetcher*> own = engine_->transfers().add_fetcher();
    if (!own) return own.error();
    fault_fetcher_ = own.value();
  }
  fault_thread_ = std::make_unique<fault_thread>(
      *engine_, *this, *fault_fetcher_, faults_, heap_, [this](page_id page) { die_of_lost_page(page); },
      chosen_.observer);
  fault_thread_->start();
  return {};
}

far_pager::~far_pager() {
  const platform::runtime_mark allocate_locally;
  if (handles_signals_) remove_inline_guard(*this);
  fault_thread_.reset();
  reclaimer_.reset();
  engine_.reset();
  platform::far_address_space::release(heap_.base(), heap_.bytes());
}

// The background thread stands still meanwhile, and what is on its way arrives first.
void far_pager::validate() const {
  const bool was_running = reclaimer_->is_running();
  reclaimer_->stop();
  backoff waiting;
  while (engine_->transfers().under_way()) {
    if (!engine_->transfers().help(engine::caller::of_runtime)) waiting.pause();
  }
  engine_->validate();
  const auto everything = addresses_.find_all([](const mapping_traits&) { return true; });
  for (const address_map::part& part : everything) {
    for (page_id page = part.range.first; !part.traits.reserved && page < part.range.end(); ++page) {
      FAR_CHECK(is_foreign(address_of(page)) == part.traits.foreign, "the engine knows which pages are not ours");
    }
  }
  if (was_running) reclaimer_->start();
}

void far_pager::evict(std::byte* address, std::size_t bytes) {
  const platform::signal_shield shield;
  engine_->eviction().evict(pages_in(address, bytes), engine::batch_pages, this);
}

result<void> far_pager::resize(std::uint64_t budget_bytes) {
  if (budget_bytes < minimum_budget_bytes) {
    return error{"a budget of " + format_size(budget_bytes) + " is below the working minimum; give at least " +
                     format_size(minimum_budget_bytes),
                 EINVAL};
  }
  engine_->eviction().resize(budget_bytes >> page_shift);
  reclaimer_->wake();
  return {};
}

result<void> far_pager::add_server(std::string_view server) {
  const platform::runtime_mark allocate_locally;
  return far_->add_server(server);
}

void far_pager::pin(const std::byte* address, std::size_t bytes) {
  const platform::signal_shield shield;
  const page_id first = page_at(address);
  const page_id last = page_at(address + (bytes == 0 ? 0 : bytes - 1));
  for (page_id page = first; page <= last; ++page) {
    while (!engine_->pins().try_pin(page)) resolve_observed(page == first ? address : address_of(page), true, nullptr);
  }
}

void far_pager::unpin(const std::byte* address, std::size_t bytes) {
  const platform::signal_shield shield;
  const page_id last = page_at(address + (bytes == 0 ? 0 : bytes - 1));
  for (page_id page = page_at(address); page <= last; ++page) engine_->pins().unpin(page);
}

void far_pager::die_of_lost_page(page_id page) const noexcept {
  log_line(log_level::error,
           "the program needs the bytes at %p, and they are lost: %s cannot return them; the program is stopped "
           "rather than given wrong data",
           static_cast<void*>(address_of(page)), far_->describe().c_str());
  std::abort();
}

}  // namespace far::pager
