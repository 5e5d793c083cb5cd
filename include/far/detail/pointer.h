// The common part of far::unique_ptr and far::shared_ptr: calls into the object heap.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "far/detail/api.h"
#include "far/detail/reduction.h"
#include "far/detail/type.h"
#include "far/detail/word.h"
#include "far/page_lost.h"
#include "far/relocatable.h"
#include "far/scope.h"
#include "far/tag.h"

namespace far {

// Says that an access is the last for a while: the object is among the next to leave, and displaces no other (AIFM,
// section 5.3).
struct non_temporal_t {
  explicit non_temporal_t() = default;
};
inline constexpr non_temporal_t non_temporal{};

namespace detail {

using owner_word = std::atomic<std::uint64_t>;

// Under memory pressure, lets other fibers run. Call it before the scope is opened: fibers in a scope go first.
FAR_API void give_way(const tag& in);
// Makes an object of `bytes` that `owner` owns, resident and held by the scopes that are open. May wait. `alignment`: a
// power of two, at most most_alignment. `lasting`: it is worth keeping in local memory afterwards.
[[nodiscard]] FAR_API std::byte* allocate(const tag& in, owner_word& owner, std::size_t bytes,
                                          const type_of_object* type, std::size_t alignment = 16, bool lasting = true);
// Likewise for an object above a page, aligned to a page. It consists of zeros, none of which is resident. Requires:
// bytes > 4080. May be called outside scopes. `stripe`: objects of the same one should lie on the same servers of the
// far tier; 0: anywhere.
FAR_API void allocate_pages(const tag& in, owner_word& owner, std::size_t bytes, std::uint32_t stripe = 0);
// See object_heap: `owns_others`: there are far pointers in the object.
FAR_API void move_owner(owner_word& from, owner_word& to);
FAR_API void release(owner_word& owner, bool owns_others);
// Requires: the object is held, or larger than a page.
[[nodiscard]] FAR_API std::size_t bytes_of(const owner_word& owner);
[[nodiscard]] FAR_API bool prefetch(owner_word& owner);
// Whether a small object is in local memory, in a page that somebody has used since it came there, or is coming for
// somebody: if its tag has a handler, that will be called before it leaves. Of what is on its way out, says no once the
// handler is about to be called.
// Requires: the caller is in a scope.
[[nodiscard]] FAR_API bool is_local(const owner_word& owner);
FAR_API void prefetch_part(owner_word& owner, std::size_t offset, std::size_t bytes);
// Whether a part of the object is lost. Requires: it is larger than a page.
[[nodiscard]] FAR_API bool is_any_lost(const owner_word& owner);
// Reduces the numbers in a part of the object: those of its pages that are remote, where they are. May wait; throws
// page_lost. Requires: it is larger than a page, nobody writes to the part, and the caller is in a scope.
[[nodiscard]] FAR_API reduced_numbers reduce_part(const owner_word& owner, std::size_t offset, std::size_t bytes,
                                                  const reduction& how);
// Gets the answers about the pages of a part in turn, each with the bytes of numbers that it is about.
struct answer_sink {
  void (*take)(void* context, std::size_t bytes, const std::byte* answer) = nullptr;
  void* context = nullptr;
};
// Asks about the numbers in a part of the object (reduction_kind). Remote pages stay there. As reduce_part(). `groups`:
// those of the numbers, if the question has groups.
FAR_API void answer_part(const owner_word& owner, std::size_t offset, std::size_t bytes, const reduction& how,
                         const answer_sink& to, const std::uint8_t* groups);
// The pages of some rows, those of all columns in turn (keyed_rows), and what the far tier says about them: the answer
// is as of reduction_kind, with 8 bytes behind it: it counts no more rows than there are, and no more values than rows.
struct question_about_rows {
  std::array<const std::byte*, most_row_pages> pages{};
  bool is_answered = false;
  alignas(8) std::array<std::byte, most_bucket_bytes + 8> answer{};
};
// Has the far tier answer them, side by side. If rows have keys, a few of their pages that are here are pushed out
// before. There is no answer where a page is null, more are here, or not all in one server, and from a tier that
// cannot. May wait. Requires: is_question(how); all pages are in objects larger than a page, and nobody writes to them.
// The caller had better be in no scope, in which no page leaves.
FAR_API void ask_about_rows(const tag& in, const reduction& how, std::span<question_about_rows> asked);
// Notes for each page a number that those in one server mostly share, and 0 for one that is null, or not remote.
// Requires: as many places as pages; each page is in an object larger than a page.
FAR_API void note_places(const tag& in, std::span<const std::byte* const> pages, std::span<std::uint64_t> places);
// Whether it makes sense, and has room for its pages and its answer.
[[nodiscard]] FAR_API bool is_question(const reduction& about_rows);
// The place of a part of the object, which is not accessed. Requires: it is larger than a page.
[[nodiscard]] inline const std::byte* address_of_part(const owner_word& owner, std::size_t offset) {
  return reinterpret_cast<const std::byte*>(word::address(owner.load(std::memory_order_relaxed)) + offset);
}
// The same of numbers in local memory, 4096 bytes at a time.
FAR_API void answer_local(const std::byte* bytes, std::size_t count, const reduction& how, const answer_sink& to,
                          const std::uint8_t* groups);
// How long such an answer is.
[[nodiscard]] FAR_API std::size_t bytes_of_answer(const reduction& how);
// Copies a part that lies in one page to local memory. If the page is remote, it stays there. As reduce_part().
FAR_API void copy_part(const owner_word& owner, std::size_t offset, std::size_t bytes, std::byte* to);
// Forgets the bytes of whole pages of a part that are not here, also lost ones: they are zeros afterwards, and nothing
// is fetched for it. Everything else becomes zeros, too, if `here_too`, and otherwise stays. May wait; throws
// page_lost. Requires: as reduce_part(), and nobody reads the part.
FAR_API void forget_part(const owner_word& owner, std::size_t offset, std::size_t bytes, bool here_too);
// The same as reduce_part() of numbers in local memory.
[[nodiscard]] FAR_API reduced_numbers reduce_bytes(const std::byte* bytes, std::size_t count, const reduction& how);
// Adds what was found of the numbers that follow.
FAR_API void add_reduced(const reduction& how, const reduced_numbers& found, reduced_numbers& to);
[[nodiscard]] FAR_API runtime& runtime_of(const owner_word& owner);

// Whether there may be far pointers in it. A class with a virtual destructor may be the base of a class with some.
template <typename T>
inline constexpr bool may_own_others = has_far_pointers<T> || std::has_virtual_destructor_v<T>;

// For an object, and for an array of them.
template <typename T>
struct type_table {
  static void for_each_word(std::byte* at, std::size_t bytes, type_of_object::word_visitor moved, void* context) {
    T* const first = std::launder(reinterpret_cast<T*>(at));
    for (std::size_t i = 0; i < bytes / sizeof(T); ++i) visit_words(first[i], moved, context);
  }
  static constexpr const char* describe() { return __PRETTY_FUNCTION__; }
  static constexpr type_of_object entry{&for_each_word, describe()};
};

template <typename T>
[[nodiscard]] constexpr const type_of_object* type_of() {
  // A type that is not whole words in size has no room for a far pointer.
  if constexpr (has_far_pointers<T> && sizeof(T) % sizeof(owner_word) == 0) {
    return &type_table<T>::entry;
  } else {
    return nullptr;
  }
}

// Whether an object of type T is known to be the value of T() when all its bytes are 0. Far pointers are, too.
template <typename T>
inline constexpr bool is_zero_at_first = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_pointer_v<T>;

// Structs of such members qualify, but null pointers to members are not zeros.
template <typename T>
[[nodiscard]] bool starts_as_zeros() {
  if constexpr (is_zero_at_first<T>) {
    return true;
  } else if constexpr (std::is_trivially_default_constructible_v<T>) {
    static const bool all_zero = [] {
      const auto value = std::make_unique<T>();
      const auto* const bytes = reinterpret_cast<const std::byte*>(value.get());
      return std::all_of(bytes, bytes + sizeof(T), [](std::byte one) { return one == std::byte{0}; });
    }();
    return all_zero;
  } else {
    return false;
  }
}

// Makes room for a T, or for some, and calls construct(first byte). It is given back in the same scope when that
// throws: handlers of the tag (far/tag.h) are called for objects, not for what is left of them.
template <typename T, typename Construct>
void allocate_and_construct(const tag& in, owner_word& owner, std::size_t bytes, bool lasting, Construct construct) {
  const scope here(in.home());
  try {
    std::byte* const at = allocate(in, owner, bytes, type_of<T>(), alignof(T), lasting);
#if defined(FARHEAP_CHECKED)
    // Scopes that end in the constructor do not take the object away.
    static_cast<void>(here.reach(owner, true, lasting));
#endif
    construct(at);
  } catch (...) {
    release(owner, may_own_others<T>);
    throw;
  }
}

// Makes the object that `owner` will own, or the array of `count` value-initialised elements. Throws std::bad_alloc,
// and what the constructor throws.
template <typename T, typename... Arguments>
void construct_object(const tag& in, owner_word& owner, bool lasting, Arguments&&... arguments) {
  require_relocatable<T>();
  give_way(in);
  allocate_and_construct<T>(in, owner, sizeof(T), lasting,
                            [&](std::byte* at) { new (at) T(std::forward<Arguments>(arguments)...); });
}
template <typename T, typename... Arguments>
void make_object(const tag& in, owner_word& owner, Arguments&&... arguments) {
  construct_object<T>(in, owner, true, std::forward<Arguments>(arguments)...);
}
template <typename T, typename... Arguments>
void make_object(const tag& in, owner_word& owner, const non_temporal_t& /*how*/, Arguments&&... arguments) {
  construct_object<T>(in, owner, false, std::forward<Arguments>(arguments)...);
}

// Elements of an array above a page are made and destroyed in scopes of so many: what they own can leave between two.
template <typename T>
inline constexpr std::size_t elements_a_scope = std::max<std::size_t>((std::size_t{64} << 10) / sizeof(T), 1);

// Brings in what an access to a part above 64 KiB does not. One to the rest could not tell that it is lost.
inline void bring_in_rest(const scope& here, owner_word& owner, std::size_t offset, std::size_t bytes, bool write) {
  constexpr std::size_t most = std::size_t{64} << 10;
  for (std::size_t done = most; done < bytes; done += most) {
    static_cast<void>(here.reach_part(owner, offset + done, std::min(most, bytes - done), write, false));
  }
}

// Destroys elements of an array above a page. Some of them may be lost.
template <typename T>
void destroy_large_array(owner_word& owner, std::size_t all) {
  const auto destroy_some = [&](std::size_t first, std::size_t count) {
    const scope here(runtime_of(owner));
    return unless_lost([&] {
      std::byte* const at = here.reach_part(owner, first * sizeof(T), count * sizeof(T), true, false);
      bring_in_rest(here, owner, first * sizeof(T), count * sizeof(T), true);
      std::destroy_n(std::launder(reinterpret_cast<T*>(at)), count);
    });
  };
  for (std::size_t first = 0; first < all; first += elements_a_scope<T>) {
    const std::size_t count = std::min(elements_a_scope<T>, all - first);
    if (destroy_some(first, count)) continue;
    for (std::size_t i = first; i < first + count; ++i) static_cast<void>(destroy_some(i, 1));
  }
}

// Makes value-initialised elements of an array above a page. Has destroyed all of them when it throws.
template <typename T>
void construct_large_array(owner_word& owner, std::size_t all, bool lasting) {
  for (std::size_t first = 0; first < all; first += elements_a_scope<T>) {
    const std::size_t count = std::min(elements_a_scope<T>, all - first);
    try {
      const scope here(runtime_of(owner));
      std::byte* const at = here.reach_part(owner, first * sizeof(T), count * sizeof(T), true, lasting);
      std::uninitialized_value_construct_n(reinterpret_cast<T*>(at), count);
    } catch (...) {
      if constexpr (!std::is_trivially_destructible_v<T>) destroy_large_array<T>(owner, first);
      throw;
    }
  }
}

template <typename T>
void make_array(const tag& in, owner_word& owner, std::size_t count, bool lasting = true) {
  require_relocatable<T>();
  if (count > (std::size_t{1} << 46) / sizeof(T)) throw std::bad_array_new_length();
  if (count == 0) return;
  give_way(in);
  const bool is_large = count * sizeof(T) > 4096;
  allocate_and_construct<T>(in, owner, count * sizeof(T), lasting, [&](std::byte* at) {
    if (!is_large) std::uninitialized_value_construct_n(reinterpret_cast<T*>(at), count);
  });
  // Pages of large arrays are zeros already; to write them would bring them all in.
  if (!is_large || starts_as_zeros<T>()) return;
  try {
    construct_large_array<T>(owner, count, lasting);
  } catch (...) {
    release(owner, may_own_others<T>);
    throw;
  }
}

// See destroy().
template <typename T>
void destroy_now(owner_word& owner) {
  using element = std::remove_extent_t<T>;
  if constexpr (!std::is_trivially_destructible_v<element>) {
    const bool is_huge = word::is_huge(owner.load(std::memory_order_relaxed));
    if (std::is_array_v<T> && is_huge) {
      destroy_large_array<element>(owner, bytes_of(owner) / sizeof(element));
    } else {
      // Until its place is given back, as in allocate_and_construct().
      const scope here(runtime_of(owner));
      static_cast<void>(unless_lost([&] {
        auto* const first = std::launder(reinterpret_cast<element*>(here.reach(owner, true, false)));
        if constexpr (std::is_array_v<T>) {
          std::destroy_n(first, bytes_of(owner) / sizeof(element));
        } else {
          if (is_huge) bring_in_rest(here, owner, 0, bytes_of(owner), true);
          first->~element();
        }
      }));
      return release(owner, may_own_others<element>);
    }
  }
  release(owner, may_own_others<element>);
}

// Calls destroy_now(owner). Where objects own each other in a long chain, it does so when the one that is some levels
// up has been destroyed: a chain of any length takes little of the stack.
FAR_API void destroy_in_turn(owner_word& owner, void (*destroy_now)(owner_word& owner)) noexcept;

// Destroys the object, or the elements of the array, if the type has anything to destroy, and frees the place. A lost
// object or element is not destroyed: nobody knows what it owned.
template <typename T>
void destroy(owner_word& owner) {
  if (owner.load(std::memory_order_relaxed) == 0) return;
  if constexpr (may_own_others<std::remove_extent_t<T>>) {
    destroy_in_turn(owner, &destroy_now<T>);
  } else {
    destroy_now<T>(owner);
  }
}

// Room for an object that is never constructed: its address tells at compile time where its bases begin.
template <typename T>
union imagined {
  char nothing;
  T object;
  constexpr imagined() : nothing() {}
  constexpr ~imagined() {}
};

// An unambiguous base, at a place that the type alone determines.
template <typename Base, typename Derived>
concept fixed_base_of =
    !std::is_same_v<Base, Derived> && std::is_base_of_v<Base, Derived> && requires(Base* base, Derived* derived) {
      static_cast<Base*>(derived);
      static_cast<Derived*>(base);
    };

template <typename Base, typename Derived>
[[nodiscard]] consteval bool has_address_of_base() {
  if constexpr (fixed_base_of<Base, Derived>) {
    constexpr imagined<Derived> room{};
    return static_cast<const void*>(static_cast<const Base*>(std::addressof(room.object))) ==
           static_cast<const void*>(std::addressof(room.object));
  } else {
    return false;
  }
}

// Whether the owner of a Derived may own it as a Base: the base has the address of the whole, and can destroy it.
template <typename Derived, typename Base>
concept owned_as = has_address_of_base<Base, Derived>() &&
                   (std::has_virtual_destructor_v<Base> || std::is_trivially_destructible_v<Derived>);

}  // namespace detail
}  // namespace far
