// The containers beside those of std, by random operations, some of which throw, on every kind of far tier. Needs
// permission for userfaultfd.
#include "far_tiers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <random>
#include <ranges>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/units.h"
#include "elements.h"
#include "far/array.h"
#include "far/hash_map.h"
#include "far/list.h"
#include "far/queue.h"
#include "far/stack.h"
#include "far/string.h"
#include "far/vector.h"

namespace far {
namespace {

using test::fragile;
class far_tiers : public heap::real_pager_test<testing::TestWithParam<test::far_tier_kind>> {
 protected:
  void SetUp() override {
    real_pager_test::SetUp();
    if (IsSkipped()) return;
    if (!GetParam().missing.empty()) GTEST_SKIP() << GetParam().missing;
    tier_ = GetParam().open();
    runtime_options chosen = heap::small_runtime();
    chosen.evacuate_garbage_share = 0.5;
    chosen.far = tier_.name;
    farheap_ = std::make_unique<runtime>(chosen);
    test::home = farheap_.get();
  }
  void TearDown() override {
    if (farheap_ != nullptr) farheap_->validate();
    farheap_.reset();
    EXPECT_EQ(fragile::living, 0);
  }

  test::open_far_tier tier_;
  std::unique_ptr<runtime> farheap_;
};

// Random operations on one container and on its model. Those that throw change nothing.
class both {
 public:
  virtual ~both() = default;
  virtual void step(std::mt19937_64& random) = 0;
  [[nodiscard]] virtual bool are_equal(const scope& here) const = 0;

 protected:
  static constexpr std::size_t most = 4000;

  // Runs both, or neither: every fourth time, a constructor throws.
  static void attempt(std::mt19937_64& random, const std::function<void()>& mine, const std::function<void()>& model) {
    fragile::fuse = random() % 4 == 0 ? static_cast<int>(1 + random() % 5) : -1;
    try {
      mine();
    } catch (const std::runtime_error&) {
      fragile::fuse = -1;
      return;
    }
    fragile::fuse = -1;
    model();
  }
};

template <std::size_t Elements>
class both_vectors final : public both {
 public:
  explicit both_vectors(runtime& in) : mine_(in) {}
  void step(std::mt19937_64& random) override {
    const std::uint64_t value = random();
    const std::size_t count = random() % 300;
    const std::size_t at = model_.empty() ? 0 : random() % model_.size();
    switch (random() % 6) {
      case 0:
        if (model_.size() > most) {
          attempt(random, [&] { mine_.resize(count); }, [&] { model_.resize(count); });
        } else {
          attempt(
              random, [&] { mine_.append(std::views::iota(value, value + count)); },
              [&] {
                for (std::size_t i = 0; i < count; ++i) model_.emplace_back(value + i);
              });
        }
        break;
      case 1: attempt(random, [&] { mine_.resize(at); }, [&] { model_.resize(at); }); break;
      case 2: attempt(random, [&] { mine_.emplace_back(value); }, [&] { model_.emplace_back(value); }); break;
      case 3:
        mine_.shrink_to_fit();
        if (!model_.empty()) attempt(random, [&] { mine_.write(at, value); }, [&] { model_[at] = value; });
        break;
      case 4: {
        const scope here(mine_.home().home());
        std::ranges::stable_sort(mine_.range_mut(here), {}, &fragile::number);
        std::ranges::stable_sort(model_, {}, &fragile::number);
        break;
      }
      default: attempt(random, [&] { mine_ = mine_.clone(); }, [] {}); break;
    }
  }
  [[nodiscard]] bool are_equal(const scope& here) const override {
    return std::ranges::equal(mine_.range(here), model_);
  }

 private:
  vector<fragile, Elements> mine_;
  std::vector<fragile> model_;
};

class both_lists final : public both {
 public:
  explicit both_lists(runtime& in) : mine_(in) {}
  void step(std::mt19937_64& random) override {
    const std::uint64_t value = random();
    switch (random() % 6) {
      case 0: attempt(random, [&] { mine_.emplace_front(value); }, [&] { model_.emplace_front(value); }); break;
      case 1:
        mine_.sort([](const fragile& a, const fragile& b) { return a < b; });
        model_.sort();
        break;
      case 2:
        if (model_.empty()) break;
        mine_.pop_back();
        model_.pop_back();
        break;
      case 3:
        mine_.erase_if([&](const fragile& one) { return one.number % 8 == value % 8; });
        std::erase_if(model_, [&](const fragile& one) { return one.number % 8 == value % 8; });
        break;
      default:
        for (std::uint64_t i = 0; i < 30; ++i) {
          attempt(random, [&] { mine_.emplace_back(value + i); }, [&] { model_.emplace_back(value + i); });
        }
    }
  }
  [[nodiscard]] bool are_equal(const scope& here) const override {
    return std::ranges::equal(mine_.range(here), model_);
  }

