// What a program under `farheap run`, or with the runtime in it, leaves in the file of `--stats-json`.
#pragma once

#include <string>

#include "base/result.h"

namespace far::bench {

struct runtime_statistics {
  double misses = 0;
  double fetched_pages = 0;
};

// Fails when the program has left nothing: it ran without the runtime, or did not end as it should.
[[nodiscard]] result<runtime_statistics> read_statistics(const std::string& file);

}  // namespace far::bench
