#include "common/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace evaluation {

struct json::library {
  using document = nlohmann::ordered_json;

  static document written(const json& from) {
    return std::visit([](const auto& value) { return written_as(value); }, from.value_);
  }

  static json read(const document& from) {
    switch (from.type()) {
      case document::value_t::boolean: return from.get<bool>();
      case document::value_t::number_integer: return from.get<std::int64_t>();
      case document::value_t::number_unsigned: return from.get<std::uint64_t>();
      case document::value_t::number_float: return from.get<double>();
      case document::value_t::string: return from.get<std::string>();
      case document::value_t::array: {
        std::vector<json> all;
        for (const document& one : from) all.push_back(read(one));
        return all;
      }
      case document::value_t::object: {
        json made = object();
        for (const auto& one : from.items()) made[one.key()] = read(one.value());
        return made;
      }
      default: return nullptr;  // also of what is no JSON
    }
  }

 private:
  template <typename T>
  static document written_as(const T& value) {
    return value;
  }
  static document written_as(std::monostate /*null*/) { return nullptr; }
  static document written_as(const std::vector<json>& all) {
    document made = document::array();
    for (const json& one : all) made.push_back(written(one));
    return made;
  }
  static document written_as(const std::vector<json_member>& all) {
    document made = document::object();
    for (const json_member& one : all) made[one.name] = written(one.value);
    return made;
  }
};

namespace {

bool is_member(const json& one) {
  return one.is_array() && one.size() == 2 && one[0].is_text();
}

[[noreturn]] void refuse(const json& found, const char* wanted) {
  throw std::invalid_argument("JSON: " + found.dump() + " is no " + wanted);
}

}  // namespace

json::json(bool value) : value_(value) {}
json::json(int value) : value_(std::int64_t{value}) {}
json::json(unsigned value) : value_(std::uint64_t{value}) {}
json::json(long value) : value_(std::int64_t{value}) {}
json::json(unsigned long value) : value_(std::uint64_t{value}) {}
json::json(double value) : value_(value) {}
json::json(const char* value) : value_(std::string(value)) {}
json::json(std::string value) : value_(std::move(value)) {}

json::json(std::initializer_list<json> values) {
  if (!std::all_of(values.begin(), values.end(), is_member)) {
    value_ = std::vector<json>(values);
    return;
  }
  *this = object();
  for (const json& one : values) (*this)[one[0].text()] = one[1];
}

json::json(const json& other) = default;
json::json(json&& other) noexcept = default;
json& json::operator=(const json& other) = default;
json& json::operator=(json&& other) noexcept = default;
json::~json() = default;

json json::array() {
  json made;
  made.value_ = std::vector<json>();
  return made;
}

json json::object() {
  json made;
  made.value_ = std::vector<json_member>();
  return made;
}

json json::parse(const std::string& text) {
  return library::read(library::document::parse(text, nullptr, false));
}

std::string json::dump(int indent) const {
  return library::written(*this).dump(indent);
}

std::size_t json::size() const {
  if (is_array()) return elements().size();
  return is_object() ? items().size() : 0;
}

const std::vector<json>& json::elements() const {
  if (const auto* const all = std::get_if<std::vector<json>>(&value_)) return *all;
  refuse(*this, "array");
}

const json& json::operator[](std::size_t place) const {
  return elements().at(place);
}

std::vector<json>::const_iterator json::begin() const {
  return elements().begin();
}

std::vector<json>::const_iterator json::end() const {
  return elements().end();
}

void json::push_back(json value) {
  if (is_null()) *this = array();
  if (!is_array()) refuse(*this, "array");
  std::get<std::vector<json>>(value_).push_back(std::move(value));
}

const std::vector<json_member>& json::items() const {
  if (const auto* const all = std::get_if<std::vector<json_member>>(&value_)) return *all;
  refuse(*this, "object");
}

const json* json::find(std::string_view name) const {
  if (!is_object()) return nullptr;
  const auto found = std::ranges::find(items(), name, &json_member::name);
  return found == items().end() ? nullptr : &found->value;
}

const json& json::at(std::string_view name) const {
  if (const json* const found = find(name)) return *found;
  throw std::out_of_range("JSON: there is no \"" + std::string(name) + "\" in " + dump());
}

json& json::operator[](std::string_view name) {
  if (is_null()) *this = object();
  if (!is_object()) refuse(*this, "object");
  auto& all = std::get<std::vector<json_member>>(value_);
  const auto found = std::ranges::find(all, name, &json_member::name);
  return found == all.end() ? all.emplace_back(std::string(name), json()).value : found->value;
}

bool operator==(const json& one, const json& other) {
  const auto is_number = [](const json& value) {
    return value.is_real() || std::holds_alternative<std::int64_t>(value.value_) ||
           std::holds_alternative<std::uint64_t>(value.value_);
  };
  if (one.value_.index() == other.value_.index() || !is_number(one) || !is_number(other)) {
    return one.value_ == other.value_;
  }
  if (one.is_real() || other.is_real()) return one.real() == other.real();
  // One of them is signed: the same bits are another number where it is negative.
  return one.whole() == other.whole() && one.whole() >= 0;
}

bool json::truth() const {
  if (const bool* const value = std::get_if<bool>(&value_)) return *value;
  refuse(*this, "truth value");
}

double json::real() const {
  if (const auto* const value = std::get_if<double>(&value_)) return *value;
  if (const auto* const value = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*value);
  if (const auto* const value = std::get_if<std::uint64_t>(&value_)) return static_cast<double>(*value);
  refuse(*this, "number");
}

std::int64_t json::whole() const {
  if (const auto* const value = std::get_if<std::int64_t>(&value_)) return *value;
  if (const auto* const value = std::get_if<std::uint64_t>(&value_)) return static_cast<std::int64_t>(*value);
  if (const auto* const value = std::get_if<double>(&value_)) return static_cast<std::int64_t>(*value);
  refuse(*this, "number");
}

const std::string& json::text() const {
  if (const auto* const value = std::get_if<std::string>(&value_)) return *value;
  refuse(*this, "text");
}

}  // namespace evaluation
