// Walks over columns of a data frame that do not fit in local memory, which fibers copy ahead. Needs permission for
// userfaultfd.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "far/dataframe.h"
#include "far/fiber.h"
#include "far/runtime.h"
#include "far/task.h"
#include "fiber/sanitizers.h"
#include "plain_rows.h"

namespace far {
namespace {

using integer = std::int64_t;

// Three columns in more bytes than three quarters of the budget.
class dataframe_walks : public dataframes {
 protected:
  static integer number(std::size_t column, std::size_t row) {
    return static_cast<integer>((row * 7'919 + column) % 1'000'003) << 33;
  }
  static bool is_null(std::size_t column, std::size_t row) { return row % 10'007 == column; }

  dataframe frame_of_numbers() {
    dataframe frame(*home_);
    count_ = home_->statistics().budget_bytes / sizeof(integer) / 3 + 5'001;
    for (std::size_t i = 0; i < 3; ++i) {
      column all(*home_, column_type::int64);
      std::vector<integer> some;
      for (std::size_t row = 0; row < count_; ++row)
        some.push_back(is_null(i, row) ? column::no_integer : number(i, row));
      all.append_numbers(std::span<const integer>(some));
      frame.add(std::to_string(i), std::move(all));
    }
    home_->evict_all();
    return frame;
  }
  static void add_sums(dataframe& frame) {
    frame.derive<integer, integer, integer>("sum", {"0", "1", "2"},
                                            [](integer a, integer b, integer c) { return a + b + c; });
  }
  void expect_sums(const dataframe& frame) const {
    ASSERT_EQ(frame.rows(), count_);
    for (std::size_t row = 0; row < count_; row += row < 20 ? 1 : 997) {
      const bool none = is_null(0, row) || is_null(1, row) || is_null(2, row);
      ASSERT_EQ(frame["sum"].at(row), none ? cell(null) : cell(number(0, row) + number(1, row) + number(2, row)))
          << row;
    }
  }

  std::size_t count_ = 0;
};

TEST_F(dataframe_walks, bring_nothing_in) {
  dataframe frame = frame_of_numbers();
  const std::uint64_t before = home_->statistics().fetched_pages;
  add_sums(frame);
  EXPECT_LT(home_->statistics().fetched_pages - before, count_ * 3 * sizeof(integer) / page_bytes / 10);
  expect_sums(frame);
  const auto fails = [&](integer a, integer, integer) {
    if (a == number(0, count_ / 2)) throw std::domain_error("enough");
    return a;
  };
  EXPECT_THROW((frame.derive<integer, integer, integer>("none", {"0", "1", "2"}, fails)), std::domain_error);
  EXPECT_FALSE(frame.has("none"));
  home_->validate();
}

// In the last part, from which nothing is read ahead.
TEST_F(dataframe_walks, notice_that_the_frame_changed) {
  dataframe frame = frame_of_numbers();
  const std::string one = "1";
  const auto changes_at_last = [&](integer a, integer, integer) {
    if (a == number(0, count_ - 1)) frame[one].append(null);
    return true;
  };
  EXPECT_THROW(static_cast<void>(frame.rows_where<integer, integer, integer>({"0", "1", "2"}, changes_at_last)),
               std::logic_error);
  dataframe small(*home_);
  small.add("a", column_type::int64);
  small.append({1});
  EXPECT_THROW(small.derive<integer>("b", {"a"},
                                     [&](integer a) {
                                       small.append({2});
                                       return a;
                                     }),
               std::logic_error);
  EXPECT_FALSE(small.has("b"));
  EXPECT_EQ(small.rows(), 2u);
}

std::size_t mapped_bytes() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * page_bytes;
}

// Address space runs short of what the runtime takes for stacks at a time, and all stacks that it has are in use.
TEST_F(dataframe_walks, need_no_stacks) {
  if (fiber::sanitizers::present) GTEST_SKIP() << "sanitizers need address space themselves";
  dataframe frame = frame_of_numbers();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit short_of_stacks = before;
  short_of_stacks.rlim_cur = mapped_bytes() + (std::size_t{3} << 20);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &short_of_stacks), 0);
  counting_semaphore end;
  std::vector<task<void>> waiting;
  bool is_any_left = true;
  try {
    while (waiting.size() < 1'000) waiting.push_back(home_->spawn([&] { end.acquire(); }));
  } catch (const std::system_error&) {
    is_any_left = false;
  }
  EXPECT_NO_THROW(add_sums(frame));
  end.release(waiting.size());
  waiting.clear();
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_FALSE(is_any_left);
  expect_sums(frame);
}

TEST_F(dataframes, refuse_numbers_that_stand_for_nothing) {
  column names(*home_, column_type::text);
  names.append("green");
  names.append("yellow");
  column taken = names.like(*home_);
  const std::vector<std::int32_t> good = {1, column::no_code, 0};
  taken.append_numbers(std::span<const std::int32_t>(good));
  for (const std::int32_t code : {2, -2, std::numeric_limits<std::int32_t>::max()}) {
    const std::vector<std::int32_t> bad = {0, code};
    try {
      taken.append_numbers(std::span<const std::int32_t>(bad));
      FAIL() << code;
    } catch (const std::out_of_range& refused) {
      EXPECT_EQ(refused.what(), "far::column::append_numbers: the dictionary has 2 texts, and none with the code " +
                                    std::to_string(code));
    }
  }
  const std::vector<std::int16_t> others = {1};
  EXPECT_THROW(taken.append_numbers(std::span<const std::int16_t>(others)), std::invalid_argument);
  EXPECT_EQ(taken.size(), 3u) << "nothing of it was appended";
  EXPECT_EQ(taken.at(0), cell("yellow"));
  EXPECT_EQ(taken.at(1), cell(null));
  EXPECT_EQ(taken.counts().size(), 2u);
}

}  // namespace
}  // namespace far
