// What callers of containers get wrong about indices and lengths, and the exceptions for it.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace far::detail {

[[noreturn, gnu::noinline, gnu::cold]] inline void throw_out_of_range(std::size_t index, std::size_t size) {
  throw std::out_of_range("index " + std::to_string(index) + " of a far container that has " + std::to_string(size) +
                          " elements");
}
[[noreturn, gnu::noinline, gnu::cold]] inline void throw_too_long() {
  throw std::length_error("a far container of more elements than there are addresses");
}
[[noreturn, gnu::noinline, gnu::cold]] inline void throw_unequal(const char* call, std::size_t asked,
                                                                 std::size_t values) {
  throw std::invalid_argument(std::string(call) + ": " + std::to_string(asked) +
                              " elements are asked for, and the range of values has " + std::to_string(values));
}

// There are elements from `first` on, `count` of `size`.
inline void require_range(std::size_t first, std::size_t count, std::size_t size) {
  if (first > size || count > size - first) throw_out_of_range(first > size ? first : first + count - 1, size);
}
// Two ranges belong together, element by element.
inline void require_equal(const char* call, std::size_t asked, std::size_t values) {
  if (asked != values) throw_unequal(call, asked, values);
}
// A range has a place for each of those that are asked for.
inline void require_room(const char* call, std::size_t asked, std::size_t values) {
  if (values < asked) throw_unequal(call, asked, values);
}

}  // namespace far::detail
