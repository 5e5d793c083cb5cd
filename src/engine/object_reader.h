// The object path's way to the far tier: reading any byte range of a Remote page out of its slot, without making the
// page resident. AIFM, section 4.3; Atlas, section 4.
//
// A read does not hold the page: it may be fetched, written, discarded or moved meanwhile, and several reads of one
// page may run at once. At its end a read says whether the page was Remote, in the same slot, all the time; only then
// are the bytes the page's newest. The slot itself stays as it is until the read has ended (slot_reads.h): a page that
// leaves it with other bytes does not return to it before, so one that is still there has the same bytes, and their
// hash.
//
// A question about rows (of_rows) is a read of several pages: what is said here about its page and slot goes for each.
//
// A read transfers all pieces of 512 bytes that contain the range, because pieces have hashes of their own
// (page_checks.h): wrong bytes are never handed out.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "base/spin_lock.h"
#include "engine/core.h"

namespace far::engine {

enum class read_outcome : std::uint8_t {
  done,        // the bytes are in the buffer, and were the page's newest when the read ended
  in_flight,   // on their way: poll
  not_remote,  // the page is not Remote any more, or was not for a moment: look again
  busy,        // the channel is full, nothing was started: poll, then try again
  failed,      // the far tier keeps failing, or returns wrong bytes: fetch the page, which finds out whether it is Lost
};

// One read, in the stack frame of the waiting thread. It stays in place while `outcome` is in_flight.
struct object_read {
  page_id page = 0;
  std::uint32_t offset_bytes = 0;  // offset_bytes + length_bytes <= page_bytes
  std::uint32_t length_bytes = 0;
  std::byte* buffer = nullptr;  // local memory; undefined unless the outcome is `done`
  // If not null: the buffer gets answer_bytes() (base/page_reduction.h) in place of the bytes, and `failed` means only
  // that the far tier did not compute it. Requires: the page's numbers are a part of it that begins and ends at one.
  const reduction* reduce = nullptr;
  const std::uint8_t* groups = nullptr;  // if it has groups: those of the numbers
  // If it is about rows: all pages, in the order of page_reduction::slots. `page` is the first, as a whole.
  std::span<const page_id> pages = {};

  [[nodiscard]] std::span<const page_id> all_pages() const {
    return pages.empty() ? std::span<const page_id>(&page, 1) : pages;
  }
  // Called once `outcome` is final, unless start() returned it; under the reader's lock, perhaps inside a fault
  // handler. The read may be gone as soon as this has notified the waiter.
  void (*finished)(object_read& one) noexcept = nullptr;
  std::atomic<read_outcome> outcome{read_outcome::not_remote};
  // Of a part that was read: the version (page_checks.h) that the page had with these bytes.
  std::uint64_t version = 0;
};

class object_reader {
 public:
  [[nodiscard]] static result<std::unique_ptr<object_reader>> create(core_for_misses& shared);
  ~object_reader();

  // Starts `one`, and ends it at once where the far tier's bytes are a memory access away. Requires: `lock` held.
  [[nodiscard]] read_outcome start(object_read& one) FAR_REQUIRES(lock);

  // Finishes reads that have arrived. Gives up reads that are late because their submitter does not run; their waiters
  // then fetch the page. Returns whether there were any. Requires: `lock` held.
  bool poll(caller who) FAR_REQUIRES(lock);

  // In the child of a fork: closes the descriptors of the transfers and forgets them, because they stayed with the
  // parent.
  void close_in_child() {
    if (transfers_ != nullptr) transfers_->close_in_child();
  }
  [[nodiscard]] result<void> restart_in_child();

