#include "control/control.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "control/crew.h"
#include "control/statistics_json.h"
#include "platform/own_descriptors.h"
#include "platform/wait_for_events.h"
#include "wire/rendezvous.h"

namespace far::control {
namespace {

constexpr std::string_view version_prefix = "farheap/1 ";
constexpr int stranger_deadline_ms = 50;
constexpr int client_deadline_ms = 5000;
constexpr int job_deadline_ms = 1000;               // for a program that starts and asks
constexpr int patient_client_deadline_ms = 30'000;  // for a client that waits for a connection, or a far tier

// How many names a process may try. A name is free again when nobody holds it any more, so few are ever needed.
constexpr int control_names = 8;

constexpr std::string_view job_request = "farheap/1 job\n";
constexpr std::string_view job_reply = "farheap/1 ok\n";
constexpr std::string_view resize_prefix = "resize ";
constexpr std::string_view add_server_prefix = "add-server ";
constexpr std::string_view remove_server_prefix = "remove-server ";
constexpr std::string_view removal_prefix = "removal ";
constexpr std::string_view bring_request = "farheap/1 bring ";
constexpr std::string_view again_reply = "farheap/1 again\n";

struct abstract_name {
  sockaddr_un address{};
  socklen_t length = 0;
};

// The `rank`th name of a process: "farheap-PID", "farheap-PID.1", "farheap-PID.2", ...
abstract_name name_of(pid_t pid, int rank) {
  abstract_name name;
  name.address.sun_family = AF_UNIX;
  char* const text = name.address.sun_path + 1;
  const std::size_t room = sizeof name.address.sun_path - 1;
  const int used = rank == 0 ? std::snprintf(text, room, "farheap-%d", static_cast<int>(pid))
                             : std::snprintf(text, room, "farheap-%d.%d", static_cast<int>(pid), rank);
  name.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(used));
  return name;
}

int open_socket() {
  return platform::own_descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

std::int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

constexpr std::int64_t ns_in_ms = 1'000'000;

// Waits until `descriptor` is ready for `events`. False at the deadline, or when `waker` (-1: none) becomes readable.
bool wait_ready(int descriptor, short events, int waker, std::int64_t deadline_ms) {
  while (true) {
    const std::int64_t left = deadline_ms - now_ms();
    if (left <= 0) return false;
    pollfd watched[2] = {{descriptor, events, 0}, {waker, POLLIN, 0}};
    const int ready = platform::wait_for_events(watched, left * ns_in_ms);
    if (ready < 0 && errno != EINTR) return false;
    if (ready <= 0) continue;
    if (watched[1].revents != 0) return false;
    if (watched[0].revents != 0) return true;
  }
}

// One message; its length, or -1 with errno set. A longer one than `size` fails with EMSGSIZE.
ssize_t receive(int socket, char* text, std::size_t size, int waker, std::int64_t deadline_ms) {
  while (true) {
    const ssize_t got = recv(socket, text, size, MSG_DONTWAIT | MSG_TRUNC);
    if (got > static_cast<ssize_t>(size)) return errno = EMSGSIZE, -1;
    if (got >= 0) return got;
    if (errno != EAGAIN && errno != EINTR) return -1;
    if (!wait_ready(socket, POLLIN, waker, deadline_ms)) return errno = ETIMEDOUT, -1;
  }
}

bool transmit(int socket, const char* text, std::size_t size, int waker, std::int64_t deadline_ms) {
  while (true) {
    const ssize_t sent = send(socket, text, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return true;  // a message of SOCK_SEQPACKET goes whole or not at all
    if (errno != EAGAIN && errno != EINTR) return false;
    if (!wait_ready(socket, POLLOUT, waker, deadline_ms)) return errno = ETIMEDOUT, false;
  }
}

result<ucred> credentials_of(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return error{std::string("the process at the other end cannot be identified: ") + std::strerror(errno), errno};
  }
  return peer;
}

// Binds `listener` to the first name of this process that is free, and listens. Returns 0 or an errno value. A name is
// held by a child that was forked and by a raw system call when its parent calls exec, or by the process with this
// number in another container that shares the network.
int take_a_name(int listener) {
  const pid_t pid = getpid();
  for (int rank = 0; rank < control_names; ++rank) {
    const abstract_name name = name_of(pid, rank);
    if (bind(listener, reinterpret_cast<const sockaddr*>(&name.address), name.length) == 0) {
      return listen(listener, 8) == 0 ? 0 : errno;
    }
    if (errno != EADDRINUSE) return errno;
  }
  return EADDRINUSE;
}

std::size_t reply_error(char* reply, const char* message) {
  const int length = std::snprintf(reply, control_reply_bytes, "farheap/1 error %.1000s\n", message);
  // A reply is one line, whatever the message contains.
  for (int i = 0; i < length - 1; ++i) {
    if (reply[i] == '\n') reply[i] = ' ';
  }
  return static_cast<std::size_t>(length);
}

std::size_t reply_done(char* reply, const result<void>& done) {
  if (!done) return reply_error(reply, done.error().message.c_str());
  std::memcpy(reply, "farheap/1 ok\n", 13);
  return 13;
}

struct wanted_memory {
  std::uintptr_t address = 0;
  std::size_t bytes = 0;
  bool to_write = false;
};

// "ADDRESS BYTES read" or "ADDRESS BYTES write".
std::optional<wanted_memory> read_wanted(std::string_view text) {
  wanted_memory wanted;
  const char* const end = text.data() + text.size();
  const auto [space, no_address] = std::from_chars(text.data(), end, wanted.address);
  if (no_address != std::errc{} || space == end || *space != ' ') return std::nullopt;
  const auto [rest, no_bytes] = std::from_chars(space + 1, end, wanted.bytes);
  const std::string_view use(rest, static_cast<std::size_t>(end - rest));
  wanted.to_write = use == " write";
  const bool is_right = no_bytes == std::errc{} && wanted.bytes > 0 && wanted.bytes <= control_brought_bytes &&
                        wanted.address + wanted.bytes > wanted.address && (wanted.to_write || use == " read");
  return is_right ? std::optional(wanted) : std::nullopt;
}

std::size_t answer_bring(const control_callbacks& callbacks, std::string_view request, char* reply) {
  request.remove_prefix(bring_request.size());
  const std::optional<wanted_memory> wanted =
      request.ends_with('\n') ? read_wanted(request.substr(0, request.size() - 1)) : std::nullopt;
  if (!wanted) return reply_error(reply, "bring takes an address, a number of bytes, and read or write");
  return reply_done(reply, callbacks.bring(callbacks.context, wanted->address, wanted->bytes, wanted->to_write));
}

class open_descriptor {
 public:
  explicit open_descriptor(int number) : number_(number) {}
  ~open_descriptor() { platform::close_own_descriptor(number_); }
  open_descriptor(const open_descriptor&) = delete;
  open_descriptor& operator=(const open_descriptor&) = delete;
  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] int release() {
    const int number = number_;
    number_ = -1;
    return number;
  }

 private:
  int number_;
};

// Connects to the `rank`th name of a process. Returns 0 or an errno value.
int connect_to_name(int socket, pid_t pid, int rank, std::int64_t deadline_ms) {
  const abstract_name name = name_of(pid, rank);
  while (connect(socket, reinterpret_cast<const sockaddr*>(&name.address), name.length) != 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN || now_ms() >= deadline_ms) return errno;
    poll(nullptr, 0, 10);  // others wait in line already
  }
  return 0;
}

