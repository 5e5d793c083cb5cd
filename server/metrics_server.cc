#include "server/metrics_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "platform/clock.h"

namespace far::server {
namespace {

// Without descriptors, connections wait so long.
constexpr std::uint64_t accept_pause_ns = 100'000'000;

constexpr int longest_sleep_ms = 250;

std::uint64_t now() {
  return platform::monotonic_clock().now_ns();
}

const char* reason_of(int code) {
  switch (code) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    default: return "Service Unavailable";
  }
}

// Their answers are short.
bool is_probe(const http_request& asked) {
  return asked.path == "/healthz" || asked.path == "/readyz";
}

// Compares in a time that does not reveal how much of it is right.
bool is_same_secret(std::string_view shown, std::string_view secret) {
  unsigned difference = shown.size() == secret.size() ? 0 : 1;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    difference |= static_cast<unsigned char>(shown[i] ^ secret[i % secret.size()]);
  }
  return difference == 0;
}

}  // namespace

result<std::unique_ptr<metrics_server>> metrics_server::start(address at, std::unique_ptr<metrics_source> shown,
                                                              metrics_options chosen) {
  const result<int> listener = listen_at(&at);
  if (!listener) return error{"metrics: " + listener.error().message, listener.error().code};
  const int waker = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (waker < 0) {
    const int code = errno;
    close(listener.value());
    return error{std::string("metrics: no descriptor (") + std::strerror(code) + "); raise the limit (ulimit -n)",
                 code};
  }
  return std::unique_ptr<metrics_server>(
      new metrics_server(listener.value(), waker, at.text(), std::move(shown), std::move(chosen)));
}

metrics_server::metrics_server(int listener, int waker, std::string where, std::unique_ptr<metrics_source> shown,
                               metrics_options chosen)
    : listener_(listener),
      waker_(waker),
      where_(std::move(where)),
      shown_(std::move(shown)),
      chosen_(std::move(chosen)),
      thread_([this] { run(); }) {}

metrics_server::~metrics_server() {
  ends_ = true;
  const std::uint64_t one = 1;
  // It can only fail when the thread has been woken already.
  [[maybe_unused]] const ssize_t written = write(waker_, &one, sizeof one);
  thread_.join();
  for (const auto& served : connections_) close(served->socket);
  close(listener_);
  close(waker_);
}

void metrics_server::run() {
  while (!ends_) {
    const bool has_newcomers = wait();
    const std::uint64_t now_ns = now();
    shown_->keep_up(now_ns);
    for (const auto& served : connections_) step(*served, now_ns);
    remove_ended(now_ns);
    if (has_newcomers) accept_all(now_ns);
  }
}

// Sleeps until there is something to do. Returns whether somebody wants to connect.
bool metrics_server::wait() {
  std::array<pollfd, most_connections + 2> watched{};
  std::size_t count = 0;
  watched[count++] = {waker_, POLLIN, 0};
  watched[count++] = {now() >= accept_again_at_ns_ ? listener_ : -1, POLLIN, 0};
  for (const auto& served : connections_) {
    const bool writes = served->at == connection::phase::replying;
    // A reply that waits for its turn is made when another one has been sent, which wakes this thread.
    const bool rests = served->at == connection::phase::waiting;
    watched[count++] = {rests ? -1 : served->socket, static_cast<short>(writes ? POLLOUT : POLLIN), 0};
  }
  static_cast<void>(poll(watched.data(), count, longest_sleep_ms));
  return (watched[1].revents & POLLIN) != 0;
}

void metrics_server::accept_all(std::uint64_t now_ns) {
  // At most as many at a time as fit, so that each accepted connection is served before it becomes the oldest.
  for (std::size_t i = 0; i < most_connections; ++i) {
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) {
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) accept_again_at_ns_ = now_ns + accept_pause_ns;
      return;
    }
    if (connections_.size() == most_connections) {
      close(connections_.front()->socket);
      connections_.erase(connections_.begin());
    }
    auto fresh = std::make_unique<connection>();
    fresh->socket = socket;
    fresh->network = network_of(socket);
    fresh->since_ns = now_ns;
    step(*fresh, now_ns);
    connections_.push_back(std::move(fresh));
  }
}

void metrics_server::step(connection& served, std::uint64_t now_ns) {
  using phase = connection::phase;
  if (served.at == phase::reading) read_request(served);
  if (served.at == phase::waiting && (is_probe(served.asked) || replies() < most_replies)) make_reply(served, now_ns);
  if (served.at == phase::replying) send_reply(served);
  if (served.at == phase::closing) wait_for_end(served);
}

std::size_t metrics_server::replies() const {
  return static_cast<std::size_t>(std::count_if(connections_.begin(), connections_.end(), [](const auto& served) {
    return served->at == connection::phase::replying;
  }));
}

