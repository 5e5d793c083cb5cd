// The code of far::read_csv() (csv.h).
#pragma once

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <istream>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "far/csv.h"
#include "far/dataframe.h"
#include "far/detail/api.h"

namespace far {

namespace detail {

// Reads records, which may have quoted fields with separators, quotes and ends of lines in them.
class csv_records {
 public:
  struct field {
    std::string text;
    bool is_quoted = false;
  };

  csv_records(std::istream& from, const csv_options& how) : from_(from), how_(how) { skip_byte_order_mark(); }

  // The next record; false at the end.
  bool next(std::vector<field>& record) {
    record.clear();
    started_at_ = line_;
    if (peek() == std::istream::traits_type::eof()) {
      // Not the end, but a disk that fails.
      if (from_.bad()) fail("it cannot be read any further");
      return false;
    }
    while (true) {
      record.emplace_back();
      if (peek() == '"') {
        read_quoted(record.back());
      } else {
        read_plain(record.back());
      }
      const int behind = get();
      if (behind == separator()) continue;
      if (behind == '\r' && peek() == '\n') get();
      ++line_;
      return true;
    }
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw csv_error(how_.name + ", line " + std::to_string(started_at_) + ": " + what);
  }

 private:
  // As streams return characters, which are never negative.
  [[nodiscard]] int separator() const { return static_cast<unsigned char>(how_.separator); }
  [[nodiscard]] bool is_end(int next) const {
    return next == separator() || next == '\n' || next == '\r' || next == std::istream::traits_type::eof();
  }
  // Spreadsheets write it in front of UTF-8. What only looks like it is read after all.
  void skip_byte_order_mark() {
    constexpr std::string_view mark = "\xef\xbb\xbf";
    while (put_back_.size() < mark.size() && from_.peek() == static_cast<unsigned char>(mark[put_back_.size()])) {
      put_back_ += static_cast<char>(from_.get());
    }
    if (put_back_ == mark) put_back_.clear();
  }
  [[nodiscard]] int peek() { return put_back_.empty() ? from_.peek() : static_cast<unsigned char>(put_back_[0]); }
  int get() {
    const int next = peek();
    if (put_back_.empty()) return from_.get();
    put_back_.erase(0, 1);
    return next;
  }
  void read_plain(field& to) {
    while (!is_end(peek())) {
      const char next = static_cast<char>(get());
      if (next == '"') fail("a quote inside a field that does not begin with one");
      to.text += next;
    }
  }
  void read_quoted(field& to) {
    to.is_quoted = true;
    get();
    while (true) {
      const int next = get();
      if (next == std::istream::traits_type::eof()) fail("the quoted field does not end");
      if (next == '"' && peek() != '"') break;
      if (next == '"') get();
      if (next == '\n') ++line_;
      to.text += static_cast<char>(next);
    }
    if (!is_end(peek())) fail("characters behind the end of a quoted field");
  }

  std::istream& from_;
  std::string put_back_;  // to be read before what follows
  const csv_options& how_;
  std::size_t line_ = 1;
  std::size_t started_at_ = 1;
};

template <typename T>
[[nodiscard]] bool parse_number(std::string_view text, T& to) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), to);
  return code == std::errc() && end == text.data() + text.size();
}

// Whether a number that is beyond double is too near to 0 for it, rather than too far from it. Requires: it is spelled
// as std::from_chars reads it, and is not 0.
[[nodiscard]] inline bool is_too_small(std::string_view text) {
  const std::size_t e = std::min(text.find_first_of("eE"), text.size());
  const std::string_view digits = text.substr(0, e);
  const std::size_t point = std::min(digits.find('.'), digits.size());
  const std::size_t first = digits.find_first_of("123456789");
  // The place of the first digit: 0 of units.
  const auto place = static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first) - (first < point ? 1 : 0);
  std::string_view exponent = text.substr(std::min(e + 1, text.size()));
  if (exponent.starts_with('+')) exponent.remove_prefix(1);
  std::int64_t power = 0;
  if (std::from_chars(exponent.data(), exponent.data() + exponent.size(), power).ec == std::errc::result_out_of_range ||
      std::abs(power) > std::numeric_limits<std::int64_t>::max() / 2) {
    return exponent.starts_with('-');
  }
  return place + power < 0;
}

