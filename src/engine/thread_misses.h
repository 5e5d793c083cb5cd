// A miss of a thread that waits for it: it holds a fetcher while the page is on its way, and helps others in other
// states.
#pragma once

#include "engine/fetcher_pool.h"
#include "engine/miss.h"

namespace far::engine {

// Returns `resolved` or `lost`. Requires: no lock of the engine is held.
[[nodiscard]] miss::state resolve_on_thread(engine& with, host& around, const fetcher_pool& fetchers,
                                            read_ahead_state& streams, wanted_page wanted,
                                            caller who = caller::of_program);

}  // namespace far::engine
