#include "pager/far_pager.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "base/check.h"
#include "base/log.h"
#include "pager/inline_guard.h"
#include "pager/runtime_thread.h"
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

// Straight to the kernel: the program's mprotect may be the preload library's own.
int set_kernel_protection(std::byte* address, std::size_t bytes, int protection) {
  return syscall(SYS_mprotect, address, bytes, protection) == 0 ? 0 : errno;
}

// Stands for the protection of a place where something else is mapped (hand_over).
constexpr int handed_over = -1;

// Puts the inaccessible reservation back where something else was mapped.
void reserve_again(std::byte* address, std::size_t bytes) {
  const long mapped =
      syscall(SYS_mmap, address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0L);
  FAR_CHECK(mapped != -1, "a place of the far heap can be reserved again");
}

error no_room(std::size_t bytes) {
  return {"the far heap has no " + format_size(bytes) + " of free addresses left", ENOMEM};
}

}  // namespace

result<fault_mode> parse_fault_mode(const std::string& name) {
  if (name == "thread") return fault_mode::thread;
  if (name == "inline") return fault_mode::in_line;
  return error{"unknown fault mode '" + name + "'; known are: thread, inline", EINVAL};
}

result<std::unique_ptr<pager>> pager::create(const options& chosen) {
  result<std::unique_ptr<far_pager>> created = far_pager::create(chosen);
  if (!created) return created.error();
  return std::unique_ptr<pager>(std::move(created).value());
}

result<std::unique_ptr<far_pager>> far_pager::create(const options& chosen) {
  const runtime_section allocate_locally;
  if (chosen.budget_bytes < minimum_budget_bytes) {
    return error{"a budget of " + format_size(chosen.budget_bytes) + " is below the working minimum; give at least " +
                     format_size(minimum_budget_bytes),
                 EINVAL};
  }
  const platform::kernel_features& features = platform::probe_kernel();
  result<platform::userfaultfd> faults = platform::userfaultfd::open(features, chosen.mode == fault_mode::in_line);
  if (!faults) return faults.error();
  result<std::unique_ptr<backend::backend>> far = backend::open(chosen.far_uri);
  if (!far) return far.error();
  const std::uint64_t heap_bytes =
      round_up(chosen.heap_bytes != 0 ? chosen.heap_bytes : default_heap_bytes(), huge_page_bytes);
  const result<std::byte*> base = platform::far_address_space::reserve(heap_bytes);
  if (!base) return base.error();
  std::unique_ptr<far_pager> created(
      new far_pager(chosen, features, base.value(), heap_bytes, std::move(faults).value(), std::move(far).value()));
  const result<void> started = created->start(chosen);
  if (!started) return started.error();
  return created;
}

far_pager::far_pager(const options& chosen, const platform::kernel_features& features, std::byte* base,
                     std::uint64_t heap_bytes, platform::userfaultfd faults, std::unique_ptr<backend::backend> far)
    : chosen_(chosen),
      base_(base),
      heap_bytes_(heap_bytes),
      faults_(std::move(faults)),
      space_(base, faults_, features),
      far_(std::move(far)),
      addresses_(heap_bytes >> page_shift) {}

result<void> far_pager::start(const options& chosen) {
  const bool at_misses = chosen.where == options::eviction::at_miss;
  const engine::options settings{
      .heap_pages = heap_bytes_ >> page_shift,
      .budget_pages = chosen.budget_bytes >> page_shift,
      .policy = chosen.policy,
      .tracks_writes = platform::probe_kernel().write_protect,
      .where = at_misses ? engine::eviction_place::at_miss : engine::eviction_place::background,
      .measures_where = chosen.where == options::eviction::measured,
      .departures = chosen.departures};
  result<std::unique_ptr<engine::engine>> made = engine::engine::create(space_, *far_, clock_, settings);
  if (!made) return made.error();
  engine_ = std::move(made).value();
  for (engine::fetcher*& each : fetchers_) {
    const result<engine::fetcher*> added = engine_->add_fetcher();
    if (!added) return added.error();
    each = added.value();
  }
  for (unsigned i = 0; i < chosen.object_readers; ++i) {
    const result<engine::object_reader*> added = engine_->add_object_reader();
    if (!added) return added.error();
    readers_.push_back(added.value());
  }
  if (chosen.fibers != nullptr) {
    waiting_ = std::make_unique<waiting_fibers>(*chosen.fibers);
    engine_->tell(*waiting_);
  }
  reclaimer_ = std::make_unique<reclaimer>(*engine_, waiting_ != nullptr);
  reclaimer_->start();
  if (chosen.mode == fault_mode::in_line) {
    const result<void> installed = install_inline_guard(*this);
    handles_signals_ = installed.ok();
    return installed;
  }
  return start_fault_thread();
}

