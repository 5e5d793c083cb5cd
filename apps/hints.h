// far_hint() for applications that are built twice: with hints, and without, to be compared with.
#pragma once

#ifdef APP_WITHOUT_HINTS
#define far_hint(address, ...) ((void)0)
#else
#include <far/hint.h>
#endif
