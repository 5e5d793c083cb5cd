#include "backend/memory/memory_backend.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "backend/memory/memory_channel.h"
#include "backend/uri.h"
#include "base/check.h"
#include "base/units.h"
#include "platform/local_memory.h"

namespace far::backend {
namespace {

// How many slots become available at a time, so that the slot map is filled only as far as it is used.
constexpr std::uint64_t growth_slots = 64 * mib / page_bytes;

// Frames go back to the kernel in blocks: a system call for less would cost more than it frees.
constexpr std::uint64_t block_slots = 2 * mib / page_bytes;

// Free slots keep up to this many frames, ready for the next evictions. A program that scans its data frees and
// allocates all the time, and must not pay for page faults here as well.
constexpr std::uint64_t kept_free_slots = 64 * mib / page_bytes;

constexpr std::uint64_t smallest_default_bytes = gib;
constexpr std::uint64_t largest_capacity_bytes = 64 * tib;
constexpr std::size_t largest_depth = 1 << 20;

std::uint64_t physical_memory_bytes() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

result<std::unique_ptr<backend>> memory_backend::open(const uri& name) {
  if (!name.rest().empty()) {
    return error{"far tier '" + name.text() + "': 'memory:' takes no path; write for example memory:?latency=5us",
                 EINVAL};
  }
  if (result<void> known = name.allow_options({"latency", "gbps", "capacity"}); !known) return known.error();
  const auto latency = name.duration_ns("latency");
  if (!latency) return latency.error();
  const auto gbps = name.positive_number("gbps");
  if (!gbps) return gbps.error();
  const auto capacity_bytes = name.size_bytes("capacity");
  if (!capacity_bytes) return capacity_bytes.error();
  return create(memory_options{.capacity_bytes = capacity_bytes.value().value_or(0),
                               .latency_ns = latency.value().value_or(0),
                               .gigabits_per_second = gbps.value().value_or(0)});
}

result<std::unique_ptr<backend>> memory_backend::create(const memory_options& chosen) {
  const bool chosen_capacity = chosen.capacity_bytes != 0;
  std::uint64_t bytes = chosen_capacity ? round_down(chosen.capacity_bytes, page_bytes)
                                        : std::max(4 * physical_memory_bytes(), smallest_default_bytes);
  std::byte* frames = bytes <= largest_capacity_bytes ? platform::try_map_local(bytes) : nullptr;
  // A limit on address space (ulimit -v, strict overcommit) makes the default smaller, but not a capacity that the user
  // has chosen.
  while (frames == nullptr && !chosen_capacity && bytes / 2 >= smallest_default_bytes) {
    bytes = round_down(bytes / 2, page_bytes);
    frames = platform::try_map_local(bytes);
  }
  if (frames == nullptr) {
    return error{
        "far tier 'memory:' cannot reserve " + format_size(bytes) +
            " of addresses; choose a smaller capacity (memory:?capacity=2G) or raise the limit (ulimit -d, ulimit -v)",
        ENOMEM};
  }
  return std::unique_ptr<backend>(std::make_unique<memory_backend>(frames, bytes / page_bytes, chosen));
}

memory_backend::memory_backend(std::byte* frames, std::uint64_t capacity_slots, const memory_options& chosen)
    : chosen_(chosen),
      frames_(frames),
      capacity_slots_(capacity_slots),
      slots_(capacity_slots),
      link_(chosen.latency_ns, chosen.gigabits_per_second),
      // Zero bytes are flags that are off.
      populated_(reinterpret_cast<std::atomic<bool>*>(platform::map_local(blocks() * sizeof(std::atomic<bool>)))) {}

memory_backend::~memory_backend() {
  platform::unmap_local(reinterpret_cast<std::byte*>(populated_), blocks() * sizeof(std::atomic<bool>));
  platform::unmap_local(frames_, capacity_slots_ * page_bytes);
}

std::uint64_t memory_backend::blocks() const {
  return (capacity_slots_ + block_slots - 1) / block_slots;
}

result<slot_id> memory_backend::allocate(std::size_t count) {
  std::optional<slot_id> first = slots_.allocate(count);
  if (!first) {
    if (count > 1 && slots_.is_scattered()) return out_of_slots();
    const lock_guard guard(growth_lock_);
    // Another thread may take what we add, so look again after each growth; growth ends at the capacity.
    while (!(first = slots_.allocate(count))) {
      const std::uint64_t limit = slots_.limit();
      const std::uint64_t missing = count - std::min<std::uint64_t>(count, slots_.free_at_end());
      if (missing > capacity_slots_ - limit || limit == capacity_slots_) return out_of_slots();
      slots_.extend(std::min(capacity_slots_, limit + std::max(missing, growth_slots)));
    }
  }
  note_populated(*first, count);
  return *first;
}

void memory_backend::note_populated(slot_id first, std::size_t count) {
  for (std::uint64_t block = first / block_slots; block <= (first + count - 1) / block_slots; ++block) {
    if (populated_[block].load(std::memory_order_relaxed)) continue;
    if (!populated_[block].exchange(true, std::memory_order_relaxed)) populated_slots_ += block_slots;
  }
}

void memory_backend::free(slot_id first, std::size_t count) {
  slots_.free(first, count);
  release_free_blocks(first, count);
}

void memory_backend::release_free_blocks(slot_id first, std::size_t count) {
  for (std::uint64_t block = first / block_slots; block <= (first + count - 1) / block_slots; ++block) {
    if (populated_slots_.load(std::memory_order_relaxed) <= slots_.used() + kept_free_slots) return;
    const slot_id block_first = block * block_slots;
    const lock_guard not_reported(release_lock_);
    // While we own the slots, nobody can be given one whose frame is about to go.
    if (!populated_[block].load(std::memory_order_relaxed) || !slots_.claim(block_first, block_slots)) continue;
    platform::release_local_frames(frames_ + block_first * page_bytes, block_slots * page_bytes);
    populated_[block].store(false, std::memory_order_relaxed);
    populated_slots_ -= block_slots;
    slots_.free(block_first, block_slots);
  }
}

result<std::unique_ptr<channel>> memory_backend::open_channel(std::size_t depth) {
  if (depth == 0 || depth > largest_depth) {
    return error{"a channel of 'memory:' holds between 1 and " + std::to_string(largest_depth) + " requests, not " +
                     std::to_string(depth),
                 EINVAL};
  }
  return std::unique_ptr<channel>(std::make_unique<memory_channel>(slots_, frames_, link_, depth));
}

const std::byte* memory_backend::direct(slot_id slot) const {
  return link_.instant() ? frames_ + slot * page_bytes : nullptr;
}

void memory_backend::after_fork_in_child() {
  growth_lock_.open_in_child();
  release_lock_.open_in_child();
  slots_.begin_again_in_child();
}

capacity memory_backend::report() const {
  const lock_guard without_releases(release_lock_);
  return {capacity_slots_, slots_.used()};
}

speed memory_backend::expected_speed() const {
  // Without emulation: the time to copy 4 KiB from cold memory on an ordinary machine.
  if (link_.instant()) return {500, 7'000'000'000};
  return {chosen_.latency_ns, static_cast<std::uint64_t>(chosen_.gigabits_per_second * 1e9 / 8)};
}

std::string memory_backend::describe() const {
  std::string text = "memory:";
  if (chosen_.latency_ns != 0) text += " latency " + format_duration(chosen_.latency_ns);
  if (chosen_.gigabits_per_second > 0) {
    text += " bandwidth " + format_size(static_cast<std::uint64_t>(chosen_.gigabits_per_second * 1e9 / 8)) + "/s";
  }
  return text;
}

}  // namespace far::backend
