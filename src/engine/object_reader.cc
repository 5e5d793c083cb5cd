#include "engine/object_reader.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/submitter.h"

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

result<std::unique_ptr<object_reader>> object_reader::create(core_for_misses& shared) {
  result<std::unique_ptr<backend::channel>> opened = shared.far.open_channel(most_reads);
  if (!opened) return opened.error();
  return std::unique_ptr<object_reader>(new object_reader(shared, std::move(opened).value()));
}

object_reader::object_reader(core_for_misses& shared, std::unique_ptr<backend::channel> transfers)
    : shared_(shared), transfers_(std::move(transfers)), buffers_(platform::map_local(most_reads * page_bytes)) {
  free_all_transfers();
}

void object_reader::free_all_transfers() {
  for (std::size_t i = 0; i < most_reads; ++i) {
    under_way_list_[i] = {};
    free_[i] = &under_way_list_[i];
  }
  free_count_ = most_reads;
  under_way_.store(0);
  has_left_.store(false);
}

object_reader::~object_reader() {
  // The thread that started a read waits for it, so nothing is left. Were there something, its buffer must not be
  // written later.
  while (transfers_->in_flight() > 0) {
    std::array<backend::completion, 16> done;
    if (transfers_->poll(done) == 0) transfers_->wait(10'000'000);
  }
  platform::unmap_local(buffers_, most_reads * page_bytes);
}

result<void> object_reader::restart_in_child() {
  lock.assert_held();
  // The old channel belongs to the parent: closing it properly would wait for completions that never come here.
  static_cast<void>(transfers_.release());
  free_all_transfers();
  lock.open_in_child();
  result<std::unique_ptr<backend::channel>> opened = shared_.far.open_channel(most_reads);
  if (!opened) return opened.error();
  transfers_ = std::move(opened).value();
  return {};
}

bool object_reader::is_remote_at(page_id page, backend::slot_id slot) const {
  const page_word word = shared_.pages.load_in_order(page);
  return word.where() == state::remote && word.place() == slot;
}

bool object_reader::is_still_remote(const object_read& one, const transfer& held) const {
  const std::span<const page_id> pages = one.all_pages();
  for (std::size_t i = 0; i < held.held_count; ++i) {
    if (!is_remote_at(pages[i], held.held[i].slot)) return false;
  }
  return true;
}

// The version is loaded first: that of the bytes with which the page left, if it is still where it went to then.
bool object_reader::note_version(object_read& one, const transfer& held) const {
  one.version = shared_.checks.version(one.page);
  return is_still_remote(one, held);
}

// Otherwise the page is to be fetched. A function of the program's is called by a memory server or by the program, and
// not here, where threads hold locks.
bool object_reader::is_answered(const reduction& asked, backend::slot_id slot) const {
  const bool is_direct = shared_.far.direct(slot) != nullptr;
  if (is_built_in(asked)) {
    const bool is_of_rows = asked.kind == reduction_kind::of_rows;
    return is_direct ||
           ((is_of_rows ? shared_.far.reduces_rows() : shared_.far.reduces()) && shared_.refused.may_ask(asked));
  }
  if (is_direct || !shared_.far.reduces()) {
    if (asked.function->why != nullptr) asked.function->why->is_of_far_tier.store(true, std::memory_order_relaxed);
    asked.function->refused->store(true, std::memory_order_relaxed);
  }
  return !asked.function->refused->load(std::memory_order_relaxed);
}

// The slot is announced before the page is looked at again: from then on it is not freed, so the page either still is
// in it, or has left before and the read is given up.
bool object_reader::hold_slots(const object_read& one, transfer& fresh) {
  fresh.held_count = 0;
  for (const page_id page : one.all_pages()) {
    const page_word word = shared_.pages.load(page);
    const bool is_remote = word.where() == state::remote;
    if (is_remote) shared_.reads.begin(fresh.held[fresh.held_count++], word.place());
    if (is_remote && is_remote_at(page, word.place())) continue;
    release(fresh);
    return false;
  }
  return true;
}

bool object_reader::is_direct(const transfer& held) const {
  return std::ranges::all_of(std::span(held.held).first(held.held_count),
                             [&](const slot_reads::entry& one) { return shared_.far.direct(one.slot) != nullptr; });
}

read_outcome object_reader::start(object_read& one) {
  FAR_DCHECK(one.offset_bytes + one.length_bytes <= page_bytes, "a read stays within a page");
  const page_word word = shared_.pages.load(one.page);
  if (word.where() != state::remote) return read_outcome::not_remote;
  if (one.reduce != nullptr && !is_answered(*one.reduce, word.place())) return read_outcome::failed;
  if (!has_room()) return read_outcome::busy;
  transfer& fresh = *free_[free_count_ - 1];
  fresh.attempts = 0;
  if (!hold_slots(one, fresh)) return read_outcome::not_remote;
  if (is_direct(fresh)) return read_directly(one, fresh);
  if (!one.pages.empty() && !shared_.far.reduces_rows()) {
    release(fresh);
    return read_outcome::failed;
  }
  one.outcome.store(read_outcome::in_flight, std::memory_order_relaxed);
  fresh.one = &one;
  if (!submit(fresh)) {
    fresh.one = nullptr;
    release(fresh);
    return read_outcome::busy;
  }
  if (one.reduce != nullptr) shared_.refused.note_asked(*one.reduce);
  --free_count_;
  under_way_.fetch_add(1, std::memory_order_relaxed);
  return read_outcome::in_flight;
}

