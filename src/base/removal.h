// The steps by which a user takes a server out of a far tier.
#pragma once

#include <cstdint>

namespace far {

enum class removal : std::uint8_t {
  begin,  // or go on with one that is under way
  go_on,  // alone: a server of that name that was added meanwhile stays
};

}  // namespace far
