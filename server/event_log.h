// Messages of farheapd to its operator: one line for each event, on standard error, as text or as JSON. Never a token,
// a key, or bytes of a client.
//
// No call waits for whoever reads standard error. Lines that it does not take are lost, and the next line that it takes
// says how many they were.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace far::server {

// none: silence. warning: trouble. info: also what the server does. debug: also clients that come and go.
enum class log_level : std::uint8_t { none, warning, info, debug };
enum class log_format : std::uint8_t { text, json };

[[nodiscard]] std::optional<log_level> log_level_named(std::string_view name);
[[nodiscard]] std::optional<log_format> log_format_named(std::string_view name);

// From now on, less important messages are left out. These functions are thread-safe.
void set_log_level(log_level least);
[[nodiscard]] bool is_logged(log_level how);
void set_log_format(log_format how);

// Whom an event concerns, as far as it is known. A line of text has all of it in its words; a JSON line has a member
// for each that is not empty.
struct event_party {
  std::string peer = {};  // "10.0.0.7:41234"
  std::string tenant = {};
  std::string session = {};  // a short name that does not grant the right to join it
  std::string reason = {};   // why a connection ended, as in the metrics
};

void log_event(const std::string& text, log_level how = log_level::info, const event_party& whom = {});

// The same for events that strangers can cause: at most some tens of lines a second. One line then says how many were
// left out.
void log_limited(const std::string& text, std::uint64_t now_ns, log_level how = log_level::warning,
                 const event_party& whom = {});

// One line of each format, with its newline.
[[nodiscard]] std::string event_line(log_format format, std::string_view text, log_level how, const event_party& whom,
                                     std::int64_t since_epoch_ms);

}  // namespace far::server
