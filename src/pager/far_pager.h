// The pager's parts, put together: it creates them, starts and stops the threads, and forks. See pager.h for what it
// does, ARCHITECTURE.md for the way through it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "engine/engine.h"
#include "pager/fault_thread.h"
#include "pager/mapped_parts.h"
#include "pager/memory_calls.h"
#include "pager/miss_resolver.h"
#include "pager/object_copies.h"
#include "pager/pager.h"
#include "pager/process_host.h"
#include "pager/reclaimer.h"
#include "pager/slot_reader.h"
#include "pager/software_accesses.h"
#include "platform/far_address_space.h"

namespace far::pager {

class far_pager final : public pager {
 public:
  [[nodiscard]] static result<std::unique_ptr<far_pager>> create(const options& chosen);
  ~far_pager() override;

  // For signal handlers.
  [[nodiscard]] miss_resolver& misses() { return *misses_; }
  // False in a child of fork that could not open a userfaultfd, and did not need one: nothing leaves its memory.
  [[nodiscard]] bool serves_misses() const { return serves_misses_; }

  // Whether pages leave by a move, which the kernel refuses while a device may write to them. The child of a process
  // that has changed its user cannot: it may not see its own page tables, without which no page is moved.
  [[nodiscard]] bool moves_pages() const { return space_.moves_pages(); }

  // ---- far_heap ----
  [[nodiscard]] bool contains(const void* address) const override { return heap_.contains(address); }
  [[nodiscard]] bool overlaps(const void* address, std::size_t bytes) const override {
    return heap_.overlaps(address, bytes);
  }
  [[nodiscard]] const std::byte* start() const override { return heap_.base(); }
  [[nodiscard]] std::uint64_t pages() const override { return heap_.bytes() >> page_shift; }
  [[nodiscard]] result<void> unmap(std::byte* address, std::size_t bytes) override {
    return calls_->unmap(address, bytes);
  }
  [[nodiscard]] result<void> discard(std::byte* address, std::size_t bytes) override {
    return calls_->advice().discard(address, bytes);
  }
  void evict(std::byte* address, std::size_t bytes) override {
    calls_->advice().evict(parts_->pages_in(address, bytes));
  }
  [[nodiscard]] result<void> resize(std::uint64_t budget_bytes) override;
  [[nodiscard]] result<void> add_server(std::string_view server) override;
  [[nodiscard]] result<std::uint64_t> remove_server(std::string_view server, removal step) override;
  void prepare_exit() override;
  void prepare_fork() override;
  void after_fork_in_parent() override;
  void after_fork_in_child(std::span<const std::span<const std::byte>> pinned) override;
  [[nodiscard]] engine::statistics snapshot() const override { return engine_->snapshot(); }
  void validate() const override;

