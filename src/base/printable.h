// Texts of others, as in messages to people: those of plugins, servers and clients may be anything.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace far {

// At most the first `most` bytes, with "..." behind them if there were more. Bytes that are no UTF-8, and characters
// that control a terminal or begin a line, become "\x1b". No longer than 4 * most + 3.
[[nodiscard]] std::string printable(std::string_view text, std::size_t most);

}  // namespace far
