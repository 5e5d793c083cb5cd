#include "heap/hazard_log.h"

#include <algorithm>
#include <utility>

namespace far::heap {
namespace {

std::size_t home_of(std::uint64_t page, std::size_t capacity) {
  return (page * 0x9e3779b97f4a7c15u >> 32) % capacity;
}

}  // namespace

hazard_log::hazard_log() {
  start_again();
}

// Every stamp has been used: the contents of the slots would become valid again. Requires: nothing is held.
void hazard_log::start_again() {
  stamp_ = 0;
  std::fill(std::begin(slots_), std::end(slots_), nothing);
}

hazard_log::~hazard_log() {
  delete[] others_;
  for (chunk* link = first_.next.load(std::memory_order_relaxed); link != nullptr;) {
    delete std::exchange(link, link->next.load(std::memory_order_relaxed));
  }
}

void hazard_log::hold_further(std::uint64_t page) {
  // Operations that may throw come first: a page that is in a table is in the log.
  const std::size_t at = held();
  chunk* const into = chunk_of(at);
  std::uint64_t& slot = slots_[page % slot_count];
  if (!is_held(slot)) {
    slot = page ^ stamp_;
  } else if (others_count_ == 0 && at < chunk_entries) {
    if (is_in_first_chunk(page)) return;
  } else {
    if (others_count_ == 0) remember_first_chunk();
    if (!remember(page)) return;
  }
  is_simple_ = is_simple_ && at < chunk_entries && others_count_ == 0;
  last_ = into;
  into->pages[at % chunk_entries].store(page, std::memory_order_relaxed);
  count_.store(at + 1, std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// The chunk for the next entry.
hazard_log::chunk* hazard_log::chunk_of(std::size_t at) {
  if (at == 0 || at % chunk_entries != 0) return last_;
  chunk* next = last_->next.load(std::memory_order_relaxed);
  if (next == nullptr) {
    next = new chunk;
    next->previous = last_;
    last_->next.store(next, std::memory_order_release);
  }
  return next;
}

// Removes what is after the first `count` entries from the tables.
void hazard_log::forget_down_to(std::size_t count) {
  for (std::size_t at = held(); at-- > std::max<std::size_t>(count, 1);) {
    const std::uint64_t page =
        at < chunk_entries ? first_.pages[at].load(std::memory_order_relaxed) : further_entry(at);
    if (std::uint64_t& slot = slots_[page % slot_count]; slot == (page ^ stamp_)) {
      slot = nothing;
    } else if (others_count_ > 0) {
      forget_remembered(page);
    }
  }
  is_simple_ = count <= chunk_entries && others_count_ == 0;
}

bool hazard_log::is_in_first_chunk(std::uint64_t page) const {
  for (std::size_t i = 0; i < std::min(held(), chunk_entries); ++i) {
    if (first_.pages[i].load(std::memory_order_relaxed) == page) return true;
  }
  return false;
}

// Requires: `others` is empty. Throws std::bad_alloc, and then it still is.
void hazard_log::remember_first_chunk() {
  if (others_capacity_ == 0) grow();
  for (std::size_t i = 1; i < std::min(held(), chunk_entries); ++i) {
    const std::uint64_t page = first_.pages[i].load(std::memory_order_relaxed);
    if (slots_[page % slot_count] != (page ^ stamp_)) static_cast<void>(remember(page));
  }
  is_simple_ = is_simple_ && others_count_ == 0;
}

// The log is only cut back from its end, so the entry is in the last chunk, or in the one before when that is used up.
std::uint64_t hazard_log::further_entry(std::size_t at) {
  const std::uint64_t page = last_->pages[at % chunk_entries].load(std::memory_order_relaxed);
  if (at % chunk_entries == 0) last_ = last_->previous;
  return page;
}

// Returns whether the page was not there yet.
bool hazard_log::remember(std::uint64_t page) {
  if (others_count_ * 2 >= others_capacity_) grow();
  std::size_t at = home_of(page, others_capacity_);
  while (others_[at] != nothing) {
    if (others_[at] == page) return false;
    at = (at + 1) % others_capacity_;
  }
  others_[at] = page;
  ++others_count_;
  return true;
}

// Deletion from linear probing: later pages that would not be found any more move up (Knuth, volume 3, algorithm 6.4
// R).
void hazard_log::forget_remembered(std::uint64_t page) {
  std::size_t hole = home_of(page, others_capacity_);
  while (others_[hole] != page) hole = (hole + 1) % others_capacity_;
  for (std::size_t at = (hole + 1) % others_capacity_; others_[at] != nothing; at = (at + 1) % others_capacity_) {
    const std::size_t home = home_of(others_[at], others_capacity_);
    const bool reachable = hole < at ? hole < home && home <= at : hole < home || home <= at;
    if (reachable) continue;
    others_[hole] = others_[at];
    hole = at;
  }
  others_[hole] = nothing;
  --others_count_;
}

void hazard_log::grow() {
  const std::size_t before = others_capacity_;
  const std::size_t capacity = before == 0 ? 256 : before * 2;
  auto* const larger = new std::uint64_t[capacity];
  std::uint64_t* const old = std::exchange(others_, larger);
  others_capacity_ = capacity;
  std::fill(others_, others_ + others_capacity_, nothing);
  for (std::size_t i = 0; i < before; ++i) {
    if (old[i] == nothing) continue;
    std::size_t at = home_of(old[i], others_capacity_);
    while (others_[at] != nothing) at = (at + 1) % others_capacity_;
    others_[at] = old[i];
  }
  delete[] old;
}

}  // namespace far::heap
