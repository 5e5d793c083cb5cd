// Priorities: four levels that hints set (Eden, section 4). Pages of the highest level leave first, pages of a lower
// one only when no higher ones are left. Within a level, second chance applies. Pages of the highest level get no
// second chance: it is for data that is used only once (AIFM's non-temporal accesses).
#pragma once

#include <array>

#include "engine/page_queue.h"
#include "engine/policy.h"

namespace far::engine {

class priority final : public policy {
 public:
  explicit priority(residency& pages) : pages_(pages) {}

  void admit(page_id page, temperature how) override;
  [[nodiscard]] std::size_t select(std::span<page_id> victims) override;
  [[nodiscard]] std::size_t size() const override;

 private:
  static constexpr unsigned used_once = page_word::eviction_priorities - 1;

  [[nodiscard]] std::size_t select_of(unsigned level, std::span<page_id> victims);

  residency& pages_;
  std::array<page_queue, page_word::eviction_priorities> queues_;
};

}  // namespace far::engine
