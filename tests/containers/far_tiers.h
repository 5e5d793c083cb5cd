// Every kind of far tier, for tests of containers on them.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace far::test {

// A far tier, and what it needs while it is used.
struct open_far_tier {
  std::string name;
  std::vector<std::shared_ptr<void>> servers = {};
};

struct far_tier_kind {
  std::string name;  // of the test
  std::function<open_far_tier()> open;
  std::string missing = {};  // why it cannot be tested on this machine; empty: it can
};
inline void PrintTo(const far_tier_kind& shown, std::ostream* out) {
  *out << shown.name;
}

[[nodiscard]] std::vector<far_tier_kind> far_tier_kinds();

}  // namespace far::test
