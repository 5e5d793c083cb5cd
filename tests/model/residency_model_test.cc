// A model of pages that work on headers holds in a hazard log against eviction, and of the order in which
// residency::transition() changes a page's word and its byte (engine/residency.cc, engine/evictor.cc,
// heap/scope_filter.cc, heap/hazard_log.h). The races are those of Atlas, section 4.2: an object is used while its page
// leaves, and a page is fetched while it is evicted.
#include <gtest/gtest.h>

#include "tests/model/explorer.h"
#include "tests/model/tso.h"

namespace far::model {
namespace {

enum class bug : std::uint8_t {
  none,
  no_membarrier,            // the evictor does not make readers pass a fence
  state_before_publishing,  // the reader looks at the byte first, and publishes the page afterwards
  ask_before_claiming,      // the evictor reads the logs first, and claims the page afterwards
  let_go_before_writing,    // the reader lets go of the page before its last write
  late_byte_at_arrival,     // the word says Resident before the byte does
  early_byte_at_departure,  // the byte says that the page leaves before the word does
};

enum page_state : std::uint8_t { resident, evicting, remote, fetching };
enum thread : std::uint8_t { reader, prefetcher, evictor, second_evictor, threads };
enum cell : std::uint8_t { log_entry, data, cells };
constexpr std::uint8_t ended = 100;

struct world {
  std::uint8_t at[threads] = {};
  bug without = bug::none;
  std::uint8_t word = resident;
  std::uint8_t byte = resident;
  std::uint8_t is_present = 1;  // the bytes are in local memory
  std::uint8_t slot = 0;        // the far tier's copy of `data`
  std::uint8_t written = 0;     // by the reader, last
  std::uint8_t rounds = 0;      // scopes that the reader opened
  tso_memory<cells, 1> memory;
};

const char* go(world& s, thread who, std::uint8_t to, const char* did) {
  s.at[who] = to;
  return did;
}

// The steps of a fetch, from `first` on; then goes on at `then`. Also of the reader, when it misses.
const char* fetch(world& s, thread who, std::uint8_t first, std::uint8_t then) {
  const bool late = s.without == bug::late_byte_at_arrival;
  const auto next = static_cast<std::uint8_t>(s.at[who] + 1);
  switch (s.at[who] - first) {
    case 0:
      if (s.word == resident) return go(s, who, then, "finds the page resident");
      if (s.word != remote) return nullptr;
      s.word = fetching;
      return go(s, who, next, "makes the page Fetching");
    case 1:
      s.memory.put(data, s.slot);
      s.is_present = 1;
      return go(s, who, next, "puts the bytes in place");
    case 2:
      (late ? s.word : s.byte) = resident;
      return go(s, who, next, late ? "makes the word Resident" : "makes the byte Resident");
    default:
      (late ? s.byte : s.word) = resident;
      return go(s, who, then, late ? "makes the byte Resident" : "makes the word Resident");
  }
}

// Two scopes, each with one write.
const char* read_and_write(world& s) {
  constexpr std::uint8_t miss = 20;
  const bool early_look = s.without == bug::state_before_publishing;
  const bool early_end = s.without == bug::let_go_before_writing;
  const auto publish = [&s](std::uint8_t value) { return s.memory.store(0, log_entry, value); };
  switch (s.at[reader]) {
    case 0:
      if (early_look)
        return s.byte == resident ? go(s, reader, 1, "sees the byte Resident") : go(s, reader, miss, "misses");
      return publish(1) ? go(s, reader, 1, "publishes the page") : nullptr;
    case 1:
      if (early_look) return publish(1) ? go(s, reader, 2, "publishes the page") : nullptr;
      return s.byte == resident ? go(s, reader, 2, "sees the byte Resident") : go(s, reader, miss, "misses");
    case 2:
      if (early_end) return publish(0) ? go(s, reader, 3, "lets go of the page") : nullptr;
      require(s.is_present != 0, "a page in use stays");
      return go(s, reader, 3, "reads");
    case 3:
      if (!early_end) require(s.is_present != 0, "a page in use stays");
      if (!s.memory.store(0, data, static_cast<std::uint8_t>(s.rounds + 1))) return nullptr;
      s.written = static_cast<std::uint8_t>(s.rounds + 1);
      return go(s, reader, 4, "writes");
    case 4:
      if (!early_end && !publish(0)) return nullptr;
      return go(s, reader, ++s.rounds == 2 ? ended : 0, "closes the scope");
    default: {
      if (s.at[reader] == ended || !s.memory.is_drained(0)) return nullptr;
      return fetch(s, reader, miss, 0);
    }
  }
}

const char* prefetch(world& s) {
  return s.at[prefetcher] == ended ? nullptr : fetch(s, prefetcher, 0, ended);
}

const char* evict(world& s, thread who) {
  const bool no_fence = s.without == bug::no_membarrier;
  const bool asks_first = s.without == bug::ask_before_claiming;
  const bool early = s.without == bug::early_byte_at_departure;
  switch (s.at[who]) {
    case 0:
      if (asks_first) {
        s.memory.fence(0);
        if (s.memory.get(log_entry) != 0) return go(s, who, ended, "sees the page in a log");
      }
      if (early) s.byte = evicting;
      return go(s, who, 1, "chooses the page");
    case 1:
      if (s.word != resident) return go(s, who, ended, "leaves the page alone");
      s.word = evicting;
      return go(s, who, early ? 3 : 2, "makes the word Evicting");
    case 2: s.byte = evicting; return go(s, who, asks_first ? 5 : 3, "makes the byte Evicting");
    case 3:
      if (!no_fence) s.memory.fence(0);
      return go(s, who, 4, "passes the membarrier");
    case 4:
      return s.memory.get(log_entry) != 0 ? go(s, who, 7, "sees the page in a log")
                                          : go(s, who, 5, "sees no log with it");
    case 5:
      s.slot = s.memory.get(data);
      s.memory.put(data, 0xdb);
      s.is_present = 0;
      return go(s, who, 6, "takes the bytes away");
    case 6: s.word = remote; return go(s, who, ended, "makes the word Remote");
    case 7: s.byte = resident; return go(s, who, 8, "gives the byte back");
    case 8: s.word = resident; return go(s, who, ended, "gives the word back");
    default: return nullptr;
  }
}

verdict explore(bug without) {
  const auto has_ended = [](thread who) { return [who](const world& s) { return s.at[who] == ended; }; };
  explorer<world> all(
      {{"reader", read_and_write, has_ended(reader)},
       buffer_of<world, &world::memory, 0>("reader's buffer"),
       {"prefetcher", prefetch, has_ended(prefetcher)},
       {"evictor", [](world& s) { return evict(s, evictor); }, has_ended(evictor)},
       {"second evictor", [](world& s) { return evict(s, second_evictor); }, has_ended(second_evictor)}},
      [](const world& s) {
        require((s.word == resident) == (s.byte == resident), "word and byte agree in the end");
        const std::uint8_t kept = s.word == remote ? s.slot : s.memory.get(data);
        require(kept == s.written, "no write is lost");
      });
  world initial;
  initial.without = without;
  return all.explore(initial);
}

TEST(residency_model, holds_in_every_order) {
  const verdict found = explore(bug::none);
  EXPECT_TRUE(found.holds) << found.trace;
  EXPECT_GT(found.states, 1000u);
}

// Some order of steps breaks one of the model's own promises; which one comes first is chance.
void expect_found(bug without) {
  const verdict found = explore(without);
  EXPECT_TRUE(found.breaks("a page in use stays") || found.breaks("no write is lost") ||
              found.breaks("word and byte agree"))
      << found.trace;
}

TEST(residency_model, finds_the_bug_without_the_membarrier) {
  expect_found(bug::no_membarrier);
}
TEST(residency_model, finds_the_bug_of_a_reader_that_looks_before_it_publishes) {
  expect_found(bug::state_before_publishing);
}
TEST(residency_model, finds_the_bug_of_an_evictor_that_asks_before_it_claims) {
  expect_found(bug::ask_before_claiming);
}
TEST(residency_model, finds_the_write_after_the_scope) {
  EXPECT_TRUE(explore(bug::let_go_before_writing).breaks("no write is lost"));
}
TEST(residency_model, finds_the_late_byte_of_a_page_that_arrives) {
  expect_found(bug::late_byte_at_arrival);
}
TEST(residency_model, finds_the_early_byte_of_a_page_that_leaves) {
  expect_found(bug::early_byte_at_departure);
}

}  // namespace
}  // namespace far::model
