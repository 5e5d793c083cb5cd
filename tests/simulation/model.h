// The content that the program's memory must hold: the model that every byte is checked against.
//
// A page has four parts; a part holds bytes that follow from the number of the write that made them, or zeros. Numbers
// are never used twice, so a page in the wrong place, an old version of it, or a part of another version is noticed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "platform/address_space.h"

namespace far::simulation {

using platform::page_id;
using platform::page_range;

class model {
 public:
  static constexpr std::size_t parts_a_page = 4;
  static constexpr std::size_t part_bytes = page_bytes / parts_a_page;

  explicit model(std::uint64_t pages) : pages_(pages) {}

  // The program writes a part: fills `page_start` there.
  void write(page_id page, std::size_t part, std::byte* page_start);
  // The program reads a part; stops the run when it does not hold what it must.
  void check(page_id page, std::size_t part, const std::byte* page_start);

  // The contents of a part over a time. Somebody who reads it meanwhile, at a moment that only he knows, must find one
  // of its contents. Stays where it is from begin_watch() to end_watch().
  struct watch {
    page_id page = 0;
    std::size_t part = 0;
    std::vector<std::uint64_t> contents;  // the numbers of the writes, from the first to the last
    bool is_void = false;                 // the page was discarded, moved, freed or lost: nothing can be said
  };
  void begin_watch(watch& over);
  // The time begins anew: earlier contents of the part do not count any more.
  void renew_watch(watch& over) const;
  void end_watch(watch& over);
  // The same as check(page, part, page_start) for a watch that has ended.
  static void check(const watch& over, const std::byte* page_start);
  // The same for something that was found out about the part: `fits` says whether it is true of these bytes.
  static void check_answer(const watch& over, const std::function<bool(std::span<const std::byte> part)>& fits);

  // All that the part may have held, for a watch that has ended.
  using bytes_of_part = std::array<std::byte, part_bytes>;
  [[nodiscard]] static std::vector<bytes_of_part> contents_of(const watch& over);

  // Around a discard. Meanwhile a part that is read is as before or zero, and stays zero once it was. `may_stay`: the
  // pages are locked in memory, and whether they are dropped is left open.
  void begin_discard(page_range range);
  void end_discard(page_range range, bool may_stay);

  // Around a statement that the program overwrites all of the pages before it reads there: what it does not write holds
  // zeros or what it held from then on, and once it was read, that.
  void begin_overwrite(page_range range) { begin_discard(range); }
  void end_overwrite(page_range range);

  // The program drops a page by a system call that nobody sees: it holds zeros or what it held, and once it was read,
  // that.
  void drop_behind(page_id page);

  void move(page_range from, page_id to);
  // The range is no longer the program's: its next owner finds zeros.
  void forget(page_range range);

  // The bytes of a page are gone for good; accesses end in an error until it is discarded.
  void lose(page_id page);
  [[nodiscard]] bool is_lost(page_id page) const { return pages_[page].lost; }
  [[nodiscard]] std::uint64_t lost_pages() const { return lost_pages_; }

 private:
  struct part_state {
    std::uint64_t number = 0;    // of the write; 0: zeros
    bool may_be_zero = false;    // a discard may have come after the write
    bool written_since = false;  // since the discard under way began
  };
  struct page_state {
    std::array<part_state, parts_a_page> parts;
    bool discarding = false;
    bool lost = false;
  };

  void void_watches(page_range range);

  std::vector<page_state> pages_;
  std::vector<watch*> watches_;
  std::uint64_t writes_ = 0;
  std::uint64_t lost_pages_ = 0;
};

}  // namespace far::simulation
