#include "trace/access_pattern.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace far::trace {
namespace {

constexpr std::uint64_t fewest_distances = 4;
constexpr double enough = 0.6;
constexpr double constant_enough = 0.9;  // for a stride that could also be a scan with gaps

}  // namespace

// 1 and -1: a step of a scan. 0: anything else.
int pattern_finder::direction_of(std::int64_t distance) {
  if (distance == 0 || std::llabs(distance) > longest_read_ahead) return 0;
  return distance > 0 ? 1 : -1;
}

void pattern_finder::close_run(const walk_state& walk, run_lengths& into) {
  const std::uint64_t pages = walk.page > walk.run_first ? walk.page - walk.run_first : walk.run_first - walk.page;
  into[pages + 1] += walk.run_distances;
}

void pattern_finder::add(std::uint64_t walk, std::uint64_t page) {
  const auto [place, is_new] = walks_.try_emplace(walk);
  walk_state& state = place->second;
  if (is_new) {
    state.page = state.run_first = page;
    return;
  }
  const auto distance = static_cast<std::int64_t>(page - state.page);
  if (distance == 0) return;
  ++distances_[distance];
  const int direction = direction_of(distance);
  if (state.run_distances > 0 && direction != direction_of(state.distance)) {
    close_run(state, state.distance > 0 ? forward_ : backward_);
    state.run_distances = 0;
  }
  if (direction != 0 && state.run_distances++ == 0) state.run_first = state.page;
  state.page = page;
  state.distance = distance;
}

std::uint64_t pattern_finder::typical_run(int direction) const {
  run_lengths runs = direction > 0 ? forward_ : backward_;
  for (const auto& [walk, state] : walks_) {
    if (state.run_distances > 0 && direction_of(state.distance) == direction) close_run(state, runs);
  }
  std::uint64_t all = 0;
  for (const auto& [pages, count] : runs) all += count;
  std::uint64_t seen = 0;
  for (auto longest = runs.rbegin(); longest != runs.rend(); ++longest) {
    seen += longest->second;
    if (2 * seen >= all) return longest->first;
  }
  return 0;
}

// A constant stride is looked for first, because every stride is also forward or backward. A short stride could be a
// scan with gaps, so it needs a greater share.
pattern pattern_finder::find() const {
  pattern found;
  std::uint64_t forward = 0;
  std::uint64_t backward = 0;
  std::pair<std::int64_t, std::uint64_t> commonest{0, 0};
  for (const auto& [distance, count] : distances_) {
    found.distances += count;
    if (direction_of(distance) > 0) forward += count;
    if (direction_of(distance) < 0) backward += count;
    if (count > commonest.second) commonest = {distance, count};
  }
  if (found.distances < fewest_distances) return found;
  const auto share = [&found](std::uint64_t count) {
    return static_cast<double>(count) / static_cast<double>(found.distances);
  };
  const auto [stride, stride_count] = commonest;
  const double needed = direction_of(stride) == 0 ? enough : constant_enough;
  if (std::llabs(stride) > 1 && share(stride_count) >= needed) {
    found.kind = pattern_kind::stride;
    found.stride = stride;
    found.fit = share(stride_count);
  } else if (share(forward) >= enough || share(backward) >= enough) {
    const bool up = forward >= backward;
    found.kind = up ? pattern_kind::forward : pattern_kind::backward;
    found.fit = share(up ? forward : backward);
    found.typical_run = typical_run(up ? 1 : -1);
  } else {
    found.kind = pattern_kind::random;
    found.fit = 1 - share(std::max(forward, backward));
  }
  return found;
}

std::string pattern_text(const pattern& seen) {
  switch (seen.kind) {
    case pattern_kind::unknown: return "too few to tell";
    case pattern_kind::forward: return "sequential, forward";
    case pattern_kind::backward: return "sequential, backward";
    case pattern_kind::stride: return "stride of " + std::to_string(seen.stride) + " pages";
    case pattern_kind::random: return "random";
  }
  return "";
}

std::string hint_text(const pattern& seen, bool changes) {
  const bool scan = seen.kind == pattern_kind::forward || seen.kind == pattern_kind::backward;
  std::string text = seen.kind == pattern_kind::stride ? "far_hint(next" : "far_hint(ptr";
  // In the order of far_hint_options: C++ demands it.
  if (changes) text += ", .mutate = true";
  if (scan) {
    const auto limit = static_cast<std::uint64_t>(pattern_finder::longest_read_ahead);
    const auto pages = static_cast<std::int64_t>(std::bit_floor(std::clamp<std::uint64_t>(seen.typical_run, 1, limit)));
    text += ", .read_ahead = " + std::to_string(seen.kind == pattern_kind::forward ? pages : -pages);
    text += ", .sequential = true";
  }
  return text + ");";
}

}  // namespace far::trace
