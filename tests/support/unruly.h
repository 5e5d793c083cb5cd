// A function that is well here and misbehaves in its plugin (unruly.cc), for tests.
#pragma once

#include <cstdint>
#include <span>

struct unruly {
  static constexpr const char* plugin = "unruly";
  static constexpr const char* version = "1.0";
  static constexpr std::uint32_t number = 7;

  enum way : std::uint64_t {
    well,
    throw_text,
    throw_number,
    hang,
    write_outside,
    leave,
    flood,            // more than a reply may have
    too_long,         // one result more
    too_short,        // half of a result less
    unmarked,         // results that are not marked as such
    take_memory,      // more than it may
    scribble,         // over its arguments
    fork_and_return,  // both go on
    fork_and_leave,   // the child alone goes on
    fork_and_stay,    // the child stays in the call
  };

  using element = std::uint64_t;
  struct arguments {
    way how = well;
  };
  struct result {
    std::uint64_t sum = 0;
  };

  static result map(std::span<const std::uint64_t> part, const arguments&) {
    result found;
    for (const std::uint64_t one : part) found.sum += one;
    return found;
  }
  static void combine(result& all, const result& next) { all.sum += next.sum; }
};