void metrics_server::read_request(connection& served) {
  while (served.at == connection::phase::reading) {
    std::array<char, 1024> part{};
    const std::size_t room = std::min(part.size(), most_request_bytes - served.request.size());
    if (room == 0) return put(served, {.code = 431, .body = "the head of the request is too long\n"}, true);
    const ssize_t got = recv(served.socket, part.data(), room, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      served.since_ns = 0;  // removed at once
      return;
    }
    served.request.append(part.data(), static_cast<std::size_t>(got));
    switch (parse_http_request(served.request, &served.asked)) {
      case http_request::state::incomplete: break;
      case http_request::state::complete: served.at = connection::phase::waiting; break;
      case http_request::state::malformed:
        return put(served, {.code = 400, .body = "this is not a request of HTTP/1\n"}, true);
    }
  }
}

void metrics_server::make_reply(connection& served, std::uint64_t now_ns) {
  put(served, answer_to(served, now_ns), served.asked.method != "HEAD");
}

// A reader that shows no token has not guessed one.
metrics_server::permission metrics_server::permission_of(const connection& served, std::uint64_t now_ns) {
  constexpr std::string_view scheme = "Bearer ";
  if (chosen_.tokens == nullptr || chosen_.tokens->empty()) return permission::granted;
  const std::string_view shown = served.asked.authorization;
  if (!shown.starts_with(scheme)) return permission::refused;
  if (!failures_.may_try(served.network, now_ns)) return permission::throttled;
  bool is_right = false;
  for (const std::string& token : chosen_.tokens->tokens_of("default")) {
    is_right |= is_same_secret(shown.substr(scheme.size()), token);
  }
  if (!is_right) failures_.note(served.network, now_ns);
  return is_right ? permission::granted : permission::refused;
}

// The order decides what needs a token. Probes come first, because an orchestrator has none; a path that does not exist
// comes after the check, so that a stranger learns nothing about the paths that do.
metrics_server::answer metrics_server::answer_to(const connection& served, std::uint64_t now_ns) {
  const http_request& asked = served.asked;
  if (asked.method != "GET" && asked.method != "HEAD") return {.code = 405, .body = "only GET and HEAD\n"};
  // For programs that start and watch servers. The answers reveal nothing else.
  if (is_probe(asked)) {
    const std::string reason = asked.path == "/healthz" ? shown_->sickness(now_ns) : shown_->refusal();
    if (!reason.empty()) return {.code = 503, .body = reason + "\n"};
    return {.body = "ok\n"};
  }
  switch (permission_of(served, now_ns)) {
    case permission::granted: break;
    case permission::refused:
      return {.code = 401, .body = std::string("send the token of ") + chosen_.token_option + " as a bearer token\n"};
    case permission::throttled: return {.code = 429, .body = std::string(too_many_failures) + "\n"};
  }
  if (asked.path == "/metrics") {
    return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = shown_->metrics(now_ns)};
  }
  std::string page = asked.path == "/" ? shown_->page(now_ns) : std::string();
  if (page.empty()) return {.code = 404, .body = "there are /metrics, /healthz and /readyz, of farheapd / as well\n"};
  return {.type = "text/html; charset=utf-8", .body = std::move(page)};
}

void metrics_server::put(connection& served, const answer& said, bool with_body) {
  served.reply = "HTTP/1.1 " + std::to_string(said.code) + " " + reason_of(said.code) +
                 "\r\nContent-Type: " + said.type + "\r\nContent-Length: " + std::to_string(said.body.size()) +
                 "\r\nCache-Control: no-store\r\nConnection: close\r\n" +
                 (said.code == 401 ? "WWW-Authenticate: Bearer\r\n" : "") + "\r\n" + (with_body ? said.body : "");
  served.request = {};
  served.at = connection::phase::replying;
}

void metrics_server::send_reply(connection& served) {
  while (served.sent_bytes < served.reply.size()) {
    const ssize_t sent = send(served.socket, served.reply.data() + served.sent_bytes,
                              served.reply.size() - served.sent_bytes, MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (sent < 0) {
      served.since_ns = 0;
      served.at = connection::phase::closing;
      return;
    }
    served.sent_bytes += static_cast<std::size_t>(sent);
  }
  served.reply = {};
  served.at = connection::phase::closing;
  shutdown(served.socket, SHUT_WR);
}

// Closing the socket with unread bytes would reset the connection, and the reply would be lost.
void metrics_server::wait_for_end(connection& served) {
  std::array<char, 4096> ignored{};
  // Bounded, because a peer may send faster than this reads.
  for (int reads = 0; reads < 16; ++reads) {
    const ssize_t got = recv(served.socket, ignored.data(), ignored.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      served.since_ns = 0;
      return;
    }
  }
}

void metrics_server::remove_ended(std::uint64_t now_ns) {
  std::erase_if(connections_, [&](const std::unique_ptr<connection>& served) {
    if (served->since_ns != 0 && now_ns - served->since_ns < chosen_.patience_ns) return false;
    close(served->socket);
    return true;
  });
}

}  // namespace far::server
