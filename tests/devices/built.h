// Shared objects that tests build, as operators and users do.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace far::testing_support {

inline void build(const std::string& source, const std::string& into) {
  const std::string command =
      COMPILER " -std=c++20 -O1 -Wall -Wextra -Werror -shared -fPIC -I" SOURCE "/include " + source + " -o " + into;
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

// The code of a page that begins with this line: what is indented by four, up to the next line that is not.
inline std::string code_of(const std::string& page, const std::string& first_line) {
  std::ifstream file(page);
  std::string code;
  for (std::string line; std::getline(file, line);) {
    if (code.empty() && line != "    " + first_line) continue;
    if (!line.empty() && !line.starts_with("    ")) break;
    code += line.substr(line.empty() ? 0 : 4) + "\n";
  }
  return code;
}

}  // namespace far::testing_support
