// A model of a page that begins a new use (heap/page_table.cc: begin_use; heap/heap.cc: is_claimed) against the evictor
// (heap/scope_filter.cc: decide). Nobody had the page, but it is resident, as zeros that were put ahead of a walk, and
// condemned under a period that is over. A mutator takes it for an object, finds that it is not condemned any more, as
// it has said so itself, looks whether it is there, and writes. An evictor that has claimed the page takes it away
// unless it sees that it is not condemned.
//
// The mutator's look at the page must not pass its own store: nothing else orders them, because a page that is not
// condemned is claimed without a read-modify-write.
#include <gtest/gtest.h>

#include "tests/model/explorer.h"
#include "tests/model/tso.h"

namespace far::model {
namespace {

enum class bug : std::uint8_t { none, no_fence };
enum thread : std::uint8_t { mutator, evictor, threads };
enum state : std::uint8_t { resident, evicting, remote };
enum cell : std::uint8_t { condemned, content, cells };
constexpr std::uint8_t ended = 100;

struct world {
  std::uint8_t at[threads] = {};
  bug without = bug::none;
  std::uint8_t page = resident;
  std::uint8_t far = 0;  // the content, while the page is remote
  tso_memory<cells, 1> memory;
};

const char* go(world& s, thread who, std::uint8_t to, const char* did) {
  s.at[who] = to;
  return did;
}

const char* use(world& s) {
  switch (s.at[mutator]) {
    case 0: return s.memory.store(mutator, condemned, 0) ? go(s, mutator, 1, "begins to use the page") : nullptr;
    case 1:
      if (s.without == bug::none && !s.memory.is_drained(mutator)) return nullptr;
      return go(s, mutator, 2, "passes a fence");
    case 2:
      require(s.memory.load(mutator, condemned) == 0, "nobody condemns it meanwhile");
      return go(s, mutator, 3, "finds that the page is not condemned");
    case 3:
      if (s.page == resident) return go(s, mutator, 4, "finds the page resident");
      if (s.page == evicting || !s.memory.is_drained(mutator)) return nullptr;
      s.memory.put(content, s.far);
      s.page = resident;
      return go(s, mutator, 2, "fetches the page");
    case 4: return s.memory.store(mutator, content, 1) ? go(s, mutator, ended, "writes") : nullptr;
    default: return nullptr;
  }
}

const char* evict(world& s) {
  switch (s.at[evictor]) {
    case 0: s.page = evicting; return go(s, evictor, 1, "claims the page");
    case 1:
      if (s.memory.get(condemned) != 0) return go(s, evictor, 2, "finds that nobody can have a pointer into it");
      s.page = resident;
      return go(s, evictor, ended, "gives the page back");
    case 2: s.memory.fence(mutator); return go(s, evictor, 3, "makes the mutator pass the membarrier");
    case 3: s.far = s.memory.get(content); return go(s, evictor, 4, "copies it");
    case 4: s.page = remote; return go(s, evictor, ended, "drops it");
    default: return nullptr;
  }
}

verdict explore(bug without) {
  const auto has_ended = [](thread who) { return [who](const world& s) { return s.at[who] == ended; }; };
  explorer<world> all({{"mutator", use, has_ended(mutator)},
                       {"evictor", evict, has_ended(evictor)},
                       buffer_of<world, &world::memory, mutator>("mutator's buffer")},
                      [](const world& s) {
                        const std::uint8_t now = s.page == remote ? s.far : s.memory.get(content);
                        require(now == 1, "no write is lost");
                      });
  world initial;
  initial.without = without;
  initial.memory.put(condemned, 1);
  return all.explore(initial);
}

TEST(fresh_page_model, holds_in_every_order) {
  const verdict found = explore(bug::none);
  EXPECT_TRUE(found.holds) << found.trace;
  EXPECT_GT(found.states, 20u);
}
TEST(fresh_page_model, finds_the_look_that_passes_the_store) {
  const verdict found = explore(bug::no_fence);
  EXPECT_TRUE(found.breaks("no write is lost")) << found.trace;
}

}  // namespace
}  // namespace far::model
