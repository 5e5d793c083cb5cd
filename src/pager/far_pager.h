// The pager's implementation. See pager.h for what it does, ARCHITECTURE.md for the way through it.
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/fetcher_pool.h"
#include "engine/hinted_path.h"
#include "engine/host.h"
#include "engine/parked_misses.h"
#include "pager/address_map.h"
#include "pager/call_gate.h"
#include "pager/fault_thread.h"
#include "pager/pager.h"
#include "pager/reclaimer.h"
#include "platform/far_address_space.h"

namespace far::pager {

class far_pager final : public pager, public engine::host, public engine::page_bringer {
 public:
  [[nodiscard]] static result<std::unique_ptr<far_pager>> create(const options& chosen);
  ~far_pager() override;

  [[nodiscard]] bool contains(const void* address) const override { return heap_.contains(address); }
  [[nodiscard]] std::size_t uniform_bytes(const void* address, std::size_t bytes, bool* inside) const override {
    return heap_.uniform_bytes(address, bytes, inside);
  }
  [[nodiscard]] result<std::byte*> map(std::size_t bytes, int protection, std::size_t alignment_bytes) override;
  [[nodiscard]] result<void> map_at(std::byte* address, std::size_t bytes, int protection, placement how) override;
  [[nodiscard]] result<void> hand_over(std::byte* address, std::size_t bytes, placement how,
                                       const std::function<int()>& place) override;
  [[nodiscard]] result<bool> replace_foreign(std::byte* address, std::size_t bytes,
                                             const std::function<int()>& place) override;
  [[nodiscard]] result<void> take_back(std::byte* address, std::size_t bytes) override;
  [[nodiscard]] result<origin> origin_of(const std::byte* address, std::size_t bytes) const override;
  [[nodiscard]] result<mapping> mapping_at(const std::byte* address, std::size_t bytes) const override;
  [[nodiscard]] result<void> unmap(std::byte* address, std::size_t bytes) override;
  [[nodiscard]] result<void> discard(std::byte* address, std::size_t bytes) override;
  [[nodiscard]] result<void> advise(std::byte* address, std::size_t bytes, int advice) override;
  [[nodiscard]] result<void> protect(std::byte* address, std::size_t bytes, int protection) override;
  [[nodiscard]] result<void> lock(std::byte* address, std::size_t bytes, unsigned flags) override;
  [[nodiscard]] result<void> unlock(std::byte* address, std::size_t bytes) override;
  void unlock_all() override;
  [[nodiscard]] result<std::byte*> remap(std::byte* address, std::size_t old_bytes, std::size_t new_bytes,
                                         const remapping& how) override;
  void pin(const std::byte* address, std::size_t bytes) override;
  void unpin(const std::byte* address, std::size_t bytes) override;
  void evict(std::byte* address, std::size_t bytes) override;
  [[nodiscard]] result<void> resize(std::uint64_t budget_bytes) override;
  [[nodiscard]] result<void> add_server(std::string_view server) override;
  [[nodiscard]] const std::byte* start() const override { return heap_.base(); }
  [[nodiscard]] std::uint64_t pages() const override { return heap_.bytes() >> page_shift; }
  [[nodiscard]] result<std::byte*> map_guarded(std::size_t bytes, std::size_t alignment_bytes) override;
  [[nodiscard]] bool under_pressure() const override { return !engine_->eviction().has_frames_ahead(); }
  [[nodiscard]] bool is_writable(const std::byte* address) const override {
    return engine_->view().accessible(page_at(address), true);
  }
  [[nodiscard]] bool is_away(const std::byte* address) const override { return engine_->view().is_away(page_at(address)); }
  [[nodiscard]] bool left_just_now(const std::byte* address) const override {
    return engine_->view().left_just_now(page_at(address));
  }
  [[nodiscard]] bool takes_object_path(const std::byte* address) const override {
    return engine_->view().takes_object_path(page_at(address));
  }
  [[nodiscard]] const std::uint8_t* state_bytes() const override { return engine_->view().words().state_bytes(); }
  void fetch(const std::byte* address, std::size_t bytes, bool write) override;
  void prefetch(const std::byte* address, std::size_t bytes) override;
  bool expect_use(const std::byte* address, std::size_t bytes, const hint& about) noexcept override;
  [[nodiscard]] const std::uint8_t* use_bytes() const override { return engine_->view().words().uses.bytes(); }
  [[nodiscard]] const std::uint8_t* use_time() const override { return engine_->view().words().uses.now(); }
  [[nodiscard]] slot_read read_slot(const std::byte* address, std::size_t bytes, std::byte* buffer) override;
  [[nodiscard]] std::uint64_t poll() noexcept override;
  void prepare_fork() override;
  void after_fork_in_parent() override;
  void after_fork_in_child(std::span<const std::span<const std::byte>> pinned) override;
  [[nodiscard]] engine::statistics snapshot() const override { return engine_->snapshot(); }
  void validate() const override;

