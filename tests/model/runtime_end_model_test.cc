// A model of the end of a runtime (heap/runtime.cc: ~runtime and ~parts; heap/evacuator.cc: loop; heap/allocator.cc:
// close and stop; heap/living_runtimes.cc; heap/process_control.cc): a fiber of it still runs, the process answers a
// command, the evacuator of another runtime looks for an owner in its far heap, its own evacuator makes rounds, its
// pager's evictor asks about its objects, and a thread that has a segment of it open ends. Nobody uses a part that is
// gone, everybody ends, and nobody is left who knows the runtime.
#include <gtest/gtest.h>

#include "tests/model/explorer.h"

namespace far::model {
namespace {

enum class bug : std::uint8_t {
  none,
  leaves_fibers,          // the parts go while a fiber runs
  answers_to_the_end,     // commands find the runtime after its pager is gone
  answers_without_lock,   // the runtime is taken out of the answered ones without their lock
  moves_go_on,            // the runtime is taken out of the living ones without the lock of all moves
  stays_known,            // it is not taken out of the living ones
  stops_unlocked,         // the evacuator is told to stop without the lock that it waits with
  not_joined,             // the evacuator is told to stop, and not waited for
  counted_late,           // a thread that closes a segment counts itself when it has let the allocators' lock go
  not_counted_out,        // the allocator does not wait for those that are closing segments
  allocator_after_pager,  // the allocator stops when the pager is gone
  objects_before_pager,   // the objects go before the evictor that asks about them
};

enum thread : std::uint8_t { ender, fiber, control, other_evacuator, own_evacuator, evictor, closer, threads };
constexpr std::uint8_t ended = 100;

struct world {
  std::uint8_t at[threads] = {};
  bug without = bug::none;
  std::uint8_t pager_is_there = 1;
  std::uint8_t objects_are_there = 1;
  std::uint8_t fibers = 1;
  std::uint8_t is_answered = 1;
  std::uint8_t answers_locked = 0;
  std::uint8_t is_living = 1;
  std::uint8_t moves_locked = 0;
  std::uint8_t waiting_locked = 0;  // evacuator::waiting_
  std::uint8_t is_stopping = 0;
  std::uint8_t sleeps = 0;       // the own evacuator
  std::uint8_t rounds_left = 1;  // that a pause which is over begins
  std::uint8_t evictor_stops = 0;
  std::uint8_t allocators_locked = 0;
  std::uint8_t is_in_allocators = 1;
  std::uint8_t closing = 0;
};

const char* go(world& s, thread who, std::uint8_t to, const char* did) {
  s.at[who] = to;
  return did;
}

const char* lock(world& s, thread who, std::uint8_t& which, std::uint8_t to, const char* did) {
  if (which != 0) return nullptr;
  which = 1;
  return go(s, who, to, did);
}
const char* unlock(world& s, thread who, std::uint8_t& which, std::uint8_t to, const char* did) {
  which = 0;
  return go(s, who, to, did);
}

void require_objects(const world& s) {
  require(s.objects_are_there != 0, "an object heap is used while it is there");
}
void require_pager(const world& s) {
  require(s.pager_is_there != 0, "a pager is used while it is there");
}
const char* use(world& s, thread who, std::uint8_t to, const char* did) {
  require_objects(s);
  require_pager(s);
  return go(s, who, to, did);
}

// Steps 20 on of the end: the parts, from the last.
const char* end_parts(world& s) {
  switch (s.at[ender]) {
    case 20:
      if (s.without != bug::stops_unlocked) return lock(s, ender, s.waiting_locked, 21, "locks the evacuator's wait");
      return go(s, ender, 21, "does not lock the evacuator's wait");
    case 21:
      s.is_stopping = 1;
      if (s.without != bug::stops_unlocked) s.waiting_locked = 0;
      return go(s, ender, 22, "tells the evacuator to stop");
    case 22: s.sleeps = 0; return go(s, ender, 23, "wakes it");
    case 23:
      if (s.at[own_evacuator] != ended && s.without != bug::not_joined) return nullptr;
      return go(s, ender, s.without == bug::allocator_after_pager ? 30 : 24, "joins it");
    // allocator::stop()
    case 24: return lock(s, ender, s.allocators_locked, 25, "locks the allocators");
    case 25: s.is_in_allocators = 0; return unlock(s, ender, s.allocators_locked, 26, "takes its own out");
    case 26:
      if (s.closing > 0 && s.without != bug::not_counted_out) return nullptr;
      return go(s, ender, s.pager_is_there != 0 ? 27 : 33, "sees that nobody closes a segment");
    case 27:
      if (s.without == bug::objects_before_pager) s.objects_are_there = 0;
      return go(s, ender, 30, "begins to stop the pager");
    case 30: s.evictor_stops = 1; return go(s, ender, 31, "tells the evictor to stop");
    case 31: return s.at[evictor] == ended ? go(s, ender, 32, "joins the evictor") : nullptr;
    case 32: s.pager_is_there = 0; return go(s, ender, s.is_in_allocators != 0 ? 24 : 33, "destroys the pager");
    case 33:
      s.objects_are_there = 0;
      return go(s, ender, s.without == bug::answers_to_the_end ? 2 : ended, "destroys the objects");
    default: return nullptr;
  }
}

const char* end(world& s) {
  const bool late = s.without == bug::answers_to_the_end;
  switch (s.at[ender]) {
    case 0: return go(s, ender, 1, "begins to end the runtime");
    case 1:
      if (s.fibers > 0 && s.without != bug::leaves_fibers) return nullptr;
      return go(s, ender, late ? 5 : 2, "sees that its fibers have ended");
    case 2:
      if (s.without == bug::answers_without_lock) return go(s, ender, 3, "does not lock the answered ones");
      return lock(s, ender, s.answers_locked, 3, "locks the answered ones");
    case 3:
      s.is_answered = 0;
      if (s.without != bug::answers_without_lock) s.answers_locked = 0;
      return go(s, ender, late ? ended : 5, "takes it out of the answered ones");
    case 5:
      if (s.without == bug::stays_known) return go(s, ender, 20, "leaves it among the living");
      if (s.without == bug::moves_go_on) return go(s, ender, 6, "does not hold moves up");
      return lock(s, ender, s.moves_locked, 6, "holds moves up");
    case 6:
      s.is_living = 0;
      if (s.without != bug::moves_go_on) s.moves_locked = 0;
      return go(s, ender, 20, "takes it out of the living");
    default: return end_parts(s);
  }
}

const char* run_fiber(world& s) {
  switch (s.at[fiber]) {
    case 0: return use(s, fiber, 1, "dereferences");
    case 1: return use(s, fiber, 2, "waits for a page");
    case 2: --s.fibers; return go(s, fiber, ended, "ends");
    default: return nullptr;
  }
}

const char* answer(world& s) {
  switch (s.at[control]) {
    case 0: return lock(s, control, s.answers_locked, 1, "locks the answered ones");
    case 1: return go(s, control, s.is_answered != 0 ? 2 : 4, "looks for the runtime");
    case 2: return use(s, control, 3, "resizes it");
    case 3: return use(s, control, 4, "reads its counts");
    case 4: return unlock(s, control, s.answers_locked, ended, "has answered");
    default: return nullptr;
  }
}

const char* evacuate_other(world& s) {
  switch (s.at[other_evacuator]) {
    case 0: return lock(s, other_evacuator, s.moves_locked, 1, "locks all moves");
    case 1: return go(s, other_evacuator, s.is_living != 0 ? 2 : 4, "looks for the owner's runtime");
    case 2: return use(s, other_evacuator, 3, "sees that the owner's page is here");
    case 3: return use(s, other_evacuator, 4, "changes the owner");
    case 4: return unlock(s, other_evacuator, s.moves_locked, ended, "ends its move");
    default: return nullptr;
  }
}

// evacuator::loop(). Its pause need not end: the stop must not depend on that.
const char* evacuate_own(world& s) {
  switch (s.at[own_evacuator]) {
    case 0: return lock(s, own_evacuator, s.waiting_locked, 1, "locks its wait");
    case 1:
      if (s.is_stopping != 0) return unlock(s, own_evacuator, s.waiting_locked, ended, "is to stop");
      return go(s, own_evacuator, 2, "is not to stop");
    case 2: s.sleeps = 1; return unlock(s, own_evacuator, s.waiting_locked, 3, "sleeps");
    case 3:
      if (s.sleeps == 0) return go(s, own_evacuator, 0, "is woken");
      if (s.rounds_left == 0) return nullptr;
      --s.rounds_left;
      s.sleeps = 0;
      return go(s, own_evacuator, 4, "has slept long enough");
    case 4: return lock(s, own_evacuator, s.moves_locked, 5, "locks all moves");
    case 5: return use(s, own_evacuator, 6, "copies an object");
    case 6: require_objects(s); return unlock(s, own_evacuator, s.moves_locked, 7, "has moved it");
    case 7: return use(s, own_evacuator, 0, "discards its page");
    default: return nullptr;
  }
}

const char* evict(world& s) {
  if (s.at[evictor] == ended) return nullptr;
  if (s.evictor_stops != 0) return go(s, evictor, ended, "stops");
  if (s.at[evictor] != 0) return nullptr;
  require_objects(s);
  require_pager(s);
  return go(s, evictor, 1, "asks which pages stay");
}

// allocator::close(), of a thread that ends.
const char* close_segment(world& s) {
  const bool late = s.without == bug::counted_late;
  switch (s.at[closer]) {
    case 0: return lock(s, closer, s.allocators_locked, 1, "locks the allocators");
    case 1:
      if (s.is_in_allocators == 0) return unlock(s, closer, s.allocators_locked, ended, "finds the allocator gone");
      if (!late) ++s.closing;
      return unlock(s, closer, s.allocators_locked, 2, "finds the allocator");
    case 2:
      if (late) ++s.closing;
      return go(s, closer, 3, "leaves the allocators alone");
    case 3: return use(s, closer, 4, "closes its segment");
    case 4: return use(s, closer, 5, "discards a page");
    case 5: --s.closing; return go(s, closer, ended, "counts itself out");
    default: return nullptr;
  }
}

verdict explore(bug without) {
  const auto has_ended = [](thread who) { return [who](const world& s) { return s.at[who] == ended; }; };
  explorer<world> all({{"ender", end, has_ended(ender)},
                       {"fiber", run_fiber, has_ended(fiber)},
                       {"control", answer, has_ended(control)},
                       {"other evacuator", evacuate_other, has_ended(other_evacuator)},
                       {"own evacuator", evacuate_own, has_ended(own_evacuator)},
                       {"evictor", evict, has_ended(evictor)},
                       {"closer", close_segment, has_ended(closer)}},
                      [](const world& s) {
                        require(s.is_living == 0 && s.is_answered == 0 && s.is_in_allocators == 0,
                                "nobody knows a runtime that has ended");
                      });
  world initial;
  initial.without = without;
  return all.explore(initial);
}

constexpr const char* objects = "an object heap is used while it is there";
constexpr const char* pager = "a pager is used while it is there";

void expect_used_too_late(bug without) {
  const verdict found = explore(without);
  EXPECT_TRUE(found.breaks(objects) || found.breaks(pager)) << found.trace;
}

TEST(runtime_end_model, holds_in_every_order) {
  const verdict found = explore(bug::none);
  EXPECT_TRUE(found.holds) << found.trace;
  EXPECT_GT(found.states, 10'000u);
}
TEST(runtime_end_model, finds_the_fiber_that_runs_on) {
  expect_used_too_late(bug::leaves_fibers);
}
TEST(runtime_end_model, finds_the_answer_of_a_runtime_that_has_gone) {
  expect_used_too_late(bug::answers_to_the_end);
  expect_used_too_late(bug::answers_without_lock);
}
TEST(runtime_end_model, finds_the_owner_in_a_far_heap_that_has_gone) {
  expect_used_too_late(bug::moves_go_on);
  const verdict known = explore(bug::stays_known);
  EXPECT_TRUE(known.breaks("nobody knows a runtime that has ended")) << known.trace;
}
TEST(runtime_end_model, finds_the_wake_that_is_lost) {
  EXPECT_TRUE(explore(bug::stops_unlocked).breaks("deadlock"));
}
TEST(runtime_end_model, finds_the_round_that_goes_on) {
  expect_used_too_late(bug::not_joined);
}
TEST(runtime_end_model, finds_the_segment_that_is_closed_too_late) {
  expect_used_too_late(bug::counted_late);
  expect_used_too_late(bug::not_counted_out);
  expect_used_too_late(bug::allocator_after_pager);
}
TEST(runtime_end_model, finds_the_evictor_that_asks_about_nothing) {
  expect_used_too_late(bug::objects_before_pager);
}

}  // namespace
}  // namespace far::model
