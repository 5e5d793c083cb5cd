// A link through shared memory to a server on this machine (farheapd --shm), with a session of its own there. The
// session ends with its connection, and so does what it had: a link that has broken stays so.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "backend/shm/connection.h"
#include "device/device_link.h"

namespace far::device_parts {

class shm_link final : public device_link {
 public:
  // Connects at the first call.
  explicit shm_link(backend::shm::connection_options chosen);

  [[nodiscard]] link_answer ask(const wire::device_request& asked, const patience& how) override;
  [[nodiscard]] health keep_alive() override;
  [[nodiscard]] const std::string& peer() const override { return peer_; }

 private:
  // The parts of the payload area that one call takes each. A call that was given up keeps its part until the server
  // has answered.
  static constexpr std::size_t fragments_of_call = wire::maximum_payload_bytes / wire::fragment_bytes;
  static constexpr std::size_t places = wire::ring_length / fragments_of_call;

  [[nodiscard]] bool connect(std::uint64_t until_ns);
  // Waits for the answer to this call; answers to others free their places.
  [[nodiscard]] bool receive(std::uint64_t cookie, const patience& how, wire::ring_reply* into);
  [[nodiscard]] link_answer broken();

  const backend::shm::connection_options chosen_;
  const std::string peer_;
  std::unique_ptr<backend::shm::connection> server_;  // nullptr: none yet
  std::array<std::uint64_t, places> asked_{};         // the cookie of the call that has the place; 0: none
  std::uint64_t cookie_ = 0;
  std::string why_;
  bool is_refused_ = false;
};

}  // namespace far::device_parts
