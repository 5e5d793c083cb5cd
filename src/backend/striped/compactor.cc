#include "backend/striped/compactor.h"

#include <algorithm>

#include "base/check.h"
#include "platform/local_memory.h"

namespace far::backend {
namespace {

constexpr std::uint64_t busy_interval_ns = 50'000;
constexpr std::uint64_t idle_interval_ns = 50'000'000;
constexpr std::uint64_t rest_after_failure_ns = 100'000'000;
// What could not be read is tried again after so long.
constexpr std::uint64_t round_ns = 1'000'000'000;
constexpr std::uint64_t groups_a_step = 256;

// A read of `count` pages, the first of which is pages_[first].
constexpr std::uint64_t pack(std::size_t first, std::size_t count) {
  return first << 16 | count;
}

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
    if (choose_pages()) read();
    return now_ns < rest_until_ns_ ? idle_interval_ns : busy_interval_ns;
  }
  std::array<completion, 32> done;
  for (std::size_t count = 1; count > 0;) {
    count = queue_->poll(done);
    for (const completion& ended : std::span(done).first(count)) on_transfer(ended);
    ended_ += count;
  }
  if (ended_ < submitted_ || queue_->in_flight() > 0) return busy_interval_ns;
  if (now_ == phase::writing) {
    close(!has_failed_);
  } else {
    end_reads();
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

// Returns false when it must go on looking, or there is nothing to be moved now.
bool compactor::choose_pages() {
  const std::uint64_t now_ns = shared_.members.time.now_ns();
  const lock_guard guard(shared_.table.lock);
  if (round_ends_ns_ != 0 && now_ns >= round_ends_ns_) {
    shared_.table.end_round();
    round_ends_ns_ = 0;
  }
  const bool is_for_writers = shared_.is_starved.load();
  if (is_for_writers != is_for_writers_) {
    group_ = stripe_table::no_group;
    cursor_ = 0;
  }
  is_for_writers_ = is_for_writers;
  if (find_pages_of_group()) return true;
  look_for_group();
  if (cursor_ < shared_.table.groups_end()) return false;
  group_ = best_;
  cursor_ = 0;
  if (find_pages_of_group()) return true;
  if (best_ != stripe_table::no_group) return false;
  shared_.is_starved.store(false);
  rest_until_ns_ = now_ns + rest_after_failure_ns;
  return false;
}

// The next ones; false: it has none any more.
bool compactor::find_pages_of_group() {
  shared_.table.lock.assert_held();
  if (group_ == stripe_table::no_group || gain_of(group_) == 0) return false;
  count_ = 0;
  if (is_for_writers_) {
    find_pages_beside_garbage();
  } else {
    find_pages();
  }
  FAR_CHECK(count_ > 0, "a sealed row holds a page");
  shared_.is_starved.store(false);
  transfer_ = shared_.table.begin(group_);
  return true;
}

void compactor::pass_over(const slot_set& rows) {
  shared_.table.lock.assert_held();
  shared_.table.pass_over(group_, rows);
  if (round_ends_ns_ == 0) round_ends_ns_ = shared_.members.time.now_ns() + round_ns;
}

void compactor::look_for_group() {
  shared_.table.lock.assert_held();
  if (cursor_ == 0) {
    best_ = stripe_table::no_group;
    best_gain_ = 0;
  }
  const std::uint64_t end = std::min(cursor_ + groups_a_step, shared_.table.groups_end());
  for (; cursor_ < end; ++cursor_) {
    const std::size_t gain = gain_of(cursor_);
    if (gain <= best_gain_) continue;
    best_ = cursor_;
    best_gain_ = gain;
  }
}

// Pages that could be somebody's and are not: for writers, of the rows that would be moved, if that frees one at least;
// otherwise of all rows.
std::size_t compactor::gain_of(std::uint64_t number) const {
  const stripe_table& table = shared_.table;
  table.lock.assert_held();
  const stripe_group& seen = table.group_at(number);
  const slot_set movable = table.movable_rows(number);
  if (!seen.placed || movable.empty()) return 0;
  const std::size_t data = table.shape().data;
  if (is_for_writers_) {
    const std::size_t live = movable == seen.sealed ? seen.live_pages : table.pages_in(number, movable);
    const std::size_t garbage = movable.size() * data - live;
    return garbage < data ? 0 : garbage;
  }
  const bool is_sparse =
      static_cast<double>(seen.live_pages) * (1 + most_garbage) < static_cast<double>(group_slots * data);
  return is_sparse && !table.is_being_filled(number) ? group_slots * data - seen.live_pages : 0;
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
  const slot_set movable = shared_.table.movable_rows(group_);
  for (std::size_t first = movable.next(0); first < group_slots;) {
    const std::size_t rows = std::min(movable.run_from(first), rows_together);
    if (count_ + rows * data > data * rows_together) return;
    for (std::size_t column = 0; column < data; ++column) add_pages(column, first, rows);
    first = movable.next(first + rows);
  }
}

void compactor::find_pages_beside_garbage() {
  const std::size_t data = shared_.table.shape().data;
  const slot_set movable = shared_.table.movable_rows(group_);
  for (std::size_t row = movable.next(0); row < group_slots; row = movable.next(row + 1)) {
    const std::size_t before = count_;
    if (before + data > data * rows_together) return;
    for (std::size_t column = 0; column < data; ++column) add_pages(column, row, 1);
    if (count_ == before + data) count_ = before;
  }
}

void compactor::read() {
  now_ = phase::reading;
  is_one_by_one_ = false;
  unread_.reset();
  for (std::size_t i = 0; i < count_; ++i) unread_.set(i);
  submit_reads();
}

// Of the pages that are yet to be read.
void compactor::submit_reads() {
  submitted_ = 0;
  ended_ = 0;
  std::array<request, most_pages> reads;
  for (std::size_t i = 0; i < count_;) {
    std::size_t run = 1;
    while (!is_one_by_one_ && i + run < count_ && pages_[i + run].slot == pages_[i].slot + run) ++run;
    if (unread_.test(i)) {
      reads[submitted_++] = {.op = operation::read,
                             .slot = pages_[i].slot,
                             .length_bytes = static_cast<std::uint32_t>(run * page_bytes),
                             .buffer = page(i),
                             .cookie = pack(i, run),
                             .is_needed = false};
    }
    i += run;
  }
  // Its queue holds a strip.
  static_cast<void>(queue_->submit({reads.data(), submitted_}));
}

void compactor::on_transfer(const completion& ended) {
  has_failed_ |= ended.error_code != 0;
  if (now_ == phase::writing || ended.error_code != 0) return;
  for (std::size_t i = 0; i < (ended.cookie & 0xffff); ++i) unread_.reset((ended.cookie >> 16) + i);
}

// Pages of a read that has failed are read once more, each alone. Those that cannot be read stay where they are.
void compactor::end_reads() {
  if (unread_.any() && !is_one_by_one_) {
    is_one_by_one_ = true;
    return submit_reads();
  }
  slot_set unreadable;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    if (unread_.test(i)) {
      unreadable |= slot_set::range(shared_.table.locate(pages_[i].from).row, 1);
    } else {
      pages_[kept++] = pages_[i];
    }
  }
  count_ = kept;
  if (!unreadable.empty()) {
    const lock_guard guard(shared_.table.lock);
    pass_over(unreadable);
  }
  if (count_ == 0) return close(true);
  write();
}

void compactor::write() {
  now_ = phase::writing;
  has_failed_ = false;
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
