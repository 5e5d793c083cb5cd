// The far tier of programs that run without --far (docs/decisions/0065-default-tier.md).
#pragma once

#include <cstdint>
#include <string>

#include "platform/system_memory.h"

namespace far::preload {

struct tier_circumstances {
  platform::system_memory memory;
  std::uint64_t budget_bytes = 0;
  bool files_in_ram = false;     // a plain `file:` would lie in a tmpfs
  bool data_is_limited = false;  // RLIMIT_DATA, against which all addresses of compressed memory count
};

// A URI: compressed memory as large as the machine can spare beside the budget, over a file if that is on a disk.
[[nodiscard]] std::string default_far_uri_for(const tier_circumstances& here);

// The default of a process in the same run that limits its own data, or had it limited by its parent.
[[nodiscard]] std::string default_far_uri_under_limit(const tier_circumstances& here);

// Whether this process has a limit on data.
[[nodiscard]] bool data_is_limited();

}  // namespace far::preload
