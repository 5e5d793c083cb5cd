// The columns of a data frame have the same number of rows, lie in its far heap, and stay where they are. Needs
// permission for userfaultfd.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "far/arrow.h"
#include "far/dataframe.h"
#include "far/runtime.h"
#include "plain_rows.h"

namespace far {
namespace {

TEST_F(dataframes, with_columns_of_different_lengths_are_refused) {
  const std::vector<plain_row> rows = some(10'000, 4);
  dataframe whole = frame_of(rows);
  // The first column is longer, or another one.
  for (const char* const longer : {"number", "real"}) {
    dataframe frame = frame_of(rows);
    frame[longer].append(1);
    vector<std::size_t> first(*home_);
    first.push_back(0);
    const auto refuse = [&](const char* what, const auto& use) {
      try {
        use();
        FAIL() << what << " of a longer column '" << longer << "'";
      } catch (const std::logic_error& refused) {
        EXPECT_NE(std::string(refused.what()).find(longer), std::string::npos) << refused.what();
        EXPECT_NE(std::string(refused.what()).find("10001"), std::string::npos) << refused.what();
      }
    };
    refuse("group_by", [&] { static_cast<void>(frame.group_by({"real"}, {{"number", aggregate::sum}})); });
    refuse("group_by", [&] { static_cast<void>(frame.group_by({"number"}, {})); });
    refuse("sort", [&] { static_cast<void>(frame.sort("real")); });
    refuse("join", [&] { static_cast<void>(frame.join(whole, "number")); });
    refuse("join", [&] { static_cast<void>(whole.join(frame, "number")); });
    refuse("take", [&] { static_cast<void>(frame.take(first)); });
    refuse("filter", [&] { static_cast<void>(frame.filter("number", 0, 1)); });
    refuse("largest", [&] { static_cast<void>(frame.largest("number", 1)); });
    refuse("smallest", [&] { static_cast<void>(frame.smallest("number", 1)); });
    refuse("rows_where", [&] {
      static_cast<void>(frame.rows_where<double, bool>({"real", "flag"}, [](double, bool) { return true; }));
    });
    refuse("derive", [&] { frame.derive<double>("more", {"real"}, [](double one) { return one; }); });
    ArrowSchema schema;
    ArrowArray array;
    refuse("export_to_arrow", [&] { export_to_arrow(frame, 0, 1, schema, array); });
    for (const std::string& name : frame.names()) {
      if (name != longer) frame[name].append(null);
    }
    EXPECT_EQ(frame.group_by({"flag"}, {{"number", aggregate::count}}).rows(), 2u) << "they have as many again";
  }
}

TEST_F(dataframes, refuse_columns_of_another_far_heap) {
  runtime other(heap::small_runtime());
  dataframe frame(*home_);
  column elsewhere(other, column_type::int64);
  EXPECT_THROW(frame.add("x", std::move(elsewhere)), std::invalid_argument);
  EXPECT_EQ(frame.names().size(), 0u);
  // The rows that are taken may be anywhere.
  frame.add("x", column_type::int64);
  for (int i = 0; i < 100; ++i) frame.append({i});
  vector<std::size_t> rows(other);
  rows.push_back(70);
  rows.push_back(7);
  dataframe taken = frame.take(rows);
  EXPECT_EQ(&taken["x"].home().home(), home_.get());
  EXPECT_EQ(taken["x"].at(0), cell(70));
  taken.derive<std::int64_t>("y", {"x"}, [](std::int64_t x) { return x + 1; });
  EXPECT_EQ(taken["y"].at(1), cell(8));
}

TEST_F(dataframes, keep_their_columns_where_they_are) {
  dataframe frame(*home_);
  column& first = frame.add("0", column_type::int64);
  for (int i = 0; i < 5; ++i) frame.append({i});
  column& second = frame.derive<std::int64_t>("1", {"0"}, [](std::int64_t one) { return one * 2; });
  for (int i = 2; i < 100; ++i) frame.add(std::to_string(i), column_type::text);
  EXPECT_EQ(&frame["0"], &first);
  EXPECT_EQ(&frame.column_at(1), &second);
  const dataframe moved = std::move(frame);
  EXPECT_EQ(&moved["0"], &first);
  EXPECT_EQ(second.at(4), cell(8));
}

TEST_F(dataframes, have_groups_without_aggregates) {
  const std::vector<plain_row> rows = some(30'000, 8);
  dataframe frame = frame_of(rows);
  for (const placement where : {placement::there, placement::here, placement::automatic}) {
    home_->evict_all();
    frame.place(where);
    const std::vector<std::string> keys = {"text", "flag", "number"};
    const dataframe counted = frame.group_by(keys, {{"real", aggregate::count}});
    const dataframe different = frame.group_by(keys, {});
    EXPECT_EQ(different.names(), keys);
    ASSERT_EQ(different.rows(), counted.rows());
    EXPECT_EQ(different.rows(), 5u * 2 * 40);
    for (std::size_t row = 0; row < different.rows(); ++row) {
      for (const std::string& key : keys) ASSERT_EQ(different[key].at(row), counted[key].at(row));
    }
  }
  dataframe empty(*home_);
  empty.add("x", column_type::int64);
  EXPECT_EQ(empty.group_by({"x"}, {}).rows(), 0u);
}

}  // namespace
}  // namespace far
