// Waits for an object that another fiber or thread is fetching over the object path.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/spin_lock.h"
#include "fiber/waiter.h"

namespace far::heap {

class object_waits {
 public:
  // Waits while the object of the word is being fetched. A fiber or thread that clears the flag (memory_order_seq_cst)
  // calls wake_all() afterwards.
  void wait_while_fetching(const std::atomic<std::uint64_t>& word) noexcept;
  void wake_all(const std::atomic<std::uint64_t>& word) noexcept;

 private:
  struct bucket {
    spin_lock lock;
    fiber::wait_list waiting FAR_GUARDED_BY(lock);
    std::atomic<unsigned> count{0};
  };

  [[nodiscard]] bucket& bucket_of(const void* word) {
    return buckets_[reinterpret_cast<std::uintptr_t>(word) / 8 % buckets_.size()];
  }

  std::array<bucket, 64> buckets_;
};

}  // namespace far::heap
