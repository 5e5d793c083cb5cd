// Pages that lie side by side travel as one request, whose cookie says which pages they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "base/check.h"
#include "base/units.h"
#include "engine/residency.h"

namespace far::engine {

// Pages [first, first + count) of one group: a flight of a fetcher, or a batch of an evictor.
struct run_cookie {
  std::size_t group = 0;
  std::size_t first = 0;
  std::size_t count = 0;

  // Requires: first and count fit into 16 bits, group into 32.
  [[nodiscard]] std::uint64_t pack() const { return group << 32 | first << 16 | count; }
  [[nodiscard]] static run_cookie unpack(std::uint64_t packed) {
    return {packed >> 32, packed >> 16 & 0xffff, packed & 0xffff};
  }
};

// Makes the requests of a group.
class request_runs {
 public:
  // Requires: `into` has room for the requests, and outlives this.
  request_runs(std::span<backend::request> into, std::size_t group) : into_(into), group_(group) {}

  // Adds the group's page `position`; its `cookie` and length are filled in here. It lengthens the request before when
  // its slot and its buffer follow on that one's. Requires: positions ascend, and all else is the same for the group.
  void add(std::size_t position, const backend::request& page) {
    if (count_ > 0) {
      backend::request& last = into_[count_ - 1];
      if (last.buffer + last.length_bytes == page.buffer && last.slot + last.length_bytes / page_bytes == page.slot) {
        last.length_bytes += page_bytes;
        run_cookie carried = run_cookie::unpack(last.cookie);
        ++carried.count;
        last.cookie = carried.pack();
        return;
      }
    }
    add_alone(position, page);
  }

  // The same, but it begins a request of its own.
  void add_alone(std::size_t position, const backend::request& page) {
    FAR_DCHECK(count_ < into_.size(), "a group has room for its requests");
    backend::request& added = into_[count_++];
    added = page;
    added.length_bytes = page_bytes;
    added.cookie = run_cookie{group_, position, 1}.pack();
  }

  [[nodiscard]] std::span<const backend::request> all() const { return into_.first(count_); }

 private:
  std::span<backend::request> into_;
  std::size_t group_;
  std::size_t count_ = 0;
};

// The longest run of neighbours at the front of sorted pages. Requires: not empty.
[[nodiscard]] inline std::size_t run_length(std::span<const page_id> sorted) {
  std::size_t length = 1;
  while (length < sorted.size() && sorted[length] == sorted[length - 1] + 1) ++length;
  return length;
}

// Sorted pages as ranges; returns how many. Requires: room for as many as there are pages.
[[nodiscard]] inline std::size_t put_runs(std::span<const page_id> sorted, std::span<page_range> into) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < sorted.size(); i += into[count++].count) {
    into[count] = {sorted[i], run_length(sorted.subspan(i))};
  }
  return count;
}

}  // namespace far::engine
