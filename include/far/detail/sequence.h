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

// How far ahead of a walk elements are prefetched: as much as one call of the pager takes, 64 pages. That exceeds the
// bandwidth-delay product of a 25 Gb/s link with 80 us.
template <typename T>
inline constexpr std::size_t elements_ahead = std::max<std::size_t>((std::size_t{256} << 10) / sizeof(T), 2);

// The window: elements that are resident, and stay in place until the scope ends.
template <typename T>
struct element_window {
  T* first = nullptr;
  T* last = nullptr;            // behind the last one
  std::size_t asked_until = 0;  // how far ahead of a walk elements were requested; backward: from where on
};

// The window for a step of a walk that comes to `index`, forward or backward, and has used up the window `before`. Each
// window is twice as large as the one before, up to a stretch; the first one is the rest of the page.
template <typename T, typename Store>
[[nodiscard, gnu::noinline]] element_window<T> next_window(const Store& store, const scope& in, std::size_t index,
                                                           std::size_t end, bool forward, element_window<T> before) {
  const auto had = static_cast<std::size_t>(before.last - before.first);
  std::size_t first = index;
  std::size_t count = 1;
  if (had == 0) {
    // The part of the page that the walk has not passed.
    const auto [page_first, page_count] = Store::neighbours(index, end);
    first = forward ? index : page_first;
    count = forward ? page_first + page_count - index : index + 1 - page_first;
  } else if (forward) {
    count = Store::stretch(index, std::min(end - index, 2 * had));
  } else {
    // The stretch that ends with `index`.
    first = index + 1 - std::min(index + 1, 2 * had);
    for (count = Store::stretch(first, index + 1 - first); first + count <= index;
         count = Store::stretch(first, index + 1 - first)) {
      first += count;
    }
  }
  element_window<T> now;
  if (forward) {
    const std::size_t from = std::max(before.asked_until, first + count);
    now.asked_until = std::min(end, first + count + elements_ahead<T>);
    if (had > 0 && from < now.asked_until) store.look_ahead(in, from, now.asked_until - from);
  } else {
    const std::size_t until = had > 0 && before.asked_until > 0 ? std::min(before.asked_until, first) : first;
    now.asked_until = first - std::min(first, elements_ahead<T>);
    if (had > 0 && now.asked_until < until) store.look_ahead(in, now.asked_until, until - now.asked_until);
  }
  if (had == 0) now.asked_until = forward ? 0 : first;
  const std::span<T> found = store.places(in, first, count, !std::is_const_v<T>);
  now.first = found.data();
  now.last = found.data() + found.size();
  return now;
}

// T is const for reading. A step makes a window of elements local. Inside the window, the iterator and its copies need
// no look-up. A jump out of it looks up its element alone.
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
  // Converts an iterator for writing to one for reading.
  template <typename U>
    requires(std::is_same_v<T, const U>)
  element_iterator(const element_iterator<Store, U>& other)
      : store_(other.store_), in_(other.in_), end_(other.end_), index_(other.index_) {}

  [[nodiscard]] reference operator*() const { return *operator->(); }
  [[nodiscard]] pointer operator->() const {
    if (at_ != nullptr) [[likely]]
      return at_;
    return store_->place(*in_, index_, !std::is_const_v<T>);
  }
  [[nodiscard]] reference operator[](difference_type n) const { return *(*this + n); }

  element_iterator& operator++() {
    ++index_;
    if (at_ + 1 < window_.last) [[likely]] {
      ++at_;
    } else {
      step(true);
    }
    return *this;
  }
  element_iterator& operator--() {
    --index_;
    if (at_ > window_.first) [[likely]] {
      --at_;
    } else {
      step(false);
    }
    return *this;
  }
  element_iterator operator++(int) {
    element_iterator before = *this;
    ++*this;
    return before;
  }
  element_iterator operator--(int) {
    element_iterator before = *this;
    --*this;
    return before;
  }
  element_iterator& operator+=(difference_type n) {
    index_ += static_cast<std::size_t>(n);
    if (at_ == nullptr) return *this;
    const auto within = static_cast<std::size_t>(at_ - window_.first + n);
    if (within < static_cast<std::size_t>(window_.last - window_.first)) {
      at_ = window_.first + within;
    } else {
      at_ = nullptr;
      window_ = {};
    }
    return *this;
  }
  element_iterator& operator-=(difference_type n) { return *this += -n; }
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

  // At the end there is no element to make local, but a walk back may follow.
  void step(bool forward) {
    at_ = nullptr;
    if (index_ >= end_) {
      window_ = {};
      return;
    }
    window_ = next_window<T>(*store_, *in_, index_, end_, forward, window_);
    at_ = forward ? window_.first : window_.last - 1;
  }

  const Store* store_ = nullptr;
  const scope* in_ = nullptr;
  std::size_t end_ = 0;
  std::size_t index_ = 0;
  T* at_ = nullptr;  // the element, when it is in the window
  element_window<T> window_;
};

// A walk by chunks uses the `count` elements before `next`: requests those that the chunk before has not requested.
template <typename T, typename Store>
void follow_walk(const Store& store, const scope& in, std::size_t next, std::size_t count, std::size_t end,
                 bool begins) {
  const std::size_t asked = begins ? 0 : elements_ahead<T> - std::min(count, elements_ahead<T>);
  const std::size_t from = std::min(end, next + asked);
  const std::size_t until = std::min(end, next + elements_ahead<T>);
  if (from < until) store.look_ahead(in, from, until - from);
}

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
      follow_walk<T>(*view_.store_, *view_.in_, index_ + count, count, view_.end_, index_ == view_.first_);
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

// Calls visit(piece) for every number below `pieces`, on several fibers, and waits for all. An exception from one of
// them is thrown here, and no further piece is begun.
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
  // More than there are processors, because fibers that wait for the far tier leave theirs to others.
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
