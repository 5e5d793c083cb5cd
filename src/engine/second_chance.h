// Second chance (CLOCK): first in, first out, but a page used since it was last looked at goes round once more.
//
// The hardware guard does not see accesses to mapped pages. So a page counts as used after a first write, a rescue on
// its way out, a hint or software guard, or a fetch so soon after its eviction that a budget twice as large would have
// kept it (its epoch shows this).
#pragma once

#include "engine/page_queue.h"
#include "engine/policy.h"

namespace far::engine {

class second_chance final : public policy {
 public:
  explicit second_chance(residency& pages) : pages_(pages) {}

  void admit(page_id page, temperature how) override;
  [[nodiscard]] std::size_t select(std::span<page_id> victims) override;
  [[nodiscard]] std::size_t size() const override { return queue_.size(); }

 private:
  residency& pages_;
  page_queue queue_;
};

}  // namespace far::engine
