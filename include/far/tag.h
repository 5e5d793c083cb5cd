// far::tag: replacement for each data structure (AIFM, section 4.3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <span>
#include <utility>

#include "far/detail/api.h"
#include "far/runtime.h"

namespace far {

// What the evictor's looks at a page tell of it.
enum class replacement_order : std::uint8_t {
  clock,  // how often it was used
  lru,    // how long ago
};

// How the objects of a tag leave local memory.
struct replacement {
  // How many bits count the uses of a page, 0 to 3 (a generalised CLOCK). A page stays for as many more looks of the
  // evictor as have found it used before, at most 2^hotness_bits - 1. 1: a second chance. 0: first in, first out, used
  // or not, for data that is read once from beginning to end. More: for data that is used again after long pauses, such
  // as an index beside the data that it points to.
  unsigned hotness_bits = 1;
  // lru: a page stays for 2^hotness_bits - 1 looks after the one that found it used last, however often it was used
  // before. So the least recently used of 2^hotness_bits ages leave first. For data whose hot part changes. With one
  // bit both orders are the same.
  replacement_order order = replacement_order::clock;
  // 0 to 3; 1 is that of everything without a tag. A page stays as long as others with a lower priority are there to
  // leave in its place: at least a sixteenth of those that the evictor looks at.
  unsigned priority = 1;
};

// Called before an object leaves local memory, with its bytes, which it may change (AIFM, section 4.2.3); not before
// its constructor has returned, nor once its destructor has begun. The evictor holds locks meanwhile, and all threads
// that need a frame wait for it. So a handler is short, and:
//
// - uses no far memory but that object: it opens no scope, and makes, moves and destroys no far pointer, those in the
//   object among them; a library call that does so stops the program, in checked builds also a scope;
// - takes no lock that anybody holds while it uses far memory, and waits for nothing else;
// - does not throw, and does not call exit(), which destroys far pointers: the program stops then, too.
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
// says. Give it to far::make_unique or far::make_shared in place of the runtime. A value to copy; it lasts until it is
// given back, or as long as its runtime.
class FAR_API tag {
 public:
  // The tag of everything that has no other. Not explicit, so that functions that take a tag can be given a runtime.
  tag(runtime& home) : runtime_(&home) {}
  // A new tag. A runtime has at most 15 at a time. Throws std::runtime_error when there are as many, and
  // std::invalid_argument when `how` is out of range. If 15 have been in use, it takes the place of one that was given
  // back. Then it waits until all scopes that are open now have ended, for ten seconds at most, and throws
  // std::runtime_error when they have not, or the caller is in one.
  tag(runtime& home, replacement how);
  // The same, with a handler for objects of at most 4080 bytes. The handler is called before an object leaves that may
  // have been used since it came. It runs on any thread, perhaps on several at a time, but for one object on one
  // thread. The object may stay all the same. It may also leave without a call, when memory is so short that pages
  // leave under open scopes (runtime_statistics::forced_pages). It lives until the tag is given back, or as long as the
  // runtime.
  tag(runtime& home, replacement how, leaving_handler handler);

  // The same tag, for containers whose elements of one index are used together, such as the columns of a table (which
  // have it by themselves). What they have at 65536 indices in a row, from a multiple of that on, should lie on the
  // same servers of the far tier, so that these can answer questions about several of the containers at once; other
  // indices lie on other servers. `number`: containers with another one begin at another server, as many small ones
  // should.
  [[nodiscard]] tag side_by_side(std::uint32_t number = 0) const {
    tag same = *this;
    same.first_stripe_ = 1 + number % stripes_to_begin_at;
    return same;
  }
  [[nodiscard]] bool is_side_by_side() const { return first_stripe_ != 0; }

  // This tag and all copies of it are the default tag from now on, for the objects that carry it and for those that
  // are made with it later: they leave as all others do. So it does not matter how many there are. Returns when its
  // handler is not running and will not be called again, and has been destroyed. Any thread; beside any other use of
  // the tag. The default tag, and one that was given back before, stay as they are.
  //
  // The objects stay where they are, beside those of the default tag that were there before.
  void give_back() const;

  [[nodiscard]] runtime& home() const { return *runtime_; }
  // For the library: tells it from those that it took the place of.
  [[nodiscard]] std::uint32_t key() const { return key_; }
  // For the library: what has the same stripe should lie on the same servers; 0: it does not matter where.
  [[nodiscard]] std::uint32_t stripe_of(std::size_t index) const {
    return is_side_by_side() ? first_stripe_ + static_cast<std::uint32_t>(index / indices_of_stripe) : 0;
  }

 private:
  // A multiple of how many elements an object of a container has by default.
  static constexpr std::size_t indices_of_stripe = 65'536;
  static constexpr std::uint32_t stripes_to_begin_at = 1u << 16;

  runtime* runtime_;
  std::uint32_t key_ = 0;
  std::uint32_t first_stripe_ = 0;
};

}  // namespace far
