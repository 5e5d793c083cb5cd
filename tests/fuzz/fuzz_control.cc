// A peer of the control socket that sends anything at all as a request: each gets one line, which says ok or an error.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/units.h"
#include "control/control.h"
#include "fuzz/fuzz_target.h"

namespace far::fuzz {

namespace {

std::unique_ptr<control::control_server> open_server() {
  set_log_level(log_level::error);
  control::control_callbacks callbacks;
  callbacks.resize = [](void*, std::uint64_t bytes) -> result<void> {
    if (bytes < page_bytes) return error{"too little\nand more", EINVAL};
    return {};
  };
  callbacks.stats = [](void*) { return engine::statistics{}; };
  callbacks.add_server = [](void*, std::string_view server) -> result<void> {
    return error{"no '" + std::string(server) + "'", EINVAL};
  };
  callbacks.remove_server = [](void*, std::string_view server, removal) -> result<std::uint64_t> {
    return server.size();
  };
  std::unique_ptr<control::control_server> opened = control::control_server::open(callbacks);
  FUZZ_EXPECT(opened->listens());
  return opened;
}

int connect_to_self() {
  const int peer = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const int length = std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "farheap-%d", getpid());
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));
  FUZZ_EXPECT(connect(peer, reinterpret_cast<const sockaddr*>(&address), bytes) == 0);
  return peer;
}

void run(std::span<const std::byte> request) {
  static const std::unique_ptr<control::control_server> server = open_server();
  const int peer = connect_to_self();
  FUZZ_EXPECT(send(peer, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size()));
  if (request.empty()) shutdown(peer, SHUT_WR);
  FUZZ_EXPECT(server->step(1000));
  std::array<char, control::control_reply_bytes + 1> reply{};
  const ssize_t got = recv(peer, reply.data(), reply.size(), MSG_DONTWAIT);
  close(peer);
  if (request.empty()) return;
  FUZZ_EXPECT(got > 0 && got <= static_cast<ssize_t>(control::control_reply_bytes));
  const std::string_view said(reply.data(), static_cast<std::size_t>(got));
  FUZZ_EXPECT(said.starts_with("farheap/1 ok") || said.starts_with("farheap/1 error "));
  FUZZ_EXPECT(said.ends_with('\n') && std::ranges::count(said, '\n') == 1);
}

}  // namespace

std::vector<byte_string> seeds() {
  std::vector<byte_string> all;
  for (const std::string& text :
       {std::string("farheap/1 stats\n"), std::string("farheap/1 resize 1073741824\n"),
        std::string("farheap/1 resize 1\n"), std::string("farheap/1 add-server tcp://a:1?x=y\n"),
        std::string("farheap/1 remove-server tcp://a:1\n"), std::string("farheap/1 job\n"),
        std::string("farheap/1 job 0123456789abcdef\n"), std::string("farheap/2 stats\n"),
        std::string(control::control_request_bytes + 1, 'x')}) {
    all.push_back(recipe().text(text).bytes());
  }
  return all;
}

}  // namespace far::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  far::fuzz::run(std::as_bytes(std::span(data, std::min(bytes, std::size_t{4096}))));
  return 0;
}
