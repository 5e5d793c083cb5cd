// Prepares accesses without a hardware fault, for software guards and hints.
#pragma once

#include <cstddef>

#include "engine/engine.h"
#include "engine/hinted_path.h"
#include "pager/address_map.h"
#include "pager/miss_resolver.h"
#include "pager/process_host.h"
#include "platform/heap_layout.h"

namespace far::pager {

class software_accesses final : private engine::page_bringer {
 public:
  // Requires: all references outlive this object.
  software_accesses(engine::engine& with, process_host& around, const platform::heap_layout& heap,
                    const address_map& addresses, miss_resolver& misses)
      : engine_(with),
        host_(around),
        heap_(heap),
        addresses_(addresses),
        misses_(misses),
        hinted_(with, around, misses.fetchers(), *this) {}

  // As in page_guard.
  [[nodiscard]] bool fetch(const std::byte* address, std::size_t bytes, bool write) {
    return fetch(address, bytes, write, engine::demand::access);
  }
  [[nodiscard]] bool fetch_place(const std::byte* address, std::size_t bytes) {
    return fetch(address, bytes, true, engine::demand::place);
  }
  void prefetch(const std::byte* address, std::size_t bytes);
  bool expect_use(const std::byte* address, std::size_t bytes, const engine::hint& about) noexcept;

 private:
  [[nodiscard]] bool fetch(const std::byte* address, std::size_t bytes, bool write, engine::demand cause);
  [[nodiscard]] bool fill(page_id page, bool write) noexcept override;
  void bring(engine::wanted_page wanted) noexcept override;
  [[nodiscard]] bool prefetch_pages(page_range range) noexcept;
  [[nodiscard]] bool is_all_writable(page_range range) const noexcept;
  bool overwrite(std::uint64_t offset, std::uint64_t end, unsigned eviction_priority) noexcept;

  engine::engine& engine_;
  process_host& host_;
  const platform::heap_layout& heap_;
  const address_map& addresses_;
  miss_resolver& misses_;
  engine::hinted_path hinted_;
};

}  // namespace far::pager
