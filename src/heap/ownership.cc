#include "heap/ownership.h"

#include "base/sanitizers.h"
#include "heap/heap.h"
#include "heap/living_runtimes.h"
#include "heap/scope_records.h"

namespace far::heap {

namespace word = detail::word;

namespace {

// While it exists, no place in the object's segment is another's, if it is_kept().
class kept_segment {
 public:
  kept_segment(segments& all, std::uintptr_t object)
      : all_(all), object_(object), is_kept_(all.keep(all.holding(object), segments::also_open)) {}
  ~kept_segment() {
    if (is_kept_) all_.let_go(object_);
  }
  kept_segment(const kept_segment&) = delete;
  kept_segment& operator=(const kept_segment&) = delete;

  [[nodiscard]] bool is_kept() const { return is_kept_; }

 private:
  segments& all_;
  std::uintptr_t object_;
  bool is_kept_;
};

}  // namespace

// A word that is part of a far object can be read and written under a header's lock from here on, without a miss.
void ownership::keep_at_hand(hazard_log& log, const owner_word& word_here) {
  const auto at = reinterpret_cast<std::uintptr_t>(&word_here);
  far_memory* holding = &memory_;
  if (!memory_.contains(at)) {
    detail::object_heap* const other = heap_at(at);
    if (other == nullptr) return;
    holding = &other->memory;
  }
  log.hold(at >> page_shift);
  while (!holding->is_resident(at)) holding->fetch_or_end(at);
}

// Holds the object's page, unless it is null, huge, or of another runtime. Afterwards the word, as returned, is not
// fetching, nor moving, unless a move is not to be called off; and the page is either resident, and stays so while it
// is held, or away. A resident page can mostly be written: the header's lock would otherwise meet the hardware guard,
// whose thread takes two context switches.
ownership::standing ownership::stand_still(hazard_log& log, owner_word& owner, bool calls_off) {
  bool asked_to_write = false;
  while (true) {
    const std::uint64_t value = owner.load(std::memory_order_acquire);
    const std::uintptr_t object = word::address(value);
    if (word::is_huge(value) || !memory_.contains(object)) return {value, false};
    if (calls_off && (value & word::moving) != 0) {
      static_cast<void>(settle(owner, value));
      continue;
    }
    if ((value & word::fetching) != 0) {
      waits_.wait_while_fetching(owner);  // a prefetch
      continue;
    }
    log.hold(word::page(value));
    // Only what it says now is held: until the page was, the object could move and its place be used again.
    if (owner.load(std::memory_order_acquire) != value) continue;
    if (memory_.is_resident(object)) {
      if (asked_to_write || memory_.is_writable(object)) return {value, true};
      asked_to_write = true;
      static_cast<void>(memory_.try_fetch(object, 1, true));  // lets other fibers run: look again
      continue;
    }
    if (memory_.is_away(object)) return {value, false};
    static_cast<void>(memory_.try_fetch(object, 1, false));  // on its way in, or out and perhaps back; if lost, away
  }
}

bool ownership::settle(owner_word& owner, std::uint64_t value) {
  if ((value & word::fetching) != 0) return false;
  if (owner.compare_exchange_strong(value, value & ~word::moving, std::memory_order_seq_cst)) {
    counters::add(count_.lost_races);
  }
  return true;
}

void ownership::move_owner(owner_word& from, owner_word& to) {
  const std::uint64_t before = from.load(std::memory_order_acquire);
  if (word::address(before) == 0 || word::is_huge(before)) {
    to.store(before, std::memory_order_relaxed);
    from.store(0, std::memory_order_relaxed);
    return;
  }
  hazard_log& mine = current_record().work;
  const holding until_done(mine);
  keep_at_hand(mine, from);
  keep_at_hand(mine, to);
  while (true) {
    const standing now = stand_still(mine, from, true);
    const std::uintptr_t object = word::address(now.value);
    if (now.is_here) {
      const std::uint64_t locked = header::at(object).lock();
      // Under the lock the evacuator neither begins nor ends a move; one that has begun since finds the word changed.
      const std::uint64_t value = from.load(std::memory_order_acquire);
      if ((value & word::stale) != 0) pages_.uncount_stale(object);
      to.store(value & ~(word::moving | word::stale), std::memory_order_seq_cst);
      from.store(0, std::memory_order_seq_cst);
      header::at(object).unlock((locked & ~header::owner_mask) | reinterpret_cast<std::uintptr_t>(&to));
      return;
    }
    std::uint64_t value = now.value;
    const bool counted = (value & word::stale) == 0;
    if (counted) pages_.count_stale(object);
    // It may have come meanwhile: then the header can be written after all.
    if (memory_.is_away(object) && from.compare_exchange_strong(value, 0, std::memory_order_seq_cst)) {
      to.store(value | word::stale, std::memory_order_seq_cst);
      return;
    }
    if (counted) pages_.uncount_stale(object);
  }
}

// The word has been copied to its present place, or its object's header must name it again. A move that is not called
// off continues with the new owner, because the evacuator reads the owner under the header's lock.
void ownership::follow(owner_word& word_here, bool calls_off) {
  hazard_log& mine = current_record().work;
  const holding until_done(mine);
  keep_at_hand(mine, word_here);
  while (true) {
    const standing now = stand_still(mine, word_here, calls_off);
    const std::uintptr_t object = word::address(now.value);
    // The program may have changed the pointer since it was copied.
    if (word::is_huge(now.value) || !memory_.contains(object)) return;
    if (now.is_here) {
      // The evacuator follows a pointer that the program may destroy meanwhile, with the last object of its segment:
      // what is locked must not be a word in the middle of somebody else's object.
      const kept_segment until_unlocked(segments_, object);
      if (!until_unlocked.is_kept() || word_here.load(std::memory_order_acquire) != now.value) continue;
      std::uint64_t locked = header::at(object).lock();
      // The owner of the pointer may have moved it on.
      const bool same = word::address(word_here.load(std::memory_order_acquire)) == object;
      if (same) {
        const std::uint64_t settled = word::stale | (calls_off ? word::moving : 0);
        const std::uint64_t was = word_here.fetch_and(~settled, std::memory_order_seq_cst);
        if ((was & word::stale) != 0) pages_.uncount_stale(object);
        locked = (locked & ~header::owner_mask) | reinterpret_cast<std::uintptr_t>(&word_here);
      }
      header::at(object).unlock(locked);
      if (same) return;
      continue;
    }
    if ((now.value & word::stale) != 0) return;
    pages_.count_stale(object);
    std::uint64_t expected = now.value;
    if (memory_.is_away(object) &&
        word_here.compare_exchange_strong(expected, now.value | word::stale, std::memory_order_seq_cst)) {
      return;
    }
    pages_.uncount_stale(object);
  }
}

void ownership::release(owner_word& owner, bool owns_others) {
  const std::uint64_t before = owner.load(std::memory_order_acquire);
  if (word::address(before) == 0) return;
  if (word::is_huge(before)) {
    const std::uintptr_t object = word::address(before);
    owner.store(0, std::memory_order_relaxed);
    if (owns_others && huge_.is_any_lost(object)) {
      counters::add(count_.abandoned_objects);
    } else {
      huge_.release(object);
    }
    return;
  }
  hazard_log& mine = current_record().work;
  const holding until_done(mine);
  keep_at_hand(mine, owner);
  while (true) {
    const standing now = stand_still(mine, owner, true);
    std::uint64_t value = now.value;
    const std::uintptr_t object = word::address(value);
    std::size_t units = pages_.least_units(object);
    if (now.is_here) {
      const std::uint64_t locked = header::at(object).lock();
      units = units_for(header::bytes(locked));
      value = owner.load(std::memory_order_acquire);
      pages_.clear_live(object);
      owner.store(0, std::memory_order_seq_cst);
      header::at(object).unlock(locked & ~header::owner_mask);
    } else if (owns_others && memory_.is_lost(object)) {
      owner.store(0, std::memory_order_relaxed);
      counters::add(count_.abandoned_objects);
      return;
    } else {
      pages_.clear_live(object);
      // It may have come meanwhile, and the evacuator may have seen the live bit.
      if (!memory_.is_away(object) || !owner.compare_exchange_strong(value, 0, std::memory_order_seq_cst)) {
        pages_.set_live(object);
        continue;
      }
    }
    if ((value & word::stale) != 0) pages_.uncount_stale(object);
    segments_.remove_object(object, units);
    return;
  }
}

// Calls `found` with each far pointer's word in the object.
template <typename Found>
void ownership::for_each_child(std::byte* object, std::uint64_t header_value, Found found) {
  const object_kind kind = header::kind(header_value);
  if (!has_pointers(kind)) return;
  type_of(kind, object + header::bytes(header_value))
      .for_each_word(
          object, header::payload_bytes(header_value),
          [](owner_word& child, void* context) { (*static_cast<Found*>(context))(child); }, &found);
}

void ownership::follow_children(std::byte* object, std::uint64_t header_value) {
  for_each_child(object, header_value, [this](owner_word& child) { follow_child(child, true); });
}

// Where the pointers are may be written in the object, as std::optional does, and the program may be writing to the
// object. Nobody writes to its old place any more. A pointer that has come since then had its header written by the
// program; the word of one that is gone is null (tests/model/moved_children_model_test.cc).
void ownership::follow_children_of_moved(std::byte* old_place, std::byte* object, std::uint64_t header_value) {
  for_each_child(old_place, header_value, [&](const owner_word& was) {
    const auto offset = static_cast<std::size_t>(reinterpret_cast<const std::byte*>(&was) - old_place);
    if (offset >= header::bytes(header_value)) return;  // named by mistake: it is not in the object, and has not moved
    // The program may make or clear a word at the same time, without any order: it is null before and afterwards.
    const unseen_reads from_thread_sanitizer;
    follow_child(*reinterpret_cast<owner_word*>(object + offset), false);
  });
}

// The header to change is that of the child's object, which may be another runtime's.
void ownership::follow_child(owner_word& child, bool calls_off) {
  const std::uintptr_t object = word::address(child.load(std::memory_order_acquire));
  if (object == 0 || memory_.contains(object)) return follow(child, calls_off);
  if (detail::object_heap* const other = heap_at(object); other != nullptr) other->follow(child, calls_off);
}

}  // namespace far::heap
