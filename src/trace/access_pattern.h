// How one line walks over memory, as its misses show, and the hint that would have come before them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

namespace far::trace {

enum class pattern_kind { unknown, forward, backward, stride, random };

struct pattern {
  pattern_kind kind = pattern_kind::unknown;
  std::int64_t stride = 0;        // pages, of `stride`
  double fit = 0;                 // share of the distances that have the pattern
  std::uint64_t distances = 0;    // that were seen
  std::uint64_t typical_run = 0;  // pages: half of the fitting distances are in runs of at least this many
};

// "sequential, forward", "stride of 12 pages", ...
[[nodiscard]] std::string pattern_text(const pattern& seen);

// Takes the misses of one line in the order of time, and examines the distances, in pages, between successive misses of
// a walk. A walk is what one thread misses in one allocation, so that threads, and arrays walked over side by side, do
// not look random. Distances of 0 (a read, then the first write, of a page) say nothing.
//
// The pattern is the first of:
//   stride k  the most frequent distance is k, |k| > 1, with at least 60% of all; 90% when |k| <= 64, where it could be
//             a scan with gaps as well
//   forward   at least 60% of the distances are 1 to 64: read-ahead leaves gaps between the misses of a scan, never
//   longer
//             than the longest read-ahead
//   backward  the same, negative
//   random    everything else
// and unknown with fewer than 4 distances.
class pattern_finder {
 public:
  static constexpr std::int64_t longest_read_ahead = 64;  // pages, include/far/hint.h

  // `walk` tells thread and allocation apart.
  void add(std::uint64_t walk, std::uint64_t page);
  [[nodiscard]] pattern find() const;

 private:
  struct walk_state {
    std::uint64_t page = 0;
    std::int64_t distance = 0;  // the last one; 0: none yet
    std::uint64_t run_first = 0;
    std::uint64_t run_distances = 0;
  };
  // Runs of one direction: lengths in pages -> distances in runs of that length.
  using run_lengths = std::map<std::uint64_t, std::uint64_t>;

  static int direction_of(std::int64_t distance);
  static void close_run(const walk_state& walk, run_lengths& into);
  [[nodiscard]] std::uint64_t typical_run(int direction) const;

  std::unordered_map<std::uint64_t, walk_state> walks_;
  std::map<std::int64_t, std::uint64_t> distances_;  // -> how often
  run_lengths forward_;
  run_lengths backward_;
};

// The hint to write, as code: `far_hint(ptr, .read_ahead = 16, .sequential = true);`. `changes` when most of the line's
// misses are writes.
//
// read_ahead is the greatest power of two that is not above the typical run, at most 64, negative for a backward walk:
// half of the pages fetched ahead would be used at least. Random lines get none; neither do strides, whose hint names
// the next address itself.
[[nodiscard]] std::string hint_text(const pattern& seen, bool changes);

}  // namespace far::trace
