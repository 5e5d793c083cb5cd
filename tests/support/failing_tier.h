// A far tier that a test lets fail: a test program that links failing_tier.cc gets memory: behind a faulty_backend for
// every far tier.
#pragma once

#include "tests/support/faulty_backend.h"

namespace far::heap {

// That of the far::runtime, or pager, made last. Requires that it lives.
[[nodiscard]] backend::faulty_backend& failing_tier();

}  // namespace far::heap