result<void> far_pager::start_fault_thread() {
  if (fault_fetcher_ == nullptr) {
    const result<engine::fetcher*> own = engine_->add_fetcher();
    if (!own) return own.error();
    fault_fetcher_ = own.value();
  }
  fault_thread_ = std::make_unique<fault_thread>(
      *engine_, *fault_fetcher_, faults_, base_, *reclaimer_, [this](page_id page) { die_of_lost_page(page); },
      chosen_.observer);
  return fault_thread_->start();
}

far_pager::~far_pager() {
  const runtime_section allocate_locally;
  if (handles_signals_) remove_inline_guard(*this);
  fault_thread_.reset();
  reclaimer_.reset();
  engine_.reset();
  platform::far_address_space::release(base_, heap_bytes_);
}

result<std::byte*> far_pager::map(std::size_t bytes, int protection, std::size_t alignment_bytes) {
  return map_somewhere(bytes, protection, alignment_bytes, false);
}

result<std::byte*> far_pager::map_guarded(std::size_t bytes, std::size_t alignment_bytes) {
  return map_somewhere(bytes, PROT_READ | PROT_WRITE, alignment_bytes, true);
}

result<std::byte*> far_pager::map_somewhere(std::size_t bytes, int protection, std::size_t alignment_bytes,
                                            bool guarded) {
  const platform::signal_shield shield;
  const std::uint64_t count = pages_for(bytes);
  const std::size_t natural = bytes >= huge_page_bytes ? huge_page_bytes : page_bytes;
  const std::uint64_t alignment_pages = std::max(alignment_bytes, natural) >> page_shift;
  const std::optional<page_id> first = addresses_.take(count, alignment_pages, protection);
  if (!first) return no_room(bytes);
  const page_range range{*first, count};
  const result<void> opened = open_part(range, protection, guarded);
  if (opened) return address_of(range.first);
  for (const address_map::part& part : addresses_.remove(range)) addresses_.put_back(part.range);
  return opened.error();
}

result<void> far_pager::map_at(std::byte* address, std::size_t bytes, int protection) {
  const platform::signal_shield shield;
  const page_range range = pages_in(address, bytes);
  take_over(range, protection);
  const result<void> opened = open_part(range, protection, false);
  if (opened) return opened;
  for (const address_map::part& part : addresses_.remove(range)) addresses_.put_back(part.range);
  return opened.error();
}

// Takes addresses from whoever uses them. A thread that is about to give up a part of them, and holds it for a moment
// more, is waited for.
void far_pager::take_over(page_range range, int protection) {
  backoff waiting;
  std::optional<address_map::parts> parts;
  while (!(parts = addresses_.take_over(range))) waiting.pause();
  for (const address_map::part& part : *parts) empty_part(part);
  addresses_.use(range, protection);
}

// Gives addresses that were just taken to the engine and to the program.
result<void> far_pager::open_part(page_range range, int protection, bool guarded) {
  const result<void> allocated = guarded ? engine_->allocate_guarded(range) : engine_->allocate(range);
  if (!allocated) return allocated;
  const int failure = set_kernel_protection(address_of(range.first), range.count << page_shift, protection);
  if (failure != 0) {
    engine_->release(range);
    return error{std::string("the kernel refuses a mapping (") + std::strerror(failure) + "); raise vm.max_map_count",
                 failure};
  }
  if (engine_->wants_background()) reclaimer_->wake();
  return {};
}

// Takes a part that was removed from use back from the program and the engine, and frees its addresses.
void far_pager::close_part(address_map::part part) {
  empty_part(part);
  addresses_.put_back(part.range);
}

void far_pager::empty_part(address_map::part part) {
  std::byte* const address = address_of(part.range.first);
  const std::size_t bytes = part.range.count << page_shift;
  if (part.protection == handed_over) {
    reserve_again(address, bytes);
    engine_->guard_again(part.range);
  } else {
    // Locked memory could not be emptied. It fails for memory that is not locked on old kernels, which is as good.
    static_cast<void>(syscall(SYS_munlock, address, bytes));
    // Empty first: taking access away from pages that are mapped costs the kernel a visit to each.
    engine_->discard(part.range);
    const int failure = set_kernel_protection(address, bytes, PROT_NONE);
    FAR_CHECK(failure == 0 || failure == ENOMEM, "the far heap's own range can be protected");
    engine_->release(part.range);
  }
}

result<void> far_pager::hand_over(std::byte* address, std::size_t bytes) {
  const platform::signal_shield shield;
  take_over(pages_in(address, bytes), handed_over);
  return {};
}

result<int> far_pager::protection_of(const std::byte* address) const {
  const platform::signal_shield shield;
  const std::optional<address_map::part> holder = addresses_.find(page_at(address));
  if (!holder || holder->protection == handed_over) return error{"nothing of ours is mapped there", EFAULT};
  return holder->protection;
}

result<void> far_pager::unmap(std::byte* address, std::size_t bytes) {
  const platform::signal_shield shield;
  const page_range range = pages_in(address, bytes);
  for (const address_map::part& part : addresses_.remove(range)) close_part(part);
  return {};
}

