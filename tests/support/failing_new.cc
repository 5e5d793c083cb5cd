#include "tests/support/failing_new.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "fiber/identity.h"

namespace {

void* allocate_or_fail(std::size_t bytes, std::size_t alignment) {
  if (!far::fibers_have_memory && far::fiber::current_identity().of_fiber) throw std::bad_alloc();
  int& to_go = far::allocations_to_go;
  if (to_go < 0 || (to_go > 0 && --to_go == 0)) throw std::bad_alloc();
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + alignment - 1) & ~(alignment - 1);
  void* const room = std::aligned_alloc(alignment, rounded);
  return room != nullptr ? room : throw std::bad_alloc();
}

// Not inlined where `new` is not: GCC would take the two for a mismatch.
[[gnu::noinline]] void give_back(void* room) noexcept {
  std::free(room);
}

}  // namespace

void* operator new(std::size_t bytes) {
  return allocate_or_fail(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_fail(bytes, static_cast<std::size_t>(alignment));
}
// Sanitizers have their own, which does not call the one above.
void* operator new(std::size_t bytes, const std::nothrow_t& /*how*/) noexcept {
  try {
    return allocate_or_fail(bytes, alignof(std::max_align_t));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* room) noexcept {
  give_back(room);
}
void operator delete(void* room, std::size_t /*bytes*/) noexcept {
  give_back(room);
}
void operator delete(void* room, std::align_val_t /*alignment*/) noexcept {
  give_back(room);
}
void operator delete(void* room, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  give_back(room);
}
