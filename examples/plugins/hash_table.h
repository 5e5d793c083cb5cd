// What the plugin in hash_table.cc and its clients agree on. A text is its length (4 bytes), then its bytes.
#pragma once

#include <cstdint>

namespace hash_table_operation {

enum : std::uint32_t {
  get = 1,    // arguments: a key, without a length; result: 1 and the value, or 0
  put = 2,    // arguments: keys and values, as texts
  take = 3,   // arguments: a key, then keys and values to put, all as texts; result: as get. The entry is gone then
  count = 4,  // result: how many entries there are (8 bytes)
};

}  // namespace hash_table_operation
