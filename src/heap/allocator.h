// Places for small objects: a bump of the open segment of the calling OS thread. Fibers of one worker share its
// segments; none of them waits between looking and taking, so no lock is needed.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/backoff.h"
#include "heap/segments.h"
#include "heap/tags.h"

namespace far::heap {

// Where an object goes. `lasting`: among those that were accessed just before. `passing`: non-temporal, among those
// that will be the next to leave (AIFM, section 5.3). `hot` and `cold` are the evacuator's.
enum class segment_kind : std::uint8_t { lasting, passing, hot, cold };
inline constexpr std::size_t segment_kinds = 4;

class allocator {
 public:
  // Requires: the segments outlive it, and their memory lives until stop() returns.
  explicit allocator(class segments& from);
  ~allocator() { stop(); }
  allocator(const allocator&) = delete;
  allocator& operator=(const allocator&) = delete;

  // A place for an object of `bytes` and its header within one page, among those of its tag, counted in its segment;
  // the page need not be resident. Returns the object's address. Throws std::bad_alloc when the far heap's addresses
  // run out. Requires: fits_a_page(bytes, alignment); the alignment is a power of two of at least a unit.
  [[nodiscard]] std::uintptr_t take(std::size_t bytes, std::size_t alignment, segment_kind where, tag_key tag);

  // Threads that end, or live on, close the segments that they have open by themselves. From here on they leave them
  // alone, and when this returns, nobody is closing one. Requires: nobody allocates any more.
  void stop() noexcept;

  // The place was taken so, and its page does not come: nothing more goes to its segment if it is still open for the
  // calling OS thread. Requires: the place is still counted.
  void abandon(std::uintptr_t place, segment_kind where, tag_key tag);

  // The rest of the segment after `object`, which will be used next.
  [[nodiscard]] static std::size_t bytes_ahead(std::uintptr_t object) { return segment_bytes - object % segment_bytes; }

 private:
  friend struct thread_segments;

  // Closes a segment of the allocator that has this number, unless that has stopped.
  static void close(std::uint64_t number, std::uintptr_t first);

  class segments& from_;
  std::uint64_t number_;              // unlike that of every other allocator of the process
  std::atomic<unsigned> closing_{0};  // threads that are in close()
};

}  // namespace far::heap
