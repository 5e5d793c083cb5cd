// far::list: std::list in far memory (AIFM, section 5.1; docs/containers.md).
//
//     far::list<order> orders(farheap);
//     far::list<order>::position mine = orders.push_back({...});  // to keep: valid until it is erased
//     const far::scope here(farheap);
//     orders.deref_mut(here, mine).paid = true;
//     orders.erase(mine);
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <new>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "far/detail/chunk_store.h"
#include "far/detail/elements.h"

namespace far {

// A doubly linked list. Nodes share pages in the order of their creation, or fill the gaps of erased ones, so that a
// walk fetches many at once. While it uses one node, the next is prefetched. Elements never move. A position names an
// element outside scopes, and takes 4 bytes. A list takes at least a page, and keeps the room of erased elements for
// new ones. Move-only.
template <typename T>
class list {
  struct node {
    std::uint32_t next;
    std::uint32_t previous;
    alignas(T) std::byte room[sizeof(T)];
  };

 public:
  using value_type = T;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;

  // The position of an element, or the end. Valid until the element is erased, also after the list has been moved.
  class position {
   public:
    position() = default;
    [[nodiscard]] friend bool operator==(position, position) = default;

   private:
    friend class list;
    explicit position(std::uint32_t number) : number_(number) {}
    std::uint32_t number_ = none;
  };

  // Not Lasting: for a walk that uses the elements once.
  template <typename Value, bool Lasting = true>
  class basic_iterator {
   public:
    using iterator_concept = std::bidirectional_iterator_tag;
    using iterator_category = std::bidirectional_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = Value*;
    using reference = Value&;

    basic_iterator() = default;
    template <typename Other>
      requires(std::is_same_v<Value, const Other>)
    basic_iterator(const basic_iterator<Other, Lasting>& other)
        : in_(other.in_), list_(other.list_), at_(other.at_), node_(other.node_) {}

    [[nodiscard]] Value& operator*() const {
      if constexpr (std::is_const_v<Value>) return *std::launder(room_of(*node_));
      return *list_->value(*in_, at_, true, Lasting);
    }
    [[nodiscard]] Value* operator->() const { return std::addressof(**this); }
    basic_iterator& operator++() {
      const std::uint32_t next = node_->next;
      if (next / nodes_a_page == at_ / nodes_a_page) [[likely]] {
        stay_in_page(next);
      } else {
        go_to(next);
        list_->bring(*in_, next, Lasting);
      }
      return *this;
    }
    basic_iterator& operator--() {
      go_to(at_ == none ? list_->last_ : node_->previous);
      return *this;
    }
    basic_iterator operator++(int) {
      basic_iterator before = *this;
      ++*this;
      return before;
    }
    basic_iterator operator--(int) {
      basic_iterator before = *this;
      --*this;
      return before;
    }
    [[nodiscard]] friend bool operator==(const basic_iterator& a, const basic_iterator& b) { return a.at_ == b.at_; }
    // The position, which stays valid when the scope ends.
    [[nodiscard]] position where() const { return position(at_); }

   private:
    friend class list;
    template <typename, bool>
    friend class basic_iterator;
    basic_iterator(const list& home, const scope& in, std::uint32_t at) : in_(&in), list_(&home) { go_to(at); }

    // Does not look up the chunk: a walk waits for each link, so the work between two of them counts. Nodes lie in the
    // order of their creation, and mostly that is the order of the list, too. So the next place is guessed, by a branch
    // that processors predict: then the walk does not wait for the link.
    void stay_in_page(std::uint32_t next) {
      if constexpr (4096 % sizeof(node) == 0) {
        if (next == at_ + 1) [[likely]] {
          ++node_;
          asm volatile("" : "+r"(node_));  // otherwise a compiler may compute both places and select one
        } else {
          node_ += static_cast<std::ptrdiff_t>(next) - static_cast<std::ptrdiff_t>(at_);
        }
        at_ = next;
      } else {
        go_to(next);
      }
    }

    void go_to(std::uint32_t at) {
      at_ = at;
      node_ = at == none ? nullptr : list_->place(*in_, at, false, Lasting);
    }

    const scope* in_ = nullptr;
    const list* list_ = nullptr;
    std::uint32_t at_ = none;
    node* node_ = nullptr;  // in place until the scope ends
  };
  using iterator = basic_iterator<T>;
  using const_iterator = basic_iterator<const T>;

