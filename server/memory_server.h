// A whole farheapd: the store, its event loops, the listener that deals connections out to them, shared memory,
// metrics, and housekeeping.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/event_loop.h"
#include "server/metrics_server.h"
#include "server/options.h"
#include "server/protocol.h"
#include "server/shm_service.h"
#include "server/store.h"
#include "wire/tls.h"

namespace far::server {

class memory_server {
 public:
  // Listens, and starts every thread. Requires: the signals of `until` are blocked in every thread. Errors name what is
  // not available, and say what to do.
  [[nodiscard]] static result<std::unique_ptr<memory_server>> start(options chosen);
  ~memory_server();
  memory_server(const memory_server&) = delete;
  memory_server& operator=(const memory_server&) = delete;

  // The addresses where it listens, for programs that wait for the server.
  [[nodiscard]] std::vector<std::string> addresses() const;

  // Serves until `signals`, a signalfd, tells of SIGTERM or SIGINT; then drains until no client needs anything that it
  // holds, the time for it is over, or a second signal comes. At SIGHUP it takes over what `read_again` returns, as far
  // as a running server can: all of it, or nothing when some of it is wrong.
  void run(int signals, const std::function<result<options>()>& read_again);

 private:
  explicit memory_server(options chosen);
  [[nodiscard]] result<void> prepare();
  [[nodiscard]] result<void> make_store();
  [[nodiscard]] result<void> start_shared_memory();
  [[nodiscard]] result<void> start_metrics();
  void serve_until_signal(int signals, const std::function<result<options>()>& read_again);
  void reload(result<options> fresh);
  void drain(int signals);
  void end(int signals);
  [[nodiscard]] std::string farewell() const;
  void accept_some();
  void deal_out(int socket);
  // Returns the time until it wants to be called again.
  [[nodiscard]] int housekeeping_ms();
  [[nodiscard]] bool is_deserted() const;

  options chosen_;
  std::optional<address> bound_;  // the address where it listens, with its actual port
  std::unique_ptr<store> store_;
  std::unique_ptr<wire::tls_context> security_;
  failed_logins failures_;
  protocol_settings protocol_;
  loop_settings loop_;
  int listener_ = -1;
  bool accepting_ = true;  // false for a moment when there are no descriptors left
  std::vector<std::unique_ptr<event_loop>> loops_;
  std::size_t next_loop_ = 0;
  std::unique_ptr<shm_service> shared_memory_;
  std::unique_ptr<metrics_server> metrics_;
  std::uint64_t started_at_ns_;
  std::atomic<std::uint64_t> looked_after_at_ns_;  // by housekeeping_ms()
  std::uint64_t ended_early_logged_ = 0;           // how many sessions that ended early the log has mentioned
};

}  // namespace far::server
