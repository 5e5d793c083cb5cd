// The outermost values of columns of data frames, and the different ones, beside sorted plain ones. Needs permission
// for userfaultfd.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "far/dataframe.h"
#include "plain_rows.h"

namespace far {
namespace {

TEST_F(dataframes, have_outermost_values_and_their_rows) {
  const std::vector<plain_row> rows = some(40'000, 9);
  std::vector<std::size_t> order;  // from the smallest real on; equal ones in their order
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].real) order.push_back(i);
  }
  std::ranges::stable_sort(order, {}, [&](std::size_t row) { return *rows[row].real; });
  std::vector<std::size_t> down;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].real) down.push_back(i);
  }
  std::ranges::stable_sort(down, std::ranges::greater(), [&](std::size_t row) { return *rows[row].real; });
  dataframe frame = frame_of(rows);
  for (const placement where : {placement::there, placement::here, placement::automatic}) {
    frame.place(where);
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{777}, rows.size()}) {
      home_->evict_all();
      const std::size_t wanted = std::min(count, order.size());
      const std::vector<cell> smallest = frame["real"].smallest(count);
      const std::vector<cell> largest = frame["real"].largest(count);
      ASSERT_EQ(smallest.size(), wanted);
      ASSERT_EQ(largest.size(), wanted);
      const dataframe first = frame.smallest("real", count);
      const dataframe last = frame.largest("real", count);
      ASSERT_EQ(first.rows(), wanted);
      ASSERT_EQ(last.rows(), wanted);
      for (std::size_t i = 0; i < wanted; ++i) {
        ASSERT_EQ(smallest[i], cell(*rows[order[i]].real)) << i;
        ASSERT_EQ(largest[i], cell(*rows[down[i]].real)) << i;
        if (i % 97 != 0) continue;
        expect_row(first, i, rows[order[i]]);
        expect_row(last, i, rows[down[i]]);
      }
    }
    EXPECT_EQ(frame["flag"].distinct(), (std::vector<cell>{false, true}));
    std::vector<cell> different = frame["text"].distinct();
    std::set<std::string> texts;
    for (const plain_row& row : rows) {
      if (row.text) texts.insert(*row.text);
    }
    EXPECT_EQ(different, std::vector<cell>(texts.begin(), texts.end()));
    std::set<double> reals;
    for (const plain_row& row : rows) {
      if (row.real) reals.insert(*row.real);
    }
    home_->evict_all();
    EXPECT_EQ(frame["real"].distinct(), std::vector<cell>(reals.begin(), reals.end()));
  }
  EXPECT_THROW(static_cast<void>(frame["text"].largest(1)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(frame.smallest("text", 1)), std::invalid_argument);
}

}  // namespace
}  // namespace far