read_outcome object_reader::read_directly(object_read& one, transfer& held) {
  read_outcome reached = read_outcome::failed;
  const std::byte* const bytes = shared_.far.direct(held.held[0].slot);
  if (!one.pages.empty()) {
    std::array<const std::byte*, detail::most_row_pages> all{};
    for (std::size_t i = 0; i < held.held_count; ++i) all[i] = shared_.far.direct(held.held[i].slot);
    answer_about_rows({*one.reduce, &shared_.checks.hasher()}, std::span(all).first(held.held_count), one.buffer);
    reached = take_answer(one, one.buffer);
  } else if (one.reduce == nullptr) {
    reached = take(one, bytes + first_piece(one) * page_checks::piece_bytes);
  } else if (is_built_in(*one.reduce)) {
    answer(*one.reduce, shared_.checks.hasher(), one.groups, bytes, {bytes + one.offset_bytes, one.length_bytes},
           one.buffer);
    reached = take_answer(one, one.buffer);
  }
  const bool is_there = note_version(one, held);
  release(held);
  return is_there ? reached : read_outcome::not_remote;
}

backend::request object_reader::request_for(const transfer& running) const {
  const object_read& one = *running.one;
  backend::request wanted{.op = backend::operation::read,
                          .slot = running.held[0].slot,
                          .offset_bytes = one.offset_bytes,
                          .length_bytes = one.length_bytes,
                          .buffer = landing_of(running),
                          .cookie = static_cast<std::uint64_t>(&running - under_way_list_.data())};
  if (one.reduce != nullptr) {
    wanted.reduce = &running.reduce;
    wanted.is_needed = false;  // the page is fetched instead
  } else {
    wanted.offset_bytes = static_cast<std::uint32_t>(first_piece(one) * page_checks::piece_bytes);
    wanted.length_bytes = static_cast<std::uint32_t>(piece_count(one) * page_checks::piece_bytes);
  }
  return wanted;
}

bool object_reader::submit(transfer& running) {
  // In the table, because a transfer may outlive the read.
  if (running.one->reduce != nullptr) {
    const reduction& how = *running.one->reduce;
    running.reduce = {.how = how, .hash = &shared_.checks.hasher()};
    if (detail::has_groups(how.kind)) {
      std::byte* const groups = landing_of(running) + question_offset;
      pack_groups(how, running.one->groups, running.one->length_bytes / number_bytes(how.type), groups);
      running.reduce.groups = groups;
    }
    if (how.kind == reduction_kind::of_rows) {
      auto& asked = *new (landing_of(running) + question_offset) question_about_rows{.rows = *how.rows};
      for (std::size_t i = 0; i < running.held_count; ++i) asked.slots[i] = running.held[i].slot;
      running.reduce.how.rows = &asked.rows;
      running.reduce.slots = std::span<const backend::slot_id>(asked.slots).first(running.held_count);
    }
    if (how.function != nullptr) {
      running.reduce.how.function = new (landing_of(running) + question_offset) detail::page_function(*how.function);
    }
  }
  const backend::request wanted = request_for(running);
  if (transfers_->needs_its_submitter()) {
    if (has_left()) submit_left();
    running.submitter = this_thread();
    running.submitted_ns = shared_.time.now_ns();
  }
  return transfers_->submit({&wanted, 1}) == 1;
}

// Their reads are not known: from now on this thread is the submitter of some.
void object_reader::submit_left() {
  const std::uint64_t now_ns = shared_.time.now_ns();
  for (transfer& late : under_way_list_) {
    late.submitter = nullptr;
    late.submitted_ns = now_ns;
  }
  transfers_->submit_left();
  has_left_.store(transfers_->has_left(), std::memory_order_relaxed);
}

// The pieces are here: checks them, and hands the bytes out.
read_outcome object_reader::take(object_read& one, const std::byte* pieces) const {
  if (!shared_.checks.fit(one.page, first_piece(one), piece_count(one), pieces)) return read_outcome::failed;
  const std::size_t skipped = one.offset_bytes - first_piece(one) * page_checks::piece_bytes;
  std::memcpy(one.buffer, pieces + skipped, one.length_bytes);
  return read_outcome::done;
}

