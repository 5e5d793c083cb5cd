// Which path pages take, and what that costs, in programs that change what they do. On a pager without chance
// (tests/support/poisoning_pager.h), so that costs are counts of fetches, and nearly the same in every run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/units.h"
#include "far/runtime.h"
#include "far/scope.h"
#include "far/unique_ptr.h"

namespace far {
namespace {

struct record {
  explicit record(std::uint64_t which) : number(which) {}
  std::uint64_t number;
  std::byte rest[56] = {};
};

constexpr std::size_t budget_bytes = 4 * mib;
constexpr std::size_t records = 131'072;  // of each table: two and a half times the budget
constexpr std::size_t hot_records = budget_bytes / 2 / 80;
constexpr std::size_t accesses_a_round = records / 4;

// In units of an object's fetch. What matters is that a page costs some objects, and its leaving something.
constexpr double page_cost = 2;
constexpr double leaving_cost = 1;

class program {
 public:
  explicit program(double page_path_share) : farheap_(options_with(page_path_share)), order_(records) {
    for (table* filled : {&scattered_, &dense_}) {
      for (std::size_t i = 0; i < records; ++i) filled->push_back(make_unique<record>(farheap_, i));
    }
    std::iota(order_.begin(), order_.end(), 0u);
    std::shuffle(order_.begin(), order_.end(), random_);
  }

  // Another hot set.
  void shift() { hot_first_ = (hot_first_ + hot_records) % (records - hot_records); }

  // Nine of ten accesses go to the hot set, which is spread over the whole table.
  void scatter() {
    const bool hot = random_() % 10 != 0;
    use(scattered_, order_[hot ? hot_first_ + random_() % hot_records : random_() % records]);
  }
  // Over the other table, with every so many records; the next time, beginning one further.
  void walk(std::size_t stride) {
    use(dense_, walked_);
    walked_ += stride;
    if (walked_ >= records) walked_ = ++passes_ % stride;
  }

  [[nodiscard]] double costs() const {
    const runtime_statistics now = farheap_.statistics();
    return static_cast<double>(now.object_fetches) + page_cost * static_cast<double>(now.fetched_pages) +
           leaving_cost * static_cast<double>(now.evicted_pages);
  }
  [[nodiscard]] std::size_t wrong() const { return wrong_; }

 private:
  using table = std::vector<unique_ptr<record>>;

  static runtime_options options_with(double page_path_share) {
    runtime_options chosen;
    chosen.local_bytes = budget_bytes;
    chosen.workers = 1;
    chosen.policy = "fifo";
    chosen.evacuate_garbage_share = 2;
    chosen.page_path_share = page_path_share;
    return chosen;
  }
  void use(const table& in, std::size_t number) {
    const scope here(farheap_);
    wrong_ += in[number].deref(here).number == number ? 0 : 1;
  }

  runtime farheap_;
  table scattered_;
  table dense_;
  std::vector<std::uint32_t> order_;
  std::mt19937_64 random_{7};
  std::size_t hot_first_ = 0;
  std::size_t walked_ = 0;
  std::size_t passes_ = 0;
  std::size_t wrong_ = 0;
};

struct phase {
  std::function<void(program&)> access;
  bool shifts = false;
};

const phase scattered{[](program& one) { one.scatter(); }};
const phase dense{[](program& one) { one.walk(1); }};
const phase strided{[](program& one) { one.walk(4); }};
const phase shifted{[](program& one) { one.scatter(); }, true};
const phase mixed{[](program& one) {
  one.scatter();
  for (int i = 0; i < 4; ++i) one.walk(1);
}};

constexpr unsigned rounds = 10;

// The costs of each phase, of which the first half of the rounds warms up, and then of the whole program.
std::vector<double> costs_of(const std::vector<phase>& phases, double page_path_share) {
  program one(page_path_share);
  std::vector<double> costs;
  const double before = one.costs();
  for (const phase& next : phases) {
    if (next.shifts) one.shift();
    double warm = 0;
    for (unsigned round = 0; round < rounds; ++round) {
      if (round == rounds / 2) warm = one.costs();
      for (std::size_t i = 0; i < accesses_a_round; ++i) next.access(one);
    }
    costs.push_back(one.costs() - warm);
  }
  costs.push_back(one.costs() - before);
  EXPECT_EQ(one.wrong(), 0u);
  return costs;
}

// The costs of the better forced path over those of the default. Above 1: the default is better than both.
std::vector<double> against_better(const std::vector<phase>& phases) {
  const std::vector<double> by_object = costs_of(phases, 2);
  const std::vector<double> by_page = costs_of(phases, 0);
  std::vector<double> ratios = costs_of(phases, runtime_options{}.page_path_share);
  for (std::size_t i = 0; i < ratios.size(); ++i) {
    ratios[i] = std::min(by_object[i], by_page[i]) / std::max(ratios[i], 1.0);
    ::testing::Test::RecordProperty("phase_" + std::to_string(i), std::to_string(ratios[i]));
  }
  return ratios;
}

// Measured: docs/decisions/0086-pages-used-once.md. The first phase learns.
TEST(path_costs, scattered_and_dense_phases) {
  const std::vector<double> ratio = against_better({scattered, dense, scattered, dense});
  EXPECT_GT(ratio[0], 0.6);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_GT(ratio[i], 0.92) << i;
  EXPECT_GT(ratio[4], 4) << "neither forced path is right for both";
}

TEST(path_costs, shifting_hot_sets) {
  const std::vector<double> ratio = against_better({shifted, shifted, shifted});
  EXPECT_GT(ratio[0], 0.5);
  for (std::size_t i = 1; i < 3; ++i) EXPECT_GT(ratio[i], 0.8) << i;
  EXPECT_GT(ratio[3], 0.8);
}

// Pages of which a quarter is used are not worth their room, if what is used stays; here it does not.
TEST(path_costs, strided_walks_between_scattered_phases) {
  const std::vector<double> ratio = against_better({scattered, strided, scattered, strided});
  for (const std::size_t of_strides : {1u, 3u}) EXPECT_GT(ratio[of_strides], 0.92) << of_strides;
  EXPECT_GT(ratio[2], 0.9);
  EXPECT_GT(ratio[4], 2);
}

TEST(path_costs, both_at_a_time) {
  const std::vector<double> ratio = against_better({mixed});
  EXPECT_GT(ratio[0], 2.5);
}

}  // namespace
}  // namespace far
