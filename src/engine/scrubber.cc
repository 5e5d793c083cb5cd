#include "engine/scrubber.h"

#include <algorithm>
#include <bit>

#include "base/log.h"

namespace far::engine {
namespace {

constexpr std::uint64_t poll_ns = 1'000'000;      // while reads are under way
constexpr std::uint64_t idle_ns = 1'000'000'000;  // without pages to look at, or without a channel
constexpr std::uint64_t tell_again_ns = 60'000'000'000;
constexpr std::size_t most_pages_a_look = 1u << 16;  // that are looked at in one step, for Remote ones

}  // namespace

scrubber::scrubber(core& shared)
    : shared_(shared),
      pause_ns_(
          shared.far.scrubbed_pages_per_second() == 0
              ? 0
              : std::max<std::uint64_t>(pages_a_batch * 1'000'000'000 / shared.far.scrubbed_pages_per_second(), 1)) {}

scrubber::~scrubber() {
  if (transfers_ == nullptr) return;
  while (transfers_->in_flight() > 0) {
    std::array<backend::completion, pages_a_batch> done;
    const std::size_t count = transfers_->poll(done);
    for (std::size_t i = 0; i < count; ++i) end(checks_[done[i].cookie]);
    if (count == 0) transfers_->wait(10'000'000);
  }
  platform::unmap_local(buffers_, pages_a_batch * page_bytes);
}

std::uint64_t scrubber::step() {
  if (pause_ns_ == 0) return backend::no_tending;
  if (transfers_ != nullptr) {
    std::array<backend::completion, pages_a_batch> done;
    const std::size_t count = transfers_->poll(done);
    for (std::size_t i = 0; i < count; ++i) arrive(done[i]);
  }
  const std::uint64_t now_ns = shared_.time.now_ns();
  if (under_way_ == 0 && now_ns >= due_ns_) begin_batch();
  if (under_way_ > 0) return std::min(poll_ns, pause_ns_);
  return due_ns_ > now_ns ? due_ns_ - now_ns : 0;
}

bool scrubber::open() {
  if (transfers_ != nullptr) return true;
  result<std::unique_ptr<backend::channel>> opened = shared_.far.open_channel(pages_a_batch);
  if (!opened) return false;
  transfers_ = std::move(opened).value();
  if (buffers_ == nullptr) buffers_ = platform::map_local(pages_a_batch * page_bytes);
  return true;
}

// A channel that cannot be opened now can be later: descriptors are short.
void scrubber::begin_batch() {
  const std::uint64_t now_ns = shared_.time.now_ns();
  due_ns_ = now_ns + pause_ns_;
  if (!open()) {
    due_ns_ = now_ns + std::max(pause_ns_, idle_ns);
    return;
  }
  for (check& fresh : checks_) {
    page_id page = 0;
    if (!find(&page)) {
      // Around once. A heap with nothing Remote is not walked all the time.
      if (under_way_ == 0) due_ns_ = now_ns + std::max(pause_ns_, idle_ns);
      return;
    }
    static_cast<void>(begin(fresh, page));
  }
}

bool scrubber::find(page_id* found) {
  for (std::size_t looks = 0; looks < most_pages_a_look; ++looks, ++next_) {
    if (next_ % block_pages == 0) next_ = pages_of(shared_.blocks.next_used(block_of(next_))).first;
    if (next_ >= shared_.pages.pages()) break;
    if (shared_.pages.load(next_).where() != state::remote) continue;
    *found = next_++;
    return true;
  }
  if (next_ >= shared_.pages.pages()) next_ = 0;
  return false;
}

bool scrubber::is_remote_at(page_id page, backend::slot_id slot) const {
  const page_word word = shared_.pages.load_in_order(page);
  return word.where() == state::remote && word.place() == slot;
}

bool scrubber::begin(check& fresh, page_id page) {
  const page_word word = shared_.pages.load(page);
  if (word.where() != state::remote || !word.has_place()) return false;
  fresh = {};
  fresh.page = page;
  shared_.reads.begin(fresh.held, word.place());
  fresh.under_way = true;
  ++under_way_;
  if (is_remote_at(page, fresh.held.slot) && read(fresh)) return true;
  end(fresh);
  return false;
}

bool scrubber::read(check& one) {
  const auto number = static_cast<std::size_t>(&one - checks_.data());
  const backend::request wanted{.op = backend::operation::read,
                                .slot = one.held.slot,
                                .buffer = buffers_ + number * page_bytes,
                                .cookie = number,
                                .avoid = one.seen,
                                .is_needed = false};
  return transfers_->submit({&wanted, 1}) == 1;
}

void scrubber::arrive(const backend::completion& ended) {
  check& one = checks_[ended.cookie];
  if (take(one, ended) && read(one)) return;
  end(one);
}

bool scrubber::take(check& one, const backend::completion& ended) {
  // Bytes that cannot be had now are the far tier's to look after.
  if (ended.error_code != 0 || ended.source == 0) return false;
  if (ended.refused_by != 0) one.refused_by = ended.refused_by;
  const std::uint64_t bit = std::uint64_t{1} << (ended.source - 1);
  const bool is_new = (one.seen & bit) == 0;
  if (is_new) {
    const bool fits = shared_.checks.fit(one.page, buffers_ + ended.cookie * page_bytes);
    // It was fetched or discarded meanwhile: the bytes are worthless, and say nothing of the copy.
    if (!is_remote_at(one.page, one.held.slot)) return false;
    one.seen |= bit;
    if (fits) one.right = ended.source;
    if (!fits) one.wrong |= bit;
    return true;
  }
  report(one);
  return false;
}

// Every copy has been read, or refused: the far tier had none but those again.
void scrubber::report(const check& one) {
  // One that refuses now may be right when it can be read.
  if (one.right == 0 && one.refused_by != 0) return;
  shared_.count.scrubbed_pages.add();
  if (one.right == 0) return tell_of_loss(one);
  for (std::uint64_t left = one.wrong; left != 0; left &= left - 1) {
    shared_.far.report_damage(one.held.slot, static_cast<std::uint8_t>(std::countr_zero(left) + 1), one.right,
                              backend::damage::wrong_bytes);
  }
  if (one.refused_by != 0) {
    shared_.far.report_damage(one.held.slot, one.refused_by, one.right, backend::damage::unreadable);
  }
}

// Such a page is come across again in each round, and there may be many.
void scrubber::tell_of_loss(const check& one) {
  const std::uint64_t now_ns = shared_.time.now_ns();
  if (now_ns < tell_again_at_ns_) return;
  tell_again_at_ns_ = now_ns + tell_again_ns;
  log_line(log_level::error,
           "page %llu of the far heap is damaged in all of its copies on %s, and is lost when it is needed; test the "
           "memory of these servers (dmesg, memtest)",
           static_cast<unsigned long long>(one.page), shared_.far_name());
}

void scrubber::end(check& one) {
  one.under_way = false;
  --under_way_;
  if (shared_.reads.end(one.held)) shared_.free_slot(one.held.slot);
}

void scrubber::close_in_child() {
  if (transfers_ != nullptr) transfers_->close_in_child();
}

void scrubber::restart_in_child() {
  // The old channel belongs to the parent: closing it properly would wait for completions that never come here.
  static_cast<void>(transfers_.release());
  checks_ = {};
  under_way_ = 0;
  due_ns_ = 0;
}

}  // namespace far::engine