 private:
  list<fragile> mine_;
  std::list<fragile> model_;
};

// A queue and a stack, which are given the same.
class both_queues final : public both {
 public:
  explicit both_queues(runtime& in) : waiting_(in), pile_(in) {}
  void step(std::mt19937_64& random) override {
    const std::uint64_t value = random();
    if (random() % 3 != 0) {
      for (std::uint64_t i = 0; i < 40; ++i) {
        attempt(random, [&] { waiting_.emplace(value + i); }, [&] { waiting_model_.emplace_back(value + i); });
        attempt(random, [&] { pile_.emplace(value + i); }, [&] { pile_model_.emplace_back(value + i); });
      }
      return;
    }
    for (std::size_t i = random() % 60; i > 0 && !waiting_model_.empty(); --i) {
      waiting_.pop();
      waiting_model_.pop_front();
    }
    for (std::size_t i = random() % 60; i > 0 && !pile_model_.empty(); --i) {
      pile_.pop();
      pile_model_.pop_back();
    }
  }
  [[nodiscard]] bool are_equal(const scope& here) const override {
    if (waiting_.size() != waiting_model_.size() || pile_.size() != pile_model_.size()) return false;
    const bool are_ends_equal = waiting_model_.empty() || (waiting_.front(here) == waiting_model_.front() &&
                                                           waiting_.back(here) == waiting_model_.back());
    return are_ends_equal && (pile_model_.empty() || pile_.top(here) == pile_model_.back());
  }

 private:
  queue<fragile> waiting_;
  std::deque<fragile> waiting_model_;
  stack<fragile> pile_;
  std::vector<fragile> pile_model_;
};

class both_maps final : public both {
 public:
  explicit both_maps(runtime& in) : texts_(in), values_(in) {}
  void step(std::mt19937_64& random) override {
    for (unsigned i = 0; i < 20; ++i) {
      const std::uint64_t number = random();
      const std::uint64_t key = random() % 700;
      const std::string name = std::string(key % 40, 'k') + std::to_string(key);
      if (random() % 4 == 0) {
        EXPECT_EQ(texts_.erase(name), texts_model_.erase(name) == 1);
        EXPECT_EQ(values_.erase(key), values_model_.erase(key) == 1);
      } else {
        const std::string text(number % 90, static_cast<char>('a' + number % 26));
        texts_.put(name, text);
        texts_model_[name] = text;
        attempt(random, [&] { values_.put(key, number); }, [&] { values_model_.insert_or_assign(key, number); });
      }
    }
  }
  [[nodiscard]] bool are_equal(const scope& here) const override {
    if (texts_.size() != texts_model_.size() || values_.size() != values_model_.size()) return false;
    return std::ranges::all_of(texts_model_, [&](const auto& one) { return texts_.get(one.first) == one.second; }) &&
           std::ranges::all_of(values_model_, [&](const auto& one) {
             const fragile* const found = values_.find(here, one.first);
             return found != nullptr && *found == one.second;
           });
  }

 private:
  hash_map<string, string> texts_;
  std::unordered_map<std::string, std::string> texts_model_;
  hash_map<std::uint64_t, fragile> values_;
  std::unordered_map<std::uint64_t, fragile> values_model_;
};

TEST_P(far_tiers, random_operations_some_of_which_throw) {
  std::mt19937_64 random(11);
  std::vector<std::unique_ptr<both>> all;
  all.push_back(std::make_unique<both_vectors<elements_per_object<fragile>>>(*farheap_));
  all.push_back(std::make_unique<both_vectors<4>>(*farheap_));
  all.push_back(std::make_unique<both_lists>(*farheap_));
  all.push_back(std::make_unique<both_queues>(*farheap_));
  all.push_back(std::make_unique<both_maps>(*farheap_));
  for (unsigned round = 0; round < 8; ++round) {
    for (unsigned step = 0; step < 12; ++step) {
      for (const auto& one : all) one->step(random);
    }
    farheap_->evict_all();
    const scope here(*farheap_);
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_TRUE(all[i]->are_equal(here)) << "container " << i << ", round " << round;
    }
  }
  EXPECT_GT(farheap_->statistics().evicted_pages, 100u);
  EXPECT_GT(farheap_->statistics().fetched_pages, 50u);
}

// Twice the budget, so that pages leave while they are written.
TEST_P(far_tiers, more_than_local_memory) {
  const std::size_t count = 4'000'000;  // 32 MB
  vector<std::uint64_t> mine(*farheap_, std::views::iota(std::uint64_t{0}, std::uint64_t{count}));
  mine.for_each_chunk_mut([](std::span<std::uint64_t> part, std::size_t) {
    for (std::uint64_t& one : part) one *= 3;
  });
  std::size_t wrong = 0;
  mine.for_each_chunk([&](std::span<const std::uint64_t> part, std::size_t first) {
    for (const std::uint64_t one : part) wrong += one == 3 * first++ ? 0u : 1u;
  });
  EXPECT_EQ(wrong, 0u);
  EXPECT_LE(farheap_->statistics().local_bytes, 16 * mib);
}

INSTANTIATE_TEST_SUITE_P(every, far_tiers, testing::ValuesIn(test::far_tier_kinds()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace far
