#include "backend/slot_allocator.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/units.h"
#include "platform/local_memory.h"

namespace far::backend {
namespace {

constexpr std::uint64_t word_slots = 64;
constexpr std::uint64_t fanout = 8;
// Beside half of what is used. So many free slots may also wait for a program that frees and fills large arrays.
constexpr std::uint64_t least_scattered_slots = 64 * mib / page_bytes;

// Bits [first, last) of a word; requires first < last <= 64.
constexpr std::uint64_t bits_between(std::uint64_t first, std::uint64_t last) {
  return (~std::uint64_t{0} >> (word_slots - (last - first))) << first;
}

// Calls visit(word index, mask) for each word that the slots touch; stops when visit returns false.
template <typename F>
bool for_each_word(slot_id first, std::uint64_t count, F&& visit) {
  const slot_id end = first + count;
  for (slot_id slot = first; slot < end;) {
    const slot_id word_end = std::min(end, (slot / word_slots + 1) * word_slots);
    const std::uint64_t begin_bit = slot % word_slots;
    if (!visit(slot / word_slots, bits_between(begin_bit, begin_bit + (word_end - slot)))) return false;
    slot = word_end;
  }
  return true;
}

// Bit i of the result is set when bits i .. i + count - 1 of `bits` are; requires 0 < count <= 64.
std::uint64_t starts_of_runs(std::uint64_t bits, std::uint64_t count) {
  for (std::uint64_t have = 1; have < count && bits != 0;) {
    const std::uint64_t step = std::min(have, count - have);
    bits &= bits >> step;
    have += step;
  }
  return bits;
}

// Requires: not all bits are set. Composes the answer from runs of 32, 16, ... 1: a run of a + b begins where a run of
// a begins that is followed by a run of b.
std::uint64_t longest_run(std::uint64_t bits) {
  std::array<std::uint64_t, 6> starts{bits};  // starts[i]: where runs of 2^i begin
  for (unsigned i = 1; i < starts.size(); ++i) starts[i] = starts[i - 1] & (starts[i - 1] >> (1u << (i - 1)));
  std::uint64_t length = 0;
  std::uint64_t found = ~std::uint64_t{0};
  for (unsigned i = starts.size(); i-- > 0;) {
    const std::uint64_t longer = found & (starts[i] >> length);
    if (longer == 0) continue;
    found = longer;
    length += std::uint64_t{1} << i;
  }
  return length;
}

}  // namespace

slot_allocator::slot_allocator(std::uint64_t capacity_slots) : capacity_slots_(capacity_slots) {
  FAR_CHECK(capacity_slots > 0 && capacity_slots <= maximum_capacity_slots, "capacity of a slot map out of range");
  node_counts_[0] = (capacity_slots + word_slots - 1) / word_slots;
  memory_bytes_ = node_counts_[0] * sizeof(std::uint64_t);
  do {
    ++levels_;
    node_counts_[levels_] = (node_counts_[levels_ - 1] + fanout - 1) / fanout;
    memory_bytes_ += node_counts_[levels_] * sizeof(summary);
  } while (node_counts_[levels_] > 1);
  memory_ = platform::map_local(memory_bytes_);
  words_ = reinterpret_cast<std::uint64_t*>(memory_);
  std::byte* next = memory_ + node_counts_[0] * sizeof(std::uint64_t);
  for (unsigned level = 1; level <= levels_; ++level) {
    summaries_[level] = reinterpret_cast<summary*>(next);
    next += node_counts_[level] * sizeof(summary);
  }
}

slot_allocator::~slot_allocator() {
  platform::unmap_local(memory_, memory_bytes_);
}

slot_allocator::summary slot_allocator::summary_of_word(std::uint64_t free_bits) {
  if (free_bits == 0) return {};
  if (free_bits == ~std::uint64_t{0}) return {word_slots, word_slots, word_slots};
  return {static_cast<std::uint64_t>(std::countr_one(free_bits)), longest_run(free_bits),
          static_cast<std::uint64_t>(std::countl_one(free_bits))};
}

slot_allocator::summary slot_allocator::summary_of(unsigned level, std::uint64_t node) const {
  return level == 0 ? summary_of_word(words_[node]) : summaries_[level][node];
}

slot_allocator::summary slot_allocator::merge_children(unsigned level, std::uint64_t node) const {
  const std::uint64_t child_slots = slots_of_node(level - 1);
  const std::uint64_t first = node * fanout;
  const std::uint64_t end = std::min(first + fanout, node_counts_[level - 1]);
  summary merged = summary_of(level - 1, first);
  for (std::uint64_t child = first + 1; child < end; ++child) {
    const summary next = summary_of(level - 1, child);
    const std::uint64_t before = (child - first) * child_slots;
    merged.longest = std::max({merged.longest, next.longest, merged.at_end + next.at_start});
    if (merged.at_start == before) merged.at_start += next.at_start;
    merged.at_end = next.at_end == child_slots ? merged.at_end + child_slots : next.at_end;
  }
  // The part of the last node that lies beyond the capacity is never free.
  if (end - first < fanout) merged.at_end = 0;
  return merged;
}

void slot_allocator::update_summaries(std::uint64_t first_word, std::uint64_t last_word) {
  std::uint64_t first = first_word;
  std::uint64_t last = last_word;
  for (unsigned level = 1; level <= levels_; ++level) {
    first /= fanout;
    last /= fanout;
    bool changed = false;
    for (std::uint64_t node = first; node <= last; ++node) {
      const summary merged = merge_children(level, node);
      if (merged == summaries_[level][node]) continue;
      summaries_[level][node] = merged;
      changed = true;
    }
    if (!changed) return;
  }
}

void slot_allocator::set_free(slot_id first, std::uint64_t count) {
  for_each_word(first, count, [this](std::uint64_t word, std::uint64_t mask) {
    lock_.assert_held();
    FAR_CHECK((words_[word] & mask) == 0, "a slot that is not allocated was freed");
    words_[word] |= mask;
    return true;
  });
  update_summaries(first / word_slots, (first + count - 1) / word_slots);
}

void slot_allocator::set_allocated(slot_id first, std::uint64_t count) {
  for_each_word(first, count, [this](std::uint64_t word, std::uint64_t mask) {
    lock_.assert_held();
    FAR_CHECK((words_[word] & mask) == mask, "a slot was about to be allocated twice");
    words_[word] &= ~mask;
    return true;
  });
  update_summaries(first / word_slots, (first + count - 1) / word_slots);
}

bool slot_allocator::all_free(slot_id first, std::uint64_t count) const {
  if (first + count > limit_) return false;
  return for_each_word(first, count, [this](std::uint64_t word, std::uint64_t mask) {
    lock_.assert_held();
    return (words_[word] & mask) == mask;
  });
}

std::optional<slot_id> slot_allocator::find_lowest(std::uint64_t count) const {
  if (summaries_[levels_][0].longest < count) return std::nullopt;
  std::uint64_t node = 0;
  for (unsigned level = levels_; level > 0; --level) {
    const std::uint64_t child_slots = slots_of_node(level - 1);
    const std::uint64_t end = std::min((node + 1) * fanout, node_counts_[level - 1]);
    std::uint64_t run = 0;  // free slots just before `child`
    std::uint64_t child = node * fanout;
    for (; child < end; ++child) {
      const summary here = summary_of(level - 1, child);
      if (run + here.at_start >= count) return child * child_slots - run;
      if (here.longest >= count) break;
      run = here.at_end == child_slots ? run + child_slots : here.at_end;
    }
    FAR_CHECK(child < end, "a summary promised a run of free slots that is not there");
    node = child;
  }
  // Only a run inside one word, so of at most 62 slots, leads here: longer ones touch the word's beginning or end.
  const std::uint64_t starts = starts_of_runs(words_[node], count);
  FAR_CHECK(starts != 0, "a summary promised a run of free slots that is not there");
  return node * word_slots + static_cast<std::uint64_t>(std::countr_zero(starts));
}

void slot_allocator::extend(std::uint64_t new_limit) {
  const lock_guard guard(lock_);
  FAR_CHECK(new_limit >= limit_ && new_limit <= capacity_slots_, "a slot map cannot be extended to there");
  if (new_limit == limit_) return;
  const slot_id first = limit_;
  limit_ = new_limit;
  set_free(first, new_limit - first);
}

std::optional<slot_id> slot_allocator::allocate(std::size_t count) {
  FAR_CHECK(count > 0, "an allocation of no slots");
  const lock_guard guard(lock_);
  std::optional<slot_id> first;
  if (all_free(next_, count)) {
    first = next_;
  } else {
    first = find_lowest(count);
  }
  if (!first) return std::nullopt;
  set_allocated(*first, count);
  used_ += count;
  next_ = *first + count;
  return first;
}

bool slot_allocator::is_scattered() const {
  const lock_guard guard(lock_);
  return limit_ - used_ > used_ / 2 + least_scattered_slots;
}

bool slot_allocator::claim(slot_id first, std::size_t count) {
  FAR_CHECK(count > 0, "an allocation of no slots");
  const lock_guard guard(lock_);
  if (!all_free(first, count)) return false;
  set_allocated(first, count);
  used_ += count;
  return true;
}

void slot_allocator::free(slot_id first, std::size_t count) {
  FAR_CHECK(count > 0, "no slots to free");
  const lock_guard guard(lock_);
  FAR_CHECK(count <= limit_ && first <= limit_ - count, "a slot that does not exist was freed");
  set_free(first, count);
  used_ -= count;
}

void slot_allocator::begin_again_in_child() {
  lock_.open_in_child();
  lock_.assert_held();  // the child has one thread until its claims are closed
  for (std::uint64_t word = 0; word < limit_ / word_slots; ++word) words_[word] = ~std::uint64_t{0};
  if (limit_ % word_slots != 0) words_[limit_ / word_slots] = bits_between(0, limit_ % word_slots);
  used_ = 0;
  next_ = 0;
}

void slot_allocator::claim_in_child(slot_id slot) {
  lock_.assert_held();  // the child has one thread
  const std::uint64_t bit = std::uint64_t{1} << slot % word_slots;
  FAR_CHECK(slot < limit_ && (words_[slot / word_slots] & bit) != 0, "a slot is claimed once");
  words_[slot / word_slots] &= ~bit;
  ++used_;
}

void slot_allocator::end_claims_in_child() {
  lock_.assert_held();  // the child has one thread
  std::uint64_t nodes = (limit_ + word_slots - 1) / word_slots;
  for (unsigned level = 1; level <= levels_ && nodes > 0; ++level) {
    nodes = (nodes + fanout - 1) / fanout;
    for (std::uint64_t node = 0; node < nodes; ++node) summaries_[level][node] = merge_children(level, node);
  }
}

bool slot_allocator::all_allocated(slot_id first, std::size_t count) const {
  const lock_guard guard(lock_);
  if (count > limit_ || first > limit_ - count) return false;
  return for_each_word(first, count, [this](std::uint64_t word, std::uint64_t mask) {
    lock_.assert_held();
    return (words_[word] & mask) == 0;
  });
}

std::uint64_t slot_allocator::limit() const {
  const lock_guard guard(lock_);
  return limit_;
}

std::uint64_t slot_allocator::used() const {
  const lock_guard guard(lock_);
  return used_;
}

std::uint64_t slot_allocator::free_at_end() const {
  const lock_guard guard(lock_);
  std::uint64_t length = 0;
  for (slot_id end = limit_; end > 0;) {
    const std::uint64_t in_word = (end - 1) % word_slots + 1;
    const std::uint64_t word = words_[(end - 1) / word_slots] << (word_slots - in_word);
    const std::uint64_t run = std::min<std::uint64_t>(static_cast<std::uint64_t>(std::countl_one(word)), in_word);
    length += run;
    if (run < in_word) break;
    end -= in_word;
  }
  return length;
}

void slot_allocator::validate() const {
  const lock_guard guard(lock_);
  std::uint64_t free_slots = 0;
  const std::uint64_t words = (limit_ + word_slots - 1) / word_slots;
  for (std::uint64_t word = 0; word < words; ++word) {
    free_slots += static_cast<std::uint64_t>(std::popcount(words_[word]));
  }
  FAR_CHECK(free_slots + used_ == limit_, "used slots and free slots do not add up");
  if (limit_ % word_slots != 0) {
    FAR_CHECK((words_[limit_ / word_slots] & bits_between(limit_ % word_slots, word_slots)) == 0,
              "a slot beyond the limit is free");
  }
  std::uint64_t nodes = words;
  for (unsigned level = 1; level <= levels_; ++level) {
    nodes = (nodes + fanout - 1) / fanout;
    for (std::uint64_t node = 0; node < nodes; ++node) {
      FAR_CHECK(merge_children(level, node) == summaries_[level][node], "a summary does not match the slots below it");
    }
  }
}

}  // namespace far::backend
