// For random programs of containers (random_test.cc): hash maps, arrays and texts.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "far/hash_map.h"
#include "far/shared_ptr.h"
#include "far/string.h"
#include "far/unique_ptr.h"
#include "tests/containers/random_subject.h"

namespace far::random_program {

// What was replaced or erased may be destroyed later.
template <typename T>
class maps final : public subject {
  using far_map = hash_map<string, T, shaky_hash, shaky_equal>;

 public:
  explicit maps(std::uint64_t seed) : subject(seed), mine_(*home, shaky_hash{once_in(3) ? 5u : ~std::size_t{0}}) {}

  void step() override {
    const std::uint64_t number = value();
    const std::string key = text_of(below(150)) + (once_in(2) ? " and more, so that it is far" : "");
    const bool is_there = model_.contains(key);
    switch (below(10)) {
      case 0: {
        bool erased = false;
        try_it([&] { erased = mine_.erase(key); },
               [&] {
                 EXPECT_EQ(erased, is_there);
                 model_.erase(key);
               });
        return;
      }
      case 1: {
        bool updated = false;
        try_it([&] { updated = mine_.update(key, [&](T& one) { one = T(number); }); },
               [&] {
                 EXPECT_EQ(updated, is_there);
                 if (is_there) model_[key] = number;
               });
        return;
      }
      case 2:
      case 3: {
        bool inserted = false;
        try_it([&] { inserted = once_in(2) ? mine_.insert(key, number) : mine_.try_emplace(key, number); },
               [&] {
                 EXPECT_EQ(inserted, !is_there);
                 model_.try_emplace(key, number);
               });
        return;
      }
      case 4: return look(key);
      case 5: return visit();
      case 6: {
        far_map other(std::move(mine_));
        mine_ = std::move(other);
        mine_.swap(mine_);
        if (!once_in(20)) return;
        mine_.clear();
        model_.clear();
        return;
      }
      default: {
        bool inserted = false;
        try_it([&] { inserted = mine_.put(key, number); },
               [&] {
                 EXPECT_EQ(inserted, !is_there);
                 model_[key] = number;
               });
      }
    }
  }
  void compare() override {
    ASSERT_EQ(mine_.size(), model_.size());
    std::size_t visited = 0;
    mine_.for_each([&](const string& key, const T& one) {
      ++visited;
      const auto expected = model_.find(key.str());
      ASSERT_TRUE(expected != model_.end() && expected->second == one.number());
    });
    ASSERT_EQ(visited, model_.size());
  }

 private:
  void try_it(const std::function<void()>& action, const std::function<void()>& model) {
    if (attempt(action)) return model();
    if (once_in(4)) compare();
  }
  void look(const std::string& key) {
    const auto expected = model_.find(key);
    std::optional<std::uint64_t> found;
    std::vector<const T*> many(2);
    const std::string keys[2] = {key, "nobody"};
    try_it(
        [&] {
          const scope here(*home);
          if (const T* const one = mine_.find(here, key)) found = one->number();
          mine_.find_many(here, std::span<const std::string>(keys), std::span<const T*>(many));
          EXPECT_EQ(many[0] != nullptr, found.has_value());
          EXPECT_EQ(many[1], nullptr);
          mine_.prefetch(key);
        },
        [&] {
          ASSERT_EQ(found.has_value(), expected != model_.end());
          EXPECT_TRUE(!found || *found == expected->second);
        });
  }
  void visit() {
    const auto change = [&](const string& key, T& one) {
      std::uint64_t& expected = model_.at(key.str());
      one = T(expected + 1);  // or fails, and the entry stays as it was
      ++expected;
    };
    attempt([&] { mine_.for_each_mut(change); });
  }

  far_map mine_;
  std::map<std::string, std::uint64_t> model_;
};

// Maps that entries leave: what is there is right, and they have not too many.
class caches final : public subject {
 public:
  explicit caches(std::uint64_t seed)
      : subject(seed),
        few_(*home, {.entries = most}, [](std::uint64_t, const solid&) { burn(); }),
        local_(*home, while_local{}) {}

