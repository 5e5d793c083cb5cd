#include "plain_answers.h"

#include <algorithm>
#include <iterator>

namespace far::test {

plain_answers ask_plainly(const std::vector<any_number>& all, any_number lowest, any_number highest, bool tallies) {
  plain_answers got;
  if (tallies) got.tallied.resize(88);
  std::vector<any_number> sorted;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (tallies && all[i] >= 3 && all[i] <= 90) ++got.tallied[static_cast<std::size_t>(all[i]) - 3];
    if (!(all[i] >= lowest && all[i] <= highest)) continue;
    got.selected.push_back(i);
    got.gathered.push_back(all[i]);
    sorted.push_back(all[i] == 0 ? 0 : all[i]);
  }
  std::sort(sorted.begin(), sorted.end());
  const std::ptrdiff_t some = std::min<std::ptrdiff_t>(1000, std::ssize(sorted));
  got.largest.assign(sorted.rbegin(), sorted.rbegin() + some);
  got.smallest.assign(sorted.begin(), sorted.begin() + some);
  got.distinct = sorted;
  got.distinct.erase(std::unique(got.distinct.begin(), got.distinct.end()), got.distinct.end());
  for (const double fraction : fractions_of_quantiles) {
    if (sorted.empty()) break;
    const double rank = fraction * static_cast<double>(sorted.size() - 1);
    const auto at = static_cast<std::size_t>(rank);
    const auto low = static_cast<double>(sorted[at]);
    const auto high = static_cast<double>(sorted[std::min(at + 1, sorted.size() - 1)]);
    const double share = rank - static_cast<double>(at);
    const double part = (high - low) * (share < 0.5 ? share : 1 - share);
    got.quantiles.push_back(low == high || share == 0 ? low : share < 0.5 ? low + part : high - part);
  }
  return got;
}

}  // namespace far::test
