#include "heap/page_table.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "platform/local_memory.h"

namespace far::heap {
namespace {

// Zeroed memory is an array of these in their initial state.
template <typename Element>
Element* map_array(std::uint64_t count) {
  return reinterpret_cast<Element*>(platform::map_local(count * sizeof(Element)));
}

template <typename Element>
void unmap_array(Element* array, std::uint64_t count) {
  platform::unmap_local(reinterpret_cast<std::byte*>(array), count * sizeof(Element));
}

}  // namespace

page_table::page_table(std::uintptr_t base, std::uint64_t pages)
    : base_(base),
      pages_(pages),
      live_(map_array<unit_bits>(pages)),
      cards_(map_array<card_bytes>(pages)),
      counts_(map_array<counts>(pages)),
      ready_(map_array<std::atomic<std::uint8_t>>(pages)),
      never_ready_(map_array<std::uint8_t>(pages)),
      condemned_(map_array<std::atomic<grace_number>>(pages)),
      kinds_(map_array<std::atomic<std::uint8_t>>(pages)) {
  FAR_CHECK(base % page_bytes == 0, "a far heap begins at a page");
}

page_table::~page_table() {
  unmap_array(live_, pages_);
  unmap_array(cards_, pages_);
  unmap_array(counts_, pages_);
  unmap_array(ready_, pages_);
  unmap_array(const_cast<std::uint8_t*>(never_ready_), pages_);
  unmap_array(condemned_, pages_);
  unmap_array(kinds_, pages_);
}

void page_table::mark_cards(std::uintptr_t from, std::size_t bytes) {
  const std::size_t first = from / unit_bytes % units_a_page;
  std::size_t left = (from % unit_bytes + bytes + unit_bytes - 1) / unit_bytes;
  std::uint8_t* const cards = cards_[page_of(from)];
  for (std::size_t card = first; left > 0 && card < units_a_page;) {
    const std::size_t in_byte = card % 8;
    const std::size_t some = std::min<std::size_t>(left, 8 - in_byte);
    const auto mask = static_cast<std::uint8_t>(((1u << some) - 1) << in_byte);
    std::uint8_t* const at = &cards[card / 8];
    if ((__atomic_load_n(at, __ATOMIC_RELAXED) & mask) != mask) __atomic_fetch_or(at, mask, __ATOMIC_RELAXED);
    card += some;
    left -= some;
  }
}

unsigned page_table::cards_in(std::size_t page) const {
  unsigned set = 0;
  for (std::size_t i = 0; i < sizeof(card_bytes); i += sizeof(std::uint64_t)) {
    const auto* const at = reinterpret_cast<const std::uint64_t*>(&cards_[page][i]);
    set += static_cast<unsigned>(std::popcount(__atomic_load_n(at, __ATOMIC_RELAXED)));
  }
  return set;
}

bool page_table::has_all_cards(std::size_t page) const {
  for (std::size_t i = 0; i < units_a_page / 64; ++i) {
    const auto* const cards = reinterpret_cast<const std::uint64_t*>(&cards_[page][i * sizeof(std::uint64_t)]);
    const std::uint64_t live = live_[page][i].load(std::memory_order_relaxed);
    if ((live & ~__atomic_load_n(cards, __ATOMIC_RELAXED)) != 0) return false;
  }
  return true;
}

unsigned page_table::take_cards(std::size_t page) {
  const unsigned set = cards_in(page);
  for (std::size_t i = 0; set != 0 && i < sizeof(card_bytes); i += sizeof(std::uint64_t)) {
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(&cards_[page][i]), 0, __ATOMIC_RELAXED);
  }
  return set;
}

void page_table::begin_use(std::size_t first_page, std::size_t count, unsigned tag, bool loose) {
  for (std::size_t page = first_page; page < first_page + count; ++page) {
    condemned_[page].store(0, std::memory_order_relaxed);
    ready_[page].store(0, std::memory_order_relaxed);
    kinds_[page].store(static_cast<std::uint8_t>(tag << tag_shift | (loose ? loose_bit : 0)),
                       std::memory_order_relaxed);
  }
}

void page_table::drop_tag(unsigned tag, std::size_t end) {
  for (std::size_t page = 0; page < end; ++page) {
    std::uint8_t kind = kinds_[page].load(std::memory_order_relaxed);
    while (kind >> tag_shift == tag &&
           !kinds_[page].compare_exchange_weak(kind, static_cast<std::uint8_t>(kind % (1u << tag_shift)),
                                               std::memory_order_seq_cst)) {
    }
  }
}

unsigned page_table::change_heat(std::size_t page, bool was_used, unsigned most) {
  std::uint8_t kind = kinds_[page].load(std::memory_order_relaxed);
  const unsigned heat = kind % (1u << heat_bits);
  const unsigned changed = was_used ? std::min(heat + 1, most) : heat - (heat > 0 ? 1 : 0);
  // Fails when somebody else's objects are about to come: then they begin cold.
  if (changed != heat) {
    kinds_[page].compare_exchange_strong(kind, static_cast<std::uint8_t>(kind - heat + changed),
                                         std::memory_order_relaxed);
  }
  return changed;
}

std::uintptr_t page_table::live_object_before(std::uintptr_t address) const {
  const std::size_t page = page_of(address);
  const std::size_t unit = address / unit_bytes % units_a_page;
  std::uint64_t mask = ~std::uint64_t{0} >> (63 - unit % 64);
  for (std::size_t i = unit / 64 + 1; i-- > 0; mask = ~std::uint64_t{0}) {
    const std::uint64_t found = live_[page][i].load(std::memory_order_seq_cst) & mask;
    if (found != 0)
      return address_of(page) + (i * 64 + 63 - static_cast<unsigned>(std::countl_zero(found))) * unit_bytes;
  }
  return 0;
}

void page_table::forget(std::size_t first_page, std::size_t count) {
  for (std::size_t page = first_page; page < first_page + count; ++page) {
    // Not so the count of stale headers: the evacuator may be about to find out that an object is gone.
    FAR_CHECK(objects_in(page) == 0, "a segment that becomes free holds no object");
    take_cards(page);
    condemned_[page].store(0, std::memory_order_relaxed);
    ready_[page].store(0, std::memory_order_relaxed);
  }
}

}  // namespace far::heap
