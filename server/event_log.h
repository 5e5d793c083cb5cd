// Messages of farheapd to its operator: one line for each event, on standard error. Never a token, a key, or bytes of a
// client.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace far::server {

// warning: trouble. info: also what the server does. debug: also clients that come and go.
enum class log_level : std::uint8_t { warning, info, debug };

[[nodiscard]] std::optional<log_level> log_level_named(std::string_view name);

// From now on, less important messages are left out. These functions are thread-safe.
void set_log_level(log_level least);
[[nodiscard]] bool is_logged(log_level how);

void log_event(const std::string& text, log_level how = log_level::info);

// The same for events that strangers can cause: at most some tens of lines a second. One line then says how many were
// left out.
void log_limited(const std::string& text, std::uint64_t now_ns, log_level how = log_level::warning);

}  // namespace far::server
