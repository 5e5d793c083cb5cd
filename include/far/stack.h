// far::stack: std::stack in far memory (docs/containers.md).
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <utility>

#include "far/vector.h"

namespace far {

// Last in, first out. Elements that lie deep leave local memory, and are fetched again ahead of the top as it comes
// down. Gives room back. Move-only.
template <typename T, std::size_t Elements = elements_per_object<T>>
class stack {
 public:
  using value_type = T;
  using size_type = std::size_t;

  explicit stack(const tag& in) : elements_(in) {}

  [[nodiscard]] bool empty() const noexcept { return elements_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return elements_.size(); }
  // Require: !empty().
  [[nodiscard]] const T& top(const scope& in) const { return elements_.back(in); }
  [[nodiscard]] T& top_mut(const scope& in) { return elements_.back_mut(in); }
  void top(const scope&& the_scope_must_be_a_local_variable) const = delete;
  void top_mut(const scope&& the_scope_must_be_a_local_variable) = delete;

  // Strong exception guarantee, amortised O(1).
  void push(const T& value)
    requires std::copy_constructible<T>
  {
    elements_.push_back(value);
  }
  void push(T&& value)
    requires std::move_constructible<T>
  {
    elements_.push_back(std::move(value));
  }
  template <typename... Arguments>
    requires std::constructible_from<T, Arguments...>
  void emplace(Arguments&&... arguments) {
    elements_.emplace_back(std::forward<Arguments>(arguments)...);
  }
  // Requires: !empty().
  void pop() {
    elements_.pop_back();
    const std::size_t left = elements_.size();
    if (left % step == 0 && left > 0) {
      const std::size_t deepest = left - std::min(left, detail::elements_ahead<T>);
      elements_.prefetch(deepest, std::min(step, left - deepest));
    }
    if (elements_.capacity() - left >= 2 * step) elements_.shrink_to_fit();
  }
  // The same, and returns it. Requires: !empty().
  [[nodiscard]] T take()
    requires std::move_constructible<T>
  {
    T last = [&] {
      const scope here(elements_.home().home());
      return T(std::move(elements_.back_mut(here)));
    }();
    pop();
    return last;
  }

  void swap(stack& other) noexcept { elements_.swap(other.elements_); }
  friend void swap(stack& a, stack& b) noexcept { a.swap(b); }

 private:
  // How many elements are fetched at a time.
  static constexpr std::size_t step = std::max(Elements, elements_per_object<T>);

  vector<T, Elements> elements_;
};

}  // namespace far
