// What a remote hash table and its clients agree on: the operations of the plugin in examples/plugins/hash_table.cc,
// which far::remote_hash_map calls (far/remote_hash_map.h). Any plugin that has them will do.
//
// Keys and values are bytes. A *text* is its length (4 bytes), then its bytes. An *answer* about a key is 1 and the
// value as a text, or 0. Numbers are in the byte order of the machine.
#pragma once

#include <cstdint>

namespace far::remote_table {

enum : std::uint32_t {
  // Arguments: a key, without a length. Result: 1 and the value, without a length, or 0. Changes nothing.
  get = 1,
  // Arguments: keys and values, as texts, any number. Result: how many keys are new (8 bytes).
  put = 2,
  // Arguments: a key, then keys and values to put, all as texts. Result: as get. That entry is gone then.
  take = 3,
  // Result: how many entries there are (8 bytes). Changes nothing.
  count = 4,
  // Arguments: keys as texts. Result: how many of the first were answered (4 bytes), as many as a reply has room for,
  // then the answers. Changes nothing.
  get_many = 5,
  // Arguments: a number (8 bytes), how many keys are asked for (4 bytes), these keys, then keys and values to put, all
  // as texts. Result: as get_many; the entries that it has are gone then. All of it happens, or nothing. The number is
  // above that of every exchange before; the last one's repeats its result and does nothing.
  exchange = 6,
  // All entries are gone then.
  clear = 7,
};

// Of an entry, key and value together: so much fits into any call beside the rest.
inline constexpr std::uint32_t most_entry_bytes = 1'000'000;

}  // namespace far::remote_table
