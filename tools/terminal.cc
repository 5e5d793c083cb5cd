#include "terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string_view>

namespace far::tools {
namespace {

constexpr char control_c = 3;
constexpr char control_d = 4;
constexpr std::size_t usual_lines = 24;
constexpr std::size_t usual_columns = 80;

volatile std::sig_atomic_t interrupted = 0;

void note_end(int) {
  interrupted = 1;
}
void note_size(int) {}  // it only ends a poll()

void handle(int signal, void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  sigaction(signal, &action, nullptr);
}

void put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      interrupted = 1;  // nobody looks any more
      return;
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

winsize size_now() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) {
    size.ws_row = usual_lines;
    size.ws_col = usual_columns;
  }
  return size;
}

}  // namespace

bool terminal::is_there() {
  return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
}

terminal::terminal() {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) handle(signal, note_end);
  handle(SIGWINCH, note_size);
  tcgetattr(STDIN_FILENO, &before_);
  termios raw = before_;
  raw.c_lflag &= static_cast<tcflag_t>(~(ICANON | ECHO | ISIG));
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  put("\x1b[?1049h\x1b[?25l");  // the other screen, without a cursor
}

terminal::~terminal() {
  put("\x1b[?25h\x1b[?1049l");
  tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

std::size_t terminal::lines() const {
  return size_now().ws_row;
}
std::size_t terminal::columns() const {
  return size_now().ws_col;
}

void terminal::draw(const std::vector<std::string>& lines) {
  std::string screen = "\x1b[H";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    screen += lines[i] + "\x1b[K";  // and nothing behind it
    if (i + 1 < lines.size()) screen += "\r\n";
  }
  put(screen + "\x1b[J");
}

char terminal::wait_for_key(int timeout_ms) {
  pollfd watched{STDIN_FILENO, POLLIN, 0};
  const int ready = interrupted != 0 ? 0 : poll(&watched, 1, timeout_ms);
  if (interrupted != 0) return 'q';
  if (ready <= 0) return 0;
  char key = 0;
  const ssize_t got = read(STDIN_FILENO, &key, 1);
  if (got < 0 && errno == EINTR) return 0;
  return got != 1 || key == control_c || key == control_d ? 'q' : key;
}

}  // namespace far::tools
