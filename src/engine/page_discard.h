// Forgetting the bytes of pages, wherever they are.
#pragma once

#include "engine/core.h"

namespace far::engine {

// Forgets the bytes of a page of a guarded block. begin_discard does so, or claims the page for finish_discard and sets
// `unmap`; it returns false while another thread is working on the page. finish_discard takes a range of claimed pages;
// those that are locked in memory stay Resident.
[[nodiscard]] bool begin_discard(core_for_ranges& shared, page_id page, bool* unmap);
void finish_discard(core_for_ranges& shared, page_range range);

// Drops the frame of one page that the caller has claimed. Returns false when it is locked in memory and keeps its
// bytes.
[[nodiscard]] bool drop_page(core_for_ranges& shared, page_id page);

}  // namespace far::engine
