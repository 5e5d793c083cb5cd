// `farheapd --check`: whether a server with these options could start here and serve well, without starting one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/options.h"

namespace far::server {

// ok: as it should be. note: it works, and may be improved. problem: the server would not start, or not serve.
enum class verdict : std::uint8_t { ok, note, problem };

struct finding {
  std::string subject;
  verdict found = verdict::ok;
  std::string value;
  std::string advice;  // empty: there is nothing to do
};

// Opens what the server would open, one after the other, and closes it again. `root` stands before the paths of /proc
// and /sys, for tests.
[[nodiscard]] std::vector<finding> examine(const options& chosen, const std::string& root = "");

[[nodiscard]] std::string to_text(const std::vector<finding>& found);
[[nodiscard]] bool has_problem(const std::vector<finding>& found);

}  // namespace far::server
