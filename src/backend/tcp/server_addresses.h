// The addresses that the name of a server stands for, which may change while a program runs.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "backend/tcp/tcp_uri.h"
#include "base/result.h"
#include "base/spin_lock.h"

namespace far::backend {

struct socket_address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  [[nodiscard]] bool operator==(const socket_address& other) const;
};

// "127.0.0.1", "::1". Has no bytes when it is anything else.
[[nodiscard]] socket_address address_in_digits(std::string_view host, std::uint16_t port);

// The addresses of a server, the preferred one first. Blocks while a name is looked up, by the C library until the next
// call, and then by name_lookup: for opening only.
[[nodiscard]] result<std::vector<socket_address>> resolve(const tcp_endpoint& server);

// The memory of the process is far from now on, with the tables of the C library in it.
void note_far_program();

// The number of an address never changes. Thread-safe.
class server_addresses {
 public:
  explicit server_addresses(const std::vector<socket_address>& found) { static_cast<void>(replace(found)); }

  // The name stands for these now. Returns whether one of them is new. One thread at a time.
  bool replace(const std::vector<socket_address>& found);

  // Has no bytes when there is none of this number.
  [[nodiscard]] socket_address at(std::size_t number) const;

  // The next in turn of those that the name stands for; `number` itself if there is no other.
  [[nodiscard]] std::size_t after(std::size_t number) const;

  // In the child of a fork, where nobody else holds it.
  void unlock_after_fork() { lock_.open_in_child(); }

 private:
  struct entry {
    socket_address address;
    bool is_current = false;
  };

  mutable spin_lock lock_;
  // Of all lookups so far: sessions are bound to numbers. A name that moves daily for a year takes 50 KiB.
  std::vector<entry> entries_ FAR_GUARDED_BY(lock_);
};

}  // namespace far::backend
