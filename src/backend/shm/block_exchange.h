// The blocks of `shm:`: requested from the server ahead of need, and returned when they are no longer needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "backend/lease_table.h"
#include "backend/shm/block_map.h"
#include "backend/shm/connection.h"

namespace far::backend::shm {

// Guarded by the lock of the connection to the server that lends the blocks, which its calls get as an argument.
class block_exchange {
 public:
  struct block_range {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
  };
  static constexpr std::size_t most_granted = 8;
  using granted_ranges = std::array<block_range, most_granted>;

  // `name`: of the far tier, for messages. Requires: the references outlive the exchange.
  block_exchange(std::string name, block_map& blocks, lease_table& leases);

  // Makes available what the server has granted.
  void take_replies(connection& server);

  // Asks for blocks if fewer slots are free than are likely to be needed soon.
  void ask_ahead(connection& server);
  // For a run of `count` slots that is not there. Returns whether something has been asked for.
  [[nodiscard]] bool ask_for_run(connection& server, std::size_t count);
  // The server has not answered yet.
  [[nodiscard]] bool is_waiting() const { return asked_.count > 0; }
  // Requires: is_waiting().
  [[nodiscard]] std::uint64_t waiting_since_ns() const { return asked_.since_ns; }
  // The server is full: there is no point in asking before.
  [[nodiscard]] std::uint64_t refused_until_ns() const { return refused_until_ns_; }

  // Gives back blocks that are not needed. Returns whether there may be more. Requires: granted blocks have been
  // populated.
  bool give_back_some(connection& server);

  // Removes and returns the granted ranges that are not populated yet. Ranges that did not fit are populated by use.
  [[nodiscard]] std::size_t take_granted(granted_ranges* into);

  // The server is gone: forgets the outstanding requests.
  void forget_questions() {
    asked_ = {};
    returns_out_ = 0;
  }
  // There is another server.
  void reset();

 private:
  // The one allocation that the server has not answered yet.
  struct asked_blocks {
    std::uint64_t first = 0;
    std::uint64_t count = 0;  // 0: none
    std::uint64_t since_ns = 0;
  };

  void on_granted(const wire::ring_reply& reply);
  void say_that_it_drains();
  [[nodiscard]] bool ask(connection& server, std::uint64_t first, std::uint64_t count);
  [[nodiscard]] bool ask_for_holes(connection& server, std::uint64_t wanted_blocks);
  [[nodiscard]] bool give_back(connection& server, std::uint64_t block);

  const std::string name_;
  block_map& blocks_;
  lease_table& leases_;
  asked_blocks asked_;
  std::uint64_t returns_out_ = 0;  // blocks given back that the server has not answered yet
  std::uint64_t refused_until_ns_ = 0;
  bool drain_noted_ = false;           // the program was told that this server is about to stop
  std::uint64_t hungry_until_ns_ = 0;  // an allocation found nothing, so free slots are needed
  std::uint64_t give_back_from_ = 0;   // where the search for free blocks goes on, downwards
  granted_ranges granted_{};
  std::size_t granted_count_ = 0;
};

}  // namespace far::backend::shm
