// The states of pages, for software guards, hints and waiting threads. It takes no lock, so an answer describes a
// moment in the past.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/eviction_clock.h"
#include "engine/page_checks.h"
#include "engine/residency.h"

namespace far::engine {

class page_view {
 public:
  // Requires: all outlive the view.
  page_view(const residency& pages, const eviction_clock& time, const page_checks& checks)
      : pages_(pages), time_(time), checks_(checks) {}

  [[nodiscard]] std::uint64_t pages() const { return pages_.pages(); }
  [[nodiscard]] const residency& words() const { return pages_; }

  // The state of an access: the page is still being fetched; the access is possible now.
  [[nodiscard]] bool on_its_way(page_id page) const { return where(page) == state::fetching; }
  [[nodiscard]] bool accessible(page_id page, bool write) const {
    const page_word word = pages_.load(page);
    return word.where() == state::resident && (!write || word.dirty());
  }

  [[nodiscard]] bool is_remote(page_id page) const { return where(page) == state::remote; }
  [[nodiscard]] bool is_untouched(page_id page) const { return where(page) == state::untouched; }
  [[nodiscard]] bool is_lost(page_id page) const { return where(page) == state::lost; }
  [[nodiscard]] bool is_foreign(page_id page) const { return where(page) == state::foreign; }
  [[nodiscard]] bool is_away(page_id page) const {
    const state now = pages_.load_in_order(page).where();
    return now == state::remote || now == state::untouched || now == state::lost;
  }
  [[nodiscard]] std::optional<std::uint64_t> slot_of(page_id page) const {
    const page_word word = pages_.load(page);
    return word.where() == state::remote ? std::optional(word.place()) : std::nullopt;
  }
  [[nodiscard]] bool takes_object_path(page_id page) const {
    const page_word word = pages_.load(page);
    return word.where() == state::remote && word.object_path();
  }
  // A name for the bytes of a Remote page (page_checks::version). Nothing while the page is in another state. A name
  // that is out of date when it is returned was not when this was called.
  [[nodiscard]] std::optional<std::uint64_t> version(page_id page) const {
    if (!is_remote(page)) return std::nullopt;
    return checks_.version(page);
  }
  // Requires: the page is Remote.
  [[nodiscard]] bool left_just_now(page_id page) const { return time_.epochs_since(pages_.load(page).epoch()) <= 1; }

 private:
  [[nodiscard]] state where(page_id page) const { return pages_.load(page).where(); }

  const residency& pages_;
  const eviction_clock& time_;
  const page_checks& checks_;
};

}  // namespace far::engine
