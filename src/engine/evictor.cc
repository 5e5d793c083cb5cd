#include "engine/evictor.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "base/check.h"
#include "base/lock_guard.h"
#include "engine/block_guards.h"
#include "engine/page_discard.h"
#include "engine/request_runs.h"
#include "engine/rescue.h"

namespace far::engine {
namespace {

// While pages have to ripen, misses wait for the scopes that delay them. Pages that leave beneath a scope come back
// whole, so this is done only for scopes that last longer than some hundred misses.
constexpr std::uint64_t shortest_long_scope_ns = 1'000'000;

constexpr std::size_t most_looks_a_step = 1024;

// Pages that cannot leave now are pinned, on their way in, or held by a batch of another evictor. The threads that let
// them go may wait for a processor meanwhile, while a thread that wants a frame takes thousands of fruitless steps.
constexpr std::uint64_t shortest_drought_ns = 100'000'000;

}  // namespace

result<std::unique_ptr<evictor>> evictor::create(core& shared, std::size_t first_staging_page) {
  result<std::unique_ptr<backend::channel>> opened = shared.far.open_channel(staging_pages);
  if (!opened) return opened.error();
  return std::unique_ptr<evictor>(new evictor(shared, first_staging_page, std::move(opened).value()));
}

evictor::evictor(core& shared, std::size_t first_staging_page, std::unique_ptr<backend::channel> transfers)
    : shared_(shared), first_staging_page_(first_staging_page), transfers_(std::move(transfers)) {}

evictor::~evictor() {
  while (transfers_->in_flight() > 0) {
    std::array<backend::completion, 16> done;
    if (transfers_->poll(done) == 0) transfers_->wait(10'000'000);
  }
}

std::size_t evictor::staging_page_of(const batch& outgoing, std::size_t position) const {
  const std::size_t half = position < outgoing.copied ? shared_.half_of_staging() : 0;
  return half + first_staging_page_ + static_cast<std::size_t>(&outgoing - batches_.data()) * batch_pages + position;
}

evictor::batch* evictor::free_batch() {
  for (batch& candidate : batches_) {
    if (candidate.count == 0) return &candidate;
  }
  return nullptr;
}

bool evictor::step(bool start_more, caller who) {
  bool progress = who == caller::of_runtime && submit_left();
  progress |= finish_batches(who);
  started_pages_ = 0;
  if (!start_more || free_batch() == nullptr) return progress;
  std::array<page_id, batch_pages> victims;
  const std::size_t count = choose_victims(std::span(victims).first(shared_.pages_a_batch));
  static_cast<void>(evict({victims.data(), count}, who, hard_pressed_));
  const bool moved = count > kept_;
  if (moved) shared_.note_evictable();
  started_pages_ = moved ? count - kept_ : 0;
  // A far tier that is a memory access away is done already.
  if (moved) finish_batches(who);
  note_fruit(moved);
  return progress || moved;
}

// Each batch costs a fence and a TLB flush, so batches are filled with pages that are likely to leave. Warm pages are
// skipped, but only so many in one step that it stays short, and leaves most of a round for other steps. Ripening pages
// are named first again in the next step; a batch of them is enough.
std::size_t evictor::choose_victims(std::span<page_id> victims) {
  if (shared_.filter == nullptr) return shared_.select_victims(victims);
  const std::size_t most_looks = std::clamp(shared_.ordered_pages() / 8, victims.size(), most_looks_a_step);
  std::array<page_id, batch_pages> ripening;
  std::size_t ripening_count = 0;
  std::size_t count = 0;
  for (std::size_t looks = 0; looks < most_looks && count < victims.size() && ripening_count < ripening.size();) {
    const std::size_t most = std::min(victims.size() - count, ripening.size() - ripening_count);
    const std::span<page_id> named = victims.subspan(count, most);
    const std::size_t found = shared_.select_victims(named);
    if (found == 0) break;
    looks += found;
    const eviction_look seen = shared_.filter->look(candidates(named.first(found)), hard_pressed_);
    ripening_ = seen.ripening;
    for (std::size_t i = 0; i < found; ++i) {
      if ((seen.warm >> i & 1) != 0) {
        shared_.admit(named[i], temperature::hot);
      } else if ((seen.ripens >> i & 1) != 0) {
        ripening[ripening_count++] = named[i];
      } else {
        victims[count++] = named[i];
      }
    }
  }
  while (ripening_count > 0) shared_.admit(ripening[--ripening_count], temperature::cold);
  return count;
}

eviction_candidates evictor::candidates(std::span<const page_id> pages) const {
  eviction_candidates asked{pages};
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const page_word word = shared_.pages.load(pages[i]);
    if (word.fetched()) asked.fetched |= std::uint64_t{1} << i;
    if (word.dirty()) asked.dirty |= std::uint64_t{1} << i;
  }
  return asked;
}

