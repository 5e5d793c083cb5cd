// Evicting: making pages Remote, in batches, several of them under way at once.
//
// A batch: the policy names victims; clean ones are dropped, many with one TLB flush; dirty ones are lifted into
// staging and written to adjacent slots with as few transfers as possible; when the bytes are safe, staging is emptied.
// A page that is touched while it is lifted is rescued by the touching thread (engine::rescue), and leaves the batch.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "base/spin_lock.h"
#include "engine/core.h"

namespace far::engine {

class evictor {
 public:
  static constexpr std::size_t batches = 8;
  static constexpr std::size_t staging_pages = batches * batch_pages;

  // `first_staging_page`: this evictor's part of core::staging, staging_pages long.
  [[nodiscard]] static result<std::unique_ptr<evictor>> create(core& shared, std::size_t first_staging_page);
  ~evictor();

  // One step: finishes what was written and, if `start_more`, starts one batch. Returns whether anything was done.
  // Requires: the caller holds `lock`.
  bool step(bool start_more, caller who) FAR_REQUIRES(lock);

  // Evicts those of these pages that are resident and not pinned, regardless of the budget. Requires: `lock` held; at
  // most batch_pages pages; returns false when every batch is under way: step, then try again.
  [[nodiscard]] bool evict(std::span<page_id> victims, caller who, bool hard_pressed = false) FAR_REQUIRES(lock);

  // Sleeps until something may have been written, unless there is something to submit: that is for a thread of the
  // runtime. Requires: `lock` held.
  void wait(std::uint64_t timeout_ns) FAR_REQUIRES(lock) {
    if (!has_left_writes()) transfers_->wait(timeout_ns);
  }
  // In the child of a fork: pages that were on their way out go back where they came from. Requires: one thread; the
  // blocks are guarded. Then: forgets the transfers, which stayed with the parent.
  void put_back_in_child();
  void close_in_child() {
    if (transfers_ != nullptr) transfers_->close_in_child();
  }
  [[nodiscard]] result<void> restart_in_child();

  // How many pages the last step() began to evict. Requires: `lock` held.
  [[nodiscard]] std::size_t started_pages() const FAR_REQUIRES(lock) { return started_pages_; }
  // Whether pages of the last batch have stayed because the far tier will have slots for them soon. Requires: `lock`
  // held.
  [[nodiscard]] bool awaits_slots() const FAR_REQUIRES(lock) { return awaits_slots_; }
  [[nodiscard]] bool idle() const { return batches_in_use_.load(std::memory_order_relaxed) == 0; }
  // Whether writes wait for a step of a thread of the runtime's.
  [[nodiscard]] bool has_left_writes() const {
    return left_batches_.load(std::memory_order_relaxed) > 0 || has_left_parts_.load(std::memory_order_relaxed);
  }

  // For validators: slots and frames that batches hold, which no page's word shows.
  struct holdings {
    std::size_t staged_frames = 0;
    std::size_t unreferenced_slots = 0;
  };
  [[nodiscard]] holdings held() const;

  spin_lock lock;

 private:
  // One lifted page. Its position in the batch says where it is in its half of staging.
  struct entry {
    page_id page = 0;
    backend::slot_id slot = backend::no_slot;
    // empty: not lifted. rescued: somebody took the page back; wait until staging is no longer read. done: Remote.
    enum class phase : std::uint8_t { empty, writing, written, failed, rescued, done };
    phase now = phase::empty;
  };

  struct batch {
    std::array<entry, batch_pages> entries{};
    std::size_t count = 0;   // entries in use, from the first; 0: the batch is free
    std::size_t copied = 0;  // of them, from the first; the others were moved into staging
    std::size_t outstanding_requests = 0;
    bool left = false;  // its writes are not submitted yet
  };

  evictor(core& shared, std::size_t first_staging_page, std::unique_ptr<backend::channel> transfers);

