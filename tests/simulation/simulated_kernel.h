// The kernel, as far as the engine sees it: page tables, userfaultfd, and the frames themselves.
//
// It behaves as Linux does where that is awkward: a call on several pages is not atomic (other threads run between the
// pages), a refused drop() may have dropped the pages before the locked one, frames run out for a moment. And it stops
// the run when the engine breaks the contract of platform::address_space.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "platform/address_space.h"
#include "random_source.h"
#include "scheduler.h"

namespace far::simulation {

using platform::mapping;
using platform::page_id;
using platform::page_range;

// The kernel's faults, per mille of the pages or calls in question.
struct kernel_faults {
  std::uint64_t refused_populates = 0;  // memory that may only be read
  std::uint64_t refused_lifts = 0;      // a device may be writing to the page
  std::uint64_t failing_installs = 0;   // no free frame
  std::uint64_t failing_guards = 0;     // too many mappings
  std::uint64_t failing_unguards = 0;   // also: a guard is refused half way, and what it has done stays
};

class simulated_kernel final : public platform::address_space {
 public:
  enum class fault : std::uint8_t { none, missing, write_protected };

  struct reported_fault {
    page_id page = 0;
    bool write = false;
    thread_id thread = 0;
  };

  simulated_kernel(scheduler& threads, random_source& random, std::uint64_t heap_pages);
  ~simulated_kernel() override;

  // For programs: one access of the MMU. A page that is not guarded is filled with zeros.
  [[nodiscard]] fault touch(page_id page, bool write);
  [[nodiscard]] std::byte* bytes(page_id page) const { return heap_ + page * page_bytes; }
  // mlock and munlock.
  void set_locked(page_range range, bool locked);
  [[nodiscard]] bool is_locked(page_id page) const { return pages_[page].locked; }

  // The effect of a program's system call that nobody sees: its pages are dropped. Returns whether this one was there,
  // and guarded: then the engine goes on to take it for Resident.
  bool drop_behind(page_id page);
  [[nodiscard]] bool was_dropped_behind(page_id page) const { return pages_[page].dropped_behind; }
  [[nodiscard]] bool was_ever_dropped_behind(page_id page) const { return pages_[page].ever_dropped_behind; }

  // For guards that resolve faults on another thread: the calling thread reports a fault and waits to be woken. The
  // handler is woken when there is one to read.
  void set_handler(thread_id handler) { handler_ = handler; }
  void report_and_wait(page_id page, bool write);
  [[nodiscard]] bool read_fault(reported_fault* next);

  // The action of another thread just before the next allow_write, once.
  void before_allow_write(std::function<void()> meanwhile) { meanwhile_ = std::move(meanwhile); }

  void set_faults(const kernel_faults& chosen) { faults_ = chosen; }
  [[nodiscard]] const kernel_faults& faults() const { return faults_; }

  // As in the child of a fork: nothing is guarded, protected against writes or locked any more, and nobody waits.
  void become_child();

  // The state of the page tables.
  [[nodiscard]] bool is_present(page_id page) const { return pages_[page].present; }
  [[nodiscard]] bool is_write_protected(page_id page) const { return pages_[page].write_protected; }
  // Calls of drop().
  [[nodiscard]] std::uint64_t drops() const { return drops_; }
  // Frames of the heap and of staging, now.
  [[nodiscard]] std::uint64_t present_pages() const;

  // address_space.
  [[nodiscard]] std::size_t install(page_range range, const std::byte* source, mapping how, int* error_code) override;
  [[nodiscard]] std::size_t lift(page_range range, std::byte* staging) override;
  [[nodiscard]] std::size_t lift_unused(std::span<const page_range> ranges, std::byte* copies) override;
  [[nodiscard]] const std::byte* unused_bytes(page_id page) override;
  [[nodiscard]] std::size_t relocate(page_range range, page_id to) override;
  [[nodiscard]] std::size_t drop(std::span<const page_range> ranges) override;
  void allow_write(page_range range) override;
  void wake(page_range range) override;
  [[nodiscard]] result<void> guard(page_range range) override;
  [[nodiscard]] bool unguard(page_range range) override;
  void query_filled(page_range range, std::span<bool> filled) override;
  [[nodiscard]] int populate(page_range range, bool write) override;
  [[nodiscard]] std::byte* map_staging(std::size_t pages) override;
  void unmap_staging(std::byte* staging, std::size_t pages) override;
  void empty_staging(std::byte* staging, std::size_t pages) override;
  [[nodiscard]] result<void> renew_staging(std::byte* staging, std::size_t pages) override;

 private:
  struct page_state {
    bool present = false;
    bool write_protected = false;
    bool guarded = false;
    // The kernel has refused to change whether it is guarded, and does not tell how far it went: asking for what is so
    // already is no mistake.
    bool refused = false;
    bool locked = false;
    bool dropped_behind = false;
    bool ever_dropped_behind = false;
  };
  struct waiter {
    page_id page = 0;
    thread_id thread = 0;
  };

  void check(page_range range, const char* call) const;
  void set_guarded(page_range range, bool guarded, const char* call);
  void note_refusal(page_range range);
  void note(const char* call, page_range range);
  void wake_waiters(page_range range);

  scheduler& threads_;
  random_source& random_;
  kernel_faults faults_;
  std::function<void()> meanwhile_;
  std::vector<page_state> pages_;
  std::byte* heap_;
  std::byte* staging_ = nullptr;
  std::vector<bool> staged_;
  std::vector<waiter> waiters_;
  std::deque<reported_fault> unread_;
  thread_id handler_ = 0;
  std::uint64_t drops_ = 0;
  static constexpr page_id no_page = ~page_id{0};
  page_id refused_to_populate_ = no_page;
};

}  // namespace far::simulation
