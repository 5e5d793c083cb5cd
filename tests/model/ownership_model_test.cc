// A model of pointers that are moved and destroyed while the evacuator is at work on their object and its page comes
// and goes (heap/ownership.cc, heap/evacuator.cc): one object, whose pointer moves from one word to another and is then
// destroyed, and a place that is given to another object once the segment is free. Counts must balance, no word may be
// touched after its memory was given up, and each header must name the owner in the end.
#include <gtest/gtest.h>

#include "tests/model/explorer.h"
#include "tests/model/tso.h"

namespace far::model {
namespace {

enum class bug : std::uint8_t {
  none,
  no_second_look,       // the mover counts a stale header, and does not look whether the page came meanwhile
  trusts_the_byte,      // it takes a page that is Evicting, and perhaps given back, for one that is gone
  no_membarrier,        // the evacuator looks at counts and live bits without making the mover pass a fence
  no_lock,              // the evacuator follows a header to its owner without the header's lock
  segment_not_kept,     // the evacuator lets the segment under its hands become free, and be used again
  word_not_seen_again,  // the mover locks a header without looking at the word again after it held the page
};

enum page_state : std::uint8_t { resident, evicting, remote, fetching };
enum thread : std::uint8_t { mover, evacuator, evictor, fetcher, reuser, threads };
constexpr std::uint8_t ended = 200;

// Words: 0 is null. Place 1 is the old one, place 2 the copy.
constexpr std::uint8_t old_place = 1;
constexpr std::uint8_t copy = 2;
constexpr std::uint8_t place_mask = 3;
constexpr std::uint8_t moving = 4;
constexpr std::uint8_t stale = 8;
// Headers: the number of the owner's word + 1, or 0.
constexpr std::uint8_t owner_mask = 7;
constexpr std::uint8_t locked = 8;
// Logs: of the mover and of the evacuator, one entry each, for the old place's page.

struct world {
  std::uint8_t at[threads] = {};
  bug without = bug::none;
  std::uint8_t pages_leave = 0;  // otherwise there is no evictor
  std::uint8_t moves_first = 0;  // the mover's program: whether it moves the pointer
  std::uint8_t destroys = 0;     // and then destroys it
  std::uint8_t word[3] = {old_place, 0, 0};
  std::uint8_t word_exists[3] = {1, 1, 1};
  std::uint8_t from = 0;   // which word the mover's pointer is in
  std::uint8_t value = 0;  // loaded by the mover
  std::uint8_t page = resident;
  std::uint8_t byte = resident;
  std::uint8_t header[3] = {0, 1, 0};  // by place
  std::uint8_t is_live[3] = {0, 1, 0};
  std::uint8_t stale_headers = 0;
  std::uint8_t objects = 1;  // in the old place's segment, and the evacuator that keeps it
  std::uint8_t is_reused = 0;
  std::uint8_t seen_header = 0;  // locked by the evacuator
  std::uint8_t mover_header = 0;
  tso_memory<2, 2> logs;
};

const char* go(world& s, thread who, std::uint8_t to, const char* did) {
  s.at[who] = to;
  return did;
}

void require_page(const world& s, std::uint8_t place) {
  require(place == copy || s.byte == resident || s.page == evicting, "a header is touched while its page is here");
}
void require_word(const world& s, std::uint8_t owner) {
  require(s.word_exists[owner - 1] != 0, "a word is touched while its memory is its own");
}

// The object of a place is gone from it. The last one frees the segment: its bytes are zeros then.
void remove_object(world& s, std::uint8_t place) {
  if (place != old_place || --s.objects > 0) return;
  s.header[old_place] = 0;
}

const char* restart(world& s, const char* did) {
  s.value = 0;
  s.mover_header = 0;
  return go(s, mover, 0, did);
}

// The pointer is where it should be, or gone.
const char* finish(world& s, bool moved) {
  s.word_exists[s.from] = 0;
  s.value = 0;
  s.mover_header = 0;
  if (!s.logs.store(0, 0, 0)) return nullptr;
  if (moved) s.from = 1;
  return go(s, mover, moved && s.destroys != 0 ? 0 : ended,
            moved ? "has moved the pointer" : "has destroyed the pointer");
}

// The steps of move_owner() and release() where the header cannot be written.
const char* own_remote(world& s) {
  const bool moves = s.moves_first != 0 && s.from == 0;
  const std::uint8_t place = s.value & place_mask;
  const bool counts = (s.value & stale) == 0;
  std::uint8_t& word = s.word[s.from];
  switch (s.at[mover]) {
    case 20:
      if (moves && counts) ++s.stale_headers;
      if (!moves) s.is_live[place] = 0;
      return go(s, mover, s.without == bug::no_second_look ? 22 : 21, moves ? "counts" : "clears the live bit");
    case 21: {
      // Not while it is on its way, in or out: held pages become Evicting for a moment, too.
      const bool is_away = s.without == bug::trusts_the_byte ? s.byte != resident : s.page == remote;
      return go(s, mover, is_away ? 22 : 24, is_away ? "finds the page still away" : "finds the page here after all");
    }
    case 22:
      if (word != s.value) return go(s, mover, 24, "finds another word");
      word = 0;
      return go(s, mover, 23, "makes its word null");
    case 23:
      if (moves) {
        s.word[1] = old_place | stale;
        return finish(s, true);
      }
      if ((s.value & stale) != 0) --s.stale_headers;
      remove_object(s, place);
      return finish(s, false);
    case 24:
      if (moves && counts) --s.stale_headers;
      if (!moves) s.is_live[place] = 1;
      return go(s, mover, 25, "takes that back");
    case 25: return s.page == evicting || s.page == fetching ? nullptr : restart(s, "looks again");
    default: return nullptr;
  }
}

// move_owner() and release(); they differ in what they do where they have the header's lock, or need none.
const char* own(world& s) {
  const bool moves = s.moves_first != 0 && s.from == 0;
  const std::uint8_t place = s.value & place_mask;
  std::uint8_t& word = s.word[s.from];
  switch (s.at[mover]) {
    case 0: s.value = word; return go(s, mover, 1, "loads its word");
    case 1:
      if (place == copy) return go(s, mover, 4, "finds the object moved");
      return s.logs.store(0, 0, 1) ? go(s, mover, 2, "publishes the page") : nullptr;
    case 2:
      if (s.without == bug::word_not_seen_again) return go(s, mover, 3, "does not look again");
      if (word != s.value) return restart(s, "finds another word");
      if ((word & moving) == 0) return go(s, mover, 3, "finds the word as it was");
      if (!s.logs.is_drained(0)) return nullptr;
      word = static_cast<std::uint8_t>(word & ~moving);
      return restart(s, "calls the move off");
    case 3:
      return s.byte == resident ? go(s, mover, 4, "finds the page resident")
                                : go(s, mover, 20, "finds the page not resident");
    case 4:
      require_page(s, place);
      if ((s.header[place] & locked) != 0 || !s.logs.is_drained(0)) return nullptr;
      s.mover_header = s.header[place];
      s.header[place] |= locked;
      return go(s, mover, 5, "locks the header");
    case 5:
      s.value = word;
      if ((word & place_mask) != place) {
        s.header[place] = s.mover_header;
        return restart(s, "unlocks the header of a place that the object has left");
      }
      if (moves && (s.value & stale) != 0) --s.stale_headers;
      if (moves) s.word[1] = static_cast<std::uint8_t>(s.value & place_mask);
      if (!moves) s.is_live[place] = 0;
      return go(s, mover, 6, moves ? "gives the object to the other word" : "clears the live bit");
    case 6: word = 0; return go(s, mover, 7, "makes its word null");
    case 7: s.header[place] = moves ? 2 : 0; return go(s, mover, 8, "unlocks the header");
    case 8:
      if (moves) return finish(s, true);
      if ((s.value & stale) != 0) --s.stale_headers;
      remove_object(s, place);
      return finish(s, false);
    default: return own_remote(s);
  }
}

// Locks the old header and comes to `to` if it has an owner, else to `if_dead`.
const char* lock_old(world& s, std::uint8_t to, std::uint8_t if_dead) {
  require_page(s, old_place);
  if (s.without != bug::no_lock) {
    if ((s.header[old_place] & locked) != 0) return nullptr;
    s.seen_header = s.header[old_place];
    s.header[old_place] |= locked;
  } else {
    s.seen_header = s.header[old_place] & owner_mask;
  }
  return go(s, evacuator, s.seen_header != 0 && s.is_live[old_place] != 0 ? to : if_dead, "locks the old header");
}
const char* unlock_old(world& s, std::uint8_t to, std::uint8_t header) {
  if (s.without != bug::no_lock) s.header[old_place] = header;
  return go(s, evacuator, to, "unlocks the old header");
}

const char* move_object(world& s) {
  const std::uint8_t owner = s.seen_header;
  switch (s.at[evacuator]) {
    case 20: return lock_old(s, 21, 24);
    case 21:
      s.header[copy] = owner;
      s.is_live[copy] = 1;
      return go(s, evacuator, 22, "makes the copy live");
    case 22:
      require_word(s, owner);
      if (s.word[owner - 1] != (old_place | moving)) {
        s.is_live[copy] = 0;
        return go(s, evacuator, 24, "finds that the move was called off");
      }
      s.word[owner - 1] = copy;
      s.is_live[old_place] = 0;
      return go(s, evacuator, 23, "swings the word");
    case 23: static_cast<void>(unlock_old(s, 25, 0)); return go(s, evacuator, 25, "unlocks the old header");
    case 24: return unlock_old(s, 40, s.seen_header);
    case 25: remove_object(s, old_place); return go(s, evacuator, 40, "gives the old place up");
    default: return nullptr;
  }
}

const char* evacuate(world& s) {
  const bool keeps = s.without != bug::segment_not_kept;
  const std::uint8_t owner = s.seen_header;
  switch (s.at[evacuator]) {
    case 0:
      if (s.objects == 0) return go(s, evacuator, ended, "finds the segment free");
      if (keeps) ++s.objects;
      return go(s, evacuator, 1, "chooses the segment");
    case 1: return s.logs.store(1, 1, 1) ? go(s, evacuator, 2, "publishes the page") : nullptr;
    case 2:
      return s.byte == resident ? go(s, evacuator, 3, "finds it resident") : go(s, evacuator, 40, "finds it away");
    case 3:
      if (s.without != bug::no_membarrier) s.logs.fence(0);
      if (s.without != bug::no_membarrier) s.logs.fence(1);
      return go(s, evacuator, 4, "passes the membarrier");
    case 4:
      if (s.stale_headers > 0) return go(s, evacuator, 40, "finds stale headers");
      return s.is_live[old_place] != 0 ? go(s, evacuator, 5, "finds the object")
                                       : go(s, evacuator, 40, "finds nothing");
    case 5: return lock_old(s, 6, 12);
    case 6:
      require_word(s, owner);
      if (s.word[owner - 1] != old_place) return unlock_old(s, 40, s.seen_header);
      s.word[owner - 1] |= moving;
      return go(s, evacuator, 7, "marks the word");
    case 7: return unlock_old(s, 8, s.seen_header);
    case 8: s.logs.fence(0); return go(s, evacuator, 9, "passes the second membarrier");
    case 9: return s.logs.get(0) != 0 ? go(s, evacuator, 10, "sees a log") : go(s, evacuator, 20, "sees no log");
    case 10: return lock_old(s, 11, 12);
    case 11:
      require_word(s, owner);
      s.word[owner - 1] = static_cast<std::uint8_t>(s.word[owner - 1] & ~moving);
      return go(s, evacuator, 12, "takes the mark back");
    case 12: return unlock_old(s, 40, s.seen_header);
    case 40:
      if (!s.logs.store(1, 1, 0)) return nullptr;
      if (keeps) remove_object(s, old_place);
      s.seen_header = 0;
      return go(s, evacuator, ended, "lets go");
    default: return move_object(s);
  }
}

const char* evict(world& s) {
  switch (s.at[evictor]) {
    case 0:
      if (s.page != resident) return go(s, evictor, ended, "leaves the page alone");
      s.page = evicting;
      return go(s, evictor, 1, "makes the word Evicting");
    case 1: s.byte = evicting; return go(s, evictor, 2, "makes the byte Evicting");
    case 2: s.logs.fence(0); return go(s, evictor, 3, "makes the mover pass the membarrier");
    case 3: s.logs.fence(1); return go(s, evictor, 4, "makes the evacuator pass the membarrier");
    case 4: {
      const bool held = s.logs.get(0) != 0 || s.logs.get(1) != 0;
      return go(s, evictor, held ? 6 : 5, held ? "sees the page in a log" : "sees no log with it");
    }
    case 5: s.page = remote; return go(s, evictor, ended, "takes the page away");
    case 6: s.byte = resident; return go(s, evictor, 7, "gives the byte back");
    case 7: s.page = resident; return go(s, evictor, ended, "gives the word back");
    default: return nullptr;
  }
}

// Brings the page back for another object, once.
const char* fetch(world& s) {
  switch (s.at[fetcher]) {
    case 0:
      if (s.page == resident && s.at[evictor] == ended) return go(s, fetcher, ended, "finds the page resident");
      if (s.page != remote) return nullptr;
      s.page = fetching;
      return go(s, fetcher, 1, "makes the page Fetching");
    case 1: s.byte = resident; return go(s, fetcher, 2, "makes the byte Resident");
    case 2: s.page = resident; return go(s, fetcher, ended, "makes the word Resident");
    default: return nullptr;
  }
}

// Takes the segment when it is free, and makes an object at the same place. Nobody has its header's lock: it is new.
const char* reuse(world& s) {
  switch (s.at[reuser]) {
    case 0:
      if (s.objects > 0)
        return s.at[mover] == ended && s.at[evacuator] == ended ? go(s, reuser, ended, "gets nothing") : nullptr;
      if (s.page != resident) return nullptr;
      s.objects = 1;
      s.is_reused = 1;
      return go(s, reuser, 1, "takes the segment");
    case 1: s.header[old_place] = 3; return go(s, reuser, 2, "writes a header");
    case 2: s.is_live[old_place] = 1; return go(s, reuser, 3, "sets the live bit");
    case 3: s.word[2] = old_place; return go(s, reuser, ended, "has an object");
    default: return nullptr;
  }
}

void check_end(const world& s) {
  const std::uint8_t stale_words = (s.word[0] & stale) != 0 || (s.word[1] & stale) != 0;
  require(s.stale_headers == stale_words, "stale headers are counted exactly");
  for (const std::uint8_t word : s.word) require((word & moving) == 0, "no move is left unfinished");
  for (std::uint8_t i = 0; i < 3; ++i) {
    const std::uint8_t place = s.word[i] & place_mask;
    if (place == 0) continue;
    require(s.is_live[place] != 0, "an object that is owned is live");
    require((s.word[i] & stale) != 0 || s.header[place] == i + 1, "the header names the owner");
  }
  const int owned = (s.word[0] != 0) + (s.word[1] != 0) + (s.word[2] != 0);
  require(s.is_live[old_place] + s.is_live[copy] == owned, "only objects that are owned are live");
}

verdict explore(bug without, bool moves, bool destroys, bool pages_leave) {
  const auto has_ended = [](thread who) { return [who](const world& s) { return s.at[who] == ended; }; };
  explorer<world> all({{"mover", own, has_ended(mover)},
                       {"evacuator", evacuate, has_ended(evacuator)},
                       {"evictor", evict, has_ended(evictor)},
                       {"fetcher", fetch, has_ended(fetcher)},
                       {"reuser", reuse, has_ended(reuser)},
                       buffer_of<world, &world::logs, 0>("mover's buffer"),
                       buffer_of<world, &world::logs, 1>("evacuator's buffer")},
                      check_end);
  world initial;
  initial.without = without;
  initial.moves_first = moves;
  initial.destroys = destroys;
  if (pages_leave) {
    initial.at[reuser] = ended;
  } else {
    initial.at[evictor] = ended;
    initial.at[fetcher] = ended;
  }
  return all.explore(initial);
}

void expect_found(const verdict& found, const char* promise) {
  EXPECT_TRUE(found.breaks(promise)) << found.trace;
}

constexpr const char* word_promise = "a word is touched while its memory is its own";

TEST(ownership_model, moving_holds_in_every_order) {
  const verdict found = explore(bug::none, true, false, true);
  EXPECT_TRUE(found.holds) << found.trace;
  EXPECT_GT(found.states, 1000u);
}
TEST(ownership_model, destroying_holds_in_every_order) {
  const verdict found = explore(bug::none, false, true, true);
  EXPECT_TRUE(found.holds) << found.trace;
}
TEST(ownership_model, moving_and_then_destroying_holds_in_every_order) {
  const verdict found = explore(bug::none, true, true, true);
  EXPECT_TRUE(found.holds) << found.trace;
}
TEST(ownership_model, places_that_are_used_again_hold_in_every_order) {
  const verdict destroyed = explore(bug::none, false, true, false);
  EXPECT_TRUE(destroyed.holds) << destroyed.trace;
  const verdict moved = explore(bug::none, true, true, false);
  EXPECT_TRUE(moved.holds) << moved.trace;
}

TEST(ownership_model, finds_the_mover_that_does_not_look_again_after_counting) {
  EXPECT_FALSE(explore(bug::no_second_look, true, false, true).holds);
  EXPECT_FALSE(explore(bug::no_second_look, false, true, true).holds);
}
TEST(ownership_model, finds_the_mover_that_takes_evicting_for_gone) {
  expect_found(explore(bug::trusts_the_byte, true, false, true), word_promise);
  expect_found(explore(bug::trusts_the_byte, false, true, true), word_promise);
}
TEST(ownership_model, finds_the_evacuator_without_the_headers_lock) {
  expect_found(explore(bug::no_lock, true, false, true), word_promise);
}
TEST(ownership_model, finds_the_evacuator_that_does_not_keep_its_segment) {
  const verdict found = explore(bug::segment_not_kept, false, true, false);
  EXPECT_FALSE(found.holds);
}
TEST(ownership_model, finds_the_mover_that_does_not_look_at_its_word_again) {
  EXPECT_FALSE(explore(bug::word_not_seen_again, true, false, false).holds);
}

}  // namespace
}  // namespace far::model
