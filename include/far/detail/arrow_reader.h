// Values of Arrow arrays as cells (far/arrow.h).
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "far/column.h"
#include "far/detail/arrow_structs.h"

namespace far::detail {

// A struct of ours that another library fills.
template <typename Struct>
struct arrow_owned {
  Struct value{};

  arrow_owned() = default;
  arrow_owned(const arrow_owned&) = delete;
  arrow_owned& operator=(const arrow_owned&) = delete;
  ~arrow_owned() {
    if (value.release != nullptr) value.release(&value);
  }
};

// What the formats stand for in messages, by their beginnings.
[[nodiscard]] inline std::string_view name_of_arrow_format(std::string_view format) {
  constexpr std::pair<std::string_view, std::string_view> names[] = {
      {"n", "null"},        {"z", "binary"},       {"Z", "large binary"}, {"vz", "binary view"}, {"w:", "fixed binary"},
      {"d:", "decimal"},    {"tt", "time of day"}, {"tD", "duration"},    {"ti", "interval"},    {"+l", "list"},
      {"+L", "large list"}, {"+vl", "list view"},  {"+vL", "list view"},  {"+w", "list"},        {"+s", "struct"},
      {"+m", "map"},        {"+u", "union"},       {"+r", "run ends"},
  };
  for (const auto& [beginning, name] : names) {
    if (format.starts_with(beginning)) return name;
  }
  return "unknown";
}

[[nodiscard]] inline double double_of_half(std::uint16_t half) {
  const double sign = (half & 0x8000) != 0 ? -1 : 1;
  const int exponent = half >> 10 & 31;
  const int fraction = half & 1023;
  if (exponent == 31) {
    return sign * (fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN());
  }
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25));
}

[[noreturn]] inline void refuse_arrow(const std::string& what, std::string_view why) {
  throw std::invalid_argument("the Arrow " + what + " " + std::string(why));
}

// Checks that the struct may be read: it is not released, and has a format.
inline void check_arrow_schema(const ArrowSchema* schema, const std::string& what) {
  if (schema == nullptr || schema->release == nullptr) refuse_arrow(what, "has no schema, or one that is released");
  if (schema->format == nullptr) refuse_arrow(what, "has no format");
}

// Checks that the rows up to `rows` may be read, as far as the struct says: how long a buffer is, it does not. No other
// buffer than the bitmap is looked at.
inline void check_arrow_array(const ArrowArray* array, std::int64_t rows, std::int64_t buffers,
                              const std::string& what) {
  // So that places in buffers can be computed.
  constexpr std::int64_t longest = std::numeric_limits<std::int64_t>::max() / 16 - 1;
  if (array == nullptr || array->release == nullptr) refuse_arrow(what, "has no array, or one that is released");
  if (array->length < 0 || array->length > longest) refuse_arrow(what, "has a length that cannot be");
  if (array->offset < 0 || array->offset > longest - array->length) {
    refuse_arrow(what, "has an offset that cannot be");
  }
  if (array->null_count < -1 || array->null_count > array->length)
    refuse_arrow(what, "has a null count that cannot be");
  if (array->length < rows) refuse_arrow(what, "has fewer rows than its table");
  if (array->length == 0) return;
  if (array->n_buffers < buffers || array->buffers == nullptr) refuse_arrow(what, "has too few buffers");
  if (array->null_count > 0 && array->buffers[0] == nullptr) refuse_arrow(what, "has nulls, but no bitmap of them");
}

// The buffers of an array. Requires of all: the array has the layout, and the row.
class arrow_view {
 public:
  explicit arrow_view(const ArrowArray& of) : array(of) {}

  const ArrowArray& array;

