// The writes of a striped channel.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "backend/striped/striped_channel.h"
#include "base/check.h"

namespace far::backend {
namespace {

constexpr std::uint64_t write_mark = std::uint64_t{1} << 63;

// Fewer free rows are left to the compactor, which makes more of them.
constexpr std::uint64_t rows_of_compactor = 4 * rows_together;

constexpr std::uint64_t pack(std::uint32_t strip, std::size_t index) {
  return write_mark | std::uint64_t{strip} << 8 | index;
}

constexpr holder_mask bit(std::size_t index) {
  return static_cast<holder_mask>(1u << index);
}

}  // namespace

// Pages of requests in their order, as many as there are, up to a strip.
void striped_channel::gather() {
  while (true) {
    while (!unwritten_.empty() && gathered_.size() < shape().data * rows_together) {
      if (!gather_from(unwritten_.front())) break;
    }
    if (!gathered_.empty() && write_strip()) continue;
    if (gathered_.empty() && unwritten_.empty()) starved_since_ns_ = 0;
    return;
  }
}

// Returns false when the request must wait.
bool striped_channel::gather_from(std::uint32_t index) {
  taken_request& whole = requests_[index];
  while (whole.next_byte < whole.end_byte && gathered_.size() < shape().data * rows_together) {
    const std::uint64_t length = std::min(whole.end_byte - whole.next_byte, page_bytes - whole.next_byte % page_bytes);
    const slot_id slot = whole.next_byte / page_bytes;
    const auto offset = static_cast<std::uint32_t>(whole.next_byte % page_bytes);
    const std::byte* const bytes = whole.buffer;
    if (length < page_bytes && free_rewrites_.empty()) return false;
    ++whole.parts;
    whole.next_byte += length;
    whole.buffer += length;
    if (length < page_bytes) {
      // It may end at once, and the request with it.
      start_rewrite({.request = index,
                     .slot = slot,
                     .offset = offset,
                     .length = static_cast<std::uint32_t>(length),
                     .bytes = bytes});
    } else {
      gathered_.push_back({.request = index, .slot = slot, .bytes = bytes});
    }
  }
  if (whole.next_byte == whole.end_byte) unwritten_.erase(unwritten_.begin());
  return true;
}

void striped_channel::start_rewrite(const rewrite& wanted) {
  const std::uint32_t begun = free_rewrites_.back();
  free_rewrites_.pop_back();
  rewrites_[begun] = wanted;
  try_rewrite(begun);
}

// Reads the old page, unless another rewrite of it is under way, in this channel or another.
void striped_channel::try_rewrite(std::uint32_t index) {
  rewrite& changed = rewrites_[index];
  if (!free_parts_.empty()) {
    const lock_guard guard(shared_.table.lock);
    const auto end = shared_.rewritten.begin() + static_cast<std::ptrdiff_t>(shared_.rewritten_count);
    changed.is_locked =
        end != shared_.rewritten.end() && std::find(shared_.rewritten.begin(), end, changed.slot) == end;
    if (changed.is_locked) shared_.rewritten[shared_.rewritten_count++] = changed.slot;
  }
  if (!changed.is_locked) {
    ++waiting_;
    return;
  }
  const std::uint32_t begun = free_parts_.back();
  free_parts_.pop_back();
  parts_[begun] = {.rewrite = index,
                   .begin = changed.slot * page_bytes,
                   .end = (changed.slot + 1) * page_bytes,
                   .buffer = rewrite_bytes(index)};
  attempt(begun);
}

void striped_channel::end_rewrite(std::uint32_t index) {
  {
    const lock_guard guard(shared_.table.lock);
    const auto end = shared_.rewritten.begin() + static_cast<std::ptrdiff_t>(shared_.rewritten_count);
    const auto found = std::find(shared_.rewritten.begin(), end, rewrites_[index].slot);
    FAR_CHECK(found != end, "a rewrite has its slot");
    *found = *(end - 1);
    --shared_.rewritten_count;
  }
  rewrites_[index] = {};
  free_rewrites_.push_back(index);
  next_retry_ns_ = 0;
}

// count 0: there are none now.
row_run striped_channel::find_rows(std::size_t pages) {
  const std::size_t wanted = (pages + shape().data - 1) / shape().data;
  for (int tries = 0; tries < 2; ++tries) {
    {
      const lock_guard guard(shared_.table.lock);
      if (is_compactor_ || shared_.table.free_rows() >= rows_of_compactor + wanted) {
        const row_run run = shared_.table.take_rows(shared_.members.view(), wanted, except_);
        if (run.count > 0) return run;
      }
    }
    if (tries == 0 && shared_.rows.place_group() != 0) return {};
  }
  return {};
}

// Returns false when it must wait.
bool striped_channel::write_strip() {
  if (free_strips_.empty()) return false;
  FAR_CHECK(!shared_.members.detached(), "a child of fork only reads the far tier");
  const row_run run = find_rows(std::min(gathered_.size(), shape().data * rows_together));
  if (run.count == 0) {
    const std::uint64_t now_ns = shared_.members.time.now_ns();
    if (starved_since_ns_ == 0) starved_since_ns_ = now_ns;
    if (!is_compactor_) shared_.is_starved.store(true);
    if (is_compactor_ || now_ns - starved_since_ns_ >= shared_.members.lost_after_ns) fail_gathered();
    return false;
  }
  starved_since_ns_ = 0;
  const std::uint32_t index = free_strips_.back();
  free_strips_.pop_back();
  strip& written = strips_[index];
  written.run = run;
  written.outstanding = 0;
  written.failed = 0;
  written.count = std::min<std::size_t>(gathered_.size(), run.count * shape().data);
  std::copy_n(gathered_.begin(), written.count, written.pages.begin());
  gathered_.erase(gathered_.begin(), gathered_.begin() + static_cast<std::ptrdiff_t>(written.count));
  send_strip(index);
  return true;
}

// Those that come after them do not wait for as long once more.
void striped_channel::fail_gathered() {
  local_vector<page_to_write> failed;
  failed.swap(gathered_);
  for (const page_to_write& page : failed) end_page(page, EIO);
}

void striped_channel::send_strip(std::uint32_t index) {
  strip& written = strips_[index];
  const std::size_t rows = written.run.count;
  for (std::size_t row = 0; row < rows; ++row) {
    std::array<const std::byte*, most_data> pages{};
    for (std::size_t column = 0; column < shape().data; ++column) {
      const std::size_t page = column * rows + row;
      pages[column] = page < written.count ? written.pages[page].bytes : nullptr;
    }
    for (std::size_t number = 0; number < shape().parity; ++number) {
      shared_.code.encode(number, pages, parity_bytes(index, number) + row * page_bytes, page_bytes);
    }
  }
  for (std::size_t target = 0; target < most_holders; ++target) {
    if ((written.run.targets & bit(target)) == 0) continue;
    const std::size_t place = written.run.place_of(target);
    if (place < shape().data) {
      push_pages(index, target, place);
    } else {
      ++written.outstanding;
      queues_.push(written.run.members[target], {.op = operation::write,
                                                 .slot = written.run.firsts[target] + written.run.first,
                                                 .length_bytes = static_cast<std::uint32_t>(rows * page_bytes),
                                                 .buffer = parity_bytes(index, place - shape().data),
                                                 .cookie = pack(index, target)});
    }
  }
  // No holder of it serves any more.
  if (written.outstanding == 0) end_strip(index);
}

// One transfer for pages that lie one after the other in memory.
void striped_channel::push_pages(std::uint32_t index, std::size_t target, std::size_t column) {
  strip& written = strips_[index];
  const std::size_t rows = written.run.count;
  const std::size_t filled = filled_rows(written.count, rows, column);
  const page_to_write* const pages = written.pages.data() + column * rows;
  for (std::size_t row = 0; row < filled;) {
    std::size_t count = 1;
    while (row + count < filled && pages[row + count].bytes == pages[row].bytes + count * page_bytes) ++count;
    ++written.outstanding;
    queues_.push(written.run.members[target], {.op = operation::write,
                                               .slot = written.run.firsts[target] + written.run.first + row,
                                               .length_bytes = static_cast<std::uint32_t>(count * page_bytes),
                                               // A write does not change its buffer.
                                               .buffer = const_cast<std::byte*>(pages[row].bytes),
                                               .cookie = pack(index, target)});
    row += count;
  }
}

void striped_channel::on_write(std::size_t member, const completion& ended) {
  const auto index = static_cast<std::uint32_t>((ended.cookie & ~write_mark) >> 8);
  strip& written = strips_[index];
  if (ended.error_code != 0) {
    shared_.members.note_error(member, ended.error_code);
    written.failed |= bit(ended.cookie & 0xff);
  }
  if (--written.outstanding == 0) end_strip(index);
}

void striped_channel::end_strip(std::uint32_t index) {
  strip& written = strips_[index];
  stripe_table::sealed_rows sealed;
  {
    const lock_guard guard(shared_.table.lock);
    const auto succeeded = static_cast<holder_mask>(written.run.targets & ~written.failed);
    sealed = shared_.table.seal(shared_.members.view(), written.run, written.count, succeeded);
    for (std::size_t i = 0; i < written.count && sealed.is_safe; ++i) {
      const page_to_write& page = written.pages[i];
      const page_place from = page.request != none ? requests_[page.request].moved_from : 0;
      // A child of a fork reads the page where it was: its row must not die.
      const bool may_move = !shared_.members.is_kept_in_place() && shared_.table.place_of(page.slot) == from;
      if (from != 0 && !may_move) continue;
      shared_.table.set_page(
          page.slot,
          shared_.table.number_of(written.run.group, written.run.first + i % written.run.count, i / written.run.count));
    }
    shared_.table.end_write(written.run);
  }
  if (sealed.leaves_stale) shared_.members.call_for_attention();
  for (std::size_t i = 0; i < written.count; ++i) end_page(written.pages[i], sealed.is_safe ? 0 : EIO);
  free_strips_.push_back(index);
}

void striped_channel::end_page(const page_to_write& page, int error_code) {
  if (page.rewrite != none) end_rewrite(page.rewrite);
  taken_request& whole = requests_[page.request];
  if (error_code != 0) whole.error_code = error_code;
  --whole.parts;
  end_if_done(page.request);
}

}  // namespace far::backend
