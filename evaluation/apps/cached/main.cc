// cached: a cache server that speaks memcached's text protocol. evaluation/apps/README.md says how to run it.
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <limits>
#include <thread>

#include "common/command_line.h"
#include "server.h"

namespace {

cached::server* running = nullptr;

void on_signal(int) {
  const int error = errno;
  running->stop();
  errno = error;
}

void declare(evaluation::command_line& line, cached::server_options& into) {
  line.add_text("--listen", into.address, "IP address; anyone who reaches it may read and write everything");
  line.add_number("--port", into.port, "TCP port; 0: any, printed at the start", 0, 65535);
  line.add_number("--threads", into.threads, "event loops", 1, 256);
  line.add_number("--connections", into.connection_limit, "the most at a time", 1, 1u << 20);
  line.add_size("--memory", into.items.limit_bytes, "of items; beyond it the least recently used ones go",
                std::numeric_limits<std::size_t>::max());
  if (!cached::is_far) return;
  line.add_size("--local", into.items.local_bytes, "local memory for items, such as 64M; at least 16M",
                std::size_t{1} << 48);
  line.add_text("--far", into.items.far, "the far tier, as for `farheap run`");
}

// As many descriptors as connections need, if that is permitted.
void raise_descriptor_limit(unsigned connections) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = rlim_t{connections} + 1024;
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main(int count, char** arguments) try {
  cached::server_options options;
  options.threads = std::clamp(std::thread::hardware_concurrency(), 1u, 8u);
  evaluation::command_line line(
      fmt::format("A cache server on {}, with memcached's text protocol.", cached::memory_name));
  declare(line, options);
  if (const auto status = line.parse(count, arguments)) return *status;
  raise_descriptor_limit(options.connection_limit);
  cached::server server(options);
  running = &server;
  struct sigaction action{};
  action.sa_handler = on_signal;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  fmt::print("cached: listening at {} port {}\n", options.address, server.port());
  std::fflush(stdout);
  server.run();
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "cached: {}\n", error.what());
  return 1;
}
