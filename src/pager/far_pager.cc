#include "pager/far_pager.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>
#include <vector>

#include "backend/lineage/lineage_backend.h"
#include "base/check.h"
#include "base/lock_guard.h"
#include "base/log.h"
#include "pager/inline_guard.h"
#include "pager/limit_on_data.h"
#include "platform/kept_files.h"
#include "platform/local_memory.h"
#include "platform/page_merging.h"
#include "platform/runtime_thread.h"
#include "platform/signal_shield.h"
#include "platform/thread_identity.h"

namespace far::pager {
namespace {

constexpr std::size_t huge_page_bytes = 2 * mib;

constinit const platform::monotonic_clock clock_of_tiers;

error no_thread(const std::system_error& failure) {
  return {std::string("no thread can be started (") + failure.what() + "); raise the limit with: ulimit -u",
          failure.code().value()};
}

}  // namespace

result<std::optional<fault_mode>> parse_fault_mode(const std::string& name) {
  if (name == "auto") return std::optional<fault_mode>();
  if (name == "thread") return std::optional(fault_mode::thread);
  if (name == "inline") return std::optional(fault_mode::in_line);
  return error{"unknown fault mode '" + name + "'; known are: auto, thread, inline", EINVAL};
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

// ---- start and stop ----

// Room for the tables is checked and held while the far tier is opened (room_under_limit), so that the tier does not
// use it up. The heap's addresses are reserved after the room has been given back.
result<std::unique_ptr<far_pager>> far_pager::make(const options& chosen) {
  if (chosen.budget_bytes < minimum_budget_bytes) {
    return error{"a budget of " + format_size(chosen.budget_bytes) + " is below the working minimum; give at least " +
                     format_size(minimum_budget_bytes),
                 EINVAL};
  }
  const std::uint64_t heap_bytes =
      round_up(chosen.heap_bytes != 0 ? chosen.heap_bytes : default_heap_bytes(), huge_page_bytes);
  const std::uint64_t copies_bytes =
      chosen.copied_bytes > 0 ? object_copies::table_bytes(heap_bytes >> page_shift, chosen.budget_bytes) : 0;
  room_under_limit room(heap_bytes, chosen.object_readers > 0, copies_bytes);
  const result<void> fits = room.fits();
  if (!fits) return fits.error();
  const platform::kernel_features& features = platform::probe_kernel();
  result<platform::userfaultfd> faults = platform::userfaultfd::open(features, chosen.mode == fault_mode::in_line);
  if (!faults) return faults.error();
  platform::keep_userfaultfd_device();
  platform::end_page_merging();
  result<std::unique_ptr<backend::backend>> far = backend::open_for_forks(chosen.far_uri, clock_of_tiers);
  if (!far) return far.error();
  room.release();
  const result<std::byte*> base = platform::far_address_space::reserve(heap_bytes);
  if (!base) return base.error();
  platform::heap_layout heap(base.value(), heap_bytes);
  for (const std::span<std::byte> range : chosen.static_memory) heap.add_static_range(range);
  std::unique_ptr<far_pager> created(
      new far_pager(chosen, features, heap, std::move(faults).value(), std::move(far).value()));
  const result<void> started = created->start();
  if (!started) return started.error();
  return created;
}

result<std::unique_ptr<far_pager>> far_pager::create(const options& chosen) {
  const platform::runtime_mark allocate_locally;
  try {
    return make(chosen);
  } catch (const std::system_error& failure) {
    return no_thread(failure);
  }
}

far_pager::far_pager(const options& chosen, const platform::kernel_features& features,
                     const platform::heap_layout& heap, platform::userfaultfd faults,
                     std::unique_ptr<backend::backend> far)
    : chosen_(chosen),
      heap_(heap),
      faults_(std::move(faults)),
      space_(heap, faults_, features),
      far_(std::move(far)),
      host_(chosen.fibers) {}

// The parts in the order in which they refer to one another; the threads last.
result<void> far_pager::start() {
  const bool at_misses = chosen_.where == options::eviction::at_miss;
  const engine::options settings{
      .heap_pages = heap_.pages(),
      .budget_pages = chosen_.budget_bytes >> page_shift,
      .policy = chosen_.policy,
      .pace = chosen_.pace,
      .reads_parts = chosen_.object_readers > 0,
      .tracks_writes = platform::probe_kernel().write_protect && platform::probe_kernel().first_writes,
      .where = at_misses ? engine::eviction_place::at_miss : engine::eviction_place::background,
      .measures_where = chosen_.where == options::eviction::measured,
      .first_number = chosen_.states_by_address ? reinterpret_cast<std::uintptr_t>(heap_.base()) >> page_shift : 0,
      .filter = chosen_.filter};
  result<std::unique_ptr<engine::engine>> created = engine::engine::create(space_, *far_, clock_, settings);
  if (!created) return created.error();
  engine_ = std::move(created).value();
  misses_.emplace(*engine_, host_, heap_, *far_, chosen_);
  parts_.emplace(heap_, engine_->ranges(), engine_->eviction(), host_);
  accesses_.emplace(*engine_, host_, heap_, parts_->addresses(), *misses_);
  slots_.emplace(*engine_, host_, heap_, *misses_);
  if (chosen_.copied_bytes > 0) {
    copies_.emplace(*engine_, host_, heap_, parts_->addresses(), *slots_, *accesses_, chosen_.copied_bytes,
                    chosen_.budget_bytes);
  }
  calls_.emplace(heap_, *parts_, *engine_, *misses_, *accesses_, host_);
  result<void> done = misses_->add_fetchers();
  if (done) done = slots_->add_readers(chosen_.object_readers);
  if (done) done = adopt_static_memory();
  if (!done) return done;
  make_reclaimer({});
  reclaimer_->start();
  if (chosen_.mode != fault_mode::in_line) return start_fault_thread();
  done = install_inline_guard(*misses_);
  handles_signals_ = done.ok();
  return done;
}

result<void> far_pager::adopt_static_memory() {
  for (std::size_t i = 0; i < heap_.static_ranges(); ++i) {
    const page_range range = heap_.static_pages(i);
    const result<void> adopted = engine_->ranges().adopt(range);
    if (!adopted) return adopted;
    parts_->addresses().adopt(range, PROT_READ | PROT_WRITE);
  }
  return {};
}

void far_pager::make_reclaimer(std::function<void()> settled) {
  reclaimer_ = std::make_unique<reclaimer>(*engine_, host_, std::move(settled));
  host_.set_background(*reclaimer_);
}

result<void> far_pager::start_fault_thread() {
  if (fault_fetcher_ == nullptr) {
    const result<engine::fetcher*> own = engine_->transfers().add_fetcher();
    if (!own) return own.error();
    fault_fetcher_ = own.value();
  }
  fault_thread_ = std::make_unique<fault_thread>(
      *engine_, host_, *fault_fetcher_, faults_, heap_, [this](page_id page) { misses_->meet_lost_page(page); },
      chosen_.observer);
  fault_thread_->start();
  return {};
}

far_pager::~far_pager() {
  const platform::runtime_mark allocate_locally;
  if (handles_signals_) remove_inline_guard(*misses_);
  fault_thread_.reset();
  reclaimer_.reset();
  engine_.reset();
  platform::far_address_space::release(heap_.base(), heap_.bytes());
}

result<void> far_pager::resize(std::uint64_t budget_bytes) {
  if (budget_bytes < minimum_budget_bytes) {
    return error{"a budget of " + format_size(budget_bytes) + " is below the working minimum; give at least " +
                     format_size(minimum_budget_bytes),
                 EINVAL};
  }
  engine_->eviction().resize(budget_bytes >> page_shift);
  if (copies_) copies_->fit();
  reclaimer_->wake();
  return {};
}

result<void> far_pager::add_server(std::string_view server) {
  const platform::runtime_mark allocate_locally;
  return far_->add_server(server);
}

result<std::uint64_t> far_pager::remove_server(std::string_view server, removal step) {
  const platform::runtime_mark allocate_locally;
  return far_->remove_server(server, step);
}

void far_pager::prepare_exit() {
  const platform::runtime_mark allocate_locally;
  far_->prepare_exit();
}

// Returns false, and has looked at nothing, while transfers are under way. The kernel lets a thread go on before the
// thread that resolves its miss has noted that in the engine: until that has been done, pages are in states that only
// the resolver knows how to leave. It holds its fetcher's lock meanwhile.
bool far_pager::validate_engine() const {
  const auto validate_settled = [this] {
    if (engine_->transfers().under_way()) return false;
    engine_->validate();
    return true;
  };
  if (fault_fetcher_ == nullptr) return validate_settled();
  const lock_guard guard(fault_fetcher_->lock);
  return validate_settled();
}

// The background thread stands still meanwhile, and what is on its way arrives first.
void far_pager::validate() const {
  const bool was_running = reclaimer_->is_running();
  reclaimer_->stop();
  backoff waiting;
  while (!validate_engine()) {
    if (!engine_->transfers().help(engine::caller::of_runtime)) waiting.pause();
  }
  const auto everything = parts_->addresses().find_all([](const mapping_traits&) { return true; });
  for (const address_map::part& part : everything) {
    for (page_id page = part.range.first; !part.traits.reserved && page < part.range.end(); ++page) {
      FAR_CHECK(engine_->view().is_foreign(page) == part.traits.foreign, "the engine knows which pages are not ours");
    }
  }
  if (was_running) reclaimer_->start();
}

// ---- fork; see docs/decisions/0019-fork-that-lasts.md ----

void far_pager::prepare_fork() {
  // A signal handler of the program that touched far memory now would wait for locks that its own thread holds.
  const std::uint64_t signals = platform::block_signals();
  parts_->lock_for_fork();
  // From here on no other thread forks.
  signals_before_fork_ = signals;
  engine_->fork().lock();
  platform::lock_local_memory_for_fork();
}

void far_pager::after_fork_in_parent() {
  const std::uint64_t signals = signals_before_fork_;  // the next one's, once the gate is open
  platform::unlock_local_memory_after_fork();
  engine_->fork().unlock();
  parts_->unlock_after_fork();
  platform::restore_signals(signals);
}

namespace {

[[noreturn]] void stop_child(const error& why) {
  log_line(log_level::error,
           "a child of fork cannot go on with its far memory (%s) and is stopped; use vfork or posix_spawn, or exec at "
           "once",
           why.message.c_str());
  // Past the run door's _exit(), whose report would wait for locks of threads that the child does not have.
  while (true) syscall(SYS_exit_group, EXIT_FAILURE);
}

}  // namespace

// The threads of the old objects are not in this process; there is nothing to join or destroy.
void far_pager::start_again_in_child() {
  static_cast<void>(reclaimer_.release());
  static_cast<void>(fault_thread_.release());
  make_reclaimer(chosen_.child_settled);
  if (!serves_misses_) return;
  try {
    reclaimer_->start();
    if (chosen_.mode != fault_mode::thread) return;
    const result<void> started = start_fault_thread();
    if (!started) stop_child(started.error());
  } catch (const std::system_error& failure) {
    stop_child(no_thread(failure));
  }
}

// The child has one thread, this one, and a copy of everything, but no userfaultfd, no threads of the runtime and no
// transfers: those stayed with the parent. Where it cannot have a userfaultfd of its own, because it restricts its
// system calls, it goes on without as long as nothing of its memory was to leave; from then on nothing does.
void far_pager::after_fork_in_child(std::span<const std::span<const std::byte>> pinned) {
  platform::unlock_local_memory_after_fork();
  platform::forget_expected_followers();
  parts_->unlock_in_child();
  const platform::kernel_features& features = platform::probe_kernel();
  // The parent's descriptors are closed first: the program may have left no other descriptors.
  engine_->fork().close_transfers_in_child();
  platform::close_kept_files_in_child();
  if (fault_thread_ != nullptr) fault_thread_->close_in_child();
  const result<void> reopened = faults_.reopen_in_child(features, chosen_.mode == fault_mode::in_line);
  if (!reopened && engine_->fork().has_guarded_blocks()) stop_child(reopened.error());
  if (!reopened && serves_misses_) {
    log_line(log_level::warning,
             "a child of fork (process %d) cannot serve misses (%s): it keeps all of its memory, and takes as much as "
             "it wants",
             static_cast<int>(getpid()), reopened.error().message.c_str());
  }
  serves_misses_ = reopened.ok();
  space_.reopen_after_fork();
  std::vector<page_range, platform::local_allocator<page_range>> pinned_pages;
  for (const std::span<const std::byte> range : pinned)
    pinned_pages.push_back(parts_->pages_in(range.data(), range.size()));
  if (copies_) copies_->restart_in_child();
  const result<void> resumed = engine_->fork().resume_in_child(pinned_pages, serves_misses_);
  if (!resumed) stop_child(resumed.error());
  start_again_in_child();
  calls_->advice().settle_in_child();
  platform::restore_signals(signals_before_fork_);
}

}  // namespace far::pager
