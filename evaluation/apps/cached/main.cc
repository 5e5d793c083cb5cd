// cached: a cache server that speaks memcached's text protocol. evaluation/apps/README.md says how to run it.
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <thread>

#include "server.h"

namespace {

cached::server* running = nullptr;

void on_signal(int) {
  const int error = errno;
  running->stop();
  errno = error;
}

void declare(CLI::App& parser, cached::server_options& into) {
  parser.add_option("--listen", into.address, "IP address; anyone who reaches it may read and write everything")
      ->type_name("ADDRESS")
      ->capture_default_str();
  parser.add_option("--port", into.port, "TCP port; 0: any, printed at the start")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  parser.add_option("--threads", into.threads, "event loops")->check(CLI::Range(1u, 256u))->capture_default_str();
  parser.add_option("--connections", into.connection_limit, "the most at a time")
      ->check(CLI::Range(1u, 1u << 20))
      ->capture_default_str();
  parser.add_option("--memory", into.items.limit_bytes, "of items; beyond it the least recently used ones go")
      ->type_name("SIZE")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("64M");
  if (!cached::is_far) return;
  parser.add_option("--local", into.items.local_bytes, "local memory for items, such as 64M; at least 16M")
      ->type_name("SIZE")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("64M");
  parser.add_option("--far", into.items.far, "the far tier, as for `farheap run`")->capture_default_str();
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
  CLI::App parser(fmt::format("A cache server on {}, with memcached's text protocol.", cached::memory_name));
  declare(parser, options);
  CLI11_PARSE(parser, count, arguments);
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
