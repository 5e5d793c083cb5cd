// Storage for the elements of far::vector and similar containers: chunks of a fixed number of elements, so that growing
// moves nothing. It knows how much room there is, but not how many elements (docs/containers.md).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "far/detail/chunk.h"

namespace far {

// How many elements of T share a far object by default: as many as a scope holds and one fetch brings, 64 KiB, rounded
// down to a power of two.
template <typename T>
inline constexpr std::size_t elements_per_object =
    std::bit_floor(std::max<std::size_t>(detail::largest_held_bytes / sizeof(T), 1));

namespace detail {

// Chunks of whole pages. The first one grows to its full size by doubling, so that few elements take little memory.
template <typename T, std::size_t Elements>
class page_chunks {
 public:
  explicit page_chunks(const tag& in) : in_(in) {}
  page_chunks(page_chunks&& other) noexcept
      : in_(other.in_), chunks_(std::move(other.chunks_)), room_(std::exchange(other.room_, 0)) {}
  page_chunks& operator=(page_chunks&& other) noexcept {
    in_ = other.in_;
    chunks_ = std::move(other.chunks_);
    room_ = std::exchange(other.room_, 0);
    return *this;
  }

  [[nodiscard]] const tag& home() const { return in_; }
  [[nodiscard]] std::size_t room() const { return room_; }

  // Makes room for `wanted` elements; new room is zeros. `used`: how many there are. Strong exception guarantee.
  void grow(std::size_t wanted, std::size_t used) {
    if (wanted <= room_) return;
    if (room_ < Elements) grow_first(std::min(Elements, std::max(wanted, 2 * room_)), used);
    if (wanted <= room_) return;
    const std::size_t count = (wanted - 1) / Elements + 1;
    const std::size_t before = chunks_.size();
    if (count > chunks_.capacity()) chunks_.reserve(std::max(count, 2 * before));
    try {
      while (chunks_.size() < count) chunks_.emplace_back(in_, Elements, chunks_.size() * Elements);
    } catch (...) {
      chunks_.resize(before);
      throw;
    }
    room_ = count * Elements;
  }

  // Gives back what is not needed for `used` elements.
  void shrink(std::size_t used) noexcept {
    const std::size_t count = (used + Elements - 1) / Elements;
    if (count >= chunks_.size()) return;
    chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(count), chunks_.end());
    room_ = count * Elements;
  }

  // See chunk.
  [[nodiscard]] T* place(const scope& in, std::size_t index, bool write, bool lasting = true) const {
    return chunks_[index / Elements].place(in, index % Elements, write, lasting);
  }

  // How many elements, a power of two, are a window: they lie in one object, and take at most a page or are one.
  static constexpr std::size_t window =
      std::min(Elements, std::bit_floor(std::max<std::size_t>(page_bytes_of_chunks / sizeof(T), 1)));
  // Likewise, the most that a scope holds.
  static constexpr std::size_t piece = std::min(Elements, elements_per_object<T>);
  // An element, if all elements of its window are local. Otherwise nullptr, and nothing has changed.
  [[nodiscard]] T* place_in_window(const scope& in, std::size_t index, bool write) const {
    if constexpr (sizeof(T) > page_bytes_of_chunks) return nullptr;
    const std::size_t within = index % Elements;
    return chunks_[index / Elements].place_if_ready(in, within, within - within % window, window, write);
  }

