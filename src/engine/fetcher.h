// Fetching: bringing Remote pages in, with the pages that a stream will want next.
//
// A fetcher owns a channel of the backend and the buffers that bytes land in. Any thread may use any fetcher under its
// lock, so when the thread that started a fetch is held up, another finishes it (Eden, section 4: fault stealing).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/result.h"
#include "base/spin_lock.h"
#include "engine/core.h"
#include "engine/read_ahead.h"

namespace far::engine {

enum class outcome : std::uint8_t {
  resolved,   // the access can be repeated now
  in_flight,  // the page is on its way: poll
  busy,       // somebody else is at work on the page: try again
  no_budget,  // a frame must be freed first: reclaim, then try again
  lost,       // the bytes are gone for good
};

// The cause of a miss: an access, which cannot go on without the page; or a hint, which only expects an access. For a
// hint no page is filled that the program may have released meanwhile. `walk`: a hint about a range, which says what a
// loop is going to pass. `place`: somebody wants room for something new, and takes another place rather than wait for a
// far tier that is out of reach.
enum class demand : std::uint8_t { access, hint, walk, place };

class fetcher {
 public:
  [[nodiscard]] static result<std::unique_ptr<fetcher>> create(core_for_misses& shared);
  ~fetcher();

  // Starts to fetch `page` for a miss, and the pages of `ahead` that are Remote and fit the budget. `write`: the
  // waiting access is a write. `prefetched`: how many pages of `ahead` come in too.
  [[nodiscard]] outcome fetch(page_id page, bool write, demand cause, window ahead, std::size_t* prefetched)
      FAR_REQUIRES(lock);

  // What is known of pages that nobody waits for yet.
  struct expectation {
    bool write = false;
    bool is_wanted = false;  // each of them: for the policy they were missed
    bool is_walk = false;    // that announces what it comes to
    std::optional<unsigned> eviction_priority;
  };
  // Starts to fetch the Remote pages among the first batch_pages of the range, while frames are free ahead of need.
  // Returns how many pages come in.
  std::size_t prefetch(page_range range, const expectation& of) FAR_REQUIRES(lock);

  // Finishes transfers that have arrived, and retries those that failed some time ago. A thread of the runtime also
  // takes over transfers that are late because their submitter does not run. Returns whether there were any.
  bool poll(caller who) FAR_REQUIRES(lock);

  // In the child of a fork: closes the descriptors of the transfers and forgets them, because they stayed with the
  // parent.
  void close_in_child() {
    if (transfers_ != nullptr) transfers_->close_in_child();
  }
  [[nodiscard]] result<void> restart_in_child();

