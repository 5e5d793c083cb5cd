#include "heap/far_memory.h"

#include <new>

#include "base/check.h"
#include "base/log.h"

namespace far::heap {

std::uintptr_t far_memory::map(std::size_t bytes, std::size_t alignment_bytes) {
  const result<std::byte*> mapped = from_.map_guarded(bytes, alignment_bytes);
  if (mapped) return reinterpret_cast<std::uintptr_t>(mapped.value());
  // The evacuator tries again and again.
  if (!says_full_.exchange(true, std::memory_order_relaxed))
    log_line(log_level::error, "no room for %s more in the far heap: %s", format_size(bytes).c_str(),
             mapped.error().message.c_str());
  throw std::bad_alloc();
}

void far_memory::unmap(std::uintptr_t address, std::size_t bytes) {
  const result<void> done = from_.unmap(reinterpret_cast<std::byte*>(address), bytes);
  FAR_CHECK(done.ok(), "what was mapped can be unmapped");
}

void far_memory::discard(std::uintptr_t address, std::size_t bytes) {
  const result<void> done = from_.discard(reinterpret_cast<std::byte*>(address), bytes);
  FAR_CHECK(done.ok(), "what is mapped can be discarded");
}

}  // namespace far::heap
