// `farheap-bench coverage`: how few source lines cause 95% of a program's misses (Eden, section 2.3 and figure 2), as
// `farheap trace` finds them: programs of apps/, and others where they are installed.
#include <arpa/inet.h>
#include <errno.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "background_server.h"
#include "base/units.h"
#include "benchmark.h"
#include "child.h"
#include "clocks.h"
#include "common/json.h"
#include "heap_bench.h"
#include "scratch_folder.h"

namespace far::bench {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t deadline_ns = 300'000'000'000;
constexpr std::uint64_t ready_ns = 20'000'000'000;
constexpr std::size_t value_bytes = 1000;

// A program under the tracer. `port`: it is a server with memcached's protocol; 0: it ends by itself.
struct traced {
  std::string name;
  std::string local;
  std::vector<std::string> command;
  std::uint16_t port = 0;
};

std::vector<traced> programs(bool quick) {
  const std::string numbers = quick ? "1000000" : "8000000";
  const std::string rows = quick ? "500000" : "2000000";
  const std::string requests = quick ? "2000" : "20000";
  const std::string sort = fmt::format("seq 1 {} | shuf --random-source=/dev/zero | sort -S 256M | tail -1 >/dev/null",
                                       quick ? "500000" : "4000000");
  const std::string pandas =
      "import pandas as pd, numpy as np\n"
      "n = 4_000_000\n"
      "t = pd.DataFrame({'k': np.random.default_rng(1).integers(0, 1000, n), 'v': np.arange(n, dtype=float)})\n"
      "print(t.groupby('k').v.agg(['sum', 'mean']).sum().sum(), t.sort_values('k').v.iloc[::1000].sum())\n";
  return {{"psort", "24M", {product("apps/psort-unhinted"), "--elements", numbers}},
          {"taxi", "32M", {product("apps/taxi-unhinted"), "--rows", rows}},
          {"web", "32M", {product("apps/web-unhinted"), "--closed-loop", requests}},
          {"cached", "32M", {product("apps/cached-unhinted"), "--port", "21211", "--memory", "1G"}, 21211},
          {"memcached",
           "32M",
           {"/usr/bin/memcached", "-l", "127.0.0.1", "-p", "21212", "-m", "1024", "-u", "nobody"},
           21212},
          {"redis", "32M", {"/usr/bin/redis-server", "--port", "21213", "--save", "", "--bind", "127.0.0.1"}, 21213},
          {"sort", "32M", {"/bin/sh", "-c", sort}},
          {"pandas", "64M", {product("../venv/bin/python"), "-c", pandas}}};
}

// ---- a load for servers ----

class connection {
 public:
  ~connection() {
    if (socket_ >= 0) close(socket_);
  }
  // Until the server listens, or the deadline.
  [[nodiscard]] bool open(std::uint16_t port) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (const std::uint64_t end_ns = monotonic_ns() + ready_ns; monotonic_ns() < end_ns && !stop_requested();) {
      socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (socket_ >= 0 && connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) return true;
      if (socket_ >= 0) close(std::exchange(socket_, -1));
      usleep(50'000);
    }
    return false;
  }
  [[nodiscard]] bool ask(const std::string& request, const std::string& last_line) {
    if (send(socket_, request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size()))
      return false;
    std::string answer;
    while (!answer.ends_with(last_line)) {
      char part[4096];
      const ssize_t got = recv(socket_, part, sizeof part, 0);
      if (got <= 0) return false;
      answer.append(part, static_cast<std::size_t>(got));
    }
    return true;
  }