// Nothing to evict anywhere, nothing under way, round after round: first the pages that scopes hold are asked to leave.
// If that does not help for a while, the budget cannot be kept, and saying so is better than waiting for ever.
void evictor::note_fruit(bool moved) {
  if (moved && ripening_ != ripening_before_) hard_pressed_ = false;
  const bool has_fruit = moved || shared_.batches_under_way.load(std::memory_order_relaxed) > 0 || awaits_slots_;
  fruitless_steps_ = has_fruit ? 0 : fruitless_steps_ + 1;
  if (fruitless_steps_ == 1) {
    fruitless_since_ns_ = shared_.time.now_ns();
    if (!hard_pressed_) ripening_before_ = ripening_;
  }
  if (fruitless_steps_ <= 16) return;
  const std::size_t steps_a_round = shared_.ordered_pages() / batch_pages;
  if (shared_.filter != nullptr && !hard_pressed_) {
    const bool ripens = ripening_ != ripening_before_;  // but all of it was used meanwhile
    const std::size_t most = 16 + steps_a_round * (ripens ? 4 : 1);
    if (fruitless_steps_ <= most || shared_.time.now_ns() - fruitless_since_ns_ < shortest_long_scope_ns) return;
    hard_pressed_ = true;
    ripening_before_ = ripening_;
  }
  const bool has_asked_all = fruitless_steps_ > 64 + steps_a_round * (shared_.filter != nullptr ? 7 : 3);
  if (!has_asked_all || shared_.time.now_ns() - fruitless_since_ns_ < shortest_drought_ns) return;
  // Eviction that has stalled for another reason keeps it.
  if (!shared_.stalled()) shared_.stall(stall_reason::nothing_evictable);
  fruitless_steps_ = 0;
}

bool evictor::finish_batches(caller who) {
  bool progress = poll_writes(who);
  for (batch& outgoing : batches_) {
    if (outgoing.count > 0 && !outgoing.left && outgoing.outstanding_requests == 0) progress |= retire(outgoing);
  }
  return progress;
}

// Pages are sorted by address, because runs of neighbours cost one call each. Clean ones are dropped at once, and
// suspects that are found clean. Of the dirty ones, those that nobody can write to meanwhile come first, and are lifted
// together.
bool evictor::evict(std::span<page_id> victims, caller who, bool hard_pressed) {
  batch* const into = free_batch();
  if (into == nullptr) return false;
  kept_ = 0;
  forced_ = 0;
  awaits_slots_ = false;
  std::array<leaving_page, batch_pages> claimed;
  std::size_t claimed_count = 0;
  for (const page_id page : victims) {
    if (!close_if_open(page) && claim(page)) claimed[claimed_count++] = {page, false};
  }
  if (claimed_count > 0) shared_.pages.note_departures();
  claimed_count = ask_filter({claimed.data(), claimed_count}, hard_pressed);
  std::sort(claimed.begin(), claimed.begin() + static_cast<std::ptrdiff_t>(claimed_count));
  // Clean ones; dirty ones that nobody uses; the other dirty ones.
  std::array<std::array<page_id, batch_pages>, 3> sorted;
  std::array<std::size_t, 3> count{};
  for (const leaving_page& leaving : std::span(claimed).first(claimed_count)) {
    const std::size_t kind = is_clean(leaving) ? 0 : leaving.unused ? 1 : 2;
    sorted[kind][count[kind]++] = leaving.page;
  }
  drop_clean({sorted[0].data(), count[0]});
  std::copy_n(sorted[2].begin(), count[2], sorted[1].begin() + static_cast<std::ptrdiff_t>(count[1]));
  if (lift_dirty({sorted[1].data(), count[1] + count[2]}, count[1], *into)) submit_or_leave(*into, who);
  return true;
}

