// A chunk: one far object with room for some elements. The containers consist of chunks (docs/containers.md).
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "far/detail/pointer.h"
#include "far/relocatable.h"
#include "far/scope.h"
#include "far/tag.h"

namespace far {

namespace detail {

inline constexpr std::size_t page_bytes_of_chunks = 4096;
// Larger objects have pages of their own (docs/heap.md). An object that carries a description of its type has less
// room, and so has one with an alignment: it begins there in its page.
inline constexpr std::size_t largest_shared_bytes = 4080 - sizeof(void*);
template <typename T>
inline constexpr bool shares_a_page =
    sizeof(T) <= largest_shared_bytes && alignof(T) + sizeof(T) + sizeof(void*) <= page_bytes_of_chunks;
// A scope holds an object of up to so many bytes as a whole, and fetching it takes one round trip.
inline constexpr std::size_t largest_held_bytes = std::size_t{64} << 10;

// Whether an object may be moved by copying its bytes and forgetting the old ones, because no header refers to a place
// in it.
template <typename T>
inline constexpr bool moves_as_bytes = is_relocatable<T> && !has_far_pointers<T>;

// Moves elements to raw memory, and destroys the old ones.
template <typename T>
void relocate(T* from, std::size_t count, T* to) noexcept {
  if constexpr (moves_as_bytes<T>) {
    if (count > 0) std::memcpy(static_cast<void*>(to), static_cast<const void*>(from), count * sizeof(T));
  } else {
    static_assert(std::is_nothrow_move_constructible_v<T>,
                  "elements with far pointers are moved when their container grows: that must not throw");
    std::uninitialized_move_n(from, count, to);
    std::destroy_n(from, count);
  }
}

// Destroys elements. Elements with far pointers are zeros afterwards: the heap visits them in a chunk that moves,
// whether there is an element or only room for one.
template <typename T>
void destroy_elements(T* first, std::size_t count) noexcept {
  if constexpr (!std::is_trivially_destructible_v<T>) std::destroy_n(first, count);
  if constexpr (has_far_pointers<T>) std::memset(static_cast<void*>(first), 0, count * sizeof(T));
}

// Owns room for elements, zeros at first. It does not know how many there are, and does not destroy them. 8 bytes; it
// may lie in a far object itself. `OwnsOthers`: there are far pointers in elements, which T need not declare if the
// chunk never moves, as one above a page.
template <typename T, bool OwnsOthers = has_far_pointers<T>>
class chunk {
 public:
  chunk() = default;
  // Above a page, no byte of it is resident. `first`: the index of its first element in a container whose home may be
  // side by side with others. Throws std::bad_alloc when the far heap's addresses run out.
  chunk(const tag& in, std::size_t elements, std::size_t first = 0) {
    const std::size_t bytes = elements * sizeof(T);
    give_way(in);
    if (bytes > page_bytes_of_chunks) {
      allocate_pages(in, word_, bytes, in.stripe_of(first));
    } else {
      const scope here(in.home());
      std::memset(static_cast<void*>(allocate(in, word_, bytes, type_of<T>(), alignof(T))), 0, bytes);
    }
  }
  chunk(chunk&& other) noexcept { move_owner(other.word_, word_); }
  chunk& operator=(chunk&& other) noexcept {
    if (this == &other) return *this;
    release(word_, OwnsOthers);
    move_owner(other.word_, word_);
    return *this;
  }
  ~chunk() {
    if (*this) release(word_, OwnsOthers);
  }

  [[nodiscard]] explicit operator bool() const noexcept { return read_word(word_) != 0; }

  // The place of an element, or for one. Requires: there is room for it; `in` is as for a far pointer.
  [[nodiscard]] T* place(const scope& in, std::size_t index, bool write, bool lasting = true) const {
    if (is_huge()) [[likely]] {
      // For an element that lies in one page, only that page is checked.
      constexpr std::size_t looked_at = page_bytes_of_chunks % sizeof(T) == 0 ? 1 : sizeof(T);
      if constexpr (sizeof(T) <= page_bytes_of_chunks) {
        return at(in.reach_within(word_, index * sizeof(T), looked_at, write, lasting));
      } else {
        return at(in.reach_part(word_, index * sizeof(T), sizeof(T), write, lasting));
      }
    }
    return at(in.reach(word_, write, lasting)) + index;
  }

