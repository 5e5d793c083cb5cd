// A model of tags that are given back (heap/tags.h, object_heap::add_tag, leaving_objects): the number of a tag goes to
// another one, while a thread allocates with the old tag, the evacuator copies an object of its, and the evictor calls
// handlers. No handler is given an object of another tag, or runs when it is destroyed.
#include <gtest/gtest.h>

#include "tests/model/explorer.h"

namespace far::model {
namespace {

enum class bug : std::uint8_t {
  none,
  no_grace_period,      // the number is taken off the pages though scopes are open
  pages_keep_number,    // ... is not taken off the pages
  tag_seen_outside,     // an allocation looks its tag up before its scope
  no_second_look,       // a copy's tag is the one that the number has by now
  handler_goes_early,   // ... while a call is running
  handler_comes_early,  // the next one, while a call runs that saw the page before
  old_number,           // a call does not look whether the page still has the number
};

enum thread : std::uint8_t { owner, allocator, copier, evictor, threads };
constexpr std::uint8_t ended = 100;

// The page of an old object, those in which one is placed while the tag is given back, and one of the next tag.
enum page : std::uint8_t { old_page, allocated, copied, next_page, pages };
enum tag_state : std::uint8_t { first, given_back, second };  // of the number
enum tag : std::uint8_t { none, of_first, of_second };        // of objects and handlers

struct world {
  std::uint8_t at[threads] = {};
  bug without = bug::none;
  std::uint8_t state = first;
  std::uint8_t has_number[pages] = {1, 0, 0, 0};
  std::uint8_t object[pages] = {of_first, none, none, none};
  std::uint8_t handler = of_first;
  std::uint8_t is_destroyed = 0;  // the first one
  std::uint8_t running = 0;
  std::uint8_t in_scope[threads] = {};
  std::uint8_t waited_for[threads] = {};  // by the grace period
  std::uint8_t chosen[threads] = {};      // whether a new place has the number
  std::uint8_t seen[threads] = {};        // the number of the page that it looks at
  std::uint8_t called = none;             // the handler
  std::uint8_t visited = 0;               // which page the evictor is at
};

const char* go(world& s, thread who, std::uint8_t to, const char* did) {
  s.at[who] = to;
  return did;
}

// give_back(), then add_tag() for the second.
const char* give_back_and_make_another(world& s) {
  switch (s.at[owner]) {
    case 0: s.state = given_back; return go(s, owner, 1, "gives the tag back");
    case 1:
      s.handler = none;
      return go(s, owner, s.without == bug::handler_goes_early ? 3 : 2, "takes the handler away");
    case 2: return s.running == 0 ? go(s, owner, 3, "sees that no call is running") : nullptr;
    case 3: s.is_destroyed = 1; return go(s, owner, 4, "destroys the handler");
    case 4:
      for (const thread who : {allocator, copier}) s.waited_for[who] = s.in_scope[who];
      return go(s, owner, s.without == bug::no_grace_period ? 6 : 5, "begins a grace period");
    case 5:
      if ((s.waited_for[allocator] | s.waited_for[copier]) != 0) return nullptr;
      return go(s, owner, s.without == bug::pages_keep_number ? 9 : 6, "sees it over");
    case 6: s.has_number[old_page] = 0; return go(s, owner, 7, "takes the number off the old page");
    case 7: s.has_number[allocated] = 0; return go(s, owner, 8, "... the allocated page");
    case 8: s.has_number[copied] = 0; return go(s, owner, 9, "... the copied page");
    case 9:
      if (s.running != 0 && s.without != bug::handler_comes_early) return nullptr;
      return go(s, owner, 10, "sees that no call is running");
    case 10: s.handler = of_second; return go(s, owner, 11, "sets the next handler");
    case 11: s.state = second; return go(s, owner, 12, "begins the next tag");
    case 12:
      s.has_number[next_page] = 1;
      s.object[next_page] = of_second;
      return go(s, owner, ended, "places an object of the next tag");
    default: return nullptr;
  }
}

void end_scope(world& s, thread who) {
  s.in_scope[who] = 0;
  s.waited_for[who] = 0;
}

// allocate() with the key of the first tag, into a fresh segment.
const char* allocate(world& s) {
  const bool early = s.without == bug::tag_seen_outside;
  switch (s.at[allocator]) {
    case 0:
      if (early) s.chosen[allocator] = s.state == first ? 1 : 0;
      return go(s, allocator, 1, "will allocate");
    case 1: s.in_scope[allocator] = 1; return go(s, allocator, early ? 3 : 2, "opens a scope");
    case 2: s.chosen[allocator] = s.state == first ? 1 : 0; return go(s, allocator, 3, "looks the tag up");
    case 3:
      s.has_number[allocated] = s.chosen[allocator];
      s.object[allocated] = of_first;
      return go(s, allocator, 4, "places an object of the first tag");
    case 4: end_scope(s, allocator); return go(s, allocator, ended, "ends its scope");
    default: return nullptr;
  }
}

// evacuator::take_place() with tag_for_copy().
const char* copy(world& s) {
  switch (s.at[copier]) {
    case 0: s.in_scope[copier] = 1; return go(s, copier, 1, "opens a scope");
    case 1: s.seen[copier] = s.has_number[old_page]; return go(s, copier, 2, "reads the old page's number");
    case 2:
      s.chosen[copier] = s.seen[copier] != 0 && s.state != given_back ? 1 : 0;
      return go(s, copier, s.without == bug::no_second_look ? 4 : 3, "looks up the tag of that number");
    case 3: return go(s, copier, s.has_number[old_page] == s.seen[copier] ? 4 : 1, "looks at the page again");
    case 4:
      s.has_number[copied] = s.chosen[copier];
      s.object[copied] = of_first;
      return go(s, copier, 5, "places the copy");
    case 5: end_scope(s, copier); return go(s, copier, ended, "ends its scope");
    default: return nullptr;
  }
}

const char* visit_next(world& s, const char* did) {
  s.called = none;
  return go(s, evictor, ++s.visited == pages ? ended : 0, did);
}

void require_handler_is_right(const world& s) {
  require(s.called != of_first || s.is_destroyed == 0, "a handler that runs is not destroyed");
  require(s.called == s.object[s.visited], "a handler is given objects of its tag");
}

// leaving_objects::call() for each page.
const char* evict(world& s) {
  switch (s.at[evictor]) {
    case 0:
      s.seen[evictor] = s.has_number[s.visited];
      if (s.object[s.visited] == none || s.seen[evictor] == 0) return visit_next(s, "finds a page without the number");
      return go(s, evictor, 1, "finds a page with the number");
    case 1: ++s.running; return go(s, evictor, s.without == bug::old_number ? 3 : 2, "counts its call");
    case 2: return go(s, evictor, s.has_number[s.visited] != 0 ? 3 : 6, "looks at the number again");
    case 3: s.called = s.handler; return go(s, evictor, s.called != none ? 4 : 6, "looks for the handler");
    case 4: require_handler_is_right(s); return go(s, evictor, 5, "is in the handler");
    case 5: require_handler_is_right(s); return go(s, evictor, 6, "returns from the handler");
    case 6: --s.running; return visit_next(s, "ends its call");
    default: return nullptr;
  }
}

void check_end(const world& s) {
  require(s.running == 0 && s.handler == of_second, "the second tag has its handler");
  for (const page each : {old_page, allocated, copied}) {
    require(s.has_number[each] == 0 || s.without == bug::pages_keep_number, "objects of the first tag have no number");
  }
}

verdict explore(bug without) {
  const auto has_ended = [](thread who) { return [who](const world& s) { return s.at[who] == ended; }; };
  explorer<world> all({{"owner", give_back_and_make_another, has_ended(owner)},
                       {"allocator", allocate, has_ended(allocator)},
                       {"copier", copy, has_ended(copier)},
                       {"evictor", evict, has_ended(evictor)}},
                      check_end);
  world initial;
  initial.without = without;
  return all.explore(initial);
}

constexpr const char* wrong_objects = "a handler is given objects of its tag";
constexpr const char* destroyed = "a handler that runs is not destroyed";

TEST(tags_model, holds_in_every_order) {
  const verdict found = explore(bug::none);
  EXPECT_TRUE(found.holds) << found.trace;
  EXPECT_GT(found.states, 1'000u);
}
TEST(tags_model, finds_the_number_that_is_used_again_under_open_scopes) {
  EXPECT_FALSE(explore(bug::no_grace_period).holds);
}
TEST(tags_model, finds_the_pages_that_keep_their_number) {
  EXPECT_TRUE(explore(bug::pages_keep_number).breaks(wrong_objects));
}
TEST(tags_model, finds_the_tag_that_is_looked_up_outside_the_scope) {
  EXPECT_FALSE(explore(bug::tag_seen_outside).holds);
}
TEST(tags_model, finds_the_copy_with_the_tag_of_others) {
  EXPECT_FALSE(explore(bug::no_second_look).holds);
}
TEST(tags_model, finds_the_handler_that_is_destroyed_in_a_call) {
  EXPECT_TRUE(explore(bug::handler_goes_early).breaks(destroyed));
}
TEST(tags_model, finds_the_next_handler_in_a_call_of_before) {
  EXPECT_TRUE(explore(bug::handler_comes_early).breaks(wrong_objects));
}
TEST(tags_model, finds_the_call_that_trusts_an_old_number) {
  EXPECT_TRUE(explore(bug::old_number).breaks(wrong_objects));
}

}  // namespace
}  // namespace far::model
