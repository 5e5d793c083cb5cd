// A model of dereferences against the evacuator (heap/evacuator.cc, object_heap::touch and settle, scope::reach): one
// object, with an old place and a copy; two mutators that read and write it. The races are those of AIFM, section 5.3:
// an object is written while it is copied, and used where it was after it has moved.
#include <gtest/gtest.h>

#include "tests/model/explorer.h"
#include "tests/model/tso.h"

namespace far::model {
namespace {

enum class bug : std::uint8_t {
  none,
  no_membarrier,      // the evacuator reads the logs without making mutators pass a fence
  no_second_look,     // a mutator does not look at the word again after it published the page
  uses_moving,        // a mutator goes on with an object that is moving, instead of calling the move off
  swings_blindly,     // the evacuator stores the new word without looking whether the move was called off
  logs_before_marks,  // the evacuator reads the logs before it marks the object
};

enum thread : std::uint8_t { first_mutator, second_mutator, evacuator, threads };
// The object's place; each mutator has a field of its own in it.
enum place : std::uint8_t { old_place, copy, places };
constexpr std::uint8_t moving = 0x10;
constexpr std::uint8_t ended = 100;

// A log holds place + 1, or 0.
constexpr std::size_t log_of(std::size_t mutator) {
  return mutator;
}
constexpr std::size_t field_of(std::size_t where, std::size_t mutator) {
  return 2 + where * 2 + mutator;
}

struct world {
  std::uint8_t at[threads] = {};
  bug without = bug::none;
  std::uint8_t word = old_place;
  std::uint8_t is_there[places] = {1, 1};  // not given to other objects
  std::uint8_t loaded[2] = {};
  std::uint8_t written[2] = {};
  std::uint8_t read_by_evacuator = 0;  // the first field, while the second is being copied
  std::uint8_t rounds = 0;
  tso_memory<6, 2> memory;
};

const char* go(world& s, std::size_t who, std::uint8_t to, const char* did) {
  s.at[who] = to;
  return did;
}

const char* mutate(world& s, thread who) {
  const std::uint8_t word = s.loaded[who];
  const std::uint8_t where = word & ~moving;
  switch (s.at[who]) {
    case 0: s.loaded[who] = s.word; return go(s, who, 1, "loads the word");
    case 1:
      if ((word & moving) == 0 || s.without == bug::uses_moving) {
        return s.memory.store(who, log_of(who), where + 1) ? go(s, who, 3, "publishes the page") : nullptr;
      }
      if (!s.memory.is_drained(who)) return nullptr;
      if (s.word == word) s.word = where;
      return go(s, who, 0, "calls the move off");
    case 3:
      if (s.without == bug::no_second_look || s.word == word) return go(s, who, 4, "finds the word as it was");
      return s.memory.store(who, log_of(who), 0) ? go(s, who, 0, "finds another word") : nullptr;
    case 4:
      require(s.is_there[where] != 0, "an object in use stays where it is");
      require(s.memory.load(who, field_of(where, who)) == s.written[who], "a mutator reads what it wrote");
      return go(s, who, 5, "reads");
    case 5:
      require(s.is_there[where] != 0, "an object in use stays where it is");
      if (!s.memory.store(who, field_of(where, who), static_cast<std::uint8_t>(s.written[who] + 1))) return nullptr;
      ++s.written[who];
      return go(s, who, 6, "writes");
    case 6: {
      if (!s.memory.store(who, log_of(who), 0)) return nullptr;
      const bool again = who == first_mutator && s.written[who] < 2;
      s.loaded[who] = 0;
      return go(s, who, again ? 0 : ended, "closes the scope");
    }
    default: return nullptr;
  }
}

const char* look_at_logs(world& s, std::uint8_t if_held, std::uint8_t otherwise) {
  const bool held = s.memory.get(log_of(0)) == old_place + 1 || s.memory.get(log_of(1)) == old_place + 1;
  return go(s, evacuator, held ? if_held : otherwise, held ? "sees the page in a log" : "sees no log with the page");
}

const char* evacuate(world& s) {
  const bool fences = s.without != bug::no_membarrier;
  const bool logs_first = s.without == bug::logs_before_marks;
  switch (s.at[evacuator]) {
    case 0:
      if (logs_first) {
        s.memory.fence(0);
        s.memory.fence(1);
        return look_at_logs(s, ended, 1);
      }
      return go(s, evacuator, 1, "begins");
    case 1: s.word |= moving; return go(s, evacuator, logs_first ? 5 : 2, "marks the object");
    case 2:
      if (fences) s.memory.fence(0);
      return go(s, evacuator, 3, "makes the first mutator pass the membarrier");
    case 3:
      if (fences) s.memory.fence(1);
      return go(s, evacuator, 4, "makes the second mutator pass the membarrier");
    case 4: return look_at_logs(s, 10, 5);
    case 5: s.read_by_evacuator = s.memory.get(field_of(old_place, 0)); return go(s, evacuator, 6, "copies one half");
    case 6:
      s.memory.put(field_of(copy, 0), s.read_by_evacuator);
      s.memory.put(field_of(copy, 1), s.memory.get(field_of(old_place, 1)));
      return go(s, evacuator, 7, "copies the other half");
    case 7: {
      const bool moved = s.word == (old_place | moving) || s.without == bug::swings_blindly;
      if (moved) s.word = copy;
      s.is_there[moved ? old_place : copy] = 0;
      return go(s, evacuator, ended, moved ? "swings the word" : "finds that the move was called off");
    }
    case 10:
      if (s.word == (old_place | moving)) s.word = old_place;
      return go(s, evacuator, ++s.rounds == 2 ? ended : 0, "calls the move off itself");
    default: return nullptr;
  }
}

verdict explore(bug without) {
  const auto has_ended = [](thread who) { return [who](const world& s) { return s.at[who] == ended; }; };
  explorer<world> all(
      {{"first mutator", [](world& s) { return mutate(s, first_mutator); }, has_ended(first_mutator)},
       {"second mutator", [](world& s) { return mutate(s, second_mutator); }, has_ended(second_mutator)},
       {"evacuator", evacuate, has_ended(evacuator)},
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
  return all.explore(initial);
}

void expect_found(bug without) {
  const verdict found = explore(without);
  EXPECT_TRUE(found.breaks("an object in use stays") || found.breaks("no write is lost") ||
              found.breaks("reads what it wrote"))
      << found.trace;
}

TEST(evacuation_model, holds_in_every_order) {
  const verdict found = explore(bug::none);
  EXPECT_TRUE(found.holds) << found.trace;
  EXPECT_GT(found.states, 10'000u);
}
TEST(evacuation_model, finds_the_bug_without_the_membarrier) {
  expect_found(bug::no_membarrier);
}
TEST(evacuation_model, finds_the_mutator_that_does_not_look_again) {
  expect_found(bug::no_second_look);
}
TEST(evacuation_model, finds_the_mutator_that_uses_a_moving_object) {
  expect_found(bug::uses_moving);
}
TEST(evacuation_model, finds_the_evacuator_that_swings_blindly) {
  expect_found(bug::swings_blindly);
}
TEST(evacuation_model, finds_the_evacuator_that_reads_logs_before_it_marks) {
  expect_found(bug::logs_before_marks);
}

}  // namespace
}  // namespace far::model