// A block that the kernel fills becomes guarded when the policy reaches it. Its pages are the next victims.
bool evictor::close_if_open(page_id page) {
  const block_id id = block_of(page);
  block& closing = shared_.blocks.at(id);
  const lock_guard guard(closing.lock);
  if (closing.kind != block_kind::open) return false;
  if (!close_block(shared_, id)) {
    shared_.admit(page, temperature::hot);
    ++kept_;
  }
  return true;
}

bool evictor::claim(page_id page) {
  page_word word = shared_.pages.load(page);
  while (word.where() == state::resident) {
    if (word.pins() > 0) {
      shared_.admit(page, temperature::hot);
      ++kept_;
      return false;
    }
    if (shared_.pages.transition(page, word, word.with_state(state::evicting).with_lifted(false))) return true;
  }
  return false;
}

// Invariant I4. Pages that scopes use go back; the path selector of the others is set. Returns how many are left, at
// the front.
std::size_t evictor::ask_filter(std::span<leaving_page> claimed, bool hard_pressed) {
  if (shared_.filter == nullptr || claimed.empty()) return claimed.size();
  std::array<page_id, batch_pages> pages{};
  for (std::size_t i = 0; i < claimed.size(); ++i) pages[i] = claimed[i].page;
  const eviction_verdict verdict = shared_.filter->decide(candidates({pages.data(), claimed.size()}), hard_pressed);
  forced_ = static_cast<std::size_t>(std::popcount(verdict.forced));
  std::size_t left = 0;
  for (std::size_t i = 0; i < claimed.size(); ++i) {
    if ((verdict.stay >> i & 1) != 0) {
      give_back(pages[i]);
      continue;
    }
    const bool object_path = (verdict.object_path >> i & 1) != 0;
    if (shared_.pages.load(pages[i]).object_path() != object_path) {
      shared_.pages.update(pages[i], [object_path](page_word word) { return word.with_object_path(object_path); });
    }
    claimed[left++] = {pages[i], (verdict.unused >> i & 1) != 0};
  }
  return left;
}

void evictor::give_back(page_id page) {
  shared_.pages.update(page, [](page_word word) { return word.with_state(state::resident).with_accessed(true); });
  shared_.admit(page, temperature::hot);
  ++kept_;
}

// A suspect that nobody can write to meanwhile is looked at in place.
bool evictor::is_clean(const leaving_page& one) {
  const page_word word = shared_.pages.load(one.page);
  if (!word.dirty()) return true;
  if (!one.unused || !word.has_place()) return false;
  return shared_.checks.is_unchanged(one.page, shared_.space.unused_bytes(one.page));
}

void evictor::drop_clean(std::span<page_id> clean) {
  std::array<page_range, batch_pages> ranges;
  const std::size_t count = put_runs(clean, ranges);
  std::size_t dropped_pages = 0;
  std::size_t done = 0;
  while (done < count) {
    const std::size_t dropped = shared_.space.drop({ranges.data() + done, count - done});
    for (std::size_t i = done; i < done + dropped; ++i) {
      for (page_id page = ranges[i].first; page < ranges[i].end(); ++page) finish_clean(page);
      dropped_pages += ranges[i].count;
    }
    done += dropped;
    if (done == count) break;
    dropped_pages += drop_one_by_one(ranges[done]);
    ++done;
  }
  shared_.local.release(dropped_pages);
  shared_.count.evicted_pages.add(dropped_pages);
  shared_.count.clean_evictions.add(dropped_pages);
}

// The kernel refused a range because a page in it is locked. The pages before that one may be gone already, even if
// they have been locked since. So each page is dropped alone, and pages that are gone count as dropped.
std::size_t evictor::drop_one_by_one(page_range refused) {
  std::size_t dropped = 0;
  for (page_id page = refused.first; page < refused.end(); ++page) {
    if (drop_page(shared_, page)) {
      finish_clean(page);
      ++dropped;
    } else {
      give_back(page);
    }
  }
  return dropped;
}

