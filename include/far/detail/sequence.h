// Walks over the elements of a chunk_store: iterators, chunk views, and visits by many fibers (docs/containers.md).
#pragma once

#include <algorithm>
#include <atomic>
#include <compare>
#include <cstddef>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <ranges>
#include <span>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "far/detail/visitor.h"
#include "far/runtime.h"
#include "far/scope.h"
#include "far/task.h"

namespace far {

// A prefetcher of one's own for a vector or an array, in place of the container's guesses. It is called with the index
// of an element when an access does not find that element local, and when a walk comes to elements that it has not
// prefetched; it calls fetch(first, count) for what is likely to be used next. Elements that do not exist are ignored.
// Called by all fibers and threads that use the container, inside their scopes; what it throws reaches the access.
using prefetcher = std::function<void(std::size_t index, const std::function<void(std::size_t, std::size_t)>& fetch)>;

namespace detail {

// The elements of a container, and the prefetcher that its user has plugged in, or null.
template <typename Chunks>
struct element_store : Chunks {
  using Chunks::Chunks;
  std::unique_ptr<prefetcher> own_prefetcher;

  // Asks it what will be used next, of `end` elements.
  [[gnu::noinline]] void ask_own(const scope& in, std::size_t index, std::size_t end) const {
    (*own_prefetcher)(index, [&](std::size_t first, std::size_t count) {
      if (first < end) Chunks::look_ahead(in, first, std::min(count, end - first));
    });
  }
};

// How far ahead of a walk elements are prefetched: as much as one call of the pager takes, 64 pages. That exceeds the
// bandwidth-delay product of a 25 Gb/s link with 80 us.
template <typename T>
inline constexpr std::size_t elements_ahead = std::max<std::size_t>((std::size_t{256} << 10) / sizeof(T), 2);

// How a walk of an iterator goes on: the element that it has come to, and how far ahead elements were requested.
template <typename T>
struct walk_step {
  T* at = nullptr;
  std::size_t asked = 0;
};
// Nothing was requested. After a jump, a step into another window need not be a walk; the step after that is.
inline constexpr std::size_t asked_nothing = ~std::size_t{0};
inline constexpr std::size_t has_jumped = asked_nothing - 1;

// A walk has come to `index`, in a window that it has not used yet: makes the window local, and prefetches those ahead.
// Not Lasting: the elements are used once.
template <typename T, bool Lasting, typename Store>
[[nodiscard, gnu::noinline]] walk_step<T> enter_window(const Store& store, const scope& in, std::size_t index,
                                                       std::size_t end, bool forward, std::size_t asked) {
  std::size_t first = index - index % Store::window;
  std::size_t behind = std::min(end, first + Store::window);
  const bool walks = asked != has_jumped;
  // Requests several windows at a time.
  constexpr std::size_t ahead = elements_ahead<T>;
  constexpr std::size_t least = ahead / 4;
  if (store.own_prefetcher != nullptr) [[unlikely]] {
    store.ask_own(in, index, end);
  } else if (!walks) {
    asked = forward ? behind : first;
  } else if (forward) {
    const std::size_t until = end - behind > ahead ? behind + ahead : end;
    const std::size_t from = asked > behind && asked <= until ? asked : behind;
    if (from < until && (until == end || until - from >= least)) {
      store.look_ahead(in, from, until - from);
      asked = until;
    }
  } else {
    const std::size_t from = first - std::min(first, ahead);
    const std::size_t until = asked < first && asked >= from ? asked : first;
    if (from < until && (from == 0 || until - from >= least)) {
      store.look_ahead(in, from, until - from);
      asked = from;
    }
  }
  T* const at = store.place_in_window(in, index, !std::is_const_v<T>);
  if (at != nullptr) [[likely]]
    return {at, asked};
  // A walk waits once for all that a scope holds of an object. What does not last is looked up again at each window.
  constexpr std::size_t piece = Lasting ? Store::piece : Store::window;
  if (walks && forward) behind = std::min(end, first - first % piece + piece);
  if (walks && !forward) first -= first % piece;
  return {store.places(in, first, behind - first, !std::is_const_v<T>, Lasting).data() + (index - first), asked};
}

// T is const for reading. A step into another window, about a page of elements, makes that window local and prefetches
// those ahead. Inside a window, the iterator and its copies need no look-up. A jump out of it looks where its element
// is, and fetches nothing: only the use of the element does.
//
// Algorithms copy iterators all the time, so they are to live in registers: functions that are not inlined are given
// their parts and never their address, and a window is known by its elements' indices.
template <typename Store, typename T, bool Lasting = true>
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
      : store_(&store), in_(&in), end_(end), index_(index) {
    find();
  }
  // Converts an iterator for writing to one for reading.
  template <typename U>
    requires(std::is_same_v<T, const U>)
  element_iterator(const element_iterator<Store, U, Lasting>& other)
      : store_(other.store_),
        in_(other.in_),
        end_(other.end_),
        index_(other.index_),
        at_(other.at_),
        asked_(other.asked_) {}

