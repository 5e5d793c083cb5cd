// Fault-around: whether a miss that continues no walk brings the other pages of its region with it.
//
// The hardware guard does not show whether a page that came along was used. So now and then one page of a region is
// left out, as a sample: whether it is missed soon tells of the others. Samples are taken whether or not regions come
// whole, so a program that would gain by it is noticed, and one that would not pays nothing.
//
// Pages that come along take the places of others. So it is not enough that they are wanted: they must be wanted more
// often than the pages that leave, as the misses of those show. See docs/decisions/0048-samples.md.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engine/counters.h"
#include "engine/eviction_clock.h"
#include "engine/read_ahead.h"
#include "engine/residency.h"

namespace far::engine {

// Any thread may call any function at any time.
class neighbourhood {
 public:
  static constexpr std::size_t region_pages = 16;  // aligned
  static constexpr unsigned soon = 1;              // epochs: as long as newcomers stay, or a little longer

  // Requires: they outlive it. `come_whole`: regions do from the start, and not only once samples were wanted.
  neighbourhood(const residency& pages, const eviction_clock& time, counters& count, bool come_whole = false)
      : pages_(pages),
        time_(time),
        count_(count),
        wanted_share_(come_whole ? whole : 0),
        returning_share_(come_whole ? 0 : whole) {}

  // A Remote page is missed.
  void note_miss(page_id page);

  // The pages to come with a missing one that continues no walk: most often none, else the Remote ones of its region.
  [[nodiscard]] window around(page_id miss);

 private:
  static constexpr std::size_t most_samples = 256;
  static constexpr unsigned cohorts = 4;  // more than are open at a time; epochs are counted modulo a multiple of it

  // A page, and the epoch in which it was left out; 0: none.
  using sample = std::uint64_t;
  [[nodiscard]] static sample pack(page_id page, unsigned epoch) { return (page + 1) * page_word::epochs | epoch; }
  [[nodiscard]] static page_id page_of(sample packed) { return packed / page_word::epochs - 1; }
  [[nodiscard]] static unsigned epoch_of(sample packed) { return static_cast<unsigned>(packed % page_word::epochs); }
  [[nodiscard]] bool is_recent(sample packed) const { return time_.epochs_since(epoch_of(packed)) <= soon; }
  [[nodiscard]] std::atomic<sample>& place_of(page_id page);

  void note_epoch();
  void judge_samples(unsigned now);
  void learn_wanted(std::uint64_t wanted, std::uint64_t samples);
  void learn_returns();
  [[nodiscard]] bool leave_out(page_id page);
  [[nodiscard]] bool is_worth_it() const;

  const residency& pages_;
  const eviction_clock& time_;
  counters& count_;
  std::array<std::atomic<sample>, most_samples> samples_{};  // by a hash of the page
  // The samples of an epoch are judged together, when none of them can be missed soon any more: those that were are
  // known earlier than the others, so an average in the order of answers would swing between the two.
  std::array<std::atomic<std::uint64_t>, cohorts> wanted_{};  // by the epoch in which they were left out
  std::atomic<unsigned> epoch_seen_{0};
  // Shares in 1/1024; an update that is lost between two threads does no harm. Of the samples, those that were missed
  // soon, most of all in the last cohort; of the pages that left in the last epochs, those that were missed soon, or
  // would have been had they not come with others.
  static constexpr unsigned whole = 1024;
  std::atomic<unsigned> wanted_share_;
  std::atomic<unsigned> returning_share_;
  std::atomic<std::uint64_t> returned_{0};      // in this epoch
  std::atomic<std::uint64_t> evicted_then_{0};  // when it began
  std::atomic<std::uint64_t> along_then_{0};
  std::atomic<std::uint64_t> rescued_then_{0};
  std::atomic<std::uint64_t> left_{0};  // in the last epochs
  std::atomic<std::uint64_t> returning_{0};
};

}  // namespace far::engine
