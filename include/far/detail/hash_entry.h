// The entry of far::hash_map for a key and its value: one far object.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "far/relocatable.h"
#include "far/string.h"
#include "far/tag.h"

namespace far {

// The default of far::hash_map: std::hash, and for far::string one that takes all kinds of strings.
template <typename K>
struct hash : std::hash<K> {};
template <>
struct hash<string> : string_hash {};

namespace detail {

// Constructs a T from the arguments, or from a tag and the arguments if the type needs to know where it lives.
template <typename T, typename... Arguments>
concept constructible_in =
    std::constructible_from<T, Arguments...> || std::constructible_from<T, const tag&, Arguments...>;
template <typename T, typename... Arguments>
[[nodiscard]] T construct_in([[maybe_unused]] const tag& in, Arguments&&... arguments) {
  if constexpr (std::constructible_from<T, Arguments...>) {
    return T(std::forward<Arguments>(arguments)...);
  } else {
    return T(in, std::forward<Arguments>(arguments)...);
  }
}

// Whether objects of the type own further far memory, and say how much.
template <typename T>
concept owns_bytes = requires(const T& object) {
  { object.owned_bytes() } -> std::convertible_to<std::size_t>;
};
template <typename T>
[[nodiscard]] std::size_t owned_bytes_of([[maybe_unused]] const T& object) {
  if constexpr (owns_bytes<T>) {
    return object.owned_bytes();
  } else {
    return 0;
  }
}

struct nothing_counted {};

template <typename K, typename V>
struct hash_entry {
  static constexpr bool weighs_alike = !owns_bytes<K> && !owns_bytes<V>;

  K key;
  V value;
  // What the map counts for it, if entries differ in weight. A user of find_mut() may have changed what it weighs.
  [[no_unique_address]] std::conditional_t<weighs_alike, nothing_counted, std::size_t> counted{};

  template <typename Q, typename... Arguments>
  hash_entry(const tag& in, Q&& of_key, Arguments&&... of_value)
      : key(construct_in<K>(in, std::forward<Q>(of_key))),
        value(construct_in<V>(in, std::forward<Arguments>(of_value)...)) {
    if constexpr (!weighs_alike) counted = weight();
  }

  // With its header, in whole units.
  static constexpr std::size_t own_bytes(std::size_t bytes) {
    return (bytes + sizeof(std::uint64_t) + unit_bytes - 1) & ~(unit_bytes - 1);
  }
  [[nodiscard]] std::size_t weight() const {
    return own_bytes(sizeof(hash_entry)) + owned_bytes_of(key) + owned_bytes_of(value);
  }
  [[nodiscard]] std::size_t counted_weight() const {
    if constexpr (weighs_alike) return own_bytes(sizeof(hash_entry));
    if constexpr (!weighs_alike) return counted;
  }
};

// The type of a copy of a value, and the way to make one.
template <typename V>
struct copied {
  using type = V;
  static const V& copy(const V& value) { return value; }
};
template <>
struct copied<string> {
  using type = std::string;
  static std::string copy(const string& value) { return value.str(); }
};
template <typename V>
concept can_be_copied =
    std::constructible_from<typename copied<V>::type, decltype(copied<V>::copy(std::declval<const V&>()))>;

}  // namespace detail

template <typename K, typename V>
  requires(is_relocatable<K> && is_relocatable<V>)
inline constexpr bool is_relocatable<detail::hash_entry<K, V>> = true;

template <typename K, typename V>
  requires(relocatable<K> && relocatable<V> && (detail::has_far_pointers<K> || detail::has_far_pointers<V>))
struct pointers_of<detail::hash_entry<K, V>> {
  static void visit(detail::hash_entry<K, V>& in, auto&& pointer) {
    if constexpr (detail::has_far_pointers<K>) pointer(in.key);
    if constexpr (detail::has_far_pointers<V>) pointer(in.value);
  }
};

}  // namespace far
