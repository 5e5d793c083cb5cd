// Messages of farheapd to its operator: one line for each event, on standard error. Never a token, a key, or bytes of
// a client.
#pragma once

#include <cstdint>
#include <string>

namespace far::server {

// Thread-safe.
void log_event(const std::string& text);

// The same for what strangers can cause: at most some tens of lines a second; then one line says how many were left
// out.
void log_limited(const std::string& text, std::uint64_t now_ns);

}  // namespace far::server
