// A page guard without userfaultfd, for tests under sanitizers: a test program that links poisoning_pager.cc gets it
// from create_page_guard(). The far heap is plain memory. Threads evict pages at random, asking the eviction filter as
// engine/evictor.cc does, and fill what has left with poison. So an access that forgot its guard reads wrong bytes, and
// one that writes is noticed when the page comes back. Words and state bytes are the engine's own.
//
// With the policy "fifo" nothing happens at random, and no thread evicts: each fetch evicts the pages that came first,
// if there are too many. So a program with one thread takes nearly the same course in every run.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "base/spin_lock.h"
#include "engine/eviction_filter.h"
#include "engine/residency.h"
#include "pager/page_guard.h"
#include "pager/pager.h"

namespace far::heap {

class poisoning_pager final : public pager::page_guard {
 public:
  static constexpr std::byte poison{0xdb};

  // Of `chosen`: budget_bytes, which may be any size, filter, and whether the policy is "fifo".
  explicit poisoning_pager(const far::pager::options& chosen);
  ~poisoning_pager() override;

  [[nodiscard]] const std::byte* start() const override { return base_; }
  [[nodiscard]] std::uint64_t pages() const override { return heap_pages; }
  [[nodiscard]] bool contains(const void* address) const override;
  [[nodiscard]] bool overlaps(const void* address, std::size_t bytes) const override {
    return contains(address) || contains(static_cast<const std::byte*>(address) + bytes - 1);
  }
  [[nodiscard]] result<std::byte*> map_guarded(std::size_t bytes, std::size_t alignment_bytes) override;
  void keep_together(const std::byte* /*address*/, std::size_t /*bytes*/, backend::affinity /*with*/) override {}
  [[nodiscard]] result<void> unmap(std::byte* address, std::size_t bytes) override { return discard(address, bytes); }
  [[nodiscard]] result<void> discard(std::byte* address, std::size_t bytes) override;
  [[nodiscard]] const std::uint8_t* state_bytes() const override { return words_.state_bytes(); }
  [[nodiscard]] const std::uint64_t* has_evicted() const override {
    static_assert(sizeof evicted_ == sizeof(std::uint64_t));
    return reinterpret_cast<const std::uint64_t*>(&evicted_);
  }
  [[nodiscard]] bool fetch(const std::byte* address, std::size_t bytes, bool write) override;
  [[nodiscard]] bool fetch_place(const std::byte* address, std::size_t bytes) override {
    return fetch(address, bytes, true);
  }
  [[nodiscard]] bool is_lost(const std::byte* /*address*/) const override { return false; }
  void prefetch(const std::byte* address, std::size_t bytes) override {
    static_cast<void>(fetch(address, bytes, false));
  }
  bool expect_use(const std::byte* address, std::size_t bytes, const far::pager::hint& about) noexcept override;
  [[nodiscard]] const std::uint8_t* use_bytes() const override { return words_.uses.bytes(); }
  [[nodiscard]] const std::uint8_t* use_time() const override { return words_.uses.now(); }
  [[nodiscard]] std::optional<std::uint64_t> slot_of(const std::byte* address) const override {
    const engine::page_word word = words_.load(page_of(address));
    return word.where() == engine::state::remote ? std::optional<std::uint64_t>(page_of(address)) : std::nullopt;
  }
  [[nodiscard]] bool left_just_now(const std::byte* address) const override;
  [[nodiscard]] bool takes_object_path(const std::byte* address) const override;
  [[nodiscard]] bool is_writable(const std::byte* address) const override {
    return words_.load(page_of(address)).where() == engine::state::resident;
  }
  [[nodiscard]] bool is_away(const std::byte* address) const override;
  [[nodiscard]] bool is_untouched(const std::byte* address) const override {
    return words_.load(page_of(address)).where() == engine::state::untouched;
  }
  [[nodiscard]] far::pager::slot_read read_slot(const std::byte* address, std::size_t bytes,
                                                std::byte* buffer) override;
  void reduce_slots(const reduction& how, std::span<pager::slot_reduction> pages) override;
  void reduce_rows(const reduction& how, std::span<pager::row_reduction> rows) override;
  [[nodiscard]] bool under_pressure() const override;
  [[nodiscard]] std::uint64_t poll() noexcept override { return far::pager::no_poll; }
  void evict(std::byte* address, std::size_t bytes) override;
  [[nodiscard]] result<void> resize(std::uint64_t budget_bytes) override;
  [[nodiscard]] engine::statistics snapshot() const override;
  // Nothing is evicted from here on until the next fetch.
  void validate() const override;
  [[nodiscard]] result<void> add_server(std::string_view server) override;
  [[nodiscard]] result<std::uint64_t> remove_server(std::string_view server, removal step) override;
  void prepare_exit() override {}
  void prepare_fork() override {}
  void after_fork_in_parent() override {}
  void after_fork_in_child(std::span<const std::span<const std::byte>> /*pinned*/) override {}

 private:
  using page_id = engine::page_id;

  static constexpr std::uint64_t heap_pages = std::uint64_t{1} << 17;
  static constexpr std::size_t evictors = 2;
  static constexpr std::size_t stripes = 64;

  [[nodiscard]] page_id page_of(const std::byte* address) const;
  [[nodiscard]] std::byte* bytes_of(page_id page) const { return base_ + page * page_bytes_; }
  [[nodiscard]] spin_lock& slot_lock(page_id page) const { return slot_locks_[page % stripes]; }
  void evict_at_random(std::uint64_t seed);
  void evict_in_order();
  void evict_batch(std::span<const page_id> victims);
  [[nodiscard]] engine::eviction_candidates candidates(std::span<const page_id> pages) const;
  [[nodiscard]] bool claim(page_id page);
  // The lock of a batch, for who is no evictor. A mutex is not fair, and evictors that find nothing to take away want
  // it again at once: a worker that waited for it would hold up the fibers in whose scopes these pages are.
  [[nodiscard]] std::unique_lock<std::mutex> stop_evictors() const;
  void take_away(page_id page, bool object_path);
  void bring(page_id page);
  void drop(page_id page);

  static constexpr std::size_t page_bytes_ = 4096;

  engine::eviction_filter* filter_;
  const bool in_order_;
  std::byte* reserved_;
  std::byte* base_;
  std::byte* slots_;  // by page: the bytes of the slot that its word names
  engine::residency words_;
  std::atomic<std::uint64_t> mapped_pages_{0};
  std::atomic<std::uint64_t> resident_pages_{0};
  std::atomic<std::uint64_t> budget_pages_;
  std::atomic<std::uint64_t> next_slot_{1};
  std::atomic<std::uint64_t> fetched_{0};
  std::atomic<std::uint64_t> evicted_{0};
  mutable std::array<spin_lock, stripes> slot_locks_;
  mutable std::mutex batch_;                  // held while a batch is evicted, by one of them at a time
  mutable std::atomic<unsigned> callers_{0};  // that wait for it
  std::vector<page_id> ripening_;             // to be looked at again; under batch_
  // In order: the pages that are resident, and some that were; and by page, how many left before it.
  std::deque<page_id> queue_;
  std::vector<std::uint64_t> left_after_;
  mutable std::atomic<bool> paused_{false};
  std::atomic<bool> stopping_{false};
  std::array<std::thread, evictors> threads_;
};

}  // namespace far::heap
