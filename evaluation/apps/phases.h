// How long each phase of a program takes.
#pragma once

#include <time.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace apps {

struct phase {
  std::string name;
  double seconds;
  double cpu_seconds;  // of the thread that works, so that others on its processor do not count
};

class phases {
 public:
  // Calls work() and notes its time.
  template <typename Work>
  void run(std::string name, Work&& work) {
    const auto start = std::chrono::steady_clock::now();
    const double cpu_start = cpu_now();
    std::forward<Work>(work)();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    all_.push_back({std::move(name), taken.count(), cpu_now() - cpu_start});
  }

  const std::vector<phase>& all() const { return all_; }

  // Of all phases so far.
  double seconds() const {
    double sum = 0;
    for (const phase& one : all_) sum += one.seconds;
    return sum;
  }

 private:
  static double cpu_now() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  }

  std::vector<phase> all_;
};

}  // namespace apps
