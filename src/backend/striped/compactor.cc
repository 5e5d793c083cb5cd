#include "backend/striped/compactor.h"

#include <algorithm>

#include "platform/local_memory.h"

namespace far::backend {
namespace {

constexpr std::uint64_t busy_interval_ns = 50'000;
constexpr std::uint64_t idle_interval_ns = 50'000'000;
constexpr std::uint64_t rest_after_failure_ns = 100'000'000;

}  // namespace

compactor::compactor(stripes& shared) : shared_(shared), memory_(platform::map_local(most_pages * page_bytes)) {}

compactor::~compactor() {
  // In the child of a fork the channel is the parent's.
  if (shared_.members.detached()) static_cast<void>(queue_.release());
  while (queue_ != nullptr && queue_->in_flight() > 0) {
    std::array<completion, 16> done;
    if (queue_->poll(done) == 0) queue_->wait(10'000'000);
  }
  queue_ = nullptr;
  platform::unmap_local(memory_, most_pages * page_bytes);
}

result<void> compactor::open() {
  result<std::unique_ptr<striped_channel>> opened = striped_channel::open(shared_, most_pages);
  if (!opened) return opened.error();
  queue_ = std::move(opened).value();
  return {};
}

std::uint64_t compactor::step() {
  if (now_ == phase::none) {
    const std::uint64_t now_ns = shared_.members.time.now_ns();
    if (now_ns < rest_until_ns_ || !is_wanted()) return idle_interval_ns;
    begin();
    return now_ == phase::none ? idle_interval_ns : busy_interval_ns;
  }
  std::array<completion, 32> done;
  for (std::size_t count = 1; count > 0;) {
    count = queue_->poll(done);
    for (const completion& ended : std::span(done).first(count)) has_failed_ |= ended.error_code != 0;
    ended_ += count;
  }
  if (ended_ < submitted_ || queue_->in_flight() > 0) return busy_interval_ns;
  if (has_failed_ || now_ == phase::writing) {
    close(!has_failed_);
  } else {
    write();
  }
  return busy_interval_ns;
}

bool compactor::is_wanted() const {
  if (shared_.members.is_kept_in_place()) return false;
  const lock_guard guard(shared_.table.lock);
  return shared_.is_starved.load() || is_sparse();
}

bool compactor::is_sparse() const {
  const stripe_table& table = shared_.table;
  table.lock.assert_held();
  const std::uint64_t group_pages = group_slots * table.shape().data;
  const std::uint64_t groups = table.placed_groups() - std::min(table.placed_groups(), groups_to_spare);
  return static_cast<double>(groups * group_pages) > static_cast<double>(table.live_pages()) * (1 + most_garbage);
}

void compactor::begin() {
  {
    const lock_guard guard(shared_.table.lock);
    count_ = 0;
    is_for_writers_ = shared_.is_starved.exchange(false);
    group_ = is_for_writers_ ? shared_.table.most_wasteful_group() : shared_.table.sparsest_group();
    if (group_ == stripe_table::no_group) return;
    if (is_for_writers_) {
      find_pages_beside_garbage();
    } else {
      find_pages();
    }
    if (count_ == 0) return;
    transfer_ = shared_.table.begin(group_);
  }
  read();
}

void compactor::add_pages(std::size_t column, std::size_t first, std::size_t rows) {
  for (std::size_t row = first; row < first + rows; ++row) {
    const page_place place = shared_.table.number_of(group_, row, column);
    const slot_id owner = shared_.table.owner_of(place);
    if (owner == no_slot) continue;
    pages_[count_] = {.slot = owner, .from = place, .bytes = page(count_), .cookie = 0};
    ++count_;
  }
}

// Column by column: pages that were written together are neighbours there, and their slots, too.
void compactor::find_pages() {
  const std::size_t data = shared_.table.shape().data;
  const slot_set& sealed = shared_.table.group_at(group_).sealed;
  for (std::size_t first = sealed.next(0); first < group_slots;) {
    const std::size_t rows = std::min(sealed.run_from(first), rows_together);
    if (count_ + rows * data > data * rows_together) return;
    for (std::size_t column = 0; column < data; ++column) add_pages(column, first, rows);
    first = sealed.next(first + rows);
  }
}

void compactor::find_pages_beside_garbage() {
  const std::size_t data = shared_.table.shape().data;
  const slot_set& sealed = shared_.table.group_at(group_).sealed;
  for (std::size_t row = sealed.next(0); row < group_slots; row = sealed.next(row + 1)) {
    const std::size_t before = count_;
    if (before + data > data * rows_together) return;
    for (std::size_t column = 0; column < data; ++column) add_pages(column, row, 1);
    if (count_ == before + data) count_ = before;
  }
}

void compactor::read() {
  now_ = phase::reading;
  submitted_ = 0;
  ended_ = 0;
  has_failed_ = false;
  std::array<request, most_pages> reads;
  for (std::size_t i = 0; i < count_;) {
    std::size_t run = 1;
    while (i + run < count_ && pages_[i + run].slot == pages_[i].slot + run) ++run;
    reads[submitted_++] = {.op = operation::read,
                           .slot = pages_[i].slot,
                           .length_bytes = static_cast<std::uint32_t>(run * page_bytes),
                           .buffer = page(i),
                           .is_needed = false};
    i += run;
  }
  // Its queue holds a strip.
  static_cast<void>(queue_->submit({reads.data(), submitted_}));
}

void compactor::write() {
  now_ = phase::writing;
  ended_ = 0;
  submitted_ = queue_->submit_moves({pages_.data(), count_}, is_for_writers_ ? stripe_table::no_group : group_);
}

void compactor::close(bool is_done) {
  {
    const lock_guard guard(shared_.table.lock);
    shared_.table.end(group_, transfer_);
  }
  if (is_done) moved_pages_ += count_;
  if (!is_done) rest_until_ns_ = shared_.members.time.now_ns() + rest_after_failure_ns;
  now_ = phase::none;
}

}  // namespace far::backend