  explicit list(const tag& in) : in_(in) { detail::require_relocatable<T>(); }
  list(list&& other) noexcept : in_(other.in_) { take(other); }
  list& operator=(list&& other) noexcept {
    if (this == &other) return *this;
    clear();
    in_ = other.in_;
    take(other);
    return *this;
  }
  ~list() { clear(); }

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] static constexpr std::size_t max_size() noexcept { return none; }
  [[nodiscard]] const tag& home() const noexcept { return in_; }

  // Require: it is the position of an element; the list is not empty.
  [[nodiscard]] const T& deref(const scope& in, position at) const { return *value(in, at.number_, false); }
  [[nodiscard]] T& deref_mut(const scope& in, position at) { return *value(in, at.number_, true); }
  // An element that is used once: it does not displace what is used often. The same of ranges.
  [[nodiscard]] const T& deref(const scope& in, position at, non_temporal_t /*how*/) const {
    return *value(in, at.number_, false, false);
  }
  [[nodiscard]] T& deref_mut(const scope& in, position at, non_temporal_t /*how*/) {
    return *value(in, at.number_, true, false);
  }
  [[nodiscard]] const T& front(const scope& in) const { return *value(in, first_, false); }
  [[nodiscard]] T& front_mut(const scope& in) { return *value(in, first_, true); }
  [[nodiscard]] const T& back(const scope& in) const { return *value(in, last_, false); }
  [[nodiscard]] T& back_mut(const scope& in) { return *value(in, last_, true); }

  [[nodiscard]] auto range(const scope& in) const {
    return std::ranges::subrange(const_iterator(*this, in, first_), const_iterator(*this, in, none));
  }
  [[nodiscard]] auto range_mut(const scope& in) {
    return std::ranges::subrange(iterator(*this, in, first_), iterator(*this, in, none));
  }
  [[nodiscard]] auto range(const scope& in, non_temporal_t /*how*/) const {
    using passing = basic_iterator<const T, false>;
    return std::ranges::subrange(passing(*this, in, first_), passing(*this, in, none));
  }
  [[nodiscard]] auto range_mut(const scope& in, non_temporal_t /*how*/) {
    using passing = basic_iterator<T, false>;
    return std::ranges::subrange(passing(*this, in, first_), passing(*this, in, none));
  }
  // An iterator at a position.
  [[nodiscard]] const_iterator from(const scope& in, position at) const { return {*this, in, at.number_}; }
  [[nodiscard]] iterator from_mut(const scope& in, position at) { return {*this, in, at.number_}; }

  template <typename... How>
  const T& deref(const scope&& the_scope_must_be_a_local_variable, How...) const = delete;
  template <typename... How>
  T& deref_mut(const scope&& the_scope_must_be_a_local_variable, How...) = delete;
  void front(const scope&& the_scope_must_be_a_local_variable) const = delete;
  void front_mut(const scope&& the_scope_must_be_a_local_variable) = delete;
  void back(const scope&& the_scope_must_be_a_local_variable) const = delete;
  void back_mut(const scope&& the_scope_must_be_a_local_variable) = delete;
  void from(const scope&& the_scope_must_be_a_local_variable, position at) const = delete;
  void from_mut(const scope&& the_scope_must_be_a_local_variable, position at) = delete;
  template <typename... How>
  void range(const scope&& the_scope_must_be_a_local_variable, How...) const = delete;
  template <typename... How>
  void range_mut(const scope&& the_scope_must_be_a_local_variable, How...) = delete;

  // The ends as positions; of an empty list, both are the end.
  [[nodiscard]] position begin_position() const noexcept { return position(first_); }
  [[nodiscard]] static position end_position() noexcept { return position(none); }

  // Before `at`, or last. O(1), strong exception guarantee. Return where it is.
  template <typename... Arguments>
    requires std::constructible_from<T, Arguments...>
  position emplace(position at, Arguments&&... arguments) {
    const scope here(in_.home());
    const joint where = joint_before(here, at.number_);
    const std::uint32_t fresh = take_node(here);
    node* const mine = place(here, fresh, true);
    try {
      std::construct_at(room_of(*mine), std::forward<Arguments>(arguments)...);
    } catch (...) {
      give_node(*mine, fresh);
      throw;
    }
    link(*mine, fresh, where);
    ++size_;
    return position(fresh);
  }
  position insert(position at, const T& value)
    requires std::copy_constructible<T>
  {
    return emplace(at, value);
  }
  position insert(position at, T&& value)
    requires std::move_constructible<T>
  {
    return emplace(at, std::move(value));
  }
  template <typename... Arguments>
    requires std::constructible_from<T, Arguments...>
  position emplace_back(Arguments&&... arguments) {
    return emplace(end_position(), std::forward<Arguments>(arguments)...);
  }
  template <typename... Arguments>
    requires std::constructible_from<T, Arguments...>
  position emplace_front(Arguments&&... arguments) {
    return emplace(begin_position(), std::forward<Arguments>(arguments)...);
  }
  position push_back(const T& value)
    requires std::copy_constructible<T>
  {
    return emplace_back(value);
  }
  position push_back(T&& value)
    requires std::move_constructible<T>
  {
    return emplace_back(std::move(value));
  }
  position push_front(const T& value)
    requires std::copy_constructible<T>
  {
    return emplace_front(value);
  }
  position push_front(T&& value)
    requires std::move_constructible<T>
  {
    return emplace_front(std::move(value));
  }

