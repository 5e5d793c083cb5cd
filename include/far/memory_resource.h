// The far heap for plain pointers: std::pmr containers, and others with far::allocator.
//
//     far::memory_resource far_memory(farheap);
//     std::pmr::unordered_map<int, std::pmr::string> names(&far_memory);
//     std::vector<double, far::allocator<double>> samples(count, 0.0, farheap);
//
// Such memory is used like any other, without scopes. It never moves. Pages are fetched when they are touched, and
// evicted when local memory is short; each miss is a page fault. Far pointers are cheaper where objects are small and
// used alone.
//
// With the guard `in_line` (far::runtime_options), system calls fail with EFAULT on what is not resident.
#pragma once

#include <cstddef>
#include <limits>
#include <memory_resource>
#include <new>
#include <type_traits>

#include "far/detail/api.h"
#include "far/runtime.h"
#include "far/tag.h"

namespace far {

namespace detail {

// Throws std::bad_alloc when the far heap's addresses run out, or the alignment is larger than a page.
[[nodiscard]] FAR_API void* allocate_plain(runtime& in, std::uint32_t tag, std::size_t bytes, std::size_t alignment);
FAR_API void release_plain(runtime& in, void* memory, std::size_t bytes, std::size_t alignment) noexcept;

}  // namespace detail

// Memory of a runtime, among that of a tag. Any fiber, any thread. Throws std::bad_alloc when the far heap's addresses
// run out, or for an alignment above 4096. Requires: all of it is given back before the runtime ends.
class memory_resource : public std::pmr::memory_resource {
 public:
  explicit memory_resource(const tag& in) : in_(in) {}

  [[nodiscard]] const tag& home() const { return in_; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    return detail::allocate_plain(in_.home(), in_.key(), bytes, alignment);
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override {
    detail::release_plain(in_.home(), memory, bytes, alignment);
  }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    const auto* const far_one = dynamic_cast<const memory_resource*>(&other);
    return far_one != nullptr && &far_one->in_.home() == &in_.home();
  }

  tag in_;
};

// The same as an allocator of the standard library, as for std::vector<T, far::allocator<T>>.
template <typename T>
class allocator {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  // Of the process-wide runtime.
  allocator() : allocator(runtime::process()) {}
  allocator(runtime& in) : home_(&in) {}
  allocator(const tag& in) : home_(&in.home()), tag_(in.key()) {}
  template <typename U>
  allocator(const allocator<U>& other) noexcept : home_(other.home_), tag_(other.tag_) {}

  [[nodiscard]] T* allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(detail::allocate_plain(*home_, tag_, count * sizeof(T), alignof(T)));
  }
  void deallocate(T* memory, std::size_t count) noexcept {
    detail::release_plain(*home_, memory, count * sizeof(T), alignof(T));
  }

  template <typename U>
  [[nodiscard]] bool operator==(const allocator<U>& other) const noexcept {
    return home_ == other.home_;
  }

 private:
  template <typename>
  friend class allocator;

  runtime* home_;
  std::uint32_t tag_ = 0;
};

}  // namespace far
