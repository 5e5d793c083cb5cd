// far::unique_ptr: a pointer of 8 bytes that owns an object in the far heap.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include "far/detail/array.h"
#include "far/detail/pointer.h"
#include "far/scope.h"

namespace far {

namespace detail {

// A word that owns its target: the common part of far::unique_ptr to an object and to an array.
template <typename T>
class sole_owner {
 public:
  sole_owner() = default;
  sole_owner(sole_owner&& other) noexcept { move_owner(other.word_, word_); }
  sole_owner& operator=(sole_owner&& other) noexcept {
    // `other` may be a part of what is destroyed: the rest of a list.
    sole_owner taken(std::move(other));
    reset();
    take(taken.word_);
    return *this;
  }
  ~sole_owner() { destroy<T>(word_); }

  // Destroys the object. Fetches it first if its destructor does anything; the destructor finds this pointer null
  // already.
  void reset() noexcept {
    if constexpr (std::is_trivially_destructible_v<std::remove_extent_t<T>>) {
      destroy<T>(word_);
    } else if (*this) {
      const sole_owner last(std::move(*this));
    }
  }

  [[nodiscard]] explicit operator bool() const noexcept { return read_word(word_) != 0; }

  // Starts to fetch the object, without waiting; of an array of more than a page whose first page is local, what is
  // missing of its first 4 MiB. Returns false when too much is under way already. Requires: if the
  // pointer is part of a far object, that is dereferenced in a scope that is open.
  bool prefetch() const { return detail::prefetch(word_); }

  // For pointers_of.
  void visit_word(type_of_object::word_visitor visit, void* context) { visit(word_, context); }

 protected:
  void take(owner_word& other) noexcept { move_owner(other, word_); }
  void swap_with(sole_owner& other) noexcept {
    sole_owner mine(std::move(*this));
    take(other.word_);
    other.take(mine.word_);
  }

  mutable owner_word word_{0};
};

}  // namespace detail

template <typename T>
class shared_ptr;

// Owns one object, wherever its bytes are (AIFM, section 4.1). Many fibers and threads may dereference it at a time,
// also while the runtime moves the object. Only one may move, reset or destroy it, while nobody else uses it. It may
// itself be part of a far object (pointers_of).
//
// The object that it owns is a part of it, as with std::experimental::propagate_const: a const pointer gives access to
// a const object only. Writers say so (deref_mut), and objects that are only read need not be written back.
//
// Two pointers that are not null never own the same object, so a pointer is equal only to itself. There is no hash and
// no order: an object's address changes when it moves, and so does the pointer's. far::shared_ptr has both.
template <typename T>
class unique_ptr : public detail::sole_owner<T> {
 public:
  unique_ptr() = default;
  unique_ptr(std::nullptr_t) {}
  // Converts a pointer to a class to one to its base. The base must begin where the whole begins, and be able to
  // destroy it: by a virtual destructor, or because there is nothing to destroy.
  template <typename Derived>
    requires detail::owned_as<Derived, T>
  unique_ptr(unique_ptr<Derived>&& other) noexcept {
    this->take(other.word_);
  }

  void swap(unique_ptr& other) noexcept { this->swap_with(other); }
  friend void swap(unique_ptr& a, unique_ptr& b) noexcept { a.swap(b); }
  template <typename U>
  [[nodiscard]] bool operator==(const unique_ptr<U>& other) const noexcept {
    return static_cast<const void*>(this) == &other || (!*this && !other);
  }
  [[nodiscard]] bool operator==(std::nullptr_t) const noexcept { return !*this; }

  // The object, for as long as the scope lasts. Waits for it when it is remote; on a fiber, others run meanwhile.
  // Requires: it points to an object; `in` is open, of the calling fiber or thread, and of the object's runtime.
  [[nodiscard]] const T& deref(const scope& in) const { return *at(in.reach(word_, false, true)); }
  [[nodiscard]] T& deref_mut(const scope& in) { return *at(in.reach(word_, true, true)); }
  [[nodiscard]] const T& deref(const scope& in, non_temporal_t /*how*/) const {
    return *at(in.reach(word_, false, false));
  }
  [[nodiscard]] T& deref_mut(const scope& in, non_temporal_t /*how*/) { return *at(in.reach(word_, true, false)); }
  template <typename... How>
  const T& deref(const scope&& the_scope_must_be_a_local_variable, How...) const = delete;
  template <typename... How>
  T& deref_mut(const scope&& the_scope_must_be_a_local_variable, How...) = delete;

