#include "trace.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace far::simulation {
namespace {

bool is_on = false;

}  // namespace

void set_tracing(bool on) {
  is_on = on;
}

bool tracing() {
  return is_on;
}

void trace(const char* format, ...) {
  if (!is_on) return;
  std::va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::putchar('\n');
}

void fail(const char* format, ...) {
  std::fflush(stdout);
  std::va_list arguments;
  va_start(arguments, format);
  std::fprintf(stderr, "simulation: ");
  std::vfprintf(stderr, format, arguments);
  std::fprintf(stderr, "\n");
  va_end(arguments);
  std::abort();
}

}  // namespace far::simulation
