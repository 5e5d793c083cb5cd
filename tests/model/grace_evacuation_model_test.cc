// A model of scopes as grace periods against the evacuator (heap/evacuator.cc, heap/grace_periods.cc;
// docs/decisions/0031-scopes-as-grace-periods.md): one object with an old place and a copy; two mutators that load its
// word, and use the place that it names until their scope ends. They publish nothing but their scopes: a number, odd
// while a scope is open. The evacuator marks the word, waits for the scopes that may hold the old place, copies, and
// swings the word. A mutator that finds the mark takes it away, and the move is off.
//
// In some runs the first scope of the second mutator logs (heap/scope_log.h): the evacuator does not wait for it, but
// reads its log before it copies.
#include <gtest/gtest.h>

#include "tests/model/explorer.h"
#include "tests/model/tso.h"

namespace far::model {
namespace {

enum class bug : std::uint8_t {
  none,
  no_membarrier,         // the evacuator looks at the scopes without making mutators pass a fence
  looks_before_marking,  // the scopes are looked at before the word is marked
  no_grace,              // the object is copied at once
  uses_marked,           // a mutator goes on with the place of a marked word, instead of calling the move off
  swings_blindly,        // the word is stored without looking whether the move was called off
  stays_marked,          // a move that is given up leaves its mark
  log_not_read,          // the evacuator waits for no scope that logs, and does not read the log
  logs_late,             // a scope that logs does so after it has looked at the word for the last time
  log_read_early,        // the log is read before mutators have passed the fence
};

enum thread : std::uint8_t { first_mutator, second_mutator, evacuator, impatience, threads };
enum place : std::uint8_t { old_place, copy, places };
constexpr std::uint8_t moving = 0x10;
constexpr std::uint8_t logs_bit = 0x80;  // in the number of a scope
constexpr std::uint8_t ended = 100;

constexpr std::size_t scope_of(std::size_t mutator) {
  return mutator;
}
constexpr std::size_t field_of(std::size_t where, std::size_t mutator) {
  return 2 + where * 2 + mutator;
}
constexpr std::size_t log_entry = 6;  // the second mutator's

struct world {
  std::uint8_t at[threads] = {};
  bug without = bug::none;
  std::uint8_t has_log = 0;  // whether the second mutator's first scope logs
  std::uint8_t logged = 0;   // read by the evacuator
  std::uint8_t word = old_place;
  std::uint8_t is_there[places] = {1, 1};  // not given to other objects
  std::uint8_t gives_up = 0;               // a scope is open for too long
  std::uint8_t seen[2] = {};               // the scopes, when the evacuator looked
  std::uint8_t scopes[2] = {};
  std::uint8_t loaded[2] = {};
  std::uint8_t written[2] = {};
  std::uint8_t read_by_evacuator = 0;
  tso_memory<7, 2, 4> memory;
};

const char* go(world& s, std::size_t who, std::uint8_t to, const char* did) {
  s.at[who] = to;
  return did;
}

bool does_log(const world& s, thread who) {
  return who == second_mutator && s.has_log != 0 && s.scopes[who] == 1;
}

const char* open_scope(world& s, thread who) {
  const auto number = static_cast<std::uint8_t>(s.scopes[who] + 1);
  const bool logs = who == second_mutator && s.has_log != 0 && number == 1;
  if (!s.memory.store(who, scope_of(who), logs ? number | logs_bit : number)) return nullptr;
  s.scopes[who] = number;
  return go(s, who, 1, logs ? "opens a scope that logs" : "opens a scope");
}

const char* write_log(world& s, thread who, std::uint8_t value, std::uint8_t next, const char* did) {
  return s.memory.store(who, log_entry, value) ? go(s, who, next, did) : nullptr;
}

const char* load_word(world& s, thread who) {
  s.loaded[who] = s.word;
  const bool logs = does_log(s, who) && (s.word & ~moving) == old_place && s.without != bug::logs_late;
  return go(s, who, logs ? 10 : 2, "loads the word");
}

const char* mutate(world& s, thread who) {
  const std::uint8_t word = s.loaded[who];
  const std::uint8_t where = word & ~moving;
  switch (s.at[who]) {
    case 0: return open_scope(s, who);
    case 1: return load_word(s, who);
    case 10: return write_log(s, who, 1, 11, "logs the page");
    case 11: return go(s, who, s.word == word ? 2 : 1, "looks at the word again");
    case 12: return write_log(s, who, 1, 3, "logs the page");
    case 2:
      if ((word & moving) == 0 || s.without == bug::uses_marked)
        return go(s, who, does_log(s, who) && s.without == bug::logs_late ? 12 : 3, "finds no mark");
      if (!s.memory.is_drained(who)) return nullptr;
      if (s.word == word) s.word = where;
      return go(s, who, 1, "calls the move off");
    case 3:
      require(s.is_there[where] != 0, "an object in use stays where it is");
      require(s.memory.load(who, field_of(where, who)) == s.written[who], "a mutator reads what it wrote");
      return go(s, who, 4, "reads");
    case 4:
      require(s.is_there[where] != 0, "an object in use stays where it is");
      if (!s.memory.store(who, field_of(where, who), static_cast<std::uint8_t>(s.written[who] + 1))) return nullptr;
      ++s.written[who];
      return go(s, who, 5, "writes");
    case 5:
      if (does_log(s, who)) return write_log(s, who, 0, 6, "empties the log");
      [[fallthrough]];
    case 6: {
      if (!s.memory.store(who, scope_of(who), ++s.scopes[who])) return nullptr;
      s.loaded[who] = 0;
      return go(s, who, s.written[who] < 2 ? 0 : ended, "ends the scope");
    }
    default: return nullptr;
  }
}

bool has_passed(const world& s, std::size_t mutator) {
  const std::uint8_t then = s.seen[mutator];
  return then % 2 == 0 || (then & logs_bit) != 0 || s.memory.get(scope_of(mutator)) != then;
}

const char* look_at_scopes(world& s, std::uint8_t next) {
  for (std::size_t i = 0; i < 2; ++i) s.seen[i] = s.memory.get(scope_of(i));
  return go(s, evacuator, next, "looks at the scopes");
}

const char* heed_log(world& s) {
  if (s.without != bug::log_read_early) s.logged = s.memory.get(log_entry);
  const bool is_logged = s.logged != 0 && s.without != bug::log_not_read;
  return is_logged ? go(s, evacuator, 10, "finds the page in a log") : go(s, evacuator, 6, "finds the page in no log");
}

const char* evacuate(world& s) {
  const bool fences = s.without != bug::no_membarrier;
  const bool looks_first = s.without == bug::looks_before_marking;
  switch (s.at[evacuator]) {
    case 0:
      if (looks_first) {
        s.memory.fence(0);
        s.memory.fence(1);
        return look_at_scopes(s, 1);
      }
      return go(s, evacuator, 1, "begins");
    case 1:
      if (s.without == bug::log_read_early) s.logged = s.memory.get(log_entry);
      s.word |= moving;
      return go(s, evacuator, looks_first ? 5 : 2, "marks the word");
    case 2:
      if (fences) s.memory.fence(0);
      return go(s, evacuator, 3, "makes the first mutator pass the membarrier");
    case 3:
      if (fences) s.memory.fence(1);
      return go(s, evacuator, 4, "makes the second mutator pass the membarrier");
    case 4: return look_at_scopes(s, 5);
    case 5:
      if ((has_passed(s, 0) && has_passed(s, 1)) || s.without == bug::no_grace)
        return go(s, evacuator, 9, "sees that every scope has ended");
      return s.gives_up != 0 ? go(s, evacuator, 10, "gives up waiting") : nullptr;
    case 9: return heed_log(s);
    case 6: s.read_by_evacuator = s.memory.get(field_of(old_place, 0)); return go(s, evacuator, 7, "copies one half");
    case 7:
      s.memory.put(field_of(copy, 0), s.read_by_evacuator);
      s.memory.put(field_of(copy, 1), s.memory.get(field_of(old_place, 1)));
      return go(s, evacuator, 8, "copies the other half");
    case 8: {
      const bool moved = s.word == (old_place | moving) || s.without == bug::swings_blindly;
      if (moved) s.word = copy;
      s.is_there[moved ? old_place : copy] = 0;
      return go(s, evacuator, ended, moved ? "swings the word" : "finds that the move was called off");
    }
    case 10:
      if (s.without != bug::stays_marked) s.word = s.word & static_cast<std::uint8_t>(~moving);
      return go(s, evacuator, ended, "takes the mark away");
    default: return nullptr;
  }
}

verdict explore(bug without, bool has_log = false) {
  const auto has_ended = [](thread who) { return [who](const world& s) { return s.at[who] == ended; }; };
  explorer<world> all(
      {{"first mutator", [](world& s) { return mutate(s, first_mutator); }, has_ended(first_mutator)},
       {"second mutator", [](world& s) { return mutate(s, second_mutator); }, has_ended(second_mutator)},
       {"evacuator", evacuate, has_ended(evacuator)},
       {"impatience",
        [](world& s) {
          if (s.at[impatience] == ended) return static_cast<const char*>(nullptr);
          s.gives_up = 1;
          return go(s, impatience, ended, "has waited long enough");
        },
        has_ended(impatience)},
       buffer_of<world, &world::memory, 0>("first mutator's buffer"),
       buffer_of<world, &world::memory, 1>("second mutator's buffer")},
      [](const world& s) {
        require((s.word & moving) == 0, "no move is left unfinished");
        require(s.is_there[s.word] != 0, "the word names the object");
        for (std::size_t i = 0; i < 2; ++i) {
          require(s.memory.get(field_of(s.word, i)) == s.written[i], "no write is lost");
        }
      });
  world initial;
  initial.without = without;
  initial.has_log = has_log;
  return all.explore(initial, 20'000'000);
}

void expect_found(bug without, bool has_log = false) {
  const verdict found = explore(without, has_log);
  EXPECT_TRUE(found.breaks("an object in use stays") || found.breaks("no write is lost") ||
              found.breaks("reads what it wrote"))
      << found.trace;
}

TEST(grace_evacuation_model, holds_in_every_order) {
  const verdict found = explore(bug::none);
  EXPECT_TRUE(found.holds) << found.trace;
  EXPECT_GT(found.states, 10'000u);
}
TEST(grace_evacuation_model, holds_when_a_scope_logs) {
  const verdict found = explore(bug::none, true);
  EXPECT_TRUE(found.holds) << found.trace;
  EXPECT_GT(found.states, 10'000u);
}
TEST(grace_evacuation_model, finds_the_evacuator_that_does_not_read_the_log) {
  expect_found(bug::log_not_read, true);
}
TEST(grace_evacuation_model, finds_the_evacuator_that_reads_the_log_early) {
  expect_found(bug::log_read_early, true);
}
TEST(grace_evacuation_model, finds_the_scope_that_logs_late) {
  expect_found(bug::logs_late, true);
}
TEST(grace_evacuation_model, finds_the_bug_without_the_membarrier) {
  expect_found(bug::no_membarrier);
}
TEST(grace_evacuation_model, finds_the_evacuator_that_looks_before_it_marks) {
  expect_found(bug::looks_before_marking);
}
TEST(grace_evacuation_model, finds_the_evacuator_that_does_not_wait) {
  expect_found(bug::no_grace);
}
TEST(grace_evacuation_model, finds_the_mutator_that_uses_a_marked_word) {
  expect_found(bug::uses_marked);
}
TEST(grace_evacuation_model, finds_the_evacuator_that_swings_blindly) {
  expect_found(bug::swings_blindly);
}
TEST(grace_evacuation_model, finds_the_mark_that_stays) {
  const verdict found = explore(bug::stays_marked);
  EXPECT_TRUE(found.breaks("no move is left unfinished")) << found.trace;
}

}  // namespace
}  // namespace far::model
