// far::result<T>: a value, or an error that the caller can act on. A small stand-in for C++23's std::expected.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace far {

// An error as one line for a person. It says what went wrong, to what, and what to do next. `code` is an errno value,
// or 0.
struct error {
  std::string message;
  int code = 0;
};

template <typename T>
class [[nodiscard]] result {
 public:
  result(T value) : value_(std::move(value)) {}
  result(far::error failure) : error_(std::move(failure)) {}

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }

  // Requires ok().
  [[nodiscard]] T& value() & { return FAR_CHECK(ok(), "result holds an error"), *value_; }
  [[nodiscard]] const T& value() const& { return FAR_CHECK(ok(), "result holds an error"), *value_; }
  [[nodiscard]] T&& value() && { return FAR_CHECK(ok(), "result holds an error"), std::move(*value_); }

  // Requires !ok().
  [[nodiscard]] const far::error& error() const { return FAR_CHECK(!ok(), "result holds a value"), error_; }

 private:
  std::optional<T> value_;
  far::error error_;
};

template <>
class [[nodiscard]] result<void> {
 public:
  result() = default;
  result(far::error failure) : error_(std::move(failure)) {}

  [[nodiscard]] bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] const far::error& error() const { return FAR_CHECK(!ok(), "result holds a value"), *error_; }

 private:
  std::optional<far::error> error_;
};

}  // namespace far
