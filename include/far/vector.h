// far::vector: std::vector in far memory (AIFM, section 5.1; docs/containers.md).
//
//     far::vector<std::uint64_t> numbers(farheap);
//     for (std::uint64_t i = 0; i < 1'000'000'000; ++i) numbers.push_back(i);
//     const far::scope here(farheap);
//     for (std::span<const std::uint64_t> part : numbers.chunks(here)) sum += std::reduce(part.begin(), part.end());
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <new>
#include <ranges>
#include <type_traits>
#include <utility>

#include "far/detail/elements.h"

namespace far {

// A sequence that grows at its end. Growing copies nothing beyond the first 64 KiB. `Elements` elements, a power of
// two, share a far object. By default that is 64 KiB, for walks and for access with locality. Small groups, at most
// 4072 bytes in all, are fetched and evicted alone, for random access: that moves fewer bytes, and costs a second look
// at each access.
//
// Const operations may run from many fibers and threads at a time. Move-only: clone() copies. References are valid
// until their scope ends, or until the vector is changed other than through its elements.
template <typename T, std::size_t Elements = elements_per_object<T>>
class vector : public detail::elements<T, Elements> {
  using base = detail::elements<T, Elements>;
  using base::chunks_;
  using base::size_;
  using base::used_;

 public:
  // `in` is the runtime, or one of its tags.
  explicit vector(const tag& in) : base(in) {}
  vector(const tag& in, std::size_t count) : base(in) { this->append_values(count); }
  vector(const tag& in, std::size_t count, const T& value) : base(in) { resize(count, value); }
  vector(const tag& in, std::initializer_list<T> values) : base(in) { append(values); }
  template <std::ranges::input_range Range>
    requires std::constructible_from<T, std::ranges::range_reference_t<Range>>
  vector(const tag& in, Range&& values) : base(in) {
    append(std::forward<Range>(values));
  }
  // O(1). A moved-from vector is empty, and keeps its home.
  vector(vector&&) noexcept = default;
  vector& operator=(vector&&) noexcept = default;
  ~vector() = default;

  void swap(vector& other) noexcept {
    vector taken(std::move(other));
    other = std::move(*this);
    *this = std::move(taken);
  }
  friend void swap(vector& a, vector& b) noexcept { a.swap(b); }

  [[nodiscard]] vector clone() const
    requires std::copy_constructible<T>
  {
    vector copy(this->home());
    copy.reserve(size_);
    this->for_stretches(0, size_, [&](const scope& here, std::size_t first, std::size_t count) {
      copy.append(std::span<const T>(chunks_.places(here, first, count, false)));
    });
    return copy;
  }

  // How many elements there is room for. Room that has never been used takes addresses, and neither local nor far
  // memory.
  [[nodiscard]] std::size_t capacity() const noexcept { return chunks_.room(); }
  void reserve(std::size_t count) { this->grow(count); }
  // Gives back the chunks that have no elements.
  void shrink_to_fit() noexcept {
    chunks_.shrink(size_);
    used_ = std::min(used_, chunks_.room());
  }

  // Strong exception guarantee, amortised O(1).
  void push_back(const T& value)
    requires std::copy_constructible<T>
  {
    emplace_back(value);
  }
  void push_back(T&& value)
    requires std::move_constructible<T>
  {
    emplace_back(std::move(value));
  }
  template <typename... Arguments>
    requires std::constructible_from<T, Arguments...>
  void emplace_back(Arguments&&... arguments) {
    if (size_ < chunks_.room()) return construct_back(std::forward<Arguments>(arguments)...);
    // Before it grows, because the arguments may be elements.
    T value(std::forward<Arguments>(arguments)...);
    this->grow(size_ + 1);
    construct_back(std::move(value));
  }
  // Requires: !empty().
  void pop_back() noexcept { this->truncate(size_ - 1); }

  // Adds the elements of a range, which is not the vector's own; all or none.
  template <std::ranges::input_range Range>
    requires std::constructible_from<T, std::ranges::range_reference_t<Range>>
  void append(Range&& values) {
    if constexpr (std::ranges::sized_range<Range>) {
      auto next = std::ranges::begin(values);
      this->append_stretches(static_cast<std::size_t>(std::ranges::size(values)), [&](T* first, std::size_t count) {
        std::size_t done = 0;
        try {
          for (; done < count; ++done, ++next) std::construct_at(first + done, *next);
        } catch (...) {
          detail::destroy_elements(first, done);
          throw;
        }
      });
    } else {
      const std::size_t before = size_;
      try {
        for (auto&& value : values) emplace_back(std::forward<decltype(value)>(value));
      } catch (...) {
        this->truncate(before);
        throw;
      }
    }
  }

  // New elements are value-initialised, or copies.
  void resize(std::size_t count) {
    if (count < size_) return this->truncate(count);
    this->append_values(count - size_);
  }
  void resize(std::size_t count, const T& value)
    requires std::copy_constructible<T>
  {
    if (count < size_) return this->truncate(count);
    const T copy(value);
    this->append_stretches(count - size_,
                           [&](T* first, std::size_t now) { std::uninitialized_fill_n(first, now, copy); });
  }
  // Gives all room back, unlike std::vector: the room would be kept in memory or in the far tier.
  void clear() noexcept {
    this->truncate(0);
    shrink_to_fit();
  }

  // Before the element `index`, or at the end; O(size() - index). Throws std::out_of_range. Basic exception guarantee.
  template <typename... Arguments>
    requires std::constructible_from<T, Arguments...>
  void emplace(std::size_t index, Arguments&&... arguments) {
    if (index > size_) detail::throw_out_of_range(index, size_);
    emplace_back(std::forward<Arguments>(arguments)...);
    const scope here(this->home().home());
    const auto all = this->range_mut(here);
    std::rotate(all.begin() + static_cast<std::ptrdiff_t>(index), all.end() - 1, all.end());
  }
  void insert(std::size_t index, T value) { emplace(index, std::move(value)); }
  // O(size() - first). Throws std::out_of_range.
  void erase(std::size_t first, std::size_t count = 1) {
    if (first > size_ || count > size_ - first) detail::throw_out_of_range(first + count, size_);
    if (count == 0) return;
    {
      const scope here(this->home().home());
      const auto all = this->range_mut(here);
      const auto at = all.begin() + static_cast<std::ptrdiff_t>(first);
      std::move(at + static_cast<std::ptrdiff_t>(count), all.end(), at);
    }
    this->truncate(size_ - count);
  }

 private:
  template <typename... Arguments>
  void construct_back(Arguments&&... arguments) {
    const scope here(this->home().home());
    used_ = std::max(used_, size_ + 1);
    std::construct_at(chunks_.place(here, size_, true), std::forward<Arguments>(arguments)...);
    ++size_;
  }
};

}  // namespace far
