// `farheapd --shm NAME`: lends memory of the store to clients on this machine, which map it.
//
// One thread serves all of them. It spins over their rings while there is something to do, and a little longer, then
// sleeps until a client rings. It grants and takes back memory, and copies bytes for clients that ask for it; usually
// clients copy themselves.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "server/counters.h"
#include "server/quiescent_states.h"
#include "server/shm_leftovers.h"
#include "server/shm_peer.h"
#include "server/shm_socket.h"

namespace far::server {

struct shm_service_options {
  std::string name;  // of the server; or, with a '/', the path of its socket
  shm_settings settings;
  // How long the thread polls the rings before it sleeps.
  std::uint64_t spin_ns = 50'000;
};

class shm_service {
 public:
  // Listens, and starts the thread. Requires: the objects that `settings` refers to outlive the service. Errors: the
  // name is in use, there is no directory for the socket. They say what to do.
  [[nodiscard]] static result<std::unique_ptr<shm_service>> start(const shm_service_options& chosen);
  // Ends all connections. Clients keep the memory that they have.
  ~shm_service();
  shm_service(const shm_service&) = delete;
  shm_service& operator=(const shm_service&) = delete;

  // Where it listens.
  [[nodiscard]] const std::string& path() const { return socket_->path(); }
  [[nodiscard]] const loop_counters& counters() const { return counters_; }

 private:
  shm_service(const shm_service_options& chosen, std::unique_ptr<shm_socket> socket);
  [[nodiscard]] result<void> prepare();
  void run();
  // Until somebody rings, or that time.
  void sleep(quiescent_states::reader& reading, std::uint64_t due_at_ns);
  void take_events(std::uint64_t timeout_ns);
  void accept_some(std::uint64_t current_ns);
  void make_room_for_newcomers();
  void listen(bool wanted);
  void tick(std::uint64_t current_ns);
  void remove_ended(std::uint64_t current_ns);
  void revoke_session(const shm_peer& revoked);

  const shm_service_options chosen_;
  std::unique_ptr<shm_socket> socket_;
  loop_counters counters_;
  int events_ = -1;
  int waker_ = -1;
  std::atomic<bool> stopping_{false};
  std::thread thread_;

  // The thread's:
  std::size_t served_ = 0;  // peers after their handshake
  std::vector<std::unique_ptr<shm_peer>> peers_;
  shm_leftovers left_over_;
  std::uint64_t next_tick_ns_ = 0;
  std::uint64_t looked_at_sockets_ns_ = 0;
  bool listening_ = false;
};

}  // namespace far::server