  // The same for a pointer that may be null: nullptr if it is. Where there is an object, this costs no more than
  // deref(), so a walk that ends at a null pointer saves the test of each.
  [[nodiscard]] const T* get(const scope& in) const { return at_or_null(in.reach_or_null(word_, false, true)); }
  [[nodiscard]] T* get_mut(const scope& in) { return at_or_null(in.reach_or_null(word_, true, true)); }
  [[nodiscard]] const T* get(const scope& in, non_temporal_t /*how*/) const {
    return at_or_null(in.reach_or_null(word_, false, false));
  }
  [[nodiscard]] T* get_mut(const scope& in, non_temporal_t /*how*/) {
    return at_or_null(in.reach_or_null(word_, true, false));
  }
  template <typename... How>
  const T* get(const scope&& the_scope_must_be_a_local_variable, How...) const = delete;
  template <typename... How>
  T* get_mut(const scope&& the_scope_must_be_a_local_variable, How...) = delete;

  // Copy the object out or in, without a scope.
  [[nodiscard]] T read() const
    requires std::is_trivially_copyable_v<T>
  {
    const scope here(detail::runtime_of(word_));
    return deref(here);
  }
  void write(const T& value)
    requires std::is_trivially_copyable_v<T>
  {
    const scope here(detail::runtime_of(word_));
    deref_mut(here) = value;
  }
  [[nodiscard]] T read(non_temporal_t how) const
    requires std::is_trivially_copyable_v<T>
  {
    const scope here(detail::runtime_of(word_));
    return deref(here, how);
  }
  void write(const T& value, non_temporal_t how)
    requires std::is_trivially_copyable_v<T>
  {
    const scope here(detail::runtime_of(word_));
    deref_mut(here, how) = value;
  }

 private:
  template <typename>
  friend class unique_ptr;
  template <typename>
  friend class shared_ptr;
  template <typename U, typename... Arguments>
    requires(!std::is_array_v<U>)
  friend unique_ptr<U> make_unique(const tag& in, Arguments&&... arguments);

  [[nodiscard]] static T* at(std::byte* address) { return std::launder(reinterpret_cast<T*>(address)); }
  [[nodiscard]] static T* at_or_null(std::byte* address) {
    if (address == nullptr) return nullptr;
    T* const object = at(address);
    if (object == nullptr) __builtin_unreachable();  // so that callers do not test it again
    return object;
  }

  using detail::sole_owner<T>::word_;
};

// An array of run-time size. A null pointer is an array without elements.
template <typename T>
class unique_ptr<T[]> : public detail::sole_owner<T[]> {
 public:
  unique_ptr() = default;
  unique_ptr(std::nullptr_t) {}

  void swap(unique_ptr& other) noexcept { this->swap_with(other); }
  friend void swap(unique_ptr& a, unique_ptr& b) noexcept { a.swap(b); }
  [[nodiscard]] bool operator==(const unique_ptr& other) const noexcept { return this == &other || (!*this && !other); }
  [[nodiscard]] bool operator==(std::nullptr_t) const noexcept { return !*this; }

  // How many elements it has. Fetches a small array to find out.
  [[nodiscard]] std::size_t size() const { return detail::count_elements<T>(word_); }

  // As for one object. Of an array above 64 KiB only the beginning is fetched and held; the rest comes in when it is
  // touched, and may leave again during the scope, but never moves.
  [[nodiscard]] std::span<const T> deref(const scope& in) const {
    return detail::all_elements<const T>(in, word_, false, true);
  }
  [[nodiscard]] std::span<T> deref_mut(const scope& in) { return detail::all_elements<T>(in, word_, true, true); }
  [[nodiscard]] std::span<const T> deref(const scope& in, non_temporal_t /*how*/) const {
    return detail::all_elements<const T>(in, word_, false, false);
  }
  [[nodiscard]] std::span<T> deref_mut(const scope& in, non_temporal_t /*how*/) {
    return detail::all_elements<T>(in, word_, true, false);
  }
  // One element. Of an array above a page, only its page is fetched and held. Requires: index < size().
  [[nodiscard]] const T& deref(const scope& in, std::size_t index) const {
    return detail::element<const T>(in, word_, index, false, true);
  }
  [[nodiscard]] T& deref_mut(const scope& in, std::size_t index) {
    return detail::element<T>(in, word_, index, true, true);
  }
  [[nodiscard]] const T& deref(const scope& in, std::size_t index, non_temporal_t /*how*/) const {
    return detail::element<const T>(in, word_, index, false, false);
  }
  [[nodiscard]] T& deref_mut(const scope& in, std::size_t index, non_temporal_t /*how*/) {
    return detail::element<T>(in, word_, index, true, false);
  }
  template <typename... How>
  std::span<const T> deref(const scope&& the_scope_must_be_a_local_variable, How...) const = delete;
  template <typename... How>
  std::span<T> deref_mut(const scope&& the_scope_must_be_a_local_variable, How...) = delete;

