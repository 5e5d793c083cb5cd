#include "apps/hinted.h"

namespace apps {

#ifdef APP_WITHOUT_HINTS
const bool has_hints = false;
#else
const bool has_hints = true;
#endif

}  // namespace apps
