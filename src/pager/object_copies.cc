#include "pager/object_copies.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>

#include "base/lock_guard.h"
#include "platform/runtime_thread.h"
#include "platform/signal_shield.h"

namespace far::pager {
namespace {

// Lines that a thread has read alone, not in a batch: the last one, and how many steps in one direction led to it.
struct walk {
  std::uint64_t line = 0;
  int steps = 0;  // negative: downwards
};
constinit thread_local walk walked;
constexpr int few_steps = 2;

// Whether the thread goes from line to line: then the pager does better, which recognises streams of pages. It also
// brings many at a time, which the thread then passes unnoticed.
bool is_walk(std::uint64_t line, std::size_t line_bytes) noexcept {
  const auto distance = static_cast<std::int64_t>(line - walked.line);
  const std::int64_t farthest =
      std::abs(walked.steps) > few_steps ? static_cast<std::int64_t>(512 * kib / line_bytes) : 2;
  const int direction = distance > 0 ? 1 : -1;
  if (distance == 0 || std::abs(distance) > farthest) {
    walked.steps = 0;
  } else if (walked.steps * direction < 0) {
    walked.steps = direction;
  } else {
    walked.steps = std::clamp(walked.steps + direction, -few_steps - 1, few_steps + 1);
  }
  walked.line = line;
  return std::abs(walked.steps) > few_steps;
}

}  // namespace

object_copies::object_copies(engine::engine& with, process_host& around, const platform::heap_layout& heap,
                             address_map& addresses, slot_reader& slots, software_accesses& accesses,
                             std::size_t line_bytes, std::uint64_t budget_bytes)
    : engine_(with),
      host_(around),
      heap_(heap),
      slots_(slots),
      accesses_(accesses),
      unreadable_(heap.pages()),
      lines_(line_bytes, budget_bytes / 2) {
  addresses.note_unreadable_in(unreadable_);
}

// ---- room ----

// Requires: no signal handler runs on this thread, and jumps out in between.
void object_copies::begin() noexcept {
  if (!begun_.load(std::memory_order_relaxed) && !begun_.exchange(true)) fit();
  if (wanted_bytes_.load(std::memory_order_relaxed) != 0) fill_room();
}

// Another thread that does so at the moment may have begun before the budget changed. A share that changes a little, as
// that of a process of a job does, leaves the copies where they are.
void object_copies::fit() noexcept {
  if (!begun_.load()) return;
  const platform::signal_shield shield;
  const lock_guard held(fitting_);
  const std::size_t half = static_cast<std::size_t>(engine_.eviction().budget_pages() << page_shift) / 2;
  const std::size_t room = std::min(half, lines_.most_bytes());
  if (room >= used_bytes_ && room / 2 < used_bytes_) {
    wanted_bytes_.store(0);  // a larger budget of before may have asked for more
    engine_.eviction().set_aside(used_bytes_ >> page_shift);
    return;
  }
  const bool grows = room > used_bytes_;
  if (!grows) used_bytes_ = lines_.fit(room);
  wanted_bytes_.store(grows ? room : 0);
  engine_.eviction().set_aside((grows ? room : used_bytes_) >> page_shift);
  host_.wake_background();
}

// Pages are leaving for the copies. They have the room once it is there.
void object_copies::fill_room() noexcept {
  if (engine_.eviction().free_frames() < 0) return;
  const platform::signal_shield shield;
  if (!fitting_.try_lock()) return;
  const lock_guard held(fitting_, std::adopt_lock);
  const std::size_t wanted = wanted_bytes_.exchange(0);
  if (wanted == 0) return;
  used_bytes_ = lines_.fit(wanted);
  engine_.eviction().set_aside(used_bytes_ >> page_shift);
}

void object_copies::restart_in_child() noexcept {
  fitting_.open_in_child();
  fitting_.assert_held();  // by the only thread
  lines_.restart_in_child();
  used_bytes_ = 0;
  wanted_bytes_.store(0);
  engine_.eviction().set_aside(0);
  begun_.store(false);
}

// ---- reading ----

// Lines that are about to be read.
struct object_copies::batch {
  std::array<slot_reader::part, slot_reader::most_parts> parts;
  std::array<std::byte, most_bytes_at_once> bytes;
  std::size_t count = 0;

