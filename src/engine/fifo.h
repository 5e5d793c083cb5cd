// First in, first out: Eden's default. Costs nothing on any access, and keeps nothing that is hot.
#pragma once

#include "engine/page_queue.h"
#include "engine/policy.h"

namespace far::engine {

class fifo final : public policy {
 public:
  explicit fifo(residency& pages) : pages_(pages) {}

  void admit(page_id page, temperature how) override {
    how == temperature::cold ? queue_.push_front(page) : queue_.push_back(page);
  }

  [[nodiscard]] std::size_t select(std::span<page_id> victims) override {
    std::size_t found = 0;
    while (found < victims.size() && !queue_.empty()) {
      const page_id page = queue_.pop_front();
      pages_.update(page, [](page_word word) { return word.with_queued(false); });
      victims[found++] = page;
    }
    return found;
  }

  [[nodiscard]] std::size_t size() const override { return queue_.size(); }

 private:
  residency& pages_;
  page_queue queue_;
};

}  // namespace far::engine
