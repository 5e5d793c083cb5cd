// far::unique_ptr: a pointer of 8 bytes that owns an object in the far heap.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "far/detail/pointer.h"
#include "far/scope.h"

namespace far {

namespace detail {

// A word that owns what it points to: what far::unique_ptr to an object and to an array have in common.
template <typename T>
class sole_owner {
 public:
  sole_owner() = default;
  sole_owner(sole_owner&& other) noexcept { move_owner(other.word_, word_); }
  sole_owner& operator=(sole_owner&& other) noexcept {
    if (this != &other) {
      reset();
      move_owner(other.word_, word_);
    }
    return *this;
  }
  ~sole_owner() { reset(); }

  // Destroys what it owns. Fetches it first if its destructor does anything.
  void reset() noexcept { destroy<T>(word_); }

  [[nodiscard]] explicit operator bool() const noexcept { return word_.load(std::memory_order_relaxed) != 0; }

  // Starts to bring the object in; does not wait. Returns false when too much is under way already. Requires: if the
  // pointer is part of a far object, that is dereferenced in a scope that is open.
  bool prefetch() const { return detail::prefetch(word_); }

  // For pointers_of.
  void visit_word(type_of_object::word_visitor visit, void* context) { visit(word_, context); }

 protected:
  mutable owner_word word_{0};
};

}  // namespace detail

// Owns one object, wherever its bytes are (AIFM, section 4.1). It may be dereferenced from many fibers and threads at a
// time, also while the runtime moves the object; it is moved, reset and destroyed by one, while nobody else uses it. It
// may itself be part of a far object (pointers_of).
template <typename T>
class unique_ptr : public detail::sole_owner<T> {
 public:
  unique_ptr() = default;
  unique_ptr(std::nullptr_t) {}

  // The object, for as long as the scope lasts. Waits for it when it is remote; on a fiber, others run meanwhile.
  // Requires: it points to an object; `in` is open, of the calling fiber or thread, and of the object's runtime.
  [[nodiscard]] const T& deref(const scope& in) const { return *at(in.reach(word_, false, true)); }
  [[nodiscard]] T& deref_mut(const scope& in) { return *at(in.reach(word_, true, true)); }
  [[nodiscard]] const T& deref(const scope& in, non_temporal_t /*how*/) const {
    return *at(in.reach(word_, false, false));
  }
  [[nodiscard]] T& deref_mut(const scope& in, non_temporal_t /*how*/) { return *at(in.reach(word_, true, false)); }

  // A copy of the object, without a scope; and the other way round.
  [[nodiscard]] T read() const
    requires std::is_trivially_copyable_v<T>
  {
    return deref(scope(detail::runtime_of(word_)));
  }
  void write(const T& value)
    requires std::is_trivially_copyable_v<T>
  {
    deref_mut(scope(detail::runtime_of(word_))) = value;
  }
  [[nodiscard]] T read(non_temporal_t how) const
    requires std::is_trivially_copyable_v<T>
  {
    return deref(scope(detail::runtime_of(word_)), how);
  }
  void write(const T& value, non_temporal_t how)
    requires std::is_trivially_copyable_v<T>
  {
    deref_mut(scope(detail::runtime_of(word_)), how) = value;
  }

 private:
  template <typename U, typename... Arguments>
    requires(!std::is_array_v<U>)
  friend unique_ptr<U> make_unique(const tag& in, Arguments&&... arguments);

  [[nodiscard]] static T* at(std::byte* address) { return std::launder(reinterpret_cast<T*>(address)); }

  using detail::sole_owner<T>::word_;
};

// An array of run-time size.
template <typename T>
class unique_ptr<T[]> : public detail::sole_owner<T> {
  static_assert(relocatable<T> && std::is_trivially_copyable_v<T>, "elements of far arrays are trivially copyable");

 public:
  unique_ptr() = default;
  unique_ptr(std::nullptr_t) {}

  // As for one object. Of an array above 64 KiB only the beginning is fetched and held; the rest comes in when it is
  // touched, and may leave again during the scope, but never moves.
  [[nodiscard]] std::span<const T> deref(const scope& in) const { return whole(in.reach(word_, false, true)); }
  [[nodiscard]] std::span<T> deref_mut(const scope& in) { return whole(in.reach(word_, true, true)); }
  [[nodiscard]] std::span<const T> deref(const scope& in, non_temporal_t /*how*/) const {
    return whole(in.reach(word_, false, false));
  }
  [[nodiscard]] std::span<T> deref_mut(const scope& in, non_temporal_t /*how*/) {
    return whole(in.reach(word_, true, false));
  }

  // Copies elements out, from `first` on, or in. Requires: first + the span's size <= the array's size.
  void read(std::size_t first, std::span<T> into) const {
    const scope here(detail::runtime_of(word_));
    const std::span<const T> from = deref(here).subspan(first, into.size());
    std::copy(from.begin(), from.end(), into.begin());
  }
  void write(std::size_t first, std::span<const T> from) {
    const scope here(detail::runtime_of(word_));
    std::copy(from.begin(), from.end(), deref_mut(here).subspan(first, from.size()).begin());
  }

 private:
  template <typename U>
    requires std::is_unbounded_array_v<U>
  friend unique_ptr<U> make_unique(const tag& in, std::size_t count);

  [[nodiscard]] std::span<T> whole(std::byte* address) const {
    return {std::launder(reinterpret_cast<T*>(address)), detail::bytes_of(word_) / sizeof(T)};
  }

  using detail::sole_owner<T>::word_;
};

// Makes an object in the far heap of a runtime: `in` is the runtime, or one of its tags. Waits for the evictor when
// local memory is short. Throws std::bad_alloc when the far heap's addresses run out, and what the constructor throws.
template <typename T, typename... Arguments>
  requires(!std::is_array_v<T>)
[[nodiscard]] unique_ptr<T> make_unique(const tag& in, Arguments&&... arguments) {
  static_assert(relocatable<T>, "a far object is moved by copying its bytes: see far::relocatable");
  detail::give_way(in);
  const scope here(in.home());
  unique_ptr<T> pointer;
  std::byte* const at = detail::allocate(in, pointer.word_, sizeof(T), detail::type_of<T>());
  try {
    new (at) T(std::forward<Arguments>(arguments)...);
  } catch (...) {
    detail::release(pointer.word_);
    throw;
  }
  return pointer;
}

// An array of `count` value-initialised elements.
template <typename T>
  requires std::is_unbounded_array_v<T>
[[nodiscard]] unique_ptr<T> make_unique(const tag& in, std::size_t count) {
  using element = std::remove_extent_t<T>;
  if (count > (std::size_t{1} << 46) / sizeof(element)) throw std::bad_array_new_length();
  detail::give_way(in);
  const scope here(in.home());
  unique_ptr<T> pointer;
  std::byte* const at = detail::allocate(in, pointer.word_, std::max<std::size_t>(count * sizeof(element), 1), nullptr);
  // Pages of large arrays are zeros already; to write them would bring them all in.
  if (count * sizeof(element) <= 4096 || !std::is_trivially_default_constructible_v<element>) {
    std::uninitialized_value_construct_n(reinterpret_cast<element*>(at), count);
  }
  return pointer;
}

// Starts to bring in what these point to, without waiting; null pointers are allowed.
template <typename T>
void prefetch(std::span<const unique_ptr<T>> pointers) {
  for (const unique_ptr<T>& pointer : pointers) {
    if (pointer) static_cast<void>(pointer.prefetch());
  }
}

}  // namespace far
