#include "backend/file/ring_channel.h"

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "backend/slot_allocator.h"
#include "base/check.h"
#include "base/log.h"
#include "platform/clock.h"
#include "platform/own_descriptors.h"

namespace far::backend {
namespace {

// How often a transfer is repeated after an outcome that means "not now" before it fails.
constexpr std::uint8_t most_tries = 100;

// How long a transfer waits before it asks for its turn again, and before the kernel is asked again to take entries.
constexpr std::uint64_t retry_ns = 50'000;

bool is_worth_another_try(int code) {
  return code == EAGAIN || code == EINTR || code == ECANCELED;
}

__kernel_timespec to_timespec(std::uint64_t ns) {
  return {static_cast<long long>(ns / 1'000'000'000u), static_cast<long long>(ns % 1'000'000'000u)};
}

// The kernel hands out the lowest free number. The last ones are left to the program, and to uses that have no
// alternative.
bool is_among_last(int descriptor) {
  constexpr rlim_t left_alone = 8;
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 && static_cast<rlim_t>(descriptor) + left_alone >= limit.rlim_cur;
}

}  // namespace

bool ring_channel::is_available() {
  io_uring ring{};
  io_uring_params parameters{};
  const int failed = io_uring_queue_init_params(2, &ring, &parameters);
  if (failed != 0) {
    errno = -failed;
    return false;
  }
  io_uring_queue_exit(&ring);
  // Waiting with a timeout needs it.
  const bool recent = (parameters.features & IORING_FEAT_EXT_ARG) != 0;
  if (!recent) errno = ENOSYS;
  return recent;
}

result<std::unique_ptr<channel>> ring_channel::open(const store_file& file, const slot_allocator& slots,
                                                    range_locks& locks, std::size_t depth) {
  if (depth == 0 || depth > largest_depth) {
    return error{"a channel of 'file:' holds between 1 and " + std::to_string(largest_depth) + " requests, not " +
                     std::to_string(depth),
                 EINVAL};
  }
  std::unique_ptr<ring_channel> opened(new ring_channel(file, slots, locks, depth));
  if (result<void> ring = opened->open_ring(); !ring) return ring.error();
  return std::unique_ptr<channel>(std::move(opened));
}

ring_channel::ring_channel(const store_file& file, const slot_allocator& slots, range_locks& locks, std::size_t depth)
    : file_(file), slots_(slots), locks_(locks), depth_(depth), owner_process_(getpid()), ready_(depth) {
  transfers_ = reinterpret_cast<transfer*>(platform::map_local(depth * sizeof(transfer)));
  bounces_ = platform::map_local(depth * bounce_bytes);
  unused_.reserve(depth);
  unsubmitted_.reserve(depth);
  for (std::size_t index = depth; index-- > 0;) unused_.push_back(static_cast<std::uint32_t>(index));
}

result<void> ring_channel::open_ring() {
  io_uring_params parameters{};
  const unsigned entries = std::bit_ceil(static_cast<unsigned>(depth_));
  const int failed = io_uring_queue_init_params(entries, &ring_, &parameters);
  if (failed == -ENOMEM) {
    return error{"no memory for an io_uring of " + std::to_string(entries) +
                     " entries; raise the limit on locked memory (ulimit -l), which kernels before 5.12 count it to",
                 ENOMEM};
  }
  if (failed != 0) {
    return error{"cannot make an io_uring of " + std::to_string(entries) + " entries (" + std::strerror(-failed) +
                     "); raise the limit on descriptors (ulimit -n), or permit io_uring (kernel.io_uring_disabled=0)",
                 -failed};
  }
  ring_open_ = true;
  if (is_among_last(ring_.ring_fd)) {
    return error{"an io_uring would take one of the last descriptors; raise the limit on them (ulimit -n)", EMFILE};
  }
  ring_.ring_fd = platform::own_descriptor(ring_.ring_fd);
  ring_.enter_ring_fd = ring_.ring_fd;
  // A child of fork that touched these pages would corrupt its parent's queue.
  static_cast<void>(io_uring_ring_dontfork(&ring_));
  // A registered file saves the kernel a look-up, and lives on if the program closes descriptors it does not know.
  const int descriptor = file_.descriptor();
  file_registered_ = io_uring_register_files(&ring_, &descriptor, 1) == 0;
  return {};
}

ring_channel::~ring_channel() {
  const bool in_owner = owner_process_ == getpid();
  if (ring_open_ && in_owner) {
    FAR_CHECK(in_flight_ == 0, "a channel was destroyed with transfers in flight");
    // The kernel takes a ring apart later; let go of the file now.
    if (file_registered_) static_cast<void>(io_uring_unregister_files(&ring_));
    platform::disown_descriptor(ring_.ring_fd);
    io_uring_queue_exit(&ring_);
  } else if (ring_open_) {
    platform::close_own_descriptor(ring_.ring_fd);  // its mappings were not inherited
  }
  platform::close_own_descriptor(event_);
  platform::unmap_local(bounces_, depth_ * bounce_bytes);
  platform::unmap_local(reinterpret_cast<std::byte*>(transfers_), depth_ * sizeof(transfer));
}

void ring_channel::close_in_child() {
  platform::close_own_descriptor(std::exchange(event_, -1));
  if (std::exchange(ring_open_, false)) platform::close_own_descriptor(ring_.ring_fd);
}

std::size_t ring_channel::submit(std::span<const request> batch) {
  std::size_t taken = 0;
  while (taken < batch.size() && in_flight_ < depth_) {
    const std::size_t room = std::min(batch.size() - taken, depth_ - in_flight_);
    const std::size_t count = mergeable(batch.subspan(taken, room));
    in_flight_ += count;
    begin(batch.subspan(taken, count));
    taken += count;
  }
  flush();
  return taken;
}

std::size_t ring_channel::mergeable(std::span<const request> batch) const {
  const request& first = batch.front();
  if (!file_.is_aligned(position_of(first), first.length_bytes, first.buffer)) return 1;
  const std::size_t most_bytes = first.op == operation::read ? merged_read_bytes : merged_write_bytes;
  std::uint64_t end = position_of(first) + first.length_bytes;
  std::size_t count = 1;
  for (; count < std::min(batch.size(), merged_requests); ++count) {
    const request& next = batch[count];
    if (next.op != first.op || position_of(next) != end) break;
    if (!file_.is_aligned(end, next.length_bytes, next.buffer)) break;
    if (end + next.length_bytes - position_of(first) > most_bytes) break;
    end += next.length_bytes;
  }
  return count;
}

void ring_channel::begin(std::span<const request> merged) {
  for (const request& io : merged) {
    FAR_DCHECK(slots_.all_allocated(io.slot, pages_for(std::uint64_t{io.offset_bytes} + io.length_bytes)),
               "a transfer of slots that are not allocated");
  }
  FAR_CHECK(!unused_.empty(), "more transfers than requests");
  const std::uint32_t index = unused_.back();
  unused_.pop_back();
  transfer& started = transfers_[index];
  started.tries = 0;
  started.holds_range = false;
  started.request_count = static_cast<std::uint16_t>(merged.size());
  std::copy(merged.begin(), merged.end(), started.requests.begin());
  const request& first = merged.front();
  if (broken_code_ != 0 || first.length_bytes == 0) return finish(index, broken_code_);
  const request& last = merged.back();
  if (first.op == operation::write && !file_.may_write_up_to(position_of(last) + last.length_bytes))
    return finish(index, ENOSPC);
  if (file_.is_aligned(position_of(first), first.length_bytes, first.buffer)) return begin_straight(index);
  started.rest = {position_of(first), first.length_bytes, first.buffer};
  begin_window(index);
}

void ring_channel::begin_straight(std::uint32_t index) {
  transfer& started = transfers_[index];
  started.chunk_count = 0;
  started.first_chunk = 0;
  std::uint64_t length_bytes = 0;
  for (std::size_t i = 0; i < started.request_count; ++i) {
    const request& io = started.requests[i];
    length_bytes += io.length_bytes;
    if (started.chunk_count > 0) {
      iovec& last = started.chunks[started.chunk_count - 1];
      if (static_cast<std::byte*>(last.iov_base) + last.iov_len == io.buffer) {
        last.iov_len += io.length_bytes;
        continue;
      }
    }
    started.chunks[started.chunk_count++] = {io.buffer, io.length_bytes};
  }
  begin_phase(index, phase::straight, position_of(started.requests[0]), length_bytes);
}

void ring_channel::begin_window(std::uint32_t index) {
  transfer& started = transfers_[index];
  started.current = next_window(started.rest, file_.position_alignment());
  const window& current = started.current;
  if (started.requests[0].op == operation::read) {
    return begin_phase(index, phase::bounced_read, current.begin, current.length_bytes());
  }
  started.holds_range = locks_.try_lock(current.begin, current.end);
  if (!started.holds_range) return begin_phase(index, phase::waiting_for_turn, current.begin, 0);
  if (!current.is_covered()) {
    return begin_phase(index, phase::reading_window, current.begin, current.length_bytes());
  }
  copy_into(current, bounce_of(index), started.rest);
  begin_phase(index, phase::writing_window, current.begin, current.length_bytes());
}

void ring_channel::begin_phase(std::uint32_t index, phase at, std::uint64_t position, std::uint64_t length_bytes) {
  transfer& started = transfers_[index];
  started.at = at;
  started.position = position;
  started.left_bytes = length_bytes;
  if (at != phase::straight) {
    started.chunk_count = 1;
    started.first_chunk = 0;
    started.chunks[0] = {bounce_of(index), length_bytes};
  }
  enqueue(index);
}

void ring_channel::enqueue(std::uint32_t index) {
  io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
  FAR_CHECK(entry != nullptr, "more entries in the ring than transfers");
  fill_entry(entry, index);
  entry->user_data = index;
  unsubmitted_.push_back(index);
}

void ring_channel::fill_entry(io_uring_sqe* entry, std::uint32_t index) {
  transfer& moved = transfers_[index];
  if (moved.at == phase::waiting_for_turn) {
    static __kernel_timespec pause = to_timespec(retry_ns);
    io_uring_prep_timeout(entry, &pause, 0, 0);
    return;
  }
  const bool is_write =
      moved.at == phase::writing_window || (moved.at == phase::straight && moved.requests[0].op == operation::write);
  const int descriptor = file_registered_ ? 0 : file_.descriptor();
  const iovec* const chunks = &moved.chunks[moved.first_chunk];
  const unsigned count = moved.chunk_count - moved.first_chunk;
  if (count == 1) {
    const auto length_bytes = static_cast<unsigned>(chunks->iov_len);
    if (is_write) {
      io_uring_prep_write(entry, descriptor, chunks->iov_base, length_bytes, moved.position);
    } else {
      io_uring_prep_read(entry, descriptor, chunks->iov_base, length_bytes, moved.position);
    }
  } else if (is_write) {
    io_uring_prep_writev(entry, descriptor, chunks, count, moved.position);
  } else {
    io_uring_prep_readv(entry, descriptor, chunks, count, moved.position);
  }
  if (is_write) entry->rw_flags = file_.write_flags();
  if (file_registered_) entry->flags |= IOSQE_FIXED_FILE;
}

void ring_channel::flush() {
  while (!unsubmitted_.empty()) {
    const int taken = io_uring_submit(&ring_);
    if (taken > 0) {
      unsubmitted_.erase(unsubmitted_.begin(), unsubmitted_.begin() + taken);
      continue;
    }
    if (taken == -EINTR) continue;
    // The kernel lacks a resource: submit_left() and wait() try again.
    if (taken == 0 || taken == -EAGAIN || taken == -EBUSY || taken == -ENOMEM) return;
    return fail_unsubmitted(-taken);
  }
}

void ring_channel::fail_unsubmitted(int code) {
  log_line(log_level::error,
           "the io_uring of far tier 'file:' takes no more requests (%s); did the program close its descriptors?",
           std::strerror(code));
  broken_code_ = code;
  // finish() of a merged transfer begins its parts anew; with broken_code_ set they end at once.
  while (!unsubmitted_.empty()) {
    const std::uint32_t index = unsubmitted_.back();
    unsubmitted_.pop_back();
    finish(index, code);
  }
}

std::size_t ring_channel::poll(std::span<completion> done) {
  if (event_ >= 0) {
    // Before the ring is looked at, so that a completion after that look is signalled again.
    std::uint64_t signals = 0;
    static_cast<void>(!read(event_, &signals, sizeof signals));
  }
  reap();
  const std::size_t count = ready_.pop(done);
  in_flight_ -= count;
  if (event_ >= 0 && !ready_.empty()) {
    const std::uint64_t one = 1;
    static_cast<void>(!write(event_, &one, sizeof one));
  }
  return count;
}

void ring_channel::reap() {
  std::array<io_uring_cqe*, 64> entries{};
  while (const unsigned count = io_uring_peek_batch_cqe(&ring_, entries.data(), entries.size())) {
    for (unsigned i = 0; i < count; ++i) handle(static_cast<std::uint32_t>(entries[i]->user_data), entries[i]->res);
    io_uring_cq_advance(&ring_, count);
  }
}

void ring_channel::handle(std::uint32_t index, int outcome) {
  transfer& moved = transfers_[index];
  if (broken_code_ != 0 && (outcome < 0 || static_cast<std::uint64_t>(outcome) != moved.left_bytes)) {
    return finish(index, broken_code_);
  }
  if (moved.at == phase::waiting_for_turn) return begin_window(index);
  if (outcome < 0) {
    if (!is_worth_another_try(-outcome) || ++moved.tries > most_tries) return finish(index, -outcome);
    return enqueue(index);
  }
  // Space is always reserved first, so the file can end early only if somebody cut it off.
  if (outcome == 0) return finish(index, EIO);
  moved.tries = 0;
  advance_chunks(moved, static_cast<std::size_t>(outcome));
  if (moved.left_bytes > 0) return enqueue(index);
  phase_done(index);
}

void ring_channel::advance_chunks(transfer& moved, std::size_t bytes) {
  moved.position += bytes;
  moved.left_bytes -= bytes;
  while (bytes > 0) {
    iovec& chunk = moved.chunks[moved.first_chunk];
    const std::size_t step = std::min(bytes, chunk.iov_len);
    chunk.iov_base = static_cast<std::byte*>(chunk.iov_base) + step;
    chunk.iov_len -= step;
    bytes -= step;
    if (chunk.iov_len == 0) ++moved.first_chunk;
  }
}

void ring_channel::phase_done(std::uint32_t index) {
  transfer& moved = transfers_[index];
  const window& current = moved.current;
  switch (moved.at) {
    case phase::straight: return finish(index, 0);
    case phase::bounced_read: copy_out_of(current, bounce_of(index), moved.rest); break;
    case phase::reading_window:
      copy_into(current, bounce_of(index), moved.rest);
      if (broken_code_ != 0) return finish(index, broken_code_);
      return begin_phase(index, phase::writing_window, current.begin, current.length_bytes());
    case phase::writing_window: release_range(moved); break;
    case phase::waiting_for_turn: FAR_CHECK(false, "a transfer that waits for its turn moves no bytes");
  }
  advance(moved.rest, current);
  if (moved.rest.length_bytes == 0) return finish(index, 0);
  if (broken_code_ != 0) return finish(index, broken_code_);
  begin_window(index);
}

void ring_channel::release_range(transfer& owner) {
  if (owner.holds_range) locks_.unlock(owner.current.begin, owner.current.end);
  owner.holds_range = false;
}

void ring_channel::finish(std::uint32_t index, int code) {
  transfer& ended = transfers_[index];
  release_range(ended);
  unused_.push_back(index);
  if (code == 0 || ended.request_count == 1 || broken_code_ != 0) {
    for (std::size_t i = 0; i < ended.request_count; ++i) ready_.push({ended.requests[i].cookie, code});
    return;
  }
  // `ended` is unused now and may be taken for one of its own parts.
  const std::array<request, merged_requests> parts = ended.requests;
  const std::size_t count = ended.request_count;
  for (std::size_t i = 0; i < count; ++i) begin(std::span(&parts[i], 1));
}

void ring_channel::wait(std::uint64_t timeout_ns) {
  const platform::monotonic_clock clock;
  const std::uint64_t begin_ns = clock.now_ns();
  while (true) {
    flush();
    if (in_flight_ == 0 || !ready_.empty() || io_uring_cq_ready(&ring_) > 0) return;
    const std::uint64_t passed_ns = clock.now_ns() - begin_ns;
    if (passed_ns >= timeout_ns) return;
    std::uint64_t sleep_ns = timeout_ns - passed_ns;
    if (!unsubmitted_.empty()) sleep_ns = std::min(sleep_ns, retry_ns);
    __kernel_timespec timeout = to_timespec(sleep_ns);
    io_uring_cqe* entry = nullptr;
    const int failed = io_uring_wait_cqe_timeout(&ring_, &entry, &timeout);
    if (failed == 0) return;
    if (failed == -ETIME || failed == -EINTR) continue;
    // The ring cannot be waited for (its descriptor was closed): do not make the caller spin.
    const __kernel_timespec nap = to_timespec(std::min(sleep_ns, retry_ns));
    const timespec rest{nap.tv_sec, static_cast<long>(nap.tv_nsec)};
    nanosleep(&rest, nullptr);
  }
}

int ring_channel::event_descriptor() const {
  if (event_ >= 0) return event_;
  const int event = platform::own_descriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (event < 0) return -1;
  if (io_uring_register_eventfd(&ring_, event) != 0) {
    platform::close_own_descriptor(event);
    return -1;
  }
  event_ = event;
  // Report the completions that came before it was registered.
  const std::uint64_t one = 1;
  if (in_flight_ > 0) static_cast<void>(!write(event_, &one, sizeof one));
  return event_;
}

}  // namespace far::backend