  [[nodiscard]] batch* free_batch() FAR_REQUIRES(lock);
  [[nodiscard]] std::size_t choose_victims(std::span<page_id> victims) FAR_REQUIRES(lock);
  [[nodiscard]] eviction_candidates candidates(std::span<const page_id> pages) const;
  [[nodiscard]] bool close_if_open(page_id page) FAR_REQUIRES(lock);
  [[nodiscard]] bool claim(page_id page) FAR_REQUIRES(lock);
  struct leaving_page {
    page_id page;
    bool unused;  // nobody can write to it meanwhile
    bool operator<(const leaving_page& other) const { return page < other.page; }
  };
  [[nodiscard]] std::size_t ask_filter(std::span<leaving_page> claimed, bool hard_pressed) FAR_REQUIRES(lock);
  void note_fruit(bool moved) FAR_REQUIRES(lock);
  [[nodiscard]] bool is_clean(const leaving_page& one);
  void drop_clean(std::span<page_id> clean) FAR_REQUIRES(lock);
  [[nodiscard]] std::size_t drop_one_by_one(page_range refused) FAR_REQUIRES(lock);
  void finish_clean(page_id page);
  [[nodiscard]] bool lift_dirty(std::span<const page_id> dirty, std::size_t unused, batch& into) FAR_REQUIRES(lock);
  [[nodiscard]] std::size_t lift_unused(std::span<const page_id> pages, batch& into) FAR_REQUIRES(lock);
  [[nodiscard]] std::size_t allocate_slots(std::span<const page_id> pages, batch& into) FAR_REQUIRES(lock);
  void lift_run(page_range run, std::size_t position, batch& into) FAR_REQUIRES(lock);
  void note_lifted(page_id page, std::size_t position, batch& into) FAR_REQUIRES(lock);
  void give_back(page_id page) FAR_REQUIRES(lock);
  void submit_or_leave(batch& outgoing, caller who) FAR_REQUIRES(lock);
  [[nodiscard]] bool submit_left() FAR_REQUIRES(lock);
  void submit(batch& outgoing) FAR_REQUIRES(lock);
  bool finish_batches(caller who) FAR_REQUIRES(lock);
  bool poll_writes(caller who) FAR_REQUIRES(lock);
  bool retire(batch& outgoing) FAR_REQUIRES(lock);
  [[nodiscard]] bool settle(batch& outgoing, std::size_t position) FAR_REQUIRES(lock);
  void restore(page_id page, std::size_t staging_page);
  [[nodiscard]] static std::size_t frames_of(const batch& outgoing, std::size_t count);
  [[nodiscard]] std::size_t staging_page_of(const batch& outgoing, std::size_t position) const FAR_REQUIRES(lock);
  [[nodiscard]] std::byte* staging_of(const batch& outgoing, std::size_t position) const FAR_REQUIRES(lock) {
    return shared_.staged(staging_page_of(outgoing, position));
  }

  core& shared_;
  std::size_t first_staging_page_;
  std::unique_ptr<backend::channel> transfers_;
  std::array<batch, batches> batches_ FAR_GUARDED_BY(lock){};
  std::atomic<std::size_t> batches_in_use_{0};
  std::atomic<std::size_t> left_batches_{0};
  std::atomic<bool> has_left_parts_{false};  // of writes that were submitted: channel::has_left()
  std::size_t started_pages_ FAR_GUARDED_BY(lock) = 0;
  std::size_t kept_ FAR_GUARDED_BY(lock) = 0;    // victims of the last evict() that had to stay
  std::size_t forced_ FAR_GUARDED_BY(lock) = 0;  // those that a scope held, and that left all the same
  std::size_t fruitless_steps_ FAR_GUARDED_BY(lock) = 0;
  std::uint64_t fruitless_since_ns_ FAR_GUARDED_BY(lock) = 0;
  // A whole round over the policy's pages was fruitless, and nothing ripened for a while; until something does.
  bool hard_pressed_ FAR_GUARDED_BY(lock) = false;
  std::uint64_t ripening_ FAR_GUARDED_BY(lock) = 0;         // as the filter said last
  std::uint64_t ripening_before_ FAR_GUARDED_BY(lock) = 0;  // when the fruitless steps began, or it was hard pressed
  bool awaits_slots_ FAR_GUARDED_BY(lock) = false;  // the far tier had none for the last batch, and will have more soon
};

}  // namespace far::engine
