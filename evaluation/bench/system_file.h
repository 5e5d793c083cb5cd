// Small files under /sys, /proc and cgroup mounts: one value each, read and written whole.
#pragma once

#include <string>

#include "base/result.h"

namespace far::bench {

// The content without the last newline.
[[nodiscard]] result<std::string> read_system_file(const std::string& path);

// Fails with the reason that the kernel gives.
[[nodiscard]] result<void> write_system_file(const std::string& path, const std::string& value);

}  // namespace far::bench
