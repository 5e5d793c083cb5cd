// A redis-server of a test's own, on a port of the loopback interface, that can be killed, stopped and started again.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/reserved_port.h"
#include "tests/support/scratch_folder.h"

namespace far::testing_support {

// Stops the test program with a message when the server does not start, or does not answer within two minutes.
class redis_test_server {
 public:
  // Whether there is one on this machine, and why tests are skipped where there is not.
  [[nodiscard]] static bool is_installed();
  static constexpr const char* missing = "redis-server is not installed; scripts/install-packages programs installs it";

  // `arguments`: further ones of its command line. Where they name a --tls-port, write 0: it becomes that of address().
  // A --cluster-port of 0 becomes that of cluster_port(). With a --tls-port of "both", it listens without TLS at
  // address(), and with TLS at tls_port().
  explicit redis_test_server(std::vector<std::string> arguments = {}) : redis_test_server(std::move(arguments), true) {}
  // One that start() starts.
  [[nodiscard]] static std::unique_ptr<redis_test_server> not_started(std::vector<std::string> arguments) {
    return std::unique_ptr<redis_test_server>(new redis_test_server(std::move(arguments), false));
  }
  ~redis_test_server();
  redis_test_server(const redis_test_server&) = delete;
  redis_test_server& operator=(const redis_test_server&) = delete;

  // "127.0.0.1:40123".
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port()); }

  [[nodiscard]] const std::string& folder() const { return folder_; }  // where it runs
  [[nodiscard]] std::uint16_t port() const { return port_.number(); }
  [[nodiscard]] std::uint16_t cluster_port() const { return cluster_port_.number(); }
  // 0: there is none.
  [[nodiscard]] std::uint16_t tls_port() const { return has_both_ ? tls_port_.number() : secure_ ? port() : 0; }

  void kill();
  [[nodiscard]] bool is_running() const { return process_ >= 0; }
  // Starts again at the same address, with nothing of what it held.
  void start();
  // It hangs, and goes on.
  void pause() const;
  void resume() const;

  // Sends one line, "SET key value", over a connection of its own, and returns the reply without its line ends: of a
  // bulk string the text, of anything else the line. Not with TLS.
  [[nodiscard]] std::string command(const std::string& line) const;

 private:
  redis_test_server(std::vector<std::string> arguments, bool starts);

  const std::vector<std::string> arguments_;
  const bool secure_;
  const bool has_both_;  // a port with TLS, and one without
  const scratch_folder scratch_;
  const std::string folder_ = scratch_.path();
  const reserved_port port_;
  const reserved_port cluster_port_;
  const reserved_port tls_port_;
  pid_t process_ = -1;
};

}  // namespace far::testing_support
