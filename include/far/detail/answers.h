// The answers to a question about the numbers of a container (detail/reduction.h), as they come from its pages.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "far/detail/pointer.h"
#include "far/detail/reduction.h"
#include "far/detail/visitor.h"

namespace far::detail {

// Is given the index of the first number of a page, how many there are, and the answer about them.
using answer_visitor = visitor<std::size_t, std::size_t, const std::byte*>;

// Of a piece of a container, in the order of its numbers.
class answers {
 public:
  void restart(const reduction& how) {
    answer_words_ = bytes_of_answer(how) / sizeof(std::uint64_t);
    words_.clear();
    bytes_of_numbers_.clear();
  }

  // Until restart().
  [[nodiscard]] answer_sink sink() {
    return {[](void* context, std::size_t bytes, const std::byte* answer) {
              static_cast<answers*>(context)->take(bytes, answer);
            },
            this};
  }

  void visit(std::size_t first, std::size_t number_bytes, const answer_visitor& visit) const {
    const std::uint64_t* at = words_.data();
    for (const std::uint32_t bytes : bytes_of_numbers_) {
      visit(first, bytes / number_bytes, reinterpret_cast<const std::byte*>(at));
      first += bytes / number_bytes;
      at += answer_words_;
    }
  }

 private:
  void take(std::size_t bytes, const std::byte* answer) {
    words_.resize(words_.size() + answer_words_);
    std::memcpy(words_.data() + words_.size() - answer_words_, answer, answer_words_ * sizeof(std::uint64_t));
    bytes_of_numbers_.push_back(static_cast<std::uint32_t>(bytes));
  }

  std::size_t answer_words_ = 0;
  std::vector<std::uint64_t> words_;
  std::vector<std::uint32_t> bytes_of_numbers_;
};

// Calls visit(i) for each number i of `numbers` that is marked.
template <typename Visit>
void visit_marks(const std::byte* marks, std::size_t numbers, const Visit& visit) {
  for (std::size_t first = 0; first < numbers; first += 64) {
    std::uint64_t word = 0;
    std::memcpy(&word, marks + first / 8, (std::min<std::size_t>(numbers - first, 64) + 7) / 8);
    for (; word != 0; word &= word - 1) visit(first + static_cast<std::size_t>(std::countr_zero(word)));
  }
}

// An answer to `values` or `distinct`.
template <reducible T>
struct listed_numbers {
  static constexpr std::size_t most = listed_bytes / sizeof(T);

  explicit listed_numbers(const std::byte* answer) {
    std::memcpy(&count, answer, sizeof count);
    if (count <= most) numbers = {reinterpret_cast<const T*>(answer + sizeof count), count};
  }

  std::uint64_t count = 0;
  std::span<const T> numbers;  // none when they are too many
};

}  // namespace far::detail