  [[nodiscard]] bool has(const std::byte* line) const {
    const auto is_it = [line](const slot_reader::part& one) { return one.address == line; };
    return std::any_of(parts.begin(), parts.begin() + count, is_it);
  }
};

// Pages that share an entry forget how many of their lines were read.
bool object_copies::is_better_fetched(page_id page) noexcept {
  std::atomic<std::uint32_t>& entry = read_lines_[page % counted_pages];
  const auto name = static_cast<std::uint32_t>(page << 8);
  const std::uint32_t known = entry.load(std::memory_order_relaxed);
  const std::uint32_t count = (known & ~0xffu) == name ? (known & 0xff) : 0;
  const bool is_better = count == most_bytes_a_page / lines_.line_bytes();
  entry.store(name | (is_better ? 0 : count + 1), std::memory_order_relaxed);
  return is_better;
}

void object_copies::keep(const slot_reader::part& read) noexcept {
  const platform::signal_shield shield;
  lines_.put({number_of(read.address), read.version}, read.buffer);
}

void object_copies::read_batch(batch& wanted) noexcept {
  const std::span<slot_reader::part> parts = std::span(wanted.parts).first(wanted.count);
  slots_.read_parts(parts, lines_.line_bytes());
  for (const slot_reader::part& one : parts) {
    if (one.outcome == slot_read::done) keep(one);
  }
  wanted.count = 0;
}

std::size_t object_copies::make(std::span<const std::byte* const> addresses) noexcept {
  std::optional<platform::runtime_section> section;
  if (!host_.on_fiber()) section.emplace();
  begin();
  const std::size_t line_bytes = lines_.line_bytes();
  const std::size_t most = std::min(slot_reader::most_parts, most_bytes_at_once / line_bytes);
  batch wanted;
  std::size_t missing = 0;
  for (const std::byte* const address : addresses) {
    if (!heap_.contains(address)) continue;
    const page_id page = heap_.page_at(address);
    const std::optional<std::uint64_t> version = engine_.view().version(page);
    const std::byte* const line = line_of(address);
    if (!version || unreadable_.contains(page) || lines_.contains({number_of(line), *version})) continue;
    if (wanted.has(line)) continue;
    ++missing;
    if (is_better_fetched(page)) {
      accesses_.prefetch(address, 1);
      continue;
    }
    wanted.parts[wanted.count] = {
        .address = line, .buffer = wanted.bytes.data() + wanted.count * line_bytes, .outcome = slot_read::not_remote};
    if (++wanted.count == most) read_batch(wanted);
  }
  if (wanted.count > 0) read_batch(wanted);
  engine_.count().hinted_misses.add(missing);
  return missing;
}

// The rights are looked at first, so what another thread has protected before is left to the kernel.
copy_lookup object_copies::find(const std::byte* address, std::size_t bytes, std::byte* to) noexcept {
  const auto offset = static_cast<std::size_t>(address - line_of(address));
  if (offset + bytes > lines_.line_bytes() || !heap_.contains(address)) return copy_lookup::unsuitable;
  const page_id page = heap_.page_at(address);
  if (unreadable_.contains(page)) return copy_lookup::unsuitable;
  const std::optional<std::uint64_t> version = engine_.view().version(page);
  if (!version) return copy_lookup::unsuitable;
  const std::uint64_t line = number_of(address);
  if (lines_.read({line, *version}, offset, bytes, to)) return copy_lookup::found;
  return is_walk(line, lines_.line_bytes()) ? copy_lookup::unsuitable : copy_lookup::none;
}

bool object_copies::bring(const std::byte* address, std::size_t bytes, std::byte* to) noexcept {
  std::optional<platform::runtime_section> section;
  if (!host_.on_fiber()) section.emplace();
  begin();
  engine_.count().hinted_misses.add(1);
  if (is_better_fetched(heap_.page_at(address))) {
    accesses_.prefetch(address, 1);
    return false;
  }
  std::array<std::byte, engine::line_cache::most_line_bytes> line;
  slot_reader::part one{.address = line_of(address), .buffer = line.data(), .outcome = slot_read::not_remote};
  slots_.read_part(one, lines_.line_bytes());
  if (one.outcome != slot_read::done) return false;
  keep(one);
  std::memcpy(to, line.data() + (address - one.address), bytes);
  return true;
}

}  // namespace far::pager
