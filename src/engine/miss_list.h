// The misses that one loop serves for many threads: it never waits for one of them, and looks at all of them again.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "engine/fetcher.h"
#include "engine/miss.h"
#include "platform/local_memory.h"

namespace far::engine {

class miss_list {
 public:
  // `lost`: called for a page whose bytes are gone for good; returns whether that ends the miss.
  miss_list(engine& with, host& around, fetcher& own, std::function<bool(page_id)> lost);
  ~miss_list();
  miss_list(const miss_list&) = delete;
  miss_list& operator=(const miss_list&) = delete;

  // `thread`: the thread that missed.
  void add(page_id page, bool write, std::uint64_t thread);

  // Takes arrived transfers and advances the misses. Returns whether a miss has ended, or a transfer has arrived.
  // Requires: the own fetcher's lock is held.
  bool serve();

  [[nodiscard]] bool empty() const { return pending_.empty(); }
  // Whether a miss waits for frames or for another thread, and not for an arrival that the own fetcher reports.
  [[nodiscard]] bool wants_another_look() const;

 private:
  static constexpr std::size_t read_ahead_states = 256;

  struct entry {
    miss one;
    std::uint64_t thread;
  };

  [[nodiscard]] bool try_one(entry& waiting);

  engine& engine_;
  host& host_;
  fetcher& own_;
  std::function<bool(page_id)> lost_;
  std::vector<entry, platform::local_allocator<entry>> pending_;
  // The history of each thread, by its number; two threads may share an entry.
  std::array<read_ahead_state, read_ahead_states>* streams_;
};

}  // namespace far::engine
