// A channel that makes and finishes its transfers inside submit(), for backends that copy memory or have no better way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "backend/completion_queue.h"

namespace far::backend {

class immediate_channel : public channel {
 public:
  ~immediate_channel() override;

  [[nodiscard]] std::size_t submit(std::span<const request> batch) final;
  [[nodiscard]] std::size_t poll(std::span<completion> done) final;
  void wait(std::uint64_t /*timeout_ns*/) final {}  // all submitted transfers are complete
  [[nodiscard]] std::size_t in_flight() const final { return in_flight_; }
  [[nodiscard]] int event_descriptor() const final;

 protected:
  // Requires: depth > 0.
  explicit immediate_channel(std::size_t depth) : depth_(depth), ready_(depth) {}

 private:
  // Makes a transfer of allocated slots. Returns 0 or an errno value.
  [[nodiscard]] virtual int serve(const request& io) = 0;
  void signal() const;

  const std::size_t depth_;
  std::size_t in_flight_ = 0;
  completion_queue ready_;
  mutable int event_ = -1;
};

}  // namespace far::backend
