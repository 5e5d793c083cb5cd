// How long each phase of a program takes.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace apps {

struct phase {
  std::string name;
  double seconds;
};

class phases {
 public:
  // Calls work() and notes its time.
  template <typename Work>
  void run(std::string name, Work&& work) {
    const auto start = std::chrono::steady_clock::now();
    std::forward<Work>(work)();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    all_.push_back({std::move(name), taken.count()});
  }

  const std::vector<phase>& all() const { return all_; }

  // Of all phases so far.
  double seconds() const {
    double sum = 0;
    for (const phase& one : all_) sum += one.seconds;
    return sum;
  }

 private:
  std::vector<phase> all_;
};

}  // namespace apps
