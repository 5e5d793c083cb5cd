// The kernel merges equal pages of processes that want it to (KSM; PR_SET_MEMORY_MERGE). It forgets then that a page is
// protected against writes: nobody would learn of the next write to it, and the page would leave as an unchanged one,
// without what was written. So it must not merge far memory.
#pragma once

namespace far::platform {

// Ends what this process has from before its far memory: programs inherit it, as from a service manager.
void end_page_merging() noexcept;

// What the program asks for, and believes.
void want_page_merging(bool wants) noexcept;
[[nodiscard]] bool wants_page_merging() noexcept;

}  // namespace far::platform
