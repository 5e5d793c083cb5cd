// The pager's implementation. See pager.h for what it does, ARCHITECTURE.md for the way through it.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "pager/address_map.h"
#include "pager/fault_thread.h"
#include "pager/pager.h"
#include "pager/reclaimer.h"
#include "pager/waiting_fibers.h"
#include "platform/far_address_space.h"

namespace far::pager {

class far_pager final : public pager {
 public:
  [[nodiscard]] static result<std::unique_ptr<far_pager>> create(const options& chosen);
  ~far_pager() override;

  [[nodiscard]] bool contains(const void* address) const override {
    return static_cast<std::size_t>(static_cast<const std::byte*>(address) - base_) < heap_bytes_;
  }
  [[nodiscard]] result<std::byte*> map(std::size_t bytes, int protection, std::size_t alignment_bytes) override;
  [[nodiscard]] result<void> map_at(std::byte* address, std::size_t bytes, int protection) override;
  [[nodiscard]] result<void> hand_over(std::byte* address, std::size_t bytes) override;
  [[nodiscard]] result<int> protection_of(const std::byte* address) const override;
  [[nodiscard]] result<void> unmap(std::byte* address, std::size_t bytes) override;
  [[nodiscard]] result<void> discard(std::byte* address, std::size_t bytes) override;
  [[nodiscard]] result<void> protect(std::byte* address, std::size_t bytes, int protection) override;
  [[nodiscard]] result<std::byte*> remap(std::byte* address, std::size_t old_bytes, std::size_t new_bytes,
                                         bool may_move) override;
  void pin(const std::byte* address, std::size_t bytes) override;
  void unpin(const std::byte* address, std::size_t bytes) override;
  void evict(std::byte* address, std::size_t bytes) override;
  [[nodiscard]] result<void> resize(std::uint64_t budget_bytes) override;
  [[nodiscard]] result<void> add_server(std::string_view server) override;
  [[nodiscard]] const std::byte* start() const override { return base_; }
  [[nodiscard]] std::uint64_t pages() const override { return heap_bytes_ >> page_shift; }
  [[nodiscard]] result<std::byte*> map_guarded(std::size_t bytes, std::size_t alignment_bytes) override;
  [[nodiscard]] bool under_pressure() const override { return !engine_->has_frames_ahead(); }
  [[nodiscard]] bool is_writable(const std::byte* address) const override {
    return engine_->accessible(page_at(address), true);
  }
  [[nodiscard]] bool is_away(const std::byte* address) const override { return engine_->is_away(page_at(address)); }
  [[nodiscard]] bool left_just_now(const std::byte* address) const override {
    return engine_->left_just_now(page_at(address));
  }
  [[nodiscard]] bool takes_object_path(const std::byte* address) const override {
    return engine_->takes_object_path(page_at(address));
  }
  [[nodiscard]] const std::uint8_t* state_bytes() const override { return engine_->words().state_bytes(); }
  void fetch(const std::byte* address, std::size_t bytes, bool write) override;
  void prefetch(const std::byte* address, std::size_t bytes) override;
  bool expect_use(const std::byte* address, std::size_t bytes, const hint& about) noexcept override;
  [[nodiscard]] const std::uint8_t* use_bytes() const override { return engine_->words().uses.bytes(); }
  [[nodiscard]] const std::uint8_t* use_time() const override { return engine_->words().uses.now(); }
  [[nodiscard]] slot_read read_slot(const std::byte* address, std::size_t bytes, std::byte* buffer) override;
  [[nodiscard]] std::uint64_t poll() noexcept override;
  void prepare_fork() override;
  void after_fork_in_parent() override;
  void after_fork_in_child() override;
  void release_slots_of_ended_children() override;
  [[nodiscard]] engine::statistics snapshot() const override { return engine_->snapshot(); }
  void validate() const override;

  // Resolves an access of the calling thread to a page that is not resident, or not writable. Waits until it is done;
  // on a fiber, others run meanwhile.
  void resolve(page_id page, bool write, miss_waiter::place from = miss_waiter::place::fault_handler) noexcept;
  // The same for an access that raised a signal: `context` is its ucontext_t.
  void resolve_fault(const void* address, const void* context) noexcept;
  [[nodiscard]] bool has_fibers() const { return waiting_ != nullptr; }

  [[nodiscard]] page_id page_at(const void* address) const {
    return static_cast<page_id>(static_cast<const std::byte*>(address) - base_) >> page_shift;
  }

 private:
  // Fetchers for threads that resolve their own misses; a thread prefers one and takes another when that is held.
  static constexpr std::size_t shared_fetchers = 8;

