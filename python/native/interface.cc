// The functions that the package calls through ctypes, so that the library does not depend on a version of Python or
// NumPy.
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>

#include "array_memory.h"
#include "arrow_allocations.h"
#include "far/detail/api.h"
#include "pager/hints.h"
#include "preload/report.h"
#include "process.h"

namespace {

using content = far::python::array_memory::content;

// NumPy's structure, as NEP 49 defines it (numpy/ndarraytypes.h): a part of its binary interface since version 1.22.
struct numpy_allocator {
  void* context;
  void* (*malloc)(void* context, std::size_t bytes);
  void* (*calloc)(void* context, std::size_t count, std::size_t bytes);
  void* (*realloc)(void* context, void* memory, std::size_t bytes);
  void (*free)(void* context, void* memory, std::size_t bytes);
};
struct numpy_handler {
  char name[127];
  std::uint8_t version;
  numpy_allocator allocator;
};

using far::python::far_from_bytes;

numpy_allocator numpys;  // NumPy's default
far::python::array_memory* far_arrays = nullptr;

bool is_far(const void* memory) {
  return far_arrays->owns(memory);
}

void* take(void* /*context*/, std::size_t bytes) {
  return bytes < far_from_bytes ? numpys.malloc(numpys.context, bytes) : far_arrays->take(bytes, content::any);
}

void* take_zeroed(void* /*context*/, std::size_t count, std::size_t bytes) {
  std::size_t all = 0;
  if (__builtin_mul_overflow(count, bytes, &all)) return nullptr;
  return all < far_from_bytes ? numpys.calloc(numpys.context, count, bytes) : far_arrays->take(all, content::zeros);
}

void release(void* /*context*/, void* memory, std::size_t bytes) {
  if (is_far(memory)) return far_arrays->release(memory);
  numpys.free(numpys.context, memory, bytes);
}

// An array stays where it began, far or local, because the size of a local one is not known here.
void* resize(void* /*context*/, void* memory, std::size_t bytes) {
  if (is_far(memory)) return far_arrays->resize(memory, bytes);
  if (memory != nullptr || bytes < far_from_bytes) return numpys.realloc(numpys.context, memory, bytes);
  return far_arrays->take(bytes, content::any);
}

numpy_handler handler{"farheap", 1, {nullptr, take, take_zeroed, resize, release}};

int tell(const far::result<void>& done, char* message, std::size_t room) {
  if (done.ok()) return 0;
  std::strncpy(message, done.error().message.c_str(), room - 1);
  message[room - 1] = 0;
  return done.error().code != 0 ? done.error().code : EIO;
}

}  // namespace

extern "C" {

// The name that NEP 49 gives to capsules with a handler. Capsules keep a pointer to it, and live as long as arrays do.
FAR_API const char* farheap_capsule_name() {
  return "mem_handler";
}

// The far tier that farheap_start() was given; null: it has not been called with success.
FAR_API const char* farheap_far_tier() {
  return far::python::far_tier();
}

// Functions with an int result return 0, or an errno value and a message for the user, cut where `room` ends; EINVAL:
// an argument is wrong. farheap_start() succeeds once; all below require that it has.

FAR_API int farheap_start(const char* local, const char* far_tier, char* message, std::size_t room) {
  try {
    return tell(far::python::start(local, far_tier), message, room);
  } catch (const std::exception& failure) {  // no memory, no threads
    return tell(far::error{failure.what(), ENOMEM}, message, room);
  }
}

FAR_API int farheap_resize(const char* local, char* message, std::size_t room) {
  return tell(far::python::resize(local), message, room);
}

// The statistics as `farheap stats --json` prints those of a process. Requires room >= preload::statistics_json_bytes.
FAR_API void farheap_statistics(char* text, std::size_t room) {
  const far::engine::statistics counted = far::python::far_heap().snapshot();
  text[far::preload::format_statistics_json(counted, {text, room - 1})] = 0;
}

// The handler for arrays in far memory. `original`: NumPy's default handler.
FAR_API void* farheap_numpy_handler(const void* original) {
  numpys = static_cast<const numpy_handler*>(original)->allocator;
  far_arrays = &far::python::arrays();
  return &handler;
}

// Has the allocations of the loaded Arrow libraries served from here. Returns 0, or ENOENT where there is none whose
// allocations can be. It may be called again, not by two threads at once.
FAR_API int farheap_serve_arrow() {
  return far::python::serve_arrow(far::python::arrays()) ? 0 : ENOENT;
}

// 1: large buffers of Arrow's pool "system" are far from now on, in all threads; 0 takes one such call back.
FAR_API void farheap_allocate_arrow_far(int is_far) {
  far::python::allocate_arrow_far(is_far != 0);
}

// Evicts what it can of the range now, as madvise(MADV_PAGEOUT) does under `farheap run`.
FAR_API void farheap_evict(void* memory, std::size_t bytes) {
  far::python::far_heap().evict(static_cast<std::byte*>(memory), bytes);
}

// As far/hint.h looks for it.
FAR_API const far_hint_view* far_hint_find_view() {
  return &far::pager::hint_view();
}

}  // extern "C"
