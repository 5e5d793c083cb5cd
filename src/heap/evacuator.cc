#include "heap/evacuator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>

#include "base/sanitizers.h"
#include "heap/grace_periods.h"
#include "heap/heap.h"
#include "heap/scope_records.h"
#include "platform/program_thread.h"

namespace far::heap {

namespace word = detail::word;

namespace {

// How long the thread waits between its looks for garbage: longer and longer while there is none.
constexpr std::chrono::milliseconds shortest_pause{20};
constexpr std::chrono::milliseconds longest_pause{160};

// The longest wait for the scopes that were open when a segment's objects were marked; after that it is tried again in
// a later round.
constexpr std::chrono::milliseconds longest_wait{2};

// Pages that are held stay resident, whatever the budget: those of a segment, and those of its objects' owners, which
// may be as many as the objects. No page is marked after so many are held; one adds at most 255.
constexpr std::size_t enough_held_pages = 256;
constexpr std::size_t most_held_pages = segment_pages + 2 * enough_held_pages;

}  // namespace

evacuator::evacuator(detail::object_heap& heap, double garbage_share)
    : heap_(heap), garbage_share_(garbage_share), places_(heap.segments) {
  // A round in the middle of its work cannot give up for want of memory: what it mostly needs is made here.
  marked_.reserve(segment_pages * units_a_page);
  for (std::uint64_t page = 0; page < most_held_pages; ++page) work_->hold(page);
  work_->cut_back(0);
  if (garbage_share <= 1) start_thread();
}

// The thread does not take its record itself: who needs that to have happened would wait for it, and who opens a
// library with a static runtime holds a lock of the C library that a thread needs for its first record.
void evacuator::start_thread() {
  thread_ = platform::start_program_thread("far-evacuator", [this, record = std::make_shared<borrowed_record>()] {
    const adopted_record mine(*record);
    loop();
  });
}

evacuator::~evacuator() {
  {
    const lock_guard guard(waiting_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void evacuator::loop() {
  const lock_guard guard(waiting_);
  std::chrono::milliseconds pause = shortest_pause;
  while (!changed_.wait_for(waiting_, pause, [this] {
    waiting_.assert_held();
    return stopping_;
  })) {
    waiting_.unlock();
    pause = run_round(garbage_share_) > 0 ? shortest_pause : std::min(pause * 2, longest_pause);
    waiting_.lock();
  }
}

std::size_t evacuator::run_round(double garbage_share) {
  const lock_guard one_at_a_time(round_);
  const std::uint64_t freed_before = heap_.segments.freed();
  for (std::size_t index = 0; index < heap_.segments.count(); ++index) {
    segment& one = heap_.segments.at(index);
    if (!is_worth(one, garbage_share) || !heap_.segments.keep(one)) continue;
    const progress reached = evacuate(*work_, heap_.pages.page_of(heap_.segments.address_of(index)));
    if (reached == progress::done) {
      one.live_units_left.store(one.live_units.load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
    heap_.segments.let_go(heap_.segments.address_of(index));
    if (reached == progress::no_places) break;
  }
  const std::uint64_t freed = heap_.segments.freed() - freed_before;
  counters::add(heap_.count.evacuated_segments, freed);
  return freed;
}

bool evacuator::is_worth(const segment& one, double garbage_share) const {
  if (one.state.load(std::memory_order_acquire) != segment_state::closed) return false;
  const std::uint32_t live = one.live_units.load(std::memory_order_relaxed);
  // Objects that had to stay would stay again, until something changes.
  if (live == one.live_units_left.load(std::memory_order_relaxed) && garbage_share > 0) return false;
  // The free rest of a segment that was closed early counts as garbage, too.
  return 1 - live / static_cast<double>(segment_pages * units_a_page) >= garbage_share;
}

evacuator::progress evacuator::evacuate(hazard_log& mine, std::size_t first_page) {
  std::array<std::uint64_t, segment_pages> pages;
  std::size_t count = 0;
  bool has_room = true;
  bool has_all = true;
  const std::size_t held_before = mine.held();
  const holding until_moved(mine);
  for (std::size_t page = first_page; page < first_page + segment_pages; ++page) {
    if (heap_.pages.objects_in(page) == 0) continue;
    const std::uintptr_t address = heap_.pages.address_of(page);
    mine.hold(address >> page_shift);
    if (heap_.memory.is_resident(address)) pages[count++] = address >> page_shift;
  }
  if (count > 0) {
    // A thread that changes a count, a live bit or an owner from here on sees the page resident, and takes the header's
    // lock.
    fence_all_threads();
    marked_.clear();
    for (std::size_t i = 0; i < count && has_all; ++i) {
      const std::size_t page = heap_.pages.page_of(pages[i] << page_shift);
      if (heap_.pages.stale_in(page) == 0) mark(mine, page);
      has_all = i + 1 == count || mine.held() - held_before < enough_held_pages;
    }
    // A fiber or thread that reaches an object from here on finds the mark, and calls the move off; others have scopes
    // that were open before, or hold its page for work of their own.
    const grace_number marked_before = scopes_without_log.stamp([](grace_number) { return true; });
    has_room = marked_.empty() || scopes_without_log.wait_until_over(marked_before, longest_wait);
    const held_pages in_logs = find_held({pages.data(), count}, &mine);
    const std::uint64_t held = in_logs.by_work | in_logs.by_scopes;
    for (const candidate& marked : marked_) {
      const auto at =
          std::lower_bound(pages.begin(), pages.begin() + count, marked.object >> page_shift) - pages.begin();
      const bool moves = (held >> at & 1) == 0 && has_room;
      if (moves) has_room = move(mine, marked);
      if (!moves || !has_room) call_off(mine, marked);
    }
  }
  if (!has_room) return progress::no_places;
  return has_all ? progress::done : progress::in_part;
}

// Announces the move of every object in the page that can be moved. It writes to headers; if the page is still
// protected then, because its bytes changed hands meanwhile, the hardware guard lets it.
void evacuator::mark(hazard_log& mine, std::size_t page) {
  const std::uintptr_t address = heap_.pages.address_of(page);
  if (heap_.memory.is_resident(address) && !heap_.memory.is_writable(address)) {
    static_cast<void>(heap_.memory.try_fetch(address, 1, true));
  }
  const lock_guard one_in_the_process(all_moves);
  heap_.pages.for_each_live(page, [&](std::size_t unit) {
    round_.assert_held();
    all_moves.assert_held();
    const std::uintptr_t object = address + unit * unit_bytes;
    const std::uint64_t locked = header::at(object).lock();
    owner_word* const owner = heap_.pages.is_live(object) ? owner_at_hand(mine, locked) : nullptr;
    if (owner != nullptr) {
      std::uint64_t value = owner->load(std::memory_order_acquire);
      const bool settled =
          word::address(value) == object && (value & (word::fetching | word::stale | word::moving)) == 0;
      if (settled &&
          owner->compare_exchange_strong(value, value | word::moving | word::idle, std::memory_order_seq_cst)) {
        marked_.push_back({object, (value & word::idle) == 0 && heap_.pages.is_used(object)});
      }
    }
    header::at(object).unlock(locked);
  });
}

// The owner that a header names, if its word can be read and changed: it is local memory, or in a far object, perhaps
// of another runtime, that is resident, held from here on, and live. Otherwise nullptr: objects whose owner is remote
// stay. Requires: the header is locked, which keeps the owner where it is.
owner_word* evacuator::owner_at_hand(hazard_log& mine, std::uint64_t header_value) {
  owner_word* const named = header::owner(header_value);
  const auto at = reinterpret_cast<std::uintptr_t>(named);
  if (named == nullptr) return nullptr;
  const detail::object_heap* const in = heap_.heap_with(at);
  if (in == nullptr) return living.was_left(at) ? nullptr : named;
  mine.hold(at >> page_shift);
  if (!in->memory.is_resident(at)) return nullptr;
  if (!in->segments.holds_small_objects(at)) return named;  // a huge object does not move
  const std::uintptr_t whole = in->pages.live_object_before(at);
  return whole != 0 && at < whole + header::bytes(header::at(whole).load()) ? named : nullptr;
}

// A word that cannot be reached any more keeps its flag, until it is dereferenced.
void evacuator::call_off(hazard_log& mine, const candidate& one) {
  const lock_guard one_in_the_process(all_moves);
  const std::uint64_t locked = header::at(one.object).lock();
  if (owner_word* const owner = owner_at_hand(mine, locked); owner != nullptr) {
    std::uint64_t value = owner->load(std::memory_order_acquire);
    while ((value & word::moving) != 0 && word::address(value) == one.object &&
           !owner->compare_exchange_weak(value, value & ~word::moving, std::memory_order_seq_cst)) {
    }
  }
  header::at(one.object).unlock(locked);
}

// For the copy: resident, and held. Returns 0 when there are no addresses.
std::uintptr_t evacuator::take_place(hazard_log& mine, std::uint64_t header_value, const candidate& one) {
  const std::size_t bytes = header::bytes(header_value);
  const segment_kind where = one.hot ? segment_kind::hot : segment_kind::cold;
  while (true) {
    std::uintptr_t copy = 0;
    tag_key tag = 0;
    try {
      const detail::open_scope until_placed;  // a tag that is given back meanwhile does not give its number on
      tag = heap_.tag_for_copy(one.object);
      copy = places_.take(bytes, alignment_of(header::kind(header_value)), where, tag);
    } catch (const std::bad_alloc&) {
      return 0;
    }
    mine.hold(copy >> page_shift);
    bool is_there = true;
    while (is_there && !heap_.memory.is_resident(copy)) is_there = heap_.memory.try_fetch_place(copy, 1);
    if (is_there) return copy;
    places_.abandon(copy, where, tag);
    heap_.segments.remove_object(copy, units_for(bytes));
  }
}

// Returns false, and has done nothing, when there are no addresses for the copy.
bool evacuator::move(hazard_log& mine, const candidate& one) {
  const std::size_t held_before = mine.held();
  const std::uint64_t old_header = header::at(one.object).load();
  // The destruction of the last object of a page discards the page, though it is held: a header that was read while the
  // object lived is whole. An object that dies after this is found out below, under the lock.
  if (!heap_.pages.is_live(one.object)) return true;
  const std::size_t bytes = header::bytes(old_header);
  const std::uintptr_t copy = take_place(mine, old_header, one);
  if (copy == 0) return false;
  bool moved = false;
  {
    const lock_guard one_in_the_process(all_moves);
    moved = move_to(mine, one, copy, bytes);
  }
  heap_.segments.let_go_of(copy);
  heap_.segments.remove_object(moved ? one.object : copy, units_for(bytes));
  mine.cut_back(held_before);
  return true;
}

// Returns whether the object is at its copy now. From when it is copied until the pointers in the copy are followed,
// the words of these are in two places: another evacuator that moved their objects would change the old ones.
bool evacuator::move_to(hazard_log& mine, const candidate& one, std::uintptr_t copy, std::size_t bytes) {
  {
    // Who reaches the object meanwhile, and may write to it, has called the move off: then nobody reads the copy.
    const unseen_reads from_thread_sanitizer;
    std::memcpy(reinterpret_cast<std::byte*>(copy), reinterpret_cast<const std::byte*>(one.object), bytes);
  }
  if (heap_.pages.is_used(one.object)) heap_.pages.mark_used(copy, units_for(bytes));

  const std::uint64_t locked = header::at(one.object).lock();
  // Not always the owner at the time of marking: pointers move, also with the far objects that contain them.
  owner_word* const owner = owner_at_hand(mine, locked);
  header::at(copy).store(locked);  // the copy's header names its owner before the owner's word names the copy
  heap_.pages.set_live(copy);
  // As soon as the owner's word names it, the program can destroy it, with its page and its segment: that is closed
  // already if other fibers of this thread used many heaps meanwhile. The pointers in it are followed all the same.
  heap_.segments.keep_object(copy);
  bool moved = false;
  if (owner != nullptr) {
    std::uint64_t value = owner->load(std::memory_order_acquire);
    while (!moved && (value & word::moving) != 0 && word::address(value) == one.object) {
      const std::uint64_t there = word::with_address(value, copy) & ~word::moving;
      moved = owner->compare_exchange_weak(value, there, std::memory_order_seq_cst);
    }
  }
  if (moved) heap_.pages.clear_live(one.object);
  header::at(one.object).unlock(moved ? locked & ~header::owner_mask : locked);
  if (moved) {
    heap_.follow_children_of_moved(reinterpret_cast<std::byte*>(one.object), reinterpret_cast<std::byte*>(copy),
                                   locked);
    counters::add(heap_.count.evacuated_objects);
  } else {
    heap_.pages.clear_live(copy);
  }
  return moved;
}

}  // namespace far::heap
