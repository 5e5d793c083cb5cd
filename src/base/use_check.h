// FAR_CHECK_USE guards what the program that uses us must see to, as FAR_CHECK (base/check.h) guards what we must. The
// process stops at once, and the message names the rule that the program broke.
#pragma once

namespace far {

// Writes one line to standard error without allocating and aborts. Safe inside a signal handler.
[[noreturn]] void use_check_failed(const char* rule) noexcept;

}  // namespace far

#define FAR_CHECK_USE(condition, rule) (__builtin_expect(!!(condition), 1) ? void(0) : ::far::use_check_failed(rule))
