// What the far tier did for a program on containers.
#pragma once

#include "apps/containers.h"
#include "common/json.h"

namespace apps {

// How often accesses waited for the far tier, and pages moved; nothing on the standard library's containers.
[[nodiscard]] inline evaluation::json statistics_of([[maybe_unused]] const memory::runtime& memory) {
#ifdef APP_ON_STD
  return nullptr;
#else
  const memory::runtime_statistics now = memory.statistics();
  return {{"misses", now.page_fetches + now.object_fetches},
          {"fetched_pages", now.fetched_pages},
          {"fetched_objects", now.object_fetches},
          {"evicted_pages", now.evicted_pages},
          {"forced_pages", now.forced_pages}};
#endif
}

}  // namespace apps
