// The object heap's state of each page, in local memory: where live objects start, what was touched, and counts.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/units.h"
#include "far/detail/view.h"
#include "far/detail/word.h"
#include "heap/grace_periods.h"

namespace far::heap {

using detail::unit_bytes;

inline constexpr std::size_t units_a_page = page_bytes / unit_bytes;

// A card for each 64 bytes. The starts of two objects of 56 bytes or more are at least so far apart.
inline constexpr std::size_t units_a_card = 4;
inline constexpr std::size_t cards_a_page = units_a_page / units_a_card;
static_assert(cards_a_page == 64, "the cards of a page are the bits of one word");

inline constexpr unsigned heat_bits = 3;
inline constexpr unsigned most_tags = 16;

// Bits of one page, one for each unit, as four words.
using unit_bits = std::atomic<std::uint64_t>[units_a_page / 64];

// How much of a page's objects was used since the page became resident.
struct page_use {
  unsigned objects = 0;  // smaller ones than 56 bytes that share a card count as one
  unsigned units = 0;    // their size
  bool again = false;    // the page was used, and after the evictor had seen that, once more
  bool operator==(const page_use&) const = default;
};

// Flat arrays over the addresses of one far heap; only what is used takes memory. Positions are addresses.
class page_table {
 public:
  page_table(std::uintptr_t base, std::uint64_t pages);
  ~page_table();
  page_table(const page_table&) = delete;
  page_table& operator=(const page_table&) = delete;

  [[nodiscard]] std::size_t page_of(std::uintptr_t address) const { return (address - base_) >> page_shift; }
  [[nodiscard]] std::uintptr_t address_of(std::size_t page) const { return base_ + (page << page_shift); }

  // Live bits: a bit where a live object starts. The count is kept apart, because an object that is being fetched has
  // no live bit but still needs its page.
  void set_live(std::uintptr_t object) { live_word(object).fetch_or(bit_of(object), std::memory_order_seq_cst); }
  void clear_live(std::uintptr_t object) { live_word(object).fetch_and(~bit_of(object), std::memory_order_seq_cst); }
  [[nodiscard]] bool is_live(std::uintptr_t object) const {
    return (live_word(object).load(std::memory_order_seq_cst) & bit_of(object)) != 0;
  }
  // The last live object of the page that starts at or before `address`, or 0.
  [[nodiscard]] std::uintptr_t live_object_before(std::uintptr_t address) const;
  // Calls `found` with the unit of each live object of a page.
  template <typename Found>
  void for_each_live(std::size_t page, Found found) const {
    for (std::size_t i = 0; i < units_a_page / 64; ++i) {
      for (std::uint64_t left = live_[page][i].load(std::memory_order_seq_cst); left != 0; left &= left - 1) {
        found(i * 64 + static_cast<std::size_t>(std::countr_zero(left)));
      }
    }
  }

  // Requires: no other thread counts objects of the page at the same time.
  void count_object(std::uintptr_t object, std::size_t units) {
    counts_[page_of(object)].live.fetch_add(1, std::memory_order_relaxed);
    note_size(page_of(object), units);
  }
  // Once more, until it is uncounted as often.
  void count_again(std::uintptr_t object) { counts_[page_of(object)].live.fetch_add(1, std::memory_order_relaxed); }
  // Returns how many are left.
  [[nodiscard]] unsigned uncount_object(std::uintptr_t object) {
    return counts_[page_of(object)].live.fetch_sub(1, std::memory_order_seq_cst) - 1u;
  }
  [[nodiscard]] unsigned objects_in(std::size_t page) const {
    return counts_[page].live.load(std::memory_order_seq_cst);
  }

