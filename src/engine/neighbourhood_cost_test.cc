// What fault-around costs and saves on made-up programs: how many pages are missed, and how many come along, under the
// default policy.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "engine/neighbourhood.h"
#include "engine/policy.h"
#include "engine/two_queues.h"
#include "tests/support/page_states.h"

namespace far::engine {
namespace {

struct costs {
  std::uint64_t misses = 0;
  std::uint64_t along = 0;
  std::uint64_t used = 0;  // of those that came along
  // In misses: a page that comes along costs about a fourth of one.
  [[nodiscard]] double sum() const { return static_cast<double>(misses) + static_cast<double>(along) / 4; }
};

// The part of the engine that decides which pages come and leave.
class played_engine {
 public:
  played_engine(std::uint64_t pages, std::uint64_t frames, bool comes_around)
      : pages_(pages), local_(frames), comes_around_(comes_around), unused_(pages, false) {
    for (page_id page = 0; page < pages; ++page) put(pages_, page, state::remote, 32);
  }

  void access(page_id page) {
    if (pages_.load(page).where() == state::resident) {
      result_.used += unused_[page];
      unused_[page] = false;
      return;
    }
    ++result_.misses;
    asked_.note_miss(page);
    const window region = comes_around_ ? asked_.around(page) : window{};
    bring(page, true);
    for (std::size_t i = 0; i < region.count; ++i) {
      const page_id other = page + static_cast<page_id>(region.first + static_cast<std::int64_t>(i));
      if (other >= pages_.pages() || other == region.left_out) continue;
      if (pages_.load(other).where() != state::remote) continue;
      ++result_.along;
      bring(other, false);
    }
  }
  [[nodiscard]] const costs& result() const { return result_; }

 private:
  void bring(page_id page, bool is_missed) {
    if (resident_ == local_.limit_pages()) evict_one();
    ++resident_;
    if (!is_missed && time_.epochs_since(pages_.load(page).epoch()) <= neighbourhood::soon) count_.returned_along.add();
    const unsigned epochs_away = time_.epochs_since(pages_.load(page).epoch());
    const bool hot = is_missed && epochs_away < order_->remembered_epochs();
    const bool has_returned = is_missed && epochs_away < order_->recalled_epochs();
    put(pages_, page, state::resident, pages_.load(page).epoch());
    pages_.update(page, [hot](page_word word) { return word.with_accessed(hot).with_queued(true); });
    order_->admit(page, has_returned ? temperature::returned : temperature::warm);
    unused_[page] = !is_missed;
  }
  void evict_one() {
    std::array<page_id, 1> victim{};
    while (order_->select(victim) == 0) {
    }
    put(pages_, victim[0], state::remote, time_.epoch());
    pages_.update(victim[0], [](page_word word) { return word.with_accessed(false).with_queued(false); });
    count_.evicted_pages.add();
    --resident_;
  }

  residency pages_;
  budget local_;
  counters count_;
  eviction_clock time_{local_, count_};
  neighbourhood asked_{pages_, time_, count_, true};
  std::unique_ptr<policy> order_ = std::make_unique<two_queues>(pages_);
  bool comes_around_;
  std::uint64_t resident_ = 0;
  std::vector<bool> unused_;
  costs result_;
};

// Calls visit(page) for each access of a program, the same ones at each call.
using program = std::function<void(const std::function<void(page_id)>& visit)>;

struct comparison {
  costs alone;
  costs around;  // with fault-around, from the start
  [[nodiscard]] double ratio() const { return around.sum() / alone.sum(); }
};

comparison compare(std::uint64_t pages, std::uint64_t frames, const program& run) {
  played_engine alone(pages, frames, false);
  played_engine around(pages, frames, true);
  run([&](page_id page) { alone.access(page); });
  run([&](page_id page) { around.access(page); });
  return {alone.result(), around.result()};
}

class zipf {
 public:
  zipf(std::size_t count, double exponent) : sums_(count) {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) sums_[i] = sum += std::pow(static_cast<double>(i + 1), -exponent);
  }
  template <typename Random>
  std::size_t draw(Random& random) const {
    const double at = std::uniform_real_distribution<double>(0, sums_.back())(random);
    return static_cast<std::size_t>(std::lower_bound(sums_.begin(), sums_.end(), at) - sums_.begin());
  }

