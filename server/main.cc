// farheapd: the memory server.
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "server/event_log.h"
#include "server/memory_server.h"
#include "server/options.h"

namespace far::server {
namespace {

constexpr int exit_usage = 2;

// SIGTERM and SIGINT are read from a descriptor, by one thread. Before any other thread is started.
int take_signals() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
}

// Signals are blocked before any thread starts, so that all threads inherit the mask and the signals arrive only at
// the descriptor. The addresses are flushed because tests and scripts read the port from them.
int run(std::vector<std::string> arguments) {
  result<command_line> said = parse_command_line(std::move(arguments));
  if (!said) {
    log_event(said.error().message);
    return exit_usage;
  }
  if (!said.value().chosen) {
    std::fputs(said.value().text.c_str(), stdout);
    return 0;
  }
  const int signals = take_signals();
  if (signals < 0) {
    log_event("no descriptor for signals; raise the limit on descriptors (ulimit -n)");
    return 1;
  }
  result<std::unique_ptr<memory_server>> started = memory_server::start(std::move(*said.value().chosen));
  if (!started) {
    log_event(started.error().message);
    return 1;
  }
  for (const std::string& address : started.value()->addresses()) std::printf("listening on %s\n", address.c_str());
  std::fflush(stdout);
  started.value()->run(signals);
  return 0;
}

}  // namespace
}  // namespace far::server

int main(int argc, char** argv) {
  try {
    return far::server::run({argv + 1, argv + argc});
  } catch (const std::exception& failure) {
    far::server::log_event(std::string("cannot go on: ") + failure.what());
    return 1;
  }
}