  void step() override {
    const std::uint64_t key = below(200);
    const std::uint64_t number = value();
    switch (below(5)) {
      case 0:
        attempt([&] { few_.erase(key); });
        attempt([&] { local_.erase(key); });
        break;
      case 1: look(key); break;
      default:
        // What the callback throws comes once it has been added.
        if (attempt([&] { few_.put(key, number); }) || is(few_, key, number)) few_model_[key] = number;
        attempt([&] { local_.put(key, number); }, [&] { local_model_[key] = number; });
    }
  }
  void compare() override {
    few_.for_each([&](std::uint64_t key, const solid& one) { EXPECT_EQ(one.number(), few_model_[key]); });
    local_.for_each([&](std::uint64_t key, const solid& one) { EXPECT_EQ(one.number(), local_model_[key]); });
    few_.put(0u, 0u);
    few_model_[0] = 0;
    EXPECT_LE(few_.size(), most);
  }

 private:
  using cache = hash_map<std::uint64_t, solid>;
  static constexpr std::size_t most = 60;

  static bool is(const cache& in, std::uint64_t key, std::uint64_t number) {
    const scope here(*home);
    const solid* const found = in.find(here, key);
    return found != nullptr && found->number() == number;
  }
  void look(std::uint64_t key) {
    bool found = true;  // what is right, or nothing
    attempt([&] {
      const scope here(*home);
      if (const solid* const one = few_.find(here, key)) found = one->number() == few_model_.at(key);
      if (const solid* const one = local_.find(here, key)) found &= one->number() == local_model_.at(key);
    });
    EXPECT_TRUE(found);
  }

  cache few_;
  cache local_;
  std::map<std::uint64_t, std::uint64_t> few_model_;
  std::map<std::uint64_t, std::uint64_t> local_model_;
};

// Arrays of elements, some of which cannot be made; and texts.
class arrays_and_texts final : public subject {
 public:
  explicit arrays_and_texts(std::uint64_t seed) : subject(seed) {}

  void step() override {
    switch (below(4)) {
      case 0: return make();
      case 1: {
        if (some_ == nullptr) return;
        const std::size_t at = below(some_.size());
        const scope here(*home);
        EXPECT_EQ(some_.deref(here, at).number(), 0u);
        return;
      }
      default: return change_text();
    }
  }
  void compare() override {
    ASSERT_EQ(text_.str(), model_);
    ASSERT_EQ(text_.hash(), std::hash<std::string>()(model_));
    ASSERT_EQ(other_.str(), other_model_);
    ASSERT_EQ(text_ <=> other_, model_ <=> other_model_);
  }

 private:
  void make() {
    // At most 64 KiB: what is larger needs the hardware guard.
    const std::size_t count = once_in(4) ? below((64 << 10) / sizeof(linked)) : below(200);
    attempt([&] { some_ = make_unique<linked[]>(*home, count); }, [] {});
    shared_ptr<solid> one;
    attempt([&] { one = make_shared<solid>(*home, 5u); }, [] {});
    const weak_ptr<solid> watching = one;
    const shared_ptr<solid> same = std::move(one);
    EXPECT_EQ(watching.lock() == nullptr, same == nullptr);
  }
  void change_text() {
    if (model_.size() > 20'000) {
      text_.clear();
      model_.clear();
    }
    const std::string more(below(once_in(8) ? 9'000 : 30), static_cast<char>('a' + below(3)));
    switch (below(7)) {
      case 0: attempt([&] { text_.assign(*home, more); }, [&] { model_ = more; }); break;
      case 1: {  // of itself
        const scope here(*home);
        const std::string_view all = text_.view(here);
        const std::string_view part = all.substr(below(all.size()), 3'000);
        const std::string copy(part);
        if (once_in(2)) {
          attempt([&] { text_.append(*home, part); }, [&] { model_ += copy; });
        } else {
          attempt([&] { text_.assign(*home, part); }, [&] { model_ = copy; });
        }
        break;
      }
      case 2: attempt([&] { text_.reserve(*home, below(5'000)); }, [] {}); break;
      case 3:
        swap(text_, other_);
        std::swap(model_, other_model_);
        text_.swap(text_);
        break;
      case 4: attempt([&] { other_ = text_.clone(*home); }, [&] { other_model_ = model_; }); break;
      default: attempt([&] { text_.append(*home, more); }, [&] { model_ += more; });
    }
  }

  unique_ptr<linked[]> some_;
  string text_;
  string other_;
  std::string model_;
  std::string other_model_;
};

}  // namespace far::random_program
