// The containers beside those of std, by random operations, some of which throw, and objects of several pages, on every
// kind of far tier. Needs permission for userfaultfd.
#include "far_tiers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <random>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/units.h"
#include "elements.h"
#include "far/array.h"
#include "far/hash_map.h"
#include "far/list.h"
#include "far/queue.h"
#include "far/stack.h"
#include "far/string.h"
#include "far/unique_ptr.h"
#include "far/vector.h"

namespace far {
namespace {

using test::fragile;
class far_tiers : public heap::real_pager_test<testing::TestWithParam<test::far_tier_kind>> {
 protected:
  static constexpr std::size_t local_bytes = 16 * mib;

  void SetUp() override {
    real_pager_test::SetUp();
    if (IsSkipped()) return;
    if (!GetParam().missing.empty()) GTEST_SKIP() << GetParam().missing;
    tier_ = GetParam().open();
    runtime_options chosen = heap::small_runtime(local_bytes);
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

// More than the budget, so that pages leave while they are written.
TEST_P(far_tiers, more_than_local_memory) {
  const std::size_t count = 2'500'000;  // 20 MB
  vector<std::uint64_t> mine(*farheap_, std::views::iota(std::uint64_t{0}, std::uint64_t{count}));
  mine.for_each_chunk_mut([](std::span<std::uint64_t> part, std::size_t) {
    for (std::uint64_t& one : part) one *= 3;
  });
  std::size_t wrong = 0;
  mine.for_each_chunk([&](std::span<const std::uint64_t> part, std::size_t first) {
    for (const std::uint64_t one : part) wrong += one == 3 * first++ ? 0u : 1u;
  });
  EXPECT_EQ(wrong, 0u);
  EXPECT_LE(farheap_->statistics().local_bytes, local_bytes);
}

// Objects of more than a page, beside copies of them in local memory: all are evicted and come back round after round,
// while they are written whole and in part, moved, and given back.
class objects_of_pages {
 public:
  using array_of_numbers = std::array<std::uint64_t, 1'500>;  // neither begins nor ends with a page

  explicit objects_of_pages(runtime& home) : home_(home) {
    for (const std::size_t count : {std::size_t{513}, std::size_t{2'048}, std::size_t{9'001}, std::size_t{140'000}}) {
      arrays_.push_back(make_unique<std::uint64_t[]>(home_, count));
      array_models_.emplace_back(count);
    }
    for (unsigned i = 0; i < 8; ++i) {
      singles_.push_back(make_unique<array_of_numbers>(home_));
      single_models_.emplace_back();
    }
  }

  void step(std::mt19937_64& random) {
    for (std::size_t i = 0; i < arrays_.size(); ++i) change_array(i, random);
    for (std::size_t i = 0; i < singles_.size(); ++i) change_single(i, random);
  }

  // Whole through a scope, or in part by copies.
  void expect_equal(std::mt19937_64& random) const {
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      const std::vector<std::uint64_t>& model = array_models_[i];
      const std::size_t first = random() % model.size();
      std::vector<std::uint64_t> part(std::min<std::size_t>(700, model.size() - first));
      arrays_[i].read(first, part);
      EXPECT_TRUE(std::ranges::equal(part, std::span(model).subspan(first, part.size()))) << "array " << i;
      const scope here(home_);
      EXPECT_TRUE(std::ranges::equal(arrays_[i].deref(here), model)) << "array " << i;
    }
    for (std::size_t i = 0; i < singles_.size(); ++i) {
      const scope here(home_);
      EXPECT_TRUE(singles_[i].deref(here) == single_models_[i]) << "object " << i;
    }
  }

 private:
  void change_array(std::size_t i, std::mt19937_64& random) {
    std::vector<std::uint64_t>& model = array_models_[i];
    const std::size_t first = random() % model.size();
    switch (random() % 4) {
      case 0: {  // whole
        std::ranges::generate(model, std::ref(random));
        const scope here(home_);
        std::ranges::copy(model, arrays_[i].deref_mut(here).begin());
        break;
      }
      case 1: {  // in part
        const auto part = std::span(model).subspan(first, std::min<std::size_t>(1'100, model.size() - first));
        std::ranges::generate(part, std::ref(random));
        arrays_[i].write(first, part);
        break;
      }
      case 2:  // one element
        model[first] = random();
        arrays_[i].write(first, model[first]);
        break;
      default:  // another in its place, which may get its addresses: none of its bytes are left
        arrays_[i].reset();
        arrays_[i] = make_unique<std::uint64_t[]>(home_, model.size());
        std::ranges::fill(model, 0);
    }
  }

  void change_single(std::size_t i, std::mt19937_64& random) {
    const std::size_t place = random() % single_models_[i].size();
    const std::size_t other = random() % singles_.size();
    std::swap(singles_[i], singles_[other]);
    std::swap(single_models_[i], single_models_[other]);
    single_models_[i][place] = random();
    const scope here(home_);
    singles_[i].deref_mut(here)[place] = single_models_[i][place];
  }

  runtime& home_;
  std::vector<unique_ptr<std::uint64_t[]>> arrays_;
  std::vector<std::vector<std::uint64_t>> array_models_;
  std::vector<unique_ptr<array_of_numbers>> singles_;
  std::vector<array_of_numbers> single_models_;
};

TEST_P(far_tiers, objects_of_several_pages_come_back_whole) {
  std::mt19937_64 random(14);
  objects_of_pages all(*farheap_);
  for (unsigned round = 0; round < 12; ++round) {
    all.step(random);
    const std::uint64_t fetched = farheap_->statistics().fetched_pages;
    farheap_->evict_all();
    all.expect_equal(random);
    ASSERT_FALSE(HasFailure()) << "round " << round;
    EXPECT_GT(farheap_->statistics().fetched_pages, fetched) << "round " << round;
  }
  EXPECT_GT(farheap_->statistics().evicted_pages, 1'000u);
}

INSTANTIATE_TEST_SUITE_P(every, far_tiers, testing::ValuesIn(test::far_tier_kinds()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace far