// A clean page without a slot was read before it was ever written: all zeros, as if never touched.
void evictor::finish_clean(page_id page) {
  const unsigned epoch = shared_.evictions.epoch();
  const page_word before = shared_.pages.load(page);
  if (before.writes_expected()) shared_.writes.note(false);
  if (before.has_place()) shared_.later_writes.note(false);
  shared_.pages.update(page, [epoch](page_word word) {
    return word.with_state(word.has_place() ? state::remote : state::untouched)
        .with_dirty(false)
        .with_accessed(false)
        .with_writes_expected(false)
        .with_epoch(epoch);
  });
}

// The first `unused` of them can be written by nobody. Returns whether there is something to write.
bool evictor::lift_dirty(std::span<const page_id> dirty, std::size_t unused, batch& into) {
  const std::size_t slots = dirty.empty() || !shared_.may_write() ? 0 : allocate_slots(dirty, into);
  for (const page_id page : dirty.subspan(slots)) give_back(page);
  if (slots == 0) return false;
  dirty = dirty.first(slots);
  for (std::size_t i = lift_unused(dirty.first(std::min(unused, slots)), into); i < slots;) {
    const std::size_t length = run_length(dirty.subspan(i));
    lift_run({dirty[i], length}, i, into);
    i += length;
  }
  if (frames_of(into, slots) == 0) return false;  // every page was refused: the batch stays free
  into.count = slots;
  batches_in_use_.fetch_add(1, std::memory_order_relaxed);
  shared_.batches_under_way.fetch_add(1, std::memory_order_relaxed);
  return true;
}

// Returns how many it lifted; the next one is refused for now.
std::size_t evictor::lift_unused(std::span<const page_id> pages, batch& into) {
  if (pages.empty()) return 0;
  std::array<page_range, batch_pages> ranges;
  const std::size_t count = put_runs(pages, ranges);
  into.copied = pages.size();  // says where they go
  into.copied = shared_.space.lift_unused({ranges.data(), count}, staging_of(into, 0));
  for (std::size_t i = 0; i < into.copied; ++i) note_lifted(pages[i], i, into);
  return into.copied;
}

// Adjacent slots make adjacent transfers. When the far tier is nearly full, shorter runs must do.
std::size_t evictor::allocate_slots(std::span<const page_id> pages, batch& into) {
  const std::size_t count = pages.size();
  std::size_t done = 0;
  std::size_t longest = count;
  bool no_tier = false;
  bool will_be_more = false;
  while (done < count && longest > 0) {
    const std::size_t run = std::min(longest, shared_.affinities.run_of(pages.subspan(done)));
    const result<backend::slot_id> first = shared_.far.allocate_near(shared_.affinities.of(pages[done]), run);
    if (!first) {
      will_be_more = first.error().code == EAGAIN;
      no_tier = first.error().code == ENODEV;
      longest = run / 2;
      continue;
    }
    for (std::size_t i = 0; i < run; ++i) into.entries[done + i].slot = first.value() + i;
    done += run;
  }
  awaits_slots_ = done < count && will_be_more;
  if (done < count && !awaits_slots_) shared_.stall(no_tier ? stall_reason::no_tier : stall_reason::no_space);
  if (done > 0) shared_.note_far_peak();
  return done;
}

// Lifts a run as far as the kernel allows. A page it refuses (locked, or a device may be writing to it) stays.
void evictor::lift_run(page_range run, std::size_t position, batch& into) {
  for (std::size_t done = 0; done < run.count;) {
    const std::size_t lifted =
        shared_.space.lift({run.first + done, run.count - done}, staging_of(into, position + done));
    for (std::size_t i = done; i < done + lifted; ++i) note_lifted(run.first + i, position + i, into);
    done += lifted;
    if (done == run.count) return;
    entry& refused = into.entries[position + done];
    refused.now = entry::phase::empty;
    shared_.free_slot(refused.slot);
    if (!shared_.forget_if_dropped(run.first + done)) give_back(run.first + done);
    ++done;
  }
}

