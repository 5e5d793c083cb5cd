#include "engine/fetcher.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/log.h"
#include "engine/neighbourhood.h"
#include "engine/request_runs.h"
#include "engine/submitter.h"

namespace far::engine {
namespace {

constexpr std::size_t pages_a_piece = 8;

// Between attempts at a read that somebody waits for: the first pause, doubled each time, up to the longest.
constexpr std::uint64_t first_pause_ns = 1'000'000;
constexpr std::uint64_t longest_pause_ns = 1'000'000'000;
constexpr unsigned attempts_before_warning = 8;  // 127 ms
constexpr unsigned attempts_at_what_is_gone = 3;

// A tier that returns wrong bytes gets less time than one that returns none: it is reachable, and will most likely keep
// returning them.
constexpr std::uint64_t patience_with_wrong_bytes = 10;  // of the whole patience, one part in so many

}  // namespace

result<std::unique_ptr<fetcher>> fetcher::create(core_for_misses& shared) {
  result<std::unique_ptr<backend::channel>> opened = shared.far.open_channel(flights * batch_pages);
  if (!opened) return opened.error();
  return std::unique_ptr<fetcher>(new fetcher(shared, std::move(opened).value()));
}

fetcher::fetcher(core_for_misses& shared, std::unique_ptr<backend::channel> transfers)
    : shared_(shared),
      transfers_(std::move(transfers)),
      buffers_(platform::map_local(flights * batch_pages * page_bytes)) {}

fetcher::~fetcher() {
  // Bytes of a read still on its way would land in memory that is no longer ours.
  while (transfers_->in_flight() > 0) {
    std::array<backend::completion, 16> done;
    if (transfers_->poll(done) == 0) transfers_->wait(10'000'000);
  }
  platform::unmap_local(buffers_, flights * batch_pages * page_bytes);
}

result<void> fetcher::restart_in_child() {
  lock.assert_held();
  // The old channel belongs to the parent: closing it properly would wait for completions that never come here.
  static_cast<void>(transfers_.release());
  for (flight& incoming : flights_) incoming.count = 0;
  flights_in_use_.store(0);
  unattended_flights_.store(0);
  has_left_.store(false);
  resting_flights_ = 0;
  orphans_ = 0;
  lock.open_in_child();
  result<std::unique_ptr<backend::channel>> opened = shared_.far.open_channel(flights * batch_pages);
  if (!opened) return opened.error();
  transfers_ = std::move(opened).value();
  return {};
}

std::byte* fetcher::buffer_of(const flight& incoming) const {
  return buffers_ + static_cast<std::size_t>(&incoming - flights_.data()) * batch_pages * page_bytes;
}

// A frame is charged before the page is claimed: the other way round, a page in Fetching could wait for a frame, and
// with it every thread that needs the page.
outcome fetcher::fetch(page_id page, bool write, demand cause, window ahead, std::size_t* prefetched) {
  if (!has_room()) return outcome::busy;
  if (!shared_.charge_for_miss()) return outcome::no_budget;
  page_word word = shared_.pages.load(page);
  if (word.where() != state::remote || !shared_.pages.transition(page, word, word.with_state(state::fetching))) {
    shared_.local.release(1);
    return outcome::busy;
  }
  shared_.count.misses.add();

  std::array<page_id, batch_pages> claimed;
  claimed[0] = page;
  const std::size_t count = 1 + claim_ahead(page, ahead, word.eviction_priority(), std::span(claimed).subspan(1));
  *prefetched = count - 1;
  shared_.count.prefetched_pages.add(count - 1);

  const bool write_ahead = write && ahead.is_walk;
  const bool announced = cause == demand::walk;
  const purpose missed{.write = write,
                       .demanded = page,
                       .are_wanted = false,
                       .is_walk = announced,
                       .is_for_place = cause == demand::place};
  const purpose others{.write = write_ahead, .demanded = {}, .are_wanted = false, .is_walk = announced};
  if (shared_.far.direct(word.place()) != nullptr) {
    const std::span<page_id> all = std::span(claimed).first(count);
    if (write == write_ahead) return fetch_direct(all, missed);
    const outcome reached = fetch_direct(all.first(1), missed);
    if (count > 1) static_cast<void>(fetch_direct(all.subspan(1), others));
    return reached;
  }
  // The page that somebody waits for travels alone, so that it need not wait for the others.
  start(std::span(claimed).first(1), missed);
  if (count > 1) start(std::span(claimed).subspan(1, count - 1), others);
  return outcome::in_flight;
}

std::size_t fetcher::prefetch(page_range range, const expectation& of) {
  if (!has_room_ahead()) poll(caller::of_program);
  std::array<page_id, batch_pages> claimed;
  const std::size_t count =
      claim_ahead(range.first - 1, {.stride = 1, .count = range.count}, of.eviction_priority, claimed);
  if (count == 0) return 0;
  shared_.count.prefetched_pages.add(count);
  if (shared_.far.direct(shared_.pages.load(claimed[0]).place()) != nullptr) {
    static_cast<void>(fetch_direct({claimed.data(), count}, {of.write, {}, of.is_wanted, of.is_walk}));
  } else {
    start({claimed.data(), count}, {of.write, {}, of.is_wanted, of.is_walk});
  }
  return count;
}

// Brings pages in whose bytes are a memory access away. The demanded page is in flight if its bytes are wrong: the
// flight finds out whether they stay so. Others that are wrong do not come.
outcome fetcher::fetch_direct(std::span<page_id> claimed, const purpose& why) {
  outcome reached = outcome::resolved;
  for (page_id wrong : claimed.first(install_direct(claimed, why))) {
    if (wrong != why.demanded) {
      let_go(wrong);
      continue;
    }
    start(std::span(&wrong, 1), why);
    reached = outcome::in_flight;
  }
  return reached;
}

// The bytes are a memory access away: everything comes in now, in the order of addresses. But for pages whose bytes are
// not those that were written: they are moved to the front. Returns how many. Requires: a flight is free.
std::size_t fetcher::install_direct(std::span<page_id> claimed, const purpose& why) {
  const auto is_wrong = [this](page_id page) {
    return !shared_.checks.fit(page, shared_.far.direct(shared_.pages.load(page).place()));
  };
  const auto right = std::partition(claimed.begin(), claimed.end(), is_wrong);
  const auto wrong = static_cast<std::size_t>(right - claimed.begin());
  shared_.count.backend_errors.add(wrong);
  std::sort(right, claimed.end());
  std::array<arrival, batch_pages> arrivals;
  for (std::size_t i = wrong; i < claimed.size(); ++i) {
    arrivals[i] = {claimed[i], shared_.far.direct(shared_.pages.load(claimed[i]).place())};
  }
  install(std::span(arrivals).subspan(wrong, claimed.size() - wrong), why, buffer_of(*free_flight()));
  return wrong;
}

// A page that nobody waits for does not come after all. An access that needs it will ask again.
void fetcher::let_go(page_id page) {
  shared_.pages.update(page, [](page_word word) { return word.with_state(state::remote); });
  shared_.local.release(1);
}

// A flight for pages that were claimed. Requires: one is free.
void fetcher::start(std::span<page_id> pages, const purpose& why) {
  flight* const fresh = free_flight();
  FAR_CHECK(fresh != nullptr, "claim_ahead left a flight free");
  flights_in_use_.fetch_add(1, std::memory_order_relaxed);
  const bool demanded = why.demanded.has_value();
  if (!demanded) unattended_flights_.fetch_add(1, std::memory_order_relaxed);
  std::sort(pages.begin(), pages.end());
  std::copy(pages.begin(), pages.end(), fresh->pages.begin());
  fresh->count = pages.size();
  fresh->failed = 0;
  std::fill_n(fresh->avoid.begin(), fresh->count, 0);
  fresh->attempts = 0;
  fresh->wrong = false;
  fresh->is_away = false;
  fresh->due_ns = 0;
  fresh->write = why.write;
  fresh->are_wanted = why.are_wanted;
  fresh->is_walk = why.is_walk;
  fresh->is_for_place = why.is_for_place;
  fresh->demanded = demanded;
  start(*fresh);
}

fetcher::flight* fetcher::free_flight() {
  for (flight& candidate : flights_) {
    if (candidate.count == 0) return &candidate;
  }
  return nullptr;
}

// Read-ahead leaves flights to waiting threads. Where transfers need their submitter, it leaves half of them: the
// others stay in use for as long as threads wait inside the kernel that have read ahead.
bool fetcher::has_room_ahead() const {
  return free_flights_of(transfers_->needs_its_submitter() ? flights / 2 : flights - spare_flights) >= 2;
}

// Claims the Remote pages of the window, and gives them the priority of the missing page, as long as frames are free
// beyond those that misses will need. Pages whose objects come back one by one stay where they are.
std::size_t fetcher::claim_ahead(page_id page, window ahead, std::optional<unsigned> eviction_priority,
                                 std::span<page_id> claimed) {
  if (!has_room_ahead()) return 0;
  const std::uint64_t reserve = shared_.local.low_watermark_pages() / 2;
  std::size_t count = 0;
  for (std::size_t i = 0; i < ahead.count && count < claimed.size(); ++i) {
    const std::int64_t step = ahead.first + static_cast<std::int64_t>(i);
    const page_id candidate = page + static_cast<page_id>(ahead.stride * step);
    if (candidate >= shared_.pages.pages()) break;
    if (candidate == ahead.left_out) continue;
    page_word word = shared_.pages.load(candidate);
    if (!comes_as_page(word)) continue;
    if (!shared_.local.try_charge(1, reserve)) break;
    const page_word coming =
        word.with_state(state::fetching).with_eviction_priority(eviction_priority.value_or(word.eviction_priority()));
    if (shared_.pages.transition(candidate, word, coming)) {
      claimed[count++] = candidate;
      if (shared_.evictions.epochs_since(word.epoch()) <= neighbourhood::soon) shared_.count.returned_along.add();
    } else {
      shared_.local.release(1);
    }
  }
  return count;
}

// Reads the pages of a flight: at the first try in runs of adjacent slots, at a retry only those that failed, each
// alone, and from copies that have not returned wrong bytes, if there are any.
void fetcher::start(flight& incoming) {
  request_runs runs(requests_, static_cast<std::size_t>(&incoming - flights_.data()));
  const bool retry = incoming.failed != 0;
  for (std::size_t i = 0; i < incoming.count; ++i) {
    if (retry && (incoming.failed >> i & 1) == 0) continue;
    const backend::request page{.op = backend::operation::read,
                                .slot = shared_.pages.load(incoming.pages[i]).place(),
                                .buffer = buffer_of(incoming) + i * page_bytes,
                                .may_lend = true,
                                .avoid = incoming.avoid[i]};
    if (retry) {
      runs.add_alone(i, page);
    } else {
      runs.add(i, page);
    }
  }
  incoming.failed = 0;
  incoming.wrong = false;
  incoming.orphan = false;
  incoming.outstanding_requests = runs.all().size();
  if (transfers_->needs_its_submitter()) {
    if (has_left()) submit_left();
    incoming.submitter = this_thread();
    incoming.submitted_ns = shared_.time.now_ns();
  }
  const std::size_t taken = transfers_->submit(runs.all());
  FAR_CHECK(taken == runs.all().size(), "the channel holds the requests of all flights");
}

// It is not known which flights they belong to: from now on this thread is the submitter of parts of them.
void fetcher::submit_left() {
  for (flight& incoming : flights_) {
    if (incoming.count == 0) continue;
    incoming.submitter = nullptr;
    incoming.submitted_ns = shared_.time.now_ns();
  }
  transfers_->submit_left();
  has_left_.store(transfers_->has_left(), std::memory_order_relaxed);
}

bool fetcher::poll(caller who) {
  const bool started = resting_flights_ > 0 && start_due();
  const std::size_t count = transfers_->poll(completions_);
  for (std::size_t i = 0; i < count; ++i) take(completions_[i]);
  if (flights_in_use_.load(std::memory_order_relaxed) == 0 || !transfers_->needs_its_submitter()) {
    return started || count > 0;
  }
  has_left_.store(transfers_->has_left(), std::memory_order_relaxed);
  if (who == caller::of_program) return started || count > 0;
  if (has_left()) submit_left();
  return started || count > 0 || take_over_late();
}

// Arriving bytes are compared with those that left, in the processor's cache, which they come into either way.
void fetcher::take(const backend::completion& arrived) {
  const run_cookie cookie = run_cookie::unpack(arrived.cookie);
  flight& landed = flights_[cookie.group];
  const std::byte* const bytes = arrived.lent != nullptr ? arrived.lent : buffer_of(landed) + cookie.first * page_bytes;
  if (landed.orphan) {
    if (--landed.outstanding_requests > 0) return;
    --orphans_;
    return end(landed);
  }
  if (arrived.error_code != 0) note_failure(landed, cookie.first, cookie.count, arrived.error_code);
  for (std::size_t i = 0; i < cookie.count && arrived.error_code == 0; ++i) {
    const std::size_t page = cookie.first + i;
    landed.sources[page] = bytes + i * page_bytes;
    if (shared_.checks.fit(landed.pages[page], landed.sources[page])) {
      report_damage(landed, page, arrived);
      continue;
    }
    landed.wrong = true;
    if (arrived.source != 0) landed.avoid[page] |= std::uint64_t{1} << (arrived.source - 1);
    note_failure(landed, page, 1, EBADMSG);
  }
  if (--landed.outstanding_requests == 0) land(landed);
}

// The right bytes have come: the copies that returned wrong ones, or none, can be mended.
void fetcher::report_damage(const flight& landed, std::size_t page, const backend::completion& arrived) {
  const std::uint8_t right = arrived.source;
  if (right == 0 || (landed.avoid[page] == 0 && arrived.refused_by == 0)) return;
  const backend::slot_id slot = shared_.pages.load(landed.pages[page]).place();
  for (std::uint64_t left = landed.avoid[page]; left != 0; left &= left - 1) {
    const auto wrong = static_cast<std::uint8_t>(std::countr_zero(left) + 1);
    if (wrong != right) shared_.far.report_damage(slot, wrong, right, backend::damage::wrong_bytes);
  }
  if (arrived.refused_by != 0) shared_.far.report_damage(slot, arrived.refused_by, right, backend::damage::unreadable);
}

void fetcher::note_failure(flight& incoming, std::size_t first, std::size_t count, int error_code) {
  shared_.count.backend_errors.add();
  incoming.error_code = error_code;
  for (std::size_t page = first; page < first + count; ++page) incoming.failed |= std::uint64_t{1} << page;
}

bool fetcher::start_due() {
  const std::uint64_t now_ns = shared_.time.now_ns();
  bool started = false;
  for (flight& incoming : flights_) {
    if (incoming.count == 0 || incoming.due_ns == 0 || now_ns < incoming.due_ns) continue;
    incoming.due_ns = 0;
    --resting_flights_;
    start(incoming);
    started = true;
  }
  return started;
}

// The thread that submitted them may wait inside the kernel for the very page that they bring. Requires: called by a
// thread of the runtime. It does not wait so itself. So nothing is taken over twice, and one spare flight is enough for
// all of them, one after the other.
bool fetcher::take_over_late() {
  const std::uint64_t now_ns = shared_.time.now_ns();
  bool started = false;
  for (flight& incoming : flights_) {
    const bool late = incoming.count > 0 && incoming.due_ns == 0 && !incoming.orphan &&
                      incoming.submitter != this_thread() && now_ns - incoming.submitted_ns > late_ns;
    flight* const fresh = late ? free_flight() : nullptr;
    if (fresh == nullptr) continue;
    take_over(incoming, *fresh);
    started = true;
  }
  return started;
}

void fetcher::take_over(flight& late, flight& fresh) {
  fresh = late;
  // Reads all of it again, also the parts that have arrived.
  fresh.failed = 0;
  fresh.wrong = false;
  flights_in_use_.fetch_add(1, std::memory_order_relaxed);
  ++orphans_;
  late.orphan = true;
  late.demanded = true;  // nobody looks after it any more
  start(fresh);
}

void fetcher::land(flight& incoming) {
  std::array<arrival, batch_pages> arrivals;
  std::size_t count = 0;
  for (std::size_t i = 0; i < incoming.count; ++i) {
    if ((incoming.failed >> i & 1) != 0) continue;
    arrivals[count++] = {incoming.pages[i], incoming.sources[i]};
  }
  const std::optional<page_id> demanded = incoming.demanded ? std::optional(incoming.pages[0]) : std::nullopt;
  install({arrivals.data(), count}, {incoming.write, demanded, incoming.are_wanted, incoming.is_walk},
          buffer_of(incoming));
  if (incoming.failed != 0) return retry_or_give_up(incoming);
  end(incoming);
}

void fetcher::end(flight& incoming) {
  incoming.count = 0;
  flights_in_use_.fetch_sub(1, std::memory_order_relaxed);
  if (!incoming.demanded) unattended_flights_.fetch_sub(1, std::memory_order_relaxed);
}

// Pages that were only prefetched, or offered room for something new, are forgotten: a later miss will ask. A page that
// a thread waits for is tried again, and when it keeps failing its bytes are Lost: better a clear end than wrong data.
void fetcher::retry_or_give_up(flight& incoming) {
  if (!incoming.demanded || incoming.is_for_place) {
    for (std::size_t i = 0; i < incoming.count; ++i) {
      if ((incoming.failed >> i & 1) != 0) let_go(incoming.pages[i]);
    }
    return end(incoming);
  }
  const std::uint64_t now_ns = shared_.time.now_ns();
  const bool is_away = tier_patience_ns(incoming) != 0;
  // The tier is reachable again, and the read fails for another reason: the time that it was away does not count.
  if (incoming.is_away && !is_away) incoming.attempts = 0;
  incoming.is_away = is_away;
  if (incoming.attempts++ == 0) incoming.failing_since_ns = now_ns;
  if (incoming.attempts == (incoming.wrong ? 1 : is_away ? 0 : attempts_before_warning)) {
    log_line(log_level::warning, "page %llu of the far heap cannot be read from %s (%s); trying again",
             static_cast<unsigned long long>(incoming.pages[0]), shared_.far_name(),
             incoming.wrong ? "other bytes come back than were written" : std::strerror(incoming.error_code));
  }
  if (!is_worth_a_retry(incoming, now_ns)) {
    lose(incoming);
    return end(incoming);
  }
  incoming.due_ns = now_ns + std::min(first_pause_ns << std::min(incoming.attempts - 1, 20u), longest_pause_ns);
  ++resting_flights_;
}

// Where the tier knows since when it has not been heard of, that counts for all of its pages: somebody who needs one
// after the other would wait as long again for each of them otherwise.
std::uint64_t fetcher::waiting_since_ns(const flight& incoming) const {
  if (!incoming.is_away) return incoming.failing_since_ns;
  const std::uint64_t since_ns = shared_.far.away_since_ns(shared_.pages.load(incoming.pages[0]).place());
  return since_ns != 0 ? std::min(since_ns, incoming.failing_since_ns) : incoming.failing_since_ns;
}

// The tier's patience for bytes that are out of reach; 0: unknown, or the tier is there, and fails otherwise.
std::uint64_t fetcher::tier_patience_ns(const flight& incoming) const {
  return incoming.error_code == ETIMEDOUT ? shared_.far.read_patience_ns() : 0;
}

bool fetcher::is_worth_a_retry(const flight& incoming, std::uint64_t now_ns) const {
  // The tier knows that it will never have the bytes again.
  if (incoming.error_code == ESTALE) return incoming.attempts < attempts_at_what_is_gone;
  const std::uint64_t waiting_ns = now_ns - std::min(now_ns, waiting_since_ns(incoming));
  if (incoming.wrong) return waiting_ns < shared_.read_patience_ns / patience_with_wrong_bytes;
  const std::uint64_t tier_ns = tier_patience_ns(incoming);
  return waiting_ns < (tier_ns != 0 ? tier_ns : shared_.read_patience_ns);
}

void fetcher::lose(flight& incoming) {
  for (std::size_t i = 0; i < incoming.count; ++i) {
    if ((incoming.failed >> i & 1) == 0) continue;
    shared_.pages.update(incoming.pages[i], [](page_word word) { return word.with_state(state::lost); });
    shared_.local.release(1);
    shared_.count.lost_pages.add();
    const auto page = static_cast<unsigned long long>(incoming.pages[i]);
    if (incoming.wrong) {
      log_line(log_level::error,
               "page %llu of the far heap is lost: %s returned other bytes than were written to it, %u times; test the "
               "device or the memory of the server (dmesg, smartctl, memtest), and use another one until then",
               page, shared_.far_name(), incoming.attempts);
    } else {
      log_line(log_level::error, "page %llu of the far heap is lost: reading it from %s failed %u times (%s)", page,
               shared_.far_name(), incoming.attempts, std::strerror(incoming.error_code));
    }
  }
}

// How a page is mapped when it comes in for a read: writable if the last visit saw a write, and such pages mostly are
// written again, or if it costs little to look whether it was, which saves the fault of the next write; then its hash
// tells at eviction whether there was one.
platform::mapping fetcher::mapping_for_read(page_id page, bool forecast_is_right) const {
  const bool writable = !shared_.writes_tracked || (forecast_is_right && shared_.pages.load(page).writes_expected()) ||
                        shared_.may_be_written_later(page);
  return writable ? platform::mapping::writable : platform::mapping::write_protected;
}

// Maps pages, sorted by address, in as few calls as their neighbourhood allows. `buffer`: for batch_pages, to gather
// them in; nothing else lands there meanwhile.
void fetcher::install(std::span<const arrival> arrivals, const purpose& why, std::byte* buffer) {
  const bool forecast_is_right = shared_.writes.is_right();
  const auto mapping_of = [=, this](page_id page) {
    return why.write ? platform::mapping::writable : mapping_for_read(page, forecast_is_right);
  };
  std::size_t first = 0;
  for (std::size_t i = 1; i <= arrivals.size(); ++i) {
    const bool same_run = i < arrivals.size() && arrivals[i].page == arrivals[i - 1].page + 1 &&
                          mapping_of(arrivals[i].page) == mapping_of(arrivals[first].page);
    if (same_run) continue;
    install_run(arrivals.subspan(first, i - first), mapping_of(arrivals[first].page), why, buffer);
    first = i;
  }
}

// Bytes that are lent lie where the backend keeps them, so a run of pages may have several sources.
void fetcher::install_run(std::span<const arrival> run, platform::mapping how, const purpose& why, std::byte* buffer) {
  const std::byte* source = run[0].source;
  std::size_t breaks = 0;
  for (std::size_t i = 1; i < run.size(); ++i) breaks += run[i].source != run[i - 1].source + page_bytes;
  if (breaks > 0 && breaks <= run.size() / pages_a_piece) return install_in_pieces(run, how, why, buffer);
  if (breaks > 0) {
    // One call for the run costs less than a call for each small piece, even with a copy more. A page that is in the
    // buffer already never lies before the place it moves to, so nothing is overwritten before it has moved.
    for (std::size_t i = 0; i < run.size(); ++i) std::memmove(buffer + i * page_bytes, run[i].source, page_bytes);
    source = buffer;
  }
  std::size_t done = 0;
  backoff waiting;
  while (done < run.size()) {
    int failure = 0;
    done += shared_.space.install({run[done].page, run.size() - done}, source + done * page_bytes, how, &failure);
    if (done == run.size()) break;
    wait_for_kernel_memory(failure, &waiting);
  }
  for (const arrival& arrived : run) make_resident(arrived.page, why, how == platform::mapping::writable);
  shared_.count.fetched_pages.add(run.size());
}

// Where the bytes of a run lie in few places, a call for each place is cheaper than gathering them first.
void fetcher::install_in_pieces(std::span<const arrival> run, platform::mapping how, const purpose& why,
                                std::byte* buffer) {
  std::size_t first = 0;
  for (std::size_t i = 1; i <= run.size(); ++i) {
    if (i < run.size() && run[i].source == run[i - 1].source + page_bytes) continue;
    install_run(run.subspan(first, i - first), how, why, buffer);
    first = i;
  }
}

// Only a page that a thread needs counts as missed. A page that is brought along again and again may never be used.
void fetcher::make_resident(page_id page, const purpose& why, bool writable) {
  const page_word before = shared_.pages.load(page);
  const bool is_missed = why.are_wanted || why.demanded == page;
  const unsigned epochs_away = shared_.evictions.epochs_since(before.epoch());
  const bool hot = is_missed && epochs_away < shared_.remembered_epochs();
  shared_.pages.update(page, [=](page_word word) {
    const page_word resident =
        word.with_state(state::resident).with_accessed(hot).with_dirty(writable).with_fetched(true);
    return why.write ? resident.with_place(page_word::no_place) : resident;
  });
  if (why.write) shared_.free_slot(before.place());
  const bool has_returned = is_missed && epochs_away < shared_.recalled_epochs();
  const bool passes = why.is_walk && epochs_away >= eviction_clock::epochs_a_budget;
  shared_.admit(page, passes ? temperature::passing : has_returned ? temperature::returned : temperature::warm);
}

}  // namespace far::engine
