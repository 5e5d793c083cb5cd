// Looks after the members of a far tier, in the steps of their layer: probes those that do not answer, tells when they
// are lost, back, or have forgotten everything (member.h has the states), and sees off those that leave.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "backend/replicated/layer.h"

namespace far::backend {

class member_care {
 public:
  // The layer, as far as it differs from others.
  class host {
   public:
    virtual ~host() = default;
    // A slot of an extent that the member holds, which stays there until release_slot(); no_slot: not found yet.
    [[nodiscard]] virtual slot_id hold_slot(std::size_t index) = 0;
    virtual void release_slot(std::size_t index) = 0;
    // Submits a read to the member; on_probe() is told of its end. Returns false when that is not possible now.
    [[nodiscard]] virtual bool send_probe(std::size_t index, const request& probe) = 0;
    // Makes a member that was removed gone, if it holds nothing; returns whether it did.
    [[nodiscard]] virtual bool let_go(std::size_t index) = 0;
  };

  // `fate_of_lost`: what becomes of the pages of a lost member, for the log.
  member_care(layer& shared, host& owner, std::uint64_t interval_ns, const char* fate_of_lost);

  // A member was added. No step may be under way.
  void add();

  // One step. One thread at a time calls it.
  struct found {
    bool is_probing = false;
    bool is_troubled = false;  // a member does not serve
  };
  found step(std::uint64_t now_ns);
  void on_probe(std::size_t index, int error_code);

  // Groups have been moved to every member that serves.
  void note_spread();

 private:
  struct probe {
    bool is_sent = false;
    std::uint64_t identity = 0;  // of the server behind the member
    member::health seen;
    std::uint64_t suspect_since_ns = 0;
    std::uint64_t next_ns = 0;
    bool is_spread_to = true;            // or a new member that groups are to be moved to
    bool is_twin_reported = false;       // that its server is another member's
    bool was_leaving = false;            // at the last look
    bool is_emptiness_reported = false;  // that a member that leaves holds nothing any more
    bool holds_slot = false;             // of the layer's, for the probe under way
    slot_id borrowed = no_slot;          // the first of an extent that is allocated only to be probed
    std::array<std::byte, 64> bytes{};
  };

  void heed_server(std::size_t index);
  void see_off(std::size_t index);
  void tend_member(std::size_t index, std::uint64_t now_ns);
  void send(std::size_t index, std::uint64_t now_ns);
  [[nodiscard]] slot_id slot_to_probe(std::size_t index);
  void release(std::size_t index);
  [[nodiscard]] bool is_twin(std::size_t index);
  void drop_borrowed(std::size_t index);

  layer& shared_;
  host& owner_;
  const std::uint64_t interval_ns_;
  const char* const fate_of_lost_;
  std::vector<probe> probes_;  // by member
};

}  // namespace far::backend
