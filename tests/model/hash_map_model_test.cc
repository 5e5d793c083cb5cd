// A model of far::hash_map's readers without a lock (far/hash_map.h, far/detail/hash_shard.h, retired.h, shared_lock.h;
// docs/decisions/0035-hash-map.md): one key, whose entry is always there. A writer replaces it by another far object,
// moves that into another segment, and changes it in place, each time under the shard's lock and between two changes of
// the shard's version. A reader, in two scopes one after the other, finds the entry and keeps it until the scope ends,
// or copies its two halves as a sequence lock does. A reader that finds nothing at hand looks again under the lock,
// unless the version says that nobody wrote. A reclaimer ends what was taken out of reach once the scopes have ended
// that were open then.
//
// How a word stands for a page that may have left is the matter of grace_eviction_model_test.cc.
#include <gtest/gtest.h>

#include "tests/model/explorer.h"
#include "tests/model/tso.h"

namespace far::model {
namespace {

enum class bug : std::uint8_t {
  none,
  believes_absence,         // a reader that finds nothing does not look at the version
  version_at_the_end,       // the version changes once, after the writer's work
  odd_means_absent,         // a version that is the same is believed even while there is a writer
  odd_copy_is_whole,        // ... by a reader that copies
  version_read_late,        // a copy begins before the version is read
  version_not_read_again,   // ... or is believed without another look at it
  looks_without_lock,       // a reader that found nothing looks again without the lock
  looks_before_counting,    // a reader looks for writers before it counts itself among the readers
  entry_ends_at_once,       // a replaced entry is destroyed without waiting for scopes
  segment_ends_at_once,     // ... or a segment that was split
  stamped_while_reachable,  // retired things get their number before they are out of reach
  no_fence,                 // the scopes are looked at without making readers pass a fence
  scope_opened_late,        // a reader looks the word up before its scope is open
};

enum thread : std::uint8_t { reader, writer, reclaimer, threads };
enum class kind : std::uint8_t { finds, copies };
constexpr std::uint8_t ended = 100;
constexpr std::uint8_t nothing = 0;  // a word; 1 and 2: the objects

// The retired objects, as a set.
constexpr std::uint8_t old_entry = 1;
constexpr std::uint8_t old_segment = 2;

// Cells of memory.
constexpr std::size_t scope_cell = 0;
constexpr std::size_t version = 1;
constexpr std::size_t directory = 2;  // which of the two segments it names
constexpr std::size_t word_of(std::size_t segment) {
  return 3 + segment;
}
constexpr std::size_t half_of(std::size_t half) {  // of the second object, the only one that is changed in place
  return 5 + half;
}

struct world {
  std::uint8_t at[threads] = {};
  bug without = bug::none;
  // The lock: far::detail::shared_lock, of read-modify-writes only.
  std::uint8_t readers = 0;
  std::uint8_t is_writing = 0;
  std::uint8_t writers_locked = 0;
  // The reader.
  kind does = kind::finds;
  std::uint8_t scopes = 0;  // their beginnings and ends
  std::uint8_t segment = 0;
  std::uint8_t object = nothing;
  std::uint8_t seen_version = 0;
  std::uint8_t half = 0;
  // The writer.
  std::uint8_t work = 0;  // 0: replaces, 1: splits, 2: changes in place
  // Retired and ended.
  std::uint8_t wanted = 0;
  std::uint8_t under_way = 0;
  std::uint8_t is_over = 0;
  std::uint8_t seen = 0;  // the reader's scopes, when the reclaimer looked
  tso_memory<7, 2, 3> memory;
};

const char* go(world& s, thread who, std::uint8_t to, const char* did) {
  s.at[who] = to;
  return did;
}

void use_segment(const world& s, std::uint8_t segment) {
  require(segment != 0 || (s.is_over & old_segment) == 0, "a segment that a reader looks into is there");
}
void use_object(const world& s, std::uint8_t object) {
  require(object != 1 || (s.is_over & old_entry) == 0, "an entry that was found stays until the scope ends");
}

std::uint8_t read_half(const world& s, std::uint8_t object, std::size_t half) {
  use_object(s, object);
  return object == 1 ? 1 : s.memory.load(reader, half_of(half));
}

bool is_still(const world& s, bug takes_odd) {
  const std::uint8_t before = s.seen_version;
  return (before % 2 == 0 || s.without == takes_odd) && s.memory.load(reader, version) == before;
}

// From here on the two readers are alike: they have found nothing at hand, or their copy is not to be believed.
enum look_again : std::uint8_t { may_have = 20, locking = 30, locked = 40, leaving = 50 };

const char* look_whether_there_is_one(world& s) {
  switch (s.at[reader]) {
    case may_have: s.seen_version = s.memory.load(reader, version); return go(s, reader, 21, "reads the version");
    case 21: s.segment = s.memory.load(reader, directory); return go(s, reader, 22, "reads the directory again");
    case 22:
      use_segment(s, s.segment);
      if (s.memory.load(reader, word_of(s.segment)) != nothing)
        return go(s, reader, locking, "sees that there is an entry");
      return go(s, reader, 23, "sees no entry");
    default:
      require(s.without != bug::believes_absence && !is_still(s, bug::odd_means_absent),
              "a key that is there is found");
      return go(s, reader, locking, "sees that there was a writer");
  }
}

const char* lock_shared(world& s) {
  const bool looks_first = s.without == bug::looks_before_counting;
  switch (s.at[reader]) {
    case locking:
      if (s.without == bug::looks_without_lock) return go(s, reader, locked, "looks again");
      if (looks_first) return s.is_writing == 0 ? go(s, reader, 32, "sees no writer") : nullptr;
      if (!s.memory.is_drained(reader)) return nullptr;
      ++s.readers;
      return go(s, reader, 31, "counts itself among the readers");
    case 31:
      if (s.is_writing == 0) return go(s, reader, locked, "sees no writer");
      --s.readers;
      return go(s, reader, 33, "gives way to the writer");
    case 32: ++s.readers; return go(s, reader, locked, "counts itself among the readers");
    default:
      if (s.writers_locked != 0) return nullptr;
      ++s.readers;
      return go(s, reader, locked, "counts itself while no writer can be");
  }
}

const char* look_under_lock(world& s) {
  const bool has_lock = s.without != bug::looks_without_lock;
  switch (s.at[reader]) {
    case locked: s.segment = s.memory.load(reader, directory); return go(s, reader, 41, "reads the directory locked");
    case 41:
      use_segment(s, s.segment);
      s.object = s.memory.load(reader, word_of(s.segment));
      require(s.object != nothing, "a key that is there is found");
      return go(s, reader, 42, "finds the entry locked");
    case 42: s.half = read_half(s, s.object, 0); return go(s, reader, 43, "reads a half of it");
    case 43:
      require(s.half == read_half(s, s.object, 1), "a copy is of before or after a change");
      return go(s, reader, 44, "reads the other half");
    default:
      if (has_lock) --s.readers;
      return go(s, reader, leaving, "unlocks");
  }
}

const char* open_scope(world& s, std::uint8_t next) {
  return s.memory.store(reader, scope_cell, ++s.scopes) ? go(s, reader, next, "opens a scope") : nullptr;
}

const char* end_scope(world& s) {
  if (!s.memory.store(reader, scope_cell, ++s.scopes)) return nullptr;
  s.segment = s.object = s.seen_version = s.half = 0;
  return go(s, reader, s.scopes == 4 ? ended : 0, "ends its scope");
}

const char* read(world& s) {
  const bool copies = s.does == kind::copies;
  const bool is_late = s.without == bug::scope_opened_late;
  const bool version_late = s.without == bug::version_read_late;
  if (s.at[reader] == ended) return nullptr;
  if (s.at[reader] >= leaving) return end_scope(s);
  if (s.at[reader] >= locked) return look_under_lock(s);
  if (s.at[reader] >= locking) return lock_shared(s);
  if (s.at[reader] >= may_have) return look_whether_there_is_one(s);
  switch (s.at[reader]) {
    case 0: return is_late ? go(s, reader, 1, "begins") : open_scope(s, 1);
    case 1:
      if (copies && !version_late) s.seen_version = s.memory.load(reader, version);
      return go(s, reader, 2, "reads the version");
    case 2: s.segment = s.memory.load(reader, directory); return go(s, reader, 3, "reads the directory");
    case 3:
      use_segment(s, s.segment);
      s.object = s.memory.load(reader, word_of(s.segment));
      return go(s, reader, 4, "reads the word");
    case 4:
      if (is_late) return open_scope(s, 5);
      return go(s, reader, 5, "looks whether it is at hand");
    case 5:
      if (s.object == nothing) return go(s, reader, may_have, "finds nothing at hand");
      s.half = read_half(s, s.object, 0);
      return go(s, reader, 6, "reads a half of the entry");
    case 6:
      if (copies && version_late) s.seen_version = s.memory.load(reader, version);
      return go(s, reader, 7, "goes on");
    case 7:
      if (!copies) {
        use_object(s, s.object);
        return go(s, reader, leaving, "uses what it has found");
      } else {
        const std::uint8_t other = read_half(s, s.object, 1);
        s.half = static_cast<std::uint8_t>(s.half == other ? 1 : 0);
        return go(s, reader, 8, "reads the other half");
      }
    default:
      if (s.without != bug::version_not_read_again && !is_still(s, bug::odd_copy_is_whole))
        return go(s, reader, may_have, "does not believe its copy");
      require(s.half == 1, "a copy is of before or after a change");
      return go(s, reader, leaving, "has a copy");
  }
}

void retire(world& s, std::uint8_t retired, bool at_once) {
  if (at_once) {
    s.is_over |= retired;
  } else {
    s.wanted |= retired;
  }
}

// Steps 4 to 9 of the writer.
const char* do_work(world& s) {
  const bool early = s.without == bug::stamped_while_reachable;
  const auto store = [&](std::size_t cell, std::uint8_t value, std::uint8_t next, const char* did) {
    return s.memory.store(writer, cell, value) ? go(s, writer, next, did) : nullptr;
  };
  // Lists of what is retired have a lock of their own, so the stores before it have drained.
  const auto stamp = [&](std::uint8_t retired, bool at_once, std::uint8_t next) -> const char* {
    if (!s.memory.is_drained(writer)) return nullptr;
    retire(s, retired, at_once);
    return go(s, writer, next, "retires it");
  };
  constexpr std::uint8_t done = 10;
  switch (s.work * 10 + s.at[writer]) {
    case 4: return early ? stamp(old_entry, false, 5) : go(s, writer, 5, "will replace the entry");
    case 5: return store(word_of(0), nothing, 6, "takes the old entry out");
    case 6: return store(word_of(0), 2, 7, "puts the new one in");
    case 7:
      return early ? go(s, writer, done, "is done") : stamp(old_entry, s.without == bug::entry_ends_at_once, done);
    case 14: return early ? stamp(old_segment, false, 5) : go(s, writer, 5, "will move it to another segment");
    case 15: return store(word_of(1), 2, 6, "puts the entry into the other segment");
    case 16: return store(word_of(0), nothing, 7, "takes it out of the first");
    case 17: return store(directory, 1, 8, "names the other segment");
    case 18:
      return early ? go(s, writer, done, "is done") : stamp(old_segment, s.without == bug::segment_ends_at_once, done);
    case 24: return store(half_of(0), 7, 5, "changes a half");
    case 25: return store(half_of(1), 7, done, "changes the other half");
    default: return nullptr;
  }
}

const char* write(world& s) {
  const bool late = s.without == bug::version_at_the_end;
  const auto raise = [&](std::uint8_t difference, std::uint8_t next) {
    const auto raised = static_cast<std::uint8_t>(s.memory.load(writer, version) + difference);
    return s.memory.store(writer, version, raised) ? go(s, writer, next, "raises the version") : nullptr;
  };
  switch (s.at[writer]) {
    case 0:
      if (!s.memory.is_drained(writer)) return nullptr;
      s.writers_locked = 1;
      return go(s, writer, 1, "locks other writers out");
    case 1: s.is_writing = 1; return go(s, writer, 2, "says that it writes");
    case 2: return s.readers == 0 ? go(s, writer, 3, "sees no readers") : nullptr;
    case 3: return late ? go(s, writer, 4, "begins") : raise(1, 4);
    case 10: return raise(late ? 2 : 1, 11);
    case 11:
      if (!s.memory.is_drained(writer)) return nullptr;
      s.is_writing = 0;
      return go(s, writer, 12, "says that it does not write");
    case 12: s.writers_locked = 0; return go(s, writer, ++s.work == 3 ? ended : 0, "unlocks");
    default: return do_work(s);
  }
}

const char* reclaim(world& s) {
  switch (s.at[reclaimer]) {
    case 0:
      if (s.wanted == 0) {
        return s.at[writer] == ended ? go(s, reclaimer, ended, "has nothing more to do") : nullptr;
      }
      s.under_way = s.wanted;
      s.wanted = 0;
      return go(s, reclaimer, 1, "begins a grace period");
    case 1:
      if (s.without != bug::no_fence) s.memory.fence(reader);
      return go(s, reclaimer, 2, "makes the reader pass a fence");
    case 2: s.seen = s.memory.get(scope_cell); return go(s, reclaimer, 3, "looks at the scopes");
    case 3:
      if (s.seen % 2 != 0 && s.memory.get(scope_cell) == s.seen) return nullptr;
      s.is_over |= s.under_way;
      s.under_way = s.seen = 0;
      return go(s, reclaimer, 0, "ends what was retired");
    default: return nullptr;
  }
}

verdict explore(bug without, kind does) {
  const auto has_ended = [](thread who) { return [who](const world& s) { return s.at[who] == ended; }; };
  explorer<world> all({{"reader", read, has_ended(reader)},
                       {"writer", write, has_ended(writer)},
                       {"reclaimer", reclaim, has_ended(reclaimer)},
                       buffer_of<world, &world::memory, reader>("reader's buffer"),
                       buffer_of<world, &world::memory, writer>("writer's buffer")},
                      [](const world& s) {
                        require(s.is_over == (old_entry | old_segment), "what was retired is ended");
                        require(s.readers == 0 && s.is_writing == 0 && s.writers_locked == 0, "nobody has the lock");
                        require(s.memory.get(directory) == 1 && s.memory.get(word_of(1)) == 2, "the entry is there");
                      });
  world initial;
  initial.without = without;
  initial.does = does;
  initial.memory.put(word_of(0), 1);
  return all.explore(initial, 40'000'000);
}

TEST(hash_map_model, holds_in_every_order) {
  for (const kind does : {kind::finds, kind::copies}) {
    const verdict found = explore(bug::none, does);
    EXPECT_TRUE(found.holds) << found.trace;
    EXPECT_GT(found.states, 10'000u);
  }
}

struct mistake {
  bug present;
  kind shown_by;
  const char* broken;
  const char* name;
};
class hash_map_model_finds : public ::testing::TestWithParam<mistake> {};
TEST_P(hash_map_model_finds, the_mistake) {
  const verdict found = explore(GetParam().present, GetParam().shown_by);
  EXPECT_TRUE(found.breaks(GetParam().broken)) << found.trace;
}

constexpr const char* absent = "a key that is there is found";
constexpr const char* torn = "a copy is of before or after a change";
constexpr const char* entry_gone = "an entry that was found stays until the scope ends";
constexpr const char* segment_gone = "a segment that a reader looks into is there";
INSTANTIATE_TEST_SUITE_P(
    all, hash_map_model_finds,
    ::testing::Values(mistake{bug::believes_absence, kind::finds, absent, "believes_absence"},
                      mistake{bug::version_at_the_end, kind::finds, absent, "version_at_the_end"},
                      mistake{bug::odd_means_absent, kind::finds, absent, "odd_means_absent"},
                      mistake{bug::odd_copy_is_whole, kind::copies, torn, "odd_copy_is_whole"},
                      mistake{bug::version_read_late, kind::copies, torn, "version_read_late"},
                      mistake{bug::version_not_read_again, kind::copies, torn, "version_not_read_again"},
                      mistake{bug::looks_without_lock, kind::finds, absent, "looks_without_lock"},
                      mistake{bug::looks_before_counting, kind::finds, absent, "looks_before_counting"},
                      mistake{bug::entry_ends_at_once, kind::finds, entry_gone, "entry_ends_at_once"},
                      mistake{bug::segment_ends_at_once, kind::finds, segment_gone, "segment_ends_at_once"},
                      mistake{bug::stamped_while_reachable, kind::finds, entry_gone, "stamped_while_reachable"},
                      mistake{bug::no_fence, kind::finds, entry_gone, "no_fence"},
                      mistake{bug::scope_opened_late, kind::finds, entry_gone, "scope_opened_late"}),
    [](const auto& chosen) { return chosen.param.name; });

}  // namespace
}  // namespace far::model
