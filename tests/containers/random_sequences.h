// For random programs of containers (random_test.cc): vectors, lists, queues and stacks.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <list>
#include <ranges>
#include <utility>

#include "far/list.h"
#include "far/queue.h"
#include "far/stack.h"
#include "far/vector.h"
#include "tests/containers/random_subject.h"

namespace far::random_program {

template <typename T, std::size_t Elements>
class vectors final : public subject {
 public:
  explicit vectors(std::uint64_t seed) : subject(seed) {}

  void step() override {
    const std::size_t some = below(model_.size());
    const std::size_t more = model_.size() > 1'500 ? 0 : below(200);
    const std::uint64_t number = value();
    switch (below(17)) {
      case 0: return append(std::views::iota(number, number + more));
      // Of an unknown length.
      case 1: return append(std::views::iota(number, number + more) | std::views::filter([](auto) { return true; }));
      case 2: return resize(some);
      case 3: return resize(model_.size() + more);
      case 4: return erase(some, below(std::min<std::size_t>(model_.size() - some, 20) + 1));
      case 5: return insert(some);
      case 6: return write(some);
      case 7: return change_hands();
      case 8: return give_back();
      case 9: return sort();
      case 10: return copy(some);
      case 11:
        if (model_.empty()) return;
        mine_.pop_back();
        model_.pop_back();
        return;
      default: attempt([&] { mine_.emplace_back(number); }, [&] { model_.push_back(number); });
    }
  }
  void compare() override {
    ASSERT_EQ(mine_.size(), model_.size());
    const scope here(*home);
    ASSERT_EQ(read(mine_.range(here)), model_);
  }