// The bytes are in staging. A suspect page turns out clean, and keeps its slot, or dirty, and gives it up.
void evictor::note_lifted(page_id page, std::size_t position, batch& into) {
  entry& lifted = into.entries[position];
  const std::size_t staged = staging_page_of(into, position);
  const page_word before = shared_.pages.load(page);
  lifted.page = page;
  lifted.now = entry::phase::writing;
  const bool unchanged = before.has_place() && shared_.checks.is_unchanged(page, staging_of(into, position));
  if (!unchanged) shared_.checks.note(page, staging_of(into, position));
  if (before.has_place()) {
    shared_.free_slot(unchanged ? lifted.slot : before.place());
    if (unchanged) lifted.slot = before.place();
    if (unchanged) lifted.now = entry::phase::written;
    shared_.count.clean_evictions.add(unchanged ? 1 : 0);
  }
  // The last visit predicts the next: a suspect that turns out clean costs a lift too many, a page taken for clean that
  // is written costs a fault too many, and the two are about as dear.
  const bool written = lifted.now == entry::phase::writing;
  if (before.writes_expected()) shared_.writes.note(written);
  if (before.has_place()) shared_.later_writes.note(written);
  shared_.rescued[staged].store(0, std::memory_order_relaxed);
  shared_.pages.update(
      page, [=](page_word word) { return word.with_lifted(true).with_place(staged).with_writes_expected(written); });
}

void evictor::submit_or_leave(batch& outgoing, caller who) {
  if (who == caller::of_runtime || !transfers_->needs_its_submitter()) return submit(outgoing);
  outgoing.left = true;
  left_batches_.fetch_add(1, std::memory_order_relaxed);
}

bool evictor::submit_left() {
  if (left_batches_.load(std::memory_order_relaxed) == 0) return false;
  for (batch& outgoing : batches_) {
    if (!outgoing.left) continue;
    outgoing.left = false;
    submit(outgoing);
  }
  left_batches_.store(0, std::memory_order_relaxed);
  return true;
}

void evictor::submit(batch& outgoing) {
  std::array<backend::request, batch_pages> requests;
  request_runs runs(requests, static_cast<std::size_t>(&outgoing - batches_.data()));
  for (std::size_t i = 0; i < outgoing.count; ++i) {
    if (outgoing.entries[i].now != entry::phase::writing) continue;
    runs.add(i, {.op = backend::operation::write, .slot = outgoing.entries[i].slot, .buffer = staging_of(outgoing, i)});
  }
  outgoing.outstanding_requests = runs.all().size();
  if (runs.all().empty()) return;
  const std::size_t taken = transfers_->submit(runs.all());
  FAR_CHECK(taken == runs.all().size(), "the channel holds the requests of all batches");
}

// A failed write stalls eviction, and its pages go back to the program when the batch settles. Any write that succeeds
// ends a stall.
bool evictor::poll_writes(caller who) {
  std::array<backend::completion, batch_pages> done;
  const std::size_t count = transfers_->poll(done);
  if (who == caller::of_runtime) transfers_->submit_left();
  has_left_parts_.store(transfers_->has_left(), std::memory_order_relaxed);
  for (std::size_t i = 0; i < count; ++i) {
    const run_cookie cookie = run_cookie::unpack(done[i].cookie);
    batch& written = batches_[cookie.group];
    const bool failed = done[i].error_code != 0;
    if (failed) {
      shared_.count.backend_errors.add();
      shared_.stall(done[i].error_code == ENOSPC ? stall_reason::no_space : stall_reason::write_failed);
    } else {
      shared_.count.written_pages.add(cookie.count);
      shared_.clear_stall();
    }
    for (std::size_t page = cookie.first; page < cookie.first + cookie.count; ++page) {
      written.entries[page].now = failed ? entry::phase::failed : entry::phase::written;
    }
    --written.outstanding_requests;
  }
  return count > 0;
}

