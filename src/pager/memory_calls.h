// The program's memory calls: mappings.h on the far heap. One map (mapped_parts.h) says what is at an address; the
// engine knows foreign pages from their words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "engine/engine.h"
#include "pager/mapped_parts.h"
#include "pager/mappings.h"
#include "pager/memory_advice.h"
#include "pager/memory_locks.h"
#include "pager/memory_moves.h"
#include "pager/page_holds.h"
#include "platform/heap_layout.h"

namespace far::pager {

class memory_calls final : public mappings {
 public:
  // Requires: all references outlive this object.
  memory_calls(const platform::heap_layout& heap, mapped_parts& parts, engine::engine& with, miss_resolver& misses,
               software_accesses& accesses, engine::host& around)
      : heap_(heap),
        parts_(parts),
        ranges_(with.ranges()),
        holds_(heap, with.pins(), misses),
        locks_(parts, holds_),
        advice_(parts, locks_, with.ranges(), with.eviction(), accesses, around),
        moves_(heap, parts, locks_, advice_, with.ranges()) {}

  [[nodiscard]] std::size_t uniform_bytes(const void* address, std::size_t bytes, bool* inside) const override {
    return heap_.uniform_bytes(address, bytes, inside);
  }
  [[nodiscard]] result<std::byte*> map(std::size_t bytes, int protection, std::size_t alignment_bytes) override {
    return map_somewhere(bytes, protection, alignment_bytes, false);
  }
  // As page_guard::map_guarded().
  [[nodiscard]] result<std::byte*> map_guarded(std::size_t bytes, std::size_t alignment_bytes);
  [[nodiscard]] result<void> map_at(std::byte* address, std::size_t bytes, int protection, overlap how) override;
  [[nodiscard]] result<void> hand_over(std::byte* address, std::size_t bytes, overlap how,
                                       const std::function<int()>& place) override;
  [[nodiscard]] result<bool> replace_foreign(std::byte* address, std::size_t bytes,
                                             const std::function<int()>& place) override;
  [[nodiscard]] result<void> take_back(std::byte* address, std::size_t bytes) override;
  [[nodiscard]] result<origin> origin_of(const std::byte* address, std::size_t bytes) const override;
  [[nodiscard]] bool is_mapped(const std::byte* address, std::size_t bytes) const override;
  [[nodiscard]] std::uint64_t mapped_bytes() const override;
  [[nodiscard]] bool is_sealed(const std::byte* address, std::size_t bytes) const override;
  [[nodiscard]] result<mapping> mapping_at(const std::byte* address, std::size_t bytes) const override;
  [[nodiscard]] piece piece_at(const std::byte* address, std::size_t bytes) const override;
  [[nodiscard]] result<void> protect_with_key(std::byte* address, std::size_t bytes, int protection, int key) override;
  [[nodiscard]] result<void> seal(std::byte* address, std::size_t bytes) override;
  [[nodiscard]] result<void> for_each_foreign(std::byte* address, std::size_t bytes,
                                              const std::function<int(std::byte*, std::size_t)>& call) const override;
  // As in far_heap.
  [[nodiscard]] result<void> unmap(std::byte* address, std::size_t bytes);

  [[nodiscard]] memory_advice& advice() { return advice_; }
  [[nodiscard]] result<void> advise(std::byte* address, std::size_t bytes, int advice) override {
    return advice_.advise(address, bytes, advice);
  }
  [[nodiscard]] result<void> lock(std::byte* address, std::size_t bytes, unsigned flags) override {
    return locks_.lock(address, bytes, flags);
  }
  [[nodiscard]] result<void> unlock(std::byte* address, std::size_t bytes) override {
    return locks_.unlock(address, bytes);
  }
  [[nodiscard]] result<void> fill_locked(std::byte* address, std::size_t bytes) override {
    return locks_.fill(address, bytes);
  }
  void unlock_all() override { locks_.unlock_all(); }
  [[nodiscard]] result<std::byte*> remap(std::byte* address, std::size_t old_bytes, std::size_t new_bytes,
                                         const remapping& how) override {
    return moves_.remap(address, old_bytes, new_bytes, how);
  }
  void pin(const std::byte* address, std::size_t bytes) override { holds_.pin(address, bytes); }
  void unpin(const std::byte* address, std::size_t bytes) override { holds_.unpin(address, bytes); }

 private:
  [[nodiscard]] result<std::byte*> map_somewhere(std::size_t bytes, int protection, std::size_t alignment_bytes,
                                                 bool guarded);

  // Inside the gate. They return 0 or an errno value.
  [[nodiscard]] int take_somewhere(std::uint64_t count, std::uint64_t alignment_pages, int protection, bool guarded,
                                   page_id* first);
  [[nodiscard]] int map_at(page_range range, int protection, overlap how);
  [[nodiscard]] static bool may_map_in_place(page_range range, const address_map::parts& parts);
  [[nodiscard]] int map_in_place(page_range range, const address_map::parts& parts, const mapping_traits& traits);
  [[nodiscard]] int hand_over(page_range range, overlap how, const std::function<int()>& place);

  const platform::heap_layout& heap_;
  mapped_parts& parts_;
  engine::page_ranges& ranges_;
  page_holds holds_;
  memory_locks locks_;
  memory_advice advice_;
  memory_moves moves_;
};

}  // namespace far::pager
