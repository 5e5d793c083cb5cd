// A model of how an entry of a map of what is local leaves it (heap/leaving.cc: is_local; heap/scope_filter.cc: look
// and decide; far/detail/hash_state.h: take_left; docs/decisions/0141-entries-that-leave.md). The entry's page has left
// before, and a note of that waits. A reader finds the entry twice, in scopes that log: no grace period waits for them,
// so the evictor claims the page and gives it back. A neighbour brings the page in, and uses nothing of it. A changer
// takes the note and judges. All of these may happen in any order.
//
// Look-ups that fetch, and the changer, have the shard's lock. The evictor has none.
#include <gtest/gtest.h>

#include "tests/model/explorer.h"

namespace far::model {
namespace {

enum class bug : std::uint8_t {
  none,
  ready_alone,       // of a page that is on its way out, nothing counts but the ready byte
  here_is_enough,    // a page that is not away is local, used or not, and whatever the evictor has decided
  uses_taken_late,   // the evictor calls the handler before it takes the marks of uses
  uses_never_taken,  // ... or does not take them
};

enum thread : std::uint8_t { reader, evictor, neighbour, changer, threads };
enum state : std::uint8_t { away, resident, evicting };
constexpr std::uint8_t ended = 100;
constexpr std::uint8_t nobody = 100;
constexpr std::uint8_t last_round = 2;

struct world {
  std::uint8_t at[threads] = {};
  bug without = bug::none;
  std::uint8_t rounds[threads] = {};
  std::uint8_t lock = nobody;
  std::uint8_t page = away;
  std::uint8_t is_dirty = 0;
  std::uint8_t is_ready = 0;
  std::uint8_t is_condemned = 0;
  std::uint8_t has_uses = 0;
  std::uint8_t log = 0;
  std::uint8_t is_in_map = 1;
  std::uint8_t note = 1;
  std::uint8_t is_found = 0;  // and it has not left since
};

const char* go(world& s, thread who, std::uint8_t to, const char* did) {
  s.at[who] = to;
  return did;
}

// Another round, or the end.
const char* end_round(world& s, thread who, const char* did) {
  return go(s, who, ++s.rounds[who] == last_round ? ended : 0, did);
}

// object_heap::touch(), in a scope that logs.
const char* find(world& s) {
  switch (s.at[reader]) {
    case 0:
      if (s.lock != nobody) return nullptr;
      s.lock = reader;
      return go(s, reader, 1, "locks the shard");
    case 1:
      if (s.is_in_map != 0) return go(s, reader, 2, "finds the word");
      s.lock = nobody;
      return go(s, reader, ended, "finds no entry");
    case 2: s.log = 1; return go(s, reader, 3, "logs the page");
    case 3: s.is_condemned = 0; return go(s, reader, 4, "takes the page back");
    case 4:
      if (s.page == resident) return go(s, reader, 5, "finds the page resident");
      if (s.page == evicting) return nullptr;
      s.page = resident;
      return go(s, reader, 3, "fetches the page");
    case 5: s.is_dirty = 1; return go(s, reader, 6, "makes the page writable");
    case 6: s.has_uses = 1; return go(s, reader, 7, "marks the use");
    case 7: s.is_ready = 1; return go(s, reader, 8, "makes the page ready");
    case 8:
      s.is_found = 1;
      s.lock = nobody;
      return go(s, reader, 9, "has found the entry, and unlocks the shard");
    case 9: s.log = 0; return end_round(s, reader, "ends its scope");
    default: return nullptr;
  }
}

// The period of a page that was condemned is over at once: all scopes log.
const char* evict(world& s) {
  const auto give_back = [&s](const char* did) {
    s.page = resident;
    return end_round(s, evictor, did);
  };
  const bool is_late = s.without == bug::uses_taken_late;
  switch (s.at[evictor]) {
    case 0:
      if (s.page != resident) return go(s, evictor, ended, "finds nothing to evict");
      s.is_condemned = 1;
      return go(s, evictor, 1, "condemns the page");
    case 1: s.is_ready = 0; return go(s, evictor, 2, "clears the ready byte");
    case 2: s.page = evicting; return go(s, evictor, 3, "claims the page");
    case 3:
      if (s.is_ready != 0 || s.is_condemned == 0) return give_back("finds the page used, and gives it back");
      return go(s, evictor, 4, "finds that nobody without a log can have a pointer into it");
    case 4:
      if (s.log != 0) return give_back("finds the page in a log, and gives it back");
      return go(s, evictor, 5, "finds the page in no log");
    case 5:
      if (s.is_ready != 0) return give_back("finds the page ready, and gives it back");
      s.is_found = 0;
      return go(s, evictor, is_late ? 7 : 6, "decides that the page leaves");
    case 6:
      if (s.without != bug::uses_never_taken) s.has_uses = 0;
      return go(s, evictor, is_late ? 8 : 7, "takes the marks of uses");
    case 7:
      if (s.is_dirty != 0) s.note = 1;
      return go(s, evictor, is_late ? 6 : 8, s.is_dirty != 0 ? "calls the handler, which notes" : "calls no handler");
    case 8:
      s.page = away;
      s.is_dirty = 0;
      return end_round(s, evictor, "has taken the page away");
    default: return nullptr;
  }
}

const char* bring(world& s) {
  if (s.at[neighbour] == ended) return nullptr;
  if (s.page != away) return go(s, neighbour, ended, "finds the page here");
  s.page = resident;
  return go(s, neighbour, ended, "brings the page in, and uses nothing");
}

const char* judge(world& s) {
  const auto local = [&s](const char* did) { return go(s, changer, 6, did); };
  switch (s.at[changer]) {
    case 0:
      if (s.note == 0) return go(s, changer, ended, "finds no note");
      s.note = 0;
      return go(s, changer, 1, "takes the note");
    case 1:
      if (s.lock != nobody) return nullptr;
      s.lock = changer;
      return go(s, changer, s.is_in_map != 0 ? 2 : 6, "locks the shard");
    case 2:
      if (s.page == resident && s.is_dirty != 0) return local("finds the page writable");
      return go(s, changer, 3, "finds that the page is not writable");
    case 3:
      if (s.page == away) return go(s, changer, 5, "finds the page away");
      if (s.without == bug::here_is_enough) return local("finds the page here");
      return go(s, changer, 4, "finds that the page is not away");
    case 4: {
      const bool has_uses = s.has_uses != 0 && s.without != bug::ready_alone;
      if (s.is_ready != 0 || has_uses) return local("finds the page used");
      return go(s, changer, 5, "finds the page unused");
    }
    case 5:
      require(s.is_found == 0, "an entry that was found, and has not left since, stays in the map");
      s.is_in_map = 0;
      return go(s, changer, 6, "drops the entry");
    case 6: s.lock = nobody; return end_round(s, changer, "unlocks the shard");
    default: return nullptr;
  }
}

verdict explore(bug without) {
  const auto has_ended = [](thread who) { return [who](const world& s) { return s.at[who] == ended; }; };
  explorer<world> all({{"reader", find, has_ended(reader)},
                       {"evictor", evict, has_ended(evictor)},
                       {"neighbour", bring, has_ended(neighbour)},
                       {"changer", judge, has_ended(changer)}},
                      [](const world& s) {
                        require(s.page != away || s.is_in_map == 0 || s.note != 0,
                                "an entry that has left is noted, or not in the map any more");
                      });
  world initial;
  initial.without = without;
  return all.explore(initial);
}

TEST(leaving_entries_model, holds_in_every_order) {
  const verdict found = explore(bug::none);
  EXPECT_TRUE(found.holds) << found.trace;
  EXPECT_GT(found.states, 500u);
}
TEST(leaving_entries_model, finds_the_judge_who_looks_at_nothing_but_the_ready_byte) {
  const verdict found = explore(bug::ready_alone);
  EXPECT_TRUE(found.breaks("stays in the map")) << found.trace;
}
TEST(leaving_entries_model, finds_the_judge_to_whom_all_that_is_here_is_local) {
  const verdict found = explore(bug::here_is_enough);
  EXPECT_TRUE(found.breaks("an entry that has left is noted")) << found.trace;
}
TEST(leaving_entries_model, finds_the_handler_that_is_called_before_the_uses_are_taken) {
  const verdict found = explore(bug::uses_taken_late);
  EXPECT_TRUE(found.breaks("an entry that has left is noted")) << found.trace;
}
TEST(leaving_entries_model, finds_the_uses_that_are_never_taken) {
  const verdict found = explore(bug::uses_never_taken);
  EXPECT_TRUE(found.breaks("an entry that has left is noted")) << found.trace;
}

}  // namespace
}  // namespace far::model
