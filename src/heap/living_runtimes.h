// The runtimes that live, by the addresses of their far heaps: far pointers name addresses only, and a pointer may lie
// in an object of another runtime than the one that it owns.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/thread_mutex.h"
#include "far/runtime.h"
#include "fiber/mutex.h"

namespace far::heap {

class living_runtimes {
 public:
  static constexpr std::size_t most = 16;

  // Throws std::runtime_error when there are as many.
  void add(runtime& one, const detail::object_heap& objects);
  // Afterwards no evacuator of another runtime uses its memory.
  void remove(runtime& one) noexcept;

  // The one in whose far heap the address lies, or nullptr: it is local memory.
  [[nodiscard]] runtime* find(std::uintptr_t address) const noexcept;

  // Whether it lay in the far heap of a runtime that has ended, and left objects of others with owners there. Where
  // local memory has such an address now, it says so, too.
  [[nodiscard]] bool was_left(std::uintptr_t address) const noexcept;

  // runtime::process() returns this one. Returns false if there is one already.
  [[nodiscard]] bool make_process_wide(runtime& one) noexcept;
  [[nodiscard]] runtime* process_wide() const noexcept { return process_wide_.load(std::memory_order_acquire); }

 private:
  struct entry {
    // Counted up before the rest changes. A runtime may begin in the place of one that ended, as the same object, with
    // a far heap elsewhere: then the owner alone does not say that the bounds are its own
    // (tests/model/living_runtimes_model_test.cc).
    std::atomic<std::uint64_t> changes{0};
    std::atomic<std::uintptr_t> base{0};
    std::atomic<std::uintptr_t> end{0};
    std::atomic<runtime*> owner{nullptr};
  };

  struct range {
    std::atomic<std::uintptr_t> base{0};
    std::atomic<std::uintptr_t> end{0};
  };

  void note_left(std::uintptr_t base, std::uintptr_t end) noexcept FAR_REQUIRES(lock_);

  thread_mutex lock_;  // of changes
  std::array<entry, most> all_;
  std::atomic<std::size_t> in_use_{0};  // no entry from here on was ever used
  std::array<range, most> left_;        // from the first on; the last grows over whatever has no room
  std::atomic<runtime*> process_wide_{nullptr};
};

extern constinit living_runtimes living;

// Held by evacuators while they look for the owner of an object, and while they move one: a word that was copied with
// the object around it must be followed before the evacuator of another runtime looks for it. And held while a runtime
// ends, so that nobody is at a word in its objects. Below every lock of rounds; it may be held for as long as a page
// needs to come in.
extern constinit fiber::mutex& all_moves;

// The heap that the address lies in, or nullptr: it is local memory.
[[nodiscard]] detail::object_heap* heap_at(std::uintptr_t address) noexcept;

}  // namespace far::heap
