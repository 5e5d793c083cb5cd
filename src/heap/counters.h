// The counters of the object heap, for far::runtime::statistics().
#pragma once

#include <atomic>
#include <cstdint>

namespace far::heap {

struct counters {
  std::atomic<std::uint64_t> object_fetches{0};
  std::atomic<std::uint64_t> object_fetch_bytes{0};
  std::atomic<std::uint64_t> page_fetches{0};
  std::atomic<std::uint64_t> object_path_pages{0};  // evicted so that their objects come back one by one
  std::atomic<std::uint64_t> page_path_pages{0};
  std::atomic<std::uint64_t> kept_pages{0};    // victims that a scope held
  std::atomic<std::uint64_t> forced_pages{0};  // those that left although a scope held them
  std::atomic<std::uint64_t> evacuated_objects{0};
  std::atomic<std::uint64_t> evacuated_segments{0};
  std::atomic<std::uint64_t> lost_races{0};  // objects that a mutator took back from the evacuator

  std::atomic<std::uint64_t> reduced_pages{0};      // pages whose numbers the far tier reduced
  std::atomic<std::uint64_t> handled_objects{0};    // for which a handler was called before they left
  std::atomic<std::uint64_t> abandoned_objects{0};  // lost ones that owned others: their places are not used again

  static void add(std::atomic<std::uint64_t>& to, std::uint64_t amount = 1) {
    to.fetch_add(amount, std::memory_order_relaxed);
  }
};

}  // namespace far::heap
