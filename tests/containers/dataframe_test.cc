// Data frames beside plain vectors of rows, with most of them remote. Needs permission for userfaultfd.
#include "far/dataframe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "far/runtime.h"
#include "plain_rows.h"

namespace far {
namespace {

TEST_F(dataframes, keep_values_and_nulls) {
  const std::vector<plain_row> rows = some(3'000, 1);
  const dataframe frame = frame_of(rows);
  ASSERT_EQ(frame.rows(), rows.size());
  EXPECT_EQ(frame.names(), (std::vector<std::string>{"number", "real", "flag", "text"}));
  for (std::size_t i = 0; i < rows.size(); ++i) expect_row(frame, i, rows[i]);
  EXPECT_EQ(frame["text"].null_count(), static_cast<std::size_t>(std::ranges::count_if(
                                            rows, [](const plain_row& row) { return !row.text.has_value(); })));
  EXPECT_THROW(static_cast<void>(frame["number"].at(rows.size())), std::out_of_range);
}

TEST_F(dataframes, refuse_what_does_not_fit_and_stay_as_they_were) {
  dataframe frame = frame_of(some(10, 2));
  EXPECT_THROW(static_cast<void>(frame["nothing"]), std::out_of_range);
  EXPECT_THROW(frame.add("real", column_type::text), std::invalid_argument);
  EXPECT_THROW(frame.add("short", column(*home_, column_type::text)), std::invalid_argument);
  EXPECT_THROW(frame.append({null, null, null}), std::invalid_argument);
  EXPECT_THROW(frame.append({1, 2.0, true, 4.0}), std::invalid_argument);
  EXPECT_THROW(frame.append({true, 2.0, true, null}), std::invalid_argument);
  EXPECT_THROW(frame.append({std::numeric_limits<std::int64_t>::min(), null, null, null}), std::range_error);
  EXPECT_EQ(frame.rows(), 10u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(frame.column_at(i).size(), 10u);
  EXPECT_THROW(static_cast<void>(frame["text"].mean()), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(frame["text"].min()), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(frame["text"].rows_between(std::string("a"), null)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(frame.group_by({}, {})), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(frame.group_by({"flag"}, {{"text", aggregate::sum}})), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(frame.rows_where<double>({"number"}, [](double) { return true; })),
               std::invalid_argument);
  EXPECT_EQ(frame.add("late", column_type::time).null_count(), 10u);
}

// The same wherever the questions are answered.
TEST_F(dataframes, answer_questions_about_columns) {
  const std::vector<plain_row> rows = some(40'000, 3);
  std::vector<double> reals;
  std::int64_t sum = 0;
  std::map<std::int64_t, std::uint64_t> numbers;
  std::map<std::string, std::uint64_t> texts;
  std::vector<std::size_t> between;
  std::vector<std::size_t> maybe;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].real) reals.push_back(*rows[i].real);
    if (rows[i].real && *rows[i].real >= 10 && *rows[i].real <= 20) between.push_back(i);
    if (rows[i].text == "maybe") maybe.push_back(i);
    if (rows[i].number) sum += *rows[i].number, ++numbers[*rows[i].number];
    if (rows[i].text) ++texts[*rows[i].text];
  }
  std::ranges::sort(reals);
  dataframe frame = frame_of(rows);
  for (const placement where : {placement::there, placement::here, placement::automatic}) {
    frame.place(where);
    home_->evict_all();
    const runtime_statistics before = home_->statistics();
    EXPECT_EQ(frame["real"].count(), reals.size());
    EXPECT_EQ(home_->statistics().fetched_pages, before.fetched_pages);  // known since they were appended
    EXPECT_EQ(home_->statistics().reduced_pages, before.reduced_pages);
    EXPECT_EQ(frame["real"].count_between(0.0, null),
              static_cast<std::size_t>(std::ranges::count_if(reals, [](double real) { return real >= 0; })));
    if (where != placement::automatic) {
      EXPECT_EQ(home_->statistics().reduced_pages > before.reduced_pages, where == placement::there);
    }
    EXPECT_EQ(frame["real"].min(), cell(reals.front()));
    EXPECT_EQ(frame["real"].max(), cell(reals.back()));
    // Sixteenths: every order of addition has the same sum.
    EXPECT_EQ(frame["real"].sum(), cell(std::accumulate(reals.begin(), reals.end(), 0.0)));
    EXPECT_EQ(frame["real"].median(), (reals[(reals.size() - 1) / 2] + reals[reals.size() / 2]) / 2);
    EXPECT_EQ(frame["number"].sum(), cell(sum));
    EXPECT_EQ(local(frame["real"].rows_between(10.0, 20.0)), between);
    EXPECT_EQ(frame["real"].count_between(10, 20), between.size());
    EXPECT_EQ(local(frame["text"].rows_equal("maybe")), maybe);
    EXPECT_EQ(frame["text"].rows_equal("unheard").size(), 0u);
    for (const std::string& name : frame.names()) EXPECT_EQ(frame[name].rows_equal(null).size(), 0u) << name;
    const auto number_counts = frame["number"].counts();
    ASSERT_EQ(number_counts.size(), numbers.size());
    for (const auto& [value, count] : number_counts) EXPECT_EQ(count, numbers.at(std::get<std::int64_t>(value)));
    const auto text_counts = frame["text"].counts();
    ASSERT_EQ(text_counts.size(), texts.size());
    EXPECT_TRUE(std::ranges::is_sorted(text_counts));
    for (const auto& [value, count] : text_counts) EXPECT_EQ(count, texts.at(std::get<std::string>(value)));
    std::uint64_t all = 0;
    for (const auto& [value, count] : frame["real"].counts()) all += count;
    EXPECT_EQ(all, reals.size());
  }
  const column empty(*home_, column_type::float64);
  EXPECT_EQ(empty.min(), cell(null));
  EXPECT_EQ(empty.sum(), cell(null));
  EXPECT_EQ(empty.mean(), std::nullopt);
  EXPECT_EQ(empty.median(), std::nullopt);
}

TEST_F(dataframes, find_texts_with_a_text_in_them) {
  const std::vector<plain_row> rows = some(40'000, 9);
  dataframe frame = frame_of(rows);
  const auto expected = [&](const std::string& text) {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].text && rows[i].text->find(text) != std::string::npos) found.push_back(i);
    }
    return found;
  };
  for (const placement where : {placement::there, placement::here, placement::automatic}) {
    frame.place(where);
    home_->evict_all();
    const std::uint64_t before = home_->statistics().reduced_pages;
    // One code, two that do not follow one another, all of them, none.
    for (const char* const text : {"be", "y", "o", "", "yes please"}) {
      EXPECT_EQ(local(frame["text"].rows_containing(text)), expected(text)) << text;
    }
    if (where != placement::automatic) {
      EXPECT_EQ(home_->statistics().reduced_pages > before, where == placement::there);
    }
  }
  EXPECT_THROW(static_cast<void>(frame["real"].rows_containing("1")), std::invalid_argument);
}

TEST_F(dataframes, derive_columns_and_filter_rows) {
  const std::vector<plain_row> rows = some(20'000, 4);
  dataframe frame = frame_of(rows);
  frame.derive<double, std::int64_t>("scaled", {"real", "number"},
                                     [](double a, std::int64_t b) { return a * static_cast<double>(b); });
  frame.derive<bool>("not", {"flag"}, [](bool flag) { return !flag; });
  const auto wanted = local(frame.rows_where<std::int64_t, bool>(
      {"number", "flag"}, [](std::int64_t number, bool flag) { return flag && number > 5; }));
  std::vector<std::size_t> expected;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const plain_row& row = rows[i];
    const bool is_both = row.real && row.number;
    ASSERT_EQ(frame["scaled"].at(i), is_both ? cell(*row.real * static_cast<double>(*row.number)) : cell(null)) << i;
    ASSERT_EQ(frame["not"].at(i), row.flag ? cell(!*row.flag) : cell(null)) << i;
    if (row.number && row.flag && *row.flag && *row.number > 5) expected.push_back(i);
  }
  EXPECT_EQ(wanted, expected);
  const dataframe few = frame.filter("number", 5, 7);
  std::size_t at = 0;
  for (const plain_row& row : rows) {
    if (row.number && *row.number >= 5 && *row.number <= 7) expect_row(few, at++, row);
  }
  EXPECT_EQ(few.rows(), at);
}

TEST_F(dataframes, derive_several_columns_in_one_walk) {
  const std::vector<plain_row> rows = some(20'000, 9);
  dataframe frame = frame_of(rows);
  frame.derive_together<std::int64_t, double>(
      {"half", "sum", "is_less"}, {"number", "real"}, [](std::int64_t number, double real) {
        return std::tuple(number / 2, static_cast<double>(number) + real, static_cast<double>(number) < real);
      });
  EXPECT_EQ(frame["half"].type(), column_type::int64);
  EXPECT_EQ(frame["is_less"].type(), column_type::boolean);
  for (std::size_t i = 0; i < rows.size(); i += 3) {
    const bool is_any_null = !rows[i].number || !rows[i].real;
    ASSERT_EQ(frame["half"].at(i), is_any_null ? cell(null) : cell(*rows[i].number / 2)) << i;
    if (is_any_null) continue;
    const auto number = static_cast<double>(*rows[i].number);
    ASSERT_EQ(frame["sum"].at(i), cell(number + *rows[i].real)) << i;
    ASSERT_EQ(frame["is_less"].at(i), cell(number < *rows[i].real)) << i;
  }
  // All or none.
  const auto twice = [](double real) { return std::tuple(real, real); };
  EXPECT_THROW(frame.derive_together<double>({"new", "half"}, {"real"}, twice), std::invalid_argument);
  EXPECT_THROW(frame.derive_together<double>({"new", "new"}, {"real"}, twice), std::invalid_argument);
  EXPECT_THROW(frame.derive_together<double>({"new", "newer"}, {"number"}, twice), std::invalid_argument);
  EXPECT_FALSE(frame.has("new"));
}

TEST_F(dataframes, are_sorted_with_nulls_last_and_equal_rows_in_their_order) {
  std::vector<plain_row> rows = some(20'000, 5);
  const dataframe frame = frame_of(rows);
  const auto check = [&](const char* name, order direction, auto member) {
    std::vector<plain_row> sorted = rows;
    std::stable_sort(sorted.begin(), sorted.end(), [&](const plain_row& a, const plain_row& b) {
      if (!(a.*member) || !(b.*member)) return (a.*member).has_value() && !(b.*member).has_value();
      return direction == order::ascending ? *(a.*member) < *(b.*member) : *(b.*member) < *(a.*member);
    });
    const dataframe found = frame.sort(name, direction);
    ASSERT_EQ(found.rows(), rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) expect_row(found, i, sorted[i]);
  };
  for (const order direction : {order::ascending, order::descending}) {
    check("number", direction, &plain_row::number);
    check("real", direction, &plain_row::real);
    check("flag", direction, &plain_row::flag);
    check("text", direction, &plain_row::text);
  }
}

TEST_F(dataframes, join_rows_with_equal_values) {
  const std::vector<plain_row> left = some(3'000, 6);
  const std::vector<plain_row> right = some(60, 7);
  const dataframe left_frame = frame_of(left);
  dataframe right_frame = frame_of(right);
  right_frame.derive<double>("only", {"real"}, [](double real) { return -real; });
  const auto check = [&](const char* on, join_kind kind, auto member) {
    const dataframe joined = left_frame.join(right_frame, on, kind);
    std::size_t at = 0;
    for (const plain_row& one : left) {
      bool is_any = false;
      for (const plain_row& other : right) {
        if (!(one.*member) || one.*member != other.*member) continue;
        is_any = true;
        expect_row(joined, at, one);
        if (std::string(on) != "real") {
          ASSERT_EQ(joined["real_right"].at(at), cell_of(other.real)) << at;
        }
        ASSERT_EQ(joined["only"].at(at), other.real ? cell(-*other.real) : cell(null));
        ++at;
      }
      if (is_any || kind == join_kind::inner) continue;
      expect_row(joined, at, one);
      ASSERT_EQ(joined["only"].at(at), cell(null));
      ++at;
    }
    EXPECT_EQ(joined.rows(), at);
    EXPECT_FALSE(joined.has(std::string(on) + "_right"));
  };
  for (const join_kind kind : {join_kind::inner, join_kind::left}) {
    check("number", kind, &plain_row::number);
    check("real", kind, &plain_row::real);
    check("text", kind, &plain_row::text);
  }
  dataframe other(*home_);
  other.add("number", column_type::text);
  EXPECT_THROW(static_cast<void>(left_frame.join(other, "number")), std::invalid_argument);
}

// All rows have the same value: each batch of the left side has many times more pairs than it has rows.
TEST_F(dataframes, join_many_rows_with_many) {
  dataframe left(*home_);
  left.add("key", column_type::int64);
  left.add("row", column_type::int64);
  dataframe right(*home_);
  right.add("key", column_type::int64);
  right.add("row", column_type::int64);
  constexpr std::int64_t lefts = 300;
  constexpr std::int64_t rights = 700;
  for (std::int64_t i = 0; i < lefts; ++i) left.append({std::int64_t{1}, i});
  for (std::int64_t i = 0; i < rights; ++i) right.append({std::int64_t{1}, i});
  const dataframe joined = left.join(right, "key");
  ASSERT_EQ(joined.rows(), static_cast<std::size_t>(lefts * rights));
  for (std::int64_t i = 0; i < lefts * rights; i += 97) {
    const auto row = static_cast<std::size_t>(i);
    ASSERT_EQ(joined["row"].at(row), cell(i / rights));
    ASSERT_EQ(joined["row_right"].at(row), cell(i % rights));
  }
}

TEST_F(dataframes, keep_integers_in_few_bytes_until_a_longer_one_comes) {
  dataframe frame(*home_);
  frame.add("x", column_type::int64);
  std::vector<cell> expected;
  for (std::int64_t i = -32'767; i <= 32'767; i += 2) {
    if (i % 5 == 0) {
      expected.emplace_back(null);
    } else {
      expected.emplace_back(i);
    }
    frame.append({expected.back()});
  }
  home_->evict_all();
  ASSERT_NE(frame["x"].numbers<std::int16_t>(), nullptr);
  const dataframe narrow = frame.sort("x");
  const auto expect_all = [&](const column& values) {
    ASSERT_EQ(values.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); i += 7) ASSERT_EQ(values.at(i), expected[i]) << i;
    EXPECT_EQ(values.at(values.size() - 1), expected.back());
    EXPECT_EQ(values.null_count(), static_cast<std::size_t>(std::ranges::count(expected, cell(null))));
  };
  expect_all(frame["x"]);
  const std::size_t values = frame["x"].count();
  EXPECT_EQ(frame["x"].count_between(std::int64_t{-40'000}, std::int64_t{1} << 40), values);
  EXPECT_EQ(frame["x"].count_between(std::int64_t{32'768}, null), 0u);
  EXPECT_EQ(frame["x"].rows_between(null, std::int64_t{-32'768}).size(), 0u);
  EXPECT_EQ(frame["x"].count_between(std::int64_t{-32'767}, std::int64_t{-32'763}), 2u);  // one between is null
  frame.derive<std::int64_t>("same", {"x"}, [](std::int64_t x) { return x; });
  expect_all(frame["same"]);
  dataframe bytes(*home_);
  bytes.add("x", column_type::int64);
  for (std::int64_t i = -127; i <= 127; ++i) bytes.append({i});
  bytes.append({null});
  ASSERT_NE(bytes["x"].numbers<std::int8_t>(), nullptr);
  EXPECT_EQ(bytes["x"].counts().size(), 255u);
  EXPECT_EQ(bytes["x"].counts().front(), std::pair(cell(std::int64_t{-127}), std::uint64_t{1}));
  EXPECT_EQ(bytes["x"].count_between(std::int64_t{-300}, std::int64_t{-120}), 8u);
  EXPECT_EQ(bytes["x"].rows_between(std::int64_t{120}, null).size(), 8u);
  EXPECT_EQ(bytes["x"].median(), 0.0);
  EXPECT_EQ(bytes.join(frame, "x").rows(), 102u);
  bytes.append({std::int64_t{-128}});
  ASSERT_NE(bytes["x"].numbers<std::int16_t>(), nullptr);
  EXPECT_EQ(bytes["x"].counts().size(), 256u);
  EXPECT_EQ(bytes["x"].at(255), cell(null));
  EXPECT_EQ(bytes["x"].count_between(std::int64_t{-300}, std::int64_t{-120}), 9u);

  column wide = frame["x"].take(frame["x"].rows_between(null, null));
  ASSERT_NE(wide.numbers<std::int16_t>(), nullptr);
  const std::vector<std::int64_t> more = {1, column::no_integer, -32'768};
  wide.append_numbers(std::span<const std::int64_t>(more));
  ASSERT_NE(wide.numbers<std::int32_t>(), nullptr);
  EXPECT_EQ(wide.count(), values + 2);
  EXPECT_EQ(wide.min(), cell(std::int64_t{-32'768}));
  EXPECT_EQ(wide.at(wide.size() - 2), cell(null));
  EXPECT_EQ(wide.count_between(std::int64_t{-1} << 40, std::int64_t{-32'767}), 2u);
  wide.append(std::int64_t{-1} << 31);  // null among four bytes
  ASSERT_NE(wide.numbers<std::int64_t>(), nullptr);
  EXPECT_EQ(wide.count(), values + 3);
  EXPECT_EQ(wide.min(), cell(std::int64_t{-1} << 31));
  EXPECT_EQ(wide.at(wide.size() - 3), cell(null));
  EXPECT_EQ(wide.rows_equal(std::int64_t{1}).size(), 2u);
  frame.append({std::int64_t{1} << 40, null});
  expected.emplace_back(std::int64_t{1} << 40);
  ASSERT_EQ(frame["x"].numbers<std::int16_t>(), nullptr);
  expect_all(frame["x"]);
  EXPECT_EQ(frame["x"].max(), cell(std::int64_t{1} << 40));
  // Equal values are equal in two bytes and in eight.
  EXPECT_EQ(narrow.join(frame, "x").rows(), values);
  EXPECT_EQ(frame.join(narrow, "x").rows(), values);
}

TEST_F(dataframes, keep_reals_in_four_bytes_until_one_needs_more) {
  dataframe frame(*home_);
  frame.add("x", column_type::float64);
  std::vector<double> values;
  for (int i = 0; i < 20'000; ++i) {
    frame.append({i % 9 == 0 ? cell(null) : cell(i / 16.0 - 500)});
    if (i % 9 != 0) values.push_back(i / 16.0 - 500);
  }
  home_->evict_all();
  ASSERT_NE(frame["x"].numbers<float>(), nullptr);
  const dataframe narrow = frame.sort("x", order::descending);
  const auto expect_all = [&] {
    EXPECT_EQ(frame["x"].count(), values.size());
    EXPECT_EQ(frame["x"].at(9), cell(null));
    EXPECT_EQ(frame["x"].at(19'999), cell(values.back()));
    EXPECT_EQ(frame["x"].min(), cell(values.front()));
    EXPECT_EQ(frame["x"].sum(), cell(std::accumulate(values.begin(), values.end(), 0.0)));
    EXPECT_EQ(frame["x"].median(), (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2);
    // Bounds that are no floats.
    for (const double bound : {0.1, 16.0, 16 - 1e-12, 16 + 1e-12, 1e300, -1e300}) {
      const auto above = std::ranges::count_if(values, [&](double one) { return one >= bound; });
      EXPECT_EQ(frame["x"].count_between(bound, null), static_cast<std::size_t>(above));
      const auto below = std::ranges::count_if(values, [&](double one) { return one <= bound; });
      EXPECT_EQ(frame["x"].rows_between(null, bound).size(), static_cast<std::size_t>(below));
    }
    // Equal values are equal in four bytes and in eight.
    EXPECT_EQ(narrow.join(frame, "x").rows(), values.size());
    EXPECT_EQ(frame.join(narrow, "x", join_kind::left).rows(), frame.rows());
  };
  expect_all();
  EXPECT_EQ(narrow["x"].at(0), cell(values.back()));
  frame.derive<double>("twice", {"x"}, [](double x) { return 2 * x; });
  ASSERT_NE(frame["twice"].numbers<float>(), nullptr);
  EXPECT_EQ(frame["twice"].at(1), cell(2 * values.front()));
  const double most = std::numeric_limits<float>::max();
  frame.append({most * 4, null});
  ASSERT_NE(frame["x"].numbers<double>(), nullptr);
  EXPECT_EQ(frame["x"].max(), cell(most * 4));
  EXPECT_EQ(frame["x"].count_between(1e30, null), 1u);
  EXPECT_EQ(frame["x"].at(9), cell(null));
  EXPECT_EQ(frame["x"].at(19'999), cell(values.back()));
}

TEST_F(dataframes, keep_times_in_four_bytes_until_2038) {
  dataframe frame(*home_);
  frame.add("at", column_type::time);
  constexpr std::int64_t noon = 1'458'000'000;
  for (std::int64_t i = 0; i < 5'000; ++i) frame.append({i % 7 == 0 ? cell(null) : cell(timestamp{noon + i})});
  home_->evict_all();
  ASSERT_NE(frame["at"].numbers<std::int32_t>(), nullptr);
  const auto expect_all = [&] {
    EXPECT_EQ(frame["at"].min(), cell(timestamp{noon + 1}));
    EXPECT_EQ(frame["at"].null_count(), 715u);
    EXPECT_EQ(frame["at"].at(7), cell(null));
    EXPECT_EQ(frame["at"].at(4'999), cell(timestamp{noon + 4'999}));
    EXPECT_EQ(frame["at"].rows_equal(timestamp{noon + 100}).size(), 1u);
    EXPECT_EQ(frame["at"].rows_between(null, timestamp{noon + 13}).size(), 12u);
  };
  expect_all();
  EXPECT_EQ(frame["at"].count_between(timestamp{std::int64_t{1} << 40}, null), 0u);
  const dataframe sorted = frame.sort("at", order::descending);
  EXPECT_EQ(sorted["at"].at(0), cell(timestamp{noon + 4'999}));
  EXPECT_EQ(sorted["at"].at(4'999), cell(null));
  EXPECT_EQ(frame.join(sorted, "at").rows(), 4'285u);
  EXPECT_EQ(frame.group_by({"at"}, {{"at", aggregate::max}})["at_max"].at(0), cell(timestamp{noon + 1}));
  frame.derive<std::int64_t>("second", {"at"}, [](std::int64_t at) { return at - noon; });
  EXPECT_EQ(frame["second"].max(), cell(std::int64_t{4'999}));
  EXPECT_EQ(frame["second"].null_count(), 715u);
  constexpr timestamp late{std::int64_t{1} << 32};
  frame.append({late, null});
  ASSERT_NE(frame["at"].numbers<std::int64_t>(), nullptr);
  expect_all();
  EXPECT_EQ(frame["at"].max(), cell(late));
}

// What is known without a question is what a question would have found, bit for bit, however they were appended.
TEST_F(dataframes, know_of_all_values_what_a_question_finds) {
  std::mt19937_64 random(17);
  const auto expect_known = []<typename T>(const column& values, const vector<T>& numbers) {
    static_assert(!std::is_same_v<T, float>);  // others add them up in another order
    const summary<T> found = numbers.summarize(values.valid(numbers));
    const summary<T> known = values.known(numbers);
    ASSERT_EQ(known.count(), found.count());
    if (found.count() == 0) return;
    EXPECT_EQ(detail::bits_of(known.min()), detail::bits_of(found.min()));
    EXPECT_EQ(detail::bits_of(known.max()), detail::bits_of(found.max()));
    EXPECT_EQ(known.sum(), found.sum());
    EXPECT_EQ(known.mean(), found.mean());
  };
  for (const std::size_t most : {1u, 300u, 9'000u, 40'000u}) {
    column reals(*home_, column_type::float64);
    column integers(*home_, column_type::int64);
    for (int part = 0; part < 30; ++part) {
      std::vector<double> some(random() % most + 1);
      std::vector<std::int64_t> wholes(some.size());
      for (double& one : some) {
        one = std::ldexp(static_cast<double>(random() % 2'000'003) - 1e6, static_cast<int>(random() % 40)) / 3;
        if (random() % 11 == 0) one = column::no_real;
      }
      for (std::int64_t& one : wholes) {
        one = random() % 11 == 0 ? column::no_integer : static_cast<std::int64_t>(random()) >> (part < 10 ? 50 : 24);
      }
      some.front() = 0.1;  // no float
      if (part % 5 == 4) some = {-0.0};
      reals.append_numbers(std::span<const double>(some));
      integers.append_numbers(std::span<const std::int64_t>(wholes));
      if (part % 6 != 5) continue;
      expect_known(reals, *reals.numbers<double>());
      integers.visit([&]<typename T>(const vector<T>& numbers) {
        if constexpr (std::is_integral_v<T>) expect_known(integers, numbers);
      });
    }
  }
}

// Any integer may be a bound, also the one that stands for null; and numbers may be further from each other than any is
// from 0.
TEST_F(dataframes, answer_questions_about_the_outermost_numbers) {
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  constexpr double most = std::numeric_limits<double>::max();
  dataframe frame(*home_);
  frame.add("number", column_type::int64);
  frame.add("at", column_type::time);
  frame.add("real", column_type::float64);
  frame.append({least + 1, timestamp{least + 1}, -most});
  frame.append({null, null, null});
  frame.append({5, timestamp{5}, most});
  for (const placement where : {placement::there, placement::here}) {
    frame.place(where);
    EXPECT_EQ(frame["number"].count_between(least, 4), 1u);
    EXPECT_EQ(frame["at"].count_between(timestamp{least}, null), 2u);
    EXPECT_EQ(local(frame["number"].rows_between(null, least)), std::vector<std::size_t>{});
    EXPECT_EQ(local(frame["number"].rows_equal(least)), std::vector<std::size_t>{});
    EXPECT_DOUBLE_EQ(frame["real"].quantile(0.25).value(), -most / 2);
    EXPECT_DOUBLE_EQ(frame["real"].quantile(0.75).value(), most / 2);
    EXPECT_EQ(frame["real"].median(), 0.0);
  }
}

TEST_F(dataframes, are_grouped_by_columns) {
  const std::vector<plain_row> rows = some(30'000, 8);
  const dataframe frame = frame_of(rows);
  const dataframe grouped = frame.group_by({"text", "flag"}, {{"real", aggregate::count},
                                                              {"real", aggregate::sum},
                                                              {"real", aggregate::mean},
                                                              {"number", aggregate::min},
                                                              {"number", aggregate::max},
                                                              {"number", aggregate::sum},
                                                              {"real", aggregate::median}});
  std::map<std::pair<std::string, bool>, std::pair<std::vector<double>, std::vector<std::int64_t>>> expected;
  for (const plain_row& row : rows) {
    if (!row.text || !row.flag) continue;
    auto& group = expected[{*row.text, *row.flag}];
    if (row.real) group.first.push_back(*row.real);
    if (row.number) group.second.push_back(*row.number);
  }
  ASSERT_EQ(grouped.rows(), expected.size());
  std::size_t at = 0;
  for (auto& [key, values] : expected) {
    auto& [reals, numbers] = values;
    std::ranges::sort(reals);
    const double sum = std::accumulate(reals.begin(), reals.end(), 0.0);
    EXPECT_EQ(grouped["text"].at(at), cell(key.first));
    EXPECT_EQ(grouped["flag"].at(at), cell(key.second));
    EXPECT_EQ(grouped["real_count"].at(at), cell(std::ssize(reals)));
    EXPECT_EQ(grouped["real_sum"].at(at), cell(sum));
    EXPECT_EQ(grouped["real_mean"].at(at), cell(sum / static_cast<double>(reals.size())));
    EXPECT_EQ(grouped["real_median"].at(at), cell((reals[(reals.size() - 1) / 2] + reals[reals.size() / 2]) / 2));
    EXPECT_EQ(grouped["number_min"].at(at), cell(std::ranges::min(numbers)));
    EXPECT_EQ(grouped["number_max"].at(at), cell(std::ranges::max(numbers)));
    EXPECT_EQ(grouped["number_sum"].at(at), cell(std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0})));
    ++at;
  }
  // A group without a value.
  dataframe lonely(*home_);
  lonely.add("key", column_type::int64);
  lonely.add("value", column_type::float64);
  lonely.append({1, null});
  const dataframe one = lonely.group_by({"key"}, {{"value", aggregate::median}, {"value", aggregate::count}});
  EXPECT_EQ(one["value_median"].at(0), cell(null));
  EXPECT_EQ(one["value_count"].at(0), cell(std::int64_t{0}));
}

// Frames that were made of one another change each on a thread of its own, and see nothing of each other's texts.
TEST_F(dataframes, that_were_made_of_one_another_get_texts_of_their_own) {
  dataframe all = frame_of(some(1'000, 12));
  dataframe some_rows = all.filter("number", std::int64_t{0}, null);
  const auto append = [](dataframe& to, const std::string& prefix) {
    for (int i = 0; i < 5'000; ++i) to.append({null, null, null, prefix + std::to_string(i)});
  };
  const std::size_t begin = some_rows.rows();
  std::thread other([&] { append(some_rows, "text of the other "); });
  append(all, "text of this one ");
  other.join();
  for (std::size_t i = 0; i < 5'000; i += 7) {
    EXPECT_EQ(all["text"].at(1'000 + i), cell("text of this one " + std::to_string(i)));
    EXPECT_EQ(some_rows["text"].at(begin + i), cell("text of the other " + std::to_string(i)));
  }
  EXPECT_EQ(all["text"].find_code("text of the other 0"), -1);
  EXPECT_EQ(some_rows["text"].find_code("text of this one 0"), -1);
  EXPECT_EQ(all["text"].find_code("maybe"), some_rows["text"].find_code("maybe"));
  // Without a new text the dictionary is shared, and a frame that is alone with its own appends to it.
  const dataframe shares = all.filter("flag", true, true);
  EXPECT_EQ(&shares["text"].dictionary(), &all["text"].dictionary());
  const void* const before = &some_rows["text"].dictionary();
  some_rows.append({null, null, null, "one more"});
  EXPECT_EQ(&some_rows["text"].dictionary(), before);
}

// Several times the budget, so that every operation evicts what it has made.
TEST_F(dataframes, larger_than_local_memory) {
  dataframe frame(*home_);
  constexpr std::size_t count = 1'200'000;
  column numbers(*home_, column_type::int64);
  std::vector<std::int64_t> some_numbers;
  for (std::size_t i = 0; i < count; ++i) {
    some_numbers.push_back(static_cast<std::int64_t>(i * 7'919 % count));
    if (some_numbers.size() == 8'192 || i + 1 == count) {
      numbers.append_numbers(std::span<const std::int64_t>(some_numbers));
      some_numbers.clear();
    }
  }
  frame.add("number", std::move(numbers));
  frame.derive<std::int64_t>("seventh", {"number"}, [](std::int64_t number) { return number % 7; });
  frame.derive<std::int64_t>("half", {"number"}, [](std::int64_t number) { return static_cast<double>(number) / 2; });
  const dataframe sorted = frame.sort("number", order::descending);
  for (std::size_t i = 0; i < count; i += 9'973) {
    ASSERT_EQ(sorted["number"].at(i), cell(static_cast<std::int64_t>(count - 1 - i)));
    ASSERT_EQ(sorted["half"].at(i), cell(static_cast<double>(count - 1 - i) / 2));
  }
  const dataframe grouped = sorted.group_by({"seventh"}, {{"half", aggregate::median}, {"half", aggregate::count}});
  ASSERT_EQ(grouped.rows(), 7u);
  EXPECT_EQ(grouped["half_count"].sum(), cell(static_cast<std::int64_t>(count)));
  for (std::size_t group = 0; group < 7; ++group) {
    const std::size_t values = (count - group + 6) / 7;  // the halves of group, group + 7, and so on
    const std::size_t low = group + 7 * ((values - 1) / 2);
    const std::size_t high = group + 7 * (values / 2);
    EXPECT_EQ(grouped["half_median"].at(group), cell(static_cast<double>(low + high) / 4)) << group;
  }
  EXPECT_GT(home_->statistics().evicted_pages, 10'000u);
  home_->validate();
}

}  // namespace
}  // namespace far
