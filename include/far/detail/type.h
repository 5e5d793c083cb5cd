// Describes a type whose objects hold far pointers, for the object heap.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace far {

// Specialise it for a type that has far pointers among its members, and is otherwise trivially relocatable
// (far/relocatable.h): an object is then moved by copying its bytes, after which the objects of its pointers learn
// where their owners are. `pointer` takes far pointers, members of types that have a pointers_of themselves, and
// arrays.
// Each far pointer is named once. Checked builds (far/scope.h) stop the program with a message where one is left out,
// or named twice.
//
//     template <>
//     struct far::pointers_of<node> {
//       static void visit(node& in, auto&& pointer) { pointer(in.next); pointer(in.value); }
//     };
template <typename T>
struct pointers_of;

namespace detail {

struct visitor_probe {
  template <typename P>
  void operator()(P&) const {}
};

template <typename T>
concept has_far_pointers = requires(T& object) { pointers_of<T>::visit(object, visitor_probe{}); };

class object_heap;

// Calls `moved` for the word of each far pointer in the object at `at`, or in the objects of an array of so many bytes.
struct type_of_object {
  using word_visitor = void (*)(std::atomic<std::uint64_t>& word, void* context);
  void (*for_each_word)(std::byte* at, std::size_t bytes, word_visitor moved, void* context);
  const char* described;                        // the type's name among other words of the compiler's, for messages
  mutable std::atomic<std::uint8_t> number{0};  // the heap's own, or another copy's of its library
};

// The far pointer that `found` is, or those that it contains.
template <typename P>
void visit_words(P& found, type_of_object::word_visitor moved, void* context) {
  if constexpr (std::is_array_v<P>) {
    for (auto& one : found) visit_words(one, moved, context);
  } else if constexpr (requires { found.visit_word(moved, context); }) {
    found.visit_word(moved, context);
  } else {
    pointers_of<P>::visit(found, [&](auto& inner) { visit_words(inner, moved, context); });
  }
}

}  // namespace detail
}  // namespace far
