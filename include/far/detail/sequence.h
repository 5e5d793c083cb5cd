// Walks over the elements of a chunk_store: iterators, chunk views, and visits by many fibers (docs/containers.md).
#pragma once

#include <algorithm>
#include <atomic>
#include <compare>
#include <cstddef>
#include <exception>
#include <iterator>
#include <ranges>
#include <span>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "far/runtime.h"
#include "far/scope.h"
#include "far/task.h"

namespace far::detail {

// How far ahead of a walk elements are brought in: as much as one call of the pager takes, 64 pages, which is more than
// latency times bandwidth of a 25 Gb/s link with 80 us.
template <typename T>
inline constexpr std::size_t elements_ahead = std::max<std::size_t>((std::size_t{256} << 10) / sizeof(T), 2);

// Elements that are at hand: resident, and in place until the scope ends.
template <typename T>
struct element_window {
  T* at = nullptr;
  std::size_t first = 0;
  std::size_t count = 0;
  std::size_t ahead_until = 0;  // of a walk forward: what was asked for in advance; backward: from where on
  bool is_walk = false;         // rather than a jump
};

// The window around `index` for who had `before`. A walk in either direction gets windows of twice the size each time,
// up to a chunk; a jump gets what lies in the same page.
template <typename T, typename Store>
[[nodiscard, gnu::noinline]] element_window<T> next_window(const Store& store, const scope& in, std::size_t index,
                                                           std::size_t end, element_window<T> before) {
  constexpr bool write = !std::is_const_v<T>;
  element_window<T> now;
  const bool forward = before.count > 0 && index == before.first + before.count;
  const bool backward = before.count > 0 && index + 1 == before.first;
  if (forward) {
    now.first = index;
    now.count = Store::stretch(index, std::min(end - index, 2 * before.count));
  } else if (backward) {
    const std::size_t most = std::min(index + 1, 2 * before.count);
    now.first = index + 1 - most;
    // The stretch that ends with `index`.
    for (std::size_t first = now.first; first <= index; first += now.count) {
      now.first = first;
      now.count = Store::stretch(first, index + 1 - first);
    }
  } else {
    const auto [first, count] = Store::neighbours(index, end);
    now.first = first;
    now.count = count;
  }
  now.is_walk = forward || backward;
  if (forward) {
    const std::size_t from = std::max(before.is_walk ? before.ahead_until : 0, now.first + now.count);
    now.ahead_until = std::min(end, now.first + now.count + elements_ahead<T>);
    if (from < now.ahead_until) store.prefetch(from, now.ahead_until - from);
  } else if (backward) {
    const std::size_t to = before.is_walk ? std::min(before.ahead_until, now.first) : now.first;
    now.ahead_until = now.first - std::min(now.first, elements_ahead<T>);
    if (now.ahead_until < to) store.prefetch(now.ahead_until, to - now.ahead_until);
  }
  now.at = store.places(in, now.first, now.count, write).data();
  return now;
}

// T is const for reading.
template <typename Store, typename T>
class element_iterator {
 public:
  using iterator_concept = std::random_access_iterator_tag;
  using iterator_category = std::random_access_iterator_tag;
  using value_type = std::remove_const_t<T>;
  using difference_type = std::ptrdiff_t;
  using pointer = T*;
  using reference = T&;

  element_iterator() = default;
  element_iterator(const Store& store, const scope& in, std::size_t index, std::size_t end)
      : store_(&store), in_(&in), end_(end), index_(index) {}
  // From one for writing to one for reading.
  template <typename U>
    requires(std::is_same_v<T, const U>)
  element_iterator(const element_iterator<Store, U>& other)
      : store_(other.store_), in_(other.in_), end_(other.end_), index_(other.index_) {}

  [[nodiscard]] reference operator*() const { return *at(index_); }
  [[nodiscard]] pointer operator->() const { return at(index_); }
  [[nodiscard]] reference operator[](difference_type n) const { return *at(index_ + static_cast<std::size_t>(n)); }

