// A model of the object path (object_heap::fetch_object, evacuator::owner_stays, engine/object_reader.cc): a parent
// object, on a page that leaves and comes back for another object, is fetched alone, while the evacuator moves its
// child, whose owner's word lies inside the parent. A dead copy of the parent still has a word that looks right: nobody
// may swing that one and take it for the owner. Atlas, section 4.2 (both paths at once) and AIFM, section 5.3.
#include <gtest/gtest.h>

#include "tests/model/explorer.h"

namespace far::model {
namespace {

enum class bug : std::uint8_t {
  none,
  live_until_read,  // the fetcher clears the old copy's live bit after it has read the bytes
  no_second_look,   // it does not look whether the page was remote, with the same slot, all the time
  owner_not_live,   // the evacuator takes words in dead copies for owners
  no_follow,        // the child's header does not learn of its new owner
};

enum page_state : std::uint8_t { resident, evicting, remote, on_its_way };
enum thread : std::uint8_t { fetcher, evacuator, pager, threads };
constexpr std::uint8_t ended = 100;

// Where the parent is: its old place, or the copy that the fetcher makes. The child likewise.
enum place : std::uint8_t { nowhere, old_place, copy, places };
constexpr std::uint8_t busy = 4;  // fetching, in the parent's word; moving, in the child's

struct world {
  std::uint8_t at[threads] = {};
  bug without = bug::none;
  std::uint8_t page = remote;  // of the parent's old place
  std::uint8_t comings = 0;
  std::uint8_t evacuator_holds = 0;
  std::uint8_t parent = old_place;  // the word of its owner, in local memory
  std::uint8_t parent_is_live[places] = {0, 1, 0};
  std::uint8_t child_word[places] = {0, old_place, 0};  // in each copy of the parent
  std::uint8_t slot = old_place;                        // the far tier's copy of child_word[old_place]
  std::uint8_t child_owner = old_place;  // the header of the child's newest copy: which parent has its word
  std::uint8_t header_locked = 0;
  std::uint8_t child_is_there[places] = {0, 1, 0};
  std::uint8_t bytes = 0;        // read by the fetcher
  std::uint8_t slot_number = 0;  // which slot that was: each coming of the page gives it up
};

const char* go(world& s, thread who, std::uint8_t to, const char* did) {
  s.at[who] = to;
  return did;
}

// fetch_object(); when the page comes meanwhile, the parent is used where it is.
const char* fetch(world& s) {
  const bool late = s.without == bug::live_until_read;
  switch (s.at[fetcher]) {
    case 0:
      if (s.page == resident) return go(s, fetcher, ended, "finds the parent's page resident");
      if (s.page != remote) return nullptr;
      s.parent |= busy;
      return go(s, fetcher, 1, "sets the flag fetching");
    case 1:
      if (!late) s.parent_is_live[old_place] = 0;
      return go(s, fetcher, 2, "clears the live bit");
    case 2:
      if (s.page != remote) return go(s, fetcher, 20, "finds the page not remote");
      s.slot_number = s.comings;
      return go(s, fetcher, 3, "begins to read the slot");
    case 3: s.bytes = s.slot; return go(s, fetcher, s.without == bug::no_second_look ? 5 : 4, "has read the slot");
    case 4: {
      const bool is_same = s.page == remote && s.comings == s.slot_number;
      return go(s, fetcher, is_same ? 5 : 20, is_same ? "finds the page still remote" : "finds that the page has come");
    }
    case 5:
      if (late) s.parent_is_live[old_place] = 0;
      s.child_word[copy] = s.bytes;
      return go(s, fetcher, s.without == bug::no_follow ? 9 : 6, "fills the copy");
    case 6:  // follow()
      if (s.header_locked != 0) return nullptr;
      s.header_locked = 1;
      return go(s, fetcher, 7, "locks the child's header");
    case 7:
      s.child_word[copy] = static_cast<std::uint8_t>(s.child_word[copy] & ~busy);
      s.child_owner = copy;
      return go(s, fetcher, 8, "makes the child's header name the copy's word");
    case 8: s.header_locked = 0; return go(s, fetcher, 9, "unlocks the child's header");
    case 9: s.parent_is_live[copy] = 1; return go(s, fetcher, 10, "sets the copy's live bit");
    case 10: s.parent = copy; return go(s, fetcher, ended, "swings the parent's word");
    case 20: s.parent_is_live[old_place] = 1; return go(s, fetcher, 21, "sets the live bit again");
    case 21: s.parent = old_place; return go(s, fetcher, ended, "takes the flag back");
    default: return nullptr;
  }
}

// Of the child, whose page is resident: mark() and move(). Nobody holds the child.
const char* evacuate(world& s) {
  const std::uint8_t owner = s.child_owner;
  const auto give_up = [&s](const char* did) {
    s.header_locked = 0;
    return go(s, evacuator, 30, did);
  };
  switch (s.at[evacuator]) {
    case 0:
      if (s.header_locked != 0) return nullptr;
      s.header_locked = 1;
      return go(s, evacuator, owner == old_place ? 1 : 4, "locks the child's header");
    case 1: s.evacuator_holds = 1; return go(s, evacuator, 2, "holds the owner's page");  // and its stores are visible
    case 2: return s.page == resident ? go(s, evacuator, 3, "finds it resident") : give_up("finds it not resident");
    case 3:
      if (s.without == bug::owner_not_live || s.parent_is_live[old_place] != 0)
        return go(s, evacuator, 5, "finds the owner");
      return give_up("finds the owner dead");
    case 4:
      return s.parent_is_live[copy] != 0 ? go(s, evacuator, 5, "finds the owner")
                                         : give_up("finds the owner not yet live");
    case 5:
      require(owner == copy || s.page == resident || s.page == evicting, "the owner's page is here");
      if (s.child_word[owner] != old_place) return give_up("finds the child elsewhere");
      s.child_word[owner] |= busy;
      return go(s, evacuator, 6, "marks the child's word");
    case 6: s.header_locked = 0; return go(s, evacuator, 7, "unlocks the child's header and copies the child");
    case 7:
      if (s.header_locked != 0) return nullptr;
      s.header_locked = 1;
      return go(s, evacuator, 8, "locks the child's header again");
    case 8:
      require(owner == copy || s.page == resident || s.page == evicting, "the owner's page is here");
      if (s.child_word[owner] != (old_place | busy)) return give_up("finds the move called off");
      s.child_word[owner] = copy;
      s.child_is_there[old_place] = 0;
      s.child_is_there[copy] = 1;
      s.header_locked = 0;
      return go(s, evacuator, 30, "swings the child's word");
    case 30: s.evacuator_holds = 0; return go(s, evacuator, ended, "lets go");
    default: return nullptr;
  }
}

// Brings the parent's page in for another object, and takes it away again unless it is held.
const char* page_in_and_out(world& s) {
  switch (s.at[pager]) {
    case 0: s.page = on_its_way; return go(s, pager, 1, "begins to bring the page");
    case 1:
      s.child_word[old_place] = s.slot;
      s.page = resident;
      s.slot = nowhere;  // another page's bytes
      return go(s, pager, ++s.comings == 2 ? ended : 2, "has brought the page");
    case 2: s.page = evicting; return go(s, pager, 3, "claims the page");
    case 3:
      if (s.evacuator_holds == 0) return go(s, pager, 4, "sees no log with the page");
      s.page = resident;
      return go(s, pager, 2, "gives the page back");
    case 4:
      s.slot = s.child_word[old_place];
      s.child_word[old_place] = 0;
      s.page = remote;
      return go(s, pager, 0, "has taken the page away");
    default: return nullptr;
  }
}

void check_end(const world& s) {
  require((s.parent & busy) == 0, "no fetch is left unfinished");
  require(s.parent_is_live[s.parent] != 0, "the parent is live where its word says");
  require(s.parent_is_live[old_place] + s.parent_is_live[copy] == 1, "one copy of the parent is live");
  const std::uint8_t word = s.child_word[s.parent];
  require(s.child_is_there[word & ~busy] != 0, "the child is where the living parent's word says");
  require(s.child_owner == s.parent, "the child's header names the living parent's word");
}

verdict explore(bug without) {
  const auto has_ended = [](thread who) { return [who](const world& s) { return s.at[who] == ended; }; };
  explorer<world> all({{"fetcher", fetch, has_ended(fetcher)},
                       {"evacuator", evacuate, has_ended(evacuator)},
                       {"pager", page_in_and_out, has_ended(pager)}},
                      check_end);
  world initial;
  initial.without = without;
  return all.explore(initial);
}

TEST(object_path_model, holds_in_every_order) {
  const verdict found = explore(bug::none);
  EXPECT_TRUE(found.holds) << found.trace;
  EXPECT_GT(found.states, 500u);
}
TEST(object_path_model, finds_the_live_bit_that_is_cleared_after_the_read) {
  EXPECT_FALSE(explore(bug::live_until_read).holds);
}
TEST(object_path_model, finds_the_read_that_does_not_look_again) {
  EXPECT_FALSE(explore(bug::no_second_look).holds);
}
TEST(object_path_model, finds_the_evacuator_that_trusts_dead_copies) {
  EXPECT_FALSE(explore(bug::owner_not_live).holds);
}
TEST(object_path_model, finds_the_fetch_that_tells_no_children) {
  EXPECT_FALSE(explore(bug::no_follow).holds);
}

}  // namespace
}  // namespace far::model
