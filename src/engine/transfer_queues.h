// The engine's queues to the far tier: fetchers, object readers, evictors. An idle thread finishes transfers that
// others have started in them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <span>

#include "base/result.h"
#include "base/spin_lock.h"
#include "engine/core.h"
#include "engine/evictor.h"
#include "engine/fetcher.h"
#include "engine/object_reader.h"

namespace far::engine {

class transfer_queues {
 public:
  static constexpr std::size_t evictor_count = 2;
  static constexpr std::size_t staging_pages = evictor_count * evictor::staging_pages;

  explicit transfer_queues(core& shared) : shared_(shared) {}

  // Opens the evictors. Once, before anything else. Requires: core::map_buffers(staging_pages).
  [[nodiscard]] result<void> open_evictors();
  [[nodiscard]] std::span<const std::unique_ptr<evictor>> evictors() const { return evictors_; }

  // A fetcher for a thread that resolves misses. It is kept here, so that others can finish its transfers.
  [[nodiscard]] result<fetcher*> add_fetcher();
  // A reader for objects of Remote pages. It is kept here, and polled in help(). Requires: options::reads_parts.
  [[nodiscard]] result<object_reader*> add_object_reader();

  // Polls the transfers of all queues whose locks are free. Returns whether anything was done.
  bool help(caller who = caller::of_program);

  // Whether transfers wait to be submitted by a thread of the runtime in help(); whether writes do.
  [[nodiscard]] bool has_left() const;
  [[nodiscard]] bool has_left_writes() const;

  [[nodiscard]] bool under_way() const;
  // Transfers for which no miss waits. Waiting threads finish the others; fibers may all sleep.
  [[nodiscard]] bool unattended() const;

  // Around fork: with all of the locks held, no miss and no eviction is half done.
  void lock_all() FAR_ACQUIRE(adding_);
  void unlock_all() FAR_RELEASE(adding_);
  // In the child, first of all: closes the parent's channels, so that there are descriptors for the child's.
  void close_in_child();
  // In the child, which may add queues again; then, with pages and staging in order, opens channels of its own.
  void open_in_child() { adding_.open_in_child(); }
  [[nodiscard]] result<void> restart_in_child();

 private:
  static constexpr std::size_t maximum_fetchers = 64;
  static constexpr std::size_t maximum_readers = 16;

  // The queues added so far.
  [[nodiscard]] std::span<const std::unique_ptr<fetcher>> fetchers() const {
    return {fetchers_.data(), fetcher_count_.load(std::memory_order_acquire)};
  }
  [[nodiscard]] std::span<const std::unique_ptr<object_reader>> readers() const {
    return {readers_.data(), reader_count_.load(std::memory_order_acquire)};
  }

  core& shared_;
  std::array<std::unique_ptr<object_reader>, maximum_readers> readers_;
  std::array<std::unique_ptr<fetcher>, maximum_fetchers> fetchers_;
  std::array<std::unique_ptr<evictor>, evictor_count> evictors_;  // gone first
  spin_lock adding_;
  std::atomic<std::size_t> fetcher_count_{0};
  std::atomic<std::size_t> reader_count_{0};
};

}  // namespace far::engine
