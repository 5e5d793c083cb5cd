// For tests: a server over shared memory that welcomes clients as it should, and then says what the test wants.
#pragma once

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "server/shm_memory.h"
#include "server/shm_rings.h"
#include "tests/support/scratch_folder.h"
#include "wire/rendezvous.h"
#include "wire/server_handshake.h"

namespace far::server {

class shm_untrusted_server {
 public:
  // One connection, of which the test moves the rings.
  struct peer {
    int socket = -1;
    shm_rings rings;
    wire::ring_file* file = nullptr;  // the same memory once more, to write anything into

    void reply(const wire::ring_reply& said) {
      if (rings.replies.room() > 0) rings.replies.put(std::bit_cast<wire::ring_entry>(said));
      if (rings.replies.publish()) wire::ring_bell(socket);
    }
    // The next request; nothing: there is none.
    std::optional<wire::ring_request> take() {
      wire::ring_entry entry;
      if (!rings.requests.take(entry)) return std::nullopt;
      rings.requests.release();
      return std::bit_cast<wire::ring_request>(entry);
    }
  };

  explicit shm_untrusted_server(std::uint64_t blocks) {
    FAR_CHECK(memory_.create(blocks).ok(), "memory to lend");
    result<int> listening = wire::listen_at(path(), 0600);
    FAR_CHECK(listening.ok(), "a socket to listen at");
    listener_ = listening.value();
  }
  ~shm_untrusted_server() {
    for (const auto& one : peers_) {
      munmap(one->file, wire::ring_file_bytes);
      close(one->socket);
    }
    close(listener_);
  }
  shm_untrusted_server(const shm_untrusted_server&) = delete;
  shm_untrusted_server& operator=(const shm_untrusted_server&) = delete;

  [[nodiscard]] std::string path() const { return folder_.path() + "/server.sock"; }

  // Welcomes the client that `connects` makes; grants all that it asks for meanwhile. Returns the connection.
  template <typename Connects>
  peer& welcome(Connects connects) {
    std::thread serving([this] { serve(); });
    connects();
    is_connected_ = true;
    serving.join();
    is_connected_ = false;
    return *peers_.back();
  }

 private:
  static constexpr int patience_ms = 120'000;

  void serve() {
    wait_for(listener_);
    auto fresh = std::make_unique<peer>();
    fresh->socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    FAR_CHECK(fresh->socket >= 0 && fresh->rings.create().ok(), "a connection");
    void* const mapped =
        mmap(nullptr, wire::ring_file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fresh->rings.descriptor(), 0);
    FAR_CHECK(mapped != MAP_FAILED, "its rings once more");
    fresh->file = static_cast<wire::ring_file*>(mapped);
    wire::server_handshake handshake;
    FAR_CHECK(next_step(*fresh, handshake) == wire::server_handshake::step::greeted, "a hello");
    handshake.challenge(false, {});
    FAR_CHECK(wire::send_packet(fresh->socket, handshake.to_send()) == 0, "a challenge");
    FAR_CHECK(next_step(*fresh, handshake) == wire::server_handshake::step::proven, "a proof");
    handshake.welcome({.session = {std::byte{1}}, .maximum_outstanding = wire::ring_length});
    const std::array<int, wire::maximum_descriptors> shared{memory_.descriptor(), fresh->rings.descriptor()};
    FAR_CHECK(wire::send_packet(fresh->socket, handshake.to_send(), shared) == 0, "a welcome");
    while (!is_connected_) {
      if (const std::optional<wire::ring_request> asked = fresh->take()) {
        fresh->reply({.cookie = asked->cookie, .values = {asked->count}});
      }
      std::this_thread::yield();
    }
    peers_.push_back(std::move(fresh));
  }

  static wire::server_handshake::step next_step(const peer& from, wire::server_handshake& handshake) {
    std::array<std::byte, wire::maximum_packet_bytes> message;
    wire::packet got;
    wait_for(from.socket);
    FAR_CHECK(wire::receive_packet(from.socket, message, got) == 0, "a message of the handshake");
    const auto read = wire::unpack_message(std::span(message).first(got.length_bytes));
    return read ? handshake.take(read->head, read->payload) : wire::server_handshake::step::malformed;
  }

  static void wait_for(int descriptor) {
    pollfd watched{.fd = descriptor, .events = POLLIN, .revents = 0};
    FAR_CHECK(poll(&watched, 1, patience_ms) == 1, "the client says something");
  }

  const scratch_folder folder_;
  shm_memory memory_;
  int listener_ = -1;
  std::atomic<bool> is_connected_{false};
  std::vector<std::unique_ptr<peer>> peers_;
};

}  // namespace far::server
