#include "backend/file/blocking_transfers.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "backend/file/window.h"
#include "backend/slot_allocator.h"
#include "base/backoff.h"
#include "base/check.h"

namespace far::backend {

int blocking_transfers::move(operation op, std::uint64_t position, std::byte* buffer,
                             std::uint64_t length_bytes) const {
  if (op == operation::write && !file_.may_write_up_to(position + length_bytes)) return ENOSPC;
  while (length_bytes > 0) {
    const auto at = static_cast<off_t>(position);
    const iovec chunk{buffer, length_bytes};
    const ssize_t moved = op == operation::read ? pread(file_.descriptor(), buffer, length_bytes, at)
                                                : pwritev2(file_.descriptor(), &chunk, 1, at, file_.write_flags());
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return errno;
    // Space is always reserved first, so the file can end early only if somebody cut it off.
    if (moved == 0) return EIO;
    buffer += moved;
    position += static_cast<std::uint64_t>(moved);
    length_bytes -= static_cast<std::uint64_t>(moved);
  }
  return 0;
}

int blocking_transfers::make(const request& io, std::byte* bounce) const {
  FAR_DCHECK(slots_.all_allocated(io.slot, pages_for(std::uint64_t{io.offset_bytes} + io.length_bytes)),
             "a transfer of slots that are not allocated");
  const std::uint64_t position = file_.position_of(io.slot) + io.offset_bytes;
  if (file_.is_aligned(position, io.length_bytes, io.buffer)) {
    return move(io.op, position, io.buffer, io.length_bytes);
  }
  if (io.op == operation::write) return rewrite(io, bounce);
  remainder rest{position, io.length_bytes, io.buffer};
  while (rest.length_bytes > 0) {
    const window current = next_window(rest, file_.position_alignment());
    if (const int code = move(operation::read, current.begin, bounce, current.length_bytes()); code != 0) return code;
    copy_out_of(current, bounce, rest);
    advance(rest, current);
  }
  return 0;
}

int blocking_transfers::rewrite(const request& io, std::byte* bounce) const {
  remainder rest{file_.position_of(io.slot) + io.offset_bytes, io.length_bytes, io.buffer};
  while (rest.length_bytes > 0) {
    const window current = next_window(rest, file_.position_alignment());
    // The holder of the range is in the middle of a system call that ends.
    for (backoff turn; !locks_.try_lock(current.begin, current.end);) turn.pause();
    int code = current.is_covered() ? 0 : move(operation::read, current.begin, bounce, current.length_bytes());
    if (code == 0) {
      copy_into(current, bounce, rest);
      code = move(operation::write, current.begin, bounce, current.length_bytes());
    }
    locks_.unlock(current.begin, current.end);
    if (code != 0) return code;
    advance(rest, current);
  }
  return 0;
}

}  // namespace far::backend