std::uint64_t object_reader::hash_expected_of(std::span<const page_id> pages) const {
  std::array<std::uint64_t, detail::most_row_pages> hashes{};
  std::ranges::transform(pages, hashes.begin(), [&](page_id page) { return shared_.checks.all_pieces_of(page); });
  return hash_of_pages(std::span(hashes).first(pages.size()));
}

// Computed of the bytes with which the page left, or worthless.
read_outcome object_reader::take_answer(object_read& one, const std::byte* answer) const {
  const std::size_t bytes = answer_bytes(*one.reduce);
  std::uint64_t check = 0;
  std::memcpy(&check, answer + bytes - sizeof check, sizeof check);
  const bool is_of_these =
      one.pages.empty() ? shared_.checks.fits(one.page, check) : check == hash_expected_of(one.pages);
  if (!is_of_these) return read_outcome::failed;
  const bool is_possible = one.pages.empty() ? is_possible_of_page(*one.reduce, one.length_bytes, answer)
                                             : is_possible_of_rows(*one.reduce, answer);
  if (!is_possible) {
    shared_.count.backend_errors.add();
    return read_outcome::failed;
  }
  if (answer != one.buffer) std::memcpy(one.buffer, answer, bytes);
  return read_outcome::done;
}

bool object_reader::poll(caller who) {
  std::array<backend::completion, 64> done;
  const std::size_t count = transfers_->poll(done);
  for (std::size_t i = 0; i < count; ++i) arrive(done[i]);
  if (idle() || !transfers_->needs_its_submitter()) return count > 0;
  has_left_.store(transfers_->has_left(), std::memory_order_relaxed);
  if (who == caller::of_runtime && has_left()) submit_left();
  return count > 0 || give_up_late();
}

// A question that its server could not answer now is asked again with the next page; its blocks may have been on a busy
// disk. One that it does not know is not, for a while. A function of the program's is the program's to call in both
// cases.
void object_reader::note_reply(const reduction& asked, int error_code) {
  if (!is_built_in(asked)) {
    if (backend::is_unanswered(error_code)) asked.function->refused->store(true, std::memory_order_relaxed);
  } else if (error_code == 0) {
    shared_.refused.note_answered(asked);
  } else if (error_code == ENOTSUP && shared_.refused.note_refused(asked)) {
    log_line(log_level::warning,
             "a memory server of far tier '%s' does not answer questions about %s: their pages are fetched instead. "
             "Upgrade its farheapd to this release; it is asked again each minute",
             shared_.far_name(), refused_questions::name_of(asked));
  }
}

void object_reader::arrive(const backend::completion& ended) {
  transfer& landed = under_way_list_[ended.cookie];
  if (landed.one != nullptr) {
    object_read& one = *landed.one;
    const bool is_reduced = one.reduce != nullptr;
    read_outcome reached = read_outcome::failed;
    if (ended.error_code == 0) {
      reached = is_reduced ? take_answer(one, landing_of(landed)) : take(one, landing_of(landed));
    }
    if (is_reduced) note_reply(*one.reduce, ended.error_code);
    // The page was fetched or discarded meanwhile, and the bytes are worthless: that is no error, and no reason to try
    // again.
    if (reached == read_outcome::failed && !is_reduced && is_still_remote(one, landed)) {
      shared_.count.backend_errors.add();
      if (++landed.attempts < attempts_before_failed && submit(landed)) return;
    }
    end(landed, reached);
  }
  release(landed);
  free_[free_count_++] = &landed;
  under_way_.fetch_sub(1, std::memory_order_relaxed);
}

// The kernel reports them when their submitters run, and those may wait inside the kernel for any time.
bool object_reader::give_up_late() {
  const std::uint64_t now_ns = shared_.time.now_ns();
  if (now_ns < look_for_late_at_ns_) return false;
  look_for_late_at_ns_ = now_ns + late_ns / 10;
  bool any = false;
  for (transfer& late : under_way_list_) {
    if (late.one == nullptr || late.submitter == this_thread() || now_ns - late.submitted_ns <= late_ns) continue;
    end(late, read_outcome::failed);
    any = true;
  }
  return any;
}

// Tells the waiting fiber or thread. While the slot is held it cannot have been freed and filled anew: had the page
// left and come back, then with the same bytes.
void object_reader::end(transfer& running, read_outcome reached) {
  object_read& one = *std::exchange(running.one, nullptr);
  const bool is_there = note_version(one, running);
  // The read may be gone once its outcome is known.
  void (*const finished)(object_read&) noexcept = one.finished;
  one.outcome.store(is_there ? reached : read_outcome::not_remote, std::memory_order_release);
  if (finished != nullptr) finished(one);
}

void object_reader::release(transfer& held) {
  for (; held.held_count > 0; --held.held_count) {
    slot_reads::entry& last = held.held[held.held_count - 1];
    if (shared_.reads.end(last)) shared_.free_slot(last.slot);
  }
}

}  // namespace far::engine
