// The stage on which kernel primitives are measured: a guarded heap, staging, and far memory, all in this process.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "platform/userfaultfd.h"

namespace far::bench {

// Pages that are handled with one call.
inline constexpr std::size_t batch_pages = 64;

// The call that resolves a fault on the guarded heap.
enum class resolution { copy_page, allow_write };

class kernel_stage {
 public:
  // Maps everything and guards the heap. `pages` is a multiple of batch_pages. Fails where userfaultfd is not allowed
  // or lacks MOVE, write-protection or SIGBUS. At most one stage at a time: it owns the SIGBUS handler.
  [[nodiscard]] static result<std::unique_ptr<kernel_stage>> open(std::size_t pages);
  ~kernel_stage();

  kernel_stage(const kernel_stage&) = delete;
  kernel_stage& operator=(const kernel_stage&) = delete;

  [[nodiscard]] std::size_t pages() const { return pages_; }
  [[nodiscard]] std::byte* heap_page(std::size_t index) const { return heap_ + index * page_bytes; }
  [[nodiscard]] std::byte* staging_page(std::size_t index) const { return staging_ + index * page_bytes; }
  // A page whose bytes have most likely left the processor's caches: far memory is used round-robin and is larger.
  [[nodiscard]] std::byte* next_far_run(std::size_t run_pages);
  // Heap pages in random order, never two neighbours in a row.
  [[nodiscard]] const std::vector<std::uint32_t>& scattered() const { return scattered_; }

  // Steps between measurements; none is timed.
  void fill_heap(bool write_protected);
  void empty_heap();
  void empty_staging();

  // The primitives. Destinations lie in the heap or in staging; moves need the inline guard. A call that the kernel
  // refuses stops the process: a figure for it would be wrong.
  void copy_in(std::byte* page, std::size_t count, bool write_protected);
  void copy_out(std::byte* staging_page, const std::byte* page);
  void read_out(const std::vector<std::byte*>& pages);  // one vectored call, into memory that keeps its frames
  void move(std::byte* to, std::byte* from, std::size_t count);
  void write_protect(std::byte* page, std::size_t count, bool protect);
  void drop(const std::vector<std::byte*>& pages, std::size_t run_pages);  // one vectored call
  void drop_one(std::byte* page);
  std::uint64_t read_pagemap(const std::byte* first, std::size_t count);

  // The resolver of faults from now on. The heap is guarded anew, so it must be empty.
  enum class guard { in_line, sleeping_thread, spinning_thread };
  void choose_guard(guard chosen, resolution how);

  [[nodiscard]] const platform::userfaultfd& current_guard() const;

 private:
  kernel_stage(std::size_t pages, platform::userfaultfd inline_guard, platform::userfaultfd thread_guard);

  [[nodiscard]] const platform::userfaultfd& guard_of(const std::byte* page) const;
  static void on_sigbus(int signal, void* information, void* context);
  void resolve(std::byte* page);
  void serve_faults(bool spin);
  void stop_server();

  std::size_t pages_;
  platform::userfaultfd inline_guard_;
  platform::userfaultfd thread_guard_;
  guard guard_ = guard::in_line;
  std::byte* heap_ = nullptr;
  std::byte* staging_ = nullptr;
  std::byte* copies_ = nullptr;
  std::byte* far_ = nullptr;
  std::size_t far_pages_ = 0;
  std::size_t far_cursor_ = 0;
  std::vector<std::uint32_t> scattered_;
  int self_descriptor_ = -1;
  int pagemap_descriptor_ = -1;
  int stop_descriptor_ = -1;
  std::atomic<resolution> resolution_ = resolution::copy_page;
  std::atomic<bool> stop_server_ = false;
  std::thread server_;
};

// A thread that computes while it lives, so that changes of the page table must interrupt its processor. It and the
// calling thread are each bound to a processor meanwhile. Requires: two processors.
class neighbour {
 public:
  neighbour();
  ~neighbour();

  // How long it has run: other programs may keep it from running, and then nothing needs to be interrupted.
  [[nodiscard]] std::uint64_t cpu_ns();

 private:
  std::atomic<bool> stop_ = false;
  std::atomic<bool> running_ = false;
  std::atomic<std::uint64_t> sink_ = 0;
  cpu_set_t before_{};  // where the calling thread was allowed to run
  std::thread thread_;
};

}  // namespace far::bench
