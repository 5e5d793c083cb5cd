// Where the pages of the far heap lie. The numbers from 0 on are in one reserved range of addresses. Behind them come
// the program's static arrays, which keep their places; each begins at a block. Between two ranges at least one block
// of numbers names no address, so that no run of pages goes from one into the next.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/units.h"
#include "platform/address_space.h"

namespace far::platform {

class heap_layout {
 public:
  static constexpr std::size_t most_static_ranges = 8;
  static constexpr std::size_t alignment_bytes = 2 * mib;

  // Requires: both are multiples of alignment_bytes.
  heap_layout(std::byte* base, std::uint64_t bytes) : base_(base), bytes_(bytes) {}

  // Requires: the size and the address are multiples of alignment_bytes, the range overlaps no other, and there is room
  // for one more. Call it before any look-up that needs it.
  void add_static_range(std::span<std::byte> range) {
    FAR_CHECK(count_ < static_ranges_.size(), "the far heap has a place for each static range");
    static_ranges_[count_] = {range.data(), range.size(), pages() + (alignment_bytes >> page_shift)};
    ++count_;
  }

  [[nodiscard]] std::byte* base() const { return base_; }
  // Of the reserved range.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  // One more than the highest page number.
  [[nodiscard]] std::uint64_t pages() const {
    if (count_ == 0) return bytes_ >> page_shift;
    const static_range& last = static_ranges_[count_ - 1];
    return last.first + (last.bytes >> page_shift);
  }

  [[nodiscard]] bool contains(const void* address) const {
    const auto* const at = static_cast<const std::byte*>(address);
    return static_cast<std::size_t>(at - base_) < bytes_ || (count_ > 0 && range_holding(at) != nullptr);
  }

  // Whether any byte of the range is in the far heap.
  [[nodiscard]] bool overlaps(const void* address, std::size_t bytes) const {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    const auto meets = [&](const std::byte* base, std::uint64_t length) {
      const auto first = reinterpret_cast<std::uintptr_t>(base);
      return at - first < length || first - at < bytes;
    };
    bool any = meets(base_, bytes_);
    for (std::size_t i = 0; i < count_; ++i) any = any || meets(static_ranges_[i].base, static_ranges_[i].bytes);
    return any;
  }

  // How many bytes of the range, from its beginning on, lie in the same one of the far heap's ranges (`*inside`), or in
  // none. Requires: the range does not wrap around.
  [[nodiscard]] std::size_t uniform_bytes(const void* address, std::size_t bytes, bool* inside) const {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    std::size_t least = bytes;
    *inside = false;
    const auto look = [&](const std::byte* base, std::uint64_t length) {
      const auto first = reinterpret_cast<std::uintptr_t>(base);
      if (at - first < length) {
        *inside = true;
        least = std::min<std::size_t>(bytes, first + length - at);
      } else if (first > at && !*inside) {
        least = std::min<std::size_t>(least, first - at);
      }
    };
    look(base_, bytes_);
    for (std::size_t i = 0; i < count_ && !*inside; ++i) look(static_ranges_[i].base, static_ranges_[i].bytes);
    return least;
  }

  // Requires: contains(address), or one byte behind the end of the reserved range.
  [[nodiscard]] page_id page_at(const void* address) const {
    const auto* const at = static_cast<const std::byte*>(address);
    const auto offset = static_cast<std::uint64_t>(at - base_);
    if (offset < bytes_ || count_ == 0) return offset >> page_shift;
    const static_range* const holder = range_holding(at);
    return holder == nullptr ? offset >> page_shift
                             : holder->first + (static_cast<std::uint64_t>(at - holder->base) >> page_shift);
  }

  [[nodiscard]] std::byte* address_of(page_id page) const {
    if (page < bytes_ >> page_shift || count_ == 0) return base_ + (page << page_shift);
    const static_range* holder = &static_ranges_[0];
    for (std::size_t i = 1; i < count_ && static_ranges_[i].first <= page; ++i) holder = &static_ranges_[i];
    return holder->base + ((page - holder->first) << page_shift);
  }

  // The pages of the range that add_static_range() was called with as the `index`-th.
  [[nodiscard]] page_range static_pages(std::size_t index) const {
    return {static_ranges_[index].first, static_ranges_[index].bytes >> page_shift};
  }
  [[nodiscard]] std::size_t static_ranges() const { return count_; }

 private:
  struct static_range {
    std::byte* base;
    std::uint64_t bytes;
    page_id first;
  };

  [[nodiscard]] const static_range* range_holding(const std::byte* at) const {
    for (std::size_t i = 0; i < count_; ++i) {
      if (static_cast<std::size_t>(at - static_ranges_[i].base) < static_ranges_[i].bytes) return &static_ranges_[i];
    }
    return nullptr;
  }

  std::byte* base_;
  std::uint64_t bytes_;
  std::array<static_range, most_static_ranges> static_ranges_{};
  std::size_t count_ = 0;
};

}  // namespace far::platform
