// The types that may lie in the far heap: those whose objects can be moved by copying their bytes.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "far/detail/type.h"

namespace far {

// Whether an object of type T can be moved by copying its bytes, without its constructors and destructor ("trivially
// relocatable"), and has no far pointers in it. True for trivially copyable types, and for std::unique_ptr, shared_ptr,
// weak_ptr and vector; for arrays, std::array, optional, pair, tuple and variant if it is true for their elements.
// Specialise it for a type of your own:
//
//     struct person { std::vector<char> name; std::unique_ptr<photo> face; };
//     template <>
//     inline constexpr bool far::is_relocatable<person> = far::relocatable_members<&person::name, &person::face>;
//
// A type that points into itself must not claim it. libstdc++'s std::string does point into itself.
template <typename T>
inline constexpr bool is_relocatable = std::is_trivially_copyable_v<T>;

namespace detail {

template <typename Pointer>
struct type_of_member;
template <typename Member, typename Whole>
struct type_of_member<Member Whole::*> {
  using type = Member;
};

}  // namespace detail

// Whether the members that these point to are relocatable. For specialisations of is_relocatable: name all members.
template <auto... Members>
inline constexpr bool relocatable_members =
    (is_relocatable<typename detail::type_of_member<decltype(Members)>::type> && ...);

template <typename T>
  requires(!std::is_trivially_copyable_v<const T>)
inline constexpr bool is_relocatable<const T> = is_relocatable<T>;
template <typename T, std::size_t Count>
  requires(!std::is_trivially_copyable_v<T[Count]>)
inline constexpr bool is_relocatable<T[Count]> = is_relocatable<T>;
template <typename T, typename Deleter>
inline constexpr bool is_relocatable<std::unique_ptr<T, Deleter>> =
    std::is_trivially_copyable_v<Deleter> &&
    std::is_trivially_copyable_v<typename std::unique_ptr<T, Deleter>::pointer>;
template <typename T>
inline constexpr bool is_relocatable<std::shared_ptr<T>> = true;
template <typename T>
inline constexpr bool is_relocatable<std::weak_ptr<T>> = true;
#if !defined(_GLIBCXX_DEBUG)  // there, iterators know where their container is
template <typename T>
inline constexpr bool is_relocatable<std::vector<T>> = true;
#endif
#if defined(_LIBCPP_VERSION)
template <typename Char, typename Traits>
inline constexpr bool is_relocatable<std::basic_string<Char, Traits>> = true;
#endif
template <typename T, std::size_t Count>
  requires(!std::is_trivially_copyable_v<std::array<T, Count>>)
inline constexpr bool is_relocatable<std::array<T, Count>> = is_relocatable<T>;
template <typename T>
  requires(!std::is_trivially_copyable_v<std::optional<T>>)
inline constexpr bool is_relocatable<std::optional<T>> = is_relocatable<T>;
template <typename First, typename Second>
  requires(!std::is_trivially_copyable_v<std::pair<First, Second>>)
inline constexpr bool is_relocatable<std::pair<First, Second>> = is_relocatable<First> && is_relocatable<Second>;
template <typename... Parts>
  requires(!std::is_trivially_copyable_v<std::tuple<Parts...>>)
inline constexpr bool is_relocatable<std::tuple<Parts...>> = (is_relocatable<Parts> && ...);
template <typename... Kinds>
  requires(!std::is_trivially_copyable_v<std::variant<Kinds...>>)
inline constexpr bool is_relocatable<std::variant<Kinds...>> = (is_relocatable<Kinds> && ...);

// Far pointers in arrays, pairs and optionals.
template <typename T, std::size_t Count>
  requires detail::has_far_pointers<T>
struct pointers_of<std::array<T, Count>> {
  static void visit(std::array<T, Count>& in, auto&& pointer) {
    for (T& one : in) pointer(one);
  }
};
template <typename T>
  requires detail::has_far_pointers<T>
struct pointers_of<std::optional<T>> {
  static void visit(std::optional<T>& in, auto&& pointer) {
    if (in) pointer(*in);
  }
};
template <typename First, typename Second>
  requires((detail::has_far_pointers<First> || is_relocatable<First>) &&
           (detail::has_far_pointers<Second> || is_relocatable<Second>) &&
           (detail::has_far_pointers<First> || detail::has_far_pointers<Second>))
struct pointers_of<std::pair<First, Second>> {
  static void visit(std::pair<First, Second>& in, auto&& pointer) {
    if constexpr (detail::has_far_pointers<First>) pointer(in.first);
    if constexpr (detail::has_far_pointers<Second>) pointer(in.second);
  }
};

// A far object has the alignment of its type, up to a page.
inline constexpr std::size_t most_alignment = 4096;

// Types that far pointers may point to: relocatable as above, or with far pointers that they declare (pointers_of).
template <typename T>
concept relocatable = std::is_object_v<T> && !std::is_const_v<T> && alignof(T) <= most_alignment &&
                      (is_relocatable<T> || detail::has_far_pointers<T>);

namespace detail {

template <typename T>
inline constexpr bool is_string = false;
template <typename Char, typename Traits, typename Allocator>
inline constexpr bool is_string<std::basic_string<Char, Traits, Allocator>> = true;

// Says what is wrong with a type that is not relocatable.
template <typename T>
constexpr void require_relocatable() {
  static_assert(!std::is_const_v<T>, "a far object is not const: make a far pointer to T, and use deref() to read it");
  static_assert(alignof(T) <= most_alignment, "far objects are aligned to a page of 4096 bytes at most");
  static_assert(!is_string<T> || relocatable<T>,
                "this library's std::string points into itself, so it cannot be moved by copying its bytes: use "
                "far::unique_ptr<char[]> or std::vector<char>");
  static_assert(relocatable<T>,
                "a far object is moved by copying its bytes: T must be trivially copyable, or declare its far pointers "
                "(far::pointers_of), or say that it can be moved so (far::is_relocatable)");
}

}  // namespace detail
}  // namespace far
