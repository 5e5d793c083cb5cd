// Files of sessions over shared memory that have ended, while the client that maps them lives on.
//
// A mapping outlives its session, and a client that writes to it fills pages that no grant covers. Nobody can take the
// mapping away, but the filled pages can be punched out again and again. So the file is kept until the client's process
// has ended.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/store.h"

namespace far::server {

// Used by one thread.
class shm_leftovers {
 public:
  // The most files that are kept at a time, two descriptors each. When there are more, the oldest is closed.
  static constexpr std::size_t most_files = 256;

  shm_leftovers() = default;
  // Nothing is punched out any more.
  ~shm_leftovers();
  shm_leftovers(const shm_leftovers&) = delete;
  shm_leftovers& operator=(const shm_leftovers&) = delete;

  // The last connection of a session, with this socket, is about to leave. Does nothing if its process has ended.
  // Requires: the session's memory is shared memory.
  void keep(int socket, const std::shared_ptr<session>& left, std::uint64_t now_ns);

  // Punches out filled pages, and ends sessions in their grace period whose client fills more than it was granted.
  void look(store& lent);

  [[nodiscard]] std::size_t count() const { return kept_.size(); }

 private:
  struct leftover {
    std::weak_ptr<session> owner;  // while it exists, its own blocks must stay
    int file = -1;
    int process = -1;  // becomes readable when the process has ended; -1: unknown
    pid_t number = 0;
  };

  static void let_go(const leftover& unused);

  std::vector<leftover> kept_;
};

}  // namespace far::server
