// One device's process as the server sees it, by way of its guardian. No call but the constructor and look_up() waits
// for it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_mutex.h"
#include "server/devices/body.h"
#include "server/devices/child.h"
#include "wire/device.h"

namespace far::server {

// Collects the exit codes of processes that were told to end.
class graveyard {
 public:
  // A process will come: makes room for it, so that add() allocates nothing.
  void expect();
  void add(pid_t process) noexcept;
  // Those that have ended are gone. Never waits.
  void tidy();
  // Waits until all that were told to end have done so.
  void wait();
  // wait()
  ~graveyard();

 private:
  thread_mutex lock_;
  std::size_t expected_ FAR_GUARDED_BY(lock_) = 0;
  std::vector<pid_t> dying_ FAR_GUARDED_BY(lock_);
};

class device_process final : public device_body {
 public:
  // Starts `program`, or this program again when that is empty. Errors: the system gives no process.
  [[nodiscard]] static result<std::unique_ptr<device_process>> start(const std::string& program,
                                                                     const device_process_arguments& wanted,
                                                                     graveyard& dead);
  // Has it killed, and all that it has started.
  ~device_process() override;

  void begin(std::span<const std::byte> encoded, std::uint64_t now_ns, std::uint64_t deadline_ns) override;
  [[nodiscard]] std::span<std::byte> window() override { return window_; }
  void begin_in_window(std::span<const std::byte> encoded, std::size_t bytes, std::uint64_t now_ns,
                       std::uint64_t deadline_ns) override;
  [[nodiscard]] state advance(std::uint64_t now_ns) override;
  [[nodiscard]] std::span<const std::byte> reply() const override;
  [[nodiscard]] bool has_ended() const override;
  [[nodiscard]] bool can_be_direct() const override { return !is_broken_; }
  [[nodiscard]] bool hand_over(int socket, const handover& agreed) override;
  void end_direct() override;
  [[nodiscard]] std::optional<direct_calls> direct() const override;

  [[nodiscard]] std::uint64_t began_at_ns() const { return began_at_ns_; }

 private:
  device_process(pid_t process, int socket, std::span<std::byte> window, graveyard& dead)
      : process_(process), socket_(socket), window_(window), dead_(dead) {}
  void begin_frame(std::uint64_t now_ns, std::uint64_t deadline_ns);
  [[nodiscard]] bool send_some();
  [[nodiscard]] bool receive_some();
  [[nodiscard]] bool is_complete() const;
  [[nodiscard]] bool send_whole(std::span<const std::byte> frame, std::span<const int> descriptors);

  const pid_t process_;  // the guardian's, which ends last
  const int socket_;     // the device's
  const std::span<std::byte> window_;
  graveyard& dead_;
  std::vector<std::byte> out_;
  std::size_t sent_ = 0;
  std::vector<std::byte> in_;
  std::size_t received_ = 0;
  std::uint64_t began_at_ns_ = 0;
  std::uint64_t deadline_ns_ = 0;
  int direct_calls_ = -1;   // the file about them; -1: it has never had a connection
  bool is_broken_ = false;  // half a frame has been sent
};

}  // namespace far::server
