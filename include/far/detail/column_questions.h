// Questions about a far::column whose answers are more than a number.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "far/column.h"
#include "far/detail/api.h"
#include "far/detail/column_asking.h"
#include "far/detail/ordered_gatherer.h"

namespace far {

FAR_LIBRARY_CODE std::vector<std::pair<cell, std::uint64_t>> column::counts() const {
  std::vector<std::pair<cell, std::uint64_t>> found;
  const auto count = [&]<typename T>(const auto& all, const summary<T>& range) {
    if (range.count() == 0) return 0;
    if constexpr (sizeof(T) == 1) {
      for (int number = range.min(); number <= range.max(); ++number) {
        const std::uint64_t times = statistics_.times(static_cast<T>(number));
        if (times > 0) found.emplace_back(cell_of(static_cast<T>(number)), times);
      }
      return 0;
    }
    const interval<T> within{range.min(), range.max()};
    if constexpr (std::is_integral_v<T>) {
      if (detail::key_of(range.max()) - detail::key_of(range.min()) < 1024) {
        const std::vector<std::uint64_t> tallied = tally(all, {range.min(), range.max()});
        for (std::size_t i = 0; i < tallied.size(); ++i) {
          const auto number = static_cast<T>(range.min() + static_cast<T>(i));
          if (tallied[i] > 0) found.emplace_back(cell_of(number), tallied[i]);
        }
        return 0;
      }
    }
    std::map<std::uint64_t, std::uint64_t> counted;
    std::vector<T> part(8192);
    for (std::size_t first = 0; first < all.size(); first += part.size()) {
      part.resize(std::min(part.size(), all.size() - first));
      all.read(first, std::span<T>(part));
      for (const T number : part) {
        if (number >= within.lowest && number <= within.highest) ++counted[detail::key_of(number)];
      }
    }
    for (const auto& [key, times] : counted) found.emplace_back(cell_of(detail::number_with_key<T>(key)), times);
    return 0;
  };
  visit([&](const auto& all) {
    const auto range = known(all);
    place_question(all, detail::question_kind::ranks, 1,
                   [&](const auto& where) { return count(placed_numbers(all, where), range); });
  });
  if (type_ == column_type::text) std::sort(found.begin(), found.end());
  return found;
}

FAR_LIBRARY_CODE std::vector<cell> column::distinct() const {
  std::vector<cell> found;
  visit([&]<typename T>(const vector<T>& all) {
    if constexpr (sizeof(T) == 1) {
      for (const auto& [value, times] : counts()) found.push_back(value);
    } else {
      const std::vector<T> numbers = place_question(all, detail::question_kind::ranks, 1, [&](const auto& where) {
        return far::distinct(placed_numbers(all, where), valid(all));
      });
      for (const T number : numbers) found.push_back(cell_of(number));
    }
  });
  if (type_ == column_type::text) std::sort(found.begin(), found.end());
  return found;
}

FAR_LIBRARY_CODE std::vector<cell> column::outermost(std::size_t count, detail::numbers_end from) const {
  require_order();
  return visit([&]<typename T>(const vector<T>& all) {
    const summary<T> range = known(all);
    const auto kind = detail::question_kind::ranks;
    const std::vector<T> numbers = place_question(all, kind, passes_of_quantile, [&](const auto& where) {
      return detail::outermost(placed_numbers(all, where), range, count, from);
    });
    std::vector<cell> found;
    for (const T number : numbers) found.push_back(cell_of(number));
    return found;
  });
}

FAR_LIBRARY_CODE vector<std::size_t> column::rows_of_outermost(std::size_t count, detail::numbers_end from) const {
  require_order();
  return visit([&]<typename T>(const vector<T>& all) {
    const summary<T> range = known(all);
    const std::size_t wanted = std::min<std::size_t>(count, range.count());
    if (wanted == 0) return vector<std::size_t>(all.home());
    const T last = place_question(all, detail::question_kind::ranks, passes_of_quantile, [&](const auto& where) {
      return detail::last_of_outermost(placed_numbers(all, where), range, wanted, from);
    });
    const std::optional<interval<T>> beyond = detail::interval_beyond(range, last, from);
    vector<std::size_t> rows = beyond ? select_rows(all, *beyond) : vector<std::size_t>(all.home());
    const vector<std::size_t> of_last = select_rows(all, interval<T>{last, last});
    std::vector<std::size_t> some;
    for (std::size_t first = 0; rows.size() < wanted; first += some.size()) {
      some.resize(std::min<std::size_t>(wanted - rows.size(), 8192));
      of_last.read(first, std::span<std::size_t>(some));
      rows.append(some);
    }
    return rows;
  });
}

FAR_LIBRARY_CODE vector<std::size_t> column::rows_containing(std::string_view text) const {
  if (type_ != column_type::text) throw_wrong_type();
  std::vector<bool> is_wanted(dictionary().size());
  std::vector<interval<std::int32_t>> wanted;  // codes that follow one another
  for (std::int32_t code = 0; code < static_cast<std::int32_t>(dictionary().size()); ++code) {
    if (dictionary()[static_cast<std::size_t>(code)].find(text) == std::string::npos) continue;
    is_wanted[static_cast<std::size_t>(code)] = true;
    if (!wanted.empty() && wanted.back().highest + 1 == code) {
      wanted.back().highest = code;
    } else {
      wanted.push_back({code, code});
    }
  }
  const codes& all = std::get<codes>(values_);
  vector<std::size_t> rows(all.home());
  if (wanted.empty()) return rows;
  std::vector<bool> found(all.size());
  const auto ask_all = [&](std::size_t first, std::size_t count) {
    for (const interval<std::int32_t>& one : wanted) {
      all.visit_answers(first, count, detail::ask(detail::reduction_kind::marks, one),
                        [&](std::size_t of_page, std::size_t count_of_page, const std::byte* answer) {
                          detail::visit_marks(answer, count_of_page, [&](std::size_t i) { found[of_page + i] = true; });
                        });
    }
  };
  const auto read_all = [&](std::size_t first, std::size_t count) {
    std::vector<std::int32_t> some;
    for (const std::size_t end = first + count; first < end; first += some.size()) {
      some.resize(std::min<std::size_t>(end - first, 16'384));
      all.read(first, std::span<std::int32_t>(some));
      for (std::size_t i = 0; i < some.size(); ++i) {
        found[first + i] = some[i] >= 0 && is_wanted[static_cast<std::size_t>(some[i])];
      }
    }
  };
  // Asked once for each of them. With many, the first parts, which are to tell what that costs, would cost too much.
  constexpr unsigned most_asked = 64;
  const auto times = static_cast<unsigned>(wanted.size());
  place_question(all, detail::question_kind::pages, times, [&](detail::question_parts where) {
    where.times = times;
    if (where.costs != nullptr && times > most_asked) where = {.where = work::here};
    where.for_parts(all, 0, all.size(), [&](std::size_t first, std::size_t count, work of_part) {
      of_part == work::there ? ask_all(first, count) : read_all(first, count);
    });
    return 0;
  });
  std::vector<std::size_t> some;
  for (std::size_t row = 0; row < found.size(); ++row) {
    if (found[row]) some.push_back(row);
    if (some.size() < 8192 && row + 1 < found.size()) continue;
    rows.append(some);
    some.clear();
  }
  return rows;
}

FAR_LIBRARY_CODE column column::take(const vector<std::size_t>& rows) const {
  return take(rows, rows.home());
}

FAR_LIBRARY_CODE column column::take(const vector<std::size_t>& rows, const tag& in) const {
  column taken = like(in);
  visit([&]<typename T>(const vector<T>& all) {
    detail::ordered_gatherer<T> gatherer;
    std::vector<std::size_t> indices;
    std::vector<T> some;
    for (std::size_t first = 0; first < rows.size(); first += indices.size()) {
      indices.resize(std::min(rows.size() - first, gatherer.most));
      some.resize(indices.size());
      rows.read(first, std::span<std::size_t>(indices));
      gatherer.gather(all, indices, std::span<T>(some));
      taken.append_numbers(std::span<const T>(some));
    }
  });
  return taken;
}

}  // namespace far
