#include "engine/core.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/lock_guard.h"
#include "base/log.h"

namespace far::engine {
namespace {

constexpr std::uint64_t retry_interval_ns = 100'000'000;
// A stall of eviction is over when this time has passed since the last failure.
constexpr std::uint64_t settled_ns = 1'000'000'000;

}  // namespace

core_state::core_state(platform::address_space& kernel, backend::backend& far_tier, const platform::clock& clock,
                       const core_sizes& chosen)
    : space(kernel),
      far(far_tier),
      time(clock),
      pages(chosen.heap_pages, chosen.first_number),
      checks(chosen.heap_pages, chosen.reads_parts,
             chosen.hash_seed == 0 ? page_hasher() : page_hasher(chosen.hash_seed)),
      affinities(chosen.heap_pages, chosen.reads_parts),
      blocks(chosen.heap_pages),
      local(chosen.budget_pages, chosen.pace.free_share),
      writes_tracked(chosen.tracks_writes),
      pages_a_batch(chosen.pace.pages_a_batch) {
  const std::string name = far.describe();
  name.copy(far_name_.data(), far_name_.size() - 1);
}

core_state::~core_state() {
  if (staging_ == nullptr) return;
  space.unmap_staging(staging_, staging_pages_);
  platform::unmap_local(copies_, staging_pages_ * page_bytes);
  platform::unmap_local(reinterpret_cast<std::byte*>(rescued), 2 * staging_pages_);
  platform::unmap_local(zeros, batch_pages * page_bytes);
}

void core_state::map_buffers(std::size_t staging_pages) {
  staging_pages_ = staging_pages;
  staging_ = space.map_staging(staging_pages);
  copies_ = platform::map_local(staging_pages * page_bytes);
  rescued = reinterpret_cast<std::atomic<std::uint8_t>*>(platform::map_local(2 * staging_pages));
  zeros = platform::map_local(batch_pages * page_bytes);
}

void core_state::set_order(std::unique_ptr<policy> chosen) {
  const lock_guard guard(order_lock_);
  order_ = std::move(chosen);
  remembered_epochs_ = order_->remembered_epochs();
  recalled_epochs_ = order_->recalled_epochs();
}

// Flag and entry change together under the order's lock, which a fork holds: the child has both or neither.
void core_state::admit(page_id page, temperature how) {
  if (pages.load(page).queued()) return;
  const lock_guard guard(order_lock_);
  page_word word = pages.load(page);
  do {
    if (word.queued()) return;
  } while (!pages.transition(page, word, word.with_queued(true)));
  order_->admit(page, how);
}

std::size_t core_state::select_victims(std::span<page_id> victims) {
  const lock_guard guard(order_lock_);
  return order_->select(victims);
}

std::size_t core_state::ordered_pages() {
  const lock_guard guard(order_lock_);
  return order_->size();
}

bool core_state::charge_for_miss() {
  if (local.try_charge(1)) return true;
  if (!stalled()) return false;
  local.charge(1);
  allow_excess();
  count.over_budget_pages.raise_to(static_cast<std::uint64_t>(std::max<std::int64_t>(0, -local.free_pages())));
  return true;
}

void core_state::free_slot(backend::slot_id slot) {
  if (!reads.leave_to_readers(slot)) far.free(slot, 1);
}

void core_state::begin_again(std::uint64_t charged_pages) {
  local.begin_again(charged_pages);
  count.begin_again();
  stall_.store(stall_reason::none);
  stall_announced_.store(false);
  retry_at_ns_.store(0);
  if (local.free_pages() < 0) allow_excess();
}

bool core_state::forget_if_dropped(page_id page) {
  bool filled = false;
  space.query_filled({page, 1}, {&filled, 1});
  if (filled) return false;
  const page_word before = pages.load(page);
  pages.update(page, [](page_word word) {
    return word.with_state(state::untouched).with_dirty(false).with_place(page_word::no_place);
  });
  if (before.has_place()) free_slot(before.place());
  local.release(1);
  log_line(log_level::verbose,
           "page %llu of the far heap had no bytes any more, and reads as zeros: did the program drop it?",
           static_cast<unsigned long long>(page));
  return true;
}

void core_state::stall(stall_reason why) {
  retry_at_ns_.store(time.now_ns() + retry_interval_ns);
  stall_.store(why);
  if (why == stall_reason::no_tier) return;  // the code that cannot open it says so
  if (stall_announced_.exchange(true)) return;
  const char* reason = "";
  switch (why) {
    case stall_reason::none:
    case stall_reason::no_tier: return;
    case stall_reason::no_space:
      reason = "the far tier is full; free space there or choose a larger one with --far";
      break;
    case stall_reason::write_failed: reason = "writing to the far tier fails; check the device"; break;
    case stall_reason::nothing_evictable: reason = "all local pages are locked or in use; raise the budget"; break;
  }
  log_line(log_level::warning, "eviction to %s stopped, so local memory may exceed the budget: %s", far_name(), reason);
}

void core_state::clear_stall() {
  stall_.store(stall_reason::none);
  // A tier that is nearly full keeps changing between full and not full; the user hears of it once. Frames may be free
  // for a moment only, because a block was closed that held fewer pages than it was charged for.
  if (!stall_announced_.load() || local.below_high()) return;
  if (time.now_ns() < retry_at_ns_.load() + settled_ns || !stall_announced_.exchange(false)) return;
  log_line(log_level::info, "eviction to %s works again", far_name());
}

void wait_for_kernel_memory(int error_code, backoff* waiting) {
  if (error_code != ENOMEM) {
    log_line(
        log_level::error, "the kernel refuses to map a page of the far heap (%s)%s", std::strerror(error_code),
        error_code == EPERM ? "; a program that restricts its system calls (seccomp) needs --fault-mode thread" : "");
    FAR_CHECK(error_code == ENOMEM, "a page that is not mapped can be mapped");
  }
  waiting->pause();
}

void core_state::note_refused_guard(const error& why) {
  if (!serves_misses_ || refused_guard_announced_.exchange(true)) return;
  log_line(log_level::warning, "%s; local memory may exceed the budget until then", why.message.c_str());
}

void core_state::note_far_peak() {
  const backend::capacity now = far.report();
  count.peak_far_pages.raise_to(now.used_slots);
  count.peak_far_stored_bytes.raise_to(now.occupied_bytes());
}

}  // namespace far::engine
