// Pages that stay resident until their threads have ended. The kernel writes to them when a thread ends, and no thread
// could resolve its misses.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

#include "platform/local_memory.h"

namespace far::preload {

// One pin a page, however many threads need it. Requires: one call at a time.
class held_pages {
 public:
  // The operations on pages and the queries about threads that held_pages needs.
  class world {
   public:
    virtual ~world() = default;
    virtual void pin(const std::byte* page) = 0;
    virtual void unpin(const std::byte* page) = 0;
    [[nodiscard]] virtual bool has_ended(pid_t thread) const = 0;
  };

  // Pins the page until the thread is gone. Looks for threads that are gone when the list has doubled since the last
  // look: a program may start and end thousands of threads before anybody calls release_ended().
  void hold(const std::byte* page, pid_t thread, world& outside);
  // The same for a page that is pinned already.
  void note(const std::byte* page, pid_t thread) { all_.push_back({page, thread}); }

  // Unpins the pages that only ended threads needed.
  void release_ended(world& outside);

 private:
  static constexpr std::size_t least_before_look = 64;

  struct held_page {
    const std::byte* page;
    pid_t thread;
  };
  std::vector<held_page, platform::local_allocator<held_page>> all_;
  std::size_t look_at_ = least_before_look;
};

}  // namespace far::preload
