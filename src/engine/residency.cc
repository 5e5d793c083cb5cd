#include "engine/residency.h"

#include <array>

#include "base/check.h"
#include "platform/local_memory.h"

namespace far::engine {
namespace {

// legal[from] is the set of states that may follow, a bit a state. Staying in a state is always legal: flags change.
constexpr std::uint8_t bit(state one) {
  return static_cast<std::uint8_t>(1u << static_cast<unsigned>(one));
}

constexpr std::array<std::uint8_t, state_count> legal = {
    /* untouched */ static_cast<std::uint8_t>(bit(state::fetching) | bit(state::resident) | bit(state::foreign)),
    /* resident  */ bit(state::evicting),
    /* evicting  */
    static_cast<std::uint8_t>(bit(state::resident) | bit(state::remote) | bit(state::untouched) | bit(state::fetching)),
    /* remote    */ static_cast<std::uint8_t>(bit(state::fetching) | bit(state::untouched)),
    /* fetching  */
    static_cast<std::uint8_t>(bit(state::resident) | bit(state::remote) | bit(state::untouched) | bit(state::lost)),
    /* lost      */ bit(state::untouched),
    /* foreign   */ bit(state::untouched),
};

// Whether somebody may have waited for this change: the page was in somebody's hands and is not any more.
constexpr bool settles(state from, state to) {
  return (from == state::fetching || from == state::evicting) && to != state::fetching && to != state::evicting;
}

constexpr std::uint64_t table_bytes = residency::last_number + 1;

std::uint8_t* map_table(std::uint64_t pages, std::uint64_t first_number) {
  if (first_number == 0 || first_number >= table_bytes || pages > table_bytes - first_number) return nullptr;
  return reinterpret_cast<std::uint8_t*>(platform::try_map_sparse(table_bytes, first_number, pages));
}

}  // namespace

const char* name_of(state one) {
  switch (one) {
    case state::untouched: return "Untouched";
    case state::resident: return "Resident";
    case state::evicting: return "Evicting";
    case state::remote: return "Remote";
    case state::fetching: return "Fetching";
    case state::lost: return "Lost";
    case state::foreign: return "Foreign";
  }
  return "?";
}

bool is_legal_transition(state from, state to) {
  return from == to || (legal[static_cast<unsigned>(from)] & bit(to)) != 0;
}

residency::residency(std::uint64_t pages, std::uint64_t first_number)
    : uses(pages),
      pages_(pages),
      words_(reinterpret_cast<std::atomic<std::uint64_t>*>(platform::map_local(pages * sizeof(std::uint64_t)))),
      table_(map_table(pages, first_number)),
      state_bytes_(table_ != nullptr ? table_ + first_number
                                     : reinterpret_cast<std::uint8_t*>(platform::map_local(pages))) {}

residency::~residency() {
  platform::unmap_local(reinterpret_cast<std::byte*>(words_), pages_ * sizeof(std::uint64_t));
  if (table_ != nullptr) {
    platform::unmap_local(reinterpret_cast<std::byte*>(table_), table_bytes);
  } else {
    platform::unmap_local(reinterpret_cast<std::byte*>(state_bytes_), pages_);
  }
}

// The byte changes under exclusive ownership, so that a late store can never claim that a page is Resident after
// another thread has made it Evicting. It is set before the owner of a Fetching or Evicting page (or of the block of an
// Untouched one) lets go of it. It is reset after the page was claimed and before anybody else can act on it.
bool residency::transition(page_id page, page_word& expected, page_word desired) {
  FAR_CHECK(is_legal_transition(expected.where(), desired.where()), "illegal residency transition");
  const bool arrives = desired.where() == state::resident && expected.where() != state::resident;
  const bool leaves = expected.where() == state::resident && desired.where() != state::resident;
  if (arrives) __atomic_store_n(&state_bytes_[page], byte_of_resident, __ATOMIC_RELEASE);
  std::uint64_t bits = expected.bits();
  if (!words_[page].compare_exchange_strong(bits, desired.bits(), std::memory_order_seq_cst,
                                            std::memory_order_acquire)) {
    expected = page_word(bits);
    return false;
  }
  if (leaves) {
    // Once, and then for batches: threads that evict would share the line otherwise.
    if (__atomic_load_n(&has_evicted_, __ATOMIC_RELAXED) == 0) __atomic_store_n(&has_evicted_, 1, __ATOMIC_RELAXED);
    uses.erase(page);
    __atomic_store_n(&state_bytes_[page], static_cast<std::uint8_t>(desired.where()), __ATOMIC_SEQ_CST);
  }
  if (listener_ != nullptr && settles(expected.where(), desired.where())) listener_->settled(page);
  return true;
}

}  // namespace far::engine
