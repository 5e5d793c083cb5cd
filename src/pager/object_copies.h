// Small objects of remote pages, read without their pages: for code that is compiled to ask for them
// (docs/decisions/0119-copies-of-objects.md). The lines around them are read side by side, and their copies stay in a
// cache, which takes up to half of the budget from the first one on.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/spin_lock.h"
#include "engine/engine.h"
#include "engine/line_cache.h"
#include "pager/address_map.h"
#include "pager/process_host.h"
#include "pager/slot_reader.h"
#include "pager/software_accesses.h"
#include "pager/unreadable_pages.h"
#include "platform/heap_layout.h"

namespace far::pager {

class object_copies {
 public:
  // The addresses that one takes, which count against limits on data.
  [[nodiscard]] static std::uint64_t table_bytes(std::uint64_t heap_pages, std::uint64_t budget_bytes) {
    return unreadable_pages::table_bytes(heap_pages) + budget_bytes / 2;
  }

  // Requires: all references outlive this object.
  object_copies(engine::engine& with, process_host& around, const platform::heap_layout& heap, address_map& addresses,
                slot_reader& slots, software_accesses& accesses, std::size_t line_bytes, std::uint64_t budget_bytes);

  // As page_guard::find_copy(), bring_copy() and make_copies().
  [[nodiscard]] copy_lookup find(const std::byte* address, std::size_t bytes, std::byte* to) noexcept;
  [[nodiscard]] bool bring(const std::byte* address, std::size_t bytes, std::byte* to) noexcept;
  std::size_t make(std::span<const std::byte* const> addresses) noexcept;

  // The budget has changed.
  void fit() noexcept;
  void restart_in_child() noexcept;

 private:
  // So many lines are read at a time; their bytes are on the stack meanwhile.
  static constexpr std::size_t most_bytes_at_once = 4096;
  // A page of which that much has been read is fetched.
  static constexpr std::size_t most_bytes_a_page = 1024;
  static constexpr std::size_t counted_pages = 16384;

  struct batch;

  void begin() noexcept;
  void fill_room() noexcept;
  [[nodiscard]] bool is_better_fetched(page_id page) noexcept;
  [[nodiscard]] std::uint64_t number_of(const std::byte* address) const {
    return reinterpret_cast<std::uintptr_t>(address) / lines_.line_bytes();
  }
  [[nodiscard]] const std::byte* line_of(const std::byte* address) const {
    return address - reinterpret_cast<std::uintptr_t>(address) % lines_.line_bytes();
  }
  void keep(const slot_reader::part& read) noexcept;
  void read_batch(batch& wanted) noexcept;

  engine::engine& engine_;
  process_host& host_;
  const platform::heap_layout& heap_;
  slot_reader& slots_;
  software_accesses& accesses_;
  unreadable_pages unreadable_;
  engine::line_cache lines_;
  std::atomic<bool> begun_{false};
  std::atomic<std::size_t> wanted_bytes_{0};  // they will grow to that, once there is room
  spin_lock fitting_;
  std::size_t used_bytes_ FAR_GUARDED_BY(fitting_) = 0;
  // How many lines of a page have been read: the page in the upper bits, the number in the lowest eight.
  std::array<std::atomic<std::uint32_t>, counted_pages> read_lines_{};
};

}  // namespace far::pager
