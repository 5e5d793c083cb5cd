// Least recently used, with a resolution of N lists (Eden, section 4). Each list has the pages that were last used in
// one stretch of time; victims come from the oldest. A page whose mark (reference_marks.h) turns out to be younger goes
// to the list of that time instead. Without marks it is first in, first out.
//
// Time advances when as many pages have come in as an N-th of those it holds. Pages of more than N stretches ago lie in
// the oldest list together.
#pragma once

#include <vector>

#include "engine/page_queue.h"
#include "engine/policy.h"

namespace far::engine {

class lru final : public policy {
 public:
  static constexpr std::size_t least_lists = 2;
  static constexpr std::size_t most_lists = 32;
  static constexpr std::size_t usual_lists = 8;

  lru(residency& pages, std::size_t lists) : pages_(pages), lists_(lists) {}

  void admit(page_id page, temperature how) override;
  [[nodiscard]] std::size_t select(std::span<page_id> victims) override;
  [[nodiscard]] std::size_t size() const override { return size_; }

 private:
  static constexpr std::size_t least_stretch_pages = 64;

  [[nodiscard]] page_queue& list_of_age(std::size_t age) {
    return lists_[(newest_ + lists_.size() - age) % lists_.size()];
  }
  void let_time_pass();

  residency& pages_;
  std::vector<page_queue, platform::local_allocator<page_queue>> lists_;  // a ring
  std::size_t newest_ = 0;
  std::size_t size_ = 0;
  std::size_t came_ = 0;  // since time last advanced
};

}  // namespace far::engine
