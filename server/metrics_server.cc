#include "server/metrics_server.h"

#include <httplib.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "platform/clock.h"

namespace far::server {
namespace {

constexpr std::size_t http_threads = 2;
constexpr std::size_t longest_body_bytes = 4096;

std::uint64_t now() {
  return platform::monotonic_clock().now_ns();
}

}  // namespace

struct metrics_server::parts {
  httplib::Server http;
  server_view view;
  rate_meter speed;
  std::thread thread;
};

metrics_server::metrics_server(std::unique_ptr<parts> all) : parts_(std::move(all)) {}

metrics_server::~metrics_server() {
  parts_->http.stop();
  if (parts_->thread.joinable()) parts_->thread.join();
}

// The HTTP library is limited on every side (threads, body, time, requests on a connection), because anybody who can
// reach the port can open connections, and the server's main work must not suffer.
result<std::unique_ptr<metrics_server>> metrics_server::start(const address& at, server_view view) {
  std::unique_ptr<metrics_server> server(new metrics_server(std::make_unique<parts>()));
  parts& own = *server->parts_;
  own.view = std::move(view);
  httplib::Server& http = own.http;
  http.new_task_queue = [] { return new httplib::ThreadPool(http_threads); };
  http.set_payload_max_length(longest_body_bytes);
  http.set_read_timeout(2);
  http.set_write_timeout(2);
  http.set_keep_alive_max_count(1);  // a thread is not one reader's alone
  http.Get("/metrics", [&own](const httplib::Request&, httplib::Response& answer) {
    answer.set_content(prometheus_text(own.view, now()), "text/plain; version=0.0.4; charset=utf-8");
  });
  http.Get("/", [&own](const httplib::Request&, httplib::Response& answer) {
    const std::uint64_t now_ns = now();
    const rates speed = own.speed.look(sum(own.view.loops), now_ns);
    answer.set_header("Cache-Control", "no-store");
    answer.set_content(status_page(own.view, speed, now_ns), "text/html; charset=utf-8");
  });
  const std::string host = at.host();
  int port = at.port();
  const bool bound = port != 0 ? http.bind_to_port(host, port) : (port = http.bind_to_any_port(host)) > 0;
  if (!bound) {
    return error{"cannot listen on " + at.text() + " for metrics; another program may have it: choose another port",
                 EADDRINUSE};
  }
  server->where_ = (host.find(':') == host.npos ? host : "[" + host + "]") + ":" + std::to_string(port);
  own.thread = std::thread([&http] { static_cast<void>(http.listen_after_bind()); });
  // Only what runs can be stopped.
  for (int waits = 0; !http.is_running() && waits < 5000; ++waits) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return server;
}

}  // namespace far::server
