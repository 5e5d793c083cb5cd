#include "backend/shm/client_copy_channel.h"

#include <atomic>
#include <cerrno>
#include <cstring>

#include "backend/shm/shm_backend.h"
#include "base/check.h"

namespace far::backend::shm {

int copy(const shm_backend& owner, const request& io) {
  FAR_DCHECK(owner.slots().all_allocated(io.slot, pages_for(std::uint64_t{io.offset_bytes} + io.length_bytes)),
             "a transfer of slots that are not allocated");
  if (io.length_bytes == 0) return 0;  // then the buffer may be null
  std::byte* const far_bytes = owner.address_of(io.slot) + io.offset_bytes;
  if (io.op == operation::read) {
    std::memcpy(io.buffer, far_bytes, io.length_bytes);
  } else {
    std::memcpy(far_bytes, io.buffer, io.length_bytes);
  }
  // After the copy: the server says so before it takes anything away, so what was copied before is right.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return owner.revoked() ? EIO : 0;
}

int client_copy_channel::serve(const request& io) {
  return copy(owner_, io);
}

}  // namespace far::backend::shm
