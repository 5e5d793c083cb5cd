// The hints of these programs, or none with APP_WITHOUT_HINTS: the same source built twice shows what hints are worth.
#pragma once

#ifdef APP_WITHOUT_HINTS
#define far_hint(address, ...) static_cast<void>(0)
#else
#include <far/hint.h>
#endif

namespace apps {

#ifdef APP_WITHOUT_HINTS
constexpr bool has_hints = false;
#else
constexpr bool has_hints = true;
#endif

}  // namespace apps
