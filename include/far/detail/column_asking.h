// How a far::column asks about its numbers: where they are, or here, whichever is cheaper.
#pragma once

#include <cstddef>
#include <vector>

#include "far/column.h"
#include "far/detail/chunk.h"
#include "far/detail/question_costs.h"
#include "far/query.h"
#include "far/summary.h"
#include "far/vector.h"

namespace far {

template <typename T, typename Answer>
auto column::place_question(const vector<T>& all, unsigned passes, const Answer& answer) const {
  const detail::question_meter meter(all.home().home());
  const std::size_t bytes = all.size() * sizeof(T);
  work where = where_ == placement::there ? work::there : work::here;
  if (where_ == placement::automatic) {
    const bool stays = bytes <= meter.budget_bytes() / 8;
    where = place_->choose(costs_->plain, bytes / detail::page_bytes_of_chunks, passes, stays);
  }
  auto found = answer(where);
  const detail::question_cost cost = meter.finish();
  costs_->plain.learn(where, cost);
  place_->learn(costs_->plain, where, cost);
  return found;
}

template <typename T>
summary<T> column::summarize(const vector<T>& all, const interval<T>& within) const {
  return place_question(all, 1, [&](work where) { return all.summarize(within, where); });
}

template <typename T>
vector<std::size_t> column::select_rows(const vector<T>& all, const interval<T>& within) const {
  return place_question(all, 1, [&](work where) { return far::select(placed_numbers(all, where), within); });
}

}  // namespace far
