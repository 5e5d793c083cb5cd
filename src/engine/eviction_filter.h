// Lets the layer above decide about pages that are about to leave: which are in use, and how the others come back.
#pragma once

#include <cstdint>
#include <span>

#include "engine/residency.h"

namespace far::engine {

// Pages that may leave soon, or are about to: at most 64.
struct eviction_candidates {
  std::span<const page_id> pages;
  std::uint64_t fetched = 0;  // a bit a page: it came from the far tier as a page, so its path selector said so
  std::uint64_t dirty = 0;    // it can be written without a fault, and what is written leaves with it
};

// A bit a page, in the order of the candidates. Pages with neither bit may leave now.
struct eviction_look {
  std::uint64_t warm = 0;    // has been used so much that it should not leave yet
  std::uint64_t ripens = 0;  // will leave, but somebody may have a pointer into it: ask again soon
  // Not a bit a page: changes when pages have ripened. As long as it is the same, asking again is useless.
  std::uint64_t ripening = 0;
};

struct eviction_verdict {
  std::uint64_t stay = 0;         // somebody may have a pointer into it, or it has been used since look()
  std::uint64_t object_path = 0;  // the path selector of those that leave
  std::uint64_t unused = 0;       // nobody reads or writes it before a software guard has brought it back
  std::uint64_t forced = 0;       // somebody may have a pointer into it, and it leaves all the same: when hard pressed
};

class eviction_filter {
 public:
  virtual ~eviction_filter() = default;

  // Called by evictors for pages that a policy named, before they are claimed; the limits of decide() apply. The call
  // cools the pages, and condemns those that are to leave. `hard_pressed`: none of them ripens.
  [[nodiscard]] virtual eviction_look look(const eviction_candidates& named, bool hard_pressed) noexcept = 0;

  // Called by evictors, on any thread, possibly several at a time, with pages that have just become Evicting: their
  // state bytes say so already. Must not wait, allocate from the far heap, or touch it. `hard_pressed`: the budget
  // cannot be kept otherwise, so pages that may be in use leave, too, on the page path (Atlas, section 4.2). A use of
  // their pointers brings them back to the same place by the hardware guard.
  [[nodiscard]] virtual eviction_verdict decide(const eviction_candidates& leaving, bool hard_pressed) noexcept = 0;

  // Whether the page leaves `unused` unless frames are short: it is used by means of a software guard only.
  [[nodiscard]] virtual bool leaves_unused(page_id page) const noexcept {
    static_cast<void>(page);
    return false;
  }

  // The hardware guard found an access to a page that is not Resident: no software guard had looked. Called before the
  // page is fetched, perhaps inside a fault handler; the same limits apply.
  virtual void on_unguarded_miss(page_id page) noexcept { static_cast<void>(page); }
};

}  // namespace far::engine