  // O(1). Returns the position after it. This and all below except clear() need the neighbours, too: when one of them
  // is lost, they throw page_lost and change nothing.
  position erase(position at) {
    const scope here(in_.home());
    node* const mine = place_whole(here, at.number_);
    const joint where = joint_around(here, *mine);
    unlink(where);
    std::destroy_at(std::launder(room_of(*mine)));
    give_node(*mine, at.number_);
    --size_;
    return position(where.next);
  }
  // Require: !empty().
  void pop_front() { erase(position(first_)); }
  void pop_back() { erase(position(last_)); }
  // Returns how many it erased.
  template <std::predicate<const T&> Unwanted>
  std::size_t erase_if(Unwanted unwanted) {
    std::size_t count = 0;
    for (std::uint32_t at = first_; at != none;) {
      const scope here(in_.home());
      const std::uint32_t next = links(here, at, false).next;
      bring(here, next);
      if (unwanted(std::as_const(*value(here, at, false)))) {
        erase(position(at));
        ++count;
      }
      at = next;
    }
    return count;
  }
  // Puts the element at `moved` before `at`, in O(1), without moving its bytes: for lists in the order of use.
  void move_before(position at, position moved) {
    if (at == moved) return;
    const scope here(in_.home());
    node* const mine = place(here, moved.number_, true);
    if (mine->next == at.number_) return;
    const joint from = joint_around(here, *mine);
    const joint to = joint_before(here, at.number_);
    unlink(from);
    link(*mine, moved.number_, to);
  }
  // Puts [first, last) before `at`, in O(1), likewise. Requires: `at` is not in it, but may be `first` or `last`.
  void move_before(position at, position first, position last) {
    if (first == last || at == first || at == last) return;
    const scope here(in_.home());
    const std::uint32_t back = last == end_position() ? last_ : links(here, last.number_, false).previous;
    node* const first_node = place(here, first.number_, true);
    node* const back_node = place(here, back, true);
    const joint from = joint_of(here, first_node->previous, last.number_);
    const joint to = joint_before(here, at.number_);
    unlink(from);
    first_node->previous = to.previous;
    back_node->next = to.next;
    (to.previous_node == nullptr ? first_ : to.previous_node->next) = first.number_;
    (to.next_node == nullptr ? last_ : to.next_node->previous) = back;
  }

  // Takes an element of another list, before `at`, in O(1). The element is moved, for lists share no pages. Returns its
  // new position. Requires: `other` is not this list.
  position splice(position at, list& other, position moved)
    requires std::move_constructible<T>
  {
    const scope there(other.in_.home());
    node* const taken = other.place(there, moved.number_, true);
    // Fetches the neighbours, so that erase() finds them.
    static_cast<void>(other.joint_around(there, *taken));
    other.bring(there, taken->next);
    const position added = emplace(at, std::move(*std::launder(room_of(*taken))));
    other.erase(moved);
    return added;
  }
  // Takes all elements: of a list of the same tag, if this one is empty, in O(1), and positions stay good; otherwise
  // one by one. When it throws, each element is in one of the lists. Requires: `other` is not this list.
  void splice(position at, list& other)
    requires std::move_constructible<T>
  {
    if (empty() && has_home_of(other)) {
      clear();
      take(other);
    }
    while (!other.empty()) splice(at, other, other.begin_position());
  }
  // Takes all elements of a list that is sorted, as this one is, so that all are sorted: those of this list before
  // equal ones of the other. When it throws, each element is in one of the lists, and both are sorted. Does nothing
  // with this list itself.
  template <typename Less = std::less<>>
    requires std::strict_weak_order<Less&, const T&, const T&> && std::move_constructible<T>
  void merge(list& other, Less less = {}) {
    if (this == &other) return;
    for (std::uint32_t at = first_; !other.empty();) {
      bool is_next = true;  // the other's first comes before `at`
      if (at != none) {
        const scope here(in_.home());
        const scope there(other.in_.home());
        is_next = less(std::as_const(*other.value(there, other.first_, false)), std::as_const(*value(here, at, false)));
        if (!is_next) {
          at = links(here, at, false).next;
          bring(here, at);
        }
      }
      if (is_next) splice(position(at), other, other.begin_position());
    }
  }
  // Stable. Elements stay where they are and are compared in place, so the last merges of a list much larger than local
  // memory wait for many pages. Meanwhile it takes 6 bytes of local memory an element. An exception from `less` leaves
  // the list as it was.
  template <typename Less = std::less<>>
    requires std::strict_weak_order<Less&, const T&, const T&>
  void sort(Less less = {}) {
    std::vector<std::uint32_t> order;
    order.reserve(size_);
    for (std::uint32_t at = first_; at != none;) {
      const scope here(in_.home());
      order.push_back(at);
      at = links(here, at, false).next;
      if (at / nodes_a_page != order.back() / nodes_a_page) bring(here, at);
    }
    const auto is_less = [&](std::uint32_t a, std::uint32_t b) {
      const scope here(in_.home());
      return less(std::as_const(*value(here, a, false)), std::as_const(*value(here, b, false)));
    };
    std::vector<std::uint32_t> scratch(order.size() / 2 + 1);
    sort_part(std::span(order), std::span(scratch), is_less);
    relink(order);
  }

