#include "backend/striped/striped_channel.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "base/check.h"
#include "platform/local_memory.h"

namespace far::backend {
namespace {

constexpr std::size_t spare_parts = 8;
constexpr std::size_t lanes = 8;
constexpr std::size_t strips = 8;
constexpr std::size_t rewrites = 8;
constexpr std::size_t queue_depth = 64;
constexpr std::size_t chunk_bytes = rows_together * page_bytes;

constexpr std::uint64_t retry_interval_ns = 200'000;

}  // namespace

result<std::unique_ptr<striped_channel>> striped_channel::open(stripes& shared, std::size_t depth) {
  constexpr std::size_t largest_depth = 1 << 15;
  if (depth == 0 || depth > largest_depth) {
    return error{
        "a channel holds between 1 and " + std::to_string(largest_depth) + " requests, not " + std::to_string(depth),
        EINVAL};
  }
  std::unique_ptr<striped_channel> opened(new striped_channel(shared, depth));
  if (result<void> joined = shared.members.join(opened->queues_); !joined) return joined.error();
  return opened;
}

striped_channel::striped_channel(stripes& shared, std::size_t depth)
    : shared_(shared),
      queues_(queue_depth),
      requests_(depth),
      parts_(depth + spare_parts),
      rewrites_(rewrites),
      strips_(strips),
      lane_memory_bytes_(lanes * (shared.code.shape().data + 1) * chunk_bytes),
      parity_memory_bytes_(strips * shared.code.shape().parity * chunk_bytes),
      lane_memory_(platform::map_local(lane_memory_bytes_)),
      parity_memory_(platform::map_local(parity_memory_bytes_)),
      rewrite_memory_(platform::map_local(rewrites * page_bytes)) {
  const auto fill = [](local_vector<std::uint32_t>& list, std::size_t count) {
    for (std::size_t i = count; i-- > 0;) list.push_back(static_cast<std::uint32_t>(i));
  };
  fill(free_requests_, depth);
  fill(free_parts_, parts_.size());
  fill(free_lanes_, lanes);
  fill(free_rewrites_, rewrites);
  fill(free_strips_, strips);
  unread_.reserve(depth);
  unwritten_.reserve(depth);
  gathered_.reserve(most_data * rows_together);
  ended_.reserve(depth);
}

striped_channel::~striped_channel() {
  FAR_CHECK(in_flight_ == 0, "a channel was destroyed with transfers in flight");
  shared_.members.leave(queues_);
  platform::unmap_local(lane_memory_, lane_memory_bytes_);
  platform::unmap_local(parity_memory_, parity_memory_bytes_);
  platform::unmap_local(rewrite_memory_, rewrites * page_bytes);
}

std::byte* striped_channel::lane_bytes(std::uint32_t lane, std::size_t source) const {
  return lane_memory_ + (lane * (shape().data + 1) + source) * chunk_bytes;
}

std::byte* striped_channel::parity_bytes(std::uint32_t index, std::size_t number) const {
  return parity_memory_ + (index * shape().parity + number) * chunk_bytes;
}

std::uint32_t striped_channel::take_request(const request& io) {
  const std::uint32_t index = free_requests_.back();
  free_requests_.pop_back();
  ++in_flight_;
  const std::uint64_t begin = io.slot * page_bytes + io.offset_bytes;
  requests_[index] = {.op = io.op,
                      .cookie = io.cookie,
                      .next_byte = begin,
                      .end_byte = begin + io.length_bytes,
                      .buffer = io.buffer,
                      .avoid = io.avoid,
                      .reduce = io.reduce,
                      .is_needed = io.is_needed};
  return index;
}

std::size_t striped_channel::submit(std::span<const request> batch) {
  std::size_t taken = 0;
  while (taken < batch.size() && in_flight_ < requests_.size()) {
    const request& io = batch[taken++];
    const std::uint32_t index = take_request(io);
    if (io.length_bytes == 0) {
      end_request(index);
    } else {
      (io.op == operation::read ? unread_ : unwritten_).push_back(index);
    }
  }
  begin_work();
  queues_.announce(!ended_.empty());
  return taken;
}

std::size_t striped_channel::submit_moves(std::span<const page_move> moves, std::uint64_t except) {
  is_compactor_ = true;
  except_ = except;
  std::size_t taken = 0;
  while (taken < moves.size() && in_flight_ < requests_.size()) {
    const page_move& move = moves[taken++];
    // A write does not change its buffer.
    const std::uint32_t index = take_request({.op = operation::write,
                                              .slot = move.slot,
                                              .buffer = const_cast<std::byte*>(move.bytes),
                                              .cookie = move.cookie});
    requests_[index].moved_from = move.from;
    unwritten_.push_back(index);
  }
  begin_work();
  return taken;
}

void striped_channel::begin_work() {
  start_reads();
  gather();
  queues_.flush();
}

std::size_t striped_channel::poll(std::span<completion> done) {
  if (in_flight_ == 0) return 0;
  while (true) {
    // Also after parts have ended, whose lanes others wait for.
    if (waiting_ > 0) retry_parked();
    begin_work();
    if (ended_.size() >= done.size()) break;
    // A member's queue is polled for no more than can be passed on, so that its descriptor stays readable for the rest.
    const member_queues::taken taken = queues_.take(done.size() - ended_.size());
    if (taken.count == 0) break;
    for (const completion& ended : std::span(taken.completions).first(taken.count)) {
      if ((ended.cookie >> 63) != 0) {
        on_write(taken.member, ended);
      } else {
        on_read(taken.member, ended);
      }
    }
  }
  const std::size_t count = std::min(done.size(), ended_.size());
  std::copy_n(ended_.begin(), count, done.begin());
  ended_.erase(ended_.begin(), ended_.begin() + static_cast<std::ptrdiff_t>(count));
  in_flight_ -= count;
  queues_.announce(!ended_.empty());
  return count;
}

void striped_channel::wait(std::uint64_t timeout_ns) {
  if (in_flight_ == 0 || !ended_.empty()) return;
  queues_.wait(waits_for_time() ? std::min(timeout_ns, retry_interval_ns) : timeout_ns);
}

bool striped_channel::waits_for_time() const {
  return waiting_ > 0 || !gathered_.empty() || !unread_.empty() || !unwritten_.empty() || queues_.waits_for_time();
}

void striped_channel::retry_parked() {
  const std::uint64_t now_ns = shared_.members.time.now_ns();
  if (now_ns < next_retry_ns_) return;
  next_retry_ns_ = now_ns + retry_interval_ns;
  for (std::size_t i = 0; i < parts_.size() && waiting_ > 0; ++i) {
    if (parts_[i].now != read_part::state::parked && parts_[i].now != read_part::state::needs_lane) continue;
    --waiting_;
    attempt(static_cast<std::uint32_t>(i));
  }
  for (std::size_t i = 0; i < rewrites_.size() && waiting_ > 0; ++i) {
    if (rewrites_[i].slot == no_slot || rewrites_[i].is_locked) continue;
    --waiting_;
    try_rewrite(static_cast<std::uint32_t>(i));
  }
}

void striped_channel::end_if_done(std::uint32_t index) {
  const taken_request& whole = requests_[index];
  if (whole.parts == 0 && whole.next_byte == whole.end_byte) end_request(index);
}

void striped_channel::end_request(std::uint32_t index) {
  const taken_request& whole = requests_[index];
  const int code = whole.error_code;
  const bool is_passed_on = code == ESTALE || code == ETIMEDOUT || is_unanswered(code);
  ended_.push_back({.cookie = whole.cookie,
                    .error_code = code != 0 && !(is_passed_on && whole.op == operation::read) ? EIO : code,
                    .source = whole.is_mixed ? std::uint8_t{0} : whole.source,
                    .refused_by = whole.is_mixed ? std::uint8_t{0} : whole.refused_by});
  free_requests_.push_back(index);
}

}  // namespace far::backend
