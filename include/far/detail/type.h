// Describes a type whose objects hold far pointers, for the object heap.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace far {

// Specialise it for a type that has far pointers among its members, and is otherwise trivially relocatable: moving an
// object is then a copy of its bytes, after which the pointers' objects are told where their owners are.
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

// Calls `moved` for the word of each far pointer in the object at `at`.
struct type_of_object {
  using word_visitor = void (*)(std::atomic<std::uint64_t>& word, void* context);
  void (*for_each_word)(std::byte* at, word_visitor moved, void* context);
};

}  // namespace detail

// Types that far pointers may point to: their objects can be moved by copying their bytes. True of types that are
// trivially copyable, and of types that declare where their far pointers are (pointers_of). A type with pointers into
// itself must not claim it.
template <typename T>
concept relocatable = std::is_object_v<T> && !std::is_const_v<T> && alignof(T) <= 16 &&
                      (std::is_trivially_copyable_v<T> || detail::has_far_pointers<T>);

}  // namespace far
