#include "server/devices/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "wire/bytes.h"

namespace far::server {
namespace {

constexpr std::size_t length_bytes = sizeof(std::uint32_t);
constexpr std::size_t longest_reply = length_bytes + wire::device_reply_bytes + wire::most_device_bytes;

bool would_block() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

// Nobody can change its size, and reading it never fails. -1: the system has no descriptors or memory left.
int make_direct_calls() {
  const int file = memfd_create("farheapd-device-calls", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return -1;
  std::array<std::byte, direct_calls_bytes> bytes;
  encode(direct_calls{}, bytes);
  const bool is_made = pwrite(file, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()) &&
                       fcntl(file, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0;
  if (is_made) return file;
  close(file);
  return -1;
}

// A file that two processes map. Nobody can change its size, so nobody who uses it gets a signal.
struct shared_window {
  int file = -1;
  std::span<std::byte> bytes;

  explicit shared_window(std::size_t size) {
    if (size == 0) return;
    file = memfd_create("farheapd-device-window", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const bool is_made = file >= 0 && ftruncate(file, static_cast<off_t>(size)) == 0 &&
                         fcntl(file, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0;
    void* const mapped = is_made ? mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (mapped != MAP_FAILED) bytes = {static_cast<std::byte*>(mapped), size};
  }
  ~shared_window() {
    if (file >= 0) close(file);
    if (!bytes.empty()) munmap(bytes.data(), bytes.size());
  }
  shared_window(const shared_window&) = delete;
  shared_window& operator=(const shared_window&) = delete;
};

// The first that a device receives. Nobody reads yet, so they have to fit into the socket. Returns 0 or an errno value.
int send_options(int socket, const std::string& options) {
  std::vector<std::byte> message(length_bytes);
  wire::store(static_cast<std::uint32_t>(options.size()), message.data());
  const std::span<const std::byte> bytes = std::as_bytes(std::span(options));
  message.insert(message.end(), bytes.begin(), bytes.end());
  const ssize_t sent = send(socket, message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) return errno;
  return static_cast<std::size_t>(sent) == message.size() ? 0 : EMSGSIZE;
}

}  // namespace

void graveyard::expect() {
  const lock_guard guard(lock_);
  ++expected_;
  dying_.reserve(dying_.size() + expected_);
}

void graveyard::add(pid_t process) noexcept {
  const lock_guard guard(lock_);
  --expected_;
  dying_.push_back(process);
}

void graveyard::tidy() {
  const lock_guard guard(lock_);
  std::erase_if(dying_, [](pid_t process) { return waitpid(process, nullptr, WNOHANG) != 0; });
}

void graveyard::wait() {
  const lock_guard guard(lock_);
  for (const pid_t process : dying_) {
    while (waitpid(process, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  dying_.clear();
}

graveyard::~graveyard() {
  wait();
}

result<std::unique_ptr<device_process>> device_process::start(const std::string& program,
                                                              const device_process_arguments& wanted, graveyard& dead) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return error{std::string("no socket for a device: ") + std::strerror(errno), errno};
  }
  if (const int code = send_options(ends[0], wanted.options); code != 0) {
    for (const int end : ends) close(end);
    return error{
        std::string("the options of a device could not be passed: ") + std::strerror(code) + "; make them shorter",
        code};
  }
  shared_window window(wanted.window_bytes);
  device_process_arguments given = wanted;
  given.window_bytes = window.bytes.size();
  // The same file, even if another version has been installed in its place.
  const std::string path = program.empty() ? "/proc/self/exe" : program;
  std::vector<std::string> words = given.to_arguments();
  words.insert(words.begin(), "farheapd-device");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // Only its socket and the log. Not all others are closed by exec: some come from whoever has started the server, and
  // other threads read files.
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  const bool has_window = !window.bytes.empty();
  if (has_window) posix_spawn_file_actions_adddup2(&actions, window.file, window_descriptor);
  posix_spawn_file_actions_addclosefrom_np(&actions, has_window ? window_descriptor + 1 : STDERR_FILENO + 1);
  // Of the guardian, which waits for both.
  sigset_t not_ignored;
  sigemptyset(&not_ignored);
  sigaddset(&not_ignored, SIGTERM);
  sigaddset(&not_ignored, SIGCHLD);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigdefault(&attributes, &not_ignored);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t process = -1;
  const int failure = posix_spawn(&process, path.c_str(), &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (failure != 0) {
    close(ends[0]);
    return error{std::string("no process for a device: ") + std::strerror(failure), failure};
  }
  dead.expect();
  return std::unique_ptr<device_process>(
      new device_process(process, ends[0], std::exchange(window.bytes, std::span<std::byte>()), dead));
}

device_process::~device_process() {
  close(socket_);
  if (!window_.empty()) munmap(window_.data(), window_.size());
  if (direct_calls_ >= 0) close(direct_calls_);
  kill(process_, SIGTERM);
  kill(process_, SIGCONT);  // somebody may have stopped it, and its end is waited for
  dead_.add(process_);
}

bool device_process::has_ended() const {
  siginfo_t about{};
  const auto number = static_cast<id_t>(process_);
  return waitid(P_PID, number, &about, WEXITED | WNOHANG | WNOWAIT) == 0 && about.si_pid == process_;
}

void device_process::begin(std::span<const std::byte> encoded, std::uint64_t now_ns, std::uint64_t deadline_ns) {
  out_.resize(length_bytes);
  wire::store(static_cast<std::uint32_t>(encoded.size()), out_.data());
  out_.insert(out_.end(), encoded.begin(), encoded.end());
  begin_frame(now_ns, deadline_ns);
}

void device_process::begin_in_window(std::span<const std::byte> encoded, std::size_t bytes, std::uint64_t now_ns,
                                     std::uint64_t deadline_ns) {
  out_.resize(length_bytes);
  wire::store(in_window_mark, out_.data());
  out_.insert(out_.end(), encoded.begin(), encoded.end());
  out_.resize(out_.size() + length_bytes);
  wire::store(static_cast<std::uint32_t>(bytes), out_.data() + out_.size() - length_bytes);
  begin_frame(now_ns, deadline_ns);
}

// What is to be sent is in place.
void device_process::begin_frame(std::uint64_t now_ns, std::uint64_t deadline_ns) {
  sent_ = 0;
  in_.resize(length_bytes);
  received_ = 0;
  began_at_ns_ = now_ns;
  deadline_ns_ = deadline_ns;
}

device_process::state device_process::advance(std::uint64_t now_ns) {
  if (is_broken_ || !send_some() || !receive_some()) return state::crashed;
  if (is_complete()) return state::replied;
  return now_ns >= deadline_ns_ ? state::timed_out : state::waiting;
}

bool device_process::send_some() {
  while (sent_ < out_.size()) {
    const ssize_t sent = send(socket_, out_.data() + sent_, out_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) return would_block();
    sent_ += static_cast<std::size_t>(sent);
  }
  return true;
}

// The process may have written anything into its socket, so a length is believed only up to the longest there can be.
bool device_process::receive_some() {
  while (received_ < in_.size()) {
    const ssize_t got = recv(socket_, in_.data() + received_, in_.size() - received_, MSG_DONTWAIT);
    if (got < 0) return would_block();
    if (got == 0) return false;
    received_ += static_cast<std::size_t>(got);
    if (received_ != length_bytes || in_.size() != length_bytes) continue;
    const std::size_t length = length_bytes + wire::load<std::uint32_t>(in_.data());
    if (length < length_bytes + wire::device_reply_bytes || length > longest_reply) return false;
    in_.resize(length);
  }
  return true;
}

// A frame of a few bytes fits into the socket's buffer whole, because nothing else is in it between two calls.
bool device_process::send_whole(std::span<const std::byte> frame, std::span<const int> descriptors) {
  iovec chunk{const_cast<std::byte*>(frame.data()), frame.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(most_handed * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &chunk;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(head), descriptors.data(), descriptors.size_bytes());
  }
  const ssize_t sent = sendmsg(socket_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  is_broken_ = sent > 0 && static_cast<std::size_t>(sent) != frame.size();
  return sent == static_cast<ssize_t>(frame.size());
}

bool device_process::hand_over(int socket, const handover& agreed) {
  if (direct_calls_ < 0) direct_calls_ = make_direct_calls();
  if (direct_calls_ < 0) return false;
  std::array<std::byte, length_bytes + sizeof agreed> frame;
  wire::store(hand_over_mark, frame.data());
  std::memcpy(frame.data() + length_bytes, &agreed, sizeof agreed);
  const std::array<int, most_handed> given{socket, direct_calls_};
  return send_whole(frame, given);
}

void device_process::end_direct() {
  std::array<std::byte, length_bytes> frame;
  wire::store(end_direct_mark, frame.data());
  static_cast<void>(send_whole(frame, {}));
}

std::optional<direct_calls> device_process::direct() const {
  std::array<std::byte, direct_calls_bytes> bytes;
  if (direct_calls_ < 0 || pread(direct_calls_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return std::nullopt;
  }
  return decode_direct_calls(bytes);
}

bool device_process::is_complete() const {
  return in_.size() > length_bytes && received_ == in_.size();
}

std::span<const std::byte> device_process::reply() const {
  FAR_CHECK(is_complete(), "a reply is taken before it has come");
  return std::span(in_).subspan(length_bytes);
}

}  // namespace far::server