// A connection to the runtime of process `pid`. Anybody may take the names of a process; only the process itself is
// believed. If it has several names, the last one counts: the others belong to the programs before exec, and are held
// by a child that does not answer.
result<std::unique_ptr<open_descriptor>> connect_to(pid_t pid, std::int64_t deadline_ms) {
  std::unique_ptr<open_descriptor> found;
  int failure = ECONNREFUSED;
  pid_t impostor = -1;
  for (int rank = 0; rank < control_names; ++rank) {
    auto socket = std::make_unique<open_descriptor>(open_socket());
    if (socket->number() < 0) return error{std::string("cannot open a socket: ") + std::strerror(errno), errno};
    const int refused = connect_to_name(socket->number(), pid, rank, deadline_ms);
    if (refused != 0) {
      if (refused != ECONNREFUSED) failure = refused;
      continue;
    }
    const result<ucred> rights = credentials_of(socket->number());
    if (!rights) return rights.error();
    if (rights.value().pid == pid) {
      found = std::move(socket);
    } else if (impostor < 0) {
      impostor = rights.value().pid;
    }
  }
  if (found) return found;
  const std::string process = "process " + std::to_string(pid);
  if (impostor < 0) {
    return error{process + " does not answer (" + std::strerror(failure) +
                     "); is it running under `farheap run`, or has it a far::runtime, and is it in this container?",
                 failure};
  }
  return error{process + " does not listen under its name; process " + std::to_string(impostor) +
                   "; if that is its child, ask again when the child has ended",
               EPERM};
}

}  // namespace

