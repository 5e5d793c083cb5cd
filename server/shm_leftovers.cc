#include "server/shm_leftovers.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "server/event_log.h"
#include "server/shm_memory.h"
#include "wire/rendezvous.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace far::server {
namespace {

// A descriptor of the process at the other end, or -1. Since Linux 6.5 the kernel knows it for sure. Earlier kernels
// only know its number, which belongs to another process if the client has ended and its number was reused.
int process_of(int socket, pid_t number) {
  int process = -1;
  socklen_t bytes = sizeof process;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &process, &bytes) == 0) return process;
  return number > 0 ? static_cast<int>(syscall(SYS_pidfd_open, number, 0)) : -1;
}

bool has_ended(int process) {
  pollfd watched{.fd = process, .events = POLLIN, .revents = 0};
  return process >= 0 && ::poll(&watched, 1, 0) == 1;
}

void punch_out(int file) {
  struct stat about{};
  if (fstat(file, &about) != 0 || about.st_blocks == 0) return;
  // If a hole cannot be punched now, it is tried again next time.
  static_cast<void>(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, about.st_size));
}

}  // namespace

shm_leftovers::~shm_leftovers() {
  for (const leftover& kept : kept_) let_go(kept);
}

void shm_leftovers::let_go(const leftover& unused) {
  close(unused.file);
  if (unused.process >= 0) close(unused.process);
}

// The client has mapped the memory and may go on using it after its session, so it is watched until its process ends.
// The number of such clients is bounded, because each costs descriptors.
void shm_leftovers::keep(int socket, const std::shared_ptr<session>& left, std::uint64_t now_ns) {
  const auto who = wire::peer_of(socket);
  leftover added{.owner = left, .file = -1, .process = -1, .number = who ? who.value().pid : 0};
  const bool known = std::any_of(kept_.begin(), kept_.end(), [&](const leftover& kept) {
    return kept.number == added.number && kept.owner.lock() == left;
  });
  if (known) return;
  added.process = process_of(socket, added.number);
  if (has_ended(added.process)) {
    close(added.process);
    return;
  }
  added.file = fcntl(static_cast<const shm_memory&>(left->source()).descriptor(), F_DUPFD_CLOEXEC, 0);
  if (added.file < 0) {
    log_limited(std::string("shared memory: cannot watch a client that outlives its session: ") + std::strerror(errno),
                now_ns);
    if (added.process >= 0) close(added.process);
    return;
  }
  if (kept_.size() >= most_files) {
    log_limited("shared memory: too many clients outlive their sessions; no longer watching the oldest", now_ns);
    let_go(kept_.front());
    kept_.erase(kept_.begin());
  }
  kept_.push_back(std::move(added));
}

void shm_leftovers::look(store& lent) {
  std::erase_if(kept_, [&lent](const leftover& kept) {
    const std::shared_ptr<session> owner = kept.owner.lock();
    if (owner == nullptr) {
      punch_out(kept.file);
    } else {
      // Somebody may have joined it again, whose connection then takes care of it.
      const auto& memory = static_cast<const shm_memory&>(owner->source());
      if (memory.connections == 0 && memory.overdrawn()) lent.end(*owner);
    }
    if (!has_ended(kept.process)) return false;
    let_go(kept);
    return true;
  });
}

}  // namespace far::server
