// far::hash_map beside std::unordered_map. Needs permission for userfaultfd.
#include "far/hash_map.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/string.h"
#include "tests/containers/elements.h"

namespace far {
namespace {

using test::fragile;
using numbers = hash_map<std::uint64_t, std::uint64_t>;

static_assert(std::is_nothrow_move_constructible_v<numbers> && std::is_nothrow_swappable_v<numbers>);
static_assert(!std::is_copy_constructible_v<numbers>);
static_assert(std::is_same_v<hash_map<string, string>::copy_type, std::string>);

// Texts of all kinds: inline, an object, pages.
std::string text_of(std::uint64_t number) {
  std::string text = "text " + std::to_string(number);
  if (number % 3 != 0) text.append(number % 7 == 0 ? 200 : 20, static_cast<char>('a' + number % 26));
  if (number % 501 == 0) text.append(5000, static_cast<char>('a' + number % 26));
  return text;
}

// All hashes alike, or almost.
struct poor_hash {
  std::uint64_t values = 1;
  std::size_t operator()(std::uint64_t key) const { return key % values; }
};

template <typename Value>
class hash_map_test : public test::containers_test {
 protected:
  static Value value_of(std::uint64_t number) {
    if constexpr (std::is_same_v<Value, string>) {
      return string(*test::home, text_of(number));
    } else {
      return Value(number);
    }
  }
  template <typename Map, typename Model>
  void expect_equal(const Map& mine, const Model& model) {
    ASSERT_EQ(mine.size(), model.size());
    std::size_t visited = 0;
    mine.for_each([&](const std::uint64_t key, const Value& value) {
      ++visited;
      const auto one = model.find(key);
      ASSERT_TRUE(one != model.end() && value == value_of(one->second)) << key;
    });
    ASSERT_EQ(visited, model.size());
    for (const auto& [key, number] : model) {
      const scope here(*farheap_);
      const Value* const found = mine.find(here, key);
      ASSERT_TRUE(found != nullptr && *found == value_of(number)) << key;
    }
  }
  template <typename Map>
  void compare_with_std(Map& mine, std::uint64_t keys, unsigned steps) {
    std::mt19937_64 random(7);
    std::unordered_map<std::uint64_t, std::uint64_t> model;
    for (unsigned step = 0; step < steps; ++step) {
      const std::uint64_t key = random() % keys;
      const std::uint64_t number = random() % 100'000;
      const bool was_there = model.contains(key);
      switch (random() % 8) {
        case 0:
        case 1:
          ASSERT_EQ(mine.put(key, value_of(number)), !was_there);
          model[key] = number;
          break;
        case 2:
        case 3:
          ASSERT_EQ(mine.try_emplace(key, value_of(number)), !was_there);
          model.try_emplace(key, number);
          break;
        case 4:
          ASSERT_EQ(mine.erase(key), was_there);
          model.erase(key);
          break;
        case 5:
          ASSERT_EQ(mine.update(key, [&](Value& value) { value = value_of(number); }), was_there);
          if (was_there) model[key] = number;
          break;
        case 6: {
          const scope here(*farheap_);
          Value* const found = mine.find_mut(here, key);
          ASSERT_EQ(found != nullptr, was_there);
          if (was_there) *found = value_of(model[key] = number);
          break;
        }
        default: {
          const scope here(*farheap_);
          const Value* const found = mine.find(here, key);
          ASSERT_EQ(found != nullptr, was_there);
          ASSERT_EQ(mine.contains(key), was_there);
          ASSERT_TRUE(found == nullptr || *found == value_of(model[key]));
        }
      }
      if (step % (steps / 4) == 100) farheap_->evict_all();
      if (step % (steps / 8) == 200) farheap_->evacuate(0.2);
    }
    ASSERT_NO_FATAL_FAILURE(expect_equal(mine, model));
    Map other(std::move(mine));
    other.swap(mine);
    ASSERT_NO_FATAL_FAILURE(expect_equal(mine, model));
    mine.clear();
    model.clear();
    ASSERT_NO_FATAL_FAILURE(expect_equal(mine, model));
    ASSERT_TRUE(mine.put(1u, value_of(2)));
    model[1] = 2;
    ASSERT_NO_FATAL_FAILURE(expect_equal(mine, model));
  }
};
using values = ::testing::Types<std::uint64_t, test::odd_size, test::wide, fragile, test::linked, string>;
TYPED_TEST_SUITE(hash_map_test, values);
using numbers_test = hash_map_test<std::uint64_t>;

TYPED_TEST(hash_map_test, does_what_std_unordered_map_does) {
  hash_map<std::uint64_t, TypeParam> mine(*this->farheap_);
  this->compare_with_std(mine, sizeof(TypeParam) > 1000 ? 5000 : 20'000, 40'000);
}

TEST_F(numbers_test, works_with_a_poor_hash) {
  for (const std::uint64_t different : {1u, 3u}) {
    hash_map<std::uint64_t, std::uint64_t, poor_hash> mine(*farheap_, poor_hash{different});
    compare_with_std(mine, 900, 8000);
  }
}

TEST_F(numbers_test, is_larger_than_the_budget) {
  numbers mine(*farheap_);
  constexpr std::uint64_t count = 1'000'000;  // 32 MB of entries
  for (std::uint64_t i = 0; i < count; ++i) ASSERT_TRUE(mine.put(i * 7, i));
  EXPECT_EQ(mine.size(), count);
  EXPECT_LE(mine.index_bytes(), 26 * count);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < count; i += 3)
    wrong += mine.get(i * 7) == std::optional(i) && !mine.get(i * 7 + 1) ? 0 : 1;
  EXPECT_EQ(wrong, 0u);
  EXPECT_LE(farheap_->snapshot().local_bytes, 16 * mib);
}

}  // namespace
}  // namespace far