 private:
  int socket_ = -1;
};

std::string key_of(std::uint64_t number) {
  return fmt::format("key-{:012}", number);
}

// Stores values and asks for random ones.
bool load(const std::string& name, std::uint16_t port, bool quick) {
  const std::uint64_t keys = quick ? 40'000 : 150'000;
  const std::uint64_t gets = quick ? 20'000 : 100'000;
  const bool is_redis = name == "redis";
  const std::string value(value_bytes, 'v');
  connection to;
  if (!to.open(port)) return false;
  bool works = true;
  for (std::uint64_t i = 0; i < keys && works; ++i) {
    works = is_redis ? to.ask(fmt::format("SET {} {}\r\n", key_of(i), value), "+OK\r\n")
                     : to.ask(fmt::format("set {} 0 0 {}\r\n{}\r\n", key_of(i), value_bytes, value), "STORED\r\n");
  }
  random_numbers random(5);
  for (std::uint64_t i = 0; i < gets && works; ++i) {
    const std::string key = key_of(random.below(keys));
    works = is_redis ? to.ask("GET " + key + "\r\n", value + "\r\n") : to.ask("get " + key + "\r\n", "END\r\n");
  }
  return works;
}

// ---- tracing ----

result<void> run_traced(const traced& one, const std::string& folder, bool quick) {
  std::vector<std::string> command = {product("farheap"), "trace", "--local", one.local, "--far",
                                      "memory:",          "-o",    folder,    "--"};
  command.insert(command.end(), one.command.begin(), one.command.end());
  if (one.port == 0) {
    const auto ended = run_child(command, deadline_ns);
    if (!ended) return ended.error();
    return {};
  }
  // Not every server says when it is ready, so connecting finds out.
  std::vector<std::string> announced = {"/bin/sh", "-c", "echo started; exec \"$@\"", "sh"};
  announced.insert(announced.end(), command.begin(), command.end());
  const auto server = background_server::start(announced, "started", ready_ns);
  if (!server) return server.error();
  if (!load(one.name, one.port, quick)) return error{"it did not answer as such a server does", EPROTO};
  return {};
}

result<void> measure(const traced& one, bool quick, report& figures) {
  if (access(one.command[0].c_str(), X_OK) != 0) {
    return error{fmt::format("{} is not installed", one.command[0]), ENOENT};
  }
  const scratch_folder scratch;
  if (scratch.path().empty()) return error{"cannot make a folder for temporary files", errno};
  const result<void> ran = run_traced(one, scratch.path(), quick);
  if (!ran) return ran;
  const auto said = run_child({product("farheap"), "report", scratch.path(), "--json"}, deadline_ns);
  if (!said) return said.error();
  const evaluation::json found = evaluation::json::parse(said.value().output);
  if (found.is_null()) return error{"farheap report printed no JSON", EPROTO};
  const row_key key{"lines", one.name, 1};
  figures.add(key, "misses", found.at("misses"));
  figures.add(key, "lines", found.at("all_lines"));
  figures.add(key, "lines_for_95_percent", found.at("explaining"));
  std::string first;
  double share = 0;
  for (const evaluation::json& line : found.at("lines")) {
    if (!first.empty()) break;
    first = line.at("place").get<std::string>();
    share = line.at("share");
  }
  figures.add(key, "first_line_share", share);
  figures.note(
      fmt::format("{}: {:.0f}% of its misses are at {}", one.name, share * 100, fs::path(first).filename().string()));
  return {};
}

}  // namespace

result<outcome> run_coverage(const settings& chosen) {
  report figures("coverage");
  for (const traced& one : programs(chosen.quick)) {
    if (stop_requested()) return error{"stopped by a signal", EINTR};
    if (one.name.find(chosen.only) == std::string::npos) continue;
    fmt::print(stderr, "coverage: {}\n", one.name);
    const result<void> done = measure(one, chosen.quick, figures);
    if (!done) figures.skip(one.name, done.error().message);
  }
  figures.note(
      "a line: of the program or its libraries, not of the C and C++ libraries; Python's own line where there is one; "
      "without debug information an address counts as a line");
  return outcome{std::move(figures),
                 {{{"misses", "misses", 1, 0},
                   {"lines", "lines", 1, 0},
                   {"lines_for_95_percent", "for 95%", 1, 0},
                   {"first_line_share", "first line", 1, 2}},
                  "",
                  ""}};
}

}  // namespace far::bench
