// A model of scopes as grace periods against the evictor (heap/heap.cc, heap/scope_filter.cc, heap/grace_periods.cc;
// docs/decisions/0031-scopes-as-grace-periods.md): one object in a page; two mutators that dereference it with a load
// of the word, a look at the page's ready byte, and another look at the word, and keep the raw pointer until their
// scope ends; an evictor that condemns the page, waits for the scopes that may hold pointers into it, and takes it.
// When frames are short it does not wait: the page leaves by the page path, and the hardware guard brings it back to
// its place. When the object has left the page by the object path, the page may come back for another object, and be
// ready.
//
// In some runs the page is a suspect: it came in writable, and its slot still has the bytes that it came with. Then the
// evictor first looks at it in place, and drops it if it is as it came (engine/evictor.cc: is_clean).
//
// A mutator publishes nothing but its scopes: a number, odd while a scope is open. All promises hang on the order of
// that store, the look at the ready byte, and the evictor's fence.
//
// In some runs a scope of the second mutator logs, as those do that follow a long one: it does not use the ready byte,
// and appends each page to its log before it looks at it. The evictor does not wait for such a scope, but reads the log
// once it has claimed the page. (It passes another fence before, for the hazard logs of the runtime's own work; this
// log would not need it, because a condemned page is taken back by a read-modify-write.) When the log is full, the
// scope goes on as one that does not log, and says so in its number.
#include <gtest/gtest.h>

#include "tests/model/explorer.h"
#include "tests/model/tso.h"

