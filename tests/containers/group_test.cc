// Aggregates of groups of a data frame, beside plain loops: where the numbers are, on far tiers that answer and on
// others, and here. Needs permission for userfaultfd.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/dataframe.h"
#include "far/runtime.h"
#include "memory_server.h"
#include "tests/support/real_pager.h"
#include "tests/support/today.h"

namespace far {
namespace {

using testing_support::memory_server;

class groups : public heap::far_tier_test {
 protected:
  struct row {
    std::optional<std::int64_t> key;
    std::optional<double> real;
    std::optional<std::int64_t> small;
    std::optional<std::int64_t> large;
    std::optional<bool> flag;
  };

  // Keys from 0 on; `late_keys` of them from the middle on.
  static std::vector<row> some(std::size_t count, std::uint64_t keys, std::uint64_t late_keys) {
    std::mt19937_64 random(count + keys);
    std::vector<row> rows(count);
    for (std::size_t i = 0; i < count; ++i) {
      row& one = rows[i];
      if (random() % 10 != 0) one.key = static_cast<std::int64_t>(random() % (i < count / 2 ? keys : late_keys));
      if (random() % 10 != 0)
        one.real = std::ldexp(static_cast<double>(random() % 1000003), static_cast<int>(random() % 30)) / 3;
      if (random() % 10 != 0) one.small = static_cast<std::int64_t>(random() % 65'535) - 32'767;
      if (random() % 10 != 0) one.large = static_cast<std::int64_t>(random() >> 20) * (random() % 2 == 0 ? 1 : -1);
      if (random() % 10 != 0) one.flag = random() % 3 == 0;
    }
    return rows;
  }
  static dataframe frame_of(runtime& home, const std::vector<row>& rows) {
    dataframe frame(home);
    const auto add = [&]<typename T>(const char* name, column_type type, auto row::* cell_of_row, const T&) {
      column all(home, type);
      std::vector<T> numbers;
      for (const row& one : rows) {
        const auto& cell = one.*cell_of_row;
        numbers.push_back(cell ? static_cast<T>(*cell) : all.null_as<T>());
      }
      all.append_numbers(std::span<const T>(numbers));
      frame.add(name, std::move(all));
    };
    add("key", column_type::int64, &row::key, std::int64_t{});
    add("real", column_type::float64, &row::real, double{});
    add("small", column_type::int64, &row::small, std::int64_t{});
    add("large", column_type::int64, &row::large, std::int64_t{});
    add("flag", column_type::boolean, &row::flag, std::uint8_t{});
    home.evict_all();
    return frame;
  }

  static std::vector<dataframe::wanted> aggregates() {
    std::vector<dataframe::wanted> all;
    for (const char* const name : {"real", "small", "large", "flag"}) {
      for (const aggregate what : {aggregate::count, aggregate::sum, aggregate::mean, aggregate::min, aggregate::max}) {
        all.push_back({name, what});
      }
    }
    return all;
  }
  static dataframe grouped(dataframe& frame, placement where) {
    frame.place(where);
    return frame.group_by({"key"}, aggregates());
  }

  // Bit for bit.
  static void expect_same(const dataframe& got, const dataframe& expected, const std::string& what) {
    ASSERT_EQ(got.rows(), expected.rows()) << what;
    for (const std::string& name : expected.names()) {
      for (std::size_t i = 0; i < expected.rows(); ++i)
        ASSERT_EQ(got[name].at(i), expected[name].at(i)) << what << name;
    }
  }
  template <typename T>
  static void expect_column(const dataframe& got, const std::string& name, std::size_t at,
                            const std::vector<T>& values) {
    ASSERT_EQ(got[name + "_count"].at(at), cell(std::ssize(values))) << name;
    if (values.empty()) {
      EXPECT_EQ(got[name + "_sum"].at(at), cell(null));
      EXPECT_EQ(got[name + "_min"].at(at), cell(null));
      return;
    }
    ASSERT_EQ(got[name + "_min"].at(at), cell(*std::ranges::min_element(values))) << name;
    ASSERT_EQ(got[name + "_max"].at(at), cell(*std::ranges::max_element(values))) << name;
    double sum = 0;
    std::int64_t whole = 0;
    for (const T one : values) {
      sum += static_cast<double>(one);
      if constexpr (!std::is_same_v<T, double>) whole += static_cast<std::int64_t>(one);
    }
    if constexpr (std::is_same_v<T, double>) {
      ASSERT_NEAR(std::get<double>(got[name + "_sum"].at(at)), sum, sum * 1e-12);
    } else {
      ASSERT_EQ(got[name + "_sum"].at(at), cell(whole)) << name;
    }
    const double mean = sum / static_cast<double>(values.size());
    ASSERT_NEAR(std::get<double>(got[name + "_mean"].at(at)), mean, std::abs(sum) * 1e-12 + 1e-6) << name;
  }
  static void expect_right(const dataframe& got, const std::vector<row>& rows) {
    struct of_group {
      std::vector<double> real;
      std::vector<std::int64_t> small, large;
      std::vector<bool> flag;
    };
    std::map<std::int64_t, of_group> expected;
    for (const row& one : rows) {
      if (!one.key) continue;
      of_group& group = expected[*one.key];
      if (one.real) group.real.push_back(*one.real);
      if (one.small) group.small.push_back(*one.small);
      if (one.large) group.large.push_back(*one.large);
      if (one.flag) group.flag.push_back(*one.flag);
    }
    ASSERT_EQ(got.rows(), expected.size());
    std::size_t at = 0;
    for (const auto& [key, values] : expected) {
      ASSERT_EQ(got["key"].at(at), cell(key));
      expect_column(got, "real", at, values.real);
      expect_column(got, "small", at, values.small);
      expect_column(got, "large", at, values.large);
      const auto trues = std::count(values.flag.begin(), values.flag.end(), true);
      ASSERT_EQ(got["flag_count"].at(at), cell(std::ssize(values.flag)));
      ASSERT_EQ(got["flag_sum"].at(at), values.flag.empty() ? cell(null) : cell(std::int64_t{trues}));
      ++at;
    }
  }
  std::uint64_t asked() const { return home_->statistics().reduced_pages; }

  // Of ways that a test goes alike: every second one, and the others tomorrow.
  static std::vector<std::string> of_today(const std::vector<std::string>& ways) {
    std::vector<std::string> some;
    for (std::size_t i = 0; i < ways.size(); ++i) {
      if (testing_support::is_of_today(i, 2)) some.push_back(ways[i]);
    }
    return some;
  }
};

// Some pages are here, changed or not, and the others are not. From 36 on, sums of int64 do not fit into an answer, and
// from 64 on, no groups do; the number may grow from one batch of rows to the next.
TEST_F(groups, of_any_number_are_right_and_the_same_wherever_they_are_asked) {
  for (const auto& [keys, late_keys] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {1, 1}, {3, 3}, {35, 35}, {36, 36}, {63, 63}, {64, 64}, {5, 5'000}}) {
    const std::string what = std::to_string(keys) + " to " + std::to_string(late_keys) + " groups: ";
    runtime& home = farheap("memory:");
    std::vector<row> rows = some(keys == late_keys ? 100'001 : 600'001, keys, late_keys);
    dataframe frame = frame_of(home, rows);
    const std::uint64_t before = asked();
    const dataframe there = grouped(frame, placement::there);
    // The first of three batches of rows has the early keys alone.
    if (keys <= 35) {
      EXPECT_GT(asked(), before + 100) << what;
    }
    if (keys > 63) {
      EXPECT_EQ(asked(), before) << what;
    }
    expect_right(there, rows);
    home.evict_all();
    const std::uint64_t before_here = asked();
    expect_same(grouped(frame, placement::here), there, what);
    EXPECT_EQ(asked(), before_here) << what;
    expect_same(grouped(frame, placement::automatic), there, what);
    home.validate();
  }
}

TEST_F(groups, include_what_was_changed_and_not_written_back) {
  runtime& home = farheap("memory:");
  std::vector<row> rows = some(150'000, 7, 7);
  dataframe frame = frame_of(home, rows);
  auto& reals = const_cast<vector<double>&>(*frame["real"].numbers<double>());
  for (std::size_t i = 0; i < rows.size(); i += 3'001) {
    rows[i].real = 1e9 + static_cast<double>(i);
    reals.write(i, *rows[i].real);
  }
  // Others write beside them meanwhile, more than fits beside them.
  vector<std::uint64_t> neighbours(home, 2'000'000);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::size_t i = 0; !stop; i = (i + 4'097) % neighbours.size()) neighbours.write(i, i);
  });
  for (int i = 0; i < 3; ++i) expect_right(grouped(frame, placement::there), rows);
  stop = true;
  writer.join();
}

TEST_F(groups, of_equal_columns_with_a_median_among_their_aggregates) {
  runtime& home = farheap("memory:");
  const std::vector<row> rows = some(100'000, 7, 7);
  dataframe frame = frame_of(home, rows);
  frame.place(placement::there);
  const dataframe with =
      frame.group_by({"key"}, {{"real", aggregate::median}, {"real", aggregate::sum}, {"real", aggregate::max}});
  expect_same(
      with, frame.group_by({"key"}, {{"real", aggregate::median}, {"real", aggregate::sum}, {"real", aggregate::max}}),
      "");
  const dataframe without = frame.group_by({"key"}, {{"real", aggregate::max}, {"real", aggregate::sum}});
  for (std::size_t i = 0; i < without.rows(); ++i) {
    EXPECT_EQ(with["real_sum"].at(i), without["real_sum"].at(i));
    EXPECT_EQ(with["real_max"].at(i), without["real_max"].at(i));
  }
}

TEST_F(groups, on_memory_servers_with_copies_stripes_and_parity_are_not_fetched) {
  const memory_server first({});
  const memory_server second({});
  const memory_server third({});
  const std::string addresses = first.address() + "," + second.address() + "," + third.address();
  const std::vector<row> rows = some(300'000, 24, 24);
  for (const std::string& way :
       of_today({"memory:?latency=50us", "tcp://" + first.address(), "tcp://" + addresses + "?copies=2",
                 "tcp://" + addresses + "?copies=1", "tcp://" + addresses + "?parity=2+1"})) {
    runtime& home = farheap(way);
    dataframe frame = frame_of(home, rows);
    const runtime_statistics before = home.statistics();
    const dataframe there = grouped(frame, placement::there);
    // Of the values nothing is fetched, and of the keys, 74 pages and what is read ahead, those that no server has
    // together with the values; some pages may still be here.
    EXPECT_GT(home.statistics().reduced_pages, before.reduced_pages + 500) << way;
    EXPECT_LT(home.statistics().fetched_pages, before.fetched_pages + 300) << way;
    expect_right(there, rows);
    expect_same(grouped(frame, placement::here), there, way);
  }
}

// Of two columns, of different widths, one of texts; with nulls.
TEST_F(groups, of_keys_that_servers_have_are_found_without_them) {
  memory_server first({});
  const memory_server second({});
  const std::string both = first.address() + "," + second.address();
  const std::vector<row> rows = some(300'000, 5, 5);
  const std::vector<dataframe::wanted> wanted = {{"real", aggregate::sum},    {"real", aggregate::max},
                                                 {"small", aggregate::count}, {"large", aggregate::min},
                                                 {"key", aggregate::count},   {"word", aggregate::count}};
  for (const std::string& way : of_today({"memory:?latency=20us", "tcp://" + first.address(),
                                          "tcp://" + both + "?copies=2", "tcp://" + both + "?copies=2&timeout=1s"})) {
    runtime& home = farheap(way);
    dataframe frame = frame_of(home, rows);
    column words(home, column_type::text);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      words.append(i % 11 == 0 ? cell(null) : cell(std::string(i % 7 < 3 ? "b" : i % 7 == 4 ? "a" : "c")));
    }
    frame.add("word", std::move(words));
    frame.place(placement::here);
    const dataframe here = frame.group_by({"word", "key"}, wanted);
    home.evict_all();
    const bool loses_a_server = way.ends_with("timeout=1s");
    if (loses_a_server) first.kill();
    frame.place(placement::there);
    const runtime_statistics before = home.statistics();
    expect_same(frame.group_by({"word", "key"}, wanted), here, way);
    // Only the rows behind the last question are read here.
    if (loses_a_server) continue;
    EXPECT_LT(home.statistics().fetched_pages, before.fetched_pages + 200) << way;
    EXPECT_GT(home.statistics().reduced_pages, before.reduced_pages + 1'000) << way;
  }
}

// A few of a question's pages are here, clean or changed: they are pushed out for it.
TEST_F(groups, of_keys_that_are_here_are_found_by_servers_all_the_same) {
  const memory_server server({});
  runtime& home = farheap("tcp://" + server.address());
  std::vector<row> rows = some(400'000, 5, 5);
  dataframe frame = frame_of(home, rows);
  auto& keys = const_cast<vector<std::int8_t>&>(*frame["key"].numbers<std::int8_t>());
  std::vector<std::int8_t> all(keys.size());
  keys.read(0, std::span<std::int8_t>(all));
  for (std::size_t i = 0; i < rows.size(); i += 10'007) {
    rows[i].key = 4;
    keys.write(i, 4);
  }
  frame.place(placement::there);
  const runtime_statistics before = home.statistics();
  const std::vector<dataframe::wanted> wanted = {{"real", aggregate::sum}, {"real", aggregate::count}};
  const dataframe there = frame.group_by({"key"}, wanted);
  const std::size_t pages_of_reals = rows.size() * sizeof(double) / page_bytes;
  // But for the last ones, which are no whole question.
  const std::size_t pages_of_keys = rows.size() / page_bytes;
  EXPECT_GE(home.statistics().reduced_pages, before.reduced_pages + pages_of_reals + pages_of_keys * 9 / 10);
  frame.place(placement::here);
  expect_same(frame.group_by({"key"}, wanted), there, "here");
}

// A page that is in use does not leave; then pages are pushed out again after a while, also for a program that only
// counts.
TEST_F(groups, of_keys_that_are_here_are_found_by_servers_again_after_one_was_in_use) {
  runtime& home = farheap("memory:");
  const std::vector<row> rows = some(400'000, 5, 5);
  dataframe frame = frame_of(home, rows);
  frame.place(placement::there);
  const vector<std::int8_t>& keys = *frame["key"].numbers<std::int8_t>();
  // How many pages are asked about where they are, of a count for which one page of each question is here.
  const auto pages_asked = [&] {
    home.evict_all();
    std::array<std::int8_t, 1> one{};
    for (std::size_t i = 0; i < rows.size(); i += detail::most_rows) keys.read(i, std::span<std::int8_t>(one));
    const std::uint64_t before = asked();
    static_cast<void>(frame.group_by({"key"}, {{"key", aggregate::count}}));
    return asked() - before;
  };
  const std::uint64_t all = pages_asked();
  EXPECT_GT(all, rows.size() / page_bytes * 3 / 4);
  {
    const scope here(home);
    EXPECT_EQ(keys.at(here, 0), keys.at(here, 0));
    static_cast<void>(frame.group_by({"key"}, {{"key", aggregate::count}}));
  }
  EXPECT_LT(pages_asked(), all);
  for (int i = 0; i < 40 && pages_asked() < all; ++i) {
  }
  EXPECT_EQ(pages_asked(), all);
}

// The rows of all columns lie on one server, some on each.
TEST_F(groups, on_servers_without_copies_are_found_by_those_that_have_the_rows) {
  std::vector<std::unique_ptr<memory_server>> servers;
  std::string addresses;
  const std::vector<row> rows = some(300'000, 5, 5);
  for (int count = 1; count <= 3; ++count) {
    servers.push_back(std::make_unique<memory_server>(testing_support::memory_server_options{}));
    addresses += (count == 1 ? "tcp://" : ",") + servers.back()->address();
    runtime& home = farheap(addresses);
    dataframe frame = frame_of(home, rows);
    home.evict_all();
    const runtime_statistics before = home.statistics();
    const dataframe there = grouped(frame, placement::there);
    // Each column of values has its own questions. The rows behind the last ones are read here.
    const std::size_t bytes_of_questions = rows.size() * (8 + 2 + 8 + 1 + 4);
    EXPECT_GT(home.statistics().reduced_pages, before.reduced_pages + bytes_of_questions / page_bytes * 9 / 10)
        << count;
    EXPECT_LT(home.statistics().fetched_pages, before.fetched_pages + 200) << count;
    expect_right(there, rows);
    expect_same(grouped(frame, placement::here), there, std::to_string(count));
  }
}

// The same, bit for bit, wherever they are counted; some pages are here and changed, and one of the servers is away.
TEST_F(groups, have_medians_that_servers_help_to_find) {
  memory_server first({});
  const memory_server second({});
  const memory_server third({});
  const std::string all = first.address() + "," + second.address() + "," + third.address();
  std::vector<row> rows = some(600'000, 7, 7);
  const std::vector<dataframe::wanted> wanted = {{"real", aggregate::median},  {"small", aggregate::median},
                                                 {"large", aggregate::median}, {"small", aggregate::mean},
                                                 {"flag", aggregate::median},  {"small", aggregate::max}};
  for (const std::string& way : of_today({"memory:", "tcp://" + second.address(), "tcp://" + all,
                                          "tcp://" + all + "?copies=2", "tcp://" + all + "?copies=2&timeout=1s",
                                          "tcp://" + second.address() + "," + third.address() + "?copies=1"})) {
    runtime& home = farheap(way);
    dataframe frame = frame_of(home, rows);
    auto& reals = const_cast<vector<double>&>(*frame["real"].numbers<double>());
    for (std::size_t i = 0; i < rows.size(); i += 30'001) {
      rows[i].real = -1e9 - static_cast<double>(i);
      reals.write(i, *rows[i].real);
    }
    if (way.ends_with("timeout=1s")) first.kill();
    frame.place(placement::there);
    const runtime_statistics before = home.statistics();
    const dataframe there = frame.group_by({"key"}, wanted);
    const std::uint64_t pages = rows.size() * (8 + 2 + 8 + 1) / page_bytes;
    if (!way.ends_with("timeout=1s")) {
      EXPECT_GT(home.statistics().reduced_pages, before.reduced_pages + 2 * pages) << way;
      EXPECT_LT(home.statistics().fetched_pages, before.fetched_pages + pages / 3) << way;
    }
    frame.place(placement::here);
    const std::uint64_t asked_before = asked();
    expect_same(frame.group_by({"key"}, wanted), there, way);
    EXPECT_EQ(asked(), asked_before);
    home.validate();
  }
}

// In a column that ascends, the numbers in the middle are those of a few questions: these have no room to list them.
TEST_F(groups, have_medians_where_an_answer_has_no_room_for_its_list) {
  const memory_server server({});
  for (const std::string& way : of_today({"memory:", "tcp://" + server.address()})) {
    std::vector<row> rows(600'000);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i].key = static_cast<std::int64_t>(i % 7);
      rows[i].real = static_cast<double>(i);
    }
    dataframe frame = frame_of(farheap(way), rows);
    const std::vector<dataframe::wanted> wanted = {{"real", aggregate::median}};
    frame.place(placement::there);
    const std::uint64_t asked_before = asked();
    const dataframe there = frame.group_by({"key"}, wanted);
    EXPECT_GT(asked(), asked_before) << way;
    frame.place(placement::here);
    expect_same(frame.group_by({"key"}, wanted), there, way);
  }
}

TEST_F(groups, survive_a_server_of_two) {
  memory_server first({});
  const memory_server second({});
  runtime& home = farheap("tcp://" + first.address() + "," + second.address() + "?copies=2&timeout=1s");
  const std::vector<row> rows = some(300'000, 5, 5);
  dataframe frame = frame_of(home, rows);
  first.kill();
  expect_right(grouped(frame, placement::there), rows);
}

TEST_F(groups, on_a_far_tier_that_computes_nothing_are_fetched) {
  runtime& home = farheap("zmem:");
  const std::vector<row> rows = some(300'000, 24, 24);
  dataframe frame = frame_of(home, rows);
  expect_right(grouped(frame, placement::there), rows);
  expect_right(grouped(frame, placement::automatic), rows);
  EXPECT_EQ(asked(), 0u);
}

}  // namespace
}  // namespace far
