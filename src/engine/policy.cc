#include "engine/policy.h"

#include <array>

#include "engine/fifo.h"
#include "engine/second_chance.h"

namespace far::engine {
namespace {

struct entry {
  const char* name;
  std::unique_ptr<policy> (*make)(residency& pages);
};

template <typename Policy>
std::unique_ptr<policy> make(residency& pages) {
  return std::make_unique<Policy>(pages);
}

constexpr std::array<entry, 2> policies{{{"second-chance", make<second_chance>}, {"fifo", make<fifo>}}};

}  // namespace

std::string policy_names() {
  std::string names;
  for (const entry& known : policies) names += (names.empty() ? "" : ", ") + std::string(known.name);
  return names;
}

result<std::unique_ptr<policy>> make_policy(std::string_view name, residency& pages) {
  for (const entry& known : policies) {
    if (name == known.name) return known.make(pages);
  }
  return error{"unknown policy '" + std::string(name) + "'; known are: " + policy_names()};
}

}  // namespace far::engine