static_assert(control_request_bytes <= crew::most_request_bytes);

control_server::control_server(const control_callbacks& callbacks, int listener, int waker)
    : callbacks_(callbacks), listener_(listener), waker_(waker) {
  bringers_ = std::make_unique<crew>("farheap-bring", [callbacks](crew::task& task) {
    const open_descriptor to(task.peer());
    char reply[control_reply_bytes];
    const std::size_t length = answer_bring(callbacks, task.request(), reply);
    task.end();  // before the reply, because whoever has it may ask for more at once
    static_cast<void>(transmit(to.number(), reply, length, -1, now_ms() + control_deadline_ms));
  });
}

std::unique_ptr<control_server> control_server::open(const control_callbacks& callbacks) {
  FAR_CHECK(callbacks.resize != nullptr && callbacks.stats != nullptr && callbacks.add_server != nullptr &&
                callbacks.remove_server != nullptr,
            "all callbacks are set");
  open_descriptor listener(open_socket());
  int failure = listener.number() < 0 ? errno : 0;
  if (failure == 0) failure = take_a_name(listener.number());
  if (failure != 0) {
    log_line(log_level::warning,
             "process %d cannot listen for `farheap resize`, `stats`, `add-server` and `remove-server` (%s); it runs "
             "without them",
             static_cast<int>(getpid()), std::strerror(failure));
  }
  open_descriptor waker(platform::own_descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  return std::unique_ptr<control_server>(
      new control_server(callbacks, failure == 0 ? listener.release() : -1, waker.release()));
}

control_server::~control_server() {
  stop_listening();
  if (waker_ >= 0) close(waker_);
}

void control_server::settle_in_child() noexcept {
  stop_listening();
  bringers_->forget_threads();
}

void control_server::stop_listening() noexcept {
  if (listener_ >= 0) close(listener_);
  listener_ = -1;
}

void control_server::wake() noexcept {
  const int saved_errno = errno;
  const std::uint64_t one = 1;
  // It fails only when the counter is full, and then the server has been woken already.
  [[maybe_unused]] const ssize_t written = write(waker_, &one, sizeof one);
  errno = saved_errno;
}

bool control_server::step(int timeout_ms) {
  // poll() leaves out what is -1.
  pollfd watched[2] = {{listener_, POLLIN, 0}, {waker_, POLLIN, 0}};
  const int ready = platform::wait_for_events(watched, timeout_ms * ns_in_ms);
  if (ready <= 0) return true;  // nobody came, or a signal did
  if (watched[1].revents != 0) return false;
  if (watched[0].revents == 0) return true;
  open_descriptor peer(platform::own_descriptor(accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
  if (peer.number() >= 0) {
    if (serve(peer.number())) static_cast<void>(peer.release());
  } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
    // Most likely the program has no descriptor left. The peer stays in the queue, so this pauses in order not to spin.
    const bool woken = platform::wait_for_events({&watched[1], 1}, control_deadline_ms * ns_in_ms) > 0;
    if (woken) return false;
  }
  return true;
}

// Returns whether another thread goes on with the peer, and closes it.
bool control_server::serve(int peer) {
  const result<ucred> rights = credentials_of(peer);
  if (!rights) return false;
  const bool may_ask = rights.value().uid == geteuid() || rights.value().uid == 0;
  const std::int64_t deadline_ms = now_ms() + (may_ask ? control_deadline_ms : stranger_deadline_ms);
  char request[control_request_bytes];
  char reply[control_reply_bytes];
  const ssize_t got = receive(peer, request, sizeof request, waker_, deadline_ms);
  if (got <= 0 && (got == 0 || errno != EMSGSIZE)) return false;
  const std::string_view asked(request, got < 0 ? 0 : static_cast<std::size_t>(got));
  if (is_secret(asked) || (may_ask && asked == job_request && callbacks_.job_file != nullptr)) {
    send_job(peer);
    return false;
  }
  if (!may_ask) return false;
  if (callbacks_.bring != nullptr && asked.starts_with(bring_request)) {
    switch (bringers_->give(peer, asked)) {
      case crew::taken::yes: return true;
      case crew::taken::all_busy:
        static_cast<void>(transmit(peer, again_reply.data(), again_reply.size(), waker_, deadline_ms));
        return false;
      case crew::taken::no_thread: {
        const std::size_t length = answer_bring(callbacks_, asked, reply);
        static_cast<void>(transmit(peer, reply, length, waker_, now_ms() + control_deadline_ms));
        return false;
      }
    }
  }
  const std::size_t length =
      got < 0 ? reply_error(reply, "the request is too long") : answer({request, static_cast<std::size_t>(got)}, reply);
  // A peer that does not take its reply only harms itself.
  static_cast<void>(transmit(peer, reply, length, waker_, deadline_ms));
  return false;
}

bool control_server::is_secret(std::string_view request) const {
  if (callbacks_.job_secret == nullptr) return false;
  const std::string right = "farheap/1 job " + callbacks_.job_secret(callbacks_.context) + "\n";
  if (request.size() != right.size()) return false;
  unsigned difference = 0;  // in the same time, wherever they differ
  for (std::size_t i = 0; i < right.size(); ++i) difference |= static_cast<unsigned char>(right[i] ^ request[i]);
  return difference == 0;
}

void control_server::send_job(int peer) const {
  const int descriptor = callbacks_.job_file(callbacks_.context);
  // A peer that does not take its reply only harms itself.
  static_cast<void>(wire::send_packet(peer, std::as_bytes(std::span(job_reply)), {&descriptor, 1}));
}

std::size_t control_server::answer(std::string_view request, char* reply) {
  if (!request.starts_with(version_prefix)) {
    return reply_error(reply, "this program's runtime speaks farheap/1; use the `farheap` it was started with");
  }
  if (!request.ends_with('\n')) return reply_error(reply, "the request does not end with a newline");
  request.remove_prefix(version_prefix.size());
  request.remove_suffix(1);
  if (request == "stats") return answer_stats(reply);
  if (request == "job") return reply_error(reply, "this process is in no job: it has a budget of its own");
  if (request.starts_with(remove_server_prefix)) {
    return answer_removal(request.substr(remove_server_prefix.size()), removal::begin, reply);
  }
  if (request.starts_with(removal_prefix)) {
    return answer_removal(request.substr(removal_prefix.size()), removal::go_on, reply);
  }
  return reply_done(reply, obey(request));
}

std::size_t control_server::answer_stats(char* reply) {
  std::memcpy(reply, "farheap/1 ok ", 13);
  std::size_t length = 13;
  length += format_statistics_json(callbacks_.stats(callbacks_.context), {reply + length, control_reply_bytes - 32});
  // A caller that sees this asks for the job, too.
  constexpr std::string_view in_job = ", \"in_job\": 1}";
  if (callbacks_.job_file != nullptr) {
    std::memcpy(reply + --length, in_job.data(), in_job.size());
    length += in_job.size();
  }
  reply[length++] = '\n';
  return length;
}

std::size_t control_server::answer_removal(std::string_view server, removal step, char* reply) {
  const result<std::uint64_t> left = callbacks_.remove_server(callbacks_.context, server, step);
  if (!left) return reply_error(reply, left.error().message.c_str());
  return static_cast<std::size_t>(
      std::snprintf(reply, control_reply_bytes, "farheap/1 ok %llu\n", static_cast<unsigned long long>(left.value())));
}

result<void> control_server::obey(std::string_view request) {
  if (request.starts_with(resize_prefix)) {
    request.remove_prefix(resize_prefix.size());
    std::uint64_t budget_bytes = 0;
    const char* const end = request.data() + request.size();
    const auto [rest, failure] = std::from_chars(request.data(), end, budget_bytes);
    if (failure != std::errc{} || rest != end) return error{"resize takes a number of bytes", EINVAL};
    return callbacks_.resize(callbacks_.context, budget_bytes);
  }
  if (request.starts_with(add_server_prefix)) {
    request.remove_prefix(add_server_prefix.size());
    return callbacks_.add_server(callbacks_.context, request);
  }
  return error{
      "unknown request; there are: resize BYTES, add-server HOST:PORT, remove-server HOST:PORT, removal HOST:PORT, "
      "stats, job",
      EINVAL};
}

bool is_answered(pid_t pid) {
  return connect_to(pid, now_ms()).ok();
}

namespace {

std::string line_of(std::string_view request) {
  return std::string(version_prefix) + std::string(request) + "\n";
}

// Messages are short and come in one piece, so one receive is enough. A peer that closes without a reply has refused
// our credentials.
result<std::string> receive_reply(int socket, pid_t pid, std::int64_t deadline_ms) {
  const std::string process = "process " + std::to_string(pid);
  std::array<char, control_reply_bytes> reply;
  ssize_t got = receive(socket, reply.data(), reply.size(), -1, deadline_ms);
  if (got < 0 && (errno == ECONNRESET || errno == EPIPE)) got = 0;
  if (got < 0) return error{process + " gave no reply: " + std::strerror(errno) + "; try again", errno};
  if (got == 0) return error{process + " refused to answer; only its own user and root may ask", EPERM};
  std::string_view text(reply.data(), static_cast<std::size_t>(got));
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text == "farheap/1 ok") return std::string();
  if (text == "farheap/1 again") return error{process + " is busy; try again", EAGAIN};
  if (text.starts_with("farheap/1 ok ")) return std::string(text.substr(13));
  if (text.starts_with("farheap/1 error ")) return error{process + ": " + std::string(text.substr(16))};
  return error{process + " speaks another version of the protocol; use the `farheap` it was started with"};
}

// Asks a crowd of processes, each over a socket of its own.
class crowd_of_requests {
 public:
  crowd_of_requests(std::span<const pid_t> processes, std::string_view request)
      : processes_(processes), line_(line_of(request)), replies_(processes.size(), error{"", ETIMEDOUT}) {
    sockets_.resize(processes.size());
    for (std::size_t i = 0; i < processes.size(); ++i) to_connect_.push_back(i);
  }

  std::vector<result<std::string>> run(std::int64_t deadline_ms) {
    for (connect_all(); has_open(); connect_all()) {
      const std::int64_t left_ms = deadline_ms - now_ms();
      if (left_ms <= 0) break;
      // A process with a line of others before it is tried again soon.
      wait(to_connect_.empty() ? left_ms : std::min<std::int64_t>(left_ms, 10));
    }
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      const bool is_silent = sockets_[i] != nullptr || std::ranges::count(to_connect_, i) > 0;
      if (is_silent) fail(i, ETIMEDOUT);
    }
    return std::move(replies_);
  }

 private:
  [[nodiscard]] bool has_open() const {
    return !to_connect_.empty() || std::ranges::any_of(sockets_, [](const auto& one) { return one != nullptr; });
  }
  void fail(std::size_t which, int code) {
    replies_[which] =
        error{"process " + std::to_string(processes_[which]) + " gave no reply: " + std::strerror(code) + "; try again",
              code};
  }
  // Never waits.
  void connect_all() {
    std::erase_if(to_connect_, [&](std::size_t which) {
      result<std::unique_ptr<open_descriptor>> connected = connect_to(processes_[which], now_ms());
      if (!connected) {
        if (connected.error().code == EAGAIN) return false;
        replies_[which] = connected.error();
      } else if (transmit(connected.value()->number(), line_.data(), line_.size(), -1, now_ms())) {
        sockets_[which] = std::move(connected).value();
      } else {
        fail(which, errno);
      }
      return true;
    });
  }
  void wait(std::int64_t at_most_ms) {
    std::vector<pollfd> watched;
    for (const auto& one : sockets_) watched.push_back({one == nullptr ? -1 : one->number(), POLLIN, 0});
    if (poll(watched.data(), watched.size(), static_cast<int>(at_most_ms)) <= 0) return;
    for (std::size_t i = 0; i < watched.size(); ++i) {
      if (watched[i].revents == 0) continue;
      replies_[i] = receive_reply(sockets_[i]->number(), processes_[i], now_ms());
      sockets_[i].reset();
    }
  }

  const std::span<const pid_t> processes_;
  const std::string line_;
  std::vector<result<std::string>> replies_;
  std::vector<std::unique_ptr<open_descriptor>> sockets_;  // of those that were asked and have not replied
  std::vector<std::size_t> to_connect_;
};

}  // namespace

