// What the servers of copies refuse (is_refusal()), when bytes are to be copied.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backend/replicated/slot_set.h"

namespace far::backend {

// By one that has the bytes. What it refuses to return is asked for in smaller and smaller parts, so that a slot that
// cannot be read keeps no other from being copied. When it refuses all the same it is left alone as a whole, since its
// disk may take seconds for each try.
struct source_record {
  static constexpr unsigned most_in_a_row = 12;  // a few more than it takes until the parts are single slots

  slot_set refused;                // not to be asked for again
  std::size_t most = group_slots;  // that are asked for at a time
  unsigned in_a_row = 0;           // of refusals

  void note_refusal(std::size_t first, std::size_t count) {
    if (count == 1) refused |= slot_set::range(first, 1);
    if (++in_a_row == most_in_a_row) refused = slot_set::everything();
    most = std::max<std::size_t>(1, count / 2);
  }
  void note_success() {
    in_a_row = 0;
    most = std::min(most * 2, group_slots);
  }
};

// By one that should get them, and does not return what it had there either. After a few in a row its extent is of no
// use any more. Another one may be, on the same server, too: a block that is bad on its disk is not used again at once.
class refusal_count {
 public:
  [[nodiscard]] bool is_broken() const { return in_a_row_ >= most; }
  void note(bool is_refusal) {
    if (!is_refusal) in_a_row_ = 0;
    if (is_refusal && !is_broken()) ++in_a_row_;
  }

 private:
  static constexpr std::uint8_t most = 3;
  std::uint8_t in_a_row_ = 0;
};

}  // namespace far::backend