  [[nodiscard]] reference operator*() const { return *operator->(); }
  [[nodiscard]] pointer operator->() const {
    if (at_ != nullptr) [[likely]]
      return at_;
    return place(*store_, *in_, index_, end_);
  }
  [[nodiscard]] reference operator[](difference_type n) const { return *(*this + n); }

  element_iterator& operator++() {
    ++index_;
    if (index_ % Store::window != 0 && at_ != nullptr) [[likely]] {
      ++at_;
    } else {
      step(true);
    }
    return *this;
  }
  element_iterator& operator--() {
    if (index_-- % Store::window != 0 && at_ != nullptr) [[likely]] {
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
    const std::size_t to = index_ + static_cast<std::size_t>(n);
    const bool stays = (to ^ index_) < Store::window;
    index_ = to;
    if (stays && at_ != nullptr) {
      at_ += n;
    } else {
      asked_ = has_jumped;
      find();
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
  template <typename, typename, bool>
  friend class element_iterator;

  [[nodiscard, gnu::noinline]] static T* place(const Store& store, const scope& in, std::size_t index,
                                               std::size_t end) {
    if (store.own_prefetcher != nullptr) [[unlikely]] {
      if (T* const at = store.place_in_window(in, index, !std::is_const_v<T>)) return at;
      store.ask_own(in, index, end);
    }
    return store.place(in, index, !std::is_const_v<T>, Lasting);
  }
  // At the end there is no element, but a walk back may follow.
  void find() { at_ = index_ < end_ ? store_->place_in_window(*in_, index_, !std::is_const_v<T>) : nullptr; }
  void step(bool forward) {
    at_ = nullptr;
    if (index_ >= end_) return;
    const walk_step<T> now = enter_window<T, Lasting>(*store_, *in_, index_, end_, forward, asked_);
    at_ = now.at;
    asked_ = now.asked;
  }

  const Store* store_ = nullptr;
  const scope* in_ = nullptr;
  std::size_t end_ = 0;
  std::size_t index_ = 0;
  T* at_ = nullptr;  // the element, when all of its window are local
  std::size_t asked_ = asked_nothing;
};

// A walk by chunks uses the `count` elements before `next`: requests those that the chunk before has not requested.
template <typename T, typename Store>
void follow_walk(const Store& store, const scope& in, std::size_t next, std::size_t count, std::size_t end,
                 bool begins) {
  if (store.own_prefetcher != nullptr) return store.ask_own(in, next - count, end);
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
inline void visit_on_fibers(runtime& home, std::size_t pieces, const visitor<std::size_t>& visit) {
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
template <std::invocable<std::size_t> Visit>
void visit_on_fibers(runtime& home, std::size_t pieces, const Visit& visit) {
  visit_on_fibers(home, pieces, visitor<std::size_t>(visit));
}

}  // namespace detail
}  // namespace far
