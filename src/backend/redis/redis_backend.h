// One Redis or Valkey server.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/redis/redis_connection.h"
#include "backend/redis/redis_session.h"
#include "backend/redis/redis_uri.h"
#include "backend/tcp/block_table.h"
#include "base/result.h"
#include "platform/clock.h"
#include "wire/tls.h"

namespace far::backend {

// Shared by all servers of a far tier: read and checked once.
struct redis_trust {
  std::string password;
  std::shared_ptr<wire::tls_context> tls;  // nullptr: no TLS

  // Reads the password file and the authorities that the options name. Errors say what to do.
  [[nodiscard]] static result<redis_trust> load(const redis_options& chosen);
};

// The first connection carries the writes, makes, renews and deletes strings; the others carry reads. All writes take
// one way, so that those that were given up cannot overtake later ones (redis_connection.h). With one connection, it
// does both.
class redis_backend final : public backend {
 public:
  // Connects, checks that the server keeps what it is given, and waits for the first blocks, for up to the timeout, or
  // up to `patience_ns` when that is less. Errors name the server, and say what to do; none of them holds the password.
  [[nodiscard]] static result<std::unique_ptr<backend>> open(
      const tcp_endpoint& server, const redis_options& chosen, const redis_trust& trust,
      std::uint64_t patience_ns = std::numeric_limits<std::uint64_t>::max());

  // Of a server that is not there now: tend() goes on trying. Until it has been reached it does not answer() and has no
  // room. Errors: its name cannot be resolved.
  [[nodiscard]] static result<std::unique_ptr<backend>> open_later(const tcp_endpoint& server,
                                                                   const redis_options& chosen,
                                                                   const redis_trust& trust);

  // Deletes what is stored, for up to two seconds, unless this is the child of a fork: there it is still the parent's.
  ~redis_backend() override;

  // ENOSPC also when the server has not been reached for longer than the timeout.
  [[nodiscard]] result<slot_id> allocate(std::size_t count) override;
  void free(slot_id first, std::size_t count) override;
  [[nodiscard]] result<std::unique_ptr<channel>> open_channel(std::size_t depth) override;
  std::uint64_t tend() override;
  void prepare_exit() override;
  // False after the server has been away for longer than the timeout.
  [[nodiscard]] bool answers() const override;
  [[nodiscard]] std::uint64_t incarnation() const override { return session_.epoch(); }
  void after_fork_in_child() override;
  [[nodiscard]] capacity report() const override;
  [[nodiscard]] speed expected_speed() const override;
  [[nodiscard]] std::string describe() const override;

 private:
  redis_backend(std::string peer, std::string stem, const redis_options& chosen, const redis_trust& trust);
  [[nodiscard]] static result<std::unique_ptr<redis_backend>> make(const tcp_endpoint& server,
                                                                   const redis_options& chosen,
                                                                   const redis_trust& trust);
  [[nodiscard]] result<void> connect(std::uint64_t patience_ns);
  [[nodiscard]] std::uint64_t usable_slots() const;
  void greet_late_server();
  [[nodiscard]] result<void> wait_until(const std::function<bool()>& reached, redis_connection& connection,
                                        std::uint64_t until_ns);
  void measure_round_trip(std::uint64_t until_ns);
  [[nodiscard]] far::error has_no_room() const;
  [[nodiscard]] far::error cannot_open(const redis_connection& failed) const FAR_REQUIRES(failed.lock);
  void nudge();

  const std::string peer_;
  const redis_options chosen_;
  const redis_trust trust_;
  const platform::monotonic_clock time_;
  redis_session session_;
  // Made when the server has said what it has room for; or before, for a server that comes later.
  std::unique_ptr<block_table> blocks_;
  std::vector<std::unique_ptr<redis_connection>> connections_;
  std::atomic<std::size_t> next_channel_{0};
  std::uint64_t round_trip_ns_ = 0;
  std::atomic<bool> was_reached_{true};  // false only of a server that was missing at the start
  pid_t owner_;                          // the process whose connections these are
  bool in_child_ = false;
};

}  // namespace far::backend