result<std::string> send_control_request(pid_t pid, std::string_view request) {
  const bool is_patient = request.starts_with(add_server_prefix) || request.starts_with("bring ");
  const std::int64_t deadline_ms = now_ms() + (is_patient ? patient_client_deadline_ms : client_deadline_ms);
  const result<std::unique_ptr<open_descriptor>> connected = connect_to(pid, deadline_ms);
  if (!connected) return connected.error();
  const int socket = connected.value()->number();
  const std::string line = line_of(request);
  // One that refuses us may close before it has read the request.
  const bool is_sent = transmit(socket, line.data(), line.size(), -1, deadline_ms);
  if (!is_sent && errno != ECONNRESET && errno != EPIPE) {
    const int code = errno;
    return error{"process " + std::to_string(pid) + " gave no reply: " + std::strerror(code) + "; try again", code};
  }
  return receive_reply(socket, pid, deadline_ms);
}

// In groups, since each takes a descriptor.
std::vector<result<std::string>> send_control_requests(std::span<const pid_t> processes, std::string_view request,
                                                       int timeout_ms) {
  constexpr std::size_t most_at_once = 256;
  std::vector<result<std::string>> all;
  for (std::size_t first = 0; first < processes.size(); first += most_at_once) {
    const auto some = processes.subspan(first, std::min(most_at_once, processes.size() - first));
    for (result<std::string>& one : crowd_of_requests(some, request).run(now_ms() + timeout_ms)) {
      all.push_back(std::move(one));
    }
  }
  return all;
}

