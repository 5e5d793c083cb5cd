// The hints of these programs. The same source is built three times to show what they are worth: with all of them; with
// APP_BASIC_HINTS, which leaves out what extends them (read-ahead, priorities, prefetch; Eden, section 3.1); and with
// none, by APP_WITHOUT_HINTS.
#pragma once

#ifdef APP_WITHOUT_HINTS
#define far_hint(address, ...) static_cast<void>(0)
#else
#include <far/hint.h>
#endif

#ifdef APP_BASIC_HINTS
#undef far_hint
#define far_hint(address, ...)                                         \
  do {                                                                 \
    static far_hint_site site_here = {__FILE__, __LINE__, 0};          \
    static thread_local uintptr_t last_page_here = UINTPTR_MAX;        \
    far_hint_options options_here = {__VA_ARGS__};                     \
    options_here.read_ahead = 0;                                       \
    options_here.prefetch = false;                                     \
    options_here.eviction_priority = 0;                                \
    far_hint_at((address), options_here, &last_page_here, &site_here); \
  } while (0)
#endif
