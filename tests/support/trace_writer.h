// Writes traces for tests: the recorder's part of format.h, with numbers of the test's choosing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trace/format.h"

namespace far::trace {

class test_writer {
 public:
  explicit test_writer(std::uint32_t pid = 100);

  // Return the number to use in misses and allocations.
  std::uint32_t stack(const std::vector<std::uint64_t>& addresses);
  std::uint32_t python_stack(std::string_view lines);

  // Each miss and allocation is 1000 ns later than the one before.
  void miss(std::uint64_t address, std::uint32_t stack, std::uint32_t thread = 1, miss_kind kind = miss_kind::read,
            std::uint32_t python_stack = 0);
  void allocation(std::uint64_t address, std::uint64_t bytes, std::uint32_t stack);
  void release(std::uint64_t address);
  void maps(std::string_view text);
  void hint_site(std::string_view file, unsigned line, std::uint64_t calls, std::uint64_t misses);
  void end(std::uint64_t misses, std::uint64_t hinted_misses);
  // A record as it stands, also a wrong one.
  void record(record_type type, std::string_view payload);

  [[nodiscard]] const std::string& bytes() const { return bytes_; }
  void save(const std::string& path) const;

 private:
  std::string bytes_;
  std::uint64_t now_ns_ = 5'000'000;
  std::uint32_t stacks_ = 0;
  std::uint32_t python_stacks_ = 0;
};

}  // namespace far::trace
