// A JSON value, for programs that print what they measured and read what others print.
//
// Its text is read and written by nlohmann's library. That one's own value is a template, of which every source that
// names it compiles a copy, which took longer than the rest of most sources here. This one is compiled once.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace evaluation {

class json;
struct json_member;

namespace detail {

// What a JSON value is read as without saying so.
template <typename T>
concept json_scalar = (std::is_arithmetic_v<T> && !std::same_as<T, char>) || std::same_as<T, std::string>;

}  // namespace detail

// Null, a truth value, a number, a text, an array, or an object, whose members keep the order in which they came.
class json {
 public:
  json();
  json(std::nullptr_t);
  json(bool value);
  json(int value);
  json(unsigned value);
  json(long value);
  json(unsigned long value);
  json(double value);
  json(const char* value);
  json(std::string value);
  // Of [text, value] alone: an object with these members. Otherwise: an array.
  json(std::initializer_list<json> values);
  template <typename T>
  json(const std::vector<T>& values);
  template <typename T>
  json(const std::map<std::string, T>& members);

  json(const json& other);
  json(json&& other) noexcept;
  json& operator=(const json& other);
  json& operator=(json&& other) noexcept;
  ~json();

  [[nodiscard]] static json array();
  [[nodiscard]] static json object();

  // Null where `text` is no JSON, too.
  [[nodiscard]] static json parse(const std::string& text);
  // In one line, or indented by so many spaces. Throws where a text in it is not UTF-8.
  [[nodiscard]] std::string dump(int indent = -1) const;

  [[nodiscard]] bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  [[nodiscard]] bool is_array() const { return std::holds_alternative<std::vector<json>>(value_); }
  [[nodiscard]] bool is_object() const { return std::holds_alternative<std::vector<json_member>>(value_); }
  [[nodiscard]] bool is_real() const { return std::holds_alternative<double>(value_); }
  [[nodiscard]] bool is_text() const { return std::holds_alternative<std::string>(value_); }

  // Throws std::invalid_argument where it is of another kind. Numbers are converted, as by static_cast.
  template <typename T>
  [[nodiscard]] T get() const;
  template <detail::json_scalar T>
  operator T() const {
    return get<T>();
  }

  // How many elements or members there are; none in other values.
  [[nodiscard]] std::size_t size() const;

  // Elements of an array. Throws std::invalid_argument where it is none, std::out_of_range where there are fewer.
  [[nodiscard]] const json& operator[](std::size_t place) const;
  [[nodiscard]] const std::vector<json>& elements() const;
  [[nodiscard]] std::vector<json>::const_iterator begin() const;
  [[nodiscard]] std::vector<json>::const_iterator end() const;
  // Null becomes an array.
  void push_back(json value);

  // Members of an object. Throws std::invalid_argument where it is none.
  [[nodiscard]] const std::vector<json_member>& items() const;
  // Null where there is none, also where this is no object.
  [[nodiscard]] const json* find(std::string_view name) const;
  [[nodiscard]] bool contains(std::string_view name) const { return find(name) != nullptr; }
  // Throws std::out_of_range where there is none.
  [[nodiscard]] const json& at(std::string_view name) const;
  template <typename T>
  [[nodiscard]] T value(std::string_view name, T otherwise) const;
  // Adds it where there is none. Null becomes an object.
  json& operator[](std::string_view name);
  json& operator[](const char* name) { return (*this)[std::string_view(name)]; }

  // Numbers are equal whatever their type; members are, in the same order.
  friend bool operator==(const json& one, const json& other);
  // To clang, conversions of either side would do for a number.
  template <typename T>
    requires std::is_arithmetic_v<T>
  friend bool operator==(const json& one, T number) {
    return one == json(number);
  }

 private:
  struct library;  // nlohmann's

  [[nodiscard]] bool truth() const;
  [[nodiscard]] double real() const;
  [[nodiscard]] std::int64_t whole() const;  // of one beyond its range, the same bits
  [[nodiscard]] const std::string& text() const;

  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, std::vector<json>,
               std::vector<json_member>>
      value_;
};

struct json_member {
  std::string name;
  json value;

  friend bool operator==(const json_member&, const json_member&) = default;
};

// Here, where the members of an object are known.
inline json::json() = default;
inline json::json(std::nullptr_t) {}

template <typename T>
json::json(const std::vector<T>& values) : json(array()) {
  for (const T& one : values) push_back(one);
}

template <typename T>
json::json(const std::map<std::string, T>& members) : json(object()) {
  for (const auto& [name, one] : members) (*this)[name] = one;
}

template <typename T>
T json::get() const {
  if constexpr (std::same_as<T, bool>) {
    return truth();
  } else if constexpr (std::same_as<T, std::string>) {
    return text();
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(real());
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(whole());
  } else {  // a vector
    T all;
    for (const json& one : elements()) all.push_back(one.get<typename T::value_type>());
    return all;
  }
}

template <typename T>
T json::value(std::string_view name, T otherwise) const {
  const json* const found = find(name);
  return found == nullptr ? otherwise : found->get<T>();
}

}  // namespace evaluation