  [[nodiscard]] bool is_null(std::size_t row) const {
    return array.null_count != 0 && array.buffers[0] != nullptr && !bit(0, row);
  }
  [[nodiscard]] bool bit(std::size_t buffer, std::size_t row) const {
    const std::size_t at = row + static_cast<std::size_t>(array.offset);
    return (static_cast<const std::uint8_t*>(array.buffers[buffer])[at / 8] >> at % 8 & 1) != 0;
  }
  template <typename T>
  [[nodiscard]] T number(std::size_t row) const {
    return element<T>(1, row + static_cast<std::size_t>(array.offset));
  }
  // Nothing: the offsets are none.
  template <typename Offset>
  [[nodiscard]] std::optional<std::string> text(std::size_t row) const {
    const auto first = number<Offset>(row);
    const auto end = number<Offset>(row + 1);
    if (first < 0 || end < first) return std::nullopt;
    if (first == end) return std::string();  // there may be no buffer
    if (array.buffers[2] == nullptr) return std::nullopt;
    return std::string(static_cast<const char*>(array.buffers[2]) + first, static_cast<std::size_t>(end - first));
  }
  // A length, and up to 12 characters, or the first four, the number of a buffer and the place in it. The last buffer
  // has the lengths of those with texts. Nothing: the text is in none of them.
  [[nodiscard]] std::optional<std::string> viewed_text(std::size_t row) const {
    using view_numbers = std::array<std::int32_t, 4>;
    const auto view = number<view_numbers>(row);
    const auto length = static_cast<std::size_t>(view[0]);
    if (view[0] < 0) return std::nullopt;
    if (length <= 12) {
      const auto at = (row + static_cast<std::size_t>(array.offset)) * sizeof view + sizeof view[0];
      return std::string(static_cast<const char*>(array.buffers[1]) + at, length);
    }
    const std::int64_t buffer = view[2];
    const std::int64_t lengths = array.n_buffers - 1;
    if (buffer < 0 || buffer >= lengths - 2 || array.buffers[lengths] == nullptr) return std::nullopt;
    const auto there = element<std::int64_t>(static_cast<std::size_t>(lengths), static_cast<std::size_t>(buffer));
    const auto* const texts = static_cast<const char*>(array.buffers[2 + buffer]);
    if (texts == nullptr || view[3] < 0 || there - view[3] < view[0]) return std::nullopt;
    return std::string(texts + view[3], length);
  }

 private:
  // Buffers need no alignment.
  template <typename T>
  [[nodiscard]] T element(std::size_t buffer, std::size_t at) const {
    T value;
    std::memcpy(&value, static_cast<const std::byte*>(array.buffers[buffer]) + at * sizeof(T), sizeof value);
    return value;
  }
};

// A column that is imported: what its type becomes, and its values. Throws std::invalid_argument, which names column
// and type, when a data frame has no such type, or the structs cannot be right.
class arrow_reader {
 public:
  // Both outlive it. Rows up to `rows` are read.
  arrow_reader(const ArrowSchema& schema, const ArrowArray& array, std::int64_t rows)
      : arrow_reader(schema.name == nullptr ? "" : schema.name, schema, array, rows) {}
  arrow_reader(std::string name, const ArrowSchema& schema, const ArrowArray& array, std::int64_t rows)
      : name_(std::move(name)), format_(checked(schema, name_).format), array_(array) {
    if (schema.dictionary == nullptr) {
      type_ = type_of_format();
    } else {
      if (!is_integer()) refuse("dictionary with indices that are no integers");
      if (array.dictionary == nullptr) refuse_arrow("column '" + name_ + "'", "lacks its dictionary");
      if (schema.dictionary->dictionary != nullptr) refuse("dictionary of others than texts");
      texts_ = std::make_unique<arrow_reader>(name_, *schema.dictionary, *array.dictionary, 0);
      type_ = texts_->type_;
      if (type_ != column_type::text) refuse("dictionary of others than texts");
    }
    const bool has_texts = texts_ == nullptr && type_ == column_type::text;
    check_arrow_array(&array, rows, has_texts ? 3 : 2, described());
    if (array.length > 0 && array.buffers[1] == nullptr) refuse_arrow(described(), "lacks the buffer of its values");
  }

