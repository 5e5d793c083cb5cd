// The code of far::dataframe (dataframe.h), but for group_by() and join().
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "far/column.h"
#include "far/dataframe.h"
#include "far/detail/api.h"
#include "far/detail/frame_keys.h"
#include "far/vector.h"

namespace far {

FAR_LIBRARY_CODE dataframe::dataframe(const tag& in) : in_(detail::side_by_side(in)) {}
FAR_LIBRARY_CODE dataframe::dataframe(dataframe&&) noexcept = default;
FAR_LIBRARY_CODE dataframe& dataframe::operator=(dataframe&&) noexcept = default;
FAR_LIBRARY_CODE dataframe::~dataframe() = default;

FAR_LIBRARY_CODE std::vector<std::string> dataframe::names() const {
  std::vector<std::string> all;
  for (const auto& one : columns_) all.push_back(one->name);
  return all;
}

FAR_LIBRARY_CODE column& dataframe::add(std::string name, column_type type) {
  column fresh(in_, type);
  for (std::size_t row = 0; row < rows(); ++row) fresh.append(null);
  return add(std::move(name), std::move(fresh));
}

FAR_LIBRARY_CODE column& dataframe::add(std::string name, column values) {
  if (has(name)) throw_one_only(name);
  if (!columns_.empty() && values.size() != rows()) {
    throw std::invalid_argument("the column '" + name + "' has " + std::to_string(values.size()) +
                                " rows, and the others have " + std::to_string(rows()));
  }
  if (&values.home().home() != &in_.home()) {
    throw std::invalid_argument("the column '" + name + "' is in another far heap than the data frame");
  }
  values.place(where_);
  values.share_costs(costs_);
  columns_.push_back(std::make_unique<named_column>(named_column{std::move(name), std::move(values)}));
  return columns_.back()->values;
}

FAR_LIBRARY_CODE void dataframe::append(std::span<const cell> row) {
  if (row.size() != columns_.size()) throw std::invalid_argument("a row has a cell for each column");
  for (std::size_t i = 0; i < row.size(); ++i) columns_[i]->values.check(row[i]);
  row_.clear();
  row_.reserve(row.size());
  try {
    for (std::size_t i = 0; i < row.size(); ++i) {
      column& values = columns_[i]->values;
      const column::any_number number = values.number_to_append(row[i]);
      values.put(number);
      row_.push_back(number);
    }
  } catch (...) {
    // A column that was to take more bytes for each value, or a page that is lost.
    for (std::size_t i = 0; i < row_.size(); ++i) columns_[i]->values.take_back();
    throw;
  }
  for (std::size_t i = 0; i < row.size(); ++i) columns_[i]->values.note(row_[i]);
}

FAR_LIBRARY_CODE void dataframe::require_equal_columns() const {
  for (const auto& one : columns_) {
    if (one->values.size() == rows()) continue;
    throw std::logic_error("the column '" + one->name + "' of a data frame has " + std::to_string(one->values.size()) +
                           " rows, and '" + columns_.front()->name + "' has " + std::to_string(rows()) +
                           ": values were appended to one of them, and not to the frame");
  }
}

FAR_LIBRARY_CODE void dataframe::place(placement where) {
  where_ = where;
  for (const auto& one : columns_) one->values.place(where);
}

FAR_LIBRARY_CODE dataframe dataframe::take(const vector<std::size_t>& rows) const {
  require_equal_columns();
  dataframe taken(in_);
  taken.where_ = where_;
  taken.costs_ = costs_;
  for (const auto& one : columns_) {
    taken.columns_.push_back(std::make_unique<named_column>(named_column{one->name, one->values.take(rows, in_)}));
  }
  return taken;
}

FAR_LIBRARY_CODE dataframe dataframe::filter(std::string_view name, const cell& lowest, const cell& highest) const {
  require_equal_columns();
  return take((*this)[name].rows_between(lowest, highest));
}

FAR_LIBRARY_CODE dataframe dataframe::sort(std::string_view name, order direction) const {
  require_equal_columns();
  return take(detail::sorted_rows((*this)[name], direction == order::descending));
}

FAR_LIBRARY_CODE dataframe dataframe::largest(std::string_view name, std::size_t count) const {
  require_equal_columns();
  return take((*this)[name].rows_of_largest(count)).sort(name, order::descending);
}

FAR_LIBRARY_CODE dataframe dataframe::smallest(std::string_view name, std::size_t count) const {
  require_equal_columns();
  return take((*this)[name].rows_of_smallest(count)).sort(name);
}

FAR_LIBRARY_CODE void dataframe::throw_one_only(const std::string& name) {
  throw std::invalid_argument("a data frame has one column '" + name + "' only");
}
FAR_LIBRARY_CODE void dataframe::throw_changed() {
  throw std::logic_error("a data frame changed while derive(), derive_together() or rows_where() walked over it");
}

FAR_LIBRARY_CODE std::size_t dataframe::find(std::string_view name) const {
  std::size_t at = 0;
  while (at < columns_.size() && columns_[at]->name != name) ++at;
  return at;
}

FAR_LIBRARY_CODE std::size_t dataframe::require(std::string_view name) const {
  const std::size_t at = find(name);
  if (at == columns_.size()) throw std::out_of_range("the data frame has no column '" + std::string(name) + "'");
  return at;
}

}  // namespace far
