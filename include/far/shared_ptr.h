// far::shared_ptr: a pointer of 16 bytes; several of them may own one object in the far heap. And far::weak_ptr.
#pragma once

#include <atomic>
#include <compare>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "far/detail/array.h"
#include "far/detail/pointer.h"
#include "far/scope.h"
#include "far/unique_ptr.h"

namespace far {

namespace detail {

// In local memory, for as long as there is an alias or a weak pointer: the owner's word, and how many there are. All
// aliases follow a move at once, because there is one word (docs/decisions/0012-object-heap.md).
struct control {
  owner_word word{0};
  std::atomic<std::uint64_t> aliases{1};
  std::atomic<std::uint64_t> observers{1};  // weak pointers, and one for all aliases together
  void (*destroy)(owner_word& word) = nullptr;

  explicit control(void (*destroy_object)(owner_word& word)) : destroy(destroy_object) {}

  void add_alias() noexcept { aliases.fetch_add(1, std::memory_order_relaxed); }
  // Unless there is none any more.
  [[nodiscard]] bool add_alias_if_alive() noexcept {
    std::uint64_t now = aliases.load(std::memory_order_relaxed);
    while (now > 0) {
      if (aliases.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel, std::memory_order_relaxed))
        return true;
    }
    return false;
  }
  void remove_alias() noexcept {
    if (aliases.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    destroy(word);
    remove_observer();
  }
  void add_observer() noexcept { observers.fetch_add(1, std::memory_order_relaxed); }
  void remove_observer() noexcept {
    if (observers.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
};

// The offset of a member or a base. Nothing is read: there is no such object.
template <typename Whole>
[[nodiscard]] std::size_t offset_in(auto find_part) {
  alignas(Whole) static std::byte nowhere[sizeof(Whole)];  // zeros, which take no room in the program
  const auto* const imagined = reinterpret_cast<const Whole*>(nowhere);
  return static_cast<std::size_t>(reinterpret_cast<const std::byte*>(find_part(imagined)) - nowhere);
}

// As for std::shared_ptr<Target>: the same type, a base, or the elements of an array.
template <typename From, typename Target>
concept shared_as = fixed_base_of<Target, From>;

}  // namespace detail

template <typename T>
class weak_ptr;

namespace detail {

// Aliases and weak pointers hold this: an object, and the part of it that they name.
class shared_part {
 public:
  // Pointers that own or watch the same object are neighbours in this order, whatever part they name.
  [[nodiscard]] bool owner_before(const shared_part& other) const noexcept {
    return std::less<>()(control_, other.control_);
  }

 protected:
  shared_part() = default;
  shared_part(control* whole, std::size_t offset) noexcept : control_(whole), offset_(offset) {}
  void swap_with(shared_part& other) noexcept {
    std::swap(control_, other.control_);
    std::swap(offset_, other.offset_);
  }

  control* control_ = nullptr;
  std::size_t offset_ = 0;
};

// The common base of far::shared_ptr to an object and to an array.
template <typename T>
class shared_owner : public shared_part {
 public:
  shared_owner() = default;
  shared_owner(const shared_owner& other) noexcept : shared_part(other.control_, other.offset_) { add(); }
  shared_owner(shared_owner&& other) noexcept
      : shared_part(std::exchange(other.control_, nullptr), std::exchange(other.offset_, 0)) {}
  shared_owner& operator=(shared_owner other) noexcept {
    swap_with(other);
    return *this;
  }
  ~shared_owner() { reset(); }

  // Lets go of the object; the last one destroys it.
  void reset() noexcept {
    offset_ = 0;
    if (control* const mine = std::exchange(control_, nullptr); mine != nullptr) mine->remove_alias();
  }

  [[nodiscard]] explicit operator bool() const noexcept { return control_ != nullptr; }
  // Others may be changing it meanwhile.
  [[nodiscard]] std::size_t use_count() const noexcept {
    return control_ == nullptr ? 0 : control_->aliases.load(std::memory_order_relaxed);
  }
  // As of far::unique_ptr.
  bool prefetch() const { return control_ == nullptr || detail::prefetch(control_->word); }

  // Pointers are equal if they name the same part of the same object. Their order serves only for sorting.
  [[nodiscard]] bool operator==(std::nullptr_t) const noexcept { return control_ == nullptr; }
  [[nodiscard]] std::size_t hash() const noexcept {
    return std::hash<control*>()(control_) ^ offset_ * std::size_t{0x9e3779b97f4a7c15u};
  }

  // For pointers_of: its control block stays where it is, so there is nothing to follow.
  void visit_word(type_of_object::word_visitor /*visit*/, void* /*context*/) {}

 protected:
  shared_owner(control* whole, std::size_t offset) noexcept : shared_part(whole, offset) {}
  void add() const noexcept {
    if (control_ != nullptr) control_->add_alias();
  }
  // Takes what the word owns.
  template <typename Owned>
  void adopt(owner_word& word) {
    if (word.load(std::memory_order_relaxed) == 0) return;
    auto block = std::make_unique<control>(&destroy<Owned>);
    move_owner(word, block->word);
    control_ = block.release();
  }

  template <typename U, typename V>
  friend bool are_same(const shared_owner<U>& a, const shared_owner<V>& b) noexcept;
  template <typename U, typename V>
  friend std::strong_ordering order_of(const shared_owner<U>& a, const shared_owner<V>& b) noexcept;
};

template <typename U, typename V>
[[nodiscard]] bool are_same(const shared_owner<U>& a, const shared_owner<V>& b) noexcept {
  return a.control_ == b.control_ && a.offset_ == b.offset_;
}
template <typename U, typename V>
[[nodiscard]] std::strong_ordering order_of(const shared_owner<U>& a, const shared_owner<V>& b) noexcept {
  const auto order = std::compare_three_way()(a.control_, b.control_);
  return order != 0 ? order : a.offset_ <=> b.offset_;
}

}  // namespace detail

// Owns an object together with its copies; the last one destroys it (AIFM, section 4.1). As with std::shared_ptr,
// different aliases may be used by different fibers and threads at a time, a const pointer does not make its object
// const, and an alias may name a part of the object.
template <typename T>
class shared_ptr : public detail::shared_owner<T> {
 public:
  shared_ptr() = default;
  shared_ptr(std::nullptr_t) {}
  // Takes the object of a far::unique_ptr, which is null afterwards. Throws std::bad_alloc when local memory for the
  // control block runs out; then the pointer is as before.
  shared_ptr(unique_ptr<T>&& sole) { this->template adopt<T>(sole.word_); }

  // As a pointer to its base.
  template <typename Derived>
    requires detail::shared_as<Derived, T>
  shared_ptr(const shared_ptr<Derived>& other) noexcept
      : detail::shared_owner<T>(other.control_,
                                other.control_ == nullptr ? 0 : other.offset_ + offset_of_base<Derived>()) {
    this->add();
  }
  template <typename Derived>
    requires detail::shared_as<Derived, T>
  shared_ptr(shared_ptr<Derived>&& other) noexcept
      : detail::shared_owner<T>(std::exchange(other.control_, nullptr),
                                std::exchange(other.offset_, 0) + offset_of_base<Derived>()) {
    if (control_ == nullptr) offset_ = 0;
  }
  // An alias of `whole` that names one of its members, and keeps all of it. Requires: `whole` is not null.
  template <typename Whole>
  shared_ptr(const shared_ptr<Whole>& whole, T Whole::* member) noexcept
      : detail::shared_owner<T>(whole.control_, whole.offset_ + detail::offset_in<Whole>([=](const Whole* in) {
                                                  return std::addressof(in->*member);
                                                })) {
    this->add();
  }
  // An alias of an array that names an element. Requires: index < whole.size().
  shared_ptr(const shared_ptr<T[]>& whole, std::size_t index) noexcept
      : detail::shared_owner<T>(whole.control_, index * sizeof(T)) {
    this->add();
  }

  void swap(shared_ptr& other) noexcept { this->swap_with(other); }
  friend void swap(shared_ptr& a, shared_ptr& b) noexcept { a.swap(b); }
  using detail::shared_owner<T>::operator==;
  template <typename U>
  [[nodiscard]] bool operator==(const shared_ptr<U>& other) const noexcept {
    return detail::are_same(*this, other);
  }
  template <typename U>
  [[nodiscard]] std::strong_ordering operator<=>(const shared_ptr<U>& other) const noexcept {
    return detail::order_of(*this, other);
  }

  // As of far::unique_ptr.
  [[nodiscard]] const T& deref(const scope& in) const { return *at(in, false, true); }
  [[nodiscard]] T& deref_mut(const scope& in) const { return *at(in, true, true); }
  [[nodiscard]] const T& deref(const scope& in, non_temporal_t /*how*/) const { return *at(in, false, false); }
  [[nodiscard]] T& deref_mut(const scope& in, non_temporal_t /*how*/) const { return *at(in, true, false); }
  template <typename... How>
  const T& deref(const scope&& the_scope_must_be_a_local_variable, How...) const = delete;
  template <typename... How>
  T& deref_mut(const scope&& the_scope_must_be_a_local_variable, How...) const = delete;
  [[nodiscard]] const T* get(const scope& in) const { return at_or_null(in, false, true); }
  [[nodiscard]] T* get_mut(const scope& in) const { return at_or_null(in, true, true); }
  [[nodiscard]] const T* get(const scope& in, non_temporal_t /*how*/) const { return at_or_null(in, false, false); }
  [[nodiscard]] T* get_mut(const scope& in, non_temporal_t /*how*/) const { return at_or_null(in, true, false); }
  template <typename... How>
  const T* get(const scope&& the_scope_must_be_a_local_variable, How...) const = delete;
  template <typename... How>
  T* get_mut(const scope&& the_scope_must_be_a_local_variable, How...) const = delete;
  [[nodiscard]] T read() const
    requires std::is_trivially_copyable_v<T>
  {
    const scope here(detail::runtime_of(control_->word));
    return deref(here);
  }
  void write(const T& value) const
    requires std::is_trivially_copyable_v<T>
  {
    const scope here(detail::runtime_of(control_->word));
    deref_mut(here) = value;
  }
  [[nodiscard]] T read(non_temporal_t how) const
    requires std::is_trivially_copyable_v<T>
  {
    const scope here(detail::runtime_of(control_->word));
    return deref(here, how);
  }
  void write(const T& value, non_temporal_t how) const
    requires std::is_trivially_copyable_v<T>
  {
    const scope here(detail::runtime_of(control_->word));
    deref_mut(here, how) = value;
  }

 private:
  template <typename>
  friend class shared_ptr;
  template <typename>
  friend class weak_ptr;
  template <typename U, typename... Arguments>
    requires(!std::is_array_v<U>)
  friend shared_ptr<U> make_shared(const tag& in, Arguments&&... arguments);
  using detail::shared_part::control_;
  using detail::shared_part::offset_;

  shared_ptr(detail::control* whole, std::size_t offset) noexcept : detail::shared_owner<T>(whole, offset) {}

  template <typename Derived>
  [[nodiscard]] static std::size_t offset_of_base() {
    return detail::offset_in<Derived>([](const Derived* whole) { return static_cast<const T*>(whole); });
  }
  [[nodiscard]] T* at(const scope& in, bool write, bool lasting) const {
    return std::launder(reinterpret_cast<T*>(find(in, write, lasting)));
  }
  // For a part, only the pages of the part. What is used as a base may be used as the whole, too.
  [[nodiscard]] std::byte* find(const scope& in, bool write, bool lasting) const {
    if (offset_ != 0) return in.reach_part(control_->word, offset_, sizeof(T), write, lasting);
    if constexpr (std::is_polymorphic_v<T>) return in.reach(control_->word, write, lasting);
    return in.reach_beginning(control_->word, sizeof(T), write, lasting);
  }
  [[nodiscard]] T* at_or_null(const scope& in, bool write, bool lasting) const {
    return control_ == nullptr ? nullptr : at(in, write, lasting);
  }
};

// An array of run-time size, as for far::unique_ptr.
template <typename T>
class shared_ptr<T[]> : public detail::shared_owner<T[]> {
 public:
  shared_ptr() = default;
  shared_ptr(std::nullptr_t) {}
  shared_ptr(unique_ptr<T[]>&& sole) { this->template adopt<T[]>(sole.word_); }

  void swap(shared_ptr& other) noexcept { this->swap_with(other); }
  friend void swap(shared_ptr& a, shared_ptr& b) noexcept { a.swap(b); }
  using detail::shared_owner<T[]>::operator==;
  [[nodiscard]] bool operator==(const shared_ptr& other) const noexcept { return detail::are_same(*this, other); }
  [[nodiscard]] std::strong_ordering operator<=>(const shared_ptr& other) const noexcept {
    return detail::order_of(*this, other);
  }

  [[nodiscard]] std::size_t size() const { return detail::count_elements<T>(word()); }
  [[nodiscard]] std::span<const T> deref(const scope& in) const {
    return detail::all_elements<const T>(in, word(), false, true);
  }
  [[nodiscard]] std::span<T> deref_mut(const scope& in) const {
    return detail::all_elements<T>(in, word(), true, true);
  }
  [[nodiscard]] std::span<const T> deref(const scope& in, non_temporal_t /*how*/) const {
    return detail::all_elements<const T>(in, word(), false, false);
  }
  [[nodiscard]] std::span<T> deref_mut(const scope& in, non_temporal_t /*how*/) const {
    return detail::all_elements<T>(in, word(), true, false);
  }
  [[nodiscard]] const T& deref(const scope& in, std::size_t index) const {
    return detail::element<const T>(in, word(), index, false, true);
  }
  [[nodiscard]] T& deref_mut(const scope& in, std::size_t index) const {
    return detail::element<T>(in, word(), index, true, true);
  }
  [[nodiscard]] const T& deref(const scope& in, std::size_t index, non_temporal_t /*how*/) const {
    return detail::element<const T>(in, word(), index, false, false);
  }
  [[nodiscard]] T& deref_mut(const scope& in, std::size_t index, non_temporal_t /*how*/) const {
    return detail::element<T>(in, word(), index, true, false);
  }
  template <typename... How>
  std::span<const T> deref(const scope&& the_scope_must_be_a_local_variable, How...) const = delete;
  template <typename... How>
  std::span<T> deref_mut(const scope&& the_scope_must_be_a_local_variable, How...) const = delete;

  [[nodiscard]] T read(std::size_t index) const
    requires std::is_trivially_copyable_v<T>
  {
    const scope here(detail::runtime_of(word()));
    return deref(here, index);
  }
  void write(std::size_t index, const T& value) const
    requires std::is_trivially_copyable_v<T>
  {
    const scope here(detail::runtime_of(word()));
    deref_mut(here, index) = value;
  }
  [[nodiscard]] T read(std::size_t index, non_temporal_t how) const
    requires std::is_trivially_copyable_v<T>
  {
    const scope here(detail::runtime_of(word()));
    return deref(here, index, how);
  }
  void write(std::size_t index, const T& value, non_temporal_t how) const
    requires std::is_trivially_copyable_v<T>
  {
    const scope here(detail::runtime_of(word()));
    deref_mut(here, index, how) = value;
  }
  void read(std::size_t first, std::span<T> into) const
    requires std::is_trivially_copyable_v<T>
  {
    detail::copy_out<T>(word(), first, into, true);
  }
  void write(std::size_t first, std::span<const T> from) const
    requires std::is_trivially_copyable_v<T>
  {
    detail::copy_in<T>(word(), first, from, true);
  }
  void read(std::size_t first, std::span<T> into, non_temporal_t /*how*/) const
    requires std::is_trivially_copyable_v<T>
  {
    detail::copy_out<T>(word(), first, into, false);
  }
  void write(std::size_t first, std::span<const T> from, non_temporal_t /*how*/) const
    requires std::is_trivially_copyable_v<T>
  {
    detail::copy_in<T>(word(), first, from, false);
  }

 private:
  template <typename>
  friend class shared_ptr;
  template <typename>
  friend class weak_ptr;
  template <typename U>
    requires std::is_unbounded_array_v<U>
  friend shared_ptr<U> make_shared(const tag& in, std::size_t count);
  template <typename U>
    requires std::is_unbounded_array_v<U>
  friend shared_ptr<U> make_shared(const tag& in, non_temporal_t how, std::size_t count);
  using detail::shared_part::control_;

  shared_ptr(detail::control* whole, std::size_t offset) noexcept : detail::shared_owner<T[]>(whole, offset) {}

  // For a null pointer, a word that stays null.
  [[nodiscard]] detail::owner_word& word() const {
    static constinit detail::owner_word nothing{0};
    return control_ != nullptr ? control_->word : nothing;
  }
};

// Watches an object without owning it. The object is destroyed with its last shared_ptr; the control block, in local
// memory, goes with the last weak_ptr.
template <typename T>
class weak_ptr : public detail::shared_part {
 public:
  weak_ptr() = default;
  weak_ptr(const shared_ptr<T>& watched) noexcept : shared_part(watched.control_, watched.offset_) { add(); }
  // As a pointer to its base.
  template <typename Derived>
    requires detail::shared_as<Derived, T>
  weak_ptr(const shared_ptr<Derived>& watched) noexcept : weak_ptr(shared_ptr<T>(watched)) {}
  template <typename Derived>
    requires detail::shared_as<Derived, T>
  weak_ptr(const weak_ptr<Derived>& other) noexcept : weak_ptr(weak_ptr<Derived>(other)) {}
  template <typename Derived>
    requires detail::shared_as<Derived, T>
  weak_ptr(weak_ptr<Derived>&& other) noexcept
      : shared_part(std::exchange(other.control_, nullptr), std::exchange(other.offset_, 0)) {
    if (control_ != nullptr) offset_ += shared_ptr<T>::template offset_of_base<Derived>();
  }
  weak_ptr(const weak_ptr& other) noexcept : shared_part(other.control_, other.offset_) { add(); }
  weak_ptr(weak_ptr&& other) noexcept
      : shared_part(std::exchange(other.control_, nullptr), std::exchange(other.offset_, 0)) {}
  weak_ptr& operator=(weak_ptr other) noexcept {
    swap_with(other);
    return *this;
  }
  ~weak_ptr() { reset(); }

  void reset() noexcept {
    offset_ = 0;
    if (detail::control* const mine = std::exchange(control_, nullptr); mine != nullptr) mine->remove_observer();
  }
  void swap(weak_ptr& other) noexcept { swap_with(other); }
  friend void swap(weak_ptr& a, weak_ptr& b) noexcept { a.swap(b); }

  // An alias; null when the object is gone. Fetches nothing.
  [[nodiscard]] shared_ptr<T> lock() const noexcept {
    if (control_ == nullptr || !control_->add_alias_if_alive()) return nullptr;
    return shared_ptr<T>(control_, offset_);
  }
  [[nodiscard]] std::size_t use_count() const noexcept {
    return control_ == nullptr ? 0 : control_->aliases.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool expired() const noexcept { return use_count() == 0; }

  // For pointers_of, as of far::shared_ptr.
  void visit_word(detail::type_of_object::word_visitor /*visit*/, void* /*context*/) {}

 private:
  template <typename>
  friend class weak_ptr;
  void add() const noexcept {
    if (control_ != nullptr) control_->add_observer();
  }
};

template <typename T>
struct pointers_of<shared_ptr<T>> {
  static void visit(shared_ptr<T>& in, auto&& pointer) { pointer(in); }
};
template <typename T>
struct pointers_of<weak_ptr<T>> {
  static void visit(weak_ptr<T>& in, auto&& pointer) { pointer(in); }
};

template <typename T>
inline constexpr bool detail::is_zero_at_first<shared_ptr<T>> = true;
template <typename T>
inline constexpr bool detail::is_zero_at_first<weak_ptr<T>> = true;

// As far::make_unique. Throws std::bad_alloc also when local memory for the control block runs out.
template <typename T, typename... Arguments>
  requires(!std::is_array_v<T>)
[[nodiscard]] shared_ptr<T> make_shared(const tag& in, Arguments&&... arguments) {
  auto block = std::make_unique<detail::control>(&detail::destroy<T>);
  detail::make_object<T>(in, block->word, std::forward<Arguments>(arguments)...);
  return shared_ptr<T>(block.release(), 0);
}

// An array of `count` value-initialised elements.
template <typename T>
  requires std::is_unbounded_array_v<T>
[[nodiscard]] shared_ptr<T> make_shared(const tag& in, std::size_t count) {
  if (count == 0) return nullptr;
  auto block = std::make_unique<detail::control>(&detail::destroy<T>);
  detail::make_array<std::remove_extent_t<T>>(in, block->word, count);
  return shared_ptr<T>(block.release(), 0);
}
template <typename T>
  requires std::is_unbounded_array_v<T>
[[nodiscard]] shared_ptr<T> make_shared(const tag& in, non_temporal_t /*how*/, std::size_t count) {
  if (count == 0) return nullptr;
  auto block = std::make_unique<detail::control>(&detail::destroy<T>);
  detail::make_array<std::remove_extent_t<T>>(in, block->word, count, false);
  return shared_ptr<T>(block.release(), 0);
}

}  // namespace far

template <typename T>
struct std::hash<far::shared_ptr<T>> {
  [[nodiscard]] std::size_t operator()(const far::shared_ptr<T>& pointer) const noexcept { return pointer.hash(); }
};
