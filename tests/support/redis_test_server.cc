#include "tests/support/redis_test_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/check.h"
#include "tests/support/loopback.h"
#include "tests/support/stop_process.h"

namespace far::testing_support {
namespace {

constexpr int patience_ms = 120'000;

int connect_to(std::uint16_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(port);
  if (connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return socket;
  close(socket);
  return -1;
}

// Reads up to the end of a line, or so many bytes.
std::string read_some(int socket, std::size_t bytes) {
  std::string text;
  while (bytes == 0 ? !text.ends_with("\r\n") : text.size() < bytes) {
    pollfd watched{.fd = socket, .events = POLLIN, .revents = 0};
    char next = 0;
    FAR_CHECK(::poll(&watched, 1, patience_ms) == 1 && read(socket, &next, 1) == 1, "the test's Redis answers");
    text.push_back(next);
  }
  return text.substr(0, text.size() - 2);
}

bool has(const std::vector<std::string>& arguments, const std::string& name, const std::string& value) {
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (arguments[i - 1] == name && arguments[i] == value) return true;
  }
  return false;
}

}  // namespace

bool redis_test_server::is_installed() {
  for (const char* path : {"/usr/bin/redis-server", "/usr/local/bin/redis-server"}) {
    if (access(path, X_OK) == 0) return true;
  }
  return false;
}

redis_test_server::redis_test_server(std::vector<std::string> arguments, bool starts)
    : arguments_(std::move(arguments)),
      secure_(has(arguments_, "--tls-port", "0")),
      has_both_(has(arguments_, "--tls-port", "both")) {
  if (starts) start();
}

redis_test_server::~redis_test_server() {
  kill();
}

void redis_test_server::start() {
  const std::string own_port = std::to_string(port());
  std::vector<std::string> words{
      "redis-server", "--bind", "127.0.0.1", "--save",         "",       "--appendonly",          "no",
      "--dir",        folder_,  "--logfile", folder_ + "/log", "--port", secure_ ? "0" : own_port};
  words.insert(words.end(), arguments_.begin(), arguments_.end());
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i - 1] == "--tls-port") words[i] = std::to_string(tls_port());
    if (words[i - 1] == "--cluster-port") words[i] = std::to_string(cluster_port());
  }
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const pid_t parent = getpid();
  process_ = fork();
  if (process_ == 0) {
    // It ends with the test, however that ends.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    execvp(pointers[0], pointers.data());
    _exit(127);
  }
  for (int waited_ms = 0; waited_ms < patience_ms; waited_ms += 10) {
    const int socket = connect_to(port());
    if (socket >= 0) {
      close(socket);
      return;
    }
    usleep(10'000);
  }
  std::fprintf(stderr, "the test's redis-server does not start; see %s/log\n", folder_.c_str());
  std::abort();
}

void redis_test_server::kill() {
  if (process_ < 0) return;
  ::kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  process_ = -1;
}

void redis_test_server::pause() const {
  stop_process(process_);
}

void redis_test_server::resume() const {
  ::kill(process_, SIGCONT);
}

std::string redis_test_server::command(const std::string& line) const {
  const int socket = connect_to(port());
  const std::string sent = line + "\r\n";
  FAR_CHECK(socket >= 0 && write(socket, sent.data(), sent.size()) == static_cast<ssize_t>(sent.size()),
            "the test's Redis takes a command");
  std::string reply = read_some(socket, 0);
  if (reply.starts_with('$') && reply != "$-1") reply = read_some(socket, std::stoul(reply.substr(1)) + 2);
  close(socket);
  return reply;
}

}  // namespace far::testing_support
