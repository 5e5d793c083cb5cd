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

// Sets are by the remainder of their number, so most lines are not found any more where they were. A writer that has
// computed a place before finds, with its lock, that the set is not in use; a reader, that memory was given back.
std::size_t line_cache::fit(std::size_t bytes) {
  const std::size_t before = sets_.load();
  const std::size_t wanted = std::min(bytes, most_bytes_) / set_bytes();
  const std::size_t kept_bytes = round_up(wanted * set_bytes(), page_bytes);
  const std::size_t used_bytes = round_up(before * set_bytes(), page_bytes);
  sets_.store(wanted);
  if (kept_bytes >= used_bytes) return kept_bytes;
  releases_.fetch_add(1);
  for (writers& one : writers_) const lock_guard no_writer_is_left(one.lock);
  // A set at the border would keep a part of its copies.
  for (std::size_t i = wanted; i < before && i * set_bytes() < kept_bytes; ++i) wipe(i);
  platform::release_local_frames(memory_ + kept_bytes, used_bytes - kept_bytes);
  return kept_bytes;
}

void line_cache::wipe(std::size_t index) {
  for (std::atomic<std::uint64_t>& line : at(index).lines) line.store(0, std::memory_order_release);
}

void line_cache::restart_in_child() {
  sets_.store(0);
  releases_.fetch_add(1);
  for (writers& one : writers_) one.lock.open_in_child();
  platform::release_local_frames(memory_, round_up(most_bytes_, page_bytes));
}

std::size_t line_cache::index_of(std::uint64_t line, std::size_t sets) {
  const std::uint64_t mixed = (line * 0x9e3779b97f4a7c15) >> 32;
  return static_cast<std::size_t>((mixed * sets) >> 32);
}

std::size_t line_cache::find(const set& in, const name& wanted) {
  for (std::size_t way = 0; way < ways; ++way) {
    if (in.lines[way].load(std::memory_order_acquire) == wanted.line &&
        in.versions[way].load(std::memory_order_acquire) == wanted.version) {
      return way;
    }
  }
  return ways;
}

// An older copy of the same line, or room, or the next one that was not found since the hand came by.
std::size_t line_cache::victim(set& in, std::uint64_t line) {
  for (const std::uint64_t wanted : {line, std::uint64_t{0}}) {
    for (std::size_t way = 0; way < ways; ++way) {
      if (in.lines[way].load(std::memory_order_relaxed) == wanted) return way;
    }
  }
  while (true) {
    const std::size_t way = in.hand;
    in.hand = static_cast<std::uint8_t>((way + 1) % ways);
    const std::uint8_t used = in.used.load(std::memory_order_relaxed);
    if ((used >> way & 1) == 0) return way;
    in.used.store(static_cast<std::uint8_t>(used & ~(1u << way)), std::memory_order_relaxed);
  }
}

// Calls body(set, way) for the copy, if it is there. What the body has read was the copy's if this returns true. It
// reads in order (acquire).
template <typename Body>
bool line_cache::look(const name& wanted, Body body) const {
  const std::uint64_t releases = releases_.load(std::memory_order_acquire);
  const std::size_t sets = sets_.load(std::memory_order_acquire);
  if (sets == 0) return false;
  set& one = at(index_of(wanted.line, sets));
  const std::uint32_t sequence = one.sequence.load(std::memory_order_acquire);
  const std::size_t way = find(one, wanted);
  if (sequence % 2 != 0 || way == ways) return false;
  body(one, way);
  return one.sequence.load(std::memory_order_acquire) == sequence &&
         releases_.load(std::memory_order_acquire) == releases;
}

bool line_cache::contains(const name& wanted) const {
  return look(wanted, [](set& /*in*/, std::size_t /*way*/) {});
}

bool line_cache::read(const name& wanted, std::size_t offset, std::size_t bytes, std::byte* to) {
  FAR_DCHECK(bytes > 0 && bytes <= sizeof(std::uint64_t) && offset + bytes <= line_bytes_, "a read is of a line");
  std::array<std::uint64_t, 2> found{};
  set* from = nullptr;
  std::size_t found_way = 0;
  const bool is_there = look(wanted, [&](set& in, std::size_t way) {
    const word* const words = words_of(in, way);
    const std::size_t first = offset / sizeof found[0];
    const std::size_t last = (offset + bytes - 1) / sizeof found[0];
    found = {words[first].load(std::memory_order_acquire), words[last].load(std::memory_order_acquire)};
    from = &in;
    found_way = way;
  });
  if (!is_there) return false;
  // A bit that another thread sets or clears at the moment may be lost: it is about who leaves first.
  const std::uint8_t used = from->used.load(std::memory_order_relaxed);
  const auto marked = static_cast<std::uint8_t>(used | 1u << found_way);
  if (marked != used) from->used.store(marked, std::memory_order_relaxed);
  std::memcpy(to, reinterpret_cast<const std::byte*>(found.data()) + offset % sizeof found[0], bytes);
  return true;
}

// Copies that no writer has room or time for are done without.
void line_cache::put(const name& added, const std::byte* bytes) {
  const std::size_t sets = sets_.load(std::memory_order_acquire);
  if (sets == 0) return;
  const std::size_t index = index_of(added.line, sets);
  spin_lock& lock = writers_[index % writer_locks].lock;
  constexpr int tries = 64;  // its holder may wait for a processor
  int tried = 0;
  while (!lock.try_lock()) {
    if (++tried == tries) return;
  }
  const lock_guard held(lock, std::adopt_lock);
  if (index >= sets_.load(std::memory_order_acquire)) return;
  set& one = at(index);
  const std::size_t way = victim(one, added.line);
  const std::uint32_t sequence = one.sequence.load(std::memory_order_relaxed);
  // What is stored from here on is not seen with the sequence of before (release), nor all of it with that of after.
  one.sequence.store(sequence + 1, std::memory_order_relaxed);
  one.lines[way].store(added.line, std::memory_order_release);
  one.versions[way].store(added.version, std::memory_order_release);
  one.used.store(static_cast<std::uint8_t>(one.used.load(std::memory_order_relaxed) & ~(1u << way)),
                 std::memory_order_relaxed);
  word* const words = words_of(one, way);
  for (std::size_t i = 0; i < line_bytes_ / sizeof(word); ++i) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes + i * sizeof value, sizeof value);
    words[i].store(value, std::memory_order_release);
  }
  one.sequence.store(sequence + 2, std::memory_order_release);
}

}  // namespace far::engine
