#include "heap/page_table.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "base/check.h"
#include "platform/local_memory.h"

namespace far::heap {
namespace {

constexpr unsigned address_bits = 47;  // of those that a word can name (far/detail/word.h)

// Zeroed memory is an array of these in their initial state.
template <typename Element>
Element* map_array(std::uint64_t count) {
  return reinterpret_cast<Element*>(platform::map_local(count * sizeof(Element)));
}

template <typename Element>
void unmap_array(Element* array, std::uint64_t count) {
  platform::unmap_local(reinterpret_cast<std::byte*>(array), count * sizeof(Element));
}

// A bit for each four of a word of live bits: whether an object starts there.
std::uint64_t cards_with_starts(std::uint64_t live) {
  static_assert(units_a_card == 4);
  live |= live >> 1;
  live = (live | live >> 2) & 0x1111111111111111;
  live = (live | live >> 3) & 0x0303030303030303;
  live = (live | live >> 6) & 0x000f000f000f000f;
  live = (live | live >> 12) & 0x000000ff000000ff;
  return (live | live >> 24) & 0xffff;
}

}  // namespace

page_table::ready_bytes::ready_bytes(std::uintptr_t base, std::uint64_t pages, bool writable)
    : bytes_(std::size_t{1} << (address_bits - page_shift)) {
  FAR_CHECK((base >> page_shift) + pages <= bytes_, "a word has room for the addresses of a far heap");
  mapped_ = platform::try_map_sparse(bytes_, base >> page_shift, writable ? pages : 0);
  if (mapped_ != nullptr) return;
  throw std::runtime_error(
      "cannot reserve " + std::to_string(bytes_ / gib) +
      " GiB of address space for the far heap's ready bytes; raise the limit with: ulimit -v unlimited");
}

page_table::ready_bytes::~ready_bytes() {
  platform::unmap_local(mapped_, bytes_);
}

page_table::page_table(std::uintptr_t base, std::uint64_t pages)
    : base_(base),
      pages_(pages),
      ready_by_number_(base, pages, true),
      never_ready_by_number_(base, pages, false),
      live_(map_array<unit_bits>(pages)),
      cards_(map_array<std::atomic<std::uint64_t>>(pages)),
      counts_(map_array<counts>(pages)),
      ready_(reinterpret_cast<std::atomic<std::uint8_t>*>(ready_by_number_.begin() + (base >> page_shift))),
      condemned_(map_array<std::atomic<grace_number>>(pages)),
      kinds_(map_array<std::atomic<std::uint8_t>>(pages)) {
  FAR_CHECK(base % page_bytes == 0, "a far heap begins at a page");
}

page_table::~page_table() {
  unmap_array(live_, pages_);
  unmap_array(cards_, pages_);
  unmap_array(counts_, pages_);
  unmap_array(condemned_, pages_);
  unmap_array(kinds_, pages_);
}

void page_table::note_size(std::size_t page, std::size_t units) {
  counts& of_page = counts_[page];
  const auto size = static_cast<std::uint8_t>(std::min<std::size_t>(units, 255));
  const std::uint8_t smallest = of_page.smallest_units.load(std::memory_order_relaxed);
  if (smallest == 0 || size < smallest) of_page.smallest_units.store(size, std::memory_order_relaxed);
  if (size > of_page.largest_units.load(std::memory_order_relaxed)) {
    of_page.largest_units.store(size, std::memory_order_relaxed);
  }
}

std::size_t page_table::most_units(std::uintptr_t object) const {
  const std::size_t page = page_of(object);
  const std::size_t unit = object / unit_bytes % units_a_page;
  std::size_t next = units_a_page;
  for (std::size_t i = (unit + 1) / 64; i < units_a_page / 64; ++i) {
    std::uint64_t starts = live_[page][i].load(std::memory_order_relaxed);
    if (i == (unit + 1) / 64) starts &= ~std::uint64_t{0} << (unit + 1) % 64;
    if (starts == 0) continue;
    next = i * 64 + static_cast<std::size_t>(std::countr_zero(starts));
    break;
  }
  // The first half of the last unit before the next start, and all before that, may be the object's; so may the last
  // half unit of the page.
  const std::size_t room = next - unit + (next == units_a_page ? 1 : 0);
  const std::size_t largest = counts_[page].largest_units.load(std::memory_order_relaxed);
  return std::min(room, largest == 255 ? units_a_page : largest);
}

bool page_table::mark_used(std::uintptr_t object, std::size_t units) {
  const std::size_t page = page_of(object);
  const std::uint64_t card = card_of(object);
  if ((cards_[page].load(std::memory_order_relaxed) & card) != 0) return false;
  if ((cards_[page].fetch_or(card, std::memory_order_relaxed) & card) != 0) return false;
  // An object that shares its card with others stands for them all.
  counts_[page].used_units.fetch_add(static_cast<std::uint16_t>(std::max(units, units_a_card)),
                                     std::memory_order_relaxed);
  return true;
}

bool page_table::are_all_used(std::size_t page) const {
  const std::uint64_t cards = cards_[page].load(std::memory_order_relaxed);
  constexpr std::size_t cards_a_word = 64 / units_a_card;
  for (std::size_t i = 0; i < units_a_page / 64; ++i) {
    const std::uint64_t starts = cards_with_starts(live_[page][i].load(std::memory_order_relaxed));
    if ((starts & ~(cards >> i * cards_a_word)) != 0) return false;
  }
  return true;
}

page_use page_table::take_use(std::size_t page) {
  const page_use used = use_of(page);
  // A page that came and was not used is the rule where pages are read ahead.
  if (used == page_use{}) return used;
  cards_[page].store(0, std::memory_order_relaxed);
  counts_[page].used_units.store(0, std::memory_order_relaxed);
  return used;
}

void page_table::begin_use(std::size_t first_page, std::size_t count, unsigned tag, bool loose) {
  for (std::size_t page = first_page; page < first_page + count; ++page) {
    condemned_[page].store(0, std::memory_order_relaxed);
    ready_[page].store(0, std::memory_order_relaxed);
    kinds_[page].store(static_cast<std::uint8_t>(tag << tag_shift | (loose ? loose_bit : 0)),
                       std::memory_order_relaxed);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
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

unsigned page_table::change_heat(std::size_t page, bool was_used, unsigned most, bool at_once) {
  std::uint8_t kind = kinds_[page].load(std::memory_order_relaxed);
  const unsigned heat = kind % (1u << heat_bits);
  const unsigned used = at_once ? most : std::min(heat + 1, most);
  const unsigned changed = was_used ? used : heat - (heat > 0 ? 1 : 0);
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
    take_use(page);
    counts_[page].smallest_units.store(0, std::memory_order_relaxed);
    counts_[page].largest_units.store(0, std::memory_order_relaxed);
    condemned_[page].store(0, std::memory_order_relaxed);
    ready_[page].store(0, std::memory_order_relaxed);
  }
}

}  // namespace far::heap
