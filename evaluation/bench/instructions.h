// Counts the instructions of the calling thread in user space, where the machine has a counter for them.
#pragma once

#include <cstdint>
#include <string>

namespace far::bench {

class instruction_counter {
 public:
  // For the calling thread.
  instruction_counter();
  ~instruction_counter();
  instruction_counter(const instruction_counter&) = delete;
  instruction_counter& operator=(const instruction_counter&) = delete;

  [[nodiscard]] bool works() const { return descriptor_ >= 0; }
  // Why it does not, and what to do. Empty when it does.
  [[nodiscard]] const std::string& why_not() const { return why_not_; }
  // Instructions so far; 0 when it does not work.
  [[nodiscard]] std::uint64_t now() const;

 private:
  int descriptor_ = -1;
  std::string why_not_;
};

}  // namespace far::bench
