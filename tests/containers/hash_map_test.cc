// far::hash_map beside std::unordered_map. Needs permission for userfaultfd.
#include "far/hash_map.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/string.h"
#include "heap/scope_log.h"
#include "heap/scope_records.h"
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

// A hash whose copies throw when the fuse of a fragile number burns.
struct fragile_hash {
  test::fragile part;
  std::size_t operator()(std::uint64_t key) const { return key * 3; }
};

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
  constexpr std::uint64_t count = 700'000;  // 22 MB of entries
  for (std::uint64_t i = 0; i < count; ++i) ASSERT_TRUE(mine.put(i * 7, i));
  EXPECT_EQ(mine.size(), count);
  EXPECT_LE(mine.index_bytes(), 26 * count);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < count; i += 3)
    wrong += mine.get(i * 7) == std::optional(i) && !mine.get(i * 7 + 1) ? 0 : 1;
  EXPECT_EQ(wrong, 0u);
  EXPECT_LE(farheap_->statistics().local_bytes, 16 * mib);
}

TEST_F(numbers_test, strings_are_found_by_other_kinds_of_strings) {
  hash_map<string, string> mine(*farheap_);
  for (std::uint64_t i = 0; i < 3000; ++i) ASSERT_TRUE(mine.put("key of " + text_of(i), std::string_view(text_of(i))));
  farheap_->evict_all();
  farheap_->evacuate(0);
  for (std::uint64_t i = 0; i < 3000; ++i) ASSERT_EQ(mine.get("key of " + text_of(i)), text_of(i));
  EXPECT_FALSE(mine.contains("key of nothing"));
  EXPECT_FALSE(mine.put("key of text 6", "another"));
  EXPECT_EQ(mine.get(std::string_view("key of text 6")), "another");
  EXPECT_TRUE(mine.erase(string(*farheap_, "key of text 3")));
  EXPECT_FALSE(mine.erase("key of text 3"));
  EXPECT_TRUE(mine.put(string(*farheap_, text_of(2)), string(*farheap_, "a value that is made before")));
  EXPECT_TRUE(mine.update(text_of(2), [&](string& value) { value.append(*farheap_, ", and appended to"); }));
  EXPECT_EQ(mine.get(text_of(2)), "a value that is made before, and appended to");
}

