// A model of the far pointers in an object that the evacuator has moved (heap/ownership.cc, follow_children_of_moved;
// heap/evacuator.cc): an object with a std::optional<far::unique_ptr>, whose flag is a plain byte; a program that fills
// and empties it in scopes; and the evacuator, which copies the object, swings its owner's word, and then lets the
// child's header name the pointer in the copy. Nobody may look at the flag while another writes to it, and the child's
// header names its owner in the end. Scopes are as in grace_evacuation_model_test.cc, without store buffers.
#include <gtest/gtest.h>

#include "tests/model/explorer.h"

namespace far::model {
namespace {

enum class bug : std::uint8_t {
  none,
  visits_the_copy,   // the flag is looked at in the copy, which the program uses
  no_grace_period,   // the object is copied while a scope may have its old place
  follows_old_word,  // the header names the pointer in the old place
  follows_nothing,   // ... keeps the name
  gives_up_early,    // the old place is another's before it has been visited
  word_not_locked,   // the child's header is written without a look at the word under the header's lock
};

enum thread : std::uint8_t { program, evacuator, reuser, threads };
constexpr std::uint8_t nowhere = 0;
constexpr std::uint8_t old_place = 1;
constexpr std::uint8_t copy = 2;
constexpr std::uint8_t places = 3;
constexpr std::uint8_t moving = 0x10;
constexpr std::uint8_t ended = 100;

struct world {
  std::uint8_t at[threads] = {};
  bug without = bug::none;
  std::uint8_t rounds_left = 2;  // of the program
  std::uint8_t word = old_place;
  std::uint8_t in_scope = 0;
  std::uint8_t waited_for = 0;
  std::uint8_t used = nowhere;          // by the program
  std::uint8_t has_child[places] = {};  // the flag
  std::uint8_t is_written[places] = {};
  std::uint8_t child[places] = {};  // the pointer's word
  std::uint8_t header = nowhere;    // of the child: where the word is that it names
  std::uint8_t is_kept = 1;         // the old place is still the object's
  std::uint8_t seen = 0;
};

const char* go(world& s, thread who, std::uint8_t to, const char* did) {
  s.at[who] = to;
  return did;
}

const char* use(world& s) {
  const std::uint8_t where = s.used;
  switch (s.at[program]) {
    case 0: s.in_scope = 1; return go(s, program, 1, "opens a scope");
    case 1:
      if ((s.word & moving) != 0) {
        s.word = static_cast<std::uint8_t>(s.word & ~moving);
        return go(s, program, 1, "calls the move off");
      }
      s.used = s.word;
      return go(s, program, s.has_child[s.word] != 0 ? 2 : 5, "loads the word");
    // reset(): the flag first.
    case 2: s.is_written[where] = 1; return go(s, program, 3, "begins to clear the flag");
    case 3:
      s.has_child[where] = 0;
      s.is_written[where] = 0;
      return go(s, program, 4, "has cleared the flag");
    case 4:
      s.child[where] = 0;
      s.header = nowhere;
      return go(s, program, 8, "destroys the pointer and its object");
    // emplace(): the pointer first.
    case 5:
      s.child[where] = 1;
      s.header = where;
      return go(s, program, 6, "makes the pointer and its object");
    case 6: s.is_written[where] = 1; return go(s, program, 7, "begins to set the flag");
    case 7:
      s.has_child[where] = 1;
      s.is_written[where] = 0;
      return go(s, program, 8, "has set the flag");
    case 8:
      s.in_scope = 0;
      s.waited_for = 0;
      s.used = nowhere;
      return go(s, program, --s.rounds_left > 0 ? 0 : ended, "ends its scope");
    default: return nullptr;
  }
}

const char* follow(world& s) {
  switch (s.at[evacuator]) {
    case 10: {
      const std::uint8_t visited = s.without == bug::visits_the_copy ? copy : old_place;
      require(s.is_written[visited] == 0, "nobody writes to what is visited");
      require(visited == copy || s.is_kept != 0, "what is visited is not another's");
      return go(s, evacuator, s.has_child[visited] != 0 ? 11 : 14, "visits the object");
    }
    case 11:
      if (s.without == bug::follows_old_word) s.header = old_place;
      return go(s, evacuator, s.without == bug::follows_old_word ? 14 : 12, "follows the pointer");
    case 12: s.seen = s.child[copy]; return go(s, evacuator, s.seen != 0 ? 13 : 14, "loads the pointer's word");
    case 13:
      if (s.child[copy] != 0 || s.without == bug::word_not_locked) s.header = copy;
      return go(s, evacuator, 14, "looks again under the header's lock, and writes it");
    case 14: s.is_kept = 0; return go(s, evacuator, ended, "gives the old place up");
    default: return nullptr;
  }
}

const char* evacuate(world& s) {
  switch (s.at[evacuator]) {
    case 0: s.word |= moving; return go(s, evacuator, 1, "marks the word");
    case 1:
      s.waited_for = s.in_scope;
      return go(s, evacuator, s.without == bug::no_grace_period ? 3 : 2, "begins a grace period");
    case 2: return s.waited_for == 0 ? go(s, evacuator, 3, "sees it over") : nullptr;
    // Racing with a program that has called the move off; then nobody uses the copy.
    case 3: s.has_child[copy] = s.has_child[old_place]; return go(s, evacuator, 4, "copies the flag");
    case 4: s.child[copy] = s.child[old_place]; return go(s, evacuator, 5, "copies the pointer");
    case 5:
      if (s.word != (old_place | moving)) return go(s, evacuator, ended, "finds that the move was called off");
      s.word = copy;
      if (s.without == bug::follows_nothing) return go(s, evacuator, 14, "swings the word");
      if (s.without == bug::gives_up_early) s.is_kept = 0;
      return go(s, evacuator, 10, "swings the word");
    default: return follow(s);
  }
}

// Places another object in the old place.
const char* reuse(world& s) {
  if (s.at[reuser] != 0) return nullptr;
  if (s.is_kept != 0) return s.at[evacuator] == ended ? go(s, reuser, ended, "gets nothing") : nullptr;
  s.has_child[old_place] = s.has_child[old_place] == 0 ? 1 : 0;
  s.child[old_place] = 1;
  return go(s, reuser, ended, "places another object");
}

void check_end(const world& s) {
  const std::uint8_t where = s.word;
  require((where & moving) == 0, "no move is left unfinished");
  require(s.has_child[where] == s.child[where], "the flag says whether there is a pointer");
  require(s.header == (s.child[where] != 0 ? where : nowhere), "the header names the owner");
}

verdict explore(bug without, bool has_child, std::uint8_t rounds) {
  const auto has_ended = [](thread who) { return [who](const world& s) { return s.at[who] == ended; }; };
  explorer<world> all({{"program", use, has_ended(program)},
                       {"evacuator", evacuate, has_ended(evacuator)},
                       {"reuser", reuse, has_ended(reuser)}},
                      check_end);
  world initial;
  initial.without = without;
  initial.rounds_left = rounds;
  initial.has_child[old_place] = has_child ? 1 : 0;
  initial.child[old_place] = has_child ? 1 : 0;
  initial.header = has_child ? old_place : nowhere;
  return all.explore(initial);
}

constexpr std::uint8_t rounds = 3;

void expect_found(bug without, const char* promise) {
  const verdict full = explore(without, true, rounds);
  const verdict empty = explore(without, false, rounds);
  EXPECT_TRUE(full.breaks(promise) || empty.breaks(promise)) << full.trace << empty.trace;
}

TEST(moved_children_model, holds_in_every_order) {
  for (const bool has_child : {false, true}) {
    for (std::uint8_t count = 1; count <= rounds; ++count) {
      const verdict found = explore(bug::none, has_child, count);
      EXPECT_TRUE(found.holds) << found.trace;
      EXPECT_GT(found.states, 50u);
    }
  }
}
TEST(moved_children_model, finds_the_flag_that_is_read_in_the_copy) {
  expect_found(bug::visits_the_copy, "nobody writes to what is visited");
}
TEST(moved_children_model, finds_the_copy_without_a_grace_period) {
  EXPECT_FALSE(explore(bug::no_grace_period, true, rounds).holds);
}
TEST(moved_children_model, finds_the_header_that_names_the_old_place) {
  expect_found(bug::follows_old_word, "the header names the owner");
}
TEST(moved_children_model, finds_the_pointer_that_is_not_followed) {
  expect_found(bug::follows_nothing, "the header names the owner");
}
TEST(moved_children_model, finds_the_old_place_that_is_another_s_too_early) {
  expect_found(bug::gives_up_early, "what is visited is not another's");
}
TEST(moved_children_model, finds_the_header_of_a_child_that_is_gone) {
  expect_found(bug::word_not_locked, "the header names the owner");
}

}  // namespace
}  // namespace far::model
