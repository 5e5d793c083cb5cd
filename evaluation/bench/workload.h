// The workloads of `farheap-bench pager`: how threads walk over a working set, with contents that depend on the address
// and are checked at every access.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "clocks.h"
#include "samples.h"

namespace far::bench {

enum class pattern { sequential_read, sequential_write, stride_read, backward_read, random_read, random_write };

// In the order in which they run: after filling, the sequential ones begin where nothing is resident.
inline constexpr std::array all_patterns = {pattern::sequential_read, pattern::sequential_write, pattern::stride_read,
                                            pattern::backward_read,   pattern::random_read,      pattern::random_write};

[[nodiscard]] std::string_view name_of(pattern walked);  // "random_read"
[[nodiscard]] constexpr bool is_random(pattern walked) {
  return walked == pattern::random_read || walked == pattern::random_write;
}
// Sequential patterns read every byte of a page; the others read its first cache line.
[[nodiscard]] constexpr bool is_sequential(pattern walked) {
  return walked == pattern::sequential_read || walked == pattern::sequential_write;
}

// How long a pass over the memory is.
struct pass_size {
  std::size_t sequential_accesses = 0;
  std::size_t stride_accesses = 0;  // also backward
  std::size_t random_accesses = 0;

  [[nodiscard]] std::size_t accesses(pattern walked) const;
};

struct pass_result {
  latency_summary every;   // all accesses
  latency_summary missed;  // those that took 1 us and longer: a hit takes 0.3 us at most
  std::uint64_t accesses = 0;
  std::uint64_t elapsed_ns = 0;
  std::uint64_t cpu_ns = 0;         // of this process, all threads
  std::uint64_t kernel_cpu_ns = 0;  // of all threads of the kernel; 0 when unknown
  std::uint64_t major_faults = 0;   // of this process
};

// A working set of pages, each of which half compresses.
class patterned_memory {
 public:
  // Requires: `base` is page-aligned and outlives this. Allocates 4 bytes a page beside it, and what passes need.
  patterned_memory(std::byte* base, std::size_t pages, const pass_size& size);

  // Writes every page.
  void fill();

  // Walks over the memory with `threads` threads; each has its own part. Stops the process when a page does not hold
  // the bytes that were last written there.
  [[nodiscard]] pass_result walk(pattern walked, unsigned threads);

 private:
  struct part {
    std::size_t first = 0;
    std::size_t pages = 0;
  };

  void walk_part(pattern walked, part own, std::uint64_t seed, std::uint32_t* ticks, std::size_t accesses);
  void read_page(std::size_t page, bool whole);
  void write_page(std::size_t page, bool whole);
  [[nodiscard]] std::uint64_t* words(std::size_t page) {
    return reinterpret_cast<std::uint64_t*>(base_ + page * page_bytes);
  }

  std::byte* base_;
  std::size_t pages_;
  pass_size size_;
  tick_scale scale_;
  std::vector<std::uint32_t> generations_;  // how often each page was written: tells a stale page from a new one
  std::vector<std::uint32_t> ticks_;        // of each access of a pass
  std::size_t sequential_cursor_ = 0;       // where the next sequential pass begins, in pages from the start of a part
  std::uint64_t passes_ = 0;
};

}  // namespace far::bench
