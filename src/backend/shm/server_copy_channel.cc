#include "backend/shm/server_copy_channel.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "backend/shm/client_copy_channel.h"
#include "backend/shm/shm_backend.h"
#include "base/check.h"

namespace far::backend::shm {
namespace {

// After so many empty polls the socket is checked, by a system call, to see whether the server is still there.
constexpr unsigned polls_between_checks = 4096;

}  // namespace

server_copy_channel::server_copy_channel(const shm_backend& owner, std::unique_ptr<connection> through,
                                         std::size_t depth)
    : owner_(owner), through_(std::move(through)), depth_(depth), ready_(depth), transfers_(depth), unsent_(depth) {
  idle_.reserve(depth);
  for (std::size_t i = depth; i-- > 0;) idle_.push_back(static_cast<std::uint32_t>(i));
  for (std::uint32_t i = 0; i < wire::ring_length; ++i) idle_fragments_[idle_fragment_count_++] = i;
}

server_copy_channel::~server_copy_channel() {
  FAR_CHECK(in_flight_ == 0, "a channel was destroyed with transfers in flight");
}

std::size_t server_copy_channel::submit(std::span<const request> batch) {
  const std::size_t taken = std::min(batch.size(), depth_ - in_flight_);
  for (const request& io : batch.first(taken)) {
    ++in_flight_;
    const std::uint32_t index = idle_.back();
    idle_.pop_back();
    transfers_[index] = {.io = io};
    if (io.length_bytes == 0) {
      finish(index);
    } else {
      unsent_[(unsent_head_ + unsent_count_++) % unsent_.size()] = index;
    }
  }
  send();
  return taken;
}

void server_copy_channel::send() {
  bool sent = false;
  std::uint32_t room = unsent_count_ > 0 ? through_->room() : 0;
  while (unsent_count_ > 0 && idle_fragment_count_ > 0 && room > 0) {
    const std::uint32_t index = unsent_[unsent_head_];
    transfer& owner = transfers_[index];
    send_fragment(index, owner);
    sent = true;
    --room;
    if (owner.sent_bytes < owner.io.length_bytes) continue;
    unsent_head_ = (unsent_head_ + 1) % unsent_.size();
    --unsent_count_;
  }
  if (sent) through_->flush();
  if (!through_->alive()) copy_all_that_is_left();
}

void server_copy_channel::send_fragment(std::uint32_t index, transfer& owner) {
  const std::uint32_t number = idle_fragments_[--idle_fragment_count_];
  const std::uint64_t position = std::uint64_t{owner.io.offset_bytes} + owner.sent_bytes;
  const auto length =
      static_cast<std::uint32_t>(std::min<std::size_t>(wire::fragment_bytes, owner.io.length_bytes - owner.sent_bytes));
  wire::ring_request wanted;
  wanted.op = owner.io.op == operation::read ? wire::ring_operation::read : wire::ring_operation::write;
  wanted.fragment = number;
  wanted.cookie = number;
  wanted.first = owner.io.slot + position / page_bytes;
  wanted.offset_bytes = static_cast<std::uint32_t>(position % page_bytes);
  wanted.length_bytes = length;
  if (owner.io.op == operation::write) {
    std::memcpy(through_->area() + number * wire::fragment_bytes, owner.io.buffer + owner.sent_bytes, length);
  }
  fragments_[number] = {index, owner.sent_bytes, length};
  owner.sent_bytes += length;
  ++owner.fragments_out;
  through_->put(wanted);
}

void server_copy_channel::finish(std::uint32_t index) {
  ready_.push({transfers_[index].io.cookie, transfers_[index].error_code});
  idle_.push_back(index);
}

void server_copy_channel::receive() {
  wire::ring_reply reply;
  while (through_->take(reply)) {
    empty_polls_ = 0;
    const std::uint64_t number = reply.cookie;
    // A server may be anybody's who knows the token: what it writes must not end this process.
    if (number >= wire::ring_length || fragments_[number].length_bytes == 0) {
      return through_->reject("answers what was not asked");
    }
    const fragment arrived = std::exchange(fragments_[number], {});
    transfer& owner = transfers_[arrived.transfer];
    if (reply.status != static_cast<std::uint8_t>(wire::status::ok)) {
      owner.error_code = EIO;
    } else if (owner.io.op == operation::read) {
      std::memcpy(owner.io.buffer + arrived.offset_bytes, through_->area() + number * wire::fragment_bytes,
                  arrived.length_bytes);
    }
    idle_fragments_[idle_fragment_count_++] = static_cast<std::uint32_t>(number);
    if (--owner.fragments_out == 0 && owner.sent_bytes == owner.io.length_bytes) finish(arrived.transfer);
  }
}

// The server is gone, so nobody writes into the fragments any more. The memory of the slots remains.
void server_copy_channel::copy_all_that_is_left() {
  receive();
  unsent_count_ = 0;
  for (fragment& lost : fragments_) {
    if (lost.length_bytes > 0)
      idle_fragments_[idle_fragment_count_++] = static_cast<std::uint32_t>(&lost - fragments_.data());
    lost = {};
  }
  std::vector<bool, platform::local_allocator<bool>> idle(depth_, false);
  for (const std::uint32_t index : idle_) idle[index] = true;
  for (std::uint32_t index = 0; index < depth_; ++index) {
    if (idle[index]) continue;
    transfers_[index].error_code = copy(owner_, transfers_[index].io);
    finish(index);
  }
}

std::size_t server_copy_channel::poll(std::span<completion> done) {
  receive();
  send();
  if (ready_.empty() && in_flight_ > 0 && ++empty_polls_ % polls_between_checks == 0) through_->check();
  const std::size_t count = ready_.pop(done);
  in_flight_ -= count;
  return count;
}

void server_copy_channel::wait(std::uint64_t timeout_ns) {
  if (in_flight_ > 0 && ready_.empty()) through_->wait(timeout_ns);
}

}  // namespace far::backend::shm
