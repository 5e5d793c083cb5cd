#include "server/spiller.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "platform/clock.h"
#include "server/event_log.h"
#include "server/store.h"

namespace far::server {
namespace {

using namespace std::chrono_literals;

// How many blocks the hand looks at before it lets others have the lock.
constexpr std::uint64_t most_looks = 4096;

// How long the disk is left alone after an error.
constexpr auto pause_after_error = 250ms;
// How long the thread waits when nothing could leave memory, because all of it is in use or on its way.
constexpr auto pause_when_stuck = 1ms;

}  // namespace

spiller::spiller(store& owner, std::shared_ptr<spill_area> area, std::uint64_t memory_blocks)
    : store_(owner), lock_(owner.lock_), area_(std::move(area)), memory_blocks_(memory_blocks) {
  thread_ = std::thread([this] { run(); });
}

spiller::~spiller() {
  {
    const lock_guard guard(lock_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void spiller::set_memory(std::uint64_t memory_blocks) {
  lock_.assert_held();
  memory_blocks_ = memory_blocks;
  changed_.notify_all();
}

bool spiller::has_free_frame() const {
  store_.lock_.assert_held();  // the same one
  const std::uint64_t table_blocks =
      (store_.held_.table_pages + store_.promised_pages_ + wire::block_slots - 1) / wire::block_slots;
  return resident_ + table_blocks < memory_blocks_;
}

// Some frames are kept free, so that a block that is asked for need not wait until another has left.
bool spiller::is_short() const {
  store_.lock_.assert_held();  // the same one
  const std::uint64_t table_blocks =
      (store_.held_.table_pages + store_.promised_pages_ + wire::block_slots - 1) / wire::block_slots;
  const std::uint64_t reserve = std::min<std::uint64_t>(memory_blocks_ / 8, 2 * batch_blocks);
  return resident_ > 0 && resident_ + table_blocks + reserve > memory_blocks_ && area_->free_places() > 0;
}

bool spiller::charge_frame() {
  lock_.assert_held();
  if (is_short()) changed_.notify_all();
  if (!has_free_frame()) return false;
  ++resident_;
  return true;
}

void spiller::release_frame() {
  lock_.assert_held();
  FAR_CHECK(resident_ > 0, "more frames come back than were used");
  --resident_;
}

void spiller::release_place(std::uint64_t place) {
  lock_.assert_held();
  area_->release(place);
}

void spiller::ask_for(std::shared_ptr<session> whose, std::uint64_t number) {
  lock_.assert_held();
  asked_.push_back({std::move(whose), number});
  changed_.notify_all();
}

bool spiller::may_overflow() const {
  lock_.assert_held();
  return !is_failing_;
}

spill_report spiller::report() const {
  lock_.assert_held();
  return {.size_bytes = area_->places() * block_bytes,
          .resident_blocks = resident_,
          .places_used = area_->places() - area_->free_places(),
          .disk_bytes = area_->disk_bytes(),
          .writes = writes_.load(),
          .reads = reads_.load(),
          .errors = errors_.load(),
          .is_failing = is_failing_};
}

void spiller::validate(std::uint64_t resident_blocks, std::uint64_t places_used) const {
  lock_.assert_held();
  FAR_CHECK(resident_ == resident_blocks, "the blocks in memory are miscounted");
  FAR_CHECK(area_->places() - area_->free_places() == places_used, "the places on disk are miscounted");
}

// Whoever waits for a block comes first. When nothing can be done, the thread looks again after a while.
void spiller::run() {
  bool is_stuck = false;
  for (;;) {
    bool has_asked = false;
    bool has_frame = false;
    {
      const lock_guard guard(lock_);
      const auto has_work = [&] {
        lock_.assert_held();
        return is_ending_ || (!is_stuck && (!asked_.empty() || is_short()));
      };
      const auto pause = is_failing_ ? pause_after_error : is_stuck ? pause_when_stuck : 1000ms;
      changed_.wait_for(lock_, pause, has_work);
      if (is_ending_) return;
      has_frame = has_free_frame() || area_->free_places() == 0;
      if (!has_frame) forget_unwanted();
      has_asked = !asked_.empty();
      if (!has_asked && !is_short()) {
        is_stuck = false;
        continue;
      }
    }
    if (has_asked && has_frame) {
      serve_first();
      is_stuck = false;
    } else {
      is_stuck = !evict_some();
    }
  }
}

// Blocks that were freed, or whose session has ended. They get no frame while the disk takes nothing, and the store
// takes nothing back past a block that moves: together that would be for ever.
void spiller::forget_unwanted() {
  store_.lock_.assert_held();  // the same one
  std::erase_if(asked_, [](const job& asked) {
    asked.whose->lock_.assert_held();  // the same one
    std::atomic<std::uintptr_t>& entry = asked.whose->blocks_[asked.number];
    const std::uintptr_t value = entry.load();
    if ((value & session::being_freed) == 0 && !asked.whose->ended_) return false;
    entry.store(value & ~session::moving);
    return true;
  });
}

std::vector<spiller::job> spiller::choose() {
  store_.lock_.assert_held();  // the same one
  std::vector<job> chosen;
  std::uint64_t looks = 0;
  // Twice around: the first time may only take away marks.
  for (std::size_t rounds = 0; rounds < 3 && chosen.size() < batch_blocks && looks < most_looks;) {
    auto at = store_.sessions_.lower_bound(hand_session_);
    if (at == store_.sessions_.end()) {
      ++rounds;
      hand_session_ = {};
      hand_number_ = 0;
      continue;
    }
    if (at->first != hand_session_) hand_number_ = 0;
    hand_session_ = at->first;
    session& whose = *at->second;
    whose.lock_.assert_held();  // the same one
    while (whose.spills_ && hand_number_ < whose.highest_ && chosen.size() < batch_blocks && looks++ < most_looks) {
      look_at(whose, &chosen);
    }
    if (whose.spills_ && hand_number_ < whose.highest_) continue;
    ++at;
    hand_number_ = 0;
    if (at != store_.sessions_.end()) {
      hand_session_ = at->first;
    } else {
      ++rounds;
      hand_session_ = {};
    }
  }
  return chosen;
}

void spiller::look_at(session& whose, std::vector<job>* chosen) {
  whose.lock_.assert_held();  // the same one
  const std::uint64_t number = hand_number_;
  const std::uint64_t page = number / session::entries_a_page;
  if (whose.entries_of_page_[page] == 0) {
    hand_number_ = (page + 1) * session::entries_a_page;
    return;
  }
  ++hand_number_;
  std::atomic<std::uintptr_t>& entry = whose.blocks_[number];
  const std::uintptr_t value = entry.load();
  if (value == 0 || (value & session::unavailable) != 0) return;
  if ((value & session::touched) != 0) {
    entry.store(value & ~session::touched);
    return;
  }
  const std::optional<std::uint64_t> place = area_->take();
  if (!place) return;
  // A loop that marks it at this moment loses its mark, and is waited for.
  entry.store(value | session::moving);
  chosen->push_back({whose.shared_from_this(), number, *place, session::address_in(value)});
}

bool spiller::evict_some() {
  std::vector<job> leaving;
  {
    const lock_guard guard(lock_);
    leaving = choose();
  }
  if (leaving.empty()) return false;
  const quiescent_states::ticket unused_after = store_.readers_.draw();
  while (!store_.readers_.passed(unused_after)) std::this_thread::sleep_for(20us);
  bool has_left = false;
  for (const job& block : leaving) has_left |= write_out(block);
  return has_left;
}

bool spiller::write_out(const job& leaving) {
  const result<void> written = area_->write(leaving.place, {leaving.block, block_bytes});
  if (!written) note_write_failure(written.error());
  bool has_left = false;
  bool works_again = false;
  {
    const lock_guard guard(lock_);
    leaving.whose->lock_.assert_held();  // the same one
    std::atomic<std::uintptr_t>& entry = leaving.whose->blocks_[leaving.number];
    const std::uintptr_t value = entry.load();
    // A block that was freed meanwhile is given back where it is.
    has_left = written.ok() && (value & session::being_freed) == 0 && !leaving.whose->ended_;
    if (has_left) {
      entry.store(session::entry_on_disk(leaving.place));
    } else {
      entry.store(value & ~session::moving);
      area_->release(leaving.place);
    }
    works_again = written && std::exchange(is_failing_, false);
  }
  if (works_again) log_event("the spill file takes blocks again");
  if (!has_left) return false;
  writes_.fetch_add(1, std::memory_order_relaxed);
  leaving.whose->source_->give_back(leaving.number, leaving.block);
  const lock_guard guard(lock_);
  release_frame();
  return true;
}

result<void> spiller::fill(const job& coming) {
  // Its memory is zeros already.
  if (coming.place == spill_area::nowhere) return {};
  return area_->read(coming.place, {coming.block, block_bytes});
}

void spiller::serve_first() {
  job coming;
  {
    const lock_guard guard(lock_);
    // An allocation may have used the frame since then.
    if (!has_free_frame() && area_->free_places() > 0) return;
    coming = std::move(asked_.front());
    asked_.pop_front();
    ++resident_;
    coming.place = session::place_in(coming.whose->blocks_[coming.number].load());
  }
  coming.block = coming.whose->source_->take(coming.number);
  const bool has_frame = coming.block != nullptr;
  const result<void> filled = has_frame ? fill(coming) : result<void>();
  if (!filled) note_read_failure(filled.error());
  bool is_there = false;
  {
    const lock_guard guard(lock_);
    coming.whose->lock_.assert_held();  // the same one
    std::atomic<std::uintptr_t>& entry = coming.whose->blocks_[coming.number];
    const std::uintptr_t value = entry.load();
    const bool is_wanted = (value & session::being_freed) == 0 && !coming.whose->ended_;
    is_there = has_frame && filled.ok() && is_wanted;
    if (is_there) {
      entry.store(reinterpret_cast<std::uintptr_t>(coming.block) | session::touched);
      area_->release(coming.place);
    } else {
      // Without a frame whoever waits asks again.
      entry.store((value & ~session::moving) | (filled ? 0 : session::unreadable));
    }
  }
  if (is_there) return static_cast<void>(reads_.fetch_add(1, std::memory_order_relaxed));
  if (has_frame) coming.whose->source_->give_back(coming.number, coming.block);
  {
    const lock_guard guard(lock_);
    release_frame();
  }
  // The machine has no memory to spare.
  if (!has_frame && !evict_some()) std::this_thread::sleep_for(pause_when_stuck);
}

void spiller::note_read_failure(const error& why) {
  errors_.fetch_add(1, std::memory_order_relaxed);
  log_limited(why.message + "; clients that ask for the block get an error, and use another copy if they have one",
              platform::monotonic_clock().now_ns());
}

void spiller::note_write_failure(const error& why) {
  errors_.fetch_add(1, std::memory_order_relaxed);
  {
    const lock_guard guard(lock_);
    if (std::exchange(is_failing_, true)) return;
  }
  log_event(why.message +
                "; blocks stay in memory, and nothing is lent beyond it, until the disk works again: free some space, "
                "or replace the disk",
            log_level::warning);
}

}  // namespace far::server