TEST_F(numbers_test, many_at_a_time_are_what_one_by_one_are) {
  hash_map<std::uint64_t, std::uint64_t> mine(*farheap_);
  constexpr std::uint64_t count = 100'000;
  for (std::uint64_t i = 0; i < count; i += 2) mine.put(i, i * i);
  std::mt19937_64 random(8);
  std::vector<std::uint64_t> keys(5000);
  for (std::uint64_t& key : keys) key = random() % count;
  const auto expected = [](std::uint64_t key) {
    return key % 2 == 0 ? std::optional(key * key) : std::optional<std::uint64_t>();
  };
  farheap_->evict_all();
  std::vector<std::optional<std::uint64_t>> copies(keys.size());
  mine.get_many(std::span<const std::uint64_t>(keys), std::span(copies));
  for (std::size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(copies[i], expected(keys[i]));
  farheap_->evict_all();
  const runtime_statistics before = farheap_->statistics();
  farheap_->run([&] {
    const scope here(*farheap_);
    std::vector<const std::uint64_t*> found(1000);
    const auto some = std::span<const std::uint64_t>(keys).first(found.size());
    mine.find_many(here, some, std::span(found));
    for (std::size_t i = 0; i < some.size(); ++i) {
      ASSERT_EQ(found[i] == nullptr ? std::nullopt : std::optional(*found[i]), expected(some[i]));
    }
  });
  EXPECT_GT(farheap_->statistics().fetched_pages + farheap_->statistics().object_fetches,
            before.fetched_pages + before.object_fetches + 100);
  farheap_->evict_all();
  mine.prefetch(keys[0]);
  EXPECT_EQ(mine.get(keys[0], non_temporal), expected(keys[0]));
}

TEST_F(numbers_test, many_at_a_time_have_room_for_what_is_found) {
  hash_map<std::uint64_t, std::uint64_t> mine(*farheap_);
  for (std::uint64_t i = 0; i < 3; ++i) mine.put(i, i);
  const std::vector<std::uint64_t> keys{0, 1, 2};
  std::vector<std::optional<std::uint64_t>> copies(4);
  EXPECT_THROW(mine.get_many(std::span<const std::uint64_t>(keys), std::span(copies).first(2)), std::invalid_argument);
  EXPECT_FALSE(copies[0] || copies[2]);
  mine.get_many(std::span<const std::uint64_t>(keys), std::span(copies));
  EXPECT_EQ(copies, (std::vector<std::optional<std::uint64_t>>{0, 1, 2, std::nullopt}));
  const scope here(*farheap_);
  std::vector<const std::uint64_t*> found(3);
  EXPECT_THROW(mine.find_many(here, std::span<const std::uint64_t>(keys), std::span(found).first(2)),
               std::invalid_argument);
  EXPECT_EQ(found[2], nullptr);
}

TEST_F(numbers_test, what_is_used_outlives_what_is_not) {
  std::vector<std::uint64_t> left;
  hash_map<std::uint64_t, std::uint64_t> mine(*farheap_, {.entries = 4000},
                                              [&](std::uint64_t key, std::uint64_t) { left.push_back(key); });
  constexpr std::uint64_t often = 1000;
  for (std::uint64_t i = 0; i < often; ++i) mine.put(i, i);
  for (std::uint64_t once = 1'000'000; once < 1'030'000; ++once) {
    mine.put(once, 0u);
    if (once % 1000 != 0) continue;
    for (std::uint64_t i = 0; i < often; ++i) static_cast<void>(mine.get(i));
  }
  EXPECT_EQ(mine.size(), 4000u);
  EXPECT_EQ(left.size(), 31'000u - 4000);
  std::uint64_t kept = 0;
  for (std::uint64_t i = 0; i < often; ++i) kept += mine.contains(i) ? 1u : 0u;
  EXPECT_GT(kept, often * 95 / 100);
  for (const std::uint64_t key : left) ASSERT_FALSE(mine.contains(key) && key >= often);
}

TEST_F(numbers_test, a_limit_in_bytes_counts_what_strings_own) {
  hash_map<std::uint64_t, string> mine(*farheap_, {.bytes = 1 * mib});
  for (std::uint64_t i = 0; i < 3000; ++i) {
    mine.put(i, std::string(1000 + i % 500, 'x'));
    ASSERT_LE(mine.entry_bytes(), 1 * mib);
  }
  std::size_t bytes = 0;
  mine.for_each([&](std::uint64_t, const string& value) { bytes += 48 + value.size(); });
  EXPECT_EQ(mine.entry_bytes(), bytes);
  EXPECT_GT(bytes, 1 * mib - 2000);
  // Values that grow push others out.
  const std::size_t before = mine.size();
  EXPECT_TRUE(mine.update(2999, [&](string& value) { value.append(*farheap_, std::string(400'000, 'y')); }));
  EXPECT_LE(mine.entry_bytes(), 1 * mib);
  EXPECT_LT(mine.size(), before - 100);
  mine.clear();
  EXPECT_EQ(mine.entry_bytes(), 0u);
  // An entry larger than the limit does not stay either.
  mine.put(1, std::string(2 * mib, 'x'));
  EXPECT_EQ(mine.size(), 0u);
  EXPECT_EQ(mine.entry_bytes(), 0u);
}

// Hash and comparison that throw when told to.
struct throwing_hash {
  std::size_t operator()(const fragile& key) const {
    burn();
    return std::hash<std::uint64_t>()(key.number);
  }
  static void burn() {
    if (fragile::fuse > 0 && --fragile::fuse == 0) throw std::runtime_error("the fuse has burnt");
  }
};
struct throwing_equal {
  bool operator()(const fragile& a, const fragile& b) const {
    throwing_hash::burn();
    return a == b;
  }
};

TEST_F(numbers_test, what_throws_changes_nothing) {
  hash_map<fragile, fragile, throwing_hash, throwing_equal> mine(*farheap_);
  for (std::uint64_t i = 0; i < 300; ++i) mine.put(fragile(i), fragile(i));
  const auto is_as_before = [&] {
    fragile::fuse = -1;
    std::uint64_t sum = 0;
    mine.for_each([&](const fragile& key, const fragile& value) { sum += key.number * 1000 + value.number; });
    return mine.size() == 300 && sum == 299 * 150 * 1001 && mine.entry_bytes() == 300 * 48;
  };
  const fragile there(7);
  const fragile missing(1000);
  const fragile value(8);
  // Each operation, with a fuse that is longer each time, until it passes.
  const auto throws_at_every_step = [&](const auto& operation, const auto& undo) {
    unsigned steps = 0;
    while (true) {
      fragile::fuse = static_cast<int>(++steps);
      try {
        operation();
        break;
      } catch (const std::runtime_error&) {
      }
      if (!is_as_before()) return 0u;
    }
    fragile::fuse = -1;
    undo();
    return is_as_before() ? steps : 0;
  };
  const auto nothing = [] {};
  EXPECT_GT(throws_at_every_step([&] { mine.put(missing, value); }, [&] { mine.erase(missing); }), 3u);
  EXPECT_GT(throws_at_every_step([&] { mine.put(there, value); }, [&] { mine.put(there, there); }), 4u);
  EXPECT_GT(throws_at_every_step([&] { mine.try_emplace(missing, 9u); }, [&] { mine.erase(missing); }), 3u);
  EXPECT_GT(throws_at_every_step([&] { mine.insert(there, value); }, nothing), 2u);
  EXPECT_GT(throws_at_every_step([&] { mine.erase(there); }, [&] { mine.put(there, there); }), 2u);
  EXPECT_GT(throws_at_every_step([&] { static_cast<void>(mine.get(there)); }, nothing), 3u);
  EXPECT_GT(throws_at_every_step([&] { mine.update(there, [](fragile&) { throwing_hash::burn(); }); }, nothing), 3u);
  farheap_->evict_all();
  EXPECT_GT(throws_at_every_step([&] { mine.put(there, value); }, [&] { mine.put(there, there); }), 4u);
}

TEST_F(numbers_test, a_callback_that_throws_breaks_nothing) {
  hash_map<std::uint64_t, fragile> mine(*farheap_, {.entries = 10}, [](std::uint64_t, const fragile&) {
    throw std::runtime_error("the callback does not like it");
  });
  for (std::uint64_t i = 0; i < 10; ++i) mine.put(i, i);
  EXPECT_THROW(mine.put(10, 10u), std::runtime_error);
  EXPECT_EQ(mine.size(), 10u);
}

TEST_F(numbers_test, what_is_erased_is_given_back) {
  hash_map<std::uint64_t, test::wide> mine(*farheap_);
  for (std::uint64_t round = 0; round < 30; ++round) {
    for (std::uint64_t i = 0; i < 200; ++i) mine.put(i, test::wide(i));  // 1.6 MiB in whole pages
  }
  EXPECT_LT(farheap_->statistics().far_bytes + farheap_->statistics().local_bytes, 20 * mib);
  EXPECT_EQ(mine.size(), 200u);
}

// Whether pages are fetched as a whole: always, mostly, or never. `logs`: in scopes after a long one.
class leaving_test : public numbers_test, public ::testing::WithParamInterface<std::tuple<double, bool>> {
 protected:
  void SetUp() override {
    numbers_test::SetUp();
    if (!IsSkipped()) farheap_->set_page_path_share(std::get<0>(GetParam()));
  }
  static void perhaps_log() {
    if (std::get<1>(GetParam())) heap::note_long_scope(heap::current_record());
  }
};
INSTANTIATE_TEST_SUITE_P(ways, leaving_test, ::testing::Combine(::testing::Values(0.0, 0.8, 2.0), ::testing::Bool()));

TEST_P(leaving_test, entries_leave_with_their_objects) {
  std::size_t reported = 0;
  hash_map<std::uint64_t, std::uint64_t> mine(*farheap_, while_local{});
  hash_map<std::uint64_t, string> texts(*farheap_, while_local{}, {}, [&](std::uint64_t key, const string& text) {
    ++reported;
    EXPECT_EQ(text, text_of(key));
  });
  constexpr std::uint64_t count = 5'000;
  for (std::uint64_t i = 0; i < count; ++i) {
    mine.put(i, ~i);
    if (i < 500) texts.put(i, text_of(i));
  }
  EXPECT_EQ(mine.size(), count);
  EXPECT_EQ(texts.size(), 500u);
  farheap_->evict_all();
  EXPECT_EQ(mine.get(7), ~std::uint64_t{7}) << "nothing is dropped before the next change";
  const auto count_fetches = [&] {
    const runtime_statistics now = farheap_->statistics();
    return now.fetched_pages + now.object_fetches;
  };
  const std::uint64_t fetched = count_fetches();
  perhaps_log();
  mine.put(count, 0);
  EXPECT_LE(mine.size(), 600u) << "what is back in memory stays: at most some pages' entries";
  EXPECT_EQ(mine.get(7), ~std::uint64_t{7});
  EXPECT_EQ(mine.get(count), 0u);
  EXPECT_LT(count_fetches(), fetched + 100) << "what is dropped is not fetched";
  // Pages that are read ahead for another are back, too, and leave another time.
  std::size_t further = 0;
  for (; reported <= 200 && further < 50; ++further) {
    farheap_->evict_all();
    perhaps_log();
    texts.put(1'000 + further, text_of(1'000 + further));
  }
  EXPECT_EQ(texts.size() + reported, 500 + further);
  EXPECT_GT(reported, 200u);
  std::size_t visited = 0;
  mine.for_each([&](std::uint64_t key, std::uint64_t value) {
    EXPECT_EQ(value, key == count ? 0 : ~key);
    ++visited;
  });
  EXPECT_EQ(visited, mine.size());
}

TEST_P(leaving_test, what_was_put_just_now_has_not_left) {
  hash_map<std::uint64_t, std::uint64_t> mine(*farheap_, while_local{});
  for (std::uint64_t round = 0; round < 10; ++round) {
    for (std::uint64_t i = 0; i < 500; ++i) mine.put(i, round);
    farheap_->evict_all();
    perhaps_log();
    mine.put(7, ~round);
    EXPECT_EQ(mine.get(7), ~round);
  }
}

TEST_P(leaving_test, a_callback_that_throws_keeps_no_other_entry) {
  std::set<std::uint64_t> reported;
  bool refuses = true;
  using numbers_that_leave = hash_map<std::uint64_t, std::uint64_t>;
  numbers_that_leave* all = nullptr;
  numbers_that_leave mine(*farheap_, while_local{}, {}, [&](std::uint64_t key, std::uint64_t value) {
    if (refuses && key % 10 == 3) throw std::runtime_error("the callback does not like it");
    if (refuses && key == 500) {
      all->put(key, ~key);
      throw std::runtime_error("the callback has put it");
    }
    EXPECT_EQ(value, ~key);
    EXPECT_TRUE(reported.insert(key).second) << key;
  });
  all = &mine;
  for (std::uint64_t i = 0; i < 1'000; ++i) mine.put(i, ~i);
  farheap_->evict_all();
  perhaps_log();
  EXPECT_THROW(mine.put(1'000, ~std::uint64_t{1'000}), std::runtime_error);
  EXPECT_EQ(reported.size() + mine.size(), 1'001u);
  EXPECT_GT(reported.size(), 700u);
  for (std::uint64_t i = 3; i < 1'000; i += 10) EXPECT_EQ(mine.get(i), ~i);
  EXPECT_EQ(mine.get(500), ~std::uint64_t{500});
  refuses = false;
  farheap_->evict_all();
  mine.put(1'001, ~std::uint64_t{1'001});
  EXPECT_EQ(reported.size() + mine.size(), 1'002u);
  EXPECT_GT(reported.size(), 800u);
}

TEST_F(numbers_test, a_map_of_what_is_local_is_bounded_by_memory) {
  hash_map<std::uint64_t, std::array<std::uint64_t, 30>> mine(*farheap_, while_local{});
  constexpr std::uint64_t count = 200'000;  // 52 MB; there are 16
  for (std::uint64_t i = 0; i < count; ++i) {
    mine.put(i, std::array<std::uint64_t, 30>{i});
    const auto found = mine.get(i / 2);
    ASSERT_EQ(found ? (*found)[0] : i / 2, i / 2);
  }
  EXPECT_LT(mine.size(), count / 2);
  EXPECT_GT(mine.size(), count / 20);
  EXPECT_TRUE(mine.contains(count - 1));
}

TEST_F(numbers_test, a_runtime_has_fifteen_maps_of_what_is_local_at_a_time) {
  std::vector<numbers> all;
  for (int i = 0; i < 15; ++i) all.emplace_back(*farheap_, while_local{});
  EXPECT_THROW(numbers(*farheap_, while_local{}), std::runtime_error);
  all.pop_back();
  all.emplace_back(*farheap_, while_local{});
}

TEST_F(numbers_test, a_map_that_cannot_be_made_keeps_no_tag) {
  using guarded = hash_map<std::uint64_t, std::uint64_t, fragile_hash>;
  for (int round = 0; round < 10; ++round) {
    int copies = 0;
    for (bool is_made = false; !is_made; ++copies) {
      const fragile_hash hash_of;
      fragile::fuse = copies + 1;
      try {
        guarded mine(*farheap_, while_local{}, {}, {}, hash_of);
        fragile::fuse = -1;
        is_made = mine.put(1, 2);
      } catch (const std::runtime_error& failure) {
        ASSERT_STREQ(failure.what(), "the fuse has burnt") << "a tag is missing";
      }
    }
    EXPECT_GE(copies, 4) << "in the handler, in what keeps it, and in the map";
  }
  fragile::fuse = -1;
  EXPECT_EQ(fragile::living, 0);
}

// Each takes the tag of an earlier one. Entries of a map that is gone, or of another one, must not be noted in it.
TEST_F(numbers_test, thousands_of_maps_of_what_is_local_come_and_go) {
  constexpr std::uint64_t maps = 1'500;
  const auto use_maps = [&](std::uint64_t first_key) {
    std::deque<numbers> alive;
    for (std::uint64_t map = 0; map < maps; ++map) {
      numbers& mine =
          alive.emplace_back(*farheap_, while_local{.how = {.hotness_bits = static_cast<unsigned>(map % 4)}});
      const std::uint64_t base = first_key + map * 100;
      for (std::uint64_t i = base; i < base + 100; ++i) mine.put(i, ~i);
      if (map % 16 == 0) farheap_->evict_all();
      for (std::uint64_t i = base; i < base + 100; ++i) ASSERT_EQ(mine.get(i).value_or(~i), ~i);
      mine.put(base, 1);
      ASSERT_EQ(mine.get(base).value_or(1), 1u);
      ASSERT_LE(mine.size(), 100u);
      std::size_t foreign = 0;
      mine.for_each([&](std::uint64_t key, std::uint64_t) { foreign += key < base || key >= base + 100 ? 1 : 0; });
      ASSERT_EQ(foreign, 0u);
      if (alive.size() > 3) alive.pop_front();
    }
  };
  std::thread other([&] { use_maps(std::uint64_t{1} << 40); });
  use_maps(0);
  other.join();
  farheap_->validate();
}

}  // namespace
}  // namespace far
