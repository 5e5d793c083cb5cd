// Completions that wait to be polled.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/check.h"
#include "platform/local_memory.h"

namespace far::backend {

// First in, first out; holds up to `depth` completions without allocating.
class completion_queue {
 public:
  explicit completion_queue(std::size_t depth) : entries_(depth) {}

  void push(completion added) {
    FAR_CHECK(count_ < entries_.size(), "more completions than requests");
    entries_[(head_ + count_++) % entries_.size()] = added;
  }

  [[nodiscard]] std::size_t pop(std::span<completion> done) {
    const std::size_t taken = std::min(done.size(), count_);
    for (std::size_t i = 0; i < taken; ++i) {
      done[i] = entries_[head_];
      head_ = (head_ + 1) % entries_.size();
    }
    count_ -= taken;
    return taken;
  }

  [[nodiscard]] bool empty() const { return count_ == 0; }

 private:
  std::vector<completion, platform::local_allocator<completion>> entries_;
  std::size_t head_ = 0;
  std::size_t count_ = 0;
};

}  // namespace far::backend
