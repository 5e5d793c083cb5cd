#include "device/shm_link.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

#include "base/check.h"
#include "platform/clock.h"

namespace far::device_parts {
namespace {

constexpr std::uint64_t ms = 1'000'000;
constexpr std::uint64_t connecting_pause_ns = 20 * ms;
// A server that is not there is noticed at its socket; one that breaks the rings, here.
constexpr std::uint64_t longest_wait_ns = 100 * ms;

std::uint64_t now() {
  return platform::monotonic_clock().now_ns();
}

}  // namespace

shm_link::shm_link(backend::shm::connection_options chosen)
    : chosen_(std::move(chosen)), peer_("shm:" + chosen_.name) {}

bool shm_link::connect(std::uint64_t until_ns) {
  if (server_) return true;
  for (;;) {
    is_refused_ = false;
    result<std::unique_ptr<backend::shm::connection>> started = backend::shm::connection::start(chosen_);
    const std::uint64_t at_ns = now();
    const std::uint64_t left_ns = until_ns > at_ns ? until_ns - at_ns : 0;
    error why;
    if (!started) {
      why = started.error();
    } else if (const result<void> ready = started.value()->finish(left_ns); !ready) {
      why = ready.error();
    } else {
      server_ = std::move(started).value();
      return true;
    }
    why_ = why.message;
    is_refused_ = why.code != ECONNREFUSED && why.code != ECONNRESET && why.code != ETIMEDOUT;
    if (is_refused_ || now() + connecting_pause_ns >= until_ns) return false;
    std::this_thread::sleep_for(std::chrono::nanoseconds(connecting_pause_ns));
  }
}

link_answer shm_link::broken() {
  return link_answer::failed(link_answer::kind::forgotten,
                             peer_ + " has ended the connection, and with it its devices");
}

bool shm_link::receive(std::uint64_t cookie, const patience& how, wire::ring_reply* into) {
  const std::uint64_t until_ns = now() + how.answer_ns;
  for (;;) {
    for (wire::ring_reply got; server_->take(got);) {
      std::ranges::replace(asked_, got.cookie, std::uint64_t{0});
      if (got.cookie != cookie) continue;
      *into = got;
      return true;
    }
    const std::uint64_t at_ns = now();
    if (!server_->alive() || at_ns >= until_ns || how.is_given_up()) return false;
    server_->wait(std::min(until_ns - at_ns, longest_wait_ns));
  }
}

link_answer shm_link::ask(const wire::device_request& asked, const patience& how) {
  using kind = link_answer::kind;
  if (!connect(now() + how.reach_ns)) {
    return link_answer::failed(is_refused_ ? kind::impossible : kind::unreachable, why_);
  }
  wire::ring_reply said;
  static_cast<void>(receive(0, {}, &said));
  if (!server_->alive()) return broken();
  const auto place = std::ranges::find(asked_, std::uint64_t{0});
  if (place == asked_.end() || server_->room() == 0) {
    return link_answer::failed(kind::unreachable, peer_ + " has not answered earlier calls yet");
  }
  const std::size_t fragment = static_cast<std::size_t>(place - asked_.begin()) * fragments_of_call;
  std::byte* const shared = server_->area() + fragment * wire::fragment_bytes;
  const std::size_t length = wire::call_header_bytes + wire::device_request_bytes + asked.bytes.size();
  FAR_CHECK(length <= wire::maximum_payload_bytes, "a call of a device does not fit into its place");
  static_cast<void>(wire::encode_call(wire::device_call_name,
                                      std::span<std::byte, wire::call_header_bytes>(shared, wire::call_header_bytes)));
  wire::encode(asked, std::span<std::byte, wire::device_request_bytes>(shared + wire::call_header_bytes,
                                                                       wire::device_request_bytes));
  std::ranges::copy(asked.bytes, shared + wire::call_header_bytes + wire::device_request_bytes);
  *place = ++cookie_;
  server_->put({.op = wire::ring_operation::call,
                .fragment = static_cast<std::uint32_t>(fragment),
                .cookie = cookie_,
                .count = fragments_of_call,
                .length_bytes = static_cast<std::uint32_t>(length)});
  server_->flush();
  if (!receive(cookie_, how, &said)) {
    if (!server_->alive()) return broken();
    return link_answer::failed(kind::unreachable, peer_ + " does not answer in time");
  }
  if (said.status == static_cast<std::uint8_t>(wire::status::unknown_call)) {
    return link_answer::failed(kind::impossible, peer_ + " has no devices; start its farheapd with --plugin FILE");
  }
  if (said.status != 0 || said.length_bytes > fragments_of_call * wire::fragment_bytes) {
    return link_answer::failed(kind::impossible, peer_ + " does not understand the call");
  }
  return {kind::answered, {shared, shared + said.length_bytes}, ""};
}

// The socket shows the server's end; nothing has to be said.
device_link::health shm_link::keep_alive() {
  if (!server_) return health::silent;
  server_->check();
  return server_->alive() ? health::alive : health::forgotten;
}

}  // namespace far::device_parts
