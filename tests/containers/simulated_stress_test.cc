// The containers under many fibers and threads over the poisoning pager: wherever userfaultfd is missing, and under
// sanitizers.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/sanitizers.h"
#include "base/units.h"
#include "far/dataframe.h"
#include "far/list.h"
#include "far/queue.h"
#include "far/runtime.h"
#include "far/vector.h"
#include "tests/containers/hash_map_stress.h"

namespace far {
namespace {

constexpr stress::sizes few =
    has_thread_sanitizer ? stress::sizes{.steps = 480, .many = 4'000} : stress::sizes{.steps = 2'400, .many = 20'000};

class simulated_containers : public ::testing::Test {
 protected:
  simulated_containers() {
    runtime_options chosen;
    chosen.local_bytes = mib;
    chosen.workers = 2;
    chosen.page_path_share = 0.5;
    farheap_ = std::make_unique<runtime>(chosen);
  }
  ~simulated_containers() override { farheap_->validate(); }

  std::unique_ptr<runtime> farheap_;
};

TEST_F(simulated_containers, readers_and_writers_see_whole_values) {
  stress::readers_and_writers_see_whole_values(*farheap_, few);
}
TEST_F(simulated_containers, what_was_found_stays_until_the_scope_ends) {
  stress::what_was_found_stays_until_the_scope_ends(*farheap_, few);
}
TEST_F(simulated_containers, grows_under_readers) {
  stress::grows_under_readers(*farheap_, few);
}
TEST_F(simulated_containers, what_is_replaced_is_always_there) {
  stress::what_is_replaced_is_always_there(*farheap_, few);
}
TEST_F(simulated_containers, copies_are_of_before_or_after_an_update) {
  stress::copies_are_of_before_or_after_an_update(*farheap_, few);
}
TEST_F(simulated_containers, a_cache_keeps_its_limit_under_many) {
  stress::a_cache_keeps_its_limit_under_many(*farheap_, few);
}
TEST_F(simulated_containers, entries_leave_under_many) {
  stress::entries_leave_under_many(*farheap_, few);
}
TEST_F(simulated_containers, no_note_is_lost) {
  stress::no_note_is_lost(few);
}
TEST_F(simulated_containers, a_shared_lock_keeps_writers_apart) {
  stress::a_shared_lock_keeps_writers_apart(*farheap_, few);
}

// Readers of one vector, and visitors of parts of others.
TEST_F(simulated_containers, vectors_are_read_together) {
  constexpr std::size_t count = 60'000;
  vector<std::uint64_t> shared(*farheap_, count, std::uint64_t{1});
  shared.for_each_chunk_mut([](std::span<std::uint64_t> part, std::size_t first) {
    for (std::uint64_t& one : part) one = first++ * 3;
  });
  std::atomic<std::uint64_t> wrong{0};
  {
    const stress::disturber disturbing(*farheap_);
    stress::work_together(*farheap_, 4, [&](unsigned worker) {
      for (std::size_t at = worker; at < count; at += 17) wrong += shared.read(at) == at * 3 ? 0u : 1u;
      std::size_t seen = 0;
      for (std::size_t first = 0; first < shared.size();) {
        const scope here(*farheap_);
        const std::span<const std::uint64_t> part = shared.chunk(here, first);
        for (const std::uint64_t one : part) wrong += one == seen++ * 3 ? 0u : 1u;
        first += part.size();
      }
    });
  }
  EXPECT_EQ(wrong.load(), 0u);
}

// Walks over one frame that does not fit, for which fibers copy numbers ahead; and one that makes a column of a frame
// of its own, so that what it makes takes the room of what the others read.
TEST_F(simulated_containers, walks_pass_by_together) {
  constexpr std::int64_t count = 60'000;
  const auto add = [&](dataframe& to, const char* name, std::int64_t factor) {
    std::vector<std::int64_t> numbers;
    for (std::int64_t row = 0; row < count; ++row) numbers.push_back((row * factor) << 33);
    column made(*farheap_, column_type::int64);
    made.append_numbers(std::span<const std::int64_t>(numbers));
    to.add(name, std::move(made));
  };
  dataframe shared(*farheap_);
  dataframe own(*farheap_);
  for (dataframe* const one : {&shared, &own}) {
    add(*one, "a", 3);
    add(*one, "b", 5);
    ASSERT_TRUE(detail::walk(*farheap_, (*one)["a"].bytes() + (*one)["b"].bytes()).passes());
  }
  std::atomic<std::uint64_t> wrong{0};
  {
    const stress::disturber disturbing(*farheap_);
    stress::work_together(*farheap_, 4, [&](unsigned worker) {
      std::int64_t row = 0;
      const auto is_right = [&](std::int64_t a, std::int64_t b) {
        const bool is = a == (row * 3) << 33 && b == (row * 5) << 33;
        ++row;
        return is;
      };
      if (worker == 3) {
        own.derive<std::int64_t, std::int64_t>("is_right", {"a", "b"}, is_right);
        wrong += static_cast<std::uint64_t>(count) - own["is_right"].count_between(true, true);
      } else {
        wrong += static_cast<std::uint64_t>(count) -
                 shared.rows_where<std::int64_t, std::int64_t>({"a", "b"}, is_right).size();
      }
    });
  }
  EXPECT_EQ(wrong.load(), 0u);
}

// Each worker has containers of its own, whose chunks leave and come all the time.
TEST_F(simulated_containers, lists_and_queues_of_many) {
  std::atomic<std::uint64_t> wrong{0};
  {
    const stress::disturber disturbing(*farheap_);
    stress::work_together(*farheap_, 4, [&](unsigned worker) {
      list<std::uint64_t> mine(*farheap_);
      queue<std::uint64_t> waiting(*farheap_);
      for (std::uint64_t i = 0; i < few.steps * 2; ++i) {
        mine.push_back(i ^ worker);
        waiting.push(i + worker);
        if (i % 3 == 0) wrong += waiting.take() == i / 3 + worker ? 0u : 1u;
      }
      const scope here(*farheap_);
      std::uint64_t at = 0;
      for (const std::uint64_t one : mine.range(here)) wrong += one == (at++ ^ worker) ? 0u : 1u;
      wrong += at == mine.size() ? 0u : 1u;
    });
  }
  EXPECT_EQ(wrong.load(), 0u);
}

}  // namespace
}  // namespace far
