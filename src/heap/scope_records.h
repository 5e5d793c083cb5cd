// The records of every fiber, and of every OS thread outside fibers, that uses far pointers: its scopes, and the pages
// that the runtime's own work needs on its behalf. All of this process, whichever runtime they use.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/spin_lock.h"
#include "far/detail/scope_record.h"
#include "heap/hazard_log.h"

namespace far::heap {

// A page that scopes of a checked build have dereferenced, and the outermost of them (1: of all).
struct checked_page {
  std::uint64_t page = 0;
  std::size_t depth = 0;
};

// The small objects that scopes of a checked build have dereferenced, each with the outermost of them.
class checked_objects {
 public:
  void note(std::uintptr_t object, std::size_t depth);
  // The scope at that depth, the innermost, ends: those that no scope further out has dereferenced.
  [[nodiscard]] std::vector<std::uintptr_t> take(std::size_t depth);

 private:
  std::unordered_map<std::uintptr_t, std::size_t> depths_;
  std::vector<std::vector<std::uintptr_t>> by_depth_;  // also those that a scope further out has noted since
};

// A far object that is destroyed when the one that contained its owner is gone (destruction.cc).
struct destruction {
  std::atomic<std::uint64_t> word{0};  // owns it
  void (*destroy)(std::atomic<std::uint64_t>& word) = nullptr;
  std::unique_ptr<destruction> next;
};

// None is destroyed before the process ends: evictors walk them without a lock. Those of owners that have ended are
// used again.
struct owner_record : detail::scope_record {
  hazard_log work;

  // The pages that the open scope has dereferenced, if it logs (scope_log.h). Made by the owner's first such scope.
  std::atomic<hazard_log*> used{nullptr};
  std::chrono::steady_clock::time_point log_began;  // the owner's

  // Of the grace period of each kind that is under way (grace_periods.h): the sequence when it began, and the next
  // record whose scope was open then.
  struct period_mark {
    std::uint64_t sequence_then = 0;
    owner_record* next_open_then = nullptr;
  };
  std::array<period_mark, 2> period_marks;

  // How many destructions of far objects the owner is in, one within the other, and those that wait for the innermost.
  unsigned destructions = 0;
  std::unique_ptr<destruction> put_off;

  // In checked builds only.
  spin_lock checked_lock;
  std::vector<checked_page> checked FAR_GUARDED_BY(checked_lock);
  checked_objects objects FAR_GUARDED_BY(checked_lock);
  std::size_t checked_depth = 0;

  owner_record* next = nullptr;       // set before the record is published
  owner_record* next_free = nullptr;  // the registry's
};

// Makes every thread of the process pass a full memory fence: their earlier stores are visible to the caller
// afterwards, and they see the earlier stores of the caller (membarrier(2); asymmetric, so that scopes need no fence of
// their own).
void fence_all_threads() noexcept;

// The first of all records that have ever been in use, each of which names the next.
[[nodiscard]] owner_record* first_record() noexcept;

// The calling fiber's, or the calling thread's. Throws as detail::current_scope_record().
[[nodiscard]] owner_record& current_record();

// A record for a stretch of work beside that of the fiber or thread that does it, with a hazard log. Throws
// std::bad_alloc.
class borrowed_record {
 public:
  borrowed_record();
  ~borrowed_record();
  borrowed_record(const borrowed_record&) = delete;
  borrowed_record& operator=(const borrowed_record&) = delete;
  hazard_log& operator*() { return one_->work; }
  hazard_log* operator->() { return &one_->work; }

 private:
  friend class adopted_record;

  owner_record* one_;
};

// While it lives, the record is that of the calling fiber or thread, whose scopes then need no memory. Created and
// destroyed on the same fiber or thread, outside scopes. Requires: that has none of its own.
class adopted_record {
 public:
  explicit adopted_record(borrowed_record& from) noexcept;
  ~adopted_record();
  adopted_record(const adopted_record&) = delete;
  adopted_record& operator=(const adopted_record&) = delete;
};

// A bit for each page of a batch.
struct held_pages {
  std::uint64_t by_work = 0;    // headers in them may be locked: they stay
  std::uint64_t by_scopes = 0;  // a scope that logs has dereferenced something in them
};

// Which of `pages` (numbers of addresses: address / page size; at most 64) are in a log, but for `except`, or null.
// Passes the process-wide fence first.
[[nodiscard]] held_pages find_held(std::span<const std::uint64_t> pages, const hazard_log* except) noexcept;

}  // namespace far::heap
