#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <sstream>

#include "base/units.h"
#include "benchmark.h"
#include "clocks.h"

namespace far::bench {

namespace {

struct pipe_pair {
  int reader = -1;
  int writer = -1;

  ~pipe_pair() {
    if (reader >= 0) close(reader);
    if (writer >= 0) close(writer);
  }
  [[nodiscard]] bool open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    reader = ends[0];
    writer = ends[1];
    return true;
  }
  void close_writer() {
    close(writer);
    writer = -1;
  }
};

[[noreturn]] void become(const std::vector<std::string>& arguments, int output, int errors, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  dup2(output, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  execv(pointers[0], pointers.data());
  dprintf(STDERR_FILENO, "cannot start %s: %s\n", pointers[0], strerror(errno));
  _exit(127);
}

// Appends what is there; false at the end of the stream.
bool drain(int descriptor, std::string& text) {
  std::array<char, 65536> buffer;
  const ssize_t got = read(descriptor, buffer.data(), buffer.size());
  if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
  return got > 0 || (got < 0 && errno == EINTR);
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const std::size_t newline = text.find_last_of("\n\r");
  return newline == std::string::npos ? text : text.substr(newline + 1);
}

// Reads both streams until they end. Returns why it gave up, or an empty string.
std::string collect(pipe_pair& output, pipe_pair& errors, std::string& output_text, std::string& error_text,
                    std::uint64_t deadline_ns) {
  bool output_open = true;
  bool errors_open = true;
  const std::uint64_t end_ns = monotonic_ns() + deadline_ns;
  while (output_open || errors_open) {
    if (stop_requested()) return "stopped by a signal";
    if (monotonic_ns() >= end_ns) return fmt::format("did not end within {}", format_duration(deadline_ns));
    std::array<pollfd, 2> waited = {pollfd{output_open ? output.reader : -1, POLLIN, 0},
                                    pollfd{errors_open ? errors.reader : -1, POLLIN, 0}};
    if (poll(waited.data(), waited.size(), 100) <= 0) continue;
    if (waited[0].revents != 0) output_open = drain(output.reader, output_text);
    if (waited[1].revents != 0) errors_open = drain(errors.reader, error_text);
  }
  return {};
}

std::string why_failed(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("was ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0) return fmt::format("exited with status {}", WEXITSTATUS(status));
  return {};
}

}  // namespace

result<child_outcome> run_child(const std::vector<std::string>& arguments, std::uint64_t deadline_ns) {
  pipe_pair output;
  pipe_pair errors;
  if (!output.open() || !errors.open()) return error{fmt::format("cannot make a pipe: {}", strerror(errno)), errno};
  const pid_t parent = getpid();
  const std::uint64_t start_ns = monotonic_ns();
  const pid_t child = fork();
  if (child < 0) return error{fmt::format("cannot fork: {}", strerror(errno)), errno};
  if (child == 0) become(arguments, output.writer, errors.writer, parent);
  output.close_writer();
  errors.close_writer();

  child_outcome outcome;
  std::string error_text;
  std::string failure = collect(output, errors, outcome.output, error_text, deadline_ns);
  if (!failure.empty()) kill(child, SIGKILL);
  int status = 0;
  rusage usage{};
  while (wait4(child, &status, 0, &usage) < 0 && errno == EINTR) continue;
  outcome.elapsed_ns = monotonic_ns() - start_ns;
  const auto nanoseconds = [](const timeval& time) {
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(time.tv_usec) * 1000u;
  };
  outcome.cpu_ns = nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime);
  outcome.peak_bytes = static_cast<std::uint64_t>(usage.ru_maxrss) * kib;
  if (failure.empty()) failure = why_failed(status);
  if (failure.empty()) return outcome;
  const std::string said = last_line(error_text);
  return error{said.empty() ? failure : fmt::format("{}: {}", failure, said), ECHILD};
}

std::string own_path() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  return length > 0 ? std::string(path.data(), static_cast<std::size_t>(length)) : std::string("farheap-bench");
}

std::string product(const std::string& name) {
  const std::string own = own_path();
  return own.substr(0, own.find_last_of('/') + 1) + name;
}

std::string find_program(const std::string& name) {
  const char* const folders = getenv("PATH");
  std::istringstream list(folders != nullptr ? folders : "/usr/bin:/bin");
  for (std::string folder; std::getline(list, folder, ':');) {
    const std::string path = folder + "/" + name;
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

}  // namespace far::bench