  // Gives all room back. If parts of the list are lost, elements that cannot be reached from either end are not
  // destroyed.
  void clear() noexcept {
    if constexpr (!std::is_trivially_destructible_v<T>) {
      if (!detail::unless_lost([&] { destroy_from(first_, &node::next, true); })) {
        static_cast<void>(detail::unless_lost([&] { destroy_from(last_, &node::previous, false); }));
      }
    }
    chunks_.clear();
    first_ = last_ = free_ = none;
    nodes_ = 0;
    size_ = 0;
  }

  void swap(list& other) noexcept {
    list taken(std::move(other));
    other = std::move(*this);
    *this = std::move(taken);
  }
  friend void swap(list& a, list& b) noexcept { a.swap(b); }

 private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint32_t nodes_a_page = std::max<std::uint32_t>(4096 / sizeof(node), 1);
  static constexpr std::size_t nodes_per_chunk =
      std::max<std::size_t>(elements_per_object<node>, 4096 / sizeof(node) + 1);

  [[nodiscard]] node* place(const scope& in, std::uint32_t number, bool write, bool lasting = true) const {
    return chunks_[number / nodes_per_chunk].place(in, number % nodes_per_chunk, write, lasting);
  }
  // The same to destroy its element: all of it, however large it is.
  [[nodiscard]] node* place_whole(const scope& in, std::uint32_t number) const {
    if constexpr (sizeof(node) <= detail::largest_held_bytes) return place(in, number, true);
    return chunks_[number / nodes_per_chunk].places(in, number % nodes_per_chunk, 1, true);
  }
  [[nodiscard]] node& links(const scope& in, std::uint32_t number, bool write) const {
    return *place(in, number, write);
  }
  [[nodiscard]] static T* room_of(node& one) { return reinterpret_cast<T*>(one.room); }
  [[nodiscard]] T* value(const scope& in, std::uint32_t number, bool write, bool lasting = true) const {
    return std::launder(room_of(*place(in, number, write, lasting)));
  }
  // Starts to fetch what follows the node that a walk has reached.
  void bring(const scope& in, std::uint32_t number, bool lasting = true) const {
    if (number == none) return;
    const std::uint32_t next = place(in, number, false, lasting)->next;
    if (next != none) chunks_[next / nodes_per_chunk].prefetch_unless_ready(in, next % nodes_per_chunk, 1);
  }

  // Destroys elements from one end on.
  void destroy_from(std::uint32_t at, std::uint32_t node::* towards, bool forward) {
    while (at != none) {
      const scope here(in_.home());
      const std::uint32_t next = links(here, at, false).*towards;
      if (forward) static_cast<void>(detail::unless_lost([&] { bring(here, next); }));
      std::destroy_at(std::launder(room_of(*place_whole(here, at))));
      at = next;
    }
  }

  // A node without a value, which nothing links to. Lost nodes are skipped.
  [[nodiscard]] std::uint32_t take_node(const scope& in) {
    if (free_ != none) {
      const std::uint32_t taken = free_;
      if (detail::unless_lost([&] { free_ = links(in, taken, true).next; })) return taken;
      free_ = none;
    }
    while (true) {
      if (nodes_ == none) detail::throw_too_long();
      if (nodes_ / nodes_per_chunk == chunks_.size()) chunks_.emplace_back(in_, nodes_per_chunk);
      const std::uint32_t taken = nodes_++;
      if (detail::unless_lost([&] { static_cast<void>(links(in, taken, true)); })) return taken;
    }
  }
  void give_node(node& mine, std::uint32_t number) noexcept {
    mine.next = free_;
    free_ = number;
  }

