#include "background_server.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "base/units.h"
#include "benchmark.h"
#include "clocks.h"
#include "costs.h"

namespace far::bench {

namespace {

constexpr std::uint64_t grace_ns = 3'000'000'000;  // from SIGTERM to SIGKILL

[[noreturn]] void become(const std::vector<std::string>& arguments, int output, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  dup2(output, STDOUT_FILENO);
  const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
  dup2(nothing, STDERR_FILENO);
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  execv(pointers[0], pointers.data());
  _exit(127);
}

// Reads lines until one contains `wanted`; empty when there is none before the end of the stream or the deadline.
std::string await_line(int output, const std::string& wanted, std::uint64_t deadline_ns) {
  const std::uint64_t end_ns = monotonic_ns() + deadline_ns;
  std::string text;
  while (monotonic_ns() < end_ns && !stop_requested()) {
    pollfd waited{output, POLLIN, 0};
    if (poll(&waited, 1, 100) <= 0) continue;
    std::array<char, 4096> buffer;
    const ssize_t got = read(output, buffer.data(), buffer.size());
    if (got <= 0) return {};
    text.append(buffer.data(), static_cast<std::size_t>(got));
    for (std::size_t newline = text.find('\n'); newline != std::string::npos; newline = text.find('\n')) {
      const std::string line = text.substr(0, newline);
      if (line.find(wanted) != std::string::npos) return line;
      text.erase(0, newline + 1);
    }
  }
  return {};
}

}  // namespace

result<std::unique_ptr<background_server>> background_server::start(const std::vector<std::string>& arguments,
                                                                    const std::string& ready,
                                                                    std::uint64_t deadline_ns) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return error{fmt::format("cannot make a pipe: {}", strerror(errno)), errno};
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) become(arguments, ends[1], parent);
  const int failure = errno;
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    return error{fmt::format("cannot fork: {}", strerror(failure)), failure};
  }
  std::unique_ptr<background_server> started(new background_server(child, ends[0]));
  started->ready_line_ = await_line(ends[0], ready, deadline_ns);
  if (started->ready_line_.empty()) {
    return error{fmt::format("{} did not get ready; start it by hand to see why", arguments[0]), ECHILD};
  }
  return started;
}

background_server::~background_server() {
  kill(process_, SIGTERM);
  const std::uint64_t end_ns = monotonic_ns() + grace_ns;
  while (waitpid(process_, nullptr, WNOHANG) == 0) {
    if (monotonic_ns() > end_ns) kill(process_, SIGKILL);
    usleep(10'000);
  }
  close(output_);
}

std::uint64_t background_server::cpu_ns() const {
  return cpu_ns_of(process_);
}

std::uint64_t background_server::peak_bytes() const {
  std::ifstream status(fmt::format("/proc/{}/status", process_));
  for (std::string word; status >> word;) {
    std::uint64_t kilobytes = 0;
    if (word == "VmHWM:" && status >> kilobytes) return kilobytes * kib;
  }
  return 0;
}

}  // namespace far::bench
