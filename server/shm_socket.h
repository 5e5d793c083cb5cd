// The socket where clients find `farheapd --shm NAME`.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"

namespace far::server {

// It lies in a directory of mode 0700, or at the path that was requested. A lock beside it distinguishes a running
// server from a leftover socket.
class shm_socket {
 public:
  // `open_to_all`: every user may open the socket, and a token decides; otherwise only its owner and root may. Errors:
  // another server has the name; there is no directory for it.
  [[nodiscard]] static result<std::unique_ptr<shm_socket>> listen(const std::string& name, bool open_to_all);
  // Removes it.
  ~shm_socket();
  shm_socket(const shm_socket&) = delete;
  shm_socket& operator=(const shm_socket&) = delete;

  [[nodiscard]] int descriptor() const { return listener_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  shm_socket() = default;
  [[nodiscard]] result<void> listen_at(const std::string& path, bool open_to_all);

  std::string path_;
  int lock_ = -1;
  int listener_ = -1;
};

}  // namespace far::server
