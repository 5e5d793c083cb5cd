#include "server/devices/child.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <span>
#include <utility>

#include "base/sanitizers.h"
#include "base/units.h"
#include "device/plugin_runner.h"
#include "platform/clock.h"
#include "server/devices/direct_client.h"
#include "server/devices/guardian.h"
#include "wire/bytes.h"
#include "wire/device.h"

namespace far::server {
namespace {

constexpr const char* marker = "--as-device";
constexpr int server_socket = STDIN_FILENO;
constexpr std::size_t length_bytes = sizeof(std::uint32_t);

constexpr bool is_sanitized =
    has_address_sanitizer || has_thread_sanitizer;  // then address space is no measure of memory

// With the descriptors that come with the first byte. False: the server has closed it.
bool receive_all(std::span<std::byte> into, std::vector<int>* descriptors = nullptr) {
  while (!into.empty()) {
    iovec chunk{into.data(), into.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(most_handed * sizeof(int))> control;
    msghdr message{};
    message.msg_iov = &chunk;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = recvmsg(server_socket, &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
      if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
      for (std::size_t at = 0; CMSG_LEN(at + sizeof(int)) <= head->cmsg_len; at += sizeof(int)) {
        int one = -1;
        std::memcpy(&one, CMSG_DATA(head) + at, sizeof one);
        if (descriptors != nullptr) descriptors->push_back(one);
        if (descriptors == nullptr) close(one);
      }
    }
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

// Memory that it may take is counted from here on. Descriptors it gets hardly any.
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

// Answers a change that comes again as it did the first time. The server does so, too, but sees only the calls that
// come by it. A child that comes out of a call of a plugin that forks ends there: its parent answers, and a second
// answer would be taken for that of the next call.
class numbered_runner {
 public:
  numbered_runner(const device_parts::plugin_code& plugin, const std::string& options) : runner_(plugin, options) {
    bytes_.reserve(wire::most_device_bytes);
  }

  [[nodiscard]] wire::device_reply run(const wire::device_request& asked) {
    if (!wire::changes_device(asked.op)) return run_once(asked);
    if (asked.call < changed_by_) return {wire::device_outcome::repeated, {}};
    if (asked.call > changed_by_) {
      const wire::device_reply said = run_once(asked);
      changed_by_ = asked.call;
      outcome_ = said.outcome;
      bytes_.assign(said.bytes.begin(), said.bytes.end());
    }
    return {outcome_, bytes_};
  }

 private:
  [[nodiscard]] wire::device_reply run_once(const wire::device_request& asked) {
    const wire::device_reply said = runner_.run(asked);
    if (getpid() != process_) _exit(1);
    return said;
  }

  const pid_t process_ = getpid();
  device_parts::plugin_runner runner_;
  std::uint64_t changed_by_ = 0;
  wire::device_outcome outcome_ = wire::device_outcome::ok;
  std::vector<std::byte> bytes_;
};

// A page of a file, between two that nobody can write to. Its addresses are taken before the device can take them.
class guarded_page {
 public:
  guarded_page()
      : all_(static_cast<std::byte*>(
            mmap(nullptr, 3 * page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {}
  guarded_page(const guarded_page&) = delete;
  guarded_page& operator=(const guarded_page&) = delete;

  // The first page of this file, which the mapping keeps. False: the system gives no memory.
  [[nodiscard]] bool map(int file) const {
    return all_ != MAP_FAILED &&
           mmap(all_ + page_bytes, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
  }
  [[nodiscard]] std::span<std::byte> bytes() const { return {all_ + page_bytes, page_bytes}; }

 private:
  std::byte* const all_;
};

// The calls that come by the server, and those of a connection that it has handed over.
class device_service {
 public:
  // `runner`: nullptr if there is no plugin; then every request is told why.
  device_service(numbered_runner* runner, std::string why, std::span<const std::byte> window)
      : runner_(runner),
        why_(std::move(why)),
        window_(window),
        space_(wire::header_bytes + wire::maximum_payload_bytes) {
    handed_.reserve(most_handed);
  }

  int run() {
    while (!code_) client_ ? serve_both() : serve_server();
    return *code_;
  }

 private:
  void serve_both();
  void serve_server();
  void serve_client();
  void take_over();
  void serve_from_window();
  void answer(const wire::device_request& asked);
  void note_calls() const;
  [[nodiscard]] static std::uint64_t now() { return platform::monotonic_clock().now_ns(); }

  numbered_runner* const runner_;
  const std::string why_;
  const std::span<const std::byte> window_;
  std::vector<std::byte> space_;  // for one message, from wherever it comes
  std::optional<int> code_;       // the process ends with it
  std::vector<int> handed_;       // descriptors
  handover agreed_;
  std::optional<direct_client> client_;
  direct_calls noted_;
  const guarded_page notes_;
};

// Sleeps first: the next call is never there yet, and to find that out costs as much as a tenth of a call.
void device_service::serve_both() {
  using step = direct_client::step;
  std::array<pollfd, 2> both{{{server_socket, POLLIN, 0}, {client_->socket(), POLLIN, 0}}};
  static_cast<void>(poll(both.data(), both.size(), -1));
  if (both[1].revents != 0) {
    const step got = client_->receive();
    if (got == step::asked) serve_client();
    if (got == step::over) client_.reset();
  }
  if (both[0].revents != 0) serve_server();
}

// The call has ended before its reply is on the way: a client that does not read is no fault of the device.
void device_service::serve_client() {
  const wire::device_request& asked = client_->asked();
  const std::uint64_t began_ns = now();
  std::uint64_t longest_ns = agreed_.longest_ns;
  if (asked.deadline_ms > 0) longest_ns = std::min(longest_ns, std::uint64_t{asked.deadline_ms} * 1'000'000);
  noted_.call = asked.call;
  noted_.until_ns = began_ns + longest_ns;
  note_calls();
  const wire::device_reply said = runner_->run(asked);
  bool is_connected = client_->answer(said);
  const std::uint64_t ended_ns = now();
  noted_.call = 0;
  ++noted_.ended[static_cast<std::size_t>(said.outcome)];
  noted_.took_ns += ended_ns - began_ns;
  note_calls();
  while (is_connected && !client_->is_sent()) {
    std::array<pollfd, 2> both{{{server_socket, POLLIN, 0}, {client_->socket(), POLLOUT, 0}}};
    static_cast<void>(poll(both.data(), both.size(), -1));
    // A client that does not read its answer, and asks for it by the server.
    is_connected = both[0].revents == 0 && client_->send_more();
  }
  if (!is_connected) client_.reset();
}

void device_service::serve_server() {
  std::array<std::byte, length_bytes> length;
  handed_.clear();
  code_ = 0;  // unless the server is there
  if (!receive_all(length, &handed_)) return;
  code_ = 1;  // unless what it says is understood
  const auto bytes = wire::load<std::uint32_t>(length.data());
  if (bytes == hand_over_mark) return take_over();
  if (bytes == in_window_mark) return serve_from_window();
  if (client_ && (bytes == end_direct_mark || !client_->is_between())) client_.reset();
  if (bytes == end_direct_mark) return code_.reset();
  if (bytes > wire::device_request_bytes + wire::most_device_bytes) return;
  const std::span<std::byte> request = std::span(space_).first(bytes);
  if (!receive_all(request)) return;
  const std::optional<wire::device_request> asked = wire::decode_device_request(request);
  if (asked) answer(*asked);
}

void device_service::serve_from_window() {
  std::array<std::byte, wire::device_request_bytes + length_bytes> bytes;
  if (!receive_all(bytes)) return;
  std::optional<wire::device_request> asked =
      wire::decode_device_request(std::span(bytes).first<wire::device_request_bytes>());
  const auto size = wire::load<std::uint32_t>(bytes.data() + wire::device_request_bytes);
  if (!asked || size > window_.size()) return;
  asked->bytes = window_.first(size);
  answer(*asked);
}

void device_service::answer(const wire::device_request& asked) {
  const bool is_sent = runner_ != nullptr ? reply(runner_->run(asked))
                                          : reply({wire::device_outcome::refused, std::as_bytes(std::span(why_))});
  if (is_sent) code_.reset();
}

void device_service::take_over() {
  std::array<std::byte, sizeof agreed_> bytes;
  if (!receive_all(bytes)) return;
  code_.reset();
  client_.reset();
  if (handed_.size() == most_handed && runner_ != nullptr && notes_.map(handed_[1])) {
    std::memcpy(&agreed_, bytes.data(), sizeof agreed_);
    client_.emplace(std::exchange(handed_[0], -1), agreed_, space_);
    note_calls();
    if (!client_->greet() || !client_->is_sent()) client_.reset();
  }
  // A device that has opened too many files gets less than it was given.
  for (const int left : handed_) {
    if (left >= 0) close(left);
  }
}

void device_service::note_calls() const {
  encode(noted_, notes_.bytes().first<direct_calls_bytes>());
}

// Only to be read. Empty: there is none, or the system gives no memory; then no request comes through it.
std::span<const std::byte> map_window(std::size_t bytes) {
  if (bytes == 0) return {};
  void* const mapped = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, window_descriptor, 0);
  close(window_descriptor);
  if (mapped == MAP_FAILED) return {};
  return {static_cast<const std::byte*>(mapped), bytes};
}

std::optional<std::string> receive_options() {
  std::array<std::byte, length_bytes> length;
  if (!receive_all(length)) return std::nullopt;
  std::string options(wire::load<std::uint32_t>(length.data()), '\0');
  if (!receive_all(std::as_writable_bytes(std::span(options)))) return std::nullopt;
  return options;
}

std::uint64_t number_in(const std::string& text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

std::vector<std::string> device_process_arguments::to_arguments() const {
  return {marker, std::to_string(getpid()), file, std::to_string(room_bytes), std::to_string(window_bytes)};
}

std::optional<int> run_as_device(const std::vector<std::string>& arguments) {
  if (arguments.size() != 5 || arguments[0] != marker) return std::nullopt;
  if (!become_guarded(arguments[1])) return 1;
  const std::optional<std::string> options = receive_options();
  if (!options) return 1;
  const std::span<const std::byte> window = map_window(number_in(arguments[4]));
  const result<device_parts::plugin_code> plugin = device_parts::load_plugin(arguments[2]);
  std::optional<numbered_runner> runner;
  if (plugin) runner.emplace(plugin.value(), *options);
  device_service service(runner ? &*runner : nullptr, plugin ? "" : plugin.error().message, window);
  confine(number_in(arguments[3]));
  const int code = service.run();
  // The destructors of the plugin's device are not waited for: whoever wants them to run asks for destruct.
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace far::server
