#include "backend/zmem/zmem_channel.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "platform/own_descriptors.h"

namespace far::backend {

zmem_channel::zmem_channel(page_store& store, codec_choice chosen, std::size_t depth)
    : store_(store), codec_(chosen), reads_(depth), written_(depth) {}

zmem_channel::~zmem_channel() {
  FAR_CHECK(in_flight_ == 0, "a channel was destroyed with transfers in flight");
  platform::close_own_descriptor(event_);
}

std::size_t zmem_channel::submit(std::span<const request> batch) {
  const std::size_t taken = std::min(batch.size(), reads_.size() - in_flight_);
  for (const request& io : batch.first(taken)) {
    if (io.op == operation::read) {
      reads_[(first_read_ + read_count_++) % reads_.size()] = io;
    } else {
      written_.push({io.cookie, store_.write(io.slot, io.offset_bytes, {io.buffer, io.length_bytes}, codec_)});
    }
  }
  in_flight_ += taken;
  if (taken > 0) signal();
  return taken;
}

std::size_t zmem_channel::poll(std::span<completion> done) {
  if (in_flight_ == 0) return 0;
  std::size_t count = written_.pop(done);
  if (count < done.size() && read_count_ > 0) {
    const request& io = reads_[first_read_];
    done[count++] = {io.cookie, store_.read(io.slot, io.offset_bytes, {io.buffer, io.length_bytes}, codec_)};
    first_read_ = (first_read_ + 1) % reads_.size();
    --read_count_;
  }
  in_flight_ -= count;
  if (event_ >= 0 && in_flight_ == 0) {
    std::uint64_t signals = 0;
    static_cast<void>(!::read(event_, &signals, sizeof signals));  // EAGAIN: nobody was told yet
  }
  return count;
}

int zmem_channel::event_descriptor() const {
  if (event_ < 0) {
    event_ = platform::own_descriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (in_flight_ > 0) signal();
  }
  return event_;
}

void zmem_channel::signal() const {
  const std::uint64_t one = 1;
  if (event_ >= 0) static_cast<void>(!::write(event_, &one, sizeof one));  // EAGAIN: it is readable already
}

void zmem_channel::close_in_child() {
  platform::close_own_descriptor(std::exchange(event_, -1));
}

}  // namespace far::backend
