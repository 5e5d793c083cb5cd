#include "engine/object_reader.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace far::engine {
namespace {

std::size_t first_piece(const object_read& one) {
  return one.offset_bytes / page_checks::piece_bytes;
}

std::size_t piece_count(const object_read& one) {
  const std::size_t end = one.offset_bytes + one.length_bytes;
  return (end + page_checks::piece_bytes - 1) / page_checks::piece_bytes - first_piece(one);
}

}  // namespace

result<std::unique_ptr<object_reader>> object_reader::create(core& shared) {
  result<std::unique_ptr<backend::channel>> opened = shared.far.open_channel(most_reads);
  if (!opened) return opened.error();
  return std::unique_ptr<object_reader>(new object_reader(shared, std::move(opened).value()));
}

object_reader::object_reader(core& shared, std::unique_ptr<backend::channel> transfers)
    : shared_(shared), transfers_(std::move(transfers)), buffers_(platform::map_local(most_reads * page_bytes)) {
  free_all_buffers();
}

void object_reader::free_all_buffers() {
  for (std::size_t i = 0; i < most_reads; ++i) free_buffers_[i] = buffers_ + i * page_bytes;
  free_count_ = most_reads;
}

object_reader::~object_reader() {
  // Whoever started a read waits for it, so nothing is left. Were there something, its buffer must not be written
  // later.
  while (transfers_->in_flight() > 0) {
    std::array<backend::completion, 16> done;
    if (transfers_->poll(done) == 0) transfers_->wait(10'000'000);
  }
  platform::unmap_local(buffers_, most_reads * page_bytes);
}

result<void> object_reader::restart_in_child() {
  // The old channel belongs to the parent: closing it properly would wait for completions that never come here.
  static_cast<void>(transfers_.release());
  under_way_.store(0);
  free_all_buffers();
  lock.unlock();
  result<std::unique_ptr<backend::channel>> opened = shared_.far.open_channel(most_reads);
  if (!opened) return opened.error();
  transfers_ = std::move(opened).value();
  return {};
}

bool object_reader::is_remote_at(page_id page, backend::slot_id slot) const {
  const page_word word = shared_.pages.load_in_order(page);
  return word.where() == state::remote && word.place() == slot;
}

read_outcome object_reader::start(object_read& one) {
  FAR_DCHECK(one.offset_bytes + one.length_bytes <= page_bytes, "a read stays within a page");
  const page_word word = shared_.pages.load(one.page);
  if (word.where() != state::remote) return read_outcome::not_remote;
  if (!has_room()) return read_outcome::busy;
  one.attempts = 0;
  shared_.reads.begin(one.held, word.place());
  if (!is_remote_at(one.page, one.held.slot)) {
    release(one);
    return read_outcome::not_remote;
  }
  if (const std::byte* const bytes = shared_.far.direct(one.held.slot)) {
    return conclude(one, take(one, bytes + first_piece(one) * page_checks::piece_bytes));
  }
  one.outcome.store(read_outcome::in_flight, std::memory_order_relaxed);
  one.landing = free_buffers_[--free_count_];
  if (!submit(one)) {
    free_buffers_[free_count_++] = one.landing;
    release(one);
    return read_outcome::busy;
  }
  under_way_.fetch_add(1, std::memory_order_relaxed);
  return read_outcome::in_flight;
}

bool object_reader::submit(object_read& one) {
  const backend::request wanted{.op = backend::operation::read,
                                .slot = one.held.slot,
                                .offset_bytes = static_cast<std::uint32_t>(first_piece(one) * page_checks::piece_bytes),
                                .length_bytes = static_cast<std::uint32_t>(piece_count(one) * page_checks::piece_bytes),
                                .buffer = one.landing,
                                .cookie = std::bit_cast<std::uintptr_t>(&one)};
  return transfers_->submit({&wanted, 1}) == 1;
}

// The pieces are here: checks them, and hands the bytes out.
read_outcome object_reader::take(object_read& one, const std::byte* pieces) const {
  if (!shared_.checks.fit(one.page, first_piece(one), piece_count(one), pieces)) return read_outcome::failed;
  const std::size_t skipped = one.offset_bytes - first_piece(one) * page_checks::piece_bytes;
  std::memcpy(one.buffer, pieces + skipped, one.length_bytes);
  return read_outcome::done;
}

bool object_reader::poll() {
  std::array<backend::completion, 64> done;
  const std::size_t count = transfers_->poll(done);
  for (std::size_t i = 0; i < count; ++i) {
    object_read& one = *std::bit_cast<object_read*>(static_cast<std::uintptr_t>(done[i].cookie));
    const read_outcome reached = done[i].error_code == 0 ? take(one, one.landing) : read_outcome::failed;
    if (reached == read_outcome::failed) {
      // Whoever took the page in or discarded it meanwhile made the bytes worthless: no need to try again.
      const bool again = ++one.attempts < attempts_before_failed && is_remote_at(one.page, one.held.slot);
      // What failed because the bytes were replaced meanwhile is no error.
      if (is_remote_at(one.page, one.held.slot)) shared_.count.backend_errors.add();
      if (again && submit(one)) continue;
    }
    free_buffers_[free_count_++] = one.landing;
    under_way_.fetch_sub(1, std::memory_order_relaxed);
    // The read may be gone once its outcome is known.
    void (*const finished)(object_read&) noexcept = one.finished;
    one.outcome.store(conclude(one, reached), std::memory_order_release);
    if (finished != nullptr) finished(one);
  }
  return count > 0;
}

// While the slot is held it cannot have been freed and filled anew: had the page left and come back, then with the same
// bytes.
read_outcome object_reader::conclude(object_read& one, read_outcome reached) {
  const bool is_there = is_remote_at(one.page, one.held.slot);
  release(one);
  return is_there ? reached : read_outcome::not_remote;
}

void object_reader::release(object_read& one) {
  if (shared_.reads.end(one.held)) shared_.free_slot(one.held.slot);
}

}  // namespace far::engine
