#include "engine/residency.h"

#include <array>

#include "base/check.h"
#include "platform/local_memory.h"

namespace far::engine {
namespace {

// legal[from] is the set of states that may follow, a bit a state. Staying in a state is always legal: flags change.
constexpr std::uint8_t bit(state which) {
  return static_cast<std::uint8_t>(1u << static_cast<unsigned>(which));
}

constexpr std::array<std::uint8_t, state_count> legal = {
    /* untouched */ static_cast<std::uint8_t>(bit(state::fetching) | bit(state::resident)),
    /* resident  */ bit(state::evicting),
    /* evicting  */
    static_cast<std::uint8_t>(bit(state::resident) | bit(state::remote) | bit(state::untouched) | bit(state::fetching)),
    /* remote    */ static_cast<std::uint8_t>(bit(state::fetching) | bit(state::untouched)),
    /* fetching  */
    static_cast<std::uint8_t>(bit(state::resident) | bit(state::remote) | bit(state::untouched) | bit(state::lost)),
    /* lost      */ bit(state::untouched),
};

}  // namespace

const char* name_of(state which) {
  switch (which) {
    case state::untouched: return "Untouched";
    case state::resident: return "Resident";
    case state::evicting: return "Evicting";
    case state::remote: return "Remote";
    case state::fetching: return "Fetching";
    case state::lost: return "Lost";
  }
  return "?";
}

bool is_legal_transition(state from, state to) {
  return from == to || (legal[static_cast<unsigned>(from)] & bit(to)) != 0;
}

residency::residency(std::uint64_t pages)
    : pages_(pages),
      words_(reinterpret_cast<std::atomic<std::uint64_t>*>(platform::map_local(pages * sizeof(std::uint64_t)))),
      state_bytes_(reinterpret_cast<std::uint8_t*>(platform::map_local(pages))) {}

residency::~residency() {
  platform::unmap_local(reinterpret_cast<std::byte*>(words_), pages_ * sizeof(std::uint64_t));
  platform::unmap_local(reinterpret_cast<std::byte*>(state_bytes_), pages_);
}

bool residency::transition(page_id page, page_word& expected, page_word desired) {
  FAR_CHECK(is_legal_transition(expected.where(), desired.where()), "illegal residency transition");
  std::uint64_t bits = expected.bits();
  if (!words_[page].compare_exchange_strong(bits, desired.bits(), std::memory_order_seq_cst,
                                            std::memory_order_acquire)) {
    expected = page_word(bits);
    return false;
  }
  if (expected.where() != desired.where()) mirror(page, desired.where());
  return true;
}

// Others may change the page between the word's change and the byte's. Whoever stores the byte looks at the word once
// more, so the last one to store it has seen that it is right.
void residency::mirror(page_id page, state current) {
  while (true) {
    __atomic_store_n(&state_bytes_[page], static_cast<std::uint8_t>(current), __ATOMIC_SEQ_CST);
    const state now = page_word(words_[page].load(std::memory_order_seq_cst)).where();
    if (now == current) return;
    current = now;
  }
}

}  // namespace far::engine
