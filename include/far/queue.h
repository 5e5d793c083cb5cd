// far::queue: std::queue in far memory (docs/containers.md).
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <deque>
#include <memory>
#include <utility>

#include "far/detail/chunk_store.h"
#include "far/detail/sequence.h"

namespace far {

// First in, first out. Elements in the middle leave local memory, and are fetched again ahead of the front. A queue
// takes at least a page. Move-only. Use far::channel between fibers.
template <typename T>
class queue {
 public:
  using value_type = T;
  using size_type = std::size_t;

  explicit queue(const tag& in) : in_(in) { detail::require_relocatable<T>(); }
  queue(queue&& other) noexcept
      : in_(other.in_),
        chunks_(std::exchange(other.chunks_, {})),
        spare_(std::move(other.spare_)),
        front_(std::exchange(other.front_, 0)),
        size_(std::exchange(other.size_, 0)) {}
  queue& operator=(queue&& other) noexcept {
    if (this == &other) return *this;
    clear();
    in_ = other.in_;
    chunks_ = std::exchange(other.chunks_, {});
    spare_ = std::move(other.spare_);
    front_ = std::exchange(other.front_, 0);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }
  ~queue() { clear(); }

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  // Require: !empty().
  [[nodiscard]] const T& front(const scope& in) const { return *place(in, front_, false); }
  [[nodiscard]] T& front_mut(const scope& in) { return *place(in, front_, true); }
  [[nodiscard]] const T& back(const scope& in) const { return *place(in, front_ + size_ - 1, false); }
  [[nodiscard]] T& back_mut(const scope& in) { return *place(in, front_ + size_ - 1, true); }
  void front(const scope&& the_scope_must_be_a_local_variable) const = delete;
  void front_mut(const scope&& the_scope_must_be_a_local_variable) = delete;
  void back(const scope&& the_scope_must_be_a_local_variable) const = delete;
  void back_mut(const scope&& the_scope_must_be_a_local_variable) = delete;

  // Strong exception guarantee, amortised O(1); no element moves.
  void push(const T& value)
    requires std::copy_constructible<T>
  {
    emplace(value);
  }
  void push(T&& value)
    requires std::move_constructible<T>
  {
    emplace(std::move(value));
  }
  template <typename... Arguments>
    requires std::constructible_from<T, Arguments...>
  void emplace(Arguments&&... arguments) {
    const std::size_t index = front_ + size_;
    if (index / elements_per_chunk == chunks_.size()) {
      chunks_.push_back(spare_ ? std::move(spare_) : detail::chunk<T>(in_, elements_per_chunk));
    }
    const scope here(in_.home());
    std::construct_at(place(here, index, true), std::forward<Arguments>(arguments)...);
    ++size_;
  }
  // Requires: !empty(). Removes the element even if it is lost.
  void pop() {
    if constexpr (!std::is_trivially_destructible_v<T>) {
      const scope here(in_.home());
      static_cast<void>(detail::unless_lost([&] { std::destroy_at(place(here, front_, true)); }));
    }
    leave_front();
  }
  // The same, and returns it. Requires: !empty().
  [[nodiscard]] T take()
    requires std::move_constructible<T>
  {
    T first = [&] {
      const scope here(in_.home());
      return T(std::move(front_mut(here)));
    }();
    pop();
    return first;
  }
  void clear() noexcept {
    while (!std::is_trivially_destructible_v<T> && size_ > 0) pop();
    chunks_.clear();
    spare_ = {};
    front_ = size_ = 0;
  }

  void swap(queue& other) noexcept {
    queue taken(std::move(other));
    other = std::move(*this);
    *this = std::move(taken);
  }
  friend void swap(queue& a, queue& b) noexcept { a.swap(b); }

 private:
  static constexpr std::size_t elements_per_chunk = std::max<std::size_t>(elements_per_object<T>, 4096 / sizeof(T) + 1);

  [[nodiscard]] T* place(const scope& in, std::size_t index, bool write) const {
    return chunks_[index / elements_per_chunk].place(in, index % elements_per_chunk, write);
  }

  void leave_front() {
    ++front_;
    --size_;
    if (front_ < elements_per_chunk) return;
    // While one chunk is used, the next one is on its way.
    for (std::size_t ahead = 1; ahead < chunks_.size() && ahead <= chunks_ahead; ++ahead) {
      if (ahead == chunks_ahead || !has_asked_) chunks_[ahead].prefetch(0, elements_per_chunk);
    }
    has_asked_ = chunks_.size() > chunks_ahead;
    spare_ = chunks_.front().is_any_lost() ? detail::chunk<T>() : std::move(chunks_.front());
    chunks_.pop_front();
    front_ = 0;
  }

  static constexpr std::size_t chunks_ahead = 4;

  tag in_;
  std::deque<detail::chunk<T>> chunks_;
  detail::chunk<T> spare_;  // the chunk that was emptied last
  std::size_t front_ = 0;   // index of the first element in the first chunk
  std::size_t size_ = 0;
  bool has_asked_ = false;  // for the chunks ahead of the front
};

}  // namespace far
