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
      if (!one.is_known() || is_full()) continue;
      const auto known = std::span(seen_).first(count_);
      const auto found = std::ranges::find(known, one, &entry::history);
      if (found == known.end()) {
        seen_[count_++] = {one, said.run_id};
      } else if (found->process != said.run_id) {
        found->process = {};
      }
    }
  }

  // Whether this process may have been a replica of one whose histories these are. One that has said itself what its
  // data go on from is no replica of itself: it may have taken over from another master before. When the histories are
  // more than can be remembered, any may.
  [[nodiscard]] bool has_successor(const server_facts& said) const {
    if (!said.former_history.is_known()) return false;
    const auto known = std::span(seen_).first(count_);
    const auto found = std::ranges::find(known, said.former_history, &entry::history);
    return is_full() || (found != known.end() && found->process != said.run_id);
  }

 private:
  struct entry {
    redis_run_id history;
    redis_run_id process;  // the only one that has said so; unknown: several have
  };
  [[nodiscard]] bool is_full() const { return count_ == seen_.size(); }

  std::array<entry, 16> seen_;
  std::size_t count_ = 0;
};

}  // namespace far::backend
