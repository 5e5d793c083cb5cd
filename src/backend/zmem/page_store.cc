#include "backend/zmem/page_store.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "base/check.h"

namespace far::backend {
namespace {

// Of what tend() does in one call: about a millisecond.
constexpr int zones_a_step = 16;

// How many zones are compacted in vain hope of room before a write is told that there is none.
constexpr int compactions_for_room = 8;

// Bytes of a page of words that are all the same.
void fill(std::span<std::byte> into, std::uint64_t word, std::size_t offset) {
  std::array<std::byte, sizeof word> bytes;
  std::memcpy(bytes.data(), &word, sizeof word);
  if (std::all_of(bytes.begin(), bytes.end(), [&](std::byte value) { return value == bytes[0]; })) {
    std::memset(into.data(), std::to_integer<int>(bytes[0]), into.size());
    return;
  }
  std::rotate(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(offset % sizeof word), bytes.end());
  std::size_t done = 0;
  for (; done + sizeof word <= into.size(); done += sizeof word) std::memcpy(&into[done], bytes.data(), sizeof word);
  std::copy_n(bytes.begin(), into.size() - done, into.begin() + static_cast<std::ptrdiff_t>(done));
}

}  // namespace

page_store::page_store(std::uint64_t capacity_bytes, std::uint64_t slots)
    : slots_(slots),
      entries_(reinterpret_cast<entry*>(platform::map_local(slots * sizeof(entry)))),
      zones_(capacity_bytes) {
  FAR_CHECK(slots <= most_slots, "more slots than can be numbered");
}

page_store::~page_store() {
  platform::unmap_local(reinterpret_cast<std::byte*>(entries_), slots_ * sizeof(entry));
}

// ---- room ----

bool page_store::promise(std::uint64_t slots) {
  for (int tries = 0; tries <= compactions_for_room; ++tries) {
    {
      const lock_guard guard(lock_);
      if (zones_.promise(slots)) return true;
    }
    if (!compact(true)) return false;
  }
  return false;
}

void page_store::take_back(std::uint64_t slots) {
  const lock_guard guard(lock_);
  zones_.take_back(slots);
}

void page_store::drop(entry* old) {
  if (old->has_object()) zones_.free(old->place());
  *old = {};
}

void page_store::free(slot_id slot) {
  const lock_guard guard(lock_);
  entry& freed = entries_[slot];
  if (freed.is == kind::empty) zones_.take_back(1);
  drop(&freed);
  note_tending();
}

std::uint64_t page_store::occupied_bytes() const {
  const lock_guard guard(lock_);
  return zones_.occupied_bytes();
}

// ---- writing ----

int page_store::write(slot_id first, std::uint64_t offset, std::span<const std::byte> bytes, page_codec& with) {
  slot_id slot = first + offset / page_bytes;
  std::size_t begin = offset % page_bytes;
  while (!bytes.empty()) {
    const std::size_t length = std::min(bytes.size(), page_bytes - begin);
    int failure = 0;
    if (length == page_bytes) {
      const encoded page = encode(bytes.data(), with);
      const lock_guard guard(stripe_of(slot));
      failure = put(slot, page);
    } else {
      failure = write_part(slot, begin, bytes.first(length), with);
    }
    if (failure != 0) return failure;
    bytes = bytes.subspan(length);
    begin = 0;
    ++slot;
  }
  return 0;
}

// Others may be writing other bytes of the page.
int page_store::write_part(slot_id slot, std::size_t offset, std::span<const std::byte> bytes, page_codec& with) {
  const lock_guard guard(stripe_of(slot));
  if (!load(entries_[slot], with.page(), with)) return EIO;
  std::copy(bytes.begin(), bytes.end(), with.page() + offset);
  return put(slot, encode(with.page(), with));
}

page_store::encoded page_store::encode(const std::byte* page, page_codec& with) {
  if (is_same_filled(page)) {
    encoded result{.is = kind::filled};
    std::memcpy(&result.word, page, sizeof result.word);
    return result;
  }
  const std::size_t length = with.pages.compress(page, with.packed(), zones::most_packed_bytes);
  if (length == 0) return {.is = kind::whole, .bytes = page, .length = page_bytes};
  return {.is = kind::packed, .bytes = with.packed(), .length = length};
}

int page_store::put(slot_id slot, const encoded& page) {
  entry& current = entries_[slot];
  entry fresh{.length = static_cast<std::uint16_t>(page.length), .is = page.is};
  fresh.set_word(page.word);
  const bool first_write = current.is == kind::empty;
  if (fresh.has_object()) {
    object_place place;
    if (!find_place(slot, page, first_write, &place)) return ENOSPC;
    std::memcpy(bytes_of(place), page.bytes, page.length);
    fresh.set_place(place);
  }
  const lock_guard guard(lock_);
  if (first_write && !fresh.has_object()) zones_.take_back(1);
  drop(&current);
  current = fresh;
  return 0;
}

bool page_store::find_place(slot_id slot, const encoded& page, bool first_write, object_place* into) {
  for (int tries = 0; tries <= compactions_for_room; ++tries) {
    {
      const lock_guard guard(lock_);
      if (zones_.allocate(page.length, static_cast<std::uint32_t>(slot), first_write, into)) return true;
    }
    // Its own stripe is held: that slot stays where it is.
    if (!compact(true)) return false;
  }
  return false;
}

// ---- reading ----

bool page_store::load(const entry& from, std::byte* page, page_codec& with) const {
  switch (from.is) {
    case kind::empty:
    case kind::filled: fill({page, page_bytes}, from.word(), 0); return true;
    case kind::whole: std::memcpy(page, bytes_of(from.place()), page_bytes); return true;
    case kind::packed: return with.pages.decompress(bytes_of(from.place()), from.length, page);
  }
  return false;
}

int page_store::read_part(slot_id slot, std::size_t offset, std::span<std::byte> into, page_codec& with) {
  const lock_guard guard(stripe_of(slot));
  const entry& from = entries_[slot];
  if (from.is == kind::empty || from.is == kind::filled) {
    fill(into, from.word(), offset);
    return 0;
  }
  if (from.is == kind::whole) {
    std::memcpy(into.data(), bytes_of(from.place()) + offset, into.size());
    return 0;
  }
  if (into.size() == page_bytes) return load(from, into.data(), with) ? 0 : EIO;
  if (!load(from, with.page(), with)) return EIO;
  std::memcpy(into.data(), with.page() + offset, into.size());
  return 0;
}

int page_store::read(slot_id first, std::uint64_t offset, std::span<std::byte> into, page_codec& with) {
  slot_id slot = first + offset / page_bytes;
  std::size_t begin = offset % page_bytes;
  while (!into.empty()) {
    const std::size_t length = std::min(into.size(), page_bytes - begin);
    if (const int failure = read_part(slot, begin, into.first(length), with); failure != 0) return failure;
    into = into.subspan(length);
    begin = 0;
    ++slot;
  }
  return 0;
}

// ---- behind the transfers ----

void page_store::note_tending() {
  if (zones_.wants_release() || zones_.wants_compaction()) wants_tending_.store(true, std::memory_order_relaxed);
}

void page_store::keep_frames(bool kept) {
  const lock_guard guard(lock_);
  zones_.keep_frames(kept);
  note_tending();
}

bool page_store::tend() {
  wants_tending_.store(false, std::memory_order_relaxed);
  for (int step = 0; step < zones_a_step; ++step) {
    if (compact(false)) continue;
    std::uint32_t released = zones::none;
    std::byte* frames = nullptr;
    {
      const lock_guard guard(lock_);
      released = zones_.begin_release();
      if (released == zones::none) return false;
      frames = zones_.address_of(released);
    }
    platform::release_local_frames(frames, zones::zone_bytes);
    const lock_guard guard(lock_);
    zones_.end_release(released);
  }
  return true;
}

// Moves what one zone holds to others. Returns whether there was such a zone.
bool page_store::compact(bool when_full) {
  std::uint32_t zone = zones::none;
  std::uint32_t objects = 0;
  {
    const lock_guard guard(lock_);
    zone = zones_.begin_compaction(when_full);
    if (zone == zones::none) return false;
    objects = zones_.object_count(zone);
  }
  for (std::uint32_t index = 0; index < objects; ++index) {
    move({zone, index});
  }
  const lock_guard guard(lock_);
  zones_.end_compaction(zone);
  return true;
}

// The stripe is held while a thread works on that slot, maybe this very thread: then it stays.
void page_store::move(object_place from) {
  std::uint32_t owner = 0;
  {
    const lock_guard guard(lock_);
    owner = zones_.owner_of(from);
  }
  if (owner >= slots_) return;
  spin_lock& stripe = stripe_of(owner);
  if (!stripe.try_lock()) return;
  const lock_guard stripe_guard(stripe, std::adopt_lock);
  const lock_guard guard(lock_);
  entry& moved = entries_[owner];
  if (!moved.has_object() || !(moved.place() == from)) return;
  object_place to;
  if (!zones_.allocate_like(from, owner, &to)) return;
  std::memcpy(bytes_of(to), bytes_of(from), moved.length);
  moved.set_place(to);
  zones_.free(from);
}

void page_store::validate() const {
  const lock_guard guard(lock_);
  zones_.validate();
}

}  // namespace far::backend
