// The exception that is thrown when the far tier cannot return the bytes of a far object.
#pragma once

#include <stdexcept>
#include <utility>

#include "far/detail/api.h"

namespace far {

// A page of the far heap is lost. The far tier failed to return its bytes for half a minute, returned other bytes than
// were written, or says that it no longer has them; or its servers were out of reach for as long as they keep them.
// Thrown where a software guard notices the loss: by dereferences, read(), write() and the containers, on fibers and OS
// threads. All objects that have bytes in the page are lost for good; everything else stays usable.
//
// A lost object can be destroyed: its destructor does not run, and what it owns leaks.
class FAR_API page_lost : public std::runtime_error {
 public:
  explicit page_lost(const void* page);
  page_lost(const page_lost&) = default;
  page_lost& operator=(const page_lost&) = default;
  ~page_lost() override;

  // The first byte of the page. Not to be read.
  [[nodiscard]] const void* page() const noexcept { return page_; }

 private:
  const void* page_;
};

namespace detail {

// Calls a function that needs far objects, and returns false if they are lost. Its other exceptions are thrown here.
template <typename F>
bool unless_lost(F&& action) {
  try {
    std::forward<F>(action)();
    return true;
  } catch (const page_lost&) {
    return false;
  }
}

}  // namespace detail
}  // namespace far
