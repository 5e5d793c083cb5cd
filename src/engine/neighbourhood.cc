#include "engine/neighbourhood.h"

#include <algorithm>

namespace far::engine {
namespace {

constexpr std::size_t region_pages = neighbourhood::region_pages;

constexpr unsigned samples_averaged = 32;

// The region is in use when at least half of its other pages are here. For fewer, the samples were rarely wanted.
constexpr std::size_t least_here = region_pages / 2;

std::uint64_t scattered(page_id page) {
  return (page * 0x9e3779b97f4a7c15) >> 32;
}

}  // namespace

std::atomic<neighbourhood::sample>& neighbourhood::place_of(page_id page) {
  return samples_[scattered(page) % most_samples];
}

void neighbourhood::note_miss(page_id page) {
  count_return(page);
  std::atomic<sample>& place = place_of(page);
  sample found = place.load(std::memory_order_relaxed);
  if (found == 0 || page_of(found) != page) return;
  // The thread that takes it out learns from it.
  if (place.compare_exchange_strong(found, 0, std::memory_order_relaxed)) learn(is_recent(found));
}

void neighbourhood::count_return(page_id page) {
  if (time_.epochs_since(pages_.load(page).epoch()) <= soon) returned_.fetch_add(1, std::memory_order_relaxed);
  if ((misses_.fetch_add(1, std::memory_order_relaxed) + 1) % misses_a_period == 0) end_period();
}

void neighbourhood::end_period() {
  const std::uint64_t evicted = count_.evicted_pages.get();
  const std::uint64_t then = evicted_then_.exchange(evicted, std::memory_order_relaxed);
  const std::uint64_t left = then <= evicted ? evicted - then : evicted;  // in a child of a fork, counts begin again
  const std::uint64_t returned = std::min(returned_.exchange(0, std::memory_order_relaxed), left);
  returning_share_.store(left == 0 ? 0 : static_cast<unsigned>(returned * whole / left), std::memory_order_relaxed);
}

// A page that comes along saves a miss if it is wanted, causes one if the page that leaves for it is, and costs about a
// fourth of a miss.
bool neighbourhood::is_worth_it() const {
  return wanted_share_.load(std::memory_order_relaxed) >= returning_share_.load(std::memory_order_relaxed) + whole / 4;
}

window neighbourhood::around(page_id miss) {
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
  if (before != 0 && is_recent(before)) return false;
  if (!place.compare_exchange_strong(before, pack(page, time_.epoch()), std::memory_order_relaxed)) return false;
  // A sample that came back in another way, with a walk or a hint, proves nothing.
  if (before != 0 && pages_.load(page_of(before)).where() == state::remote) learn(false);
  return true;
}

void neighbourhood::learn(bool wanted) {
  count_.sampled_pages.add();
  if (wanted) count_.wanted_samples.add();
  const unsigned share = wanted_share_.load(std::memory_order_relaxed);
  const unsigned change = wanted ? (whole - share + samples_averaged - 1) / samples_averaged
                                 : 0 - (share + samples_averaged - 1) / samples_averaged;
  wanted_share_.store(share + change, std::memory_order_relaxed);
}

}  // namespace far::engine
