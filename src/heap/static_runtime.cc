// A library with a static runtime, for loaded_test.cc, whose program has its symbols of Farheap.
#include <cstddef>

#include "far/runtime.h"
#include "far/unique_ptr.h"

namespace {

far::runtime_options small_options() {
  far::runtime_options chosen;
  chosen.local_bytes = std::size_t{16} << 20;
  chosen.workers = 2;
  return chosen;
}

far::runtime of_library(small_options());

}  // namespace

extern "C" FAR_API int made_in_library() {
  return far::make_unique<int>(of_library, 7).read();
}
