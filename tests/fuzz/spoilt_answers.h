// Part of fuzz_offload: answers of the call "reduce" that a server has spoilt, as a client looks at them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/page_reduction.h"
#include "far/detail/reduction.h"
#include "fuzz/fuzz_target.h"

namespace far::fuzz {

// What a client takes for possible names nothing beyond the numbers, also of an answer that a server has spoilt.
inline void expect_no_reach(const reduction& how, std::size_t bytes_of_numbers, const std::byte* answer) {
  byte_string spoilt(answer, answer + found_bytes(how));
  if (spoilt.empty()) return;
  std::uint64_t random = bytes_of_numbers * 0x9e37'79b9'7f4a'7c15u + how.lowest;
  for (int i = 0; i < 8; ++i) {
    random = (random ^ random >> 29) * 0xbf58'476d'1ce4'e5b9u;
    // Mostly in front, where the counts are.
    const std::size_t among = (random & 1) == 0 ? spoilt.size() : std::min<std::size_t>(spoilt.size(), 16);
    spoilt[(random >> 16) % among] ^= static_cast<std::byte>(random >> 40);
    if (!is_possible_of_page(how, bytes_of_numbers, spoilt.data())) continue;
    std::uint64_t count = 0;
    std::memcpy(&count, spoilt.data(), sizeof count);
    const std::size_t numbers = bytes_of_numbers / number_bytes(how.type);
    if (how.kind == reduction_kind::marks) {
      for (std::size_t at = numbers; at < 8 * spoilt.size(); ++at) {
        FUZZ_EXPECT((std::to_integer<unsigned>(spoilt[at / 8]) >> at % 8 & 1) == 0);
      }
    } else if (how.kind == reduction_kind::matches && count <= detail::most_places(how.groups)) {
      for (std::size_t at = 0; at < count; ++at) {
        std::uint16_t place = 0;
        std::memcpy(&place, spoilt.data() + sizeof count + at * sizeof place, sizeof place);
        FUZZ_EXPECT(place + std::size_t{how.shift} <= numbers);
      }
    } else if (how.kind == reduction_kind::values || how.kind == reduction_kind::distinct) {
      FUZZ_EXPECT(count <= numbers);
    }
  }
}

}  // namespace far::fuzz
