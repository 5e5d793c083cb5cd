#include "heap/plain_space.h"

#include <algorithm>
#include <bit>
#include <new>

#include "base/check.h"
#include "base/lock_guard.h"
#include "base/use_check.h"

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
  FAR_CHECK_USE((used[place / 64] & bit) != 0, "memory is given back once, as it was taken");
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
    segments_.begin_loose_use(fresh, segment_pages, tag);
    const lock_guard guard(from.lock);
    try {
      // Room for all of them: release() must not throw.
      if (from.slabs.size() >= from.with_room.capacity()) from.with_room.reserve(2 * from.slabs.size() + 1);
      from.slabs.emplace(fresh, slab(segment_bytes / size_bytes));
    } catch (const std::bad_alloc&) {
      segments_.release_runs(fresh);
      throw;
    }
    segments_.holding(fresh).slab_tag.store(static_cast<std::uint8_t>(tag), std::memory_order_relaxed);
    from.with_room.push_back(fresh);
  }
}

void plain_space::drop_tag(unsigned tag) {
  for (std::size_t index = 0; index < sizes; ++index) {
    kind& from = kinds_[tag][index];
    kind& to = kinds_[0][index];
    const lock_guard guard_from(from.lock);
    const lock_guard guard_to(to.lock);
    to.with_room.reserve(to.slabs.size() + from.slabs.size() + 1);
    to.slabs.reserve(to.slabs.size() + from.slabs.size());
    for (const auto& [first, one] : from.slabs) segments_.holding(first).slab_tag.store(0, std::memory_order_relaxed);
    // The last is tried first: what the default tag has.
    to.with_room.insert(to.with_room.begin(), from.with_room.begin(), from.with_room.end());
    to.slabs.merge(from.slabs);
    from.with_room.clear();
  }
}

void plain_space::release(std::uintptr_t address, std::size_t bytes, std::size_t alignment) {
  release(address, bytes, alignment, giving_back::of_used);
}

void plain_space::pass_by(std::uintptr_t address, std::size_t bytes, std::size_t alignment) {
  release(address, bytes, alignment, giving_back::of_unreachable);
}

void plain_space::release(std::uintptr_t address, std::size_t bytes, std::size_t alignment, giving_back how) {
  const std::size_t wanted = place_bytes(bytes, alignment);
  if (wanted > largest_place_bytes) return huge_.release(address);
  const std::size_t index = size_index(wanted);
  const std::uintptr_t first = address - address % segment_bytes;
  const std::atomic<std::uint8_t>& slab_tag = segments_.holding(first).slab_tag;
  while (true) {
    const std::uint8_t tag = slab_tag.load(std::memory_order_relaxed);
    kind& places = kinds_[tag][index];
    const lock_guard guard(places.lock);
    if (slab_tag.load(std::memory_order_relaxed) != tag) continue;  // its tag was given back just now
    if (!release_place(places, first, (address - first) / size_at(index), how)) return;
    break;
  }
  segments_.release_runs(first);
}

// Returns whether the slab is not needed any more.
bool plain_space::release_place(kind& in, std::uintptr_t slab_at, std::size_t place, giving_back how) {
  const auto found = in.slabs.find(slab_at);
  FAR_CHECK_USE(found != in.slabs.end(), "memory is given back with the size and alignment with which it was taken");
  slab& one = found->second;
  one.release(place);
  if (how == giving_back::of_unreachable) {
    std::erase(in.with_room, slab_at);
    one.listed = false;
    one.passed_by = true;
    if (one.live > 0) return false;
  } else if (!one.listed) {
    one.listed = true;
    one.passed_by = false;
    in.with_room.push_back(slab_at);
  }
  if (one.live > 0 || (one.listed && in.with_room.size() == 1)) return false;
  std::erase(in.with_room, slab_at);
  in.slabs.erase(found);
  return true;
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
        FAR_CHECK(one.listed || one.passed_by || one.live == places, "a slab with room is listed");
        listed += one.listed ? 1 : 0;
      }
      FAR_CHECK(listed == by_size[index].with_room.size(), "each slab is listed once");
    }
  }
}

}  // namespace far::heap
