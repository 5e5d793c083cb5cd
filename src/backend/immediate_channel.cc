#include "backend/immediate_channel.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "platform/own_descriptors.h"

namespace far::backend {

immediate_channel::~immediate_channel() {
  FAR_CHECK(in_flight_ == 0, "a channel was destroyed with transfers in flight");
  if (event_ < 0) return;
  platform::disown_descriptor(event_);
  close(event_);
}

std::size_t immediate_channel::submit(std::span<const request> batch) {
  const std::size_t taken = std::min(batch.size(), depth_ - in_flight_);
  for (const request& io : batch.first(taken)) ready_.push({io.cookie, serve(io)});
  in_flight_ += taken;
  if (taken > 0) signal();
  return taken;
}

std::size_t immediate_channel::poll(std::span<completion> done) {
  const std::size_t count = ready_.pop(done);
  in_flight_ -= count;
  if (event_ >= 0 && ready_.empty()) {
    std::uint64_t signals = 0;
    static_cast<void>(!read(event_, &signals, sizeof signals));  // EAGAIN: it was not readable
  }
  return count;
}

int immediate_channel::event_descriptor() const {
  if (event_ < 0) {
    event_ = platform::own_descriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (in_flight_ > 0) signal();
  }
  return event_;
}

void immediate_channel::signal() const {
  const std::uint64_t one = 1;
  if (event_ >= 0) static_cast<void>(!write(event_, &one, sizeof one));  // EAGAIN: it is readable already
}

}  // namespace far::backend
