// Columns whose far tier fails while they grow, or does not answer questions. Needs permission for userfaultfd.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "far/dataframe.h"
#include "far/page_lost.h"
#include "far/runtime.h"
#include "far/vector.h"
#include "tests/support/failing_tier.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

class failing_columns : public heap::real_pager_test<> {
 protected:
  failing_columns() : home_(std::make_unique<runtime>(heap::small_runtime())) {}

  static void lose_all_reads(bool are_lost) {
    heap::failing_tier().set_failing_reads_per_million(are_lost ? 1'000'000 : 0);
  }

  std::unique_ptr<runtime> home_;
};

// The second column has to take more bytes for each number, so it reads those that it has.
TEST_F(failing_columns, get_a_row_as_a_whole_or_not) {
  constexpr std::size_t rows = 5 * page_bytes;
  for (const auto& [type, wide] :
       {std::pair(column_type::int64, cell(1000)), std::pair(column_type::float64, cell(0.1))}) {
    dataframe frame(*home_);
    frame.add("name", column_type::text);
    frame.add("real", column_type::float64);
    frame.add("flag", column_type::boolean);
    frame.add("number", type);
    const auto append = [&](std::size_t row) {
      frame.append({"text", row == 0 ? cell(null) : cell(0.5), row % 2 == 0, std::int64_t(row % 100)});
    };
    for (std::size_t row = 0; row < rows; ++row) append(row);
    home_->evict_all();
    append(rows);  // brings in the last page of each
    lose_all_reads(true);
    EXPECT_THROW(frame.append({"other text", 0.1, true, wide}), page_lost);
    lose_all_reads(false);
    EXPECT_NO_THROW(frame.require_equal_columns());
    EXPECT_EQ(frame.rows(), rows + 1);
    EXPECT_EQ(frame["real"].count(), rows);
    EXPECT_EQ(frame["real"].sum(), cell(static_cast<double>(rows) / 2));
    EXPECT_EQ(frame["flag"].counts(),
              (std::vector<std::pair<cell, std::uint64_t>>{{false, rows / 2}, {true, rows / 2 + 1}}));
    append(rows + 1);
    EXPECT_EQ(frame["number"].count(), rows + 2);
    EXPECT_EQ(frame["number"].max(), type == column_type::int64 ? cell(99) : cell(99.0));
    EXPECT_EQ(frame["number"].at(rows + 1), type == column_type::int64 ? cell(std::int64_t(rows + 1) % 100)
                                                                       : cell(static_cast<double>((rows + 1) % 100)));
  }
  home_->validate();
}

TEST_F(failing_columns, keep_what_is_known_of_them) {
  column numbers(*home_, column_type::int64);
  std::vector<std::int64_t> some;
  for (std::size_t i = 0; i < 5 * page_bytes; ++i) some.push_back(static_cast<std::int64_t>(i % 3));
  numbers.append_numbers(std::span<const std::int64_t>(some));
  const auto counts = numbers.counts();
  home_->evict_all();
  numbers.append(0);
  lose_all_reads(true);
  EXPECT_THROW(numbers.append(1'000), page_lost);
  const std::vector<std::int64_t> wide = {1, 1'000'000};
  EXPECT_THROW(numbers.append_numbers(std::span<const std::int64_t>(wide)), page_lost);
  lose_all_reads(false);
  EXPECT_EQ(numbers.size(), some.size() + 1);
  EXPECT_EQ(numbers.counts().size(), 3u);
  EXPECT_EQ(numbers.counts()[0].second, counts[0].second + 1);
  EXPECT_EQ(numbers.count_between(1, 2), counts[1].second + counts[2].second);
  EXPECT_EQ(numbers.distinct().size(), 3u);
}

class failing_questions : public failing_columns {
 protected:
  static constexpr std::size_t pages = 600;

  failing_questions() : all_(*home_) {
    std::vector<std::int64_t> numbers(pages * page_bytes / sizeof(std::int64_t), 3);
    all_.append(numbers);
  }
  // How many pages are asked about where they are. The answer is right in any case.
  std::uint64_t pages_asked() {
    home_->evict_all();
    const std::uint64_t before = home_->statistics().reduced_pages;
    EXPECT_EQ(all_.summarize().sum(), static_cast<std::int64_t>(3 * all_.size()));
    return home_->statistics().reduced_pages - before;
  }

  vector<std::int64_t> all_;
};

// A busy disk, for example: the pages of those that were not answered are fetched, and no more.
TEST_F(failing_questions, are_asked_again_after_a_failure) {
  EXPECT_EQ(pages_asked(), pages);
  heap::failing_tier().set_question_error_code(EAGAIN);
  EXPECT_EQ(pages_asked(), 0u);
  heap::failing_tier().set_question_error_code(0);
  EXPECT_EQ(pages_asked(), pages);
  EXPECT_EQ(home_->statistics().lost_pages, 0u);
}

// The user is told once, and other kinds of questions are asked all the same.
TEST_F(failing_questions, that_servers_do_not_know_are_asked_no_more) {
  heap::failing_tier().set_question_error_code(ENOTSUP);
  testing::internal::CaptureStderr();
  EXPECT_EQ(pages_asked(), 0u);
  EXPECT_EQ(pages_asked(), 0u);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("does not answer questions about summaries"), std::string::npos) << said;
  EXPECT_EQ(said.find("does not answer"), said.rfind("does not answer")) << said;
  heap::failing_tier().set_question_error_code(0);
  EXPECT_EQ(pages_asked(), 0u) << "for a minute";
  home_->evict_all();
  const std::uint64_t before = home_->statistics().reduced_pages;
  EXPECT_EQ(far::select(all_, {.lowest = 4}).size(), 0u);
  EXPECT_EQ(home_->statistics().reduced_pages - before, pages);
}

}  // namespace
}  // namespace far
