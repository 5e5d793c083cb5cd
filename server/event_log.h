// Messages of farheapd to its operator: one line for each event, on standard error. Never a token, a key, or bytes of
// a client.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace far::server {

// How much is said: trouble; what the server does, too; the comings and goings of clients, too.
enum class log_level : std::uint8_t { warning, info, debug };

[[nodiscard]] std::optional<log_level> log_level_named(std::string_view name);

// Thread-safe, as are all of these. From now on, what is less important than this is left out.
void set_log_level(log_level least);
[[nodiscard]] bool is_logged(log_level how);

void log_event(const std::string& text, log_level how = log_level::info);

// The same for what strangers can cause: at most some tens of lines a second; then one line says how many were left
// out.
void log_limited(const std::string& text, std::uint64_t now_ns, log_level how = log_level::warning);

}  // namespace far::server