 private:
  void append(auto range) {
    attempt([&] { mine_.append(range); }, [&] { std::ranges::copy(range, std::back_inserter(model_)); });
  }
  void resize(std::size_t count) {
    attempt([&] { mine_.resize(count); }, [&] { model_.resize(count); });
  }
  void erase(std::size_t first, std::size_t count) {
    const auto at = model_.begin() + static_cast<std::ptrdiff_t>(first);
    attempt_changes([&] { mine_.erase(first, count); },
                    [&] { model_.erase(at, at + static_cast<std::ptrdiff_t>(count)); },
                    [&] { take_over(model_.size()); });
  }
  void insert(std::size_t at) {
    const std::uint64_t number = value();
    attempt_changes([&] { mine_.emplace(at, number); },
                    [&] { model_.insert(model_.begin() + static_cast<std::ptrdiff_t>(at), number); },
                    [&] { take_over(model_.size() + 1); });
  }
  void write(std::size_t at) {
    if (model_.empty()) return;
    const std::uint64_t number = value();
    attempt([&] { mine_.write(at, T(number)); }, [&] { model_[at] = number; });
  }
  void change_hands() {
    swap(mine_, mine_);
    vector<T, Elements> other(std::move(mine_));
    EXPECT_TRUE(mine_.empty());
    attempt([&] { mine_.emplace_back(1u); });
    other.swap(mine_);
    vector<T, Elements>& same = mine_;
    mine_ = std::move(same);
  }
  void give_back() {
    if (once_in(4)) {
      mine_.clear();
      model_.clear();
    }
    attempt([&] { mine_.reserve(below(3'000)); }, [] {});
    if (once_in(2)) mine_.shrink_to_fit();
  }
  void sort() {
    const scope here(*home);
    std::ranges::sort(mine_.range_mut(here), std::less<>(), &T::number);
    std::ranges::sort(model_);
  }
  // One of its own elements, which is where it was while others come.
  void copy([[maybe_unused]] std::size_t at) {
    if constexpr (T::can_be_copied) {
      if (model_.empty()) return;
      const scope here(*home);
      const T& one = mine_.deref(here, at);
      const std::uint64_t number = model_[at];
      switch (below(4)) {
        case 0: attempt([&] { mine_.push_back(one); }, [&] { model_.push_back(number); }); break;
        case 1:
          attempt([&] { mine_.resize(model_.size() + 20, one); }, [&] { model_.resize(model_.size() + 20, number); });
          break;
        case 2: attempt([&] { mine_ = mine_.clone(); }, [] {}); break;
        default:
          attempt_changes([&] { mine_.fill(one); }, [&] { std::ranges::fill(model_, number); },
                          [&] { take_over(model_.size()); });
      }
    }
  }
  void take_over(std::size_t most) {
    EXPECT_LE(mine_.size(), most);
    EXPECT_GE(mine_.size() + 1, model_.size());
    const scope here(*home);
    model_.clear();
    // Elements that were moved from are there, too: they can only be destroyed.
    if constexpr (T::can_be_copied) model_ = read(mine_.range(here));
    if constexpr (!T::can_be_copied) mine_.clear();
  }

  vector<T, Elements> mine_{*home};
  numbers model_;
};

template <typename T>
class lists final : public subject {
  using position = typename list<T>::position;

 public:
  explicit lists(std::uint64_t seed) : subject(seed) {}

  void step() override {
    pair& one = pairs_[below(2)];
    pair& other = &one == &pairs_[0] ? pairs_[1] : pairs_[0];
    const std::uint64_t number = value();
    switch (below(14)) {
      case 0: return sort(one);
      case 1: return merge(one, other);
      case 2: return erase_some(one);
      case 3: return splice_one(one, other);
      case 4:
        attempt_changes([&] { one.mine.splice(position_of(one, 0), other.mine); },
                        [&] { one.model.splice(one.model.begin(), other.model); }, [&] { take_over(one, other); });
        return;
      case 5: return move(one);
      case 6:
        swap(one.mine, other.mine);
        one.mine.swap(one.mine);
        std::swap(one.model, other.model);
        if (!once_in(8)) return;
        one.mine.clear();
        one.model.clear();
        return;
      case 7: {
        if (one.model.empty()) return;
        const std::size_t at = below(one.model.size());
        one.mine.erase(position_of(one, at));
        one.model.erase(std::next(one.model.begin(), static_cast<std::ptrdiff_t>(at)));
        return;
      }
      case 8: {
        const std::size_t at = below(one.model.size() + 1);
        const position before = position_of(one, at);
        attempt([&] { one.mine.emplace(before, number); },
                [&] { one.model.insert(std::next(one.model.begin(), static_cast<std::ptrdiff_t>(at)), number); });
        return;
      }
      case 9: attempt([&] { one.mine.emplace_front(number); }, [&] { one.model.push_front(number); }); return;
      default:
        if (one.model.size() > 400) return;
        attempt([&] { one.mine.emplace_back(number); }, [&] { one.model.push_back(number); });
    }
  }
  void compare() override {
    for (const pair& one : pairs_) {
      ASSERT_EQ(one.mine.size(), one.model.size());
      const scope here(*home);
      ASSERT_TRUE(std::ranges::equal(read(one.mine.range(here)), one.model));
      auto at = one.mine.range(here, non_temporal).end();
      for (auto expected = one.model.rbegin(); expected != one.model.rend(); ++expected) {
        ASSERT_EQ((--at)->number(), *expected);
      }
    }
  }

 private:
  struct pair {
    list<T> mine{*home};
    std::list<std::uint64_t> model;
  };

  static position position_of(pair& one, std::size_t index) {
    const scope here(*home);
    return std::ranges::next(one.mine.range(here).begin(), static_cast<std::ptrdiff_t>(index)).where();
  }
  void sort(pair& one) {
    attempt([&] { one.mine.sort(); }, [&] { one.model.sort(); });
  }
  void merge(pair& one, pair& other) {
    for (pair* const each : {&one, &other}) {
      each->mine.sort();
      each->model.sort();
    }
    attempt_changes([&] { one.mine.merge(other.mine); }, [&] { one.model.merge(other.model); },
                    [&] {
                      take_over(one, other);
                      for (const pair& each : pairs_) EXPECT_TRUE(std::ranges::is_sorted(each.model));
                    });
  }
  void erase_some(pair& one) {
    const std::uint64_t wanted = below(8);
    std::size_t erased = 0;
    const auto is_unwanted = [&](const T& each) {
      burn();
      const bool is = each.number() % 8 == wanted;
      erased += is ? 1 : 0;
      return is;
    };
    const auto erase_model = [&] {
      std::erase_if(one.model, [&](std::uint64_t each) { return each % 8 == wanted && erased > 0 && erased-- > 0; });
    };
    attempt_changes([&] { EXPECT_EQ(one.mine.erase_if(is_unwanted), erased); }, erase_model, erase_model);
  }
  void splice_one(pair& one, pair& other) {
    if (other.model.empty()) return;
    const std::size_t from = below(other.model.size());
    const std::size_t to = below(one.model.size() + 1);
    const position moved = position_of(other, from);
    const position before = position_of(one, to);
    attempt([&] { one.mine.splice(before, other.mine, moved); },
            [&] {
              one.model.splice(std::next(one.model.begin(), static_cast<std::ptrdiff_t>(to)), other.model,
                               std::next(other.model.begin(), static_cast<std::ptrdiff_t>(from)));
            });
  }
  void move(pair& one) {
    if (one.model.empty()) return;
    const std::size_t from = below(one.model.size());
    const std::size_t to = below(one.model.size() + 1);
    one.mine.move_before(position_of(one, to), position_of(one, from));
    const auto at = std::next(one.model.begin(), static_cast<std::ptrdiff_t>(to));
    one.model.splice(at, one.model, std::next(one.model.begin(), static_cast<std::ptrdiff_t>(from)));
  }
  // Each element is in one of them.
  void take_over(pair& one, pair& other) {
    const auto all_of_model = [&] {
      numbers all(one.model.begin(), one.model.end());
      all.insert(all.end(), other.model.begin(), other.model.end());
      std::ranges::sort(all);
      return all;
    };
    const numbers before = all_of_model();
    for (pair& each : pairs_) {
      const scope here(*home);
      const numbers now = read(each.mine.range(here));
      each.model.assign(now.begin(), now.end());
    }
    EXPECT_EQ(all_of_model(), before);
  }

  pair pairs_[2];
};

// A queue and a stack.
template <typename T>
class queues final : public subject {
 public:
  explicit queues(std::uint64_t seed) : subject(seed) {}

  void step() override {
    const std::uint64_t number = value();
    switch (below(6)) {
      case 0: return take();
      case 1: {
        for (std::size_t i = below(60); i > 0 && !waiting_model_.empty(); --i) {
          waiting_.pop();
          waiting_model_.pop_front();
        }
        for (std::size_t i = below(60); i > 0 && !pile_model_.empty(); --i) {
          pile_.pop();
          pile_model_.pop_back();
        }
        return;
      }
      case 2: {
        queue<T> other(std::move(waiting_));
        EXPECT_TRUE(waiting_.empty());
        swap(other, waiting_);
        swap(waiting_, waiting_);
        pile_.swap(pile_);
        if (!once_in(8)) return;
        waiting_.clear();
        waiting_model_.clear();
        return;
      }
      default:
        for (std::size_t i = waiting_model_.size() > 2'000 ? 0 : below(40); i > 0; --i) {
          attempt([&] { waiting_.emplace(number); }, [&] { waiting_model_.push_back(number); });
          attempt([&] { pile_.emplace(number); }, [&] { pile_model_.push_back(number); });
        }
    }
  }
  void compare() override {
    ASSERT_EQ(waiting_.size(), waiting_model_.size());
    ASSERT_EQ(pile_.size(), pile_model_.size());
    const scope here(*home);
    if (!waiting_model_.empty()) {
      ASSERT_EQ(waiting_.front(here).number(), waiting_model_.front());
      ASSERT_EQ(waiting_.back(here).number(), waiting_model_.back());
    }
    if (!pile_model_.empty()) {
      ASSERT_EQ(pile_.top(here).number(), pile_model_.back());
    }
  }

 private:
  void take() {
    if (!waiting_model_.empty()) {
      std::uint64_t taken = 0;
      attempt([&] { taken = waiting_.take().number(); },
              [&] {
                EXPECT_EQ(taken, waiting_model_.front());
                waiting_model_.pop_front();
              });
    }
    if (!pile_model_.empty()) {
      std::uint64_t taken = 0;
      attempt([&] { taken = pile_.take().number(); },
              [&] {
                EXPECT_EQ(taken, pile_model_.back());
                pile_model_.pop_back();
              });
    }
  }

  queue<T> waiting_{*home};
  std::deque<std::uint64_t> waiting_model_;
  stack<T> pile_{*home};
  numbers pile_model_;
};

}  // namespace far::random_program