  // An element, if the `count` elements around it, from `first` on, are local; they take at most a page. Otherwise
  // nullptr, and nothing has changed.
  [[nodiscard]] T* place_if_ready(const scope& in, std::size_t index, std::size_t first, std::size_t count,
                                  bool write) const {
    if (is_huge()) [[likely]] {
      // Where elements fill pages, they lie in one.
      constexpr bool is_in_page = page_bytes_of_chunks % sizeof(T) == 0;
      return is_in_page
                 ? at_or_null(in.find_within(word_, index * sizeof(T), index * sizeof(T), index * sizeof(T), write))
                 : at_or_null(in.find_within(word_, index * sizeof(T), first * sizeof(T),
                                             (first + count) * sizeof(T) - 1, write));
    }
    std::byte* const whole = in.reach_if_ready(word_, write);
    return whole == nullptr ? nullptr : at(whole) + index;
  }

  // Several elements. All are resident, and held if they take at most 64 KiB.
  [[nodiscard]] T* places(const scope& in, std::size_t first, std::size_t count, bool write,
                          bool lasting = true) const {
    std::byte* const begin = in.reach_part(word_, first * sizeof(T), count * sizeof(T), write, lasting);
    if constexpr (sizeof(T) > largest_held_bytes) {
      bring_in_rest(in, word_, first * sizeof(T), count * sizeof(T), write);
    }
    return at(begin);
  }

  // Reduces elements; those that are remote stay there.
  [[nodiscard]] reduced_numbers reduce(const scope& in, std::size_t first, std::size_t count,
                                       const reduction& how) const {
    if (is_huge()) return reduce_part(word_, first * sizeof(T), count * sizeof(T), how);
    return reduce_bytes(reinterpret_cast<const std::byte*>(places(in, first, count, false)), count * sizeof(T), how);
  }

  // Asks about elements; those that are remote stay there.
  void answer(const scope& in, std::size_t first, std::size_t count, const reduction& how, const answer_sink& to,
              const std::uint8_t* groups) const {
    if (is_huge()) return answer_part(word_, first * sizeof(T), count * sizeof(T), how, to, groups);
    answer_local(reinterpret_cast<const std::byte*>(places(in, first, count, false)), count * sizeof(T), how, to,
                 groups);
  }
  // The page that the element begins; null if the chunk has no pages of its own.
  [[nodiscard]] const std::byte* page_of(std::size_t index) const {
    return is_huge() ? address_of_part(word_, index * sizeof(T)) : nullptr;
  }
  // Copies elements that lie in one page; if they are remote, they stay there.
  void copy(const scope& in, std::size_t first, std::size_t count, T* to) const {
    if (is_huge()) {
      copy_part(word_, first * sizeof(T), count * sizeof(T), reinterpret_cast<std::byte*>(to));
    } else {
      std::memcpy(to, places(in, first, count, false), count * sizeof(T));
    }
  }

  // See forget_part().
  void forget(const scope& in, std::size_t first, std::size_t count, bool here_too) const {
    if (is_huge()) return forget_part(word_, first * sizeof(T), count * sizeof(T), here_too);
    if (here_too) std::memset(static_cast<void*>(places(in, first, count, true)), 0, count * sizeof(T));
  }

  // Starts to bring elements in.
  void prefetch(std::size_t first, std::size_t count) const {
    if (is_huge()) {
      prefetch_part(word_, first * sizeof(T), count * sizeof(T));
    } else if (*this) {
      static_cast<void>(detail::prefetch(word_));
    }
  }

  // The same, unless the first and the last are local already. Requires: the chunk has pages of its own.
  void prefetch_unless_ready(const scope& in, std::size_t first, std::size_t count) const {
    const bool is_ready =
        in.is_within_reach(word_, first * sizeof(T)) && in.is_within_reach(word_, (first + count) * sizeof(T) - 1);
    if (!is_ready) prefetch_part(word_, first * sizeof(T), count * sizeof(T));
  }

  // Whether a part of it is lost, so that it must not be used again. Requires: the chunk has pages of its own.
  [[nodiscard]] bool is_any_lost() const { return detail::is_any_lost(word_); }

  // For pointers_of.
  void visit_word(type_of_object::word_visitor visit, void* context) { visit(word_, context); }

 private:
  [[nodiscard]] bool is_huge() const { return word::is_huge(read_word(word_)); }
  [[nodiscard]] static T* at_or_null(std::byte* address) { return address == nullptr ? nullptr : at(address); }
  [[nodiscard]] static T* at(std::byte* address) { return std::launder(reinterpret_cast<T*>(address)); }

  mutable owner_word word_{0};
};

}  // namespace detail

template <typename T, bool OwnsOthers>
struct pointers_of<detail::chunk<T, OwnsOthers>> {
  static void visit(detail::chunk<T, OwnsOthers>& in, auto&& pointer) { pointer(in); }
};

}  // namespace far
