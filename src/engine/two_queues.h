// 2Q (Johnson and Shasha, VLDB'94), simplified: newcomers pass through a short queue. A page that is missed again soon
// after it has left goes to the long queue, where it stays much longer.
//
// So one walk over much data does not push out pages that are used all the time. This needs no accessed bits, which the
// hardware guard does not have: the page's epoch, set when it leaves, serves as 2Q's ghost entry at no cost. Other
// signs of use (a first write, a rescue, a hint) move a page to the end of the long queue.
#pragma once

#include "engine/page_queue.h"
#include "engine/policy.h"

namespace far::engine {

class two_queues final : public policy {
 public:
  // Newcomers leave first while they are more than this share of all pages. This figure and the epochs below are from
  // traces; see docs/decisions/0028-two-queues.md.
  static constexpr double usual_newcomers = 0.1;

  explicit two_queues(residency& pages, double newcomers = usual_newcomers)
      : pages_(pages), newcomers_share_(newcomers) {}

  void admit(page_id page, temperature how) override;
  [[nodiscard]] std::size_t select(std::span<page_id> victims) override;
  [[nodiscard]] std::size_t size() const override { return newcomers_.size() + proven_.size(); }
  [[nodiscard]] unsigned remembered_epochs() const override { return 3; }

 private:
  residency& pages_;
  const double newcomers_share_;
  page_queue newcomers_;
  page_queue proven_;
};

}  // namespace far::engine
