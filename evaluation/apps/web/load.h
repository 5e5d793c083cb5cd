// Makes the load, and measures.
#pragma once

#include <cstdint>
#include <vector>

#include "site.h"

namespace web {

struct load_options {
  unsigned threads = 2;           // that answer
  std::uint64_t closed_loop = 0;  // requests, each thread the next when it has answered one; 0: open loop
  double rate = 1000;             // requests a second, open loop
  double seconds = 10;            // open loop
  std::uint64_t seed = 1;
};

struct measurement {
  std::uint64_t requests = 0;
  std::uint64_t checksum = 0;               // the same for the same requests
  double seconds = 0;                       // until the last answer
  std::vector<std::uint64_t> latencies_ns;  // sorted; open loop: since the moment when the request was due
};

// Open loop: a thread makes requests at the moments of a Poisson process, whether or not they can be answered in time.
[[nodiscard]] measurement run(const site& served, const load_options& options);

}  // namespace web
