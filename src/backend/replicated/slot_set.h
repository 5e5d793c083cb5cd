// A set of the slots of one group, as a bitmap.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace far::backend {

// Slots are placed, copied and given back in groups of this many adjacent ones: 2 MiB.
inline constexpr std::uint64_t group_slots = 512;

// All zero bytes: the empty set.
class slot_set {
 public:
  // The slots [first, first + count). Requires: first + count <= group_slots.
  [[nodiscard]] static slot_set range(std::size_t first, std::size_t count) {
    slot_set set;
    for (std::size_t word = first / word_bits; word * word_bits < first + count; ++word) {
      const std::size_t begin = word * word_bits < first ? first - word * word_bits : 0;
      const std::size_t end = first + count - word * word_bits;
      if (count == 0) break;
      set.words_[word] = all >> begin << begin;
      if (end < word_bits) set.words_[word] &= ~(all << end);
    }
    return set;
  }
  [[nodiscard]] static slot_set everything() { return range(0, group_slots); }

  [[nodiscard]] bool contains(std::size_t slot) const {
    return (words_[slot / word_bits] >> slot % word_bits & 1) != 0;
  }
  [[nodiscard]] bool empty() const {
    std::uint64_t any = 0;
    for (const std::uint64_t word : words_) any |= word;
    return any == 0;
  }
  [[nodiscard]] std::size_t size() const {
    std::size_t sum = 0;
    for (const std::uint64_t word : words_) sum += static_cast<std::size_t>(std::popcount(word));
    return sum;
  }
  // The first member at or after `from`; group_slots when there is none. Requires: from <= group_slots.
  [[nodiscard]] std::size_t next(std::size_t from) const {
    for (std::size_t word = from / word_bits; word < words_.size(); ++word) {
      const std::uint64_t left = word == from / word_bits ? words_[word] & (all << from % word_bits) : words_[word];
      if (left != 0) return word * word_bits + static_cast<std::size_t>(std::countr_zero(left));
    }
    return group_slots;
  }
  // How many adjacent members begin at `from`.
  [[nodiscard]] std::size_t run_from(std::size_t from) const { return (~*this).next(from) - from; }

  slot_set& operator|=(const slot_set& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
    return *this;
  }
  slot_set& operator&=(const slot_set& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] &= other.words_[i];
    return *this;
  }
  [[nodiscard]] slot_set operator~() const {
    slot_set set;
    for (std::size_t i = 0; i < words_.size(); ++i) set.words_[i] = ~words_[i];
    return set;
  }
  [[nodiscard]] friend slot_set operator|(slot_set a, const slot_set& b) { return a |= b; }
  [[nodiscard]] friend slot_set operator&(slot_set a, const slot_set& b) { return a &= b; }
  // The slots of `a` that are not in `b`.
  [[nodiscard]] friend slot_set operator-(slot_set a, const slot_set& b) { return a &= ~b; }
  bool operator==(const slot_set&) const = default;

 private:
  static constexpr std::size_t word_bits = 64;
  static constexpr std::uint64_t all = ~std::uint64_t{0};
  std::array<std::uint64_t, group_slots / word_bits> words_{};
};

}  // namespace far::backend
