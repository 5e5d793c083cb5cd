// Shared objects that tests build, as operators and users do.
#pragma once

#include <string>

namespace far::testing_support {

// Fails the test when the source does not compile.
void build(const std::string& source, const std::string& into);

// The code of a page that begins with this line: what is indented by four, up to the next line that is not.
[[nodiscard]] std::string code_of(const std::string& page, const std::string& first_line);

}  // namespace far::testing_support
