// Watches over the members of a striped far tier: probes those that do not answer, and tells when they are lost, back,
// or have forgotten everything (replicated/member.h has the states).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/striped/stripes.h"

namespace far::backend {

class prober final : public queue_holder {
 public:
  prober(stripes& shared, std::uint64_t interval_ns);
  ~prober() override;

  [[nodiscard]] result<std::unique_ptr<channel>> open_queue(backend& store) override;
  void take_queue(std::unique_ptr<channel> queue) override;

  // One step. Returns after how many nanoseconds it wants the next one. One thread at a time calls it.
  std::uint64_t step();

 private:
  static constexpr std::uint64_t no_group = stripe_table::no_group;

  struct probe {
    bool is_sent = false;
    member::health seen;
    std::uint64_t suspect_since_ns = 0;
    std::uint64_t next_ns = 0;
    bool has_served = true;
    bool is_twin_reported = false;        // that its server is another member's
    std::uint64_t held_group = no_group;  // one that the member holds pages of
    std::uint8_t held_phase = 0;
    slot_id borrowed = no_slot;  // the first of an extent that is allocated only to be probed
    std::array<std::byte, 64> bytes{};
  };

  void heed_server(std::size_t index);
  void tend_member(std::size_t index, std::uint64_t now_ns);
  void send(std::size_t index, std::uint64_t now_ns);
  [[nodiscard]] slot_id slot_to_probe(std::size_t index);
  void on_probe(std::size_t index, int error_code);
  [[nodiscard]] bool is_twin(std::size_t index);
  void drop_borrowed(std::size_t index);

  stripes& shared_;
  const std::uint64_t interval_ns_;
  std::vector<std::unique_ptr<channel>> channels_;  // by member
  std::vector<probe> probes_;
};

}  // namespace far::backend
