#include "tests/devices/device_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

#include "base/check.h"
#include "tests/support/loopback.h"
#include "tests/support/stop_process.h"

namespace far::testing_support {
namespace {

constexpr int patience_ms = 60'000;

std::string next_line(int from) {
  std::string line;
  for (;;) {
    pollfd watched{.fd = from, .events = POLLIN, .revents = 0};
    char next = 0;
    if (poll(&watched, 1, patience_ms) <= 0 || read(from, &next, 1) != 1 || next == '\n') return line;
    line += next;
  }
}

}  // namespace

device_server::device_server(std::vector<std::string> options, std::uint16_t port) : port_(port) {
  std::vector<std::string> words{FARHEAPD, "--listen", host(), "--threads", "1"};
  words.insert(words.end(), options.begin(), options.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::array<int, 2> ends{};
  FAR_CHECK(pipe2(ends.data(), O_CLOEXEC) == 0, "a test needs a pipe");
  process_ = fork();
  if (process_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], STDOUT_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(ends[1]);
  // Where it listens: with --shm, there first.
  std::string line = next_line(ends[0]);
  if (line.starts_with("listening on shm:")) line = next_line(ends[0]);
  close(ends[0]);
  FAR_CHECK(line == "listening on " + host(), "a server of a test does not listen");
}

device_server::~device_server() {
  if (process_ > 0) signal(SIGKILL);
}

namespace {

std::vector<pid_t> children_of(pid_t process) {
  std::vector<pid_t> found;
  std::error_code ignored;  // threads come and go
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks, ignored)) {
    std::ifstream children(task.path() / "children");
    for (int child = 0; children >> child;) {
      // "PID (NAME) STATE": those that have ended are only remembered.
      std::ifstream file("/proc/" + std::to_string(child) + "/stat");
      std::string line;
      std::getline(file, line);
      const std::size_t name_end = line.rfind(')');
      if (name_end != std::string::npos && line.compare(name_end, 3, ") Z") != 0) found.push_back(child);
    }
  }
  return found;
}

}  // namespace

// Between the server and each of them is a guardian.
std::vector<pid_t> device_server::devices() const {
  std::vector<pid_t> found;
  for (const pid_t guardian : children_of(process_)) {
    for (const pid_t device : children_of(guardian)) found.push_back(device);
  }
  return found;
}

// The server first: it would end devices that do not answer.
void device_server::stop_with_devices() {
  signal(SIGSTOP);
  for (const pid_t device : devices()) kill(device, SIGSTOP);
}

void device_server::continue_with_devices() {
  for (const pid_t device : devices()) kill(device, SIGCONT);
  signal(SIGCONT);
}

void device_server::signal(int number) {
  if (number == SIGSTOP) return stop_process(process_);
  const std::vector<pid_t> orphans = number == SIGKILL ? devices() : std::vector<pid_t>();
  kill(process_, number);
  if (number != SIGKILL) return;
  wait();
  // Their guardians end them, and until then they answer.
  for (const pid_t one : orphans) {
    for (int i = 0; i < 3000 && kill(one, 0) == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

int device_server::wait() {
  int status = 0;
  while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

cutting_proxy::cutting_proxy(std::uint16_t server_port) : server_port_(server_port) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t bytes = sizeof address;
  FAR_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), bytes) == 0 && listen(listener_, 16) == 0 &&
                getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &bytes) == 0,
            "a proxy of a test cannot listen");
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { run(); });
}

cutting_proxy::~cutting_proxy() {
  ends_.store(true);
  thread_.join();
  for (std::thread& one : passing_) one.join();
  close(listener_);
}

void cutting_proxy::run() {
  while (!ends_.load()) {
    pollfd watched{listener_, POLLIN, 0};
    if (poll(&watched, 1, 10) <= 0) continue;
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    passing_.emplace_back([this, client] {
      pass_on(client);
      close(client);
    });
  }
}

void cutting_proxy::pass_on(int client) {
  const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(server_port_);
  const auto began = std::chrono::steady_clock::now();
  bool lives = connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  while (lives && !ends_.load()) {
    std::array<pollfd, 2> watched{{{client, POLLIN, 0}, {server, POLLIN, 0}}};
    poll(watched.data(), watched.size(), 5);
    for (std::size_t i = 0; i < 2 && lives; ++i) {
      if (watched[i].revents == 0) continue;
      std::array<char, 65536> bytes;
      const ssize_t got = recv(watched[i].fd, bytes.data(), bytes.size(), 0);
      lives = got > 0 && send(watched[1 - i].fd, bytes.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL) == got;
    }
    const int lifetime_ms = lifetime_ms_.load();
    const auto age = std::chrono::steady_clock::now() - began;
    if (lives && lifetime_ms > 0 && age > std::chrono::milliseconds(lifetime_ms)) {
      lives = false;
      cuts_.fetch_add(1);
    }
  }
  close(server);
}

}  // namespace far::testing_support
