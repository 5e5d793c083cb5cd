// How a far::column asks about its numbers: where they are, or here, whichever is cheaper.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "far/column.h"
#include "far/detail/chunk.h"
#include "far/detail/question_costs.h"
#include "far/detail/question_parts.h"
#include "far/query.h"
#include "far/summary.h"
#include "far/vector.h"

namespace far {

namespace detail {

template <typename Numbers, typename T>
std::size_t numbers_within(const Numbers& all, const interval<T>& within) {
  std::size_t count = 0;
  all.visit_answers(ask(reduction_kind::summary, within), [&](std::size_t, std::size_t, const std::byte* answer) {
    reduced_numbers of_page;
    std::memcpy(&of_page, answer, sizeof of_page);
    count += of_page.count;
  });
  return count;
}

}  // namespace detail

template <typename T, typename Answer>
auto column::place_question(const vector<T>& all, detail::question_kind kind, unsigned passes,
                            const Answer& answer) const {
  if (where_ != placement::automatic) {
    return answer(detail::question_parts{where_ == placement::there ? work::there : work::here});
  }
  const detail::question_meter meter(all.home().home());
  const std::size_t bytes = all.size() * sizeof(T);
  if (bytes > meter.budget_bytes() / 8) return answer(detail::question_parts{.costs = &costs_of_parts(kind)});
  detail::part_costs& costs = costs_of_whole(kind);
  const work where = place_->choose(costs, bytes / detail::page_bytes_of_chunks, passes);
  auto found = answer(detail::question_parts{where});
  place_->learn(costs, where, meter.finish(), passes);
  return found;
}

template <typename T>
std::size_t column::count_within(const vector<T>& all, const interval<T>& within) const {
  return place_question(all, detail::question_kind::pages, 1, [&](const detail::question_parts& where) {
    return detail::numbers_within(placed_numbers(all, where), within);
  });
}

template <typename T>
vector<std::size_t> column::select_rows(const vector<T>& all, const interval<T>& within) const {
  return place_question(all, detail::question_kind::pages, 1, [&](const detail::question_parts& where) {
    return far::select(placed_numbers(all, where), within);
  });
}

}  // namespace far
