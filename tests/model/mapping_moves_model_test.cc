// A model of mremap (pager/memory_moves.cc: remap, take_target, move_parts) beside other calls on the map of addresses
// (pager/mapped_parts.h: alter, take). There are two places with a page each. Two threads move the page from one place
// to the other, in opposite directions, and a third one locks both places, as mlock does. The kernel moves no locked
// page.
#include <gtest/gtest.h>

#include "tests/model/explorer.h"

namespace far::model {
namespace {

enum class bug : std::uint8_t { none, only_looks, waits_for_target };
enum thread : std::uint8_t { there, back, locker, threads };
constexpr std::uint8_t ended = 100;
constexpr std::uint8_t nobody = 200;

struct place {
  std::uint8_t is_used = 1;
  std::uint8_t out_by = nobody;  // the thread that has taken it out of the map
  std::uint8_t locked = 0;       // as the map says
  std::uint8_t kernel_locks = 0;
  std::uint8_t content = 0;  // 0: it is gone
};

struct world {
  bug without = bug::none;
  std::uint8_t at[threads] = {};
  std::uint8_t was_locked[threads] = {};  // the source, when its mover has looked
  place places[2] = {{.content = 1}, {.content = 2}};
};

const char* go(world& s, thread who, std::uint8_t to, const char* did) {
  s.at[who] = to;
  return did;
}

void take_out(place& at, thread who) {
  at.is_used = 0;
  at.out_by = who;
}

void put_back(place& at, bool is_used) {
  at.is_used = is_used ? 1 : 0;
  at.out_by = nobody;
}

const char* take_target(world& s, thread who, place& source, place& target) {
  if (target.out_by != nobody) {
    if (s.without == bug::waits_for_target) return nullptr;
    put_back(source, true);
    return go(s, who, 0, "finds its target in other hands, and puts the source back");
  }
  target = {.is_used = 0, .out_by = who};
  return go(s, who, 2, "takes its target, and empties it");
}

const char* move(world& s, thread who) {
  place& source = s.places[who];
  place& target = s.places[1 - who];
  switch (s.at[who]) {
    case 0:
      if (source.out_by != nobody) return nullptr;
      if (source.is_used == 0) return go(s, who, ended, "finds nothing to move");
      s.was_locked[who] = source.locked;
      if (s.without != bug::only_looks) take_out(source, who);
      return go(s, who, 1, "takes its source");
    case 1: return take_target(s, who, source, target);
    case 2:
      if (s.was_locked[who] != 0) source.kernel_locks = 0;
      return go(s, who, 3, "unlocks the source");
    case 3:
      require(source.kernel_locks == 0, "no locked page is moved");
      target.content = source.content;
      return go(s, who, 4, "moves the page");
    case 4:
      target.locked = target.kernel_locks = s.was_locked[who];
      put_back(target, true);
      return go(s, who, 5, "puts the target into use, locked as the source was");
    case 5:
      if (s.without == bug::only_looks && source.out_by != nobody) return nullptr;
      source = {.is_used = 0};
      return go(s, who, ended, "frees the source");
    default: return nullptr;
  }
}

const char* lock(world& s) {
  const std::uint8_t step = s.at[locker];
  if (step == ended) return nullptr;
  place& at = s.places[step / 2];
  const std::uint8_t next = step < 2 ? std::uint8_t{2} : ended;
  if (step % 2 != 0) {
    at.locked = at.kernel_locks = 1;
    put_back(at, true);
    return go(s, locker, next, "locks the place");
  }
  if (at.out_by != nobody) return nullptr;
  if (at.is_used == 0) return go(s, locker, next, "finds nothing to lock");
  take_out(at, locker);
  return go(s, locker, static_cast<std::uint8_t>(step + 1), "takes a place out to lock it");
}

verdict explore(bug without, std::uint8_t back_begins_at = 0) {
  const auto has_ended = [](thread who) { return [who](const world& s) { return s.at[who] == ended; }; };
  const auto mover = [](thread who) { return [who](world& s) { return move(s, who); }; };
  explorer<world> all({{"there", mover(there), has_ended(there)},
                       {"back", mover(back), has_ended(back)},
                       {"locker", lock, has_ended(locker)}},
                      [](const world& s) {
                        require(s.places[0].is_used + s.places[1].is_used == 1, "a move leaves one of the places");
                        for (const place& at : s.places) {
                          require(at.out_by == nobody, "each call puts back what it has taken out");
                          if (at.is_used == 0) continue;
                          require(at.content != 0, "no content is lost");
                          require(at.locked == at.kernel_locks, "the map knows what the kernel locks");
                        }
                      });
  world initial;
  initial.without = without;
  initial.at[back] = back_begins_at;
  return all.explore(initial);
}

TEST(mapping_moves_model, holds_in_every_order) {
  const verdict found = explore(bug::none);
  EXPECT_TRUE(found.holds) << found.trace;
  EXPECT_GT(found.states, 100u);
}
TEST(mapping_moves_model, finds_the_lock_between_look_and_move) {
  const verdict found = explore(bug::only_looks, ended);
  EXPECT_TRUE(found.breaks("no locked page is moved")) << found.trace;
}
TEST(mapping_moves_model, finds_the_two_that_wait_for_each_other) {
  const verdict found = explore(bug::waits_for_target);
  EXPECT_TRUE(found.breaks("deadlock")) << found.trace;
}

}  // namespace
}  // namespace far::model
