// Questions about rows whose keys are here, which are pushed out for them, when the far tier has no room. Needs
// permission for userfaultfd.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/dataframe.h"
#include "far/runtime.h"
#include "tests/support/failing_tier.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

class push_outs : public heap::real_pager_test<> {
 protected:
  static constexpr std::size_t rows = 240 * detail::most_rows;
  static constexpr std::int8_t keys = 5;

  // A frame of keys that repeat, all of them remote.
  void make() {
    home_ = std::make_unique<runtime>(heap::small_runtime());
    frame_ = std::make_unique<dataframe>(*home_);
    column all(*home_, column_type::int64);
    std::vector<std::int64_t> numbers;
    for (std::size_t row = 0; row < rows; ++row) numbers.push_back(static_cast<std::int64_t>(row % keys));
    all.append_numbers(std::span<const std::int64_t>(numbers));
    frame_->add("key", std::move(all));
    frame_->place(placement::there);
    home_->evict_all();
  }
  // A page of each question is here and changed: two of its rows change places, which no count tells.
  void change_a_page_of_each_question() {
    auto& all = const_cast<vector<std::int8_t>&>(*(*frame_)["key"].numbers<std::int8_t>());
    for (std::size_t row = 0; row < rows; row += detail::most_rows) {
      const std::int8_t first = all.read(row);
      all.write(row, all.read(row + 1));
      all.write(row + 1, first);
    }
  }
  // How many pages are asked about where they are. The answer is right in any case.
  std::uint64_t pages_asked() {
    const std::uint64_t before = home_->statistics().reduced_pages;
    const dataframe counted = frame_->group_by({"key"}, {{"key", aggregate::count}});
    EXPECT_EQ(counted.rows(), static_cast<std::size_t>(keys));
    for (std::size_t group = 0; group < counted.rows(); ++group) {
      const std::size_t expected = rows / keys + (group < rows % keys ? 1 : 0);
      EXPECT_EQ(counted["key_count"].at(group), cell(static_cast<std::int64_t>(expected))) << group;
    }
    return home_->statistics().reduced_pages - before;
  }

  std::unique_ptr<runtime> home_;
  std::unique_ptr<dataframe> frame_;
};

// What does not leave stays, and one attempt is enough to know, for all questions of the call. Once there is room,
// pages are pushed out again.
TEST_F(push_outs, end_soon_where_the_far_tier_has_no_room) {
  make();
  const auto began = std::chrono::steady_clock::now();
  const std::uint64_t all = pages_asked();
  ASSERT_EQ(all, rows / page_bytes);
  change_a_page_of_each_question();
  heap::failing_tier().lend_later(~std::uint64_t{0});
  const auto full = std::chrono::steady_clock::now();
  EXPECT_LT(pages_asked(), all);
  // An attempt takes a second: trying on for all pages took 52. A busy machine takes longer for the question itself,
  // too.
  EXPECT_LT(std::chrono::steady_clock::now() - full, std::chrono::seconds(28) + 10 * (full - began));
  heap::failing_tier().lend_later(0);
  // Those that are too many for now have come in.
  for (int i = 0; i < 40 && pages_asked() < all; ++i) {
    home_->evict_all();
    change_a_page_of_each_question();
  }
  EXPECT_EQ(pages_asked(), all);
  home_->validate();
}

}  // namespace
}  // namespace far