  // Resolves an access of the calling thread to a page that is not resident, or not writable. Waits until it is done;
  // on a fiber, others run meanwhile.
  void resolve(page_id page, bool write, miss_waiter::place from = miss_waiter::place::fault_handler) noexcept;
  // The same for an access that raised a signal: `context` is its ucontext_t.
  void resolve_fault(const void* address, const void* context) noexcept;
  [[nodiscard]] bool has_fibers() const { return parked_ != nullptr; }
  // Whether the program has mapped something of the kernel's there.
  [[nodiscard]] bool is_foreign(const void* address) const {
    return engine_->view().words().load(page_at(address)).where() == engine::state::foreign;
  }

  [[nodiscard]] page_id page_at(const void* address) const { return heap_.page_at(address); }

 private:
  static constexpr std::size_t shared_fetchers = 8;

  far_pager(const options& chosen, const platform::kernel_features& features, const platform::heap_layout& heap,
            platform::userfaultfd faults, std::unique_ptr<backend::backend> far);

  [[nodiscard]] result<void> start(const options& chosen);
  [[nodiscard]] page_range pages_in(const std::byte* address, std::size_t bytes) const {
    return {page_at(address), static_cast<std::size_t>(pages_for(bytes))};
  }
  [[nodiscard]] std::byte* address_of(page_id page) const { return heap_.address_of(page); }
  [[nodiscard]] result<std::byte*> map_somewhere(std::size_t bytes, int protection, std::size_t alignment_bytes,
                                                 bool guarded);

