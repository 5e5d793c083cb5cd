#include "engine/neighbourhood.h"

#include <algorithm>

namespace far::engine {
namespace {

constexpr std::size_t region_pages = neighbourhood::region_pages;

// So many samples weigh as much as all that is known from earlier cohorts.
constexpr std::uint64_t samples_remembered = 32;

// The region is in use when at least half of its other pages are here. For fewer, the samples were rarely wanted.
constexpr std::size_t least_here = region_pages / 2;

// A far tier that writes many batches at a time ends epochs in bursts. Between two bursts, epochs pass with hardly a
// miss; during a long one, many misses come. So a single epoch tells nothing: only all in which the budget leaves once.
constexpr std::uint64_t epochs_remembered = 8;

std::uint64_t add_epoch(std::uint64_t now, std::atomic<std::uint64_t>& sum) {
  const std::uint64_t before = sum.load(std::memory_order_relaxed);
  const std::uint64_t all = before - before / epochs_remembered + now;
  sum.store(all, std::memory_order_relaxed);
  return all;
}

std::uint64_t scattered(page_id page) {
  return (page * 0x9e3779b97f4a7c15) >> 32;
}

}  // namespace

std::atomic<neighbourhood::sample>& neighbourhood::place_of(page_id page) {
  return samples_[scattered(page) % most_samples];
}

void neighbourhood::note_miss(page_id page) {
  note_epoch();
  if (time_.epochs_since(pages_.load(page).epoch()) <= soon) returned_.fetch_add(1, std::memory_order_relaxed);
  std::atomic<sample>& place = place_of(page);
  sample found = place.load(std::memory_order_relaxed);
  if (found == 0 || page_of(found) != page || !is_recent(found)) return;
  // The thread that takes it out counts it.
  if (!place.compare_exchange_strong(found, 0, std::memory_order_relaxed)) return;
  wanted_[epoch_of(found) % cohorts].fetch_add(1, std::memory_order_relaxed);
}

// Pages that come back with others are not missed, and had they not come, some of them would have been: as many as of
// the samples. Without them, regions that come whole would hide how much the pages that leave are missed.
void neighbourhood::learn_returns() {
  const auto since = [](std::uint64_t now, std::atomic<std::uint64_t>& then) {
    const std::uint64_t before = then.exchange(now, std::memory_order_relaxed);
    return before <= now ? now - before : now;  // in a child of a fork, counts begin again
  };
  // A page that is touched while it is being written out would have been missed, had the far tier been faster.
  const std::uint64_t rescued = since(count_.rescues.get(), rescued_then_);
  const std::uint64_t left = since(count_.evicted_pages.get(), evicted_then_) + rescued;
  const std::uint64_t along = since(count_.returned_along.get(), along_then_);
  const std::uint64_t missed = returned_.exchange(0, std::memory_order_relaxed);
  const std::uint64_t spared = along * wanted_share_.load(std::memory_order_relaxed) / whole;
  const std::uint64_t all_left = add_epoch(left, left_);
  const std::uint64_t all_returned = std::min(add_epoch(missed + rescued + spared, returning_), all_left);
  if (all_left > 0)
    returning_share_.store(static_cast<unsigned>(all_returned * whole / all_left), std::memory_order_relaxed);
}

// A page that comes along saves a miss if it is wanted, causes one if the page that leaves for it is, and costs about a
// fourth of a miss.
bool neighbourhood::is_worth_it() const {
  return wanted_share_.load(std::memory_order_relaxed) >= returning_share_.load(std::memory_order_relaxed) + whole / 4;
}

window neighbourhood::around(page_id miss) {
  note_epoch();
  const page_id first = miss - miss % region_pages;
  std::size_t here = 0;
  std::size_t remote = 0;
  std::array<page_id, region_pages> away;
  for (page_id page = first; page < first + region_pages && page < pages_.pages(); ++page) {
    const page_word word = pages_.load(page);
    here += word.where() == state::resident && word.fetched();
    if (comes_as_page(word) && page != miss) away[remote++] = page;
  }
  if (here < least_here || remote == 0) return {};

  const page_id sampled = away[scattered(miss ^ time_.epoch()) % remote];
  const bool is_left_out = leave_out(sampled);
  if (!is_worth_it() || remote == is_left_out) return {};
  window region{.stride = 1, .count = region_pages, .is_walk = false};
  region.first = static_cast<std::int64_t>(first - miss);
  if (is_left_out) region.left_out = sampled;
  return region;
}

// Returns whether the page is a sample now: not while its place is taken by one that may still be missed soon.
bool neighbourhood::leave_out(page_id page) {
  std::atomic<sample>& place = place_of(page);
  sample before = place.load(std::memory_order_relaxed);
  return before == 0 && place.compare_exchange_strong(before, pack(page, time_.epoch()), std::memory_order_relaxed);
}

// At the first call in an epoch. Pages leave in bursts, many misses apart, so shorter periods tell nothing.
void neighbourhood::note_epoch() {
  const unsigned now = time_.epoch();
  unsigned seen = epoch_seen_.load(std::memory_order_relaxed);
  if (seen == now || !epoch_seen_.compare_exchange_strong(seen, now, std::memory_order_relaxed)) return;
  judge_samples(now);
  learn_returns();
}

// Those that cannot be missed soon any more.
void neighbourhood::judge_samples(unsigned now) {
  std::uint64_t unwanted = 0;
  for (std::atomic<sample>& place : samples_) {
    sample found = place.load(std::memory_order_relaxed);
    if (found == 0 || is_recent(found)) continue;
    if (!place.compare_exchange_strong(found, 0, std::memory_order_relaxed)) continue;
    // A sample that came back in another way, with a walk or a hint, proves nothing.
    unwanted += pages_.load(page_of(found)).where() == state::remote;
  }
  std::uint64_t wanted = 0;
  for (unsigned cohort = 0; cohort < cohorts; ++cohort) {
    const bool is_open = (now - cohort) % cohorts <= soon;
    if (!is_open) wanted += wanted_[cohort].exchange(0, std::memory_order_relaxed);
  }
  learn_wanted(wanted, wanted + unwanted);
}

void neighbourhood::learn_wanted(std::uint64_t wanted, std::uint64_t samples) {
  count_.sampled_pages.add(samples);
  count_.wanted_samples.add(wanted);
  const std::uint64_t known = wanted_share_.load(std::memory_order_relaxed);
  const std::uint64_t share = (known * samples_remembered + wanted * whole) / (samples_remembered + samples);
  wanted_share_.store(static_cast<unsigned>(share), std::memory_order_relaxed);
}

}  // namespace far::engine
