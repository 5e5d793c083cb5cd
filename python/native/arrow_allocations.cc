#include "arrow_allocations.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "imports.h"

namespace far::python {
namespace {

std::atomic<array_memory*> far_buffers{nullptr};
std::atomic<int> blocks{0};

bool is_far(const void* memory) noexcept {
  return far_buffers.load(std::memory_order_acquire)->owns(memory);
}

int take(void** taken, std::size_t alignment, std::size_t bytes) noexcept {
  if (bytes < far_from_bytes || alignment > page_bytes || blocks.load(std::memory_order_relaxed) == 0) {
    return ::posix_memalign(taken, alignment, bytes);
  }
  void* const memory = far_buffers.load(std::memory_order_acquire)->take(bytes, array_memory::content::any);
  if (memory == nullptr) return ENOMEM;
  *taken = memory;
  return 0;
}

// Callers rely on it that free() keeps errno.
void release(void* memory) noexcept {
  if (!is_far(memory)) return ::free(memory);
  const int before = errno;
  far_buffers.load(std::memory_order_acquire)->release(memory);
  errno = before;
}

// Other parts of libarrow may have taken memory with posix_memalign(), too, and are free to resize it.
void* resize(void* memory, std::size_t bytes) noexcept {
  if (!is_far(memory)) return ::realloc(memory, bytes);
  if (bytes == 0) {
    release(memory);
    return nullptr;
  }
  void* const resized = far_buffers.load(std::memory_order_acquire)->resize(memory, bytes);
  if (resized == nullptr) errno = ENOMEM;
  return resized;
}

}  // namespace

bool serve_arrow(array_memory& arrays) {
  far_buffers.store(&arrays, std::memory_order_release);
  const replacement replacements[] = {{"free", reinterpret_cast<void*>(release)},
                                      {"realloc", reinterpret_cast<void*>(resize)},
                                      {"posix_memalign", reinterpret_cast<void*>(take)}};
  return redirect_imports("libarrow.so", replacements) > 0;
}

void allocate_arrow_far(bool far) noexcept {
  blocks.fetch_add(far ? 1 : -1, std::memory_order_relaxed);
}

}  // namespace far::python
