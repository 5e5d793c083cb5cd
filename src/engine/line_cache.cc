#include "engine/line_cache.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/check.h"
#include "base/units.h"
#include "platform/local_memory.h"

namespace far::engine {

line_cache::line_cache(std::size_t line_bytes, std::size_t most_bytes)
    : line_bytes_(line_bytes), most_bytes_(most_bytes), memory_(platform::map_local(most_bytes)) {
  FAR_CHECK(is_line_size(line_bytes), "a line has 64, 128, 256 or 512 bytes");
}

line_cache::~line_cache() {
  platform::unmap_local(memory_, most_bytes_);
}

// Sets are by the remainder of their number, so most lines are not found any more where they were. Those of sets that
// go are wiped: who has computed their place before finds nothing, or, with the lock, that the set is not in use.
std::size_t line_cache::fit(std::size_t bytes) {
  const std::size_t before = sets_.load();
  const std::size_t wanted = std::min(bytes, most_bytes_) / set_bytes();
  sets_.store(wanted);
  for (std::size_t i = wanted; i < before; ++i) {
    set& gone = at(i);
    const lock_guard held(gone.lock);
    gone.lines.fill(0);
  }
  const std::size_t kept_bytes = round_up(wanted * set_bytes(), page_bytes);
  const std::size_t used_bytes = round_up(before * set_bytes(), page_bytes);
  if (kept_bytes < used_bytes) platform::release_local_frames(memory_ + kept_bytes, used_bytes - kept_bytes);
  return kept_bytes;
}

void line_cache::restart_in_child() {
  sets_.store(0);
  platform::release_local_frames(memory_, round_up(most_bytes_, page_bytes));
}

std::size_t line_cache::find(const set& in, const name& wanted) {
  for (std::size_t way = 0; way < ways; ++way) {
    if (in.lines[way] == wanted.line && in.versions[way] == wanted.version) return way;
  }
  return ways;
}

// An older copy of the same line, or room, or the next one that was not found since the hand came by.
std::size_t line_cache::victim(set& in, std::uint64_t line) {
  const auto old = std::ranges::find(in.lines, line);
  if (old != in.lines.end()) return static_cast<std::size_t>(old - in.lines.begin());
  const auto room = std::ranges::find(in.lines, 0u);
  if (room != in.lines.end()) return static_cast<std::size_t>(room - in.lines.begin());
  while (true) {
    const std::size_t way = in.hand;
    in.hand = static_cast<std::uint8_t>((way + 1) % ways);
    if ((in.used >> way & 1) == 0) return way;
    in.used = static_cast<std::uint8_t>(in.used & ~(1u << way));
  }
}

template <typename Body>
bool line_cache::with_set(std::uint64_t line, Body body) {
  const std::size_t sets = sets_.load(std::memory_order_acquire);
  if (sets == 0) return false;
  const std::uint64_t mixed = (line * 0x9e3779b97f4a7c15) >> 32;
  const std::size_t index = static_cast<std::size_t>((mixed * sets) >> 32);
  set& one = at(index);
  constexpr int tries = 64;  // its holder may wait for a processor, or have stayed behind in the parent of a fork
  for (int i = 0; i < tries; ++i) {
    if (!one.lock.try_lock()) continue;
    const lock_guard held(one.lock, std::adopt_lock);
    return index < sets_.load(std::memory_order_acquire) && body(one);
  }
  return false;
}

bool line_cache::contains(const name& wanted) {
  return with_set(wanted.line, [&](set& in) { return find(in, wanted) != ways; });
}

bool line_cache::read(const name& wanted, std::size_t offset, std::size_t bytes, std::byte* to) {
  FAR_DCHECK(offset + bytes <= line_bytes_, "a read stays within a line");
  return with_set(wanted.line, [&](set& in) {
    const std::size_t way = find(in, wanted);
    if (way == ways) return false;
    in.used = static_cast<std::uint8_t>(in.used | 1u << way);
    std::memcpy(to, bytes_of(in, way) + offset, bytes);
    return true;
  });
}

void line_cache::put(const name& added, const std::byte* bytes) {
  static_cast<void>(with_set(added.line, [&](set& in) {
    const std::size_t way = victim(in, added.line);
    in.lines[way] = added.line;
    in.versions[way] = added.version;
    in.used = static_cast<std::uint8_t>(in.used & ~(1u << way));
    std::memcpy(bytes_of(in, way), bytes, line_bytes_);
    return true;
  }));
}

}  // namespace far::engine
