#include "heap/plain_space.h"

#include <algorithm>
#include <bit>
#include <new>

#include "base/check.h"
#include "base/lock_guard.h"

namespace far::heap {
namespace {

// Up to 128 bytes the sizes are multiples of 16; from there on there are four in each doubling.
constexpr std::size_t small_sizes = 8;
constexpr unsigned small_bits = 7;

}  // namespace

constexpr std::size_t plain_space::size_index(std::size_t bytes) {
  if (bytes <= 128) return (std::max<std::size_t>(bytes, 1) - 1) / 16;
  const auto bits = static_cast<unsigned>(std::bit_width(bytes - 1));  // 2^(bits-1) < bytes <= 2^bits
  return small_sizes + (bits - small_bits - 1) * 4 +
         (bytes - (std::size_t{1} << (bits - 1)) - 1) / (std::size_t{1} << (bits - 3));
}

constexpr std::size_t plain_space::size_at(std::size_t index) {
  if (index < small_sizes) return (index + 1) * 16;
  const std::size_t base = std::size_t{128} << (index - small_sizes) / 4;
  return base + base / 4 * ((index - small_sizes) % 4 + 1);
}

namespace {

// Each size is the smallest that has room for it, and aligned to 16.
constexpr bool sizes_are_right() {
  for (std::size_t bytes = 1; bytes <= plain_space::largest_place_bytes; ++bytes) {
    const std::size_t index = plain_space::size_index(bytes);
    if (plain_space::size_at(index) < bytes || plain_space::size_at(index) % 16 != 0) return false;
    if (index > 0 && plain_space::size_at(index - 1) >= bytes) return false;
  }
  return true;
}
static_assert(sizes_are_right());

}  // namespace

plain_space::slab::slab(std::size_t places) : used((places + 63) / 64) {
  if (places % 64 != 0) used.back() = ~std::uint64_t{0} << places % 64;
}

std::size_t plain_space::slab::take() {
  for (std::size_t& word = first_with_room; word < used.size(); ++word) {
    if (used[word] == ~std::uint64_t{0}) continue;
    const auto bit = static_cast<std::size_t>(std::countr_one(used[word]));
    used[word] |= std::uint64_t{1} << bit;
    ++live;
    return word * 64 + bit;
  }
  return none;
}

void plain_space::slab::release(std::size_t place) {
  const std::uint64_t bit = std::uint64_t{1} << place % 64;
  FAR_CHECK((used[place / 64] & bit) != 0, "memory is given back once, as it was taken");
  used[place / 64] &= ~bit;
  --live;
  first_with_room = std::min(first_with_room, place / 64);
}

// Places of a power of two are aligned to it, because slabs are.
std::size_t plain_space::place_bytes(std::size_t bytes, std::size_t alignment) {
  return alignment <= 16 ? bytes : std::bit_ceil(std::max(bytes, alignment));
}

std::uintptr_t plain_space::take(std::size_t bytes, std::size_t alignment, unsigned tag) {
  if (alignment > page_bytes || bytes > std::size_t{1} << 46) throw std::bad_alloc();
  const std::size_t wanted = place_bytes(bytes, alignment);
  if (wanted > largest_place_bytes) return huge_.take(bytes, tag, true);
  const std::size_t index = size_index(wanted);
  return take_place(kinds_[tag][index], size_at(index), tag);
}

std::uintptr_t plain_space::take_place(kind& from, std::size_t size_bytes, unsigned tag) {
  static_assert(size_index(largest_place_bytes) + 1 == sizes);
  while (true) {
    {
      const lock_guard guard(from.lock);
      while (!from.with_room.empty()) {
        const std::uintptr_t first = from.with_room.back();
        slab& in = from.slabs.at(first);
        const std::size_t place = in.take();
        if (place != slab::none) return first + place * size_bytes;
        in.listed = false;
        from.with_room.pop_back();
      }
    }
    const std::uintptr_t fresh = segments_.take(segment_state::runs, tag);
    // In use although no scope holds it.
    pages_.begin_use(pages_.page_of(fresh), segment_pages, tag, true);
    const lock_guard guard(from.lock);
    try {
      // Room for all of them: release() must not throw.
      from.with_room.reserve(from.slabs.size() + 1);
      from.slabs.emplace(fresh, slab(segment_bytes / size_bytes));
    } catch (const std::bad_alloc&) {
      segments_.release_runs(fresh);
      throw;
    }
    from.with_room.push_back(fresh);
  }
}

void plain_space::release(std::uintptr_t address, std::size_t bytes, std::size_t alignment) {
  const std::size_t wanted = place_bytes(bytes, alignment);
  if (wanted > largest_place_bytes) return huge_.release(address);
  const std::size_t index = size_index(wanted);
  kind& places = kinds_[pages_.tag_of(pages_.page_of(address))][index];
  const std::uintptr_t first = address - address % segment_bytes;
  {
    const lock_guard guard(places.lock);
    const auto found = places.slabs.find(first);
    FAR_CHECK(found != places.slabs.end(), "memory is given back with the size and alignment with which it was taken");
    slab& in = found->second;
    in.release((address - first) / size_at(index));
    if (!in.listed) {
      in.listed = true;
      places.with_room.push_back(first);
    }
    if (in.live > 0 || places.with_room.size() == 1) return;
    std::erase(places.with_room, first);
    places.slabs.erase(found);
  }
  segments_.release_runs(first);
}

void plain_space::validate() const {
  for (const auto& by_size : kinds_) {
    for (std::size_t index = 0; index < sizes; ++index) {
      const lock_guard guard(by_size[index].lock);
      std::size_t listed = 0;
      for (const auto& [first, one] : by_size[index].slabs) {
        FAR_CHECK(segments_.holding(first).state.load() == segment_state::runs, "a slab is a segment of runs");
        std::size_t set = 0;
        for (std::size_t word = 0; word < one.used.size(); ++word) {
          FAR_CHECK(word >= one.first_with_room || one.used[word] == ~std::uint64_t{0}, "no room before the first");
          set += static_cast<std::size_t>(std::popcount(one.used[word]));
        }
        const std::size_t places = segment_bytes / size_at(index);
        FAR_CHECK(set == one.live + one.used.size() * 64 - places, "a slab's count is the number of its bits");
        FAR_CHECK(one.listed || one.live == places, "a slab with room is listed");
        listed += one.listed ? 1 : 0;
      }
      FAR_CHECK(listed == by_size[index].with_room.size(), "each slab is listed once");
    }
  }
}

}  // namespace far::heap
