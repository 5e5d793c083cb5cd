// The common part of far::unique_ptr and far::shared_ptr: calls into the object heap.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "far/detail/api.h"
#include "far/detail/type.h"
#include "far/scope.h"
#include "far/tag.h"

namespace far {

// Says that an access is the last for a while: the object is among the next to leave, and pushes no other out (AIFM,
// section 5.3).
struct non_temporal_t {
  explicit non_temporal_t() = default;
};
inline constexpr non_temporal_t non_temporal{};

namespace detail {

using owner_word = std::atomic<std::uint64_t>;

// Under memory pressure lets other fibers run. Before the scope is opened: fibers in a scope go first.
FAR_API void give_way(const tag& in);
// Makes an object of `bytes` that `owner` owns, resident and held by the scopes that are open. May wait.
[[nodiscard]] FAR_API std::byte* allocate(const tag& in, owner_word& owner, std::size_t bytes,
                                          const type_of_object* type);
// See object_heap.
FAR_API void move_owner(owner_word& from, owner_word& to);
FAR_API void release(owner_word& owner);
[[nodiscard]] FAR_API std::size_t bytes_of(const owner_word& owner);
[[nodiscard]] FAR_API bool prefetch(owner_word& owner);
[[nodiscard]] FAR_API runtime& runtime_of(const owner_word& owner);

template <typename T>
struct type_table {
  static void for_each_word(std::byte* at, type_of_object::word_visitor moved, void* context) {
    pointers_of<T>::visit(*std::launder(reinterpret_cast<T*>(at)),
                          [&](auto& pointer) { pointer.visit_word(moved, context); });
  }
  static constexpr type_of_object entry{&for_each_word};
};

template <typename T>
[[nodiscard]] constexpr const type_of_object* type_of() {
  if constexpr (has_far_pointers<T>) {
    return &type_table<T>::entry;
  } else {
    return nullptr;
  }
}

// Destroys the object, if its type has anything to destroy, and gives its place up.
template <typename T>
void destroy(owner_word& owner) {
  if (owner.load(std::memory_order_relaxed) == 0) return;
  if constexpr (!std::is_trivially_destructible_v<T>) {
    const scope here(runtime_of(owner));
    std::launder(reinterpret_cast<T*>(here.reach(owner, true, false)))->~T();
  }
  release(owner);
}

}  // namespace detail
}  // namespace far
