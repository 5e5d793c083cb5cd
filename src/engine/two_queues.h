// 2Q (Johnson and Shasha, VLDB'94), simplified: newcomers pass through a short queue. A page that is missed again soon
// after it has left goes to the long queue, where it stays much longer.
//
// So one walk over much data does not push out pages that are used all the time. This needs no accessed bits, which the
// hardware guard does not have: the page's epoch, set when it leaves, serves as 2Q's ghost entry at no cost. Other
// signs of use (a first write, a rescue, a hint) move a page to the end of the long queue.
//
// A page that is missed again soon, time after time, goes round in the long queue up to six times before it leaves. And
// the share of newcomers follows the misses: the queue whose pages are missed again soon more often becomes longer.
//
// Of a walk over more than there is room for, again and again, first in, first out keeps nothing. So what such a walk
// has announced passes through a queue of its own, whose pages leave first, and the others stay until the walk comes to
// them. One in a few changes places with the others, which do not stay for ever (bimodal insertion: Qureshi et al.,
// "Adaptive insertion policies for high performance caching", ISCA'07).
#pragma once

#include <array>
#include <cstdint>

#include "engine/page_queue.h"
#include "engine/policy.h"

namespace far::engine {

class two_queues final : public policy {
 public:
  // Newcomers leave first while they are more than this share of all pages. This figure, the limits of the share, and
  // the epochs below are from traces; see docs/decisions/0028-two-queues.md.
  static constexpr double usual_newcomers = 0.1;
  static constexpr double least_newcomers = 0.03;
  static constexpr double most_newcomers = 0.3;
  // Of pages that pass, and of victims while a walk goes on: neighbours together, so that what a walk misses comes in
  // long runs, too.
  static constexpr unsigned one_in_few = 16;
  static constexpr unsigned in_a_row = 64;

  // The share of newcomers begins with the usual one, and follows the misses.
  explicit two_queues(residency& pages) : two_queues(pages, usual_newcomers, true) {}
  // The share stays the same.
  two_queues(residency& pages, double newcomers) : two_queues(pages, newcomers, false) {}
  ~two_queues() override;

  void admit(page_id page, temperature how) override;
  [[nodiscard]] std::size_t select(std::span<page_id> victims) override;
  [[nodiscard]] std::size_t size() const override { return newcomers_.size() + proven_.size() + passing_.size(); }
  [[nodiscard]] unsigned remembered_epochs() const override { return 3; }
  [[nodiscard]] unsigned recalled_epochs() const override { return 6; }
  [[nodiscard]] double newcomers_share() const { return newcomers_share_; }

 private:
  enum class queue : std::uint8_t { newcomers, proven, passing };

  // A byte a page: bits 0-2 how often it was missed again soon, and at most a little late in between; bits 6 and 7 the
  // queue that it left last.
  static constexpr std::uint8_t most_returns = 7;
  static constexpr std::uint8_t returns_mask = 0x07;
  static constexpr unsigned left_shift = 6;

  // What left a queue, and what of it was missed again soon; older figures weigh less. Those of what passes only keep
  // it apart: a walk that goes on says nothing of how long newcomers should stay.
  struct departures {
    double pages = 0;
    double returned = 0;
  };

  two_queues(residency& pages, double newcomers, bool follows);
  [[nodiscard]] unsigned note_return(page_id page, bool is_soon, bool is_little_late);
  void note_departure(page_id page, queue from);
  [[nodiscard]] static bool is_turn(unsigned& count);
  [[nodiscard]] std::size_t share_of_all(double share) const;
  [[nodiscard]] std::size_t room_of_walks() const;
  [[nodiscard]] queue next();
  void adapt();

  residency& pages_;
  double newcomers_share_;
  const bool share_follows_;
  page_queue newcomers_;
  page_queue proven_;  // entries: a page, and in the bits from rounds_shift on how often it still goes round
  page_queue passing_;
  unsigned passed_ = 0;
  unsigned victims_ = 0;
  std::uint8_t* histories_;
  std::array<departures, 3> left_{};  // by queue
  std::size_t left_since_adapting_ = 0;
};

}  // namespace far::engine
