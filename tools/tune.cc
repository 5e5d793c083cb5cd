#include "tune.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/result.h"
#include "message.h"
#include "program.h"

namespace far::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::array<unsigned, 5> sizes{0, 64, 128, 256, 512};  // 0: whole pages
constexpr double clear_gain = 0.95;                             // times that differ by less may be noise

struct measurement {
  double seconds = 0;
  double cpu_seconds = 0;
  double fetched_pages = 0;
};

// A folder of this user alone, removed at the end.
class scratch_folder {
 public:
  scratch_folder() {
    std::string name = (fs::temp_directory_path() / "farheap-tune.XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~scratch_folder() {
    std::error_code ignored;  // there may be none
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

[[noreturn]] void become_program(const run_options& program) {
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(nothing, STDOUT_FILENO) < 0) {
    _exit(fail(exit_failure, fmt::format("cannot use /dev/null: {}", std::strerror(errno))));
  }
  _exit(run(program));
}

result<double> fetched_pages_in(const std::string& file) {
  std::ifstream stream(file);
  const nlohmann::json counted = nlohmann::json::parse(stream, nullptr, false);
  if (!counted.is_object() || !counted.contains("fetched_pages")) {
    return error{"the program left no statistics: it runs natively here, or did not exit; try it under `farheap run`",
                 exit_failure};
  }
  return counted.at("fetched_pages").get<double>();
}

// The code of an error is the exit code to end with.
result<measurement> measure(run_options program, unsigned object_bytes, const std::string& folder) {
  program.object_bytes = std::to_string(object_bytes);
  program.stats_json = folder + "/stats.json";
  std::error_code ignored;  // there is none before the first run
  fs::remove(program.stats_json, ignored);
  const auto start = std::chrono::steady_clock::now();
  const pid_t started = fork();
  if (started < 0) return error{fmt::format("cannot start a process: {}", std::strerror(errno)), exit_failure};
  if (started == 0) become_program(program);
  int status = 0;
  struct rusage used{};
  while (wait4(started, &status, 0, &used) < 0) {
    if (errno != EINTR) return error{fmt::format("cannot wait for it: {}", std::strerror(errno)), exit_failure};
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  if (WIFSIGNALED(status)) {
    return error{fmt::format("signal {} ended '{}'", WTERMSIG(status), program.program.front()),
                 128 + WTERMSIG(status)};
  }
  if (const int code = WEXITSTATUS(status); code != 0) {
    return error{fmt::format("'{}' ended with exit code {}", program.program.front(), code), code};
  }
  const result<double> fetched = fetched_pages_in(program.stats_json);
  if (!fetched) return fetched.error();
  return measurement{elapsed.count(), seconds_of(used.ru_utime) + seconds_of(used.ru_stime), fetched.value()};
}

double median(std::vector<measurement> all, double measurement::* of) {
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::nth_element(all.begin(), middle, all.end(), [of](const auto& a, const auto& b) { return a.*of < b.*of; });
  return *middle.*of;
}

using medians = std::array<double, sizes.size()>;

// Times say nothing where the far tier was not used, or by the same pages whatever the size.
std::string advice(const medians& seconds, const medians& fetched) {
  if (fetched.front() == 0) return "nothing came from the far tier: give a smaller --local.";
  const auto [least, most] = std::minmax_element(fetched.begin(), fetched.end());
  if (*least > clear_gain * *most) {
    return "sizes make no difference: compile and link the program with -ffar-objects first, or leave it out for this "
           "one.";
  }
  const auto best = std::min_element(seconds.begin() + 1, seconds.end());
  const double share = *best / seconds.front();
  if (share < clear_gain) {
    const unsigned bytes = sizes[static_cast<std::size_t>(best - seconds.begin())];
    return fmt::format("-ffar-objects={} takes {:.2f} of the time of whole pages: compile and link with it.", bytes,
                       share);
  }
  return "no size is faster than whole pages by more than 5%: compile without -ffar-objects.";
}

}  // namespace

int tune(const tune_options& chosen) {
  const scratch_folder folder;
  if (folder.path().empty()) {
    return fail(exit_failure, fmt::format("cannot make a folder in {}: {}", fs::temp_directory_path().string(),
                                          std::strerror(errno)));
  }
  std::array<std::vector<measurement>, sizes.size()> all;
  for (unsigned round = 0; round < chosen.rounds; ++round) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const result<measurement> found = measure(chosen.run, sizes[i], folder.path());
      if (!found) return fail(found.error().code, found.error().message);
      all[i].push_back(found.value());
    }
  }
  medians seconds{};
  medians fetched{};
  fmt::print("{:<11} {:>9} {:>9} {:>14}\n", "objects", "time, s", "CPU, s", "pages fetched");
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    seconds[i] = median(all[i], &measurement::seconds);
    fetched[i] = median(all[i], &measurement::fetched_pages);
    fmt::print("{:<11} {:>9.2f} {:>9.2f} {:>14.0f}\n", sizes[i] == 0 ? "whole pages" : fmt::format("{} B", sizes[i]),
               seconds[i], median(all[i], &measurement::cpu_seconds), fetched[i]);
  }
  fmt::print("{}\n", advice(seconds, fetched));
  return 0;
}

}  // namespace far::tools
