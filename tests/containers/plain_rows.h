// Rows of plain values beside which data frames are tested.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "far/dataframe.h"
#include "far/runtime.h"
#include "tests/support/real_pager.h"

namespace far {

struct plain_row {
  std::optional<std::int64_t> number;
  std::optional<double> real;
  std::optional<bool> flag;
  std::optional<std::string> text;
};

template <typename T>
[[nodiscard]] cell cell_of(const std::optional<T>& value) {
  return value ? cell(*value) : cell(null);
}

class dataframes : public heap::real_pager_test<> {
 protected:
  dataframes() {
    runtime_options chosen = heap::small_runtime(16 * mib);
    chosen.far = "memory:";
    home_ = std::make_unique<runtime>(chosen);
  }

  static std::vector<plain_row> some(std::size_t count, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const std::vector<std::string> texts = {"yes", "no", "", "maybe", "z\xc3\xbcrich"};
    std::vector<plain_row> rows(count);
    for (plain_row& row : rows) {
      if (random() % 10 != 0) row.number = static_cast<std::int64_t>(random() % 40) - 20;
      if (random() % 10 != 0) row.real = (static_cast<double>(random() % 4096) - 2048) / 16;
      if (random() % 10 != 0) row.flag = random() % 3 == 0;
      if (random() % 10 != 0) row.text = texts[random() % texts.size()];
    }
    return rows;
  }
  dataframe frame_of(const std::vector<plain_row>& rows) {
    dataframe frame(*home_);
    frame.add("number", column_type::int64);
    frame.add("real", column_type::float64);
    frame.add("flag", column_type::boolean);
    frame.add("text", column_type::text);
    for (const plain_row& row : rows) {
      frame.append({cell_of(row.number), cell_of(row.real), cell_of(row.flag), cell_of(row.text)});
    }
    home_->evict_all();
    return frame;
  }
  static std::vector<std::size_t> local(const vector<std::size_t>& rows) {
    std::vector<std::size_t> copy(rows.size());
    rows.read(0, std::span<std::size_t>(copy));
    return copy;
  }
  static void expect_row(const dataframe& frame, std::size_t row, const plain_row& expected) {
    ASSERT_EQ(frame["number"].at(row), cell_of(expected.number)) << row;
    ASSERT_EQ(frame["real"].at(row), cell_of(expected.real)) << row;
    ASSERT_EQ(frame["flag"].at(row), cell_of(expected.flag)) << row;
    ASSERT_EQ(frame["text"].at(row), cell_of(expected.text)) << row;
  }

  std::unique_ptr<runtime> home_;
};

}  // namespace far