  // What the memory calls do inside the gate; far_pager_memory.cc, far_pager_remap.cc, far_pager_advice.cc. They return
  // 0 or an errno value.
  [[nodiscard]] bool holds_whole(const std::byte* address, std::size_t bytes) const {
    bool inside = false;
    return bytes > 0 && heap_.uniform_bytes(address, bytes, &inside) == bytes && inside;
  }
  template <typename Body>
  auto inside(const Body& body) const {
    const memory_call call(gate_);
    return body();
  }
  [[nodiscard]] int take_somewhere(std::uint64_t count, std::uint64_t alignment_pages, int protection, bool guarded,
                                   page_id* first);
  [[nodiscard]] int open_part(page_range range, int protection, bool guarded);
  [[nodiscard]] int close_part(const address_map::part& part);
  [[nodiscard]] int empty_part(const address_map::part& part);
  [[nodiscard]] address_map::parts take_parts(page_range range);
  [[nodiscard]] int take_over(page_range range, bool keep_foreign, int protection);
  [[nodiscard]] int empty_parts(page_range range, const address_map::parts& parts, bool keep_foreign, int protection);
  [[nodiscard]] static bool may_map_in_place(page_range range, const address_map::parts& parts);
  [[nodiscard]] int map_in_place(page_range range, const address_map::parts& parts, const mapping_traits& traits);
  [[nodiscard]] int prepare_to_replace(const address_map::parts& parts, int protection);
  [[nodiscard]] int protect_parts(const address_map::parts& parts, int protection);
  void give_parts_back(page_range range, const address_map::parts& parts, std::size_t first_kept);
  [[nodiscard]] int do_map_at(page_range range, int protection, placement how);
  [[nodiscard]] int do_hand_over(page_range range, placement how, const std::function<int()>& place);
  [[nodiscard]] int do_unmap(page_range range);
  [[nodiscard]] address_map::parts look(page_range range) const;
  // Calls `body(part)` for what is in use of the range, in order. The first error of `body` ends it; a hole is ENOMEM:
  // at once, or when the rest is done.
  enum class at_hole : std::uint8_t { stop, go_on };
  template <typename Body>
  [[nodiscard]] int for_each_part(page_range range, at_hole what, const Body& body) const {
    bool holes = false;
    page_id next = range.first;
    for (const address_map::part& part : look(range)) {
      holes |= part.range.first != next;
      if (holes && what == at_hole::stop) return ENOMEM;
      if (const int failure = body(part)) return failure;
      next = part.range.end();
    }
    return holes || next != range.end() ? ENOMEM : 0;
  }
  [[nodiscard]] int protect_part(const address_map::part& seen, int protection);
  [[nodiscard]] int protect_removed(address_map::part& part, int protection);
  [[nodiscard]] int open_reserved(page_range range, int protection);
  void give_up_if_empty(page_range range);
  [[nodiscard]] int do_remap(page_range range, std::uint64_t new_count, const remapping& how, page_id* moved);
  [[nodiscard]] int grow_in_place(page_range range, std::uint64_t more, const mapping_traits& grown);
  [[nodiscard]] int move_parts(page_range range, std::uint64_t new_count, const remapping& how, page_id* moved);
  [[nodiscard]] int move_bytes(page_range range, const address_map::parts& parts, page_range target,
                               const mapping_traits& traits);
  [[nodiscard]] int take_target(const remapping& how, int protection, page_range* target);
  [[nodiscard]] int discard_part(const address_map::part& part);
  [[nodiscard]] int push_out(page_range range, int advice);
  [[nodiscard]] int advise_part(const address_map::part& part, int advice);
  [[nodiscard]] int note_of_child(page_range range, int advice);
  [[nodiscard]] int fence(const address_map::part& part, bool install);
  [[nodiscard]] int tell_kernel(const address_map::part& part, int advice);
  [[nodiscard]] int populate_part(const address_map::part& part, bool write);
  [[nodiscard]] int lock_part(const address_map::part& part, unsigned flags);
  [[nodiscard]] int unlock_part(const address_map::part& part);
  void settle_parts_in_child();
  [[nodiscard]] result<void> start_fault_thread();
  [[nodiscard]] result<void> adopt_static_memory();
  [[nodiscard]] bool on_fiber() const { return parked_ != nullptr && chosen_.fibers->on_fiber(); }
  void enter() noexcept override;
  void leave() noexcept override;
  void rest(std::uint64_t nanoseconds) noexcept override;
  void wake_background() noexcept override;
  [[nodiscard]] bool has_pollers() const noexcept override { return parked_ != nullptr; }
  void poll_soon() noexcept override;
  [[nodiscard]] std::size_t preferred_fetcher() const noexcept override;
  void resolve(engine::wanted_page wanted, miss_waiter::place from) noexcept;
  void resolve_observed(const std::byte* address, bool write, const void* context) noexcept;
  [[nodiscard]] bool fill(page_id page, bool write) noexcept override;
  void bring(engine::wanted_page wanted) noexcept override;
  [[nodiscard]] bool prefetch_pages(page_range range) noexcept;
  [[nodiscard]] engine::read_outcome start_read(engine::object_read& one) noexcept;
  [[nodiscard]] slot_read read_slot_on_thread(page_id page, std::uint32_t offset_bytes, std::span<std::byte> into);
  [[nodiscard]] slot_read read_slot_on_fiber(page_id page, std::uint32_t offset_bytes, std::span<std::byte> into);
  [[noreturn]] void die_of_lost_page(page_id page) const noexcept;

  options chosen_;
  platform::heap_layout heap_;
  platform::userfaultfd faults_;
  platform::far_address_space space_;
  platform::monotonic_clock clock_;
  std::unique_ptr<backend::backend> far_;
  address_map addresses_;
  mutable call_gate gate_;
  std::unique_ptr<engine::engine> engine_;
  engine::fetcher_pool fetchers_;  // for threads and fibers that resolve their own misses
  std::vector<engine::object_reader*, platform::local_allocator<engine::object_reader*>> readers_;
  std::unique_ptr<engine::hinted_path> hinted_;
  std::unique_ptr<engine::parked_misses> parked_;  // where there are fibers
  std::unique_ptr<reclaimer> reclaimer_;
  std::unique_ptr<fault_thread> fault_thread_;  // fault_mode::thread only
  engine::fetcher* fault_fetcher_ = nullptr;    // the one that the thread uses
  bool handles_signals_ = false;
  std::uint64_t signals_before_fork_ = 0;
};

}  // namespace far::pager
