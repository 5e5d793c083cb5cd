// far::dataframe::group_by().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "far/dataframe.h"
#include "far/detail/api.h"
#include "far/detail/group_collectors.h"
#include "far/detail/group_table.h"
#include "far/detail/group_values.h"
#include "far/detail/question_costs.h"

namespace far {

namespace detail {

// Shows collectors some rows of a long column, here and there, so that the walk over all of them knows where to look.
inline void sample_rows(group_table& table, std::size_t rows, const std::vector<group_collector*>& collectors) {
  constexpr std::size_t rows_of_piece = 1024;
  constexpr std::size_t most_pieces = 64;
  if (rows < 4 * most_pieces * rows_of_piece) return;
  using sample_size = group_collector::sample_size;
  std::vector<group_collector*> wanting;
  bool is_many = false;
  for (group_collector* const one : collectors) {
    if (one->wants_sample() != sample_size::none) wanting.push_back(one);
    is_many |= one->wants_sample() == sample_size::many;
  }
  if (wanting.empty()) return;
  const std::size_t pieces = is_many ? most_pieces : most_pieces / 2;
  const auto first_of = [&](std::size_t piece) { return rows / pieces * piece / rows_of_piece * rows_of_piece; };
  for (std::size_t piece = 0; is_many && piece < pieces; ++piece) {
    table.prefetch(first_of(piece), rows_of_piece);
    for (const group_collector* const one : wanting) one->prefetch(first_of(piece), rows_of_piece);
  }
  std::vector<std::uint32_t> group_of(rows_of_piece);
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    // Of a few, what is not here stays where it is: servers answer about whole pages that are all there.
    if (is_many) table.number(first_of(piece), group_of);
    if (!is_many) table.number(first_of(piece), group_of, non_temporal);
    for (group_collector* const one : wanting) one->sample({first_of(piece), group_of, {}, table.size()});
  }
  for (group_collector* const one : wanting) one->end_sample();
}

inline constexpr std::size_t rows_of_keys = 8192;
inline constexpr std::size_t most_rows_at_once = 32 * rows_of_keys;
static_assert(most_rows_at_once % most_rows == 0);

// Some rows of which collectors leave it to be chosen whether the far tier is asked about them: all of them ask, or
// none does, because they have the keys in common. Where several kinds of questions are asked, the dearest has the
// costs.
class part_of_rows {
 public:
  part_of_rows(const std::vector<const column*>& keys, const std::vector<group_collector*>& collectors,
               std::size_t first, std::size_t rows) {
    std::set<const column*> read(keys.begin(), keys.end());
    for (const group_collector* const one : collectors) {
      const std::optional<group_collector::choice> left = one->leaves_choice();
      if (!left) continue;
      if (left->numbers != nullptr) read.insert(left->numbers);
      const bool is_dearer = !dearest_ || dearest_->kind < left->kind;
      // Of two of a kind, one that is still to be chosen.
      if (is_dearer || (dearest_->kind == left->kind && dearest_->is_made)) dearest_.emplace(*left);
    }
    if (!dearest_) return;
    part_pages pages;
    std::size_t bytes_of_row = 0;
    for (const column* const one : read) {
      pages.away += one->pages_away(first, rows);
      bytes_of_row += one->bytes() / one->size();
    }
    // Of narrow columns, a part has few pages: of a key of a byte no more than what is usually the fewest.
    const std::size_t most = most_rows_at_once * bytes_of_row / page_bytes_of_chunks;
    pages.fewest = std::clamp<std::size_t>(most / 4, 1, part_pages::usual_fewest);
    const std::optional<work> forced = dearest_->is_made ? std::optional(work::here) : std::nullopt;
    part_.emplace(dearest_->costs, pages, forced, dearest_->passes);
  }

  [[nodiscard]] work where() const { return part_ ? part_->where() : work::there; }

