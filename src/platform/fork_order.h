// A fork takes the locks of the program's allocator first, and then waits for the threads that work on the far heap. So
// threads that it waits for must not enter that allocator; builds with checks find violations (preload/allocator.cc).
#pragma once

namespace far::platform {

// How many of the following objects the calling thread has.
inline constinit thread_local unsigned forks_held_up = 0;

// While one of these lives, a fork of the process waits for the calling thread.
class holds_up_forks {
 public:
  holds_up_forks() noexcept { ++forks_held_up; }
  ~holds_up_forks() { --forks_held_up; }
  holds_up_forks(const holds_up_forks&) = delete;
  holds_up_forks& operator=(const holds_up_forks&) = delete;
};

}  // namespace far::platform
