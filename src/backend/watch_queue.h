// One descriptor for several queues: a channel that consists of queues has an epoll descriptor with all of theirs.
#pragma once

#include <sys/epoll.h>

namespace far::backend {

// From now on the epoll descriptor `events` is readable when `queue` is. Returns false when the kernel refuses.
[[nodiscard]] inline bool watch_queue(int events, int queue) {
  epoll_event wanted{};
  wanted.events = EPOLLIN;
  return epoll_ctl(events, EPOLL_CTL_ADD, queue, &wanted) == 0;
}

}  // namespace far::backend