// What is nearer to 0 than any double is 0, as in pandas. Nothing is read as infinite that does not say so.
[[nodiscard]] inline bool parse_real(std::string_view text, double& to) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), to);
  if (end != text.data() + text.size()) return false;
  if (code == std::errc::result_out_of_range && is_too_small(text)) {
    to = text.starts_with('-') ? -0.0 : 0.0;
    return true;
  }
  return code == std::errc();
}

// 2016-03-14 17:24:55, also with a T in the middle, or a date alone, which is its midnight.
[[nodiscard]] inline bool parse_time(std::string_view text, timestamp& to) {
  const std::string with_midnight = std::string(text) + " 00:00:00";
  if (text.size() == 10) text = with_midnight;
  if (text.size() != 19 || text[4] != '-' || text[7] != '-' || (text[10] != ' ' && text[10] != 'T') ||
      text[13] != ':' || text[16] != ':') {
    return false;
  }
  unsigned year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
  const bool is_number = parse_number(text.substr(0, 4), year) && parse_number(text.substr(5, 2), month) &&
                         parse_number(text.substr(8, 2), day) && parse_number(text.substr(11, 2), hour) &&
                         parse_number(text.substr(14, 2), minute) && parse_number(text.substr(17, 2), second);
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(year)), std::chrono::month(month),
                                         std::chrono::day(day)};
  if (!is_number || !date.ok() || hour > 23 || minute > 59 || second > 59) return false;
  const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  to.seconds = days * 86'400 + hour * 3'600 + minute * 60 + second;
  return true;
}

// pandas writes True, and R TRUE.
[[nodiscard]] inline bool parse_flag(std::string_view text, cell& to) {
  constexpr std::string_view words[][4] = {{"false", "False", "FALSE", "0"}, {"true", "True", "TRUE", "1"}};
  for (const bool flag : {false, true}) {
    if (std::ranges::find(words[flag ? 1 : 0], text) == std::end(words[flag ? 1 : 0])) continue;
    to = flag;
    return true;
  }
  return false;
}

// std::from_chars takes no plus, which others write.
[[nodiscard]] inline std::string_view without_plus(std::string_view text) {
  const bool is_before_number = text.size() > 1 && text[0] == '+' && text[1] != '-';
  return is_before_number ? text.substr(1) : text;
}

// An empty field is null, but in quotes it is an empty text where the column is of texts. Returns whether the text is a
// value of the type.
[[nodiscard]] inline bool parse_cell(const csv_records::field& from, column_type type, cell& to) {
  to = null;
  if (from.text.empty() && (!from.is_quoted || type != column_type::text)) return true;
  switch (type) {
    case column_type::int64: return parse_number(without_plus(from.text), to.emplace<std::int64_t>());
    case column_type::float64: return parse_real(without_plus(from.text), to.emplace<double>());
    case column_type::time: return parse_time(from.text, to.emplace<timestamp>());
    case column_type::boolean: return parse_flag(from.text, to);
    case column_type::text: to = from.text; break;
  }
  return true;
}

}  // namespace detail

FAR_LIBRARY_CODE dataframe read_csv(const tag& in, std::istream& from,
                                    const std::vector<std::pair<std::string, column_type>>& wanted,
                                    const csv_options& how) {
  dataframe frame(in);
  for (const auto& [name, type] : wanted) frame.add(name, type);
  detail::csv_records records(from, how);
  std::vector<detail::csv_records::field> record;
  if (!records.next(record)) records.fail("there are no names of columns");
  const std::size_t fields = record.size();
  std::vector<std::size_t> place;
  for (const auto& [name, type] : wanted) {
    std::size_t at = 0;
    while (at < fields && record[at].text != name) ++at;
    if (at == fields) records.fail("there is no column '" + name + "'");
    place.push_back(at);
  }
  std::vector<cell> row(wanted.size());
  while (records.next(record)) {
    if (record.size() != fields) {
      records.fail(std::to_string(record.size()) + " fields, and there are " + std::to_string(fields) + " columns");
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const auto& [name, type] = wanted[i];
      if (!detail::parse_cell(record[place[i]], type, row[i])) {
        records.fail("'" + record[place[i]].text + "' in the column '" + name + "' is no value of the type " +
                     std::string(name_of(type)));
      }
    }
    try {
      frame.append(row);
    } catch (const std::range_error& beyond) {
      records.fail(beyond.what());
    }
  }
  return frame;
}

}  // namespace far
