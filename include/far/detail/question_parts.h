// A question about a column goes over it in parts, of which each may be answered where it is, or here
// (docs/decisions/0132-parts-of-questions.md).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "far/detail/chunk.h"
#include "far/detail/pointer.h"
#include "far/detail/question_costs.h"
#include "far/summary.h"

namespace far::detail {

// About how many pages of these elements are away: one in eight is looked at. 0: there are no whole pages of them.
template <typename Numbers>
[[nodiscard]] std::size_t pages_away(const Numbers& all, std::size_t first, std::size_t count) {
  constexpr std::size_t on_a_page = page_bytes_of_chunks / sizeof(typename Numbers::value_type);
  constexpr std::size_t every = 8;
  std::array<const std::byte*, 64> pages;
  std::array<std::uint64_t, 64> places;
  std::size_t away = 0;
  std::size_t known = 0;
  const auto look = [&] {
    note_places(all.home(), std::span(pages).first(known), std::span(places).first(known));
    away += known - static_cast<std::size_t>(std::count(places.begin(), places.begin() + known, 0));
    known = 0;
  };
  for (std::size_t at = first - first % on_a_page; at < first + count; at += every * on_a_page) {
    pages[known++] = all.page_of(at);
    if (known == pages.size()) look();
  }
  look();
  return std::min(away * every, count / on_a_page + 1);
}

// Where a question is answered: all of it there or here, or each part as `costs`, if not null, choose.
struct question_parts {
  work where = work::there;
  part_costs* costs = nullptr;
  unsigned times = 1;  // each page is asked about

  // Calls answer(first, count, where) for all parts in turn.
  template <typename Numbers, typename Answer>
  void for_parts(const Numbers& all, std::size_t first, std::size_t count, const Answer& answer) const {
    constexpr std::size_t numbers_of_part = (std::size_t{4} << 20) / sizeof(typename Numbers::value_type);
    if constexpr (requires { all.page_of(first); }) {
      for (std::size_t done = 0; costs != nullptr && done < count;) {
        const std::size_t now = std::min(numbers_of_part, count - done);
        const costly_part part(*costs, {.away = pages_away(all, first + done, now), .times = times});
        answer(first + done, now, part.where());
        done += now;
      }
    }
    if (costs == nullptr) answer(first, count, where);
  }
};

}  // namespace far::detail
