// A library with a C interface that keeps its numbers in far memory.
#include <cstdint>
#include <exception>

#include "far/runtime.h"
#include "far/unique_ptr.h"

extern "C" long count_far(long numbers) try {
  far::runtime farheap({.local_bytes = std::size_t{16} << 20});
  auto all = far::make_unique<std::int64_t[]>(farheap, static_cast<std::size_t>(numbers));
  long sum = 0;
  farheap.run([&] {
    const far::scope here(farheap);
    for (std::int64_t& value : all.deref_mut(here)) value = 1;
  });
  farheap.evict_all();
  farheap.run([&] {
    const far::scope here(farheap);
    for (const std::int64_t value : all.deref(here)) sum += value;
  });
  return sum;
} catch (const std::exception&) {
  return -1;
}

// Two scopes with an unknown call between them, after which a fiber may be on another thread.
extern "C" long open_twice(void* farheap, void (*wait)()) {
  far::runtime& in = *static_cast<far::runtime*>(farheap);
  {
    const far::scope here(in);
  }
  wait();
  const far::scope here(in);
  return 0;
}