  // The units of an object while its header is in the far tier: at least those of the smallest that was placed in the
  // page, at most those of the largest, and of what is left before the next live object. Requires: it was counted.
  [[nodiscard]] std::size_t least_units(std::uintptr_t object) const {
    return counts_[page_of(object)].smallest_units.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::size_t most_units(std::uintptr_t object) const;

  // Headers in the page that do not name the owner of their object.
  void count_stale(std::uintptr_t object) { counts_[page_of(object)].stale.fetch_add(1, std::memory_order_seq_cst); }
  void uncount_stale(std::uintptr_t object) { counts_[page_of(object)].stale.fetch_sub(1, std::memory_order_seq_cst); }
  [[nodiscard]] unsigned stale_in(std::size_t page) const {
    return counts_[page].stale.load(std::memory_order_seq_cst);
  }

  // Cards: one of an object is set when it is used for the first time since its page became resident. Returns whether
  // it was not set before.
  bool mark_used(std::uintptr_t object, std::size_t units);
  [[nodiscard]] bool is_used(std::uintptr_t object) const {
    return (cards_[page_of(object)].load(std::memory_order_relaxed) & card_of(object)) != 0;
  }
  [[nodiscard]] page_use use_of(std::size_t page) const {
    const unsigned units = counts_[page].used_units.load(std::memory_order_relaxed);
    return {static_cast<unsigned>(std::popcount(cards_[page].load(std::memory_order_relaxed))), units % again_bit,
            units >= again_bit};
  }
  // The evictor found it used once more.
  void note_use_again(std::size_t page) { counts_[page].used_units.fetch_or(again_bit, std::memory_order_relaxed); }
  // The same; clears the cards.
  page_use take_use(std::size_t page);
  // Whether no live object of the page is still to be used for the first time since the page became resident.
  [[nodiscard]] bool are_all_used(std::size_t page) const;

  // Condemned: taken out of reach by the evictor, under the number of a grace period (grace_periods.h). A page that is
  // condemned, not ready, and of which the period is over has nobody with a pointer into it. In that order: a look at
  // its readiness, then at its condemnation.
  //
  // A dereference calls claim() first, and then looks whether the page is resident. Either it sees that the page is
  // leaving, or the evictor sees that the page is not condemned any more. Only then make_ready(): others need not look
  // at anything else from then on.
  void claim(std::size_t page) {
    if (condemned_[page].load(std::memory_order_seq_cst) != 0) condemned_[page].exchange(0, std::memory_order_seq_cst);
  }
  void condemn(std::size_t page, grace_number number) {
    condemned_[page].store(number, std::memory_order_seq_cst);
    ready_[page].store(0, std::memory_order_seq_cst);
  }
  // 0: it is not.
  [[nodiscard]] grace_number condemned_under(std::size_t page) const {
    return condemned_[page].load(std::memory_order_seq_cst);
  }

  // Ready: a dereference need not look at its state; see detail::readiness.
  void make_ready(std::size_t page, detail::readiness how) {
    const auto wanted = static_cast<std::uint8_t>(how);
    if (ready_[page].load(std::memory_order_relaxed) < wanted) ready_[page].store(wanted, std::memory_order_release);
  }
  // Whether it is already so, or more. For the thread that would make it so.
  [[nodiscard]] bool is_ready(std::size_t page, detail::readiness how) const {
    return ready_[page].load(std::memory_order_relaxed) >= static_cast<std::uint8_t>(how);
  }
  [[nodiscard]] bool is_ready(std::size_t page) const { return ready_[page].load(std::memory_order_seq_cst) != 0; }

  // The tag of the objects that lie in the page (far/tag.h), and how hot it is: counted up for each look of the evictor
  // that finds it used, down for each that does not. `loose`: it is used outside scopes, or without a software guard,
  // and always comes back as a page.
  //
  // Passes a fence. A page that nobody had may be here all the same, and condemned, and be leaving. Whoever looks after
  // this sees that it is, or the evictor sees what it is now (tests/model/fresh_page_model_test.cc).
  void begin_use(std::size_t first_page, std::size_t count, unsigned tag, bool loose);
  [[nodiscard]] unsigned tag_of(std::size_t page) const {
    return kinds_[page].load(std::memory_order_seq_cst) >> tag_shift;
  }
  // Pages of that tag before `end` are of the default tag afterwards. Requires: no use of it begins meanwhile.
  void drop_tag(unsigned tag, std::size_t end);
  [[nodiscard]] bool is_loose(std::size_t page) const {
    return (kinds_[page].load(std::memory_order_seq_cst) & loose_bit) != 0;
  }
  [[nodiscard]] unsigned heat_of(std::size_t page) const {
    return kinds_[page].load(std::memory_order_relaxed) % (1u << heat_bits);
  }
  // Returns the heat afterwards: 0 to `most`, which a use makes it at once if `at_once`.
  unsigned change_heat(std::size_t page, bool was_used, unsigned most, bool at_once);
  // It leaves at the next look, unless it is used until then.
  void cool(std::size_t page) {
    kinds_[page].fetch_and(static_cast<std::uint8_t>(~((1u << heat_bits) - 1)), std::memory_order_relaxed);
  }

  // For dereferences; see heap_view. A null pointer's page can be looked up, too, and is not ready.
  [[nodiscard]] const std::uint8_t* ready_by_page() const { return ready_by_number_.begin(); }

  // The same of an array in which no page is ready.
  [[nodiscard]] const std::uint8_t* never_ready_by_page() const { return never_ready_by_number_.begin(); }

  // What all of this takes for a page with small objects.
  static constexpr std::size_t bytes_a_page();

  // Page counts and bits go back to what they were before the first use. Requires: no object in the pages.
  void forget(std::size_t first_page, std::size_t count);

 private:
  // A byte for each page, by its number, of all addresses that a word can name. Those outside this heap take no memory:
  // they are 0, and the null pointer's is looked up, and those of objects of other runtimes, to stop the program. The
  // heap's can be written if `writable`. Throws std::runtime_error when there are no addresses.
  class ready_bytes {
   public:
    ready_bytes(std::uintptr_t base, std::uint64_t pages, bool writable);
    ~ready_bytes();
    ready_bytes(const ready_bytes&) = delete;
    ready_bytes& operator=(const ready_bytes&) = delete;
    [[nodiscard]] std::uint8_t* begin() const { return reinterpret_cast<std::uint8_t*>(mapped_); }

   private:
    std::size_t bytes_;
    std::byte* mapped_ = nullptr;
  };
  struct counts {
    std::atomic<std::uint16_t> live{0};
    std::atomic<std::uint16_t> stale{0};
    std::atomic<std::uint16_t> used_units{0};  // with again_bit
    // Of the objects that were placed here. 0: none was. An object of 256 units fills its page, so 255 says as much.
    std::atomic<std::uint8_t> smallest_units{0};
    std::atomic<std::uint8_t> largest_units{0};
  };
  static constexpr std::uint16_t again_bit = 1u << 15;

  void note_size(std::size_t page, std::size_t units);

  [[nodiscard]] static std::uint64_t bit_of(std::uintptr_t address) {
    return std::uint64_t{1} << (address / unit_bytes % 64);
  }
  [[nodiscard]] static std::uint64_t card_of(std::uintptr_t object) {
    return std::uint64_t{1} << (object / unit_bytes % units_a_page / units_a_card);
  }
  [[nodiscard]] std::atomic<std::uint64_t>& live_word(std::uintptr_t address) const {
    return live_[page_of(address)][address / unit_bytes % units_a_page / 64];
  }

  std::uintptr_t base_;
  std::uint64_t pages_;
  ready_bytes ready_by_number_;
  ready_bytes never_ready_by_number_;  // no page is ready
  unit_bits* live_;
  std::atomic<std::uint64_t>* cards_;
  counts* counts_;
  std::atomic<std::uint8_t>* ready_;  // by page, of this heap
  std::atomic<grace_number>* condemned_;
  // Heat in the lowest bits, then whether the page is loose, then its tag.
  static constexpr std::uint8_t loose_bit = 1u << heat_bits;
  static constexpr unsigned tag_shift = heat_bits + 1;
  std::atomic<std::uint8_t>* kinds_;
};

constexpr std::size_t page_table::bytes_a_page() {
  return sizeof(unit_bits) + sizeof(std::uint64_t) + sizeof(counts) + sizeof(grace_number) + 2 * sizeof(std::uint8_t);
}

}  // namespace far::heap