  // May be empty.
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] column_type type() const { return type_; }

  // Throws std::range_error when the value fits into no cell.
  [[nodiscard]] cell read(std::size_t row) const {
    if (array_.is_null(row)) return null;
    if (texts_ != nullptr) return text_of_index(row);
    switch (type_) {
      case column_type::int64: return integer(row);
      case column_type::float64: return real(row);
      case column_type::boolean: return array_.bit(1, row);
      case column_type::time: return time(row);
      case column_type::text: break;
    }
    std::optional<std::string> found = format_ == "vu"  ? array_.viewed_text(row)
                                       : format_ == "u" ? array_.text<std::int32_t>(row)
                                                        : array_.text<std::int64_t>(row);
    if (!found) refuse_arrow(described(), "has a text in row " + std::to_string(row) + " that is in no buffer");
    return *std::move(found);
  }

 private:
  [[nodiscard]] static const ArrowSchema& checked(const ArrowSchema& schema, const std::string& name) {
    check_arrow_schema(&schema, "column '" + name + "'");
    return schema;
  }
  [[nodiscard]] std::string described() const {
    return "column '" + name_ + "' of type " + std::string(name_of(type_)) + " (format '" + std::string(format_) + "')";
  }
  [[noreturn]] void refuse(std::string_view what) const {
    throw std::invalid_argument("the Arrow column '" + name_ + "' has the type " + std::string(what) + " (format '" +
                                std::string(format_) + "'), which a data frame does not have");
  }
  [[noreturn]] void refuse_value(std::size_t row, const std::string& why) const {
    throw std::range_error("row " + std::to_string(row) + " of the Arrow column '" + name_ + "': " + why);
  }

  [[nodiscard]] bool is_integer() const {
    return format_.size() == 1 && std::string_view("cCsSiIlL").find(format_[0]) != std::string_view::npos;
  }
  // Notes the unit of times.
  [[nodiscard]] column_type type_of_format() {
    if (is_integer()) return column_type::int64;
    if (format_ == "e" || format_ == "f" || format_ == "g") return column_type::float64;
    if (format_ == "b") return column_type::boolean;
    if (format_ == "u" || format_ == "U" || format_ == "vu") return column_type::text;
    if (format_ == "tdD" || format_.starts_with("tss:")) return column_type::time;
    if (format_ == "tdm" || format_.starts_with("tsm:")) units_of_second_ = 1'000;
    if (format_.starts_with("tsu:")) units_of_second_ = 1'000'000;
    if (format_.starts_with("tsn:")) units_of_second_ = 1'000'000'000;
    if (units_of_second_ == 1) refuse(name_of_arrow_format(format_));
    return column_type::time;
  }

  [[nodiscard]] std::int64_t integer(std::size_t row) const {
    switch (format_[0]) {
      case 'c': return array_.number<std::int8_t>(row);
      case 'C': return array_.number<std::uint8_t>(row);
      case 's': return array_.number<std::int16_t>(row);
      case 'S': return array_.number<std::uint16_t>(row);
      case 'i': return array_.number<std::int32_t>(row);
      case 'I': return array_.number<std::uint32_t>(row);
      case 'l': return array_.number<std::int64_t>(row);
      default: break;
    }
    const auto number = array_.number<std::uint64_t>(row);
    if (!std::in_range<std::int64_t>(number)) refuse_value(row, std::to_string(number) + " does not fit into int64");
    return static_cast<std::int64_t>(number);
  }
  [[nodiscard]] double real(std::size_t row) const {
    if (format_ == "e") return double_of_half(array_.number<std::uint16_t>(row));
    return format_ == "f" ? static_cast<double>(array_.number<float>(row)) : array_.number<double>(row);
  }
  [[nodiscard]] timestamp time(std::size_t row) const {
    constexpr std::int64_t day_s = 86'400;
    if (format_ == "tdD") return {array_.number<std::int32_t>(row) * day_s};
    const auto units = array_.number<std::int64_t>(row);
    if (units % units_of_second_ != 0) refuse_value(row, "the time has a fraction of a second; round it before");
    return {units / units_of_second_};
  }
  [[nodiscard]] cell text_of_index(std::size_t row) const {
    const std::int64_t index = integer(row);
    if (index < 0 || index >= texts_->array_.array.length) {
      throw std::invalid_argument("row " + std::to_string(row) + " of the Arrow column '" + name_ +
                                  "' has an index that its dictionary does not have");
    }
    return texts_->read(static_cast<std::size_t>(index));
  }

  std::string name_;
  std::string_view format_;
  arrow_view array_;
  column_type type_ = column_type::int64;
  std::int64_t units_of_second_ = 1;
  std::unique_ptr<arrow_reader> texts_;  // of a dictionary
};

}  // namespace far::detail
