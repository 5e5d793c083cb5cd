#include "base/use_check.h"

#include <cstdlib>

#include "base/log.h"

namespace far {

void use_check_failed(const char* rule) noexcept {
  log_line(log_level::error,
           "the program uses far memory wrongly: %s; a debugger shows where (the process aborts here)", rule);
  std::abort();
}

}  // namespace far
