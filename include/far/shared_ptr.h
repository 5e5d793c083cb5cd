// far::shared_ptr: a pointer of 16 bytes, of which several may own one object in the far heap.
#pragma once

#include <atomic>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "far/detail/pointer.h"
#include "far/scope.h"

namespace far {

namespace detail {

// In local memory, for as long as there is an alias: the owner's word, and how many aliases there are. All of them
// follow a move at once, because there is one word (docs/decisions/0012-object-heap.md).
struct control {
  owner_word word{0};
  std::atomic<std::uint64_t> aliases{1};
  void (*destroy)(owner_word& word) = nullptr;
};

}  // namespace detail

// Owns an object together with its copies; the last one destroys it (AIFM, section 4.1). As with std::shared_ptr,
// different aliases may be used by different fibers and threads at a time. An alias may name a part of the object.
template <typename T>
class shared_ptr {
 public:
  shared_ptr() = default;
  shared_ptr(std::nullptr_t) {}
  shared_ptr(const shared_ptr& other) noexcept : control_(other.control_), offset_(other.offset_) { add(); }
  shared_ptr(shared_ptr&& other) noexcept
      : control_(std::exchange(other.control_, nullptr)), offset_(std::exchange(other.offset_, 0)) {}
  shared_ptr& operator=(shared_ptr other) noexcept {
    std::swap(control_, other.control_);
    std::swap(offset_, other.offset_);
    return *this;
  }
  ~shared_ptr() { reset(); }

  // An alias of `whole` that names one of its members, and keeps all of it.
  template <typename Whole>
  shared_ptr(const shared_ptr<Whole>& whole, T Whole::* member) noexcept
      : control_(whole.control_), offset_(whole.offset_ + offset_of(member)) {
    add();
  }

  void reset() noexcept {
    detail::control* const mine = std::exchange(control_, nullptr);
    if (mine == nullptr || mine->aliases.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    mine->destroy(mine->word);
    delete mine;
  }

  [[nodiscard]] explicit operator bool() const noexcept { return control_ != nullptr; }
  [[nodiscard]] std::size_t use_count() const noexcept {
    return control_ == nullptr ? 0 : control_->aliases.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool operator==(const shared_ptr&) const = default;

  // As of far::unique_ptr.
  [[nodiscard]] const T& deref(const scope& in) const { return *at(in.reach(control_->word, false, true)); }
  [[nodiscard]] T& deref_mut(const scope& in) const { return *at(in.reach(control_->word, true, true)); }
  [[nodiscard]] const T& deref(const scope& in, non_temporal_t /*how*/) const {
    return *at(in.reach(control_->word, false, false));
  }
  [[nodiscard]] T& deref_mut(const scope& in, non_temporal_t /*how*/) const {
    return *at(in.reach(control_->word, true, false));
  }
  [[nodiscard]] T read() const
    requires std::is_trivially_copyable_v<T>
  {
    return deref(scope(detail::runtime_of(control_->word)));
  }
  void write(const T& value) const
    requires std::is_trivially_copyable_v<T>
  {
    deref_mut(scope(detail::runtime_of(control_->word))) = value;
  }
  bool prefetch() const { return detail::prefetch(control_->word); }

  // For pointers_of: its control block stays where it is, so there is nothing to follow.
  void visit_word(detail::type_of_object::word_visitor /*visit*/, void* /*context*/) {}

 private:
  template <typename>
  friend class shared_ptr;
  template <typename U, typename... Arguments>
  friend shared_ptr<U> make_shared(const tag& in, Arguments&&... arguments);

  template <typename Whole>
  [[nodiscard]] static std::size_t offset_of(T Whole::* member) {
    alignas(Whole) static constexpr std::byte nowhere[sizeof(Whole)] = {};
    const auto& imagined = reinterpret_cast<const Whole&>(nowhere);
    return static_cast<std::size_t>(reinterpret_cast<const std::byte*>(&(imagined.*member)) - nowhere);
  }
  void add() const noexcept {
    if (control_ != nullptr) control_->aliases.fetch_add(1, std::memory_order_relaxed);
  }
  [[nodiscard]] T* at(std::byte* address) const { return std::launder(reinterpret_cast<T*>(address + offset_)); }

  detail::control* control_ = nullptr;
  std::size_t offset_ = 0;
};

// As far::make_unique. Throws std::bad_alloc also when local memory for the control block runs out.
template <typename T, typename... Arguments>
[[nodiscard]] shared_ptr<T> make_shared(const tag& in, Arguments&&... arguments) {
  static_assert(relocatable<T>, "a far object is moved by copying its bytes: see far::relocatable");
  detail::give_way(in);
  const scope here(in.home());
  auto block = std::make_unique<detail::control>();
  block->destroy = &detail::destroy<T>;
  std::byte* const at = detail::allocate(in, block->word, sizeof(T), detail::type_of<T>());
  try {
    new (at) T(std::forward<Arguments>(arguments)...);
  } catch (...) {
    detail::release(block->word);
    throw;
  }
  shared_ptr<T> first;
  first.control_ = block.release();
  return first;
}

}  // namespace far
