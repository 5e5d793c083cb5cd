// Which objects are about to leave local memory: noted by a handler, which neither waits nor allocates (far/tag.h), for
// a thread that looks after them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace far::detail {

// Thread-safe. No far memory is used under its lock.
class leaving_notes {
 public:
  // Further objects are not noted until somebody has taken these.
  static constexpr std::size_t most = 16384;

  leaving_notes() { noted_.reserve(most); }

  void add(std::uint64_t object) noexcept {
    {
      const std::lock_guard guard(lock_);
      if (noted_.size() == most) return;
      noted_.push_back(object);
      if (noted_.size() > 1) return;
    }
    changed_.notify_one();
  }
  // Waits for notes, at most that long, and exchanges them for `into`, which is empty and has room. Returns false once
  // the end has been called for.
  [[nodiscard]] bool take(std::chrono::milliseconds at_most, std::vector<std::uint64_t>& into) {
    std::unique_lock guard(lock_);
    changed_.wait_for(guard, at_most, [this] { return ends_ || !noted_.empty(); });
    std::swap(noted_, into);
    return !ends_;
  }
  void end() {
    {
      const std::lock_guard guard(lock_);
      ends_ = true;
    }
    changed_.notify_one();
  }

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  std::vector<std::uint64_t> noted_;
  bool ends_ = false;
};

}  // namespace far::detail
