#include "tests/devices/built.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace far::testing_support {

void build(const std::string& source, const std::string& into) {
  const std::string command =
      COMPILER " -std=c++20 -O1 -Wall -Wextra -Werror -shared -fPIC -I" SOURCE "/include " + source + " -o " + into;
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

std::string code_of(const std::string& page, const std::string& first_line) {
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