  // How many of `count` elements from `first` on lie in one stretch of memory that a scope can hold.
  [[nodiscard]] static std::size_t stretch(std::size_t first, std::size_t count) {
    constexpr std::size_t most = std::max<std::size_t>(largest_held_bytes / sizeof(T), 1);
    return std::min({count, Elements - first % Elements, most});
  }
  // A stretch.
  [[nodiscard]] std::span<T> places(const scope& in, std::size_t first, std::size_t count, bool write,
                                    bool lasting = true) const {
    return {chunks_[first / Elements].places(in, first % Elements, count, write, lasting), count};
  }
  [[nodiscard]] reduced_numbers reduce(const scope& in, std::size_t first, std::size_t count,
                                       const reduction& how) const {
    return chunks_[first / Elements].reduce(in, first % Elements, count, how);
  }
  void answer(const scope& in, std::size_t first, std::size_t count, const reduction& how, const answer_sink& to,
              const std::uint8_t* groups) const {
    chunks_[first / Elements].answer(in, first % Elements, count, how, to, groups);
  }
  [[nodiscard]] const std::byte* page_of(std::size_t index) const {
    return chunks_[index / Elements].page_of(index % Elements);
  }
  // Requires: the elements lie in one page.
  void copy(const scope& in, std::size_t first, std::size_t count, T* to) const {
    chunks_[first / Elements].copy(in, first % Elements, count, to);
  }
  // A stretch (see forget_part()).
  void forget(const scope& in, std::size_t first, std::size_t count, bool here_too) const {
    chunks_[first / Elements].forget(in, first % Elements, count, here_too);
  }
  // Starts to fetch elements. Requires: there is room for them.
  void prefetch(std::size_t first, std::size_t count) const {
    for (std::size_t now = 0; count > 0; first += now, count -= now) {
      now = std::min(count, Elements - first % Elements);
      chunks_[first / Elements].prefetch(first % Elements, now);
    }
  }

  // The same ahead of a walk, where most are local already.
  void look_ahead(const scope& in, std::size_t first, std::size_t count) const {
    for (std::size_t now = 0; count > 0; first += now, count -= now) {
      now = std::min(count, Elements - first % Elements);
      // The first chunk may be smaller than a page; then there is no other.
      if (first >= Elements || room_ >= Elements) {
        chunks_[first / Elements].prefetch_unless_ready(in, first % Elements, now);
      }
    }
  }

 private:
  void grow_first(std::size_t wanted, std::size_t used) {
    constexpr std::size_t fits_in_page = std::max<std::size_t>(largest_shared_bytes / sizeof(T), 1);
    std::size_t count = std::min(Elements, std::max(std::bit_ceil(wanted), (64 + sizeof(T) - 1) / sizeof(T)));
    if (wanted <= fits_in_page) count = std::min(count, fits_in_page);
    chunk<T> larger(in_, count);
    if (used > 0) {
      const scope here(in_.home());
      const chunk<T>& before = chunks_.front();
      // All comes in before anything moves: if a part is lost, nothing has happened.
      for (std::size_t first = 0, now = 0; first < used; first += now) {
        now = stretch(first, used - first);
        static_cast<void>(before.places(here, first, now, true));
        static_cast<void>(larger.places(here, first, now, true));
      }
      relocate(before.places(here, 0, used, true), used, larger.places(here, 0, used, true));
    }
    if (chunks_.empty()) {
      chunks_.push_back(std::move(larger));
    } else {
      chunks_.front() = std::move(larger);
    }
    room_ = count;
  }

  tag in_;
  std::vector<chunk<T>> chunks_;
  std::size_t room_ = 0;
};

// Small groups of elements, each a far object that comes and goes alone (the object path), for random access. The
// pointers to the groups lie in far pages themselves.
template <typename T, std::size_t Elements>
class group_chunks {
 public:
  explicit group_chunks(const tag& in) : groups_(in) {}
  group_chunks(group_chunks&& other) noexcept
      : groups_(std::move(other.groups_)), count_(std::exchange(other.count_, 0)) {}
  group_chunks& operator=(group_chunks&& other) noexcept {
    release_from(0);
    groups_ = std::move(other.groups_);
    count_ = std::exchange(other.count_, 0);
    return *this;
  }
  ~group_chunks() { release_from(0); }

  [[nodiscard]] const tag& home() const { return groups_.home(); }
  [[nodiscard]] std::size_t room() const { return count_ * Elements; }