  element_iterator& operator++() { return ++index_, *this; }
  element_iterator& operator--() { return --index_, *this; }
  element_iterator operator++(int) {
    element_iterator before = *this;
    ++index_;
    return before;
  }
  element_iterator operator--(int) {
    element_iterator before = *this;
    --index_;
    return before;
  }
  element_iterator& operator+=(difference_type n) { return index_ += static_cast<std::size_t>(n), *this; }
  element_iterator& operator-=(difference_type n) { return index_ -= static_cast<std::size_t>(n), *this; }
  [[nodiscard]] friend element_iterator operator+(element_iterator a, difference_type n) { return a += n; }
  [[nodiscard]] friend element_iterator operator+(difference_type n, element_iterator a) { return a += n; }
  [[nodiscard]] friend element_iterator operator-(element_iterator a, difference_type n) { return a -= n; }
  [[nodiscard]] friend difference_type operator-(const element_iterator& a, const element_iterator& b) {
    return static_cast<difference_type>(a.index_) - static_cast<difference_type>(b.index_);
  }
  [[nodiscard]] friend bool operator==(const element_iterator& a, const element_iterator& b) {
    return a.index_ == b.index_;
  }
  [[nodiscard]] friend std::strong_ordering operator<=>(const element_iterator& a, const element_iterator& b) {
    return a.index_ <=> b.index_;
  }

 private:
  template <typename, typename>
  friend class element_iterator;

  [[nodiscard]] T* at(std::size_t index) const {
    if (index - window_.first >= window_.count) [[unlikely]]
      window_ = next_window<T>(*store_, *in_, index, end_, window_);
    return window_.at + (index - window_.first);
  }

  const Store* store_ = nullptr;
  const scope* in_ = nullptr;
  std::size_t end_ = 0;
  std::size_t index_ = 0;
  mutable element_window<T> window_;
};

// A view of the elements as spans of plain memory, at most 64 KiB each.
template <typename Store, typename T>
class chunk_view : public std::ranges::view_interface<chunk_view<Store, T>> {
 public:
  class iterator {
   public:
    using iterator_concept = std::forward_iterator_tag;
    using iterator_category = std::input_iterator_tag;
    using value_type = std::span<T>;
    using difference_type = std::ptrdiff_t;
    using reference = std::span<T>;
    using pointer = void;

    iterator() = default;
    iterator(const chunk_view& view, std::size_t index) : view_(view), index_(index) {}

    [[nodiscard]] std::span<T> operator*() const {
      const std::size_t count = Store::stretch(index_, view_.end_ - index_);
      const std::size_t next = index_ + count;
      // What the chunk before has not asked for.
      const std::size_t from = index_ == view_.first_ ? next : std::min(view_.end_, next + elements_ahead<T> - count);
      const std::size_t until = std::min(view_.end_, next + elements_ahead<T>);
      if (from < until) view_.store_->prefetch(from, until - from);
      return view_.store_->places(*view_.in_, index_, count, !std::is_const_v<T>, view_.lasting_);
    }
    iterator& operator++() {
      index_ += Store::stretch(index_, view_.end_ - index_);
      return *this;
    }
    iterator operator++(int) {
      iterator before = *this;
      ++*this;
      return before;
    }
    [[nodiscard]] friend bool operator==(const iterator& a, const iterator& b) { return a.index_ == b.index_; }

   private:
    chunk_view view_;
    std::size_t index_ = 0;
  };

  chunk_view() = default;
  chunk_view(const Store& store, const scope& in, std::size_t first, std::size_t end, bool lasting)
      : store_(&store), in_(&in), first_(first), end_(end), lasting_(lasting) {}

  [[nodiscard]] iterator begin() const { return {*this, first_}; }
  [[nodiscard]] iterator end() const { return {*this, end_}; }

 private:
  const Store* store_ = nullptr;
  const scope* in_ = nullptr;
  std::size_t first_ = 0;
  std::size_t end_ = 0;
  bool lasting_ = true;
};

// Calls visit(piece) for every number below `pieces`, on several fibers, and waits for all. What one throws is thrown
// here, and no further piece is begun.
template <typename Visit>
void visit_on_fibers(runtime& home, std::size_t pieces, const Visit& visit) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t mine = next.fetch_add(1); mine < pieces; mine = next.fetch_add(1)) {
      try {
        visit(mine);
      } catch (...) {
        next.store(pieces);
        throw;
      }
    }
  };
  // More than processors: those that wait for the far tier leave theirs to others.
  const std::size_t fibers =
      std::min<std::size_t>(pieces, std::size_t{4} * std::max(1u, std::thread::hardware_concurrency()));
  std::vector<task<void>> running;
  running.reserve(fibers);
  for (std::size_t i = 0; i < fibers; ++i) running.push_back(home.spawn(work));
  std::exception_ptr first_error;
  for (task<void>& one : running) {
    try {
      one.join();
    } catch (...) {
      if (first_error == nullptr) first_error = std::current_exception();
    }
  }
  if (first_error != nullptr) std::rethrow_exception(first_error);
}

}  // namespace far::detail
