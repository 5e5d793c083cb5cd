#include "engine/budget.h"

#include <algorithm>

#include "base/check.h"

namespace far::engine {
namespace {

// Free frames kept ahead of need: a hundredth of the budget, but enough for some batches of misses. What is free holds
// no page, and between 1 and 2 hundredths are free at a time (decision 147). For a tiny budget, such as the share of
// one process of many, at most 1/8, or pages would leave before they are used.
constexpr std::uint64_t usual_share = 100;
constexpr std::uint64_t smallest_low_pages = 128;
constexpr std::uint64_t largest_low_pages = 4096;
constexpr std::uint64_t tiny_share = 8;

}  // namespace

std::uint64_t budget::low_watermark_for(std::uint64_t limit_pages) const {
  if (free_share_ > 0) return static_cast<std::uint64_t>(static_cast<double>(limit_pages) * free_share_);
  return std::min(std::clamp(limit_pages / usual_share, smallest_low_pages, largest_low_pages),
                  limit_pages / tiny_share);
}

void budget::resize(std::uint64_t limit_pages) {
  whole_.store(limit_pages);
  divide();
}

void budget::set_aside(std::uint64_t pages) {
  aside_.store(pages);
  divide();
}

// Two threads may do so at a time: the last one to store the limit finds out if it is of other values.
void budget::divide() {
  std::uint64_t whole = 0;
  std::uint64_t aside = 0;
  do {
    whole = whole_.load();
    aside = aside_.load();
    const std::uint64_t limit_pages = whole - std::min(aside, whole / 2);
    low_.store(std::max<std::uint64_t>(1, low_watermark_for(limit_pages)), std::memory_order_relaxed);
    limit_.store(limit_pages);
  } while (whole != whole_.load() || aside != aside_.load());
}

bool budget::try_charge(std::uint64_t pages, std::uint64_t reserve_pages) {
  std::uint64_t charged = charged_.load(std::memory_order_relaxed);
  do {
    if (charged + pages + reserve_pages > limit_pages()) return false;
  } while (!charged_.compare_exchange_weak(charged, charged + pages, std::memory_order_relaxed));
  note_peak(charged + pages);
  return true;
}

bool budget::try_charge_above(std::uint64_t excess_pages) {
  std::uint64_t charged = charged_.load(std::memory_order_relaxed);
  do {
    if (charged + 1 > limit_pages() + excess_pages) return false;
  } while (!charged_.compare_exchange_weak(charged, charged + 1, std::memory_order_relaxed));
  note_peak(charged + 1);
  return true;
}

void budget::charge(std::uint64_t pages) {
  note_peak(charged_.fetch_add(pages, std::memory_order_relaxed) + pages);
}

void budget::release(std::uint64_t pages) {
  const std::uint64_t before = charged_.fetch_sub(pages, std::memory_order_relaxed);
  FAR_CHECK(before >= pages, "a frame is released once");
}

void budget::begin_again(std::uint64_t charged_pages) {
  charged_.store(charged_pages, std::memory_order_relaxed);
  peak_.store(charged_pages, std::memory_order_relaxed);
}

void budget::note_peak(std::uint64_t charged) {
  std::uint64_t peak = peak_.load(std::memory_order_relaxed);
  while (charged > peak && !peak_.compare_exchange_weak(peak, charged, std::memory_order_relaxed)) {
  }
}

}  // namespace far::engine
