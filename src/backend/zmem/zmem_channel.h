// The queue of `zmem:`.
//
// A read is decompressed when it is polled, one request at a time, so that a page that somebody waits for does not wait
// for those that are read ahead behind it. A write is compressed when it is submitted.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/completion_queue.h"
#include "backend/zmem/page_store.h"
#include "platform/local_memory.h"

namespace far::backend {

class zmem_channel final : public channel {
 public:
  // Requires: the store outlives the channel; depth > 0.
  zmem_channel(page_store& store, codec_choice chosen, std::size_t depth);
  ~zmem_channel() override;

  [[nodiscard]] std::size_t submit(std::span<const request> batch) override;
  [[nodiscard]] std::size_t poll(std::span<completion> done) override;
  void wait(std::uint64_t /*timeout_ns*/) override {}  // submitted transfers are complete when they are polled
  [[nodiscard]] std::size_t in_flight() const override { return in_flight_; }
  [[nodiscard]] int event_descriptor() const override;
  void close_in_child() override;

 private:
  void signal() const;

  page_store& store_;
  page_codec codec_;
  std::vector<request, platform::local_allocator<request>> reads_;  // a ring
  std::size_t first_read_ = 0;
  std::size_t read_count_ = 0;
  completion_queue written_;
  std::size_t in_flight_ = 0;
  mutable int event_ = -1;
};

}  // namespace far::backend
