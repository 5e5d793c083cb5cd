// A memory server of a test, in a process of its own that ends with the thread that has started it, however that ends.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/reserved_port.h"

namespace far::testing_support {

class device_server {
 public:
  // Starts farheapd with these options and waits until it listens: on a port that is nobody else's as long as this
  // lives, or on the port of one that has ended.
  explicit device_server(std::vector<std::string> options, std::uint16_t port = 0);
  ~device_server();
  device_server(const device_server&) = delete;
  device_server& operator=(const device_server&) = delete;

  [[nodiscard]] std::string host() const { return "127.0.0.1:" + std::to_string(port()); }
  [[nodiscard]] std::uint16_t port() const { return port_.number(); }
  [[nodiscard]] pid_t process() const { return process_; }
  // The processes of its devices.
  [[nodiscard]] std::vector<pid_t> devices() const;
  [[nodiscard]] std::size_t children() const { return devices().size(); }
  // As if the machine were away: some devices answer without the server.
  void stop_with_devices();
  void continue_with_devices();
  // Sends a signal. After SIGKILL, it is gone; after SIGSTOP, all its threads have stopped.
  void signal(int number);
  // Waits for its end; returns its exit code, or -1 after a signal.
  int wait();

 private:
  const reserved_port port_;
  pid_t process_ = -1;
};

// Passes connections on to a server, and cuts them again and again.
class cutting_proxy {
 public:
  explicit cutting_proxy(std::uint16_t server_port);
  ~cutting_proxy();
  cutting_proxy(const cutting_proxy&) = delete;
  cutting_proxy& operator=(const cutting_proxy&) = delete;

  [[nodiscard]] std::string host() const { return "127.0.0.1:" + std::to_string(port_); }
  // From now on connections live for this long only; 0: for good.
  void cut_after(std::chrono::milliseconds lifetime) { lifetime_ms_.store(static_cast<int>(lifetime.count())); }
  [[nodiscard]] unsigned cuts() const { return cuts_.load(); }

 private:
  void run();
  void pass_on(int client);

  const std::uint16_t server_port_;
  std::uint16_t port_ = 0;
  int listener_ = -1;
  std::atomic<int> lifetime_ms_{0};
  std::atomic<unsigned> cuts_{0};
  std::atomic<bool> ends_{false};
  std::vector<std::thread> passing_;  // the thread's own
  std::thread thread_;
};

}  // namespace far::testing_support
