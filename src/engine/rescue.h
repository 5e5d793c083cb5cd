// Rescue: a page that is touched while it is lifted comes back from staging, without waiting for the far tier.
#pragma once

#include "engine/core.h"

namespace far::engine {

// Claims `page` for a rescue if it is lifted, and brings it back. `word` is its word as last seen. Returns false when
// another thread changed it first, or when so many were rescued that a batch must be finished before the next.
[[nodiscard]] bool rescue(core_for_misses& shared, page_id page, page_word word);

// Maps a copy of the staged bytes at `page`, makes it Resident and lets the evictor have the staging page. Requires:
// the caller has taken the page from Evicting, lifted, to Fetching, and has charged a frame for it.
void bring_back(core_for_misses& shared, page_id page, std::size_t staging_page);

}  // namespace far::engine