namespace far::model {
namespace {

enum class bug : std::uint8_t {
  none,
  no_membarrier,            // the evictor looks at the scopes without making mutators pass a fence
  looks_before_condemning,  // the scopes are looked at before the page stops being ready
  no_grace,                 // the page is harvested at once
  inner_scope_ends,         // the end of an inner scope is taken for that of the outermost
  ignores_touch,            // the evictor harvests a page that was touched after it was condemned
  ignores_late_ready,       // ... or called ready late, by a mutator that had touched it before it was condemned
  forced_by_object_path,    // a page that leaves while scopes are open comes back object by object
  forced_without_flush,     // ... or is copied without stopping writes to it
  looks_before_claiming,    // a mutator looks whether the page is there before it takes it back
  no_second_look,           // ... or does not look at the word again
  log_not_read,             // the evictor waits for no scope that logs, and does not read the log
  ready_not_read_again,     // ... or does not look at the ready byte once more after that
  logs_late,                // a scope that logs does so after it has looked whether the page is there
  logs_and_trusts_ready,    // ... or uses a page that is ready, without logging it
  log_full_unannounced,     // ... or goes on without logging, and does not say so
  looks_at_bytes_early,     // the evictor looks whether a suspect was written before it waits for the scopes
  forced_looked_at,         // ... or at one that leaves while scopes are open, and drops it
};

enum thread : std::uint8_t { first_mutator, second_mutator, evictor, pressure, neighbour, threads };
enum logging : std::uint8_t { no_log, with_log, with_full_log };
enum place : std::uint8_t { old_place, fresh_place, places };
enum state : std::uint8_t { resident, evicting, remote };
constexpr std::uint8_t ended = 100;
constexpr std::uint8_t last_round = 2;
constexpr std::uint8_t logs_bit = 0x80;  // in the number of a scope

// Cells of memory.
constexpr std::size_t scope_of(std::size_t mutator) {
  return mutator;
}
constexpr std::size_t ready = 2;
constexpr std::size_t field_of(std::size_t where, std::size_t mutator) {
  return 3 + where * 2 + mutator;
}
constexpr std::size_t log_entry = 7;  // the second mutator's

struct world {
  std::uint8_t at[threads] = {};
  bug without = bug::none;
  logging log_kind = no_log;
  std::uint8_t word = old_place;
  std::uint8_t page = resident;
  std::uint8_t condemned = 0;
  std::uint8_t comes_by_object = 0;  // of a remote page
  std::uint8_t is_short = 0;         // of frames
  std::uint8_t is_suspect = 0;
  std::uint8_t is_as_it_came = 0;  // as the evictor saw
  std::uint8_t round = 0;
  std::uint8_t seen[2] = {};  // the scopes, when the evictor looked
  std::uint8_t scopes[2] = {};
  std::uint8_t pointer[2] = {};
  std::uint8_t written[2] = {};
  std::uint8_t far[2] = {};
  tso_memory<8, 2, 4> memory;
};

const char* go(world& s, std::size_t who, std::uint8_t to, const char* did) {
  s.at[who] = to;
  return did;
}

void leave(world& s, bool by_object) {
  s.page = remote;
  s.comes_by_object = by_object;
}

void come_back_in_place(world& s) {
  for (std::size_t i = 0; i < 2; ++i) s.memory.put(field_of(old_place, i), s.far[i]);
  s.page = resident;
}

// The hardware guard, where a raw pointer is used whose page has left. Returns whether the access can be made now.
bool is_reached(world& s, std::uint8_t where) {
  if (where == fresh_place) return true;
  require(s.word == old_place, "an object in use stays where it is");
  if (s.page != remote) return true;
  require(s.comes_by_object == 0, "a page whose objects are in use comes back whole");
  come_back_in_place(s);
  return true;
}

// Takes the page back from the evictor.
const char* claim(world& s, thread who, std::uint8_t next) {
  if (s.condemned == 0) return go(s, who, next, "finds that the page is not condemned");
  if (!s.memory.is_drained(who)) return nullptr;  // before read-modify-writes
  s.condemned = 0;
  return go(s, who, next, "takes the page back");
}

// Looks whether the page is there, and brings the object in if it is not.
const char* look_at_page(world& s, thread who, std::uint8_t next) {
  if (s.page == resident) return go(s, who, next, "finds the page resident");
  if (s.page == evicting || !s.memory.is_drained(who)) return nullptr;
  if (s.word != s.pointer[who]) return go(s, who, 1, "finds another word");
  if (s.comes_by_object != 0) {
    for (std::size_t i = 0; i < 2; ++i) s.memory.put(field_of(fresh_place, i), s.far[i]);
    s.word = fresh_place;
    return go(s, who, 1, "fetches the object");
  }
  come_back_in_place(s);
  return go(s, who, 3, "fetches the page");
}

// The page of an object that has left it comes back as it was, for another that is in it.
const char* share(world& s) {
  if (s.page != remote || s.word != fresh_place) return nullptr;
  come_back_in_place(s);
  s.comes_by_object = 0;
  s.memory.put(ready, 1);
  return go(s, neighbour, ended, "brings the page in, and calls it ready");
}

// Whether the scope is one that logs: the second mutator's first.
bool does_log(const world& s, thread who) {
  return who == second_mutator && s.log_kind != no_log && s.scopes[who] <= 1;
}

const char* write_log(world& s, thread who, std::uint8_t value, std::uint8_t next, const char* did) {
  return s.memory.store(who, log_entry, value) ? go(s, who, next, did) : nullptr;
}

const char* log_page(world& s, thread who) {
  if (s.without == bug::logs_late) return go(s, who, 3, "does not log yet");
  if (s.log_kind == with_log) return write_log(s, who, 1, 3, "logs the page");
  if (s.without != bug::log_full_unannounced && !s.memory.store(who, scope_of(who), s.scopes[who])) return nullptr;
  return go(s, who, 3, "finds the log full");
}

const char* open_scope(world& s, thread who) {
  const auto number = static_cast<std::uint8_t>(s.scopes[who] + 1);
  const bool logs = who == second_mutator && s.log_kind != no_log && number == 1;
  if (!s.memory.store(who, scope_of(who), logs ? number | logs_bit : number)) return nullptr;
  s.scopes[who] = number;
  return go(s, who, 1, logs ? "opens a scope that logs" : "opens a scope");
}

const char* load_word(world& s, thread who) {
  s.pointer[who] = s.word;
  const bool logs = does_log(s, who) && s.word == old_place && s.without != bug::logs_and_trusts_ready;
  return go(s, who, logs ? 20 : 2, "loads the word");
}

const char* mutate(world& s, thread who) {
  const std::uint8_t where = s.pointer[who];
  switch (s.at[who]) {
    case 0: return open_scope(s, who);
    case 1: return load_word(s, who);
    case 20: return log_page(s, who);
    case 21: return write_log(s, who, 1, 4, "logs the page");
    case 2:
      if (where == fresh_place) return go(s, who, 5, "finds it in its new place");
      if (s.memory.load(who, ready) == 0) return go(s, who, 3, "finds the page not ready");
      return go(s, who, s.without == bug::no_second_look ? 5 : 9, "finds the page ready");
    case 9: return go(s, who, s.word == where ? 5 : 1, "looks at the word again");
    case 3: return s.without == bug::looks_before_claiming ? look_at_page(s, who, 10) : claim(s, who, 10);
    case 10: return s.without == bug::looks_before_claiming ? claim(s, who, 11) : look_at_page(s, who, 11);
    case 11: {
      const bool still_to_log = s.without == bug::logs_late && does_log(s, who);
      return go(s, who, s.word != where ? 1 : still_to_log ? 21 : 4, "looks at the word again, and touches the page");
    }
    case 4: return s.memory.store(who, ready, 1) ? go(s, who, 5, "calls the page ready") : nullptr;
    case 5:
      if (!is_reached(s, where)) return nullptr;
      require(s.memory.load(who, field_of(where, who)) == s.written[who], "a mutator reads what it wrote");
      return go(s, who, who == first_mutator ? 6 : 7, "reads");
    case 6:  // an inner scope opens and ends in between
      if (s.without == bug::inner_scope_ends && !s.memory.store(who, scope_of(who), ++s.scopes[who])) return nullptr;
      return go(s, who, 7, "ends an inner scope");
    case 7:
      if (!is_reached(s, where)) return nullptr;
      if (!s.memory.store(who, field_of(where, who), static_cast<std::uint8_t>(s.written[who] + 1))) return nullptr;
      ++s.written[who];
      return go(s, who, 8, "writes");
    case 8:
      if (does_log(s, who)) return write_log(s, who, 0, 22, "empties the log");
      [[fallthrough]];
    case 22: {
      if (!s.memory.store(who, scope_of(who), ++s.scopes[who])) return nullptr;
      // A second scope of the first mutator would make the runs with logs long.
      const bool again = s.written[who] < (who == first_mutator && s.log_kind != no_log ? 1 : 2);
      s.pointer[who] = 0;
      return go(s, who, again ? 0 : ended, "ends the scope");
    }
    default: return nullptr;
  }
}

bool has_passed(const world& s, std::size_t mutator) {
  const std::uint8_t then = s.seen[mutator];
  return then % 2 == 0 || (then & logs_bit) != 0 || s.memory.get(scope_of(mutator)) != then;
}

const char* end_round(world& s, const char* did) {
  return go(s, evictor, ++s.round == last_round || s.page == remote ? ended : 0, did);
}

const char* look_at_scopes(world& s, std::uint8_t next) {
  for (std::size_t i = 0; i < 2; ++i) s.seen[i] = s.memory.get(scope_of(i));
  return go(s, evictor, next, "looks at the scopes");
}

const char* read_log(world& s) {
  const bool is_logged = s.memory.get(log_entry) != 0 && s.without != bug::log_not_read;
  if (!is_logged) return go(s, evictor, 14, "finds the page in no log");
  if (s.is_short != 0) return go(s, evictor, 21, "cannot leave it to the scope that logged it");
  s.page = resident;
  return end_round(s, "gives a page back that is in a log");
}

// Looks at the bytes of a suspect, one half at a time.
const char* look_at_half(world& s, std::size_t half, std::uint8_t same, std::uint8_t differs) {
  const bool is_same = s.far[half] == s.memory.get(field_of(old_place, half));
  s.is_as_it_came = is_same;
  return go(s, evictor, is_same ? same : differs, half == 0 ? "looks at one half" : "looks at the other half");
}

// The page leaves while scopes are open, by the page path.
const char* force_out(world& s) {
  switch (s.at[evictor]) {
    case 20:
      if (s.condemned == 0 || s.page != resident) return end_round(s, "leaves a page that was touched");
      s.page = evicting;
      return go(s, evictor, 21, "claims the page while scopes are open");
    case 21:
      if (s.is_suspect != 0 && s.without == bug::forced_looked_at) return look_at_half(s, 0, 22, 23);
      return go(s, evictor, 23, "is going to move the page");
    case 22: return look_at_half(s, 1, 24, 23);
    case 24: leave(s, false); return end_round(s, "drops the page, which is as it came");
    case 23:
      // The move takes the page away from everybody: the kernel interrupts the processors.
      if (s.without != bug::forced_without_flush) {
        s.memory.fence(0);
        s.memory.fence(1);
      }
      s.far[0] = s.memory.get(field_of(old_place, 0));
      s.far[1] = s.memory.get(field_of(old_place, 1));
      leave(s, s.without == bug::forced_by_object_path);
      return end_round(s, "moves the page out");
    default: return nullptr;
  }
}

const char* evict(world& s) {
  const bool looks_early = s.is_suspect != 0 && s.without == bug::looks_at_bytes_early;
  const bool fences = s.without != bug::no_membarrier;
  const bool looks_first = s.without == bug::looks_before_condemning;
  switch (s.at[evictor]) {
    case 0:
      if (looks_first) {
        s.memory.fence(0);
        s.memory.fence(1);
        return look_at_scopes(s, 1);
      }
      return go(s, evictor, 1, "begins");
    case 1: s.condemned = 1; return go(s, evictor, 2, "condemns the page");
    case 2: s.memory.put(ready, 0); return go(s, evictor, looks_first ? 6 : looks_early ? 30 : 3, "makes it not ready");
    case 30: return look_at_half(s, 0, 31, 3);
    case 31: return look_at_half(s, 1, 3, 3);
    case 3:
      if (fences) s.memory.fence(0);
      return go(s, evictor, 4, "makes the first mutator pass the membarrier");
    case 4:
      if (fences) s.memory.fence(1);
      return go(s, evictor, 5, "makes the second mutator pass the membarrier");
    case 5: return look_at_scopes(s, 6);
    case 6:
      if ((has_passed(s, 0) && has_passed(s, 1)) || s.without == bug::no_grace)
        return go(s, evictor, 7, "sees that every scope has ended");
      return s.is_short != 0 ? go(s, evictor, 20, "cannot wait") : nullptr;
    case 7:
      if (s.page != resident) return end_round(s, "finds it gone");
      s.page = evicting;
      return go(s, evictor, 8, "claims the page");
    case 8:
      if (s.memory.get(ready) != 0 && s.without != bug::ignores_late_ready) {
        s.page = resident;
        return end_round(s, "gives a page back that is ready");
      }
      return go(s, evictor, 12, "finds that nobody called it ready");
    case 12:
      if (s.condemned == 0 && s.without != bug::ignores_touch) {
        s.page = resident;
        return end_round(s, "gives a page back that was touched");
      }
      return go(s, evictor, 13, "finds that nobody touched it");
    case 13: return read_log(s);
    case 14:
      if (s.memory.get(ready) != 0 && s.without != bug::ready_not_read_again && s.without != bug::ignores_late_ready) {
        s.page = resident;
        return end_round(s, "gives a page back that has become ready");
      }
      return go(s, evictor,
                s.is_suspect == 0 ? 9
                : looks_early     ? (s.is_as_it_came != 0 ? 17 : 9)
                                  : 15,
                "finds it not ready");
    case 15: return look_at_half(s, 0, 16, 9);
    case 16: return look_at_half(s, 1, 17, 9);
    case 17: leave(s, true); return end_round(s, "drops the page, which is as it came");
    case 9: s.far[0] = s.memory.get(field_of(old_place, 0)); return go(s, evictor, 10, "copies one half");
    case 10: s.far[1] = s.memory.get(field_of(old_place, 1)); return go(s, evictor, 11, "copies the other half");
    case 11: leave(s, true); return end_round(s, "drops the page, to be fetched by objects");
    default: return force_out(s);
  }
}

verdict explore(bug without, logging log_kind = no_log, bool is_suspect = false) {
  const auto has_ended = [](thread who) { return [who](const world& s) { return s.at[who] == ended; }; };
  explorer<world> all(
      {{"first mutator", [](world& s) { return mutate(s, first_mutator); }, has_ended(first_mutator)},
       {"second mutator", [](world& s) { return mutate(s, second_mutator); }, has_ended(second_mutator)},
       {"evictor", evict, has_ended(evictor)},
       {"pressure",
        [](world& s) {
          if (s.at[pressure] == ended) return static_cast<const char*>(nullptr);
          s.is_short = 1;
          return go(s, pressure, ended, "makes frames short");
        },
        has_ended(pressure)},
       {"neighbour", share, [](const world&) { return true; }},
       buffer_of<world, &world::memory, 0>("first mutator's buffer"),
       buffer_of<world, &world::memory, 1>("second mutator's buffer")},
      [](const world& s) {
        for (std::size_t i = 0; i < 2; ++i) {
          const bool is_far = s.word == old_place && s.page == remote;
          const std::uint8_t now = is_far ? s.far[i] : s.memory.get(field_of(s.word, i));
          require(now == s.written[i], "no write is lost");
        }
      });
  world initial;
  initial.without = without;
  initial.log_kind = log_kind;
  initial.is_suspect = is_suspect;
  initial.memory.put(ready, 1);
  return all.explore(initial, 40'000'000);
}

void expect_found(bug without, logging log_kind = no_log, bool is_suspect = false) {
  const verdict found = explore(without, log_kind, is_suspect);
  EXPECT_TRUE(found.breaks("an object in use stays") || found.breaks("no write is lost") ||
              found.breaks("reads what it wrote") || found.breaks("comes back whole"))
      << found.trace;
}

TEST(grace_eviction_model, holds_in_every_order) {
  const verdict found = explore(bug::none);
  EXPECT_TRUE(found.holds) << found.trace;
  EXPECT_GT(found.states, 10'000u);
}
TEST(grace_eviction_model, holds_when_a_scope_logs) {
  for (const logging kind : {with_log, with_full_log}) {
    const verdict found = explore(bug::none, kind);
    EXPECT_TRUE(found.holds) << found.trace;
    EXPECT_GT(found.states, 10'000u);
  }
}
TEST(grace_eviction_model, holds_for_a_suspect) {
  const verdict found = explore(bug::none, with_log, true);
  EXPECT_TRUE(found.holds) << found.trace;
  EXPECT_GT(found.states, 10'000u);
}
TEST(grace_eviction_model, finds_the_suspect_that_is_looked_at_too_early) {
  expect_found(bug::looks_at_bytes_early, no_log, true);
}
TEST(grace_eviction_model, finds_the_suspect_that_is_looked_at_while_scopes_are_open) {
  expect_found(bug::forced_looked_at, with_log, true);
}
TEST(grace_eviction_model, finds_the_evictor_of_a_suspect_that_does_not_wait) {
  expect_found(bug::no_grace, no_log, true);
}
TEST(grace_eviction_model, finds_the_evictor_of_a_suspect_that_ignores_a_touch) {
  expect_found(bug::ignores_touch, no_log, true);
}
TEST(grace_eviction_model, finds_the_evictor_that_does_not_read_the_log) {
  expect_found(bug::log_not_read, with_log);
}
TEST(grace_eviction_model, finds_the_ready_byte_that_is_not_read_again_after_the_log) {
  expect_found(bug::ready_not_read_again, with_log);
}
TEST(grace_eviction_model, finds_the_scope_that_logs_late) {
  expect_found(bug::logs_late, with_log);
}
TEST(grace_eviction_model, finds_the_scope_that_logs_and_trusts_the_ready_byte) {
  expect_found(bug::logs_and_trusts_ready, with_log);
}
TEST(grace_eviction_model, finds_the_full_log_that_is_not_announced) {
  expect_found(bug::log_full_unannounced, with_full_log);
}
TEST(grace_eviction_model, finds_the_bug_without_the_membarrier) {
  expect_found(bug::no_membarrier);
}
TEST(grace_eviction_model, finds_the_evictor_that_looks_before_it_condemns) {
  expect_found(bug::looks_before_condemning);
}
TEST(grace_eviction_model, finds_the_evictor_that_does_not_wait) {
  expect_found(bug::no_grace);
}
TEST(grace_eviction_model, finds_the_inner_scope_that_ends_the_outer_one) {
  expect_found(bug::inner_scope_ends);
}
TEST(grace_eviction_model, finds_the_evictor_that_ignores_a_touch) {
  expect_found(bug::ignores_touch);
}
TEST(grace_eviction_model, finds_the_evictor_that_ignores_a_late_ready) {
  expect_found(bug::ignores_late_ready);
}
TEST(grace_eviction_model, finds_the_forced_page_that_comes_back_by_objects) {
  expect_found(bug::forced_by_object_path);
}
TEST(grace_eviction_model, finds_the_mutator_that_looks_before_it_takes_the_page_back) {
  expect_found(bug::looks_before_claiming);
}
TEST(grace_eviction_model, finds_the_mutator_that_does_not_look_at_the_word_again) {
  expect_found(bug::no_second_look);
}
TEST(grace_eviction_model, finds_the_forced_page_that_is_still_written) {
  expect_found(bug::forced_without_flush);
}

}  // namespace
}  // namespace far::model
