// `farheap top`: the programs under `farheap run`, and those with a far::runtime, live.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "job_view.h"

namespace far::tools {

struct top_options {
  std::vector<std::string> pids;  // empty: all jobs of this user
  double interval_s = 1;
  bool once = false;
  bool json = false;
};

// One process, with what happened in it between two looks.
struct top_row {
  preload::job_process process;
  double misses_per_s = 0;
  double prefetch_hits_per_s = 0;
  double evicted_per_s = 0;
  double waited_percent = 0;  // of the time, summed over threads: two that always wait make 200
};

enum class top_order { misses, local, far, pid };

// The rows of the processes that run in `after`, in the order of their jobs. `before`: the look before, for the rates.
[[nodiscard]] std::vector<top_row> compare(const std::vector<job_snapshot>& before,
                                           const std::vector<job_snapshot>& after);
void sort_rows(std::vector<top_row>& rows, top_order order);

// A screen of at most `lines` lines of at most `columns` characters.
[[nodiscard]] std::vector<std::string> render(const std::vector<job_snapshot>& jobs, const std::vector<top_row>& rows,
                                              top_order order, std::size_t lines, std::size_t columns);

// 1536 MiB as "1.50G": at most five characters.
[[nodiscard]] std::string short_size(std::uint64_t bytes);

// Returns the exit code, after one line on standard error when it is not 0.
[[nodiscard]] int top(const top_options& chosen);

}  // namespace far::tools