  far_pager(const options& chosen, const platform::kernel_features& features, std::byte* base, std::uint64_t heap_bytes,
            platform::userfaultfd faults, std::unique_ptr<backend::backend> far);

  [[nodiscard]] result<void> start(const options& chosen);
  [[nodiscard]] page_range pages_in(const std::byte* address, std::size_t bytes) const {
    return {page_at(address), static_cast<std::size_t>(pages_for(bytes))};
  }
  [[nodiscard]] std::byte* address_of(page_id page) const { return base_ + (page << page_shift); }
  [[nodiscard]] result<std::byte*> map_somewhere(std::size_t bytes, int protection, std::size_t alignment_bytes,
                                                 bool guarded);
  [[nodiscard]] result<void> open_part(page_range range, int protection, bool guarded);
  void close_part(address_map::part part);
  void empty_part(address_map::part part);
  void take_over(page_range range, int protection);
  [[nodiscard]] result<void> start_fault_thread();
  [[nodiscard]] bool grow_in_place(page_range range, std::uint64_t more, int protection);
  [[nodiscard]] result<std::byte*> grow_elsewhere(page_range range, std::uint64_t new_count, int protection);
  [[nodiscard]] bool on_fiber() const { return waiting_ != nullptr && chosen_.fibers->on_fiber(); }
  [[nodiscard]] engine::fetcher* try_lock_fetcher() noexcept;
  [[nodiscard]] engine::fetcher& lock_some_fetcher() noexcept;
  [[nodiscard]] std::size_t free_flights() const noexcept;
  // Who wants the page: an access, which cannot go on without it; or a hint, which only expects one. For a hint nobody
  // dies of lost bytes, and no page is filled that the program may have released meanwhile.
  enum class demand { access, hint };
  void resolve_observed(const std::byte* address, bool write, const void* context) noexcept;
  void resolve_on_thread(page_id page, bool write, demand whose = demand::access) noexcept;
  void wait_for_frame() noexcept;
  void resolve_on_fiber(page_id page, bool write, miss_waiter::place from, demand whose = demand::access) noexcept;
  [[nodiscard]] engine::outcome try_miss(page_id page, bool write, demand whose) noexcept;
  void let_others_finish(page_id page, miss_waiter::place from) noexcept;
  void wait_for_frame_on_fiber(miss_waiter::place from) noexcept;
  void look_after_transfers() noexcept;
  [[nodiscard]] bool prefetch_range(page_range range, const hint* about) noexcept;
  engine::engine::prospect expect_page(page_id page, const hint& about, bool& filled) noexcept;
  [[nodiscard]] bool fill_expected(page_id page, bool write) noexcept;
  void bring_expected(page_id page, const hint& about) noexcept;
  void keep_ahead(page_id page, std::int64_t ahead, const hint& about) noexcept;
  [[nodiscard]] engine::read_outcome start_read(engine::object_read& one) noexcept;
  [[nodiscard]] slot_read read_slot_on_thread(page_id page, std::uint32_t offset_bytes, std::span<std::byte> into);
  [[nodiscard]] slot_read read_slot_on_fiber(page_id page, std::uint32_t offset_bytes, std::span<std::byte> into);
  [[noreturn]] void die_of_lost_page(page_id page) const noexcept;

  options chosen_;
  std::byte* base_;
  std::uint64_t heap_bytes_;
  platform::userfaultfd faults_;
  platform::far_address_space space_;
  platform::monotonic_clock clock_;
  std::unique_ptr<backend::backend> far_;
  address_map addresses_;
  std::unique_ptr<engine::engine> engine_;
  std::array<engine::fetcher*, shared_fetchers> fetchers_{};
  std::vector<engine::object_reader*, platform::local_allocator<engine::object_reader*>> readers_;
  std::unique_ptr<waiting_fibers> waiting_;      // where there are fibers
  std::atomic<std::uint64_t> idle_since_ns_{0};  // when poll() first found nothing; 0: it last found something
  std::unique_ptr<reclaimer> reclaimer_;
  std::unique_ptr<fault_thread> fault_thread_;  // fault_mode::thread only
  engine::fetcher* fault_fetcher_ = nullptr;    // the one that the thread uses
  bool handles_signals_ = false;
  // For each child of a fork that may still read our slots, the read end of a pipe whose write end it holds; and the
  // pipe of the fork under way.
  spin_lock children_lock_;
  std::vector<int, platform::local_allocator<int>> children_;
  // Forks whose child may still read, those without a pipe among them.
  std::uint64_t reading_children_ = 0;
  std::array<int, 2> fork_pipe_{-1, -1};
  std::uint64_t signals_before_fork_ = 0;
};

}  // namespace far::pager
