#include "backend/file/file_backend.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "backend/file/ring_channel.h"
#include "backend/uri.h"
#include "base/log.h"
#include "base/units.h"
#include "platform/clock.h"
#include "platform/kernel_features.h"

namespace far::backend {
namespace {

// Reserving space is a system call that may take a millisecond: do it rarely. A nearly full disk that refuses one large
// piece is asked for smaller ones.
constexpr std::uint64_t growth_slots = 64 * mib / page_bytes;

// How long a full device is left alone, so that evictions fail without system calls meanwhile.
constexpr std::uint64_t full_pause_ns = 20'000'000;

}  // namespace

result<std::unique_ptr<backend>> file_backend::open(const uri& name) {
  if (result<void> known = name.allow_options({"capacity", "direct"}); !known) return known.error();
  const auto capacity_bytes = name.size_bytes("capacity");
  if (!capacity_bytes) return capacity_bytes.error();
  const auto direct = name.flag("direct");
  if (!direct) return direct.error();
  return create(file_options{.path = name.rest(),
                             .capacity_bytes = capacity_bytes.value().value_or(0),
                             .direct = direct.value(),
                             .use_io_uring = platform::probe_kernel().io_uring});
}

result<std::unique_ptr<backend>> file_backend::create(const file_options& chosen) {
  result<std::unique_ptr<store_file>> file = store_file::open(chosen);
  if (!file) return file.error();
  const bool use_io_uring = chosen.use_io_uring && ring_channel::is_available();
  if (!use_io_uring) {
    log_line(log_level::verbose, "far tier 'file:': io_uring is not available (%s), so threads perform the transfers",
             chosen.use_io_uring ? std::strerror(errno) : "switched off or not permitted");
  }
  return std::unique_ptr<backend>(std::make_unique<file_backend>(std::move(file).value(), use_io_uring));
}

file_backend::file_backend(std::unique_ptr<store_file> file, bool use_io_uring)
    : file_(std::move(file)),
      use_io_uring_(use_io_uring),
      slots_(file_->possible_slots()),
      transfers_(*file_, slots_, locks_) {}

file_backend::~file_backend() {
  abandon_threads_of_parent();
}

result<slot_id> file_backend::allocate(std::size_t count) {
  std::optional<slot_id> first = slots_.allocate(count);
  if (first) return *first;
  const lock_guard guard(growth_lock_);
  // Another thread may take what we add, so look again after each growth; growth ends when the device is full.
  while (!(first = slots_.allocate(count))) {
    const std::uint64_t needed = count - std::min<std::uint64_t>(count, slots_.free_at_end());
    if (!grow(std::max<std::uint64_t>(needed, 1))) return out_of_slots();
  }
  return *first;
}

bool file_backend::grow(std::uint64_t needed_slots) {
  const std::uint64_t limit = slots_.limit();
  const std::uint64_t possible = slots_.capacity() - limit;
  if (needed_slots > possible) return false;
  const std::uint64_t now_ns = platform::monotonic_clock().now_ns();
  if (refused_slots_ != 0 && needed_slots >= refused_slots_ && now_ns < ask_again_ns_) return false;
  for (std::uint64_t step = std::min(std::max(needed_slots, growth_slots), possible);;
       step = std::max(step / 2, needed_slots)) {
    if (file_->reserve(limit, step) == 0) {
      refused_slots_ = 0;
      slots_.extend(limit + step);
      return true;
    }
    if (step == needed_slots) break;
  }
  refused_slots_ = needed_slots;
  ask_again_ns_ = now_ns + full_pause_ns;
  return false;
}

void file_backend::free(slot_id first, std::size_t count) {
  slots_.free(first, count);
}

result<std::unique_ptr<channel>> file_backend::open_channel(std::size_t depth) {
  if (use_io_uring_) {
    result<std::unique_ptr<channel>> opened = ring_channel::open(*file_, slots_, locks_, depth);
    const int failure = opened ? 0 : opened.error().code;
    // Threads need neither descriptors nor locked memory, of which the program may have none left.
    if (failure != EMFILE && failure != ENFILE && failure != ENOMEM) return opened;
    log_line(log_level::verbose, "far tier 'file:': %s; threads perform these transfers",
             opened.error().message.c_str());
  }
  const lock_guard guard(threads_lock_);
  if (threads_ == nullptr) {
    result<std::unique_ptr<transfer_threads>> started = transfer_threads::start(transfers_);
    if (!started) return started.error();
    threads_ = std::move(started).value();
  }
  return threads_channel::open(*threads_, depth);
}

void file_backend::after_fork_in_child() {
  threads_lock_.open_in_child();
  const lock_guard guard(threads_lock_);
  abandon_threads_of_parent();
}

// There is nothing to join, and their lock may be held by one of them.
void file_backend::abandon_threads_of_parent() {
  if (threads_ != nullptr && !threads_->is_in_its_process()) static_cast<void>(threads_.release());
}

capacity file_backend::report() const {
  return {file_->capacity_slots(), slots_.used()};
}

speed file_backend::expected_speed() const {
  return {};  // depends on the device, which has not been asked yet
}

std::string file_backend::describe() const {
  return "file:" + file_->describe() + (use_io_uring_ ? " through io_uring" : " through pread and pwrite");
}

}  // namespace far::backend
