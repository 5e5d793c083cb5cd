// The object path: reading objects out of remote pages, and how a thread or a fiber waits for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "pager/miss_resolver.h"
#include "pager/page_guard.h"
#include "pager/process_host.h"
#include "platform/heap_layout.h"
#include "platform/local_memory.h"

namespace far::pager {

class slot_reader {
 public:
  // Requires: all references outlive this object.
  slot_reader(engine::engine& with, process_host& around, const platform::heap_layout& heap, miss_resolver& misses)
      : engine_(with), host_(around), heap_(heap), misses_(misses) {}

  // Queues to the far tier. Once, before the first read.
  [[nodiscard]] result<void> add_readers(unsigned count);

  // As page_guard::read_slot().
  [[nodiscard]] slot_read read(const std::byte* address, std::size_t bytes, std::byte* buffer);
  // Several such reads, of parts of pages, side by side. Requires: at most most_parts.
  struct part {
    const std::byte* address;
    std::byte* buffer;
    slot_read outcome;
    std::uint64_t version = 0;  // of the page with these bytes (engine/page_checks.h)
  };
  static constexpr std::size_t most_parts = 64;
  void read_parts(std::span<part> parts, std::size_t bytes);
  void read_part(part& one, std::size_t bytes);
  // As page_guard::reduce_slots().
  void reduce(const reduction& how, std::span<slot_reduction> pages);
  // As page_guard::reduce_rows().
  void reduce_rows(const reduction& how, std::span<row_reduction> rows);

 private:
  struct awaited_read;

  void prepare(awaited_read& one, const part& of, std::size_t bytes) const;
  static void finish(part& of, const awaited_read& one);
  [[nodiscard]] engine::read_outcome start(engine::object_read& one) noexcept;
  void read_all(std::span<awaited_read> reads);
  void read_on_thread(std::span<awaited_read> reads);
  void read_on_fiber(std::span<awaited_read> reads);

  engine::engine& engine_;
  process_host& host_;
  const platform::heap_layout& heap_;
  miss_resolver& misses_;  // fibers wait for their turn with those that miss
  std::vector<engine::object_reader*, platform::local_allocator<engine::object_reader*>> readers_;
};

}  // namespace far::pager