// The job's file comes as a descriptor (SCM_RIGHTS), so the caller needs neither its path nor the right to open it.
result<int> request_job(pid_t pid, std::string_view secret) {
  const std::int64_t deadline_ms = now_ms() + job_deadline_ms;
  const result<std::unique_ptr<open_descriptor>> connected = connect_to(pid, deadline_ms);
  if (!connected) return connected.error();
  const int socket = connected.value()->number();
  const std::string process = "process " + std::to_string(pid);
  const std::string line = secret.empty() ? std::string(job_request) : "farheap/1 job " + std::string(secret) + "\n";
  if (!transmit(socket, line.data(), line.size(), -1, deadline_ms) || !wait_ready(socket, POLLIN, -1, deadline_ms)) {
    return error{process + " gave no reply: " + std::strerror(errno) + "; try again", errno};
  }
  std::array<char, control_request_bytes> text;
  wire::packet got;
  if (wire::receive_packet(socket, std::as_writable_bytes(std::span(text)), got) != 0) {
    return error{process + " refused to answer; only its own user and root may ask", EPERM};
  }
  const auto [descriptor, surplus] = got.descriptors;
  const open_descriptor unwanted(surplus);  // one is ever sent
  if (descriptor >= 0) return descriptor;
  std::string_view said(text.data(), got.length_bytes);
  if (said.ends_with('\n')) said.remove_suffix(1);
  return error{process + ": " + std::string(said.substr(said.starts_with("farheap/1 error ") ? 16 : 0)), EPROTO};
}

void nudge(pid_t pid) noexcept {
  const open_descriptor socket(open_socket());
  // The first of its names is nearly always the right one. A process that is not reached reads its share soon anyway.
  const abstract_name name = name_of(pid, 0);
  if (socket.number() < 0) return;
  static_cast<void>(connect(socket.number(), reinterpret_cast<const sockaddr*>(&name.address), name.length));
}

}  // namespace far::control
