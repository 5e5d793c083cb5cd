#include "backend/shm/memory_channel.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "backend/shm/shm_backend.h"
#include "base/check.h"
#include "platform/own_descriptors.h"

namespace far::backend::shm {

int copy(const shm_backend& owner, const request& what) {
  FAR_DCHECK(owner.slots().all_allocated(what.slot, pages_for(std::uint64_t{what.offset_bytes} + what.length_bytes)),
             "a transfer of slots that are not allocated");
  if (what.length_bytes == 0) return 0;  // then the buffer may be null
  std::byte* const far_bytes = owner.address_of(what.slot) + what.offset_bytes;
  if (what.op == operation::read) {
    std::memcpy(what.buffer, far_bytes, what.length_bytes);
  } else {
    std::memcpy(far_bytes, what.buffer, what.length_bytes);
  }
  // After the copy: the server says so before it takes anything away, so what was copied before is right.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return owner.revoked() ? EIO : 0;
}

memory_channel::~memory_channel() {
  FAR_CHECK(in_flight_ == 0, "a channel was destroyed with transfers in flight");
  if (event_ < 0) return;
  platform::disown_descriptor(event_);
  close(event_);
}

std::size_t memory_channel::submit(std::span<const request> batch) {
  const std::size_t taken = std::min(batch.size(), depth_ - in_flight_);
  for (const request& what : batch.first(taken)) ready_.push({what.cookie, copy(owner_, what)});
  in_flight_ += taken;
  if (taken > 0) signal();
  return taken;
}

std::size_t memory_channel::poll(std::span<completion> done) {
  const std::size_t count = ready_.pop(done);
  in_flight_ -= count;
  if (event_ >= 0 && ready_.empty()) {
    std::uint64_t signals = 0;
    static_cast<void>(!read(event_, &signals, sizeof signals));
  }
  return count;
}

void memory_channel::signal() const {
  const std::uint64_t one = 1;
  if (event_ >= 0) static_cast<void>(!write(event_, &one, sizeof one));
}

int memory_channel::event_descriptor() const {
  if (event_ < 0) {
    event_ = platform::own_descriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (in_flight_ > 0) signal();
  }
  return event_;
}

}  // namespace far::backend::shm
