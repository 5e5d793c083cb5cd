#include "base/check.h"

#include <cstdlib>

#include "base/log.h"

namespace far {

void check_failed(const char* file, int line, const char* expression, const char* why) noexcept {
  log_line(log_level::error, "internal error at %s:%d: %s (%s); please report this", file, line, why, expression);
  std::abort();
}

}  // namespace far
