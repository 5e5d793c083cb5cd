#include "array_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "platform/local_memory.h"

namespace far::python {
namespace {

// Where NumPy asks for huge pages, too.
constexpr std::size_t huge_from_bytes = 4 * mib;

// Filling larger arrays takes so long that their faults hardly matter. As in the C library, whose blocks above 32 MiB
// are always fresh, and which keeps twice that.
constexpr std::size_t largest_spare_bytes = 32 * mib;
constexpr std::size_t most_spares_bytes = 64 * mib;
constexpr std::size_t most_spares = 64;

constexpr std::size_t largest_slot_bytes = 1 * mib;

// What a number of pages in `used_` can say.
constexpr std::size_t largest_bytes = std::size_t{std::numeric_limits<std::uint32_t>::max()} << page_shift;

// A mapping that is much larger than an array would waste local memory.
constexpr bool suits(std::size_t spare_bytes, std::size_t bytes) {
  return spare_bytes >= bytes && spare_bytes - bytes <= bytes / 8;
}

}  // namespace

array_memory::array_memory(pager::pager& far)
    : far_(far),
      first_(reinterpret_cast<std::uintptr_t>(far.start())),
      far_bytes_(far.pages() << page_shift),
      most_spare_bytes_(std::min<std::uint64_t>(most_spares_bytes, far.snapshot().budget_bytes / 8)),
      most_slot_bytes_(std::min(largest_slot_bytes, most_spare_bytes_ / 4 / slot_count)),
      used_(reinterpret_cast<std::atomic<std::uint32_t>*>(
          platform::map_local(far.pages() * sizeof(std::atomic<std::uint32_t>)))) {
  const lock_guard guard(lock_);
  spares_.reserve(most_spares);  // release() must not fail
}

array_memory::~array_memory() {
  platform::unmap_local(reinterpret_cast<std::byte*>(used_), (far_bytes_ >> page_shift) * sizeof *used_);
}

void* array_memory::take(std::size_t bytes, content wanted) noexcept {
  if (bytes > largest_bytes) return nullptr;
  const std::size_t needed = round_up(bytes, page_bytes);
  mapping taken = take_from_slot(needed);
  if (taken.empty()) taken = take_spare(needed);
  if (!taken.empty()) {
    if (wanted == content::zeros) std::memset(taken.data(), 0, bytes);
  } else {
    taken = map(needed);
    if (taken.empty()) return nullptr;
  }
  remember(taken);
  return taken.data();
}

void* array_memory::resize(void* memory, std::size_t bytes) noexcept {
  if (bytes > largest_bytes) return nullptr;
  // Forgotten first: as soon as it has moved, another array may begin where it was.
  const mapping before = forget(memory);
  const std::size_t needed = std::max(round_up(bytes, page_bytes), page_bytes);
  mapping after = before;
  if (needed != before.size()) {
    const result<std::byte*> moved = far_.remap(before.data(), before.size(), needed, {.may_move = true});
    if (moved) after = {moved.value(), needed};
  }
  remember(after);
  return after.size() == needed ? after.data() : nullptr;
}

void array_memory::release(void* memory) noexcept {
  mapping freed = forget(memory);
  if (freed.size() < far_from_bytes) return unmap(freed);  // it was resized, and serves no other
  if (freed.size() <= most_slot_bytes_) {
    freed = put_into_slot(freed);
    if (freed.empty()) return;
  }
  if (freed.size() > std::min(largest_spare_bytes, most_spare_bytes_)) return unmap(freed);
  keep_spare(freed);
}

array_memory::packed_mapping array_memory::pack(mapping one) const noexcept {
  const std::uint64_t page = (reinterpret_cast<std::uintptr_t>(one.data()) - first_) >> page_shift;
  return page << count_bits | one.size() >> page_shift;
}

array_memory::mapping array_memory::unpack(packed_mapping one) const noexcept {
  const std::uint64_t bytes = (one & ((1u << count_bits) - 1)) << page_shift;
  return {reinterpret_cast<std::byte*>(first_ + (one >> count_bits << page_shift)), bytes};
}

array_memory::mapping array_memory::take_from_slot(std::size_t bytes) noexcept {
  if (bytes > most_slot_bytes_) return {};
  for (std::atomic<packed_mapping>& slot : slots_) {
    packed_mapping seen = slot.load(std::memory_order_relaxed);
    const std::size_t seen_bytes = (seen & ((1u << count_bits) - 1)) << page_shift;
    if (!suits(seen_bytes, bytes)) continue;
    // If the word is the same, so is the mapping, and nobody uses it, whatever has happened in between.
    if (slot.compare_exchange_strong(seen, 0, std::memory_order_acquire, std::memory_order_relaxed)) {
      return unpack(seen);
    }
  }
  return {};
}

// Returns what there is no room for: nothing, or the mapping of a slot that has been emptied.
array_memory::mapping array_memory::put_into_slot(mapping freed) noexcept {
  const packed_mapping packed = pack(freed);
  for (std::atomic<packed_mapping>& slot : slots_) {
    packed_mapping none = 0;
    if (slot.load(std::memory_order_relaxed) != none) continue;
    if (slot.compare_exchange_strong(none, packed, std::memory_order_acq_rel, std::memory_order_relaxed)) return {};
  }
  std::atomic<packed_mapping>& emptied = slots_[next_slot_.fetch_add(1, std::memory_order_relaxed) % slot_count];
  const packed_mapping old = emptied.exchange(packed, std::memory_order_acq_rel);
  return old == 0 ? mapping{} : unpack(old);
}

void array_memory::keep_spare(mapping freed) noexcept {
  while (true) {
    mapping oldest;
    {
      const lock_guard guard(lock_);
      if (spares_.size() < most_spares && spare_bytes_ + freed.size() <= most_spare_bytes_) {
        spares_.push_back(freed);
        spare_bytes_ += freed.size();
        return;
      }
      oldest = spares_.front();
      spares_.erase(spares_.begin());
      spare_bytes_ -= oldest.size();
    }
    unmap(oldest);
  }
}

void array_memory::drop_spares() noexcept {
  for (std::atomic<packed_mapping>& slot : slots_) {
    const packed_mapping dropped = slot.exchange(0, std::memory_order_acquire);
    if (dropped != 0) unmap(unpack(dropped));
  }
  while (true) {
    mapping last;
    {
      const lock_guard guard(lock_);
      if (spares_.empty()) return;
      last = spares_.back();
      spares_.pop_back();
      spare_bytes_ -= last.size();
    }
    unmap(last);
  }
}

// Takes the newest spare that is large enough, but not by much: its pages are most likely to be in the processor's
// cache.
array_memory::mapping array_memory::take_spare(std::size_t bytes) noexcept {
  const lock_guard guard(lock_);
  const auto found =
      std::find_if(spares_.rbegin(), spares_.rend(), [bytes](mapping one) { return suits(one.size(), bytes); });
  if (found == spares_.rend()) return {};
  const mapping taken = *found;
  spares_.erase(std::next(found).base());
  spare_bytes_ -= taken.size();
  return taken;
}

array_memory::mapping array_memory::map(std::size_t bytes) noexcept {
  const result<std::byte*> fresh = far_.map(bytes, PROT_READ | PROT_WRITE, page_bytes);
  if (!fresh) return {};
  // Only advice: the kernel decides.
  if (bytes >= huge_from_bytes) static_cast<void>(far_.advise(fresh.value(), bytes, MADV_HUGEPAGE));
  return {fresh.value(), bytes};
}

std::atomic<std::uint32_t>& array_memory::pages_at(const void* memory) noexcept {
  return used_[(reinterpret_cast<std::uintptr_t>(memory) - first_) >> page_shift];
}

// Whoever passes an array to another thread makes this visible there.
void array_memory::remember(mapping used) noexcept {
  pages_at(used.data()).store(static_cast<std::uint32_t>(used.size() >> page_shift), std::memory_order_relaxed);
}

array_memory::mapping array_memory::forget(void* memory) noexcept {
  std::atomic<std::uint32_t>& known = pages_at(memory);
  const std::size_t pages = known.load(std::memory_order_relaxed);
  FAR_CHECK(pages != 0, "an array's memory is given back once, as it was taken");
  known.store(0, std::memory_order_relaxed);
  return {static_cast<std::byte*>(memory), pages << page_shift};
}

void array_memory::unmap(mapping unused) noexcept {
  const result<void> done = far_.unmap(unused.data(), unused.size());
  FAR_CHECK(done.ok(), "what was mapped can be unmapped");
}

}  // namespace far::python