  // ---- mappings ----
  [[nodiscard]] std::size_t uniform_bytes(const void* address, std::size_t bytes, bool* inside) const override {
    return calls_->uniform_bytes(address, bytes, inside);
  }
  [[nodiscard]] result<std::byte*> map(std::size_t bytes, int protection, std::size_t alignment_bytes) override {
    return calls_->map(bytes, protection, alignment_bytes);
  }
  [[nodiscard]] result<void> map_at(std::byte* address, std::size_t bytes, int protection, overlap how) override {
    return calls_->map_at(address, bytes, protection, how);
  }
  [[nodiscard]] result<void> hand_over(std::byte* address, std::size_t bytes, overlap how,
                                       const std::function<int()>& place) override {
    return calls_->hand_over(address, bytes, how, place);
  }
  [[nodiscard]] result<bool> replace_foreign(std::byte* address, std::size_t bytes,
                                             const std::function<int()>& place) override {
    return calls_->replace_foreign(address, bytes, place);
  }
  [[nodiscard]] result<void> take_back(std::byte* address, std::size_t bytes) override {
    return calls_->take_back(address, bytes);
  }
  [[nodiscard]] result<origin> origin_of(const std::byte* address, std::size_t bytes) const override {
    return calls_->origin_of(address, bytes);
  }
  [[nodiscard]] bool is_mapped(const std::byte* address, std::size_t bytes) const override {
    return calls_->is_mapped(address, bytes);
  }
  [[nodiscard]] std::uint64_t mapped_bytes() const override { return calls_->mapped_bytes(); }
  [[nodiscard]] bool is_sealed(const std::byte* address, std::size_t bytes) const override {
    return calls_->is_sealed(address, bytes);
  }
  [[nodiscard]] result<mapping> mapping_at(const std::byte* address, std::size_t bytes) const override {
    return calls_->mapping_at(address, bytes);
  }
  [[nodiscard]] piece piece_at(const std::byte* address, std::size_t bytes) const override {
    return calls_->piece_at(address, bytes);
  }
  [[nodiscard]] result<void> advise(std::byte* address, std::size_t bytes, int advice) override {
    return calls_->advise(address, bytes, advice);
  }
  [[nodiscard]] result<void> protect_with_key(std::byte* address, std::size_t bytes, int protection, int key) override {
    return calls_->protect_with_key(address, bytes, protection, key);
  }
  [[nodiscard]] result<void> seal(std::byte* address, std::size_t bytes) override {
    return calls_->seal(address, bytes);
  }
  [[nodiscard]] result<void> for_each_foreign(std::byte* address, std::size_t bytes,
                                              const std::function<int(std::byte*, std::size_t)>& call) const override {
    return calls_->for_each_foreign(address, bytes, call);
  }
  [[nodiscard]] result<void> lock(std::byte* address, std::size_t bytes, unsigned flags) override {
    return calls_->lock(address, bytes, flags);
  }
  [[nodiscard]] result<void> unlock(std::byte* address, std::size_t bytes) override {
    return calls_->unlock(address, bytes);
  }
  [[nodiscard]] result<void> fill_locked(std::byte* address, std::size_t bytes) override {
    return calls_->fill_locked(address, bytes);
  }
  void unlock_all() override { calls_->unlock_all(); }
  [[nodiscard]] result<std::byte*> remap(std::byte* address, std::size_t old_bytes, std::size_t new_bytes,
                                         const remapping& how) override {
    return calls_->remap(address, old_bytes, new_bytes, how);
  }
  void pin(const std::byte* address, std::size_t bytes) override { calls_->pin(address, bytes); }
  void unpin(const std::byte* address, std::size_t bytes) override { calls_->unpin(address, bytes); }

