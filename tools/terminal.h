// A terminal for a program that draws whole screens.
#pragma once

#include <termios.h>

#include <cstddef>
#include <string>
#include <vector>

namespace far::tools {

// Takes the terminal over: keys come one by one, the screen is another one, and both are given back at the end.
class terminal {
 public:
  // Whether standard input and output are one.
  [[nodiscard]] static bool is_there();

  terminal();
  ~terminal();
  terminal(const terminal&) = delete;
  terminal& operator=(const terminal&) = delete;

  [[nodiscard]] std::size_t lines() const;
  [[nodiscard]] std::size_t columns() const;

  void draw(const std::vector<std::string>& lines);

  // The next key, or 0 after `timeout_ms`, or when the size of the terminal has changed. 'q' also when the program is
  // to end: control-C, a signal, or a terminal that is gone.
  [[nodiscard]] char wait_for_key(int timeout_ms);

 private:
  termios before_{};
};

}  // namespace far::tools
