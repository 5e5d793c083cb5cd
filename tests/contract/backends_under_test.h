// Every backend that must pass the contract, in every mode it has. A new backend joins the suite with a line in the
// .cc.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace far::backend {

struct backend_under_test {
  std::string name;  // of the test: letters, digits and '_'
  // A new backend that holds `capacity_slots`; stops the test program with a message when it cannot be opened.
  std::function<std::unique_ptr<backend>(std::uint64_t capacity_slots)> open;
  std::string missing{};  // why it cannot be tested on this machine; empty: it can
};

// How GoogleTest shows the parameter of a failed test.
inline void PrintTo(const backend_under_test& shown, std::ostream* out) {
  *out << shown.name;
}

[[nodiscard]] std::vector<backend_under_test> backends_under_test();

}  // namespace far::backend
