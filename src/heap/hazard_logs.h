// All hazard logs of scopes in this process, whichever runtime their pages belong to.
#pragma once

#include <cstddef>
#include <cstdint>

#include "far/detail/hazard_log.h"

namespace far::heap {

using detail::hazard_log;

// Makes every thread of the process pass a full memory fence: what they stored before is visible to the caller
// afterwards, and they see what the caller stored before (membarrier(2); asymmetric, so that scopes need no fence of
// their own).
void fence_all_threads() noexcept;

// Calls `seen` with every hazard log that has ever been in use; none is destroyed before the process ends. The lock of
// the registry is not held meanwhile.
void for_each_hazard_log(void (*seen)(const hazard_log& one, void* context), void* context) noexcept;

template <typename Seen>
void for_each_hazard_log(Seen seen) {
  for_each_hazard_log([](const hazard_log& one, void* context) { (*static_cast<Seen*>(context))(one); }, &seen);
}

// A page that one hazard log holds is held by another from now on, too, and the first may let go of it. Called by the
// second's owner after it holds the page: a walk over the hazard logs in the meantime is repeated.
void note_handed_over() noexcept;
[[nodiscard]] std::uint64_t count_handed_over() noexcept;

// A hazard log for a stretch of work of the runtime's own, beside that of the fiber or thread that does it. Its pages
// stay.
class borrowed_hazard_log {
 public:
  borrowed_hazard_log();
  ~borrowed_hazard_log();
  borrowed_hazard_log(const borrowed_hazard_log&) = delete;
  borrowed_hazard_log& operator=(const borrowed_hazard_log&) = delete;
  hazard_log& operator*() { return *one_; }
  hazard_log* operator->() { return one_; }

 private:
  hazard_log* one_;
};

}  // namespace far::heap