  void grow(std::size_t wanted, std::size_t /*used*/) {
    const std::size_t needed = (wanted + Elements - 1) / Elements;
    if (needed <= count_) return;
    groups_.grow(needed, count_);
    const std::size_t before = count_;
    try {
      while (count_ < needed) {
        group fresh(home(), Elements);
        const scope here(home().home());
        new (groups_.place(here, count_, true)) group(std::move(fresh));
        ++count_;
      }
    } catch (...) {
      release_from(before);
      throw;
    }
  }

  void shrink(std::size_t used) noexcept {
    const std::size_t needed = (used + Elements - 1) / Elements;
    if (needed >= count_) return;
    release_from(needed);
    groups_.shrink(needed);
  }

  [[nodiscard]] T* place(const scope& in, std::size_t index, bool write, bool lasting = true) const {
    return groups_.place(in, index / Elements, false)->place(in, index % Elements, write, lasting);
  }
  static constexpr std::size_t window = Elements;
  static constexpr std::size_t piece = Elements;
  [[nodiscard]] T* place_in_window(const scope& in, std::size_t index, bool write) const {
    const group* const found = groups_.place_in_window(in, index / Elements, false);
    return found == nullptr ? nullptr : found->place_if_ready(in, index % Elements, 0, Elements, write);
  }
  [[nodiscard]] static std::size_t stretch(std::size_t first, std::size_t count) {
    return std::min(count, Elements - first % Elements);
  }
  [[nodiscard]] std::span<T> places(const scope& in, std::size_t first, std::size_t count, bool write,
                                    bool lasting = true) const {
    return {place(in, first, write, lasting), count};
  }
  // A group comes and goes as a whole.
  [[nodiscard]] reduced_numbers reduce(const scope& in, std::size_t first, std::size_t count,
                                       const reduction& how) const {
    return reduce_bytes(reinterpret_cast<const std::byte*>(place(in, first, false)), count * sizeof(T), how);
  }
  void answer(const scope& in, std::size_t first, std::size_t count, const reduction& how, const answer_sink& to,
              const std::uint8_t* groups) const {
    answer_local(reinterpret_cast<const std::byte*>(place(in, first, false)), count * sizeof(T), how, to, groups);
  }
  [[nodiscard]] static const std::byte* page_of(std::size_t /*index*/) { return nullptr; }
  void copy(const scope& in, std::size_t first, std::size_t count, T* to) const {
    std::memcpy(to, place(in, first, false), count * sizeof(T));
  }
  void forget(const scope& in, std::size_t first, std::size_t count, bool here_too) const {
    if (here_too) std::memset(static_cast<void*>(place(in, first, true)), 0, count * sizeof(T));
  }
  void prefetch(std::size_t first, std::size_t count) const {
    if (count == 0) return;
    const scope here(home().home());
    for (std::size_t at = first / Elements; at <= (first + count - 1) / Elements; ++at) {
      groups_.place(here, at, false)->prefetch(0, Elements);
    }
  }

  // Where groups are may be lost: the walk ends there, if it comes there.
  void look_ahead(const scope& /*in*/, std::size_t first, std::size_t count) const {
    static_cast<void>(unless_lost([&] { prefetch(first, count); }));
  }

 private:
  using group = chunk<T>;

  void release_from(std::size_t first) noexcept {
    while (count_ > first) {
      const scope here(home().home());
      --count_;
      static_cast<void>(unless_lost([&] { destroy_elements(groups_.place(here, count_, true), 1); }));
    }
  }

  page_chunks<group, elements_per_object<group>> groups_;
  std::size_t count_ = 0;
};

template <typename T, std::size_t Elements>
inline constexpr bool is_grouped = Elements * sizeof(T) <= largest_shared_bytes;

template <typename T, std::size_t Elements>
using chunk_store = std::conditional_t<is_grouped<T, Elements>, group_chunks<T, Elements>, page_chunks<T, Elements>>;

}  // namespace detail
}  // namespace far