 private:
  std::vector<double> sums_;
};

// A hash table with a node for each word, in the order in which they first came: a bucket, the nodes of its chain.
program counting(std::size_t words, std::size_t operations) {
  return [=](const std::function<void(page_id)>& visit) {
    const zipf ranks(words, 0.9);
    std::mt19937_64 random(3);
    std::vector<std::uint32_t> node(words, ~0U);
    std::vector<std::vector<std::uint32_t>> chains(words);
    std::uint32_t nodes = 0;
    const page_id nodes_at = words / 512 + 16;
    const page_id names_at = nodes_at + words / 64 + 16;
    for (std::size_t i = 0; i < operations; ++i) {
      const std::size_t rank = ranks.draw(random);
      const std::size_t bucket = rank * 0x9e3779b97f4a7c15 % words;
      visit(bucket / 512);
      if (node[rank] == ~0U) {
        node[rank] = nodes++;
        chains[bucket].push_back(node[rank]);
      }
      for (const std::uint32_t other : chains[bucket]) {
        visit(nodes_at + other / 64);
        if (other == node[rank]) break;
      }
      if (rank % 2 == 0) visit(names_at + node[rank] / 128);
    }
  };
}

TEST(fault_around, ends_in_a_hash_table) {
  constexpr std::size_t words = 1 << 17;
  constexpr std::uint64_t pages = words / 512 + words / 64 + words / 128 + 64;
  for (const unsigned percent : {25, 50}) {
    const comparison found = compare(pages, pages * percent / 100, counting(words, 500'000));
    EXPECT_LT(found.ratio(), 1.02) << percent;
    EXPECT_LT(found.around.along, found.alone.misses / 25) << percent;
  }
}

// With three quarters of the pages local most regions look as if they were in use, and most pages are wanted soon.
TEST(fault_around, ends_where_any_page_is_used) {
  constexpr std::uint64_t pages = 16384;
  for (const double exponent : {0.0, 0.5}) {
    const auto run = [exponent](const std::function<void(page_id)>& visit) {
      const zipf ranks(pages, exponent);
      std::mt19937_64 random(7);
      for (int i = 0; i < 400'000; ++i) visit(ranks.draw(random));
    };
    for (const unsigned percent : {50, 75}) {
      const comparison found = compare(pages, pages * percent / 100, run);
      EXPECT_LT(found.ratio(), 1.02) << exponent << ", " << percent;
      EXPECT_LT(found.around.along, found.alone.misses / 8) << exponent << ", " << percent;
    }
  }
}

// Each visit uses all pages of a group of 16, in any order.
TEST(fault_around, goes_on_where_groups_are_used) {
  constexpr std::uint64_t groups = 512;
  const auto run = [](const std::function<void(page_id)>& visit) {
    std::mt19937_64 random(5);
    for (int i = 0; i < 10'000; ++i) {
      std::array<page_id, neighbourhood::region_pages> order;
      std::iota(order.begin(), order.end(), random() % groups * order.size());
      std::shuffle(order.begin(), order.end(), random);
      for (const page_id page : order) visit(page);
    }
  };
  for (const unsigned percent : {10, 25, 50}) {
    const comparison found = compare(groups * 16, groups * 16 * percent / 100, run);
    EXPECT_LT(found.ratio(), 0.75) << percent;
    EXPECT_GT(found.around.used, found.around.along * 9 / 10) << percent;
  }
}

}  // namespace
}  // namespace far::engine