  // ---- page_guard ----
  [[nodiscard]] result<std::byte*> map_guarded(std::size_t bytes, std::size_t alignment_bytes) override {
    return calls_->map_guarded(bytes, alignment_bytes);
  }
  void keep_together(const std::byte* address, std::size_t bytes, backend::affinity with) override {
    engine_->ranges().keep_together(parts_->pages_in(address, bytes), with);
  }
  [[nodiscard]] bool under_pressure() const override { return !engine_->eviction().has_frames_ahead(); }
  [[nodiscard]] bool is_writable(const std::byte* address) const override {
    return engine_->view().accessible(heap_.page_at(address), true);
  }
  [[nodiscard]] bool is_untouched(const std::byte* address) const override {
    return engine_->view().is_untouched(heap_.page_at(address));
  }
  [[nodiscard]] bool is_away(const std::byte* address) const override {
    return engine_->view().is_away(heap_.page_at(address));
  }
  [[nodiscard]] std::optional<std::uint64_t> slot_of(const std::byte* address) const override {
    return engine_->view().slot_of(heap_.page_at(address));
  }
  [[nodiscard]] bool left_just_now(const std::byte* address) const override {
    return engine_->view().left_just_now(heap_.page_at(address));
  }
  [[nodiscard]] bool takes_object_path(const std::byte* address) const override {
    return engine_->view().takes_object_path(heap_.page_at(address));
  }
  [[nodiscard]] const std::uint8_t* state_bytes() const override { return engine_->view().words().state_bytes(); }
  [[nodiscard]] const std::uint8_t* states_by_number() const override {
    return engine_->view().words().states_by_number();
  }
  [[nodiscard]] const std::uint64_t* has_evicted() const override { return engine_->view().words().has_evicted(); }
  [[nodiscard]] const std::uint8_t* use_bytes() const override { return engine_->view().words().uses.bytes(); }
  [[nodiscard]] const std::uint8_t* use_time() const override { return engine_->view().words().uses.now(); }
  [[nodiscard]] bool fetch(const std::byte* address, std::size_t bytes, bool write) override {
    return accesses_->fetch(address, bytes, write);
  }
  [[nodiscard]] bool fetch_place(const std::byte* address, std::size_t bytes) override {
    return accesses_->fetch_place(address, bytes);
  }
  [[nodiscard]] bool is_lost(const std::byte* address) const override {
    return engine_->view().is_lost(heap_.page_at(address));
  }
  void prefetch(const std::byte* address, std::size_t bytes) override { accesses_->prefetch(address, bytes); }
  bool expect_use(const std::byte* address, std::size_t bytes, const hint& about) noexcept override {
    return accesses_->expect_use(address, bytes, about);
  }
  [[nodiscard]] slot_read read_slot(const std::byte* address, std::size_t bytes, std::byte* buffer) override {
    return slots_->read(address, bytes, buffer);
  }
  [[nodiscard]] bool keeps_copies() const noexcept override { return copies_.has_value(); }
  [[nodiscard]] copy_lookup find_copy(const std::byte* address, std::size_t bytes, std::byte* to) noexcept override {
    return copies_ ? copies_->find(address, bytes, to) : copy_lookup::unsuitable;
  }
  [[nodiscard]] bool bring_copy(const std::byte* address, std::size_t bytes, std::byte* to) noexcept override {
    return copies_ && copies_->bring(address, bytes, to);
  }
  std::size_t make_copies(std::span<const std::byte* const> addresses) noexcept override {
    return copies_ ? copies_->make(addresses) : 0;
  }
  void reduce_slots(const reduction& how, std::span<slot_reduction> pages) override { slots_->reduce(how, pages); }
  void reduce_rows(const reduction& how, std::span<row_reduction> rows) override { slots_->reduce_rows(how, rows); }
  [[nodiscard]] std::uint64_t poll() noexcept override { return misses_->poll(); }

 private:
  static result<std::unique_ptr<far_pager>> make(const options& chosen);  // threads that cannot be started throw
  far_pager(const options& chosen, const platform::kernel_features& features, const platform::heap_layout& heap,
            platform::userfaultfd faults, std::unique_ptr<backend::backend> far);

  [[nodiscard]] result<void> start();
  [[nodiscard]] result<void> adopt_static_memory();
  [[nodiscard]] result<void> start_fault_thread();
  [[nodiscard]] bool validate_engine() const;
  void make_reclaimer(std::function<void()> settled);
  void start_again_in_child();

  options chosen_;
  platform::heap_layout heap_;
  platform::userfaultfd faults_;
  platform::far_address_space space_;
  platform::monotonic_clock clock_;
  std::unique_ptr<backend::backend> far_;
  std::unique_ptr<engine::engine> engine_;
  process_host host_;
  // There once the engine is.
  std::optional<miss_resolver> misses_;
  std::optional<mapped_parts> parts_;
  std::optional<software_accesses> accesses_;
  std::optional<slot_reader> slots_;
  std::optional<object_copies> copies_;  // options::copied_bytes
  std::optional<memory_calls> calls_;
  std::unique_ptr<reclaimer> reclaimer_;
  std::unique_ptr<fault_thread> fault_thread_;  // fault_mode::thread only
  engine::fetcher* fault_fetcher_ = nullptr;    // the one that the thread uses
  bool handles_signals_ = false;
  bool serves_misses_ = true;
  std::uint64_t signals_before_fork_ = 0;
};

}  // namespace far::pager