result<void> far_pager::discard(std::byte* address, std::size_t bytes) {
  const platform::signal_shield shield;
  engine_->discard(pages_in(address, bytes));
  return {};
}

result<void> far_pager::protect(std::byte* address, std::size_t bytes, int protection) {
  const platform::signal_shield shield;
  const std::optional<address_map::part> holder = addresses_.find(page_at(address));
  const int failure = set_kernel_protection(address, pages_for(bytes) << page_shift, protection);
  if (failure == 0 && holder && holder->protection == handed_over) return {};
  if (failure != 0) return error{std::string("mprotect failed (") + std::strerror(failure) + ")", failure};
  addresses_.set_protection(pages_in(address, bytes), protection);
  return {};
}

result<std::byte*> far_pager::remap(std::byte* address, std::size_t old_bytes, std::size_t new_bytes, bool may_move) {
  const platform::signal_shield shield;
  const page_range old_range = pages_in(address, old_bytes);
  const std::uint64_t new_count = pages_for(new_bytes);
  const std::optional<address_map::part> holder = addresses_.find(old_range.first);
  if (!holder || old_range.count == 0 || new_count == 0) return error{"mremap of memory that is not mapped", EFAULT};
  if (new_count <= old_range.count) {
    const result<void> cut =
        unmap(address_of(old_range.first + new_count), (old_range.count - new_count) << page_shift);
    if (!cut) return cut.error();
    return address;
  }
  if (grow_in_place(old_range, new_count - old_range.count, holder->protection)) return address;
  if (!may_move) return no_room(new_bytes);
  return grow_elsewhere(old_range, new_count, holder->protection);
}

bool far_pager::grow_in_place(page_range range, std::uint64_t more, int protection) {
  const page_range added{range.end(), more};
  if (added.end() > heap_bytes_ >> page_shift || !addresses_.take_at(added, protection)) return false;
  if (open_part(added, protection, false)) return true;
  for (const address_map::part& part : addresses_.remove(added)) addresses_.put_back(part.range);
  return false;
}

result<std::byte*> far_pager::grow_elsewhere(page_range range, std::uint64_t new_count, int protection) {
  const std::optional<page_id> first = addresses_.take(new_count, huge_page_bytes >> page_shift, protection);
  if (!first) return no_room(new_count << page_shift);
  const page_range grown{*first, new_count};
  const result<void> opened = open_part(grown, protection, true);
  const result<void> moved = opened ? engine_->move(range, grown.first) : opened;
  if (!moved) {
    for (const address_map::part& part : addresses_.remove(grown)) {
      opened ? close_part(part) : addresses_.put_back(part.range);
    }
    return moved.error();
  }
  for (const address_map::part& part : addresses_.remove(range)) close_part(part);
  return address_of(grown.first);
}

// The background thread stands still meanwhile, and what is on its way arrives first.
void far_pager::validate() const {
  const bool was_running = reclaimer_->is_running();
  reclaimer_->stop();
  backoff waiting;
  while (engine_->transfers_under_way()) {
    if (!engine_->help()) waiting.pause();
  }
  engine_->validate();
  if (was_running) reclaimer_->start();
}

void far_pager::evict(std::byte* address, std::size_t bytes) {
  const platform::signal_shield shield;
  engine_->evict(pages_in(address, bytes));
}

result<void> far_pager::resize(std::uint64_t budget_bytes) {
  if (budget_bytes < minimum_budget_bytes) {
    return error{"a budget of " + format_size(budget_bytes) + " is below the working minimum; give at least " +
                     format_size(minimum_budget_bytes),
                 EINVAL};
  }
  engine_->resize(budget_bytes >> page_shift);
  reclaimer_->wake();
  return {};
}

result<void> far_pager::add_server(std::string_view server) {
  const runtime_section allocate_locally;
  return far_->add_server(server);
}

void far_pager::pin(const std::byte* address, std::size_t bytes) {
  const platform::signal_shield shield;
  const page_id first = page_at(address);
  const page_id last = page_at(address + (bytes == 0 ? 0 : bytes - 1));
  for (page_id page = first; page <= last; ++page) {
    while (!engine_->try_pin(page)) resolve_observed(page == first ? address : address_of(page), true, nullptr);
  }
}

void far_pager::unpin(const std::byte* address, std::size_t bytes) {
  const platform::signal_shield shield;
  const page_id last = page_at(address + (bytes == 0 ? 0 : bytes - 1));
  for (page_id page = page_at(address); page <= last; ++page) engine_->unpin(page);
}

void far_pager::die_of_lost_page(page_id page) const noexcept {
  log_line(log_level::error,
           "the program needs the bytes at %p, and they are lost: %s cannot return them; the program is stopped "
           "rather than given wrong data",
           static_cast<void*>(address_of(page)), far_->describe().c_str());
  std::abort();
}

}  // namespace far::pager
