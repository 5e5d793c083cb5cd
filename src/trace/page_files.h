// The files of report/, as bytes of the program (made by embed.cmake).
#pragma once

#include <string_view>

namespace far::trace {

// Empty when there is no file of that name.
[[nodiscard]] std::string_view page_file(std::string_view name);

}  // namespace far::trace
