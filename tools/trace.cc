#include "trace.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "message.h"
#include "program.h"
#include "trace/reports.h"

namespace far::tools {
namespace {

namespace fs = std::filesystem;

constexpr int signal_exit = 128;  // as shells have it

// The program, for the handler below.
std::atomic<pid_t> running{0};

void pass_on(int number) {
  const int saved_errno = errno;
  if (const pid_t program = running.load(); program > 0) kill(program, number);
  errno = saved_errno;
}

// A terminal's own signals reach the program by themselves; those that are meant for us alone are passed on.
void handle_signals() {
  struct sigaction ignore{};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGINT, &ignore, nullptr);
  sigaction(SIGQUIT, &ignore, nullptr);
  struct sigaction pass{};
  pass.sa_handler = pass_on;
  pass.sa_flags = SA_RESTART;
  for (const int number : {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) sigaction(number, &pass, nullptr);
}

error refusal(const std::string& path, const std::string& why) {
  return {"-o: cannot record in '" + path + "': " + why + "; name a new or empty directory", exit_failure};
}

// Makes the directory, for this user alone. Traces of another run beside it would be read as one.
result<std::string> make_directory(const trace_options& chosen) {
  const std::string path = chosen.directory.empty() ? "farheap-trace." + std::to_string(getpid()) : chosen.directory;
  std::error_code failure;
  const fs::path absolute = fs::absolute(path, failure).lexically_normal();
  if (failure) return refusal(path, failure.message());
  const bool created = fs::create_directory(absolute, failure);
  if (failure) return refusal(path, failure.message());
  if (created) fs::permissions(absolute, fs::perms::owner_all, failure);
  if (!created && !fs::is_empty(absolute, failure)) {
    return refusal(path, failure ? failure.message() : "it is not empty");
  }
  if (access(absolute.c_str(), W_OK | X_OK) != 0) return refusal(path, std::strerror(errno));
  return absolute.string();
}

int exit_code_of(int status) {
  return WIFSIGNALED(status) ? signal_exit + WTERMSIG(status) : WEXITSTATUS(status);
}

int wait_for(pid_t program) {
  int status = 0;
  while (waitpid(program, &status, 0) < 0) {
    if (errno != EINTR) return fail(exit_failure, fmt::format("cannot wait for the program: {}", std::strerror(errno)));
  }
  running.store(0);
  return exit_code_of(status);
}

// A program that never started, or that runs without the runtime, leaves no file. Returns the exit code of the reports.
int write_reports(const std::string& directory) {
  std::error_code failure;
  if (fs::is_empty(directory, failure)) {
    fs::remove(directory, failure);
    return 0;
  }
  const result<std::string> summary = trace::write_reports(directory);
  if (!summary) return fail(exit_failure, summary.error().message);
  fmt::print(stderr, "{}farheap: the whole report is {}/report.html\n", summary.value(), directory);
  return 0;
}

}  // namespace

int trace(const trace_options& chosen) {
  const result<std::string> directory = make_directory(chosen);
  if (!directory) return fail(directory.error().code, directory.error().message);
  run_options program = chosen.run;
  program.fault_mode = "inline";
  program.trace_directory = directory.value();
  program.trace_sample = chosen.sample;
  const pid_t started = fork();
  if (started < 0) return fail(exit_failure, fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (started == 0) _exit(run(program));
  running.store(started);
  handle_signals();
  const int exit_code = wait_for(started);
  const int reported = write_reports(directory.value());
  return exit_code != 0 ? exit_code : reported;
}

}  // namespace far::tools
