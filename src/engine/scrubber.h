// Scrubbing: slowly reads the copies of Remote pages that nobody needs, and compares each with the page's hash. So
// damage is found and repaired (backend::report_damage) while another copy is still right.
//
//     next Remote page -> read from any copy -> read from one not read yet -> ... -> no other: report the wrong ones
//
// A read does not hold the page, as an object_reader's does not: the slot is announced (slot_reads.h), and what was
// read counts only if the page was Remote in that slot all the time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "engine/core.h"

namespace far::engine {

// Not thread-safe: see tier_tending.
class scrubber {
 public:
  explicit scrubber(core& shared);
  ~scrubber();
  scrubber(const scrubber&) = delete;
  scrubber& operator=(const scrubber&) = delete;

  // Takes what has arrived, and begins with the next pages when it is time. Never blocks. Returns after how many
  // nanoseconds it wants the next call; no_tending: the far tier has no copies, or does not want them to be scrubbed.
  [[nodiscard]] std::uint64_t step();

  // In the child of a fork: gives the parent's descriptors back; then forgets its reads, and begins anew.
  void close_in_child();
  void restart_in_child();

 private:
  static constexpr std::size_t pages_a_batch = 16;

  // A page whose copies are being read.
  struct check {
    page_id page = 0;
    slot_reads::entry held;
    std::uint64_t seen = 0;   // a bit for each source
    std::uint64_t wrong = 0;  // of those
    std::uint8_t right = 0;   // a source; 0: none yet
    std::uint8_t refused_by = 0;
    bool under_way = false;
  };

  [[nodiscard]] bool open();
  void begin_batch();
  // A page after `next_` that is Remote; false: none is left.
  [[nodiscard]] bool find(page_id* found);
  [[nodiscard]] bool begin(check& fresh, page_id page);
  [[nodiscard]] bool read(check& one);
  void arrive(const backend::completion& ended);
  // Whether another copy is left to be read.
  [[nodiscard]] bool take(check& one, const backend::completion& ended);
  void end(check& one);
  void report(const check& one);
  void tell_of_loss(const check& one);
  [[nodiscard]] bool is_remote_at(page_id page, backend::slot_id slot) const;

  core& shared_;
  const std::uint64_t pause_ns_;  // from one batch to the next; 0: it is off
  std::unique_ptr<backend::channel> transfers_;
  std::byte* buffers_ = nullptr;
  std::array<check, pages_a_batch> checks_;
  std::size_t under_way_ = 0;
  page_id next_ = 0;
  std::uint64_t due_ns_ = 0;
  std::uint64_t tell_again_at_ns_ = 0;  // of pages that are lost
};

}  // namespace far::engine
