// Pages of a residency in the states that a test wants.
#pragma once

#include "engine/residency.h"

namespace far::engine {

inline state next_after(state now) {
  switch (now) {
    case state::fetching: return state::resident;
    case state::resident: return state::evicting;
    case state::evicting: return state::remote;
    default: return state::fetching;
  }
}

// Takes the page there step by step, as the engine does; `epoch`: when it left.
inline void put(residency& pages, page_id page, state where, unsigned epoch) {
  while (pages.load(page).where() != where) {
    pages.update(page, [epoch](page_word word) {
      const state next = next_after(word.where());
      return word.with_state(next).with_epoch(epoch).with_fetched(next == state::resident);
    });
  }
}

}  // namespace far::engine