// Settles the pages of a batch. The batch is free again when all of them are settled.
bool evictor::retire(batch& outgoing) {
  std::size_t unsettled = 0;
  for (std::size_t i = 0; i < outgoing.count; ++i) {
    if (outgoing.entries[i].now != entry::phase::empty && !settle(outgoing, i)) ++unsettled;
  }
  if (unsettled > 0) return false;
  if (outgoing.copied < outgoing.count) {
    shared_.space.empty_staging(staging_of(outgoing, outgoing.copied), outgoing.count - outgoing.copied);
  }
  shared_.local.release(frames_of(outgoing, outgoing.count));
  outgoing.count = 0;
  outgoing.copied = 0;
  outgoing.entries = {};
  batches_in_use_.fetch_sub(1, std::memory_order_relaxed);
  shared_.batches_under_way.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

// A written page becomes Remote, unless a thread has rescued it meanwhile: then its fresh slot is free again, and its
// place in staging waits until the rescuer has emptied it. Returns whether the entry is done.
bool evictor::settle(batch& outgoing, std::size_t position) {
  entry& settling = outgoing.entries[position];
  const std::size_t staged = staging_page_of(outgoing, position);
  if (settling.now == entry::phase::failed) {
    shared_.free_slot(settling.slot);
    restore(settling.page, staged);
    settling.now = entry::phase::rescued;
  }
  if (settling.now == entry::phase::written) {
    page_word word = shared_.pages.load(settling.page);
    const unsigned epoch = shared_.evictions.epoch();
    bool ours = true;
    while (ours) {
      ours = word.where() == state::evicting && word.lifted() && word.place() == staged;
      if (!ours) break;
      const page_word remote = word.with_lifted(false).with_dirty(false).with_place(settling.slot);
      if (shared_.pages.transition(settling.page, word,
                                   remote.with_state(state::remote).with_accessed(false).with_epoch(epoch))) {
        break;
      }
    }
    if (ours) {
      shared_.count.evicted_pages.add(1);
      settling.now = entry::phase::done;
      return true;
    }
    shared_.free_slot(settling.slot);
    settling.now = entry::phase::rescued;
  }
  if (settling.now == entry::phase::rescued) {
    return shared_.rescued[staged].load(std::memory_order_acquire) != 0;
  }
  return true;
}

// The far tier did not take the bytes: they go back where they came from.
void evictor::restore(page_id page, std::size_t staging_page) {
  page_word word = shared_.pages.load(page);
  while (word.where() == state::evicting && word.lifted() && word.place() == staging_page) {
    if (!shared_.pages.transition(page, word, word.with_state(state::fetching))) continue;
    // Staging still has a frame of its own until the batch is retired.
    shared_.local.charge(1);
    shared_.allow_excess();
    bring_back(shared_, page, staging_page);
    return;
  }
}

void evictor::put_back_in_child() {
  lock.assert_held();
  for (batch& outgoing : batches_) {
    for (std::size_t i = 0; i < outgoing.count; ++i) {
      const entry::phase phase = outgoing.entries[i].now;
      if (phase == entry::phase::empty || phase == entry::phase::rescued || phase == entry::phase::done) continue;
      restore(outgoing.entries[i].page, staging_page_of(outgoing, i));
    }
    outgoing.count = 0;
    outgoing.copied = 0;
    outgoing.entries = {};
    outgoing.left = false;
  }
  shared_.batches_under_way.fetch_sub(batches_in_use_.exchange(0));
  left_batches_.store(0);
  has_left_parts_.store(false);
  fruitless_steps_ = 0;
  hard_pressed_ = false;
  awaits_slots_ = false;
}

result<void> evictor::restart_in_child() {
  lock.assert_held();
  // The old channel belongs to the parent: closing it properly would wait for completions that never come here.
  static_cast<void>(transfers_.release());
  lock.open_in_child();
  result<std::unique_ptr<backend::channel>> opened = shared_.far.open_channel(staging_pages);
  if (!opened) return opened.error();
  transfers_ = std::move(opened).value();
  return {};
}

std::size_t evictor::frames_of(const batch& outgoing, std::size_t count) {
  std::size_t frames = 0;
  for (std::size_t i = 0; i < count; ++i) frames += outgoing.entries[i].now != entry::phase::empty;
  return frames;
}

evictor::holdings evictor::held() const {
  lock.assert_held();
  holdings sum;
  for (const batch& outgoing : batches_) {
    sum.staged_frames += frames_of(outgoing, outgoing.count);
    for (std::size_t i = 0; i < outgoing.count; ++i) {
      const entry::phase phase = outgoing.entries[i].now;
      sum.unreferenced_slots +=
          phase == entry::phase::writing || phase == entry::phase::written || phase == entry::phase::failed;
    }
  }
  return sum;
}

}  // namespace far::engine
