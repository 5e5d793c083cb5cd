#include "engine/residency.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

namespace far::engine {
namespace {

constexpr std::array<state, state_count> all_states = {
    state::untouched, state::resident, state::evicting, state::remote, state::fetching, state::lost, state::foreign};

TEST(page_word, starts_untouched_and_empty) {
  const page_word word;
  EXPECT_EQ(word.where(), state::untouched);
  EXPECT_FALSE(word.dirty());
  EXPECT_FALSE(word.accessed());
  EXPECT_FALSE(word.queued());
  EXPECT_FALSE(word.lifted());
  EXPECT_FALSE(word.writes_expected());
  EXPECT_FALSE(word.has_place());
  EXPECT_EQ(word.pins(), 0u);
  EXPECT_EQ(word.epoch(), 0u);
}

// Each field at its largest value, alone and among others: no field reaches into its neighbours.
TEST(page_word, fields_are_independent) {
  constexpr std::uint64_t largest_place = (std::uint64_t{1} << 38) - 2;
  const page_word full = page_word()
                             .with_state(state::lost)
                             .with_dirty(true)
                             .with_accessed(true)
                             .with_queued(true)
                             .with_lifted(true)
                             .with_writes_expected(true)
                             .with_fetched(true)
                             .with_pins(page_word::maximum_pins)
                             .with_epoch(page_word::epochs - 1)
                             .with_place(largest_place);
  EXPECT_EQ(full.place(), largest_place);
  const std::vector<page_word> cleared = {full.with_state(state::untouched),
                                          full.with_dirty(false),
                                          full.with_accessed(false),
                                          full.with_queued(false),
                                          full.with_lifted(false),
                                          full.with_writes_expected(false),
                                          full.with_pins(0),
                                          full.with_epoch(0),
                                          full.with_place(page_word::no_place),
                                          full.with_fetched(false)};
  for (std::size_t i = 0; i < cleared.size(); ++i) {
    EXPECT_EQ(cleared[i].where(), i == 0 ? state::untouched : state::lost) << i;
    EXPECT_EQ(cleared[i].dirty(), i != 1) << i;
    EXPECT_EQ(cleared[i].accessed(), i != 2) << i;
    EXPECT_EQ(cleared[i].queued(), i != 3) << i;
    EXPECT_EQ(cleared[i].lifted(), i != 4) << i;
    EXPECT_EQ(cleared[i].writes_expected(), i != 5) << i;
    EXPECT_EQ(cleared[i].pins(), i == 6 ? 0u : page_word::maximum_pins) << i;
    EXPECT_EQ(cleared[i].epoch(), i == 7 ? 0u : page_word::epochs - 1) << i;
    EXPECT_EQ(cleared[i].has_place(), i != 8) << i;
    EXPECT_EQ(cleared[i].fetched(), i != 9) << i;
  }
}

TEST(page_word, place_zero_is_a_place) {
  const page_word word = page_word().with_place(0);
  ASSERT_TRUE(word.has_place());
  EXPECT_EQ(word.place(), 0u);
}

TEST(page_word, epochs_wrap) {
  EXPECT_EQ(page_word().with_epoch(page_word::epochs + 3).epoch(), 3u);
}

TEST(residency, legal_transitions_are_those_of_the_picture) {
  const auto follows = [](state from, state to) {
    switch (from) {
      case state::untouched: return to == state::fetching || to == state::resident || to == state::foreign;
      case state::foreign: return to == state::untouched;
      case state::resident: return to == state::evicting;
      case state::evicting:
        return to == state::resident || to == state::remote || to == state::untouched || to == state::fetching;
      case state::remote: return to == state::fetching || to == state::untouched;
      case state::fetching:
        return to == state::resident || to == state::remote || to == state::untouched || to == state::lost;
      case state::lost: return to == state::untouched;
    }
    return false;
  };
  for (const state from : all_states) {
    for (const state to : all_states) {
      EXPECT_EQ(is_legal_transition(from, to), from == to || follows(from, to)) << name_of(from) << " " << name_of(to);
    }
  }
}

TEST(residency, a_transition_happens_only_from_the_expected_word) {
  residency pages(4);
  page_word expected = pages.load(2);
  ASSERT_TRUE(pages.transition(2, expected, expected.with_state(state::fetching)));
  EXPECT_EQ(pages.load(2).where(), state::fetching);
  page_word outdated;
  EXPECT_FALSE(pages.transition(2, outdated, outdated.with_state(state::fetching)));
  EXPECT_EQ(outdated, pages.load(2)) << "tells what the word is instead";
  EXPECT_EQ(pages.load(1).where(), state::untouched) << "neighbours stay";
  EXPECT_EQ(pages.load(3).where(), state::untouched);
}

// By the numbers that pages have in the whole address space; a heap begins at a multiple of 2 MiB.
TEST(residency, keeps_states_by_address) {
  constexpr std::uint64_t first = 0x7f1234200;
  residency pages(4, first);
  const std::uint8_t* const states = pages.states_by_number();
  ASSERT_NE(states, nullptr);
  for (const state next : {state::resident, state::evicting, state::remote}) {
    page_word word = pages.load(1);
    ASSERT_TRUE(pages.transition(1, word, word.with_state(next)));
    EXPECT_EQ(states[first + 1] <= static_cast<std::uint8_t>(state::resident), next == state::resident);
    EXPECT_EQ(states[first + 1], pages.state_bytes()[1]);
  }
  EXPECT_EQ(states[first], 0) << "an untouched page wants no call";
  EXPECT_EQ(states[first - 1], 0);
  EXPECT_EQ(states[first + 4], 0);
  EXPECT_EQ(states[0], 0);
  EXPECT_EQ(states[residency::last_number], 0);
  EXPECT_EQ(residency(4).states_by_number(), nullptr);
  EXPECT_EQ(residency(4, residency::last_number).states_by_number(), nullptr) << "there is no room for four";
}

TEST(residency, says_that_a_page_has_left) {
  residency pages(2);
  page_word word = pages.load(1);
  ASSERT_TRUE(pages.transition(1, word, word.with_state(state::resident)));
  EXPECT_EQ(*pages.has_evicted(), 0);
  word = pages.load(1);
  ASSERT_TRUE(pages.transition(1, word, word.with_state(state::evicting)));
  const std::uint64_t once = *pages.has_evicted();
  EXPECT_NE(once, 0);
  pages.note_departures();
  EXPECT_GT(*pages.has_evicted(), once);
}

TEST(residency_death_test, an_illegal_transition_stops_the_process) {
  residency pages(1);
  page_word word = pages.load(0);
  EXPECT_DEATH(static_cast<void>(pages.transition(0, word, word.with_state(state::remote))), "illegal residency");
}

// Threads take the page round the circle of states; each step has one winner.
TEST(residency, one_of_many_threads_wins_each_transition) {
  constexpr unsigned threads = 4;
  constexpr unsigned attempts = 20'000;
  residency pages(1);
  std::array<std::uint64_t, threads> wins{};
  const auto next = [](state from) {
    switch (from) {
      case state::untouched: return state::fetching;
      case state::fetching: return state::resident;
      case state::resident: return state::evicting;
      case state::evicting: return state::remote;
      default: return state::untouched;
    }
  };
  std::vector<std::thread> running;
  for (unsigned self = 0; self < threads; ++self) {
    running.emplace_back([&, self] {
      for (unsigned i = 0; i < attempts; ++i) {
        page_word word = pages.load(0);
        // The place counts the steps, so that a round of steps is not taken for none.
        const std::uint64_t steps = word.has_place() ? word.place() + 1 : 0;
        wins[self] += pages.transition(0, word, word.with_state(next(word.where())).with_place(steps));
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  std::uint64_t all_wins = 0;
  for (const std::uint64_t win : wins) all_wins += win;
  const page_word last = pages.load(0);
  EXPECT_EQ(last.place() + 1, all_wins);
  constexpr std::array<state, 5> circle = {state::untouched, state::fetching, state::resident, state::evicting,
                                           state::remote};
  EXPECT_EQ(last.where(), circle[all_wins % circle.size()]);
}

// A thread that has made a page Evicting sees its byte say so until it makes the page Resident again, however late
// other threads are with what they did before.
TEST(residency, the_byte_never_says_resident_while_somebody_owns_the_page) {
  constexpr unsigned threads = 4;
  constexpr unsigned rounds = 20'000;
  residency pages(1);
  const auto step = [&pages](state to) { pages.update(0, [to](page_word word) { return word.with_state(to); }); };
  const auto says_resident = [&pages] {
    return __atomic_load_n(&pages.state_bytes()[0], __ATOMIC_ACQUIRE) == residency::byte_of_resident;
  };
  step(state::fetching);
  EXPECT_FALSE(says_resident());
  step(state::resident);
  std::atomic<unsigned> wrong{0};
  std::vector<std::thread> running;
  for (unsigned self = 0; self < threads; ++self) {
    running.emplace_back([&] {
      for (unsigned i = 0; i < rounds; ++i) {
        page_word word = pages.load(0);
        if (word.where() != state::resident || !pages.transition(0, word, word.with_state(state::evicting))) continue;
        for (const state next : {state::remote, state::fetching}) {
          wrong += says_resident();
          step(next);
        }
        wrong += says_resident();
        step(state::resident);
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_TRUE(says_resident());
}

TEST(residency, update_keeps_what_others_change) {
  residency pages(1);
  constexpr unsigned rounds = 20'000;
  std::thread flags([&pages] {
    for (unsigned i = 0; i < rounds; ++i) {
      pages.update(0, [](page_word word) { return word.with_queued(!word.queued()); });
    }
  });
  for (unsigned i = 0; i < rounds; ++i) {
    pages.update(0, [](page_word word) { return word.with_pins((word.pins() + 1) % 200); });
  }
  flags.join();
  EXPECT_EQ(pages.load(0).pins(), rounds % 200);
  EXPECT_EQ(pages.load(0).queued(), rounds % 2 == 1);
}

}  // namespace
}  // namespace far::engine