  // Sleeps until something may have arrived. Requires: `lock` held.
  void wait(std::uint64_t timeout_ns) FAR_REQUIRES(lock) { transfers_->wait(timeout_ns); }
  [[nodiscard]] bool idle() const { return under_way_.load(std::memory_order_relaxed) == 0; }
  // Whether something waits to be submitted again by a thread of the runtime that polls.
  [[nodiscard]] bool has_left() const { return has_left_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool has_room() const { return under_way_.load(std::memory_order_relaxed) < most_reads; }

  spin_lock lock;

 private:
  static constexpr std::size_t most_reads = 256;
  static constexpr unsigned attempts_before_failed = 3;

  object_reader(core_for_misses& shared, std::unique_ptr<backend::channel> transfers);

  // A read that the far tier makes. It holds its slot until it has ended, even if its waiter has left.
  struct transfer {
    object_read* one = nullptr;  // nullptr: free, or given up
    std::array<slot_reads::entry, detail::most_row_pages> held;
    std::size_t held_count = 0;
    page_reduction reduce;  // of a reduction
    unsigned attempts = 0;
    const void* submitter = nullptr;  // nullptr: not known
    std::uint64_t submitted_ns = 0;
  };

  struct question_about_rows {
    detail::keyed_rows rows;
    std::array<backend::slot_id, detail::most_row_pages> slots{};
  };

  [[nodiscard]] bool is_remote_at(page_id page, backend::slot_id slot) const;
  [[nodiscard]] bool is_still_remote(const object_read& one, const transfer& held) const;
  [[nodiscard]] bool note_version(object_read& one, const transfer& held) const;
  [[nodiscard]] bool is_answered(const reduction& asked, backend::slot_id slot) const FAR_REQUIRES(lock);
  [[nodiscard]] bool hold_slots(const object_read& one, transfer& fresh);
  [[nodiscard]] bool is_direct(const transfer& held) const;
  [[nodiscard]] read_outcome read_directly(object_read& one, transfer& held) FAR_REQUIRES(lock);
  [[nodiscard]] bool submit(transfer& running) FAR_REQUIRES(lock);
  void submit_left() FAR_REQUIRES(lock);
  void note_reply(const reduction& asked, int error_code);
  void arrive(const backend::completion& ended) FAR_REQUIRES(lock);
  [[nodiscard]] bool give_up_late() FAR_REQUIRES(lock);
  void end(transfer& running, read_outcome reached) FAR_REQUIRES(lock);
  void release(transfer& held);
  void free_all_transfers() FAR_REQUIRES(lock);
  [[nodiscard]] read_outcome take(object_read& one, const std::byte* pieces) const;
  [[nodiscard]] std::uint64_t hash_expected_of(std::span<const page_id> pages) const;
  [[nodiscard]] read_outcome take_answer(object_read& one, const std::byte* answer) const;
  [[nodiscard]] backend::request request_for(const transfer& running) const FAR_REQUIRES(lock);
  [[nodiscard]] std::byte* landing_of(const transfer& running) const FAR_REQUIRES(lock) {
    return buffers_ + static_cast<std::size_t>(&running - under_way_list_.data()) * page_bytes;
  }

  core_for_misses& shared_;
  std::unique_ptr<backend::channel> transfers_;
  std::array<transfer, most_reads> under_way_list_ FAR_GUARDED_BY(lock);
  // A page for each of them, where the pieces arrive that its bytes lie in; or an answer, with the groups, the function
  // or the rows that are asked about behind it, because the transfer may outlive the read.
  std::byte* const buffers_;
  static constexpr std::size_t question_offset = 1024;
  static_assert(most_answer_bytes <= question_offset && question_offset + most_packed_group_bytes <= page_bytes &&
                question_offset + sizeof(detail::page_function) <= page_bytes &&
                question_offset + sizeof(question_about_rows) <= page_bytes);
  std::array<transfer*, most_reads> free_ FAR_GUARDED_BY(lock);
  std::size_t free_count_ FAR_GUARDED_BY(lock) = 0;
  std::atomic<std::size_t> under_way_{0};
  std::atomic<bool> has_left_{false};
  std::uint64_t look_for_late_at_ns_ FAR_GUARDED_BY(lock) = 0;
};

}  // namespace far::engine
