// far::tag: replacement for each data structure (AIFM, section 4.3).
#pragma once

#include <cstddef>
#include <functional>
#include <new>
#include <span>
#include <utility>

#include "far/detail/api.h"
#include "far/runtime.h"

namespace far {

// How the objects of a tag leave local memory.
struct replacement {
  // How many bits count the uses of a page, 0 to 3 (a generalised CLOCK). A page stays for as many more looks of the
  // evictor as have found it used before, at most 2^hotness_bits - 1. 1: a second chance. 0: first in, first out, used
  // or not, for data that is read once from beginning to end. More: for data that is used again after long pauses, such
  // as an index beside the data that it points to.
  unsigned hotness_bits = 1;
};

// Called before an object leaves local memory, with its bytes, which it may change (AIFM, section 4.2.3). The evictor
// holds locks meanwhile, and all threads that need a frame wait for it. So a handler is short, and:
//
// - uses no far memory but that object: it opens no scope, and makes, moves and destroys no far pointer, those in the
//   object among them; a library call that does so stops the program, in checked builds also a scope;
// - takes no lock that anybody holds while it uses far memory, and waits for nothing else;
// - does not throw.
//
// It may drop entries of an index in local memory that refer to the object by something inside the object.
using leaving_handler = std::function<void(std::span<std::byte> object)>;

// A handler for objects of type T. Its tag must have no others.
template <typename T, typename F>
[[nodiscard]] leaving_handler before_leaving(F handler) {
  return [handler = std::move(handler)](std::span<std::byte> object) mutable {
    handler(*std::launder(reinterpret_cast<T*>(object.data())));
  };
}

// A data structure's mark on its objects: objects of one tag lie together, apart from others, and leave as the tag
// says. Give it to far::make_unique or far::make_shared in place of the runtime. A value to copy; it lasts as long as
// its runtime.
class FAR_API tag {
 public:
  // The tag of everything that has no other. Not explicit, so that functions that take a tag can be given a runtime.
  tag(runtime& home) : runtime_(&home) {}
  // A new tag. A runtime has at most 15, which last as long as it does. Throws std::runtime_error when there are as
  // many, and std::invalid_argument when `how` is out of range.
  tag(runtime& home, replacement how);
  // The same, with a handler for objects of at most 4080 bytes. The handler is called before an object leaves that may
  // have been used since it came. It runs on any thread, perhaps on several at a time, but for one object on one
  // thread. The object may stay all the same. It may also leave without a call, when memory is so short that pages
  // leave under open scopes (runtime_statistics::forced_pages). It lives as long as the runtime.
  tag(runtime& home, replacement how, leaving_handler handler);

  [[nodiscard]] runtime& home() const { return *runtime_; }
  [[nodiscard]] unsigned number() const { return number_; }

 private:
  runtime* runtime_;
  unsigned number_ = 0;
};

}  // namespace far