 private:
  std::optional<group_collector::choice> dearest_;
  std::optional<costly_part> part_;
};

// Has collectors add all rows, many at a time. The keys of those for which the far tier has answered are not read. With
// no collectors, all keys are: then the groups are all that is wanted.
inline void add_all_rows(group_table& table, const std::vector<const column*>& keys, std::size_t rows,
                         const std::vector<group_collector*>& collectors) {
  std::vector<std::uint32_t> group_of;
  std::vector<std::uint8_t> short_group_of;
  std::vector<std::size_t> needed;
  for (std::size_t first = 0; first < rows; first += group_of.size()) {
    group_of.resize(std::min(most_rows_at_once, rows - first));
    const part_of_rows part(keys, collectors, first, group_of.size());
    bool are_asked = false;
    for (group_collector* const one : collectors) are_asked |= one->ask(table, first, group_of.size(), part.where());
    needed.clear();
    for (std::size_t done = 0; done < group_of.size(); done += rows_of_keys) {
      const std::size_t now = std::min(rows_of_keys, group_of.size() - done);
      const auto needs = [&](const group_collector* one) { return one->needs_groups(first + done, now); };
      if (collectors.empty() || std::ranges::any_of(collectors, needs)) needed.push_back(done);
    }
    // What was not answered, because it is here or for another reason: keys are copied, if few of them are away. A walk
    // would fetch these, and ahead of it those of the next rows, about which nobody could be asked then.
    std::size_t away = 0;
    for (const std::size_t done : needed) {
      const std::size_t now = std::min(rows_of_keys, group_of.size() - done);
      for (const column* const one : keys) away += one->pages_away(first + done, now);
    }
    const bool are_copied = are_asked && away <= group_of.size() / page_bytes_of_chunks / 4;
    for (const std::size_t done : needed) {
      const std::size_t now = std::min(rows_of_keys, group_of.size() - done);
      const std::span<std::uint32_t> groups = std::span(group_of).subspan(done, now);
      are_copied ? table.number(first + done, groups, non_temporal) : table.number(first + done, groups);
    }
    short_group_of.resize(group_of.size());
    std::transform(group_of.begin(), group_of.end(), short_group_of.begin(), [](std::uint32_t group) {
      return static_cast<std::uint8_t>(std::min<std::uint32_t>(group, no_group));
    });
    for (group_collector* const one : collectors) one->add({first, group_of, short_group_of, table.size()});
  }
}

}  // namespace detail

FAR_LIBRARY_CODE dataframe dataframe::group_by(const std::vector<std::string>& keys,
                                               const std::vector<wanted>& aggregates) const {
  require_equal_columns();
  std::vector<const column*> key_columns;
  for (const std::string& name : keys) key_columns.push_back(&(*this)[name]);
  std::set<std::string> walked(keys.begin(), keys.end());
  for (const wanted& one : aggregates) walked.insert(one.name);
  std::size_t bytes = 0;
  for (const std::string& name : walked) bytes += (*this)[name].bytes();
  const detail::walk how(in_, bytes);
  // The keys may be all that is read: the numbers may stay where they are.
  std::size_t key_bytes = 0;
  for (const column* const one : key_columns) key_bytes += one->bytes();
  const detail::walk over_keys(in_, key_bytes);
  std::vector<column_type> types;
  std::map<std::string, std::unique_ptr<detail::group_collector>> collectors;
  for (const wanted& one : aggregates) {
    const column& of = (*this)[one.name];
    types.push_back(detail::type_of_aggregate(one.name, of.type(), one.what));
    std::unique_ptr<detail::group_collector>& collector = collectors[one.name];
    if (collector == nullptr) collector = detail::collect(how, of);
    collector->want(one.what);
  }
  detail::group_table table(key_columns, over_keys);
  std::vector<detail::group_collector*> busy;
  for (const auto& [name, one] : collectors) {
    one->begin(table);
    busy.push_back(one.get());
  }
  detail::sample_rows(table, rows(), busy);
  do {
    detail::add_all_rows(table, key_columns, rows(), busy);
    std::erase_if(busy, [](detail::group_collector* one) { return !one->next(); });
  } while (!busy.empty());
  const auto sorted = table.sorted();
  dataframe grouped(in_);
  grouped.where_ = where_;
  grouped.costs_ = costs_;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    column values(in_, key_columns[i]->type());
    for (const auto& [key, group] : sorted) values.append(table.cell_with(i, key));
    grouped.add(keys[i], std::move(values));
  }
  for (std::size_t i = 0; i < aggregates.size(); ++i) {
    column values(in_, types[i]);
    for (const auto& [key, group] : sorted)
      values.append(collectors.at(aggregates[i].name)->answer(group, aggregates[i].what));
    grouped.add(aggregates[i].name + "_" + std::string(name_of(aggregates[i].what)), std::move(values));
  }
  return grouped;
}

}  // namespace far
