// The times of last use that hints report (far/hint.h): a byte a page, which policies read.
//
// A mark also says that the page is resident, so that a hint about it has nothing to do but to look at the mark: it is
// erased when the page leaves. Like everything a hint relies on it may be out of date; the hardware guard is behind it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "platform/address_space.h"
#include "platform/local_memory.h"

namespace far::engine {

class reference_marks {
 public:
  static constexpr unsigned times = 127;  // 1 to 127; time goes round
  static constexpr unsigned never = times;
  static constexpr std::uint8_t writable = 0x80;

  explicit reference_marks(std::uint64_t pages)
      : pages_(pages), bytes_(reinterpret_cast<std::uint8_t*>(platform::map_local(pages))) {}
  ~reference_marks() { platform::unmap_local(reinterpret_cast<std::byte*>(bytes_), pages_); }
  reference_marks(const reference_marks&) = delete;
  reference_marks& operator=(const reference_marks&) = delete;

  // The page is in use now, and resident.
  void note(platform::page_id page, bool is_writable) {
    __atomic_store_n(&bytes_[page], static_cast<std::uint8_t>(time() | (is_writable ? writable : 0)), __ATOMIC_RELAXED);
  }
  void erase(platform::page_id page) {
    if (__atomic_load_n(&bytes_[page], __ATOMIC_RELAXED) != 0) __atomic_store_n(&bytes_[page], 0, __ATOMIC_RELAXED);
  }
  // Whether it was used since the last call.
  [[nodiscard]] bool take(platform::page_id page) {
    return __atomic_load_n(&bytes_[page], __ATOMIC_RELAXED) != 0 &&
           __atomic_exchange_n(&bytes_[page], 0, __ATOMIC_RELAXED) != 0;
  }

  // How often time advanced since the page was last used; `never` when nothing is known.
  [[nodiscard]] unsigned age(platform::page_id page) const {
    const unsigned mark = __atomic_load_n(&bytes_[page], __ATOMIC_RELAXED) & ~writable;
    return mark == 0 ? never : (time() + times - mark) % times;
  }
  // For the policy, if it is one that distinguishes times. A page that is marked with an older time counts as used
  // again at its next hint.
  void advance() { __atomic_store_n(&now_, static_cast<std::uint8_t>(time() % times + 1), __ATOMIC_RELAXED); }

  // For far_hint_view.
  [[nodiscard]] const std::uint8_t* bytes() const { return bytes_; }
  [[nodiscard]] const std::uint8_t* now() const { return &now_; }

 private:
  [[nodiscard]] unsigned time() const { return __atomic_load_n(&now_, __ATOMIC_RELAXED); }

  std::uint64_t pages_;
  std::uint8_t* bytes_;
  std::uint8_t now_ = 1;
};

}  // namespace far::engine
