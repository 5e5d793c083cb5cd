// The replication histories that the data of a Redis process have had.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "backend/redis/server_facts.h"

namespace far::backend {

// A replica that takes over goes on from the history of its master. A master begins a new one when its first replica is
// attached, so a replica need not go on from the one that was seen first.
class data_histories {
 public:
  void clear() { count_ = 0; }

  void add(const server_facts& said) {
    // A replica of the same master may have gone on from the former one.
    for (const redis_run_id& one : {said.history, said.former_history}) {
      if (!one.is_known() || goes_on_from(one) || is_full()) continue;
      seen_[count_++] = one;
    }
  }

  // Whether a process whose data go on from `former` may have been a replica of the one whose histories these are. When
  // they are more than can be remembered, any may.
  [[nodiscard]] bool goes_on_from(const redis_run_id& former) const {
    const auto known = std::span(seen_).first(count_);
    return former.is_known() && (is_full() || std::ranges::find(known, former) != known.end());
  }

 private:
  [[nodiscard]] bool is_full() const { return count_ == seen_.size(); }

  std::array<redis_run_id, 16> seen_;
  std::size_t count_ = 0;
};

}  // namespace far::backend
