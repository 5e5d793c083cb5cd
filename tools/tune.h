// `farheap tune`: runs a program of -ffar-objects with each size of objects, and says which is the fastest.
#pragma once

#include "run.h"

namespace far::tools {

struct tune_options {
  run_options run;
  unsigned rounds = 3;  // of all sizes
};

// Prints a table on standard output, with medians over the rounds. What the program prints is dropped, but for its
// errors; it reads nothing. Returns 0; or the exit code of the first run that failed, with 128 added to a signal's
// number.
[[nodiscard]] int tune(const tune_options& chosen);

}  // namespace far::tools
