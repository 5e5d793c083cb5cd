// A model of the runtimes that live (heap/living_runtimes.cc), without locks: a runtime ends while a thread asks in
// whose far heap an address lies, and another begins in its place, as the same object and in the same entry, with a far
// heap elsewhere. And of the process-wide runtime: two threads make one, a third cannot start its own, and another asks
// for it (runtime::process()); or one ends while another asks.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>

#include "tests/model/explorer.h"

namespace far::model {
namespace {

constexpr std::uint8_t ended = 100;
constexpr std::uint8_t nobody = 0;

// ---- in whose far heap an address lies ----

enum class bug : std::uint8_t {
  none,
  no_second_look,     // the bounds are taken for those of the owner that was seen before
  owner_seen_twice,   // the second look is at the owner, which may be another with the same address
  owner_comes_first,  // an entry has an owner before it has the bounds
  changes_uncounted,  // a runtime that begins does not count the change of the entry
  counted_late,       // ... or not before it has set the bounds
};

enum thread : std::uint8_t { maker, local_user, far_user, threads };

// The first far heap has addresses 10 to 19, the second 30 to 39; local memory is between them.
constexpr std::uint8_t local_address = 25;
constexpr std::uint8_t far_address = 35;
constexpr std::uint8_t the_runtime = 1;

struct world {
  std::uint8_t at[threads] = {};
  bug without = bug::none;
  std::uint8_t changes = 0;
  std::uint8_t base = 10;
  std::uint8_t end = 20;
  std::uint8_t owner = the_runtime;
  std::uint8_t is_second_there = 0;  // its constructor has returned
  std::uint8_t seen_changes[threads] = {};
  std::uint8_t seen_owner[threads] = {};
  std::uint8_t seen_base[threads] = {};
  std::uint8_t seen_end[threads] = {};
};

template <typename World>
const char* go(World& s, std::uint8_t who, std::uint8_t to, const char* did) {
  s.at[who] = to;
  return did;
}

// remove() of the first runtime, and add() of the second.
const char* end_and_begin(world& s) {
  const bool early = s.without == bug::owner_comes_first;
  switch (s.at[maker]) {
    case 0: s.owner = nobody; return go(s, maker, 1, "takes the owner out");
    case 1:
      if (s.without != bug::changes_uncounted && s.without != bug::counted_late) ++s.changes;
      return go(s, maker, early ? 4 : 2, "counts the change");
    case 2: s.base = 30; return go(s, maker, 3, "sets where the far heap begins");
    case 3: s.end = 40; return go(s, maker, early ? 5 : 4, "sets where it ends");
    case 4: s.owner = the_runtime; return go(s, maker, early ? 2 : 5, "sets the owner");
    case 5:
      if (s.without == bug::counted_late) ++s.changes;
      s.is_second_there = 1;
      return go(s, maker, ended, "has begun");
    default: return nullptr;
  }
}

bool is_same(const world& s, thread who) {
  switch (s.without) {
    case bug::no_second_look: return true;
    case bug::owner_seen_twice: return s.owner == s.seen_owner[who];
    default: return s.changes == s.seen_changes[who];
  }
}

// find(), of an address that a thread has.
const char* find(world& s, thread who, std::uint8_t address) {
  switch (s.at[who]) {
    case 0:
      if (who == far_user && s.is_second_there == 0) return nullptr;
      s.seen_changes[who] = s.changes;
      return go(s, who, 1, "loads the count of changes");
    case 1: s.seen_owner[who] = s.owner; return go(s, who, 2, "loads the owner");
    case 2: s.seen_base[who] = s.base; return go(s, who, 3, "loads where the far heap begins");
    case 3: s.seen_end[who] = s.end; return go(s, who, 4, "loads where it ends");
    case 4: {
      const bool is_found =
          s.seen_owner[who] != nobody && address >= s.seen_base[who] && address < s.seen_end[who] && is_same(s, who);
      require(is_found || who != far_user, "an address of a far heap has its runtime");
      require(!is_found || who != local_user, "an address of local memory has none");
      return go(s, who, ended, "has an answer");
    }
    default: return nullptr;
  }
}

verdict explore(bug without) {
  const auto has_ended = [](thread who) { return [who](const world& s) { return s.at[who] == ended; }; };
  explorer<world> all(
      {{"maker", end_and_begin, has_ended(maker)},
       {"user of local memory", [](world& s) { return find(s, local_user, local_address); }, has_ended(local_user)},
       {"user of far memory", [](world& s) { return find(s, far_user, far_address); }, has_ended(far_user)}},
      [](const world&) {});
  world initial;
  initial.without = without;
  return all.explore(initial);
}

void expect_local_found(bug without) {
  const verdict found = explore(without);
  EXPECT_TRUE(found.breaks("an address of local memory has none")) << found.trace;
}

TEST(living_runtimes_model, holds_in_every_order) {
  const verdict found = explore(bug::none);
  EXPECT_TRUE(found.holds) << found.trace;
  EXPECT_GT(found.states, 50u);
}
TEST(living_runtimes_model, finds_the_bounds_of_two_runtimes) {
  expect_local_found(bug::no_second_look);
  expect_local_found(bug::owner_seen_twice);
}
TEST(living_runtimes_model, finds_the_change_that_is_not_counted_in_time) {
  expect_local_found(bug::changes_uncounted);
  expect_local_found(bug::counted_late);
}
// An address of the second far heap is known once its runtime is there; one of local memory always is.
TEST(living_runtimes_model, finds_the_owner_before_its_bounds) {
  expect_local_found(bug::owner_comes_first);
}

// ---- the process-wide one ----

enum class wide_bug : std::uint8_t {
  none,
  looks_and_stores,   // the second maker overwrites the first one's runtime
  takes_out_anyones,  // a runtime that could not be the process-wide one unregisters whichever is, when it goes
  gives_up,           // runtime::process() fails when another was faster than its own
  looks_once_more,    // ... or when that has ended meanwhile
  is_early,           // a runtime is the process-wide one before the last step of its start that may fail
};

enum wide_thread : std::uint8_t { first_maker, second_maker, failing_maker, asker, wide_threads };

struct wide_world {
  std::uint8_t at[wide_threads] = {};
  wide_bug without = wide_bug::none;
  std::uint8_t process_wide = nobody;  // the number of its maker, from 1 on
  std::uint8_t saw_none[wide_threads] = {};
  std::uint8_t is_registered[wide_threads] = {};
  std::uint8_t answer = nobody;
};

// The constructor of a process-wide runtime, as far as make_process_wide(), and remove() if that fails.
const char* make(wide_world& s, std::uint8_t who, std::uint8_t then) {
  const auto mine = static_cast<std::uint8_t>(who + 1);
  switch (s.at[who]) {
    case 10: s.saw_none[who] = s.process_wide == nobody ? 1 : 0; return go(s, who, 11, "looks for another");
    case 11: {
      const bool is_free = s.without == wide_bug::looks_and_stores ? s.saw_none[who] != 0 : s.process_wide == nobody;
      if (!is_free) return go(s, who, 12, "finds another");
      for (std::uint8_t& one : s.is_registered) require(one == 0, "there is one process-wide runtime");
      s.process_wide = mine;
      s.is_registered[who] = 1;
      return go(s, who, then, "makes its own the process-wide one");
    }
    case 12:
      if (s.without == wide_bug::takes_out_anyones || s.process_wide == mine) s.process_wide = nobody;
      s.is_registered[who] = 0;
      return go(s, who, who == asker ? 20 : ended, "takes its own out");
    default: return nullptr;
  }
}

// One that cannot answer commands, and had better not be found.
const char* fail(wide_world& s) {
  if (s.at[failing_maker] != 30) return make(s, failing_maker, 30);
  return go(s, failing_maker, 12, "fails to start");
}

// runtime::process().
const char* ask(wide_world& s) {
  switch (s.at[asker]) {
    case 0:
      s.answer = s.process_wide;
      return go(s, asker, s.answer != nobody ? ended : 10, "looks for the process-wide runtime");
    case 20:
      if (s.without != wide_bug::gives_up) s.answer = s.process_wide;
      if (s.answer == nobody && s.without != wide_bug::gives_up && s.without != wide_bug::looks_once_more) {
        return go(s, asker, 10, "finds that there is room now");
      }
      return go(s, asker, ended, "looks again");
    case 21: s.answer = asker + 1; return go(s, asker, ended, "has made one");
    default: return make(s, asker, 21);
  }
}

std::function<bool(const wide_world&)> has_ended_wide(wide_thread who) {
  return [who](const wide_world& s) { return s.at[who] == ended; };
}

verdict explore_process_wide(wide_bug without) {
  explorer<wide_world> all(
      {{"first maker", [](wide_world& s) { return make(s, first_maker, ended); }, has_ended_wide(first_maker)},
       {"second maker", [](wide_world& s) { return make(s, second_maker, ended); }, has_ended_wide(second_maker)},
       {"failing maker", fail, has_ended_wide(failing_maker)},
       {"asker", ask, has_ended_wide(asker)}},
      [](const wide_world& s) {
        require(s.process_wide != nobody && s.is_registered[s.process_wide - 1] != 0, "the runtime stays registered");
        require(s.answer == s.process_wide, "who asks gets the process-wide runtime");
      });
  wide_world initial;
  initial.without = without;
  initial.at[first_maker] = initial.at[second_maker] = 10;
  initial.at[failing_maker] = without == wide_bug::is_early ? 10 : 30;
  return all.explore(initial);
}

verdict explore_end_of_process_wide(wide_bug without) {
  explorer<wide_world> all(
      {{"maker", [](wide_world& s) { return make(s, first_maker, 12); }, has_ended_wide(first_maker)},
       {"asker", ask, has_ended_wide(asker)}},
      [](const wide_world& s) { require(s.answer != nobody, "who asks gets a runtime"); });
  wide_world initial;
  initial.without = without;
  initial.at[first_maker] = 10;
  return all.explore(initial);
}

TEST(process_wide_model, holds_in_every_order) {
  for (const auto explore_one : {explore_process_wide, explore_end_of_process_wide}) {
    const verdict found = explore_one(wide_bug::none);
    EXPECT_TRUE(found.holds) << found.trace;
  }
}
TEST(process_wide_model, finds_the_second_that_overwrites_the_first) {
  EXPECT_TRUE(explore_process_wide(wide_bug::looks_and_stores).breaks("there is one process-wide runtime"));
}
TEST(process_wide_model, finds_the_failed_one_that_unregisters_another) {
  EXPECT_FALSE(explore_process_wide(wide_bug::takes_out_anyones).holds);
}
TEST(process_wide_model, finds_the_process_that_gives_up) {
  EXPECT_TRUE(explore_process_wide(wide_bug::gives_up).breaks("who asks gets the process-wide runtime"));
  EXPECT_TRUE(explore_end_of_process_wide(wide_bug::looks_once_more).breaks("who asks gets a runtime"));
}
TEST(process_wide_model, finds_the_one_that_is_found_before_it_has_started) {
  EXPECT_FALSE(explore_process_wide(wide_bug::is_early).holds);
}

}  // namespace
}  // namespace far::model
