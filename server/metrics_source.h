// What a metrics port shows (metrics_server.h).
#pragma once

#include <cstdint>
#include <string>

namespace far::server {

// Called by one thread at a time.
class metrics_source {
 public:
  virtual ~metrics_source() = default;

  // Called several times a second, whether anybody reads or not.
  virtual void keep_up(std::uint64_t now_ns) { static_cast<void>(now_ns); }
  // The text format of Prometheus, version 0.0.4.
  [[nodiscard]] virtual std::string metrics(std::uint64_t now_ns) = 0;
  // A page of HTML for people; empty: there is none.
  [[nodiscard]] virtual std::string page(std::uint64_t now_ns) {
    static_cast<void>(now_ns);
    return {};
  }
  // Why it does not work, or takes no clients, in a line; empty: it does.
  [[nodiscard]] virtual std::string sickness(std::uint64_t now_ns) {
    static_cast<void>(now_ns);
    return {};
  }
  [[nodiscard]] virtual std::string refusal() { return {}; }
};

}  // namespace far::server
