#include "server/devices/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <span>

#include "base/units.h"
#include "device/plugin_runner.h"
#include "wire/bytes.h"
#include "wire/device.h"

namespace far::server {
namespace {

constexpr const char* marker = "--as-device";
constexpr int server_socket = STDIN_FILENO;
constexpr std::size_t length_bytes = sizeof(std::uint32_t);

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool is_sanitized = true;  // then address space is no measure of memory
#else
constexpr bool is_sanitized = false;
#endif

bool receive_all(std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t got = recv(server_socket, into.data(), into.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    into = into.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

bool send_all(std::span<const std::byte> from) {
  while (!from.empty()) {
    const ssize_t sent = send(server_socket, from.data(), from.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    from = from.subspan(static_cast<std::size_t>(sent));
  }
  return true;
}

bool reply(const wire::device_reply& said) {
  std::array<std::byte, length_bytes + wire::device_reply_bytes> head;
  wire::store(static_cast<std::uint32_t>(wire::device_reply_bytes + said.bytes.size()), head.data());
  wire::encode(said, std::span(head).subspan<length_bytes>());
  return send_all(head) && send_all(said.bytes);
}

std::uint64_t address_space_bytes() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * page_bytes;
}

// Memory that it may take is counted from here on. Descriptors, and children that could outlive it, it gets hardly any.
void confine(std::uint64_t room_bytes) {
  const auto limit = [](auto what, std::uint64_t most) {
    const rlimit both{most, most};
    static_cast<void>(setrlimit(what, &both));
  };
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_NOFILE, 64);
  if (!is_sanitized) limit(RLIMIT_AS, address_space_bytes() + room_bytes);
  static_cast<void>(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  // If the machine runs out of memory, devices go before the server.
  std::ofstream("/proc/self/oom_score_adj") << 1000;
}

// Without a plugin it says to every request why.
int serve(const result<const far_device_functions*>& plugin, device_parts::plugin_runner* runner,
          std::span<std::byte> request) {
  std::array<std::byte, length_bytes> length;
  while (receive_all(length)) {
    const std::size_t bytes = wire::load<std::uint32_t>(length.data());
    if (bytes > request.size() || !receive_all(request.first(bytes))) return 1;
    const std::optional<wire::device_request> asked = wire::decode_device_request(request.first(bytes));
    if (!asked) return 1;
    const bool is_sent = runner != nullptr
                             ? reply(runner->run(*asked))
                             : reply({wire::device_outcome::refused, std::as_bytes(std::span(plugin.error().message))});
    if (!is_sent) return 1;
  }
  return 0;
}

}  // namespace

std::vector<std::string> device_process_arguments::to_arguments() const {
  return {marker, std::to_string(getpid()), file, options, std::to_string(room_bytes)};
}

std::optional<int> run_as_device(const std::vector<std::string>& arguments) {
  if (arguments.size() != 5 || arguments[0] != marker) return std::nullopt;
  // It must not outlive the server, even if it never looks at its socket again.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (std::to_string(getppid()) != arguments[1]) return 1;
  std::uint64_t room_bytes = 0;
  std::from_chars(arguments[4].data(), arguments[4].data() + arguments[4].size(), room_bytes);
  const result<const far_device_functions*> plugin = device_parts::load_plugin(arguments[2]);
  std::vector<std::byte> request(wire::device_request_bytes + wire::most_device_bytes);
  std::optional<device_parts::plugin_runner> runner;
  if (plugin) runner.emplace(*plugin.value(), arguments[3]);
  confine(room_bytes);
  const int code = serve(plugin, runner ? &*runner : nullptr, request);
  // The destructors of the plugin's device are not waited for: whoever wants them to run asks for destruct.
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace far::server
