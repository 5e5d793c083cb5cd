// far::string beside std::string. Needs permission for userfaultfd.
#include "far/string.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/unique_ptr.h"
#include "far/vector.h"
#include "tests/containers/elements.h"

namespace far {
namespace {

static_assert(sizeof(string) == 24 && relocatable<string> && !is_relocatable<string>);
static_assert(relocatable<std::pair<string, int>> && relocatable<std::optional<string>>);
static_assert(!std::is_copy_constructible_v<string> && std::is_nothrow_move_constructible_v<string>);
static_assert(std::three_way_comparable<string> && std::three_way_comparable_with<string, string>);

// Texts whose characters depend on number and place; lengths around the limits, and some that differ only at the end.
std::string text_of(std::uint64_t number) {
  static constexpr std::array<std::size_t, 12> lengths = {0, 1, 7, 14, 15, 16, 25, 60, 200, 4000, 4090, 70'000};
  std::string text(lengths[number % lengths.size()], 'x');
  for (std::size_t i = 0; i < text.size(); i += number % 3 == 0 ? 1 : 13) {
    text[i] = static_cast<char>(number * 31 + i * 7);
  }
  if (!text.empty() && number % 5 == 0) text.back() = static_cast<char>(number);
  return text;
}

class string_test : public test::containers_test {};

// The word of the far object that a string owns, 0 if it owns none.
std::atomic<std::uint64_t>* word_of(string& text) {
  std::atomic<std::uint64_t>* found = nullptr;
  text.visit_word([](std::atomic<std::uint64_t>& word, void* to) { *static_cast<decltype(found)*>(to) = &word; },
                  &found);
  return found;
}

// The evacuator looks for words in strings that the program is changing: no text may ever be where one is looked for.
TEST_F(string_test, shows_no_text_where_its_word_is) {
  string text(*farheap_, std::string(string::inline_capacity, '{'));
  const auto expect_no_word = [&] { EXPECT_EQ(word_of(text)->load(), 0u); };
  EXPECT_TRUE(text.is_inline());
  expect_no_word();
  text.assign(*farheap_, std::string(100, '{'));
  EXPECT_NE(word_of(text)->load(), 0u);
  text.assign(*farheap_, std::string(string::inline_capacity, '{'));
  expect_no_word();
  string other(*farheap_, std::string(string::inline_capacity + 1, '{'));
  EXPECT_FALSE(other.is_inline());
  text.swap(other);
  EXPECT_TRUE(other.is_inline());
  EXPECT_NE(word_of(text)->load(), 0u);
  EXPECT_EQ(word_of(other)->load(), 0u);
}

TEST_F(string_test, does_what_std_string_does) {
  std::mt19937_64 random(3);
  std::vector<string> mine(40);
  std::vector<std::string> model(40);
  for (unsigned step = 0; step < 6000; ++step) {
    const std::size_t a = random() % mine.size();
    const std::size_t b = random() % mine.size();
    const std::string text = text_of(random());
    switch (random() % 8) {
      case 0:
        mine[a].assign(*farheap_, text);
        model[a].assign(text);
        break;
      case 1:
        if (model[a].size() > 200'000) break;
        mine[a].append(*farheap_, text);
        model[a].append(text);
        break;
      case 2:
        mine[a].swap(mine[b]);
        model[a].swap(model[b]);
        break;
      case 3:
        mine[a] = mine[b].clone(*farheap_);
        model[a] = model[b];
        break;
      case 4:
        if (a == b) break;
        mine[a] = std::move(mine[b]);
        model[a] = std::exchange(model[b], {});
        ASSERT_TRUE(mine[b].empty());
        break;
      case 5:
        mine[a].clear();
        model[a].clear();
        break;
      default:
        ASSERT_EQ(mine[a] == mine[b], model[a] == model[b]);
        ASSERT_EQ(mine[a] <=> mine[b], model[a] <=> model[b]);
        ASSERT_EQ(mine[a] <=> text, model[a] <=> text);
        ASSERT_EQ(mine[a] == text, model[a] == text);
        ASSERT_TRUE(mine[a] == model[a]);
    }
    if (step % 1000 == 500) farheap_->evict_all();
    if (step % 250 == 7) farheap_->evacuate(0.2);
    ASSERT_EQ(mine[a].size(), model[a].size());
    ASSERT_EQ(mine[a].hash(), std::hash<std::string_view>()(model[a]));
    ASSERT_EQ(mine[a].str(), model[a]);
  }
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const scope here(*farheap_);
    ASSERT_EQ(mine[i].view(here), model[i]);
  }
}

TEST_F(string_test, compares_unequal_texts_without_their_characters) {
  const string one(*farheap_, std::string("prefix ") + std::string(3000, 'a'));
  const string other(*farheap_, std::string("qrefix ") + std::string(3000, 'a'));
  const string longer(*farheap_, std::string("prefix ") + std::string(3001, 'a'));
  farheap_->evict_all();
  const runtime_statistics before = farheap_->statistics();
  EXPECT_FALSE(one == other);
  EXPECT_FALSE(one == longer);
  EXPECT_LT(one, other);
  EXPECT_GT(other, std::string_view("prefix"));
  EXPECT_EQ(one.size(), 3007u);
  const runtime_statistics after = farheap_->statistics();
  EXPECT_EQ(after.object_fetches + after.page_fetches, before.object_fetches + before.page_fetches);
  EXPECT_TRUE(one == std::string("prefix ") + std::string(3000, 'a'));
}

TEST_F(string_test, is_an_element_that_moves_by_its_bytes) {
  vector<string> all(*farheap_);
  constexpr std::uint64_t count = 20'000;  // 3 MiB of texts below a page, and some above
  const auto text_at = [](std::uint64_t i) { return text_of(i % 500 == 11 ? i : i - i % 12 + i % 10); };
  for (std::uint64_t i = 0; i < count; ++i) all.emplace_back(*farheap_, text_at(i));
  farheap_->evict_all();
  farheap_->evacuate(0);
  for (std::uint64_t i = 0; i < count; ++i) {
    const scope here(*farheap_);
    ASSERT_TRUE(all.deref(here, i) == text_at(i)) << i;
  }
  auto owned = make_unique<std::pair<string, int>>(*farheap_, string(*farheap_, text_of(8)), 4);
  farheap_->evict_all();
  farheap_->evacuate(0);
  const scope here(*farheap_);
  EXPECT_TRUE(owned.deref(here).first == text_of(8));
}

TEST_F(string_test, follows_the_object_that_it_is_part_of) {
  std::vector<unique_ptr<std::pair<string, std::uint64_t>>> owners;
  for (std::uint64_t i = 0; i < 40'000; ++i) {
    owners.push_back(
        make_unique<std::pair<string, std::uint64_t>>(*farheap_, string(*farheap_, std::string(i % 60, 'x')), i));
  }
  for (std::size_t i = 0; i < owners.size(); i += 2) owners[i].reset();
  farheap_->evacuate(0);
  const std::uint64_t moved = farheap_->statistics().evacuated_objects;
  ASSERT_GT(moved, 1000u);
  for (std::size_t i = 1; i < owners.size(); i += 4) owners[i].reset();
  farheap_->evacuate(0);
  // 10,000 pairs and 6,000 texts. A text whose owner is not where its header says would stay.
  EXPECT_GT(farheap_->statistics().evacuated_objects - moved, 12'000u);
  farheap_->validate();
  for (std::uint64_t i = 3; i < owners.size(); i += 4) {
    const scope here(*farheap_);
    const auto& [text, number] = owners[i].deref(here);
    ASSERT_TRUE(number == i && text == std::string(i % 60, 'x')) << i;
  }
}

TEST_F(string_test, tells_texts_apart_that_begin_alike) {
  const string one(*farheap_, std::string(100, 'a') + "b");
  const string other(*farheap_, std::string(100, 'a') + "c");
  EXPECT_FALSE(one == other);
  EXPECT_LT(one, other);
  EXPECT_FALSE(one == std::string(100, 'a') + "c");
  EXPECT_TRUE(one == other.clone(*farheap_).str().replace(100, 1, "b"));
}

TEST_F(string_test, copies_a_part) {
  const std::string text = text_of(11);
  const string mine(*farheap_, text);
  std::string part(1000, '\0');
  EXPECT_EQ(mine.copy(65'000, part), 1000u);
  EXPECT_EQ(part, text.substr(65'000, 1000));
  EXPECT_EQ(mine.copy(69'990, part), 10u);
  EXPECT_EQ(part.substr(0, 10), text.substr(69'990));
  EXPECT_EQ(mine.copy(70'000, part), 0u);
  EXPECT_THROW(static_cast<void>(mine.copy(70'001, part)), std::out_of_range);
}

TEST_F(string_test, appends_a_part_of_itself) {
  string mine(*farheap_, text_of(7));
  const std::string before = mine.str();
  {
    const scope here(*farheap_);
    mine.append(*farheap_, mine.view(here).substr(10));
    mine.append(*farheap_, mine.view(here).substr(0, 5));
    mine.assign(*farheap_, mine.view(here).substr(3));
  }
  EXPECT_EQ(mine.str(), (before + before.substr(10) + before.substr(0, 5)).substr(3));
  string small(*farheap_, "abc");
  {
    const scope here(*farheap_);
    small.append(*farheap_, small.view(here));
  }
  EXPECT_EQ(small.str(), "abcabc");
}

TEST_F(string_test, is_read_by_many_at_a_time) {
  std::vector<string> texts;
  for (std::uint64_t i = 0; i < 3000; ++i) texts.emplace_back(*farheap_, text_of(i));
  std::vector<std::thread> readers;
  std::vector<unsigned> wrong(3);
  for (unsigned reader = 0; reader < 2; ++reader) {
    readers.emplace_back([&, reader] {
      std::mt19937_64 random(reader);
      for (unsigned i = 0; i < 6000; ++i) {
        const std::uint64_t index = random() % texts.size();
        wrong[reader] += texts[index] == text_of(index) ? 0 : 1;
      }
    });
  }
  for (unsigned i = 0; i < 20; ++i) farheap_->evict_all();
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong[0] + wrong[1], 0u);
}

}  // namespace
}  // namespace far
