// The memory that the server and one client over shared memory share for a connection (wire/ring_file.h), and both
// rings in it, seen from the server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "wire/ring_file.h"

namespace far::server {

// Used by one thread.
class shm_rings {
 public:
  shm_rings() = default;
  ~shm_rings();
  shm_rings(const shm_rings&) = delete;
  shm_rings& operator=(const shm_rings&) = delete;

  // Makes the memory. Requires: called once, before anything else. Errors: no descriptor, no address space.
  [[nodiscard]] result<void> create();

  // The file, to be passed to the client; then it can be closed.
  [[nodiscard]] int descriptor() const { return descriptor_; }
  void close_descriptor();

  // Tells the client that the bytes of the session's blocks are about to disappear. Does nothing before create().
  void revoke();

  // The payload of the entry; nullptr when it has none. The client can change its bytes at any moment.
  [[nodiscard]] std::byte* fragment(const wire::ring_request& asked) const;
  // The same for a call, whose arguments and result may take several fragments. Empty: they are not there.
  [[nodiscard]] std::span<std::byte> fragments_of_call(const wire::ring_request& asked) const;

  wire::ring_consumer requests;
  wire::ring_producer replies;

 private:
  int descriptor_ = -1;
  wire::ring_file* mapped_ = nullptr;
};

}  // namespace far::server