  // Sleeps until something may have arrived. Requires: called by the lock's holder.
  void wait(std::uint64_t timeout_ns) FAR_REQUIRES(lock) {
    if (has_left()) submit_left();
    transfers_->wait(timeout_ns);
  }
  // Whether something waits to be submitted again: by wait(), or by a thread of the runtime that polls.
  [[nodiscard]] bool has_left() const { return has_left_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool idle() const { return flights_in_use_.load(std::memory_order_relaxed) == 0; }
  // Whether only failed reads are left, which are tried again later, so that nothing can arrive before. Then the waiter
  // releases the lock, so that others can use the fetcher, and polls again soon. Requires: `lock` held.
  [[nodiscard]] bool only_rests() const FAR_REQUIRES(lock) {
    return resting_flights_ > 0 && resting_flights_ == flights_in_use_ - orphans_;
  }
  // Whether transfers are under way for which no thread waits.
  [[nodiscard]] bool unattended() const { return unattended_flights_.load(std::memory_order_relaxed) != 0; }
  // Whether fetch() can start something; may be outdated unless the lock is held.
  [[nodiscard]] bool has_room() const { return free_flights() > 0; }
  [[nodiscard]] std::size_t free_flights() const { return free_flights_of(flights - spare_flights); }
  [[nodiscard]] int event_descriptor() const FAR_REQUIRES(lock) { return transfers_->event_descriptor(); }
  [[nodiscard]] bool waits_for_time() const FAR_REQUIRES(lock) { return transfers_->waits_for_time(); }

  spin_lock lock;

 private:
  static constexpr std::size_t flights = 16;
  static constexpr std::size_t spare_flights = 1;  // for what is taken over

  struct arrival {
    page_id page;
    const std::byte* source;
  };

  // Why pages come in: for a write; and because a thread waits for one of them, or wants all of them, which shows that
  // a page is used.
  struct purpose {
    bool write = false;
    std::optional<page_id> demanded;
    bool are_wanted = false;
    bool is_walk = false;
    bool is_for_place = false;
  };

  // Pages that were asked for together. Its buffer is the flight's own stretch of the fetcher's buffers; a backend may
  // lend the bytes instead of filling it.
  struct flight {
    std::array<page_id, batch_pages> pages;
    std::array<const std::byte*, batch_pages> sources;  // of the pages that have arrived
    std::size_t count = 0;                              // 0: not in use
    std::size_t outstanding_requests = 0;
    std::uint64_t failed = 0;                      // a bit a page
    std::array<std::uint64_t, batch_pages> avoid;  // of each page: the sources that have returned wrong bytes
    unsigned attempts = 0;                         // that failed
    int error_code = 0;                            // of the last one
    bool wrong = false;                            // it brought bytes, but others than were written
    bool is_away = false;  // the tier says that the bytes are out of reach, and for how long that may last
    std::uint64_t failing_since_ns = 0;
    std::uint64_t due_ns = 0;  // not 0: it rests until then
    bool write = false;
    bool are_wanted = false;
    bool is_walk = false;
    bool is_for_place = false;
    // Where transfers need their submitter.
    const void* submitter = nullptr;  // nullptr: not known
    std::uint64_t submitted_ns = 0;
    bool orphan = false;    // another flight has taken its pages over; this one only waits for its completions
    bool demanded = false;  // somebody waits for it; otherwise it was only prefetched
  };

  fetcher(core_for_misses& shared, std::unique_ptr<backend::channel> transfers);

  [[nodiscard]] std::size_t free_flights_of(std::size_t most) const {
    return most - std::min(most, flights_in_use_.load(std::memory_order_relaxed));
  }
  [[nodiscard]] bool has_room_ahead() const;
  void submit_left() FAR_REQUIRES(lock);
  [[nodiscard]] std::size_t claim_ahead(page_id page, window ahead, std::optional<unsigned> eviction_priority,
                                        std::span<page_id> claimed);
  [[nodiscard]] flight* free_flight() FAR_REQUIRES(lock);
  [[nodiscard]] outcome fetch_direct(std::span<page_id> claimed, const purpose& why) FAR_REQUIRES(lock);
  [[nodiscard]] std::size_t install_direct(std::span<page_id> claimed, const purpose& why) FAR_REQUIRES(lock);
  void let_go(page_id page);
  void start(std::span<page_id> pages, const purpose& why) FAR_REQUIRES(lock);
  void start(flight& incoming) FAR_REQUIRES(lock);
  void land(flight& incoming) FAR_REQUIRES(lock);
  void end(flight& incoming);
  void take(const backend::completion& arrived) FAR_REQUIRES(lock);
  void report_damage(const flight& landed, std::size_t page, const backend::completion& arrived) FAR_REQUIRES(lock);
  void note_failure(flight& incoming, std::size_t first, std::size_t count, int error_code);
  [[nodiscard]] bool start_due() FAR_REQUIRES(lock);
  [[nodiscard]] bool take_over_late() FAR_REQUIRES(lock);
  void take_over(flight& late, flight& fresh) FAR_REQUIRES(lock);
  void retry_or_give_up(flight& incoming) FAR_REQUIRES(lock);
  [[nodiscard]] std::uint64_t tier_patience_ns(const flight& incoming) const;
  [[nodiscard]] std::uint64_t waiting_since_ns(const flight& incoming) const;
  [[nodiscard]] bool is_worth_a_retry(const flight& incoming, std::uint64_t now_ns) const;
  void lose(flight& incoming);
  void install(std::span<const arrival> arrivals, const purpose& why, std::byte* buffer);
  [[nodiscard]] platform::mapping mapping_for_read(page_id page, bool forecast_is_right) const;
  void install_run(std::span<const arrival> run, platform::mapping how, const purpose& why, std::byte* buffer);
  void install_in_pieces(std::span<const arrival> run, platform::mapping how, const purpose& why, std::byte* buffer);
  void make_resident(page_id page, const purpose& why, bool writable);
  [[nodiscard]] std::byte* buffer_of(const flight& incoming) const FAR_REQUIRES(lock);

  core_for_misses& shared_;
  std::unique_ptr<backend::channel> transfers_;
  // Here and not on the stack, where all of them would be initialised for each fetch of a page.
  std::array<backend::request, batch_pages> requests_ FAR_GUARDED_BY(lock);
  std::array<backend::completion, batch_pages> completions_ FAR_GUARDED_BY(lock);
  std::byte* buffers_;
  std::array<flight, flights> flights_ FAR_GUARDED_BY(lock);
  std::atomic<std::size_t> flights_in_use_{0};
  std::atomic<std::size_t> unattended_flights_{0};
  std::atomic<bool> has_left_{false};
  std::size_t resting_flights_ FAR_GUARDED_BY(lock) = 0;
  std::size_t orphans_ FAR_GUARDED_BY(lock) = 0;
};

}  // namespace far::engine