  // Two neighbours, in place until the scope ends; null: there is none.
  struct joint {
    std::uint32_t previous;
    std::uint32_t next;
    node* previous_node;
    node* next_node;
  };
  [[nodiscard]] joint joint_of(const scope& in, std::uint32_t previous, std::uint32_t next) const {
    return {previous, next, previous == none ? nullptr : place(in, previous, true),
            next == none ? nullptr : place(in, next, true)};
  }
  [[nodiscard]] joint joint_before(const scope& in, std::uint32_t number) const {
    return joint_of(in, number == none ? last_ : links(in, number, false).previous, number);
  }
  [[nodiscard]] joint joint_around(const scope& in, const node& one) const {
    return joint_of(in, one.previous, one.next);
  }

  // Puts a node between neighbours; takes out what is between them.
  void link(node& mine, std::uint32_t number, const joint& where) noexcept {
    mine.next = where.next;
    mine.previous = where.previous;
    (where.previous_node == nullptr ? first_ : where.previous_node->next) = number;
    (where.next_node == nullptr ? last_ : where.next_node->previous) = number;
  }
  void unlink(const joint& around) noexcept {
    (around.previous_node == nullptr ? first_ : around.previous_node->next) = around.next;
    (around.next_node == nullptr ? last_ : around.next_node->previous) = around.previous;
  }

  // Merge sort, halves first, so that parts that fit in local memory are sorted while they are there. `scratch` has
  // room for half of them. (Clang warns about libstdc++'s std::stable_sort.)
  template <typename Less>
  static void sort_part(std::span<std::uint32_t> part, std::span<std::uint32_t> scratch, const Less& less) {
    if (part.size() < 2) return;
    const std::size_t middle = part.size() / 2;
    sort_part(part.first(middle), scratch, less);
    sort_part(part.subspan(middle), scratch, less);
    if (!less(part[middle], part[middle - 1])) return;
    std::ranges::copy(part.first(middle), scratch.begin());
    std::size_t to = 0;
    std::size_t first = 0;
    for (std::size_t second = middle; first < middle && second < part.size(); ++to) {
      part[to] = less(part[second], scratch[first]) ? part[second++] : scratch[first++];
    }
    std::ranges::copy(scratch.subspan(first, middle - first), part.begin() + static_cast<std::ptrdiff_t>(to));
  }

  // Links all nodes in another order. A node that is lost stays between its neighbours.
  void relink(const std::vector<std::uint32_t>& order) {
    constexpr std::size_t ahead = 16;
    std::uint32_t lost = none;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const scope here(in_.home());
      if (i + ahead < order.size()) {
        const std::uint32_t later = order[i + ahead];
        chunks_[later / nodes_per_chunk].prefetch_unless_ready(here, later % nodes_per_chunk, 1);
      }
      const bool done = detail::unless_lost([&] {
        node* const mine = place(here, order[i], true);
        mine->previous = i == 0 ? none : order[i - 1];
        mine->next = i + 1 == order.size() ? none : order[i + 1];
      });
      if (!done) lost = order[i];
    }
    first_ = order.empty() ? none : order.front();
    last_ = order.empty() ? none : order.back();
    if (lost == none) return;
    const scope here(in_.home());
    static_cast<void>(place(here, lost, true));
  }

  [[nodiscard]] bool has_home_of(const list& other) const noexcept {
    return &in_.home() == &other.in_.home() && in_.key() == other.in_.key();
  }

  void take(list& other) noexcept {
    chunks_ = std::exchange(other.chunks_, {});
    first_ = std::exchange(other.first_, none);
    last_ = std::exchange(other.last_, none);
    free_ = std::exchange(other.free_, none);
    nodes_ = std::exchange(other.nodes_, 0);
    size_ = std::exchange(other.size_, 0);
  }

  tag in_;
  std::vector<detail::chunk<node, detail::has_far_pointers<T>>> chunks_;  // each above a page
  std::uint32_t first_ = none;
  std::uint32_t last_ = none;
  std::uint32_t free_ = none;  // nodes of erased elements, by `next`
  std::uint32_t nodes_ = 0;    // how many nodes ever were
  std::size_t size_ = 0;
};

}  // namespace far
