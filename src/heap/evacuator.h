// The evacuator: moves live objects together, so that segments full of garbage become free (AIFM, section 5.3; Atlas,
// section 4.3). It runs beside the program and never makes it wait: a dereference that meets a moving object calls the
// move off. Rounds are as in docs/heap.md.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "base/thread_mutex.h"
#include "fiber/mutex.h"
#include "heap/allocator.h"
#include "heap/hazard_log.h"
#include "heap/header.h"
#include "heap/living_runtimes.h"
#include "heap/scope_records.h"

namespace far::detail {
class object_heap;
}

namespace far::heap {

class evacuator {
 public:
  // `garbage_share`: the least that makes a segment worth the work of its thread; above 1 there is no thread.
  evacuator(detail::object_heap& heap, double garbage_share);
  ~evacuator();
  evacuator(const evacuator&) = delete;
  evacuator& operator=(const evacuator&) = delete;

  // Evacuates what is resident of every closed segment that has at least this share of garbage. One round at a time.
  // Returns how many segments became free. On an OS thread or a fiber that holds no spin lock.
  std::size_t run_round(double garbage_share);

  // While this is held, nothing is evacuated.
  [[nodiscard]] std::unique_lock<fiber::mutex> stop_rounds() { return std::unique_lock(round_); }

 private:
  // An object on its way: marked moving, to be copied.
  struct candidate {
    std::uintptr_t object = 0;
    bool hot = false;
  };

  enum class progress {
    done,       // all objects of the segment that could be moved were
    in_part,    // enough pages were held: the rest is for a later round
    no_places,  // the objects could not be moved now, and neither could others
  };

  void start_thread();
  void loop();
  [[nodiscard]] bool is_worth(const segment& one, double garbage_share) const;
  [[nodiscard]] progress evacuate(hazard_log& mine, std::size_t first_page) FAR_REQUIRES(round_);
  void mark(hazard_log& mine, std::size_t page) FAR_REQUIRES(round_);
  [[nodiscard]] owner_word* owner_at_hand(hazard_log& mine, std::uint64_t header_value) FAR_REQUIRES(all_moves);
  void call_off(hazard_log& mine, const candidate& one) FAR_REQUIRES(round_);
  [[nodiscard]] std::uintptr_t take_place(hazard_log& mine, std::uint64_t header_value, const candidate& one);
  [[nodiscard]] bool move(hazard_log& mine, const candidate& one) FAR_REQUIRES(round_);
  [[nodiscard]] bool move_to(hazard_log& mine, const candidate& one, std::uintptr_t copy, std::size_t bytes)
      FAR_REQUIRES(round_, all_moves);

  detail::object_heap& heap_;
  double garbage_share_;
  fiber::mutex round_;  // one round at a time
  std::vector<candidate> marked_ FAR_GUARDED_BY(round_);
  borrowed_record work_ FAR_GUARDED_BY(round_);
  allocator places_;
  thread_mutex waiting_;
  std::condition_variable_any changed_;
  bool stopping_ FAR_GUARDED_BY(waiting_) = false;
  std::thread thread_;
};

}  // namespace far::heap
