// A server that a benchmark talks to, as a child process: started, waited for until it is ready, watched for the CPU
// time it takes, and ended.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace far::bench {

class background_server {
 public:
  // Starts `arguments` and waits until a line of its standard output contains `ready`. Requires: `arguments[0]` is a
  // path. Fails when it ends before, or is not ready within `deadline_ns`. It is killed when this program dies.
  [[nodiscard]] static result<std::unique_ptr<background_server>> start(const std::vector<std::string>& arguments,
                                                                        const std::string& ready,
                                                                        std::uint64_t deadline_ns);
  ~background_server();
  background_server(const background_server&) = delete;
  background_server& operator=(const background_server&) = delete;

  // The line that told it was ready.
  [[nodiscard]] const std::string& ready_line() const { return ready_line_; }

  [[nodiscard]] pid_t process() const { return process_; }
  // User and system time of all its threads so far.
  [[nodiscard]] std::uint64_t cpu_ns() const;
  // The most memory that was resident in it so far; 0: unknown.
  [[nodiscard]] std::uint64_t peak_bytes() const;

 private:
  background_server(pid_t process, int output) : process_(process), output_(output) {}

  pid_t process_;
  int output_;
  std::string ready_line_;
};

}  // namespace far::bench
