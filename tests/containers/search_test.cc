// Texts in containers of characters, beside plain searches, on far tiers that search and on others. Needs permission
// for userfaultfd.
#include "far/search.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "far/array.h"
#include "far/runtime.h"
#include "far/vector.h"
#include "memory_server.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

using testing_support::memory_server;

class searches : public heap::far_tier_test {
 protected:
  // Letters, so that short texts recur, and words across the ends of pages.
  static std::string some(std::size_t count) {
    std::mt19937_64 random(count);
    std::string text(count, ' ');
    for (char& one : text) one = static_cast<char>('a' + random() % 26);
    for (std::size_t page = page_bytes; page + 64 < count; page += page_bytes) {
      if (random() % 3 == 0) text.replace(page - random() % 40, 40, "a needle that is longer than 16 letters!");
    }
    return text;
  }
  static std::vector<std::size_t> places(const std::string& in, std::string_view text) {
    std::vector<std::size_t> found;
    for (std::size_t at = in.find(text); at != std::string::npos; at = in.find(text, at + 1)) found.push_back(at);
    return found;
  }
  static constexpr std::array<std::string_view, 6> some_texts = {
      "ab", "aa", "a needle", "needle that is l", "needle that is lo", "a needle that is longer than 16 letters?"};
  // Of the first, a page has more than an answer has room for.
  static constexpr std::array<std::string_view, 4> other_texts = {"e", "eee", "zzzzzz",
                                                                  "a needle that is longer than 16 letters!"};
  template <typename Characters>
  static void expect_right(const Characters& all, const std::string& plain,
                           std::span<const std::string_view> texts = some_texts) {
    for (const std::string_view text : texts) {
      const std::vector<std::size_t> expected = places(plain, text);
      EXPECT_EQ(count_text(all, text), expected.size()) << text;
      const vector<std::size_t> found = find_text(all, text);
      ASSERT_EQ(found.size(), expected.size()) << text;
      std::vector<std::size_t> got(found.size());
      found.read(0, std::span<std::size_t>(got));
      EXPECT_EQ(got, expected) << text;
    }
  }
};

// Some pages are here, changed or not, and the others are not.
TEST_F(searches, find_what_plain_ones_find) {
  runtime& home = farheap("memory:");
  std::string plain = some(18 * mib + 77);
  vector<char> all(home, std::span<const char>(plain));
  home.evict_all();
  const std::uint64_t before = home.statistics().reduced_pages;
  expect_right(all, plain);
  EXPECT_GT(home.statistics().reduced_pages, before + 4'000u);
  for (std::size_t at = 4'000; at + 200 < plain.size(); at += 100'003) {
    plain.replace(at, 8, "a needle");
    all.write(at, std::span<const char>(plain).subspan(at, 8));
  }
  expect_right(all, plain, other_texts);
  expect_right(here(all), plain, std::span(some_texts).first(3));
  home.validate();
}

TEST_F(searches, of_few_characters_and_of_none) {
  runtime& home = farheap("memory:");
  vector<std::uint8_t> few(home);
  EXPECT_EQ(count_text(few, "a"), 0u);
  few.append(std::vector<std::uint8_t>{'a', 'b', 'a', 'b', 'a'});
  EXPECT_EQ(count_text(few, "aba"), 2u) << "which overlap";
  EXPECT_EQ(find_text(few, "ba").read(1), 3u);
  EXPECT_EQ(count_text(few, "ababab"), 0u);
  EXPECT_EQ(find_text(few, "abababababababababab").size(), 0u);
  EXPECT_THROW(static_cast<void>(count_text(few, "")), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(find_text(few, "")), std::invalid_argument);
  // Groups of eight, of which each has an answer of its own: the text crosses several.
  const std::string plain = some(20'000);
  vector<char, 8> grouped(home, std::span<const char>(plain));
  home.evict_all();
  expect_right(grouped, plain);
  expect_right(grouped, plain, other_texts);
  array<char, 20'000> fixed(home);
  fixed.write(0, std::span<const char>(plain));
  home.evict_all();
  expect_right(fixed, plain);
}

TEST_F(searches, on_memory_servers_with_copies_stripes_and_parity_fetch_nothing) {
  const memory_server first({});
  const memory_server second({});
  const memory_server third({});
  const std::string addresses = first.address() + "," + second.address() + "," + third.address();
  const std::string plain = some(6 * mib);
  for (const std::string& way : {"tcp://" + first.address(), "tcp://" + addresses + "?copies=2",
                                 "tcp://" + addresses + "?copies=1", "tcp://" + addresses + "?parity=2+1"}) {
    runtime& home = farheap(way);
    const vector<char> all(home, std::span<const char>(plain));
    home.evict_all();
    const runtime_statistics before = home.statistics();
    EXPECT_EQ(count_text(all, "abc"), places(plain, "abc").size()) << way;
    EXPECT_GT(home.statistics().reduced_pages, before.reduced_pages + 1'500) << way;
    EXPECT_LT(home.statistics().fetched_pages, before.fetched_pages + 50) << way;
    expect_right(all, plain, std::span(some_texts).subspan(2, 3));
  }
}

// The other copy searches what the server that is gone would have, or the pages are fetched.
TEST_F(searches, survive_a_server_of_two) {
  memory_server first({});
  const memory_server second({});
  runtime& home = farheap("tcp://" + first.address() + "," + second.address() + "?copies=2&timeout=1s");
  const std::string plain = some(18 * mib);
  const vector<char> all(home, std::span<const char>(plain));
  home.evict_all();
  first.kill();
  expect_right(all, plain);
}

TEST_F(searches, of_a_far_tier_that_computes_nothing_fetch) {
  runtime& home = farheap("zmem:");
  const std::string plain = some(18 * mib);
  const vector<char> all(home, std::span<const char>(plain));
  expect_right(all, plain);
  EXPECT_EQ(home.statistics().reduced_pages, 0u);
}

TEST_F(searches, of_strings_find_those_that_have_the_text) {
  runtime& home = farheap("memory:");
  vector<string> lines(home);
  std::vector<std::string> plain;
  std::mt19937_64 random(5);
  for (std::size_t i = 0; i < 40'000; ++i) {
    // Some lie in the vector, others in objects of all sizes.
    std::string line(i % 997 == 0        ? 5'000 + random() % 100'000
                     : random() % 2 == 0 ? random() % 24
                                         : random() % 600,
                     'a');
    for (char& one : line) one = static_cast<char>('a' + random() % 3);
    lines.push_back(string(home, line));
    plain.push_back(std::move(line));
  }
  home.evict_all();
  for (const std::string& text : {std::string("abcab"), std::string("aabbccaabb"), std::string(), std::string("d"),
                                  plain[997].substr(4'000), plain[11]}) {
    std::vector<std::size_t> expected;
    for (std::size_t i = 0; i < plain.size(); ++i) {
      if (plain[i].find(text) != std::string::npos) expected.push_back(i);
    }
    const vector<std::size_t> found = find_text(lines, text);
    std::vector<std::size_t> got(found.size());
    found.read(0, std::span<std::size_t>(got));
    EXPECT_EQ(got, expected) << text.substr(0, 20);
  }
  home.validate();
}

}  // namespace
}  // namespace far
