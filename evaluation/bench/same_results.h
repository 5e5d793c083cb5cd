// Whether two programs that do the same work have found the same.
#pragma once

#include <string>

namespace far::bench {

// Of results as JSON. Numbers with a fraction are the same if they differ by a billionth, because sums depend on the
// order in which a program adds. What is no JSON is the same as the same text.
[[nodiscard]] bool are_same_results(const std::string& one, const std::string& other);

}  // namespace far::bench
