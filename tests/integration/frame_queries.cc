// Answers questions about tables with far::dataframe, for dataframe_test.py, which compares with pandas:
//
//     frame_queries FOLDER
//
// reads FOLDER/questions.json ({"tables": {NAME: [[COLUMN, type], ...]}, "questions": [...]}) and FOLDER/NAME.csv, and
// prints one line of JSON for each question and placement. dataframe_reference.py makes such a folder, and says what is
// asked.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "far/csv.h"
#include "far/dataframe.h"
#include "far/runtime.h"

namespace {

using nlohmann::json;
using tables = std::map<std::string, far::dataframe>;

// JSON has no infinity.
json json_of(double number) {
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  return number;
}
json json_of(const far::cell& value) {
  struct {
    json operator()(std::monostate) const { return nullptr; }
    json operator()(std::int64_t number) const { return number; }
    json operator()(double number) const { return json_of(number); }
    json operator()(bool flag) const { return flag; }
    json operator()(far::timestamp time) const { return time.seconds; }
    json operator()(const std::string& text) const { return text; }
  } convert;
  return std::visit(convert, value);
}
json json_of(const std::optional<double>& number) {
  return number ? json_of(*number) : json(nullptr);
}
json json_of(const far::vector<std::size_t>& rows) {
  std::vector<std::size_t> copy(rows.size());
  rows.read(0, std::span<std::size_t>(copy));
  return copy;
}
json json_of(const far::dataframe& frame) {
  json columns = json::array();
  for (const std::string& name : frame.names()) {
    json values = json::array();
    for (std::size_t row = 0; row < frame.rows(); ++row) values.push_back(json_of(frame[name].at(row)));
    columns.push_back({name, std::move(values)});
  }
  return columns;
}

far::column_type type_named(const std::string& name) {
  for (const auto type : {far::column_type::int64, far::column_type::float64, far::column_type::boolean,
                          far::column_type::time, far::column_type::text}) {
    if (far::name_of(type) == name) return type;
  }
  throw std::invalid_argument("there is no type '" + name + "'");
}

far::cell cell_of(const json& value, far::column_type type) {
  if (value.is_null()) return far::null;
  switch (type) {
    case far::column_type::int64: return value.get<std::int64_t>();
    case far::column_type::float64: return value.get<double>();
    case far::column_type::boolean: return value.get<bool>();
    case far::column_type::time: return far::timestamp{value.get<std::int64_t>()};
    case far::column_type::text: break;
  }
  return value.get<std::string>();
}

far::aggregate aggregate_named(const std::string& name) {
  for (const auto what : {far::aggregate::count, far::aggregate::sum, far::aggregate::mean, far::aggregate::min,
                          far::aggregate::max, far::aggregate::median}) {
    if (far::name_of(what) == name) return what;
  }
  throw std::invalid_argument("there is no aggregate '" + name + "'");
}

// A step of a question: a new frame of an old one.
far::dataframe apply(const far::dataframe& frame, const json& step, const tables& all) {
  const std::string what = step.at("do");
  if (what == "sort") {
    return frame.sort(step.at("column").get<std::string>(),
                      step.at("descending").get<bool>() ? far::order::descending : far::order::ascending);
  }
  if (what == "largest" || what == "smallest") {
    const std::string column = step.at("column");
    const std::size_t count = step.at("count");
    return what == "largest" ? frame.largest(column, count) : frame.smallest(column, count);
  }
  if (what == "filter") {
    const far::column& values = frame[step.at("column").get<std::string>()];
    return frame.filter(step.at("column").get<std::string>(), cell_of(step.at("lowest"), values.type()),
                        cell_of(step.at("highest"), values.type()));
  }
  if (what == "equal") {
    const far::column& values = frame[step.at("column").get<std::string>()];
    return frame.take(values.rows_equal(cell_of(step.at("value"), values.type())));
  }
  if (what == "where") {
    return frame.take(frame.rows_where<double, std::int64_t>(
        {"real", "number"}, [](double real, std::int64_t number) { return real < static_cast<double>(number); }));
  }
  if (what == "join") {
    return frame.join(all.at(step.at("right")), step.at("column").get<std::string>(),
                      step.at("left").get<bool>() ? far::join_kind::left : far::join_kind::inner);
  }
  if (what != "group") throw std::invalid_argument("there is no step '" + what + "'");
  std::vector<far::dataframe::wanted> wanted;
  for (const json& one : step.at("aggregates")) wanted.push_back({one.at(0), aggregate_named(one.at(1))});
  return frame.group_by(step.at("keys").get<std::vector<std::string>>(), wanted);
}

json json_of(const std::vector<far::cell>& values) {
  json all = json::array();
  for (const far::cell& one : values) all.push_back(json_of(one));
  return all;
}

// A sum that int64 does not have is refused.
template <typename Answer>
json unless_too_large(const Answer& answer) {
  try {
    return answer();
  } catch (const std::overflow_error&) {
    return "overflow";
  }
}

// About one column, which may lack some of the answers.
json describe(const far::column& values, const json& question) {
  json said = {{"count", values.count()}, {"nulls", values.null_count()}};
  json counts = json::array();
  for (const auto& [value, times] : values.counts()) counts.push_back({json_of(value), times});
  said["counts"] = std::move(counts);
  said["distinct"] = json_of(values.distinct());
  if (values.type() == far::column_type::text) return said;
  said["min"] = json_of(values.min());
  said["max"] = json_of(values.max());
  said["largest"] = json_of(values.largest(question.at("outermost")));
  said["smallest"] = json_of(values.smallest(question.at("outermost")));
  const far::cell lowest = cell_of(question.at("lowest"), values.type());
  const far::cell highest = cell_of(question.at("highest"), values.type());
  said["count_between"] = values.count_between(lowest, highest);
  said["rows_between"] = json_of(values.rows_between(lowest, highest));
  if (values.type() == far::column_type::time) return said;
  said["sum"] = unless_too_large([&] { return json_of(values.sum()); });
  said["mean"] = json_of(values.mean());
  said["median"] = json_of(values.median());
  said["quantile"] = json_of(values.quantile(question.at("fraction")));
  return said;
}

json answer(const tables& all, const json& question) {
  const far::dataframe& table = all.at(question.at("table"));
  if (question.contains("column")) return describe(table[question.at("column").get<std::string>()], question);
  const far::dataframe* last = &table;
  std::vector<far::dataframe> made;
  made.reserve(question.at("steps").size());
  for (const json& step : question.at("steps")) last = &made.emplace_back(apply(*last, step, all));
  return json_of(*last);
}

int run(const std::string& folder) {
  const json asked = json::parse(std::ifstream(folder + "/questions.json"));
  far::runtime_options chosen;
  chosen.local_bytes = std::size_t{16} << 20;
  far::runtime farheap(chosen);
  tables all;
  for (const auto& [name, types] : asked.at("tables").items()) {
    std::vector<std::pair<std::string, far::column_type>> columns;
    for (const json& one : types) columns.emplace_back(one.at(0), type_named(one.at(1)));
    std::ifstream text(folder + "/" + name + ".csv");
    far::dataframe frame = far::read_csv(farheap, text, columns);
    frame.derive<std::int64_t>("quarter", {"number"},
                               [](std::int64_t number) { return static_cast<double>(number) / 4; });
    all.emplace(name, std::move(frame));
  }
  for (const auto where : {far::placement::there, far::placement::here, far::placement::automatic}) {
    for (auto& [name, frame] : all) frame.place(where);
    for (const json& question : asked.at("questions")) {
      farheap.evict_all();
      std::cout << unless_too_large([&] { return answer(all, question); }).dump() << "\n";
    }
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: frame_queries FOLDER\n");
    return 2;
  }
  try {
    return run(arguments[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "frame_queries: %s\n", error.what());
    return 1;
  }
}