  // Copies one element out or in. Of an array above a page, only its page is fetched. Requires: index < size().
  [[nodiscard]] T read(std::size_t index) const
    requires std::is_trivially_copyable_v<T>
  {
    const scope here(detail::runtime_of(word_));
    return deref(here, index);
  }
  void write(std::size_t index, const T& value)
    requires std::is_trivially_copyable_v<T>
  {
    const scope here(detail::runtime_of(word_));
    deref_mut(here, index) = value;
  }
  [[nodiscard]] T read(std::size_t index, non_temporal_t how) const
    requires std::is_trivially_copyable_v<T>
  {
    const scope here(detail::runtime_of(word_));
    return deref(here, index, how);
  }
  void write(std::size_t index, const T& value, non_temporal_t how)
    requires std::is_trivially_copyable_v<T>
  {
    const scope here(detail::runtime_of(word_));
    deref_mut(here, index, how) = value;
  }
  // Copies several from `first` on, likewise only their pages. Throws std::out_of_range when there are not so many.
  void read(std::size_t first, std::span<T> into) const
    requires std::is_trivially_copyable_v<T>
  {
    detail::copy_out<T>(word_, first, into, true);
  }
  void write(std::size_t first, std::span<const T> from)
    requires std::is_trivially_copyable_v<T>
  {
    detail::copy_in<T>(word_, first, from, true);
  }
  void read(std::size_t first, std::span<T> into, non_temporal_t /*how*/) const
    requires std::is_trivially_copyable_v<T>
  {
    detail::copy_out<T>(word_, first, into, false);
  }
  void write(std::size_t first, std::span<const T> from, non_temporal_t /*how*/)
    requires std::is_trivially_copyable_v<T>
  {
    detail::copy_in<T>(word_, first, from, false);
  }

 private:
  template <typename>
  friend class shared_ptr;
  template <typename U>
    requires std::is_unbounded_array_v<U>
  friend unique_ptr<U> make_unique(const tag& in, std::size_t count);
  template <typename U>
    requires std::is_unbounded_array_v<U>
  friend unique_ptr<U> make_unique(const tag& in, non_temporal_t how, std::size_t count);

  using detail::sole_owner<T[]>::word_;
};

template <typename T>
struct pointers_of<unique_ptr<T>> {
  static void visit(unique_ptr<T>& in, auto&& pointer) { pointer(in); }
};

template <typename T>
inline constexpr bool detail::is_zero_at_first<unique_ptr<T>> = true;

// Makes an object in the far heap of a runtime: `in` is the runtime, or one of its tags. Waits for the evictor when
// local memory is short. Throws std::bad_alloc when the far heap's addresses run out, and what the constructor throws.
// After far::non_temporal the arguments are the others: the object is not worth keeping in local memory.
template <typename T, typename... Arguments>
  requires(!std::is_array_v<T>)
[[nodiscard]] unique_ptr<T> make_unique(const tag& in, Arguments&&... arguments) {
  unique_ptr<T> pointer;
  detail::make_object<T>(in, pointer.word_, std::forward<Arguments>(arguments)...);
  return pointer;
}

// An array of `count` value-initialised elements.
template <typename T>
  requires std::is_unbounded_array_v<T>
[[nodiscard]] unique_ptr<T> make_unique(const tag& in, std::size_t count) {
  unique_ptr<T> pointer;
  detail::make_array<std::remove_extent_t<T>>(in, pointer.word_, count);
  return pointer;
}
template <typename T>
  requires std::is_unbounded_array_v<T>
[[nodiscard]] unique_ptr<T> make_unique(const tag& in, non_temporal_t /*how*/, std::size_t count) {
  unique_ptr<T> pointer;
  detail::make_array<std::remove_extent_t<T>>(in, pointer.word_, count, false);
  return pointer;
}

// Starts to fetch the objects of these pointers, without waiting; null pointers are allowed.
template <typename T>
void prefetch(std::span<const unique_ptr<T>> pointers) {
  for (const unique_ptr<T>& pointer : pointers) {
    if (pointer) static_cast<void>(pointer.prefetch());
  }
}

}  // namespace far
