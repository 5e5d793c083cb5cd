// farheapd: the memory server.
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/check.h"
#include "server/devices/child.h"
#include "server/event_log.h"
#include "server/memory_server.h"
#include "server/options.h"

namespace far::server {
namespace {

constexpr int exit_usage = 2;

// One thread reads SIGTERM, SIGINT and SIGHUP from a descriptor. Call it before any other thread starts.
int take_signals() {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&taken, number);
  sigprocmask(SIG_BLOCK, &taken, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  // A file, of the log as well, that reaches the limit on file sizes is a failed write like any other.
  std::signal(SIGXFSZ, SIG_IGN);
  // If whoever starts the server ignores it, the numbers of devices' processes are given to others before we know.
  std::signal(SIGCHLD, SIG_DFL);
  return signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
}

// The options of the same command line, whose files may have changed.
result<options> read_again(const std::vector<std::string>& arguments) {
  result<command_line> said = parse_command_line(arguments);
  if (!said) return said.error();
  if (!said.value().chosen) return error{"a file of options asks for --help or --version; take that out", EINVAL};
  return std::move(*said.value().chosen);
}

// Signals are blocked before any thread starts, so that all threads inherit the mask and the signals arrive only at the
// descriptor. The addresses are flushed because tests and scripts read the port from them.
int run(const std::vector<std::string>& arguments) {
  result<command_line> said = parse_command_line(arguments);
  if (!said) {
    log_event(said.error().message, log_level::warning);
    return exit_usage;
  }
  if (!said.value().chosen) {
    std::fputs(said.value().text.c_str(), stdout);
    return 0;
  }
  set_log_format(said.value().chosen->logged_as);
  if (said.value().chosen->only_check) {
    const std::vector<finding> found = examine(*said.value().chosen);
    std::fputs(to_text(found).c_str(), stdout);
    return has_problem(found) ? 1 : 0;
  }
  const int signals = take_signals();
  if (signals < 0) {
    log_event("no descriptor for signals; raise the limit on descriptors (ulimit -n)", log_level::warning);
    return 1;
  }
  result<std::unique_ptr<memory_server>> started = memory_server::start(std::move(*said.value().chosen));
  if (!started) {
    log_event(started.error().message, log_level::warning);
    return 1;
  }
  for (const std::string& address : started.value()->addresses()) std::printf("listening on %s\n", address.c_str());
  std::fflush(stdout);
  started.value()->run(signals, [&arguments] { return read_again(arguments); });
  return 0;
}

}  // namespace
}  // namespace far::server

int main(int argc, char** argv) {
  try {
    if (const std::optional<int> code = far::server::run_as_device({argv + 1, argv + argc})) return *code;
    return far::server::run({argv + 1, argv + argc});
  } catch (const std::exception& failure) {
    far::server::log_event(std::string("cannot go on: ") + failure.what(), far::server::log_level::warning);
    return 1;
  }
}
