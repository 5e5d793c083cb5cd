#include "heap/far_memory.h"

#include <new>

#include "base/check.h"
#include "base/log.h"
#include "far/page_lost.h"

namespace far::heap {

std::uintptr_t far_memory::map(std::size_t bytes, std::size_t alignment_bytes) {
  const result<std::byte*> mapped = from_.map_guarded(bytes, alignment_bytes);
  if (mapped) {
    const auto address = reinterpret_cast<std::uintptr_t>(mapped.value());
    std::uintptr_t end = end_of_mapped_.load(std::memory_order_relaxed);
    while (end < address + bytes && !end_of_mapped_.compare_exchange_weak(end, address + bytes)) continue;
    return address;
  }
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

void far_memory::throw_lost(std::uintptr_t address) {
  throw page_lost(pointer(address - address % page_bytes));
}

}  // namespace far::heap

namespace far {

page_lost::page_lost(const void* page)
    : std::runtime_error("a far object is lost: the far tier cannot return its bytes (the log has the reason)"),
      page_(page) {}

// Here, so that there is one type information of it for all shared libraries.
page_lost::~page_lost() = default;

}  // namespace far
