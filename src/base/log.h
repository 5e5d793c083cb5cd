// Messages to the user, on standard error, one line each, prefixed "farheap:".
//
// The runtime lives inside other people's programs and inside signal handlers, so logging formats into a buffer on the
// stack, makes one write(2), and never allocates.
#pragma once

namespace far {

enum class log_level { error, warning, info, verbose };

// Lines above this level are dropped. Default: info.
void set_log_level(log_level level) noexcept;
[[nodiscard]] bool log_enabled(log_level level) noexcept;

// Whether standard error is for messages, as it is at first. While a program has it closed it is not: what the program
// opens next gets this number, and is its own.
void set_log_open(bool is_open) noexcept;

// printf-style; appends the newline; lines longer than 1 KiB are cut. errno is preserved.
void log_line(log_level level, const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));

}  // namespace far
