#include "server/shm_peer.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "server/event_log.h"
#include "wire/rendezvous.h"

namespace far::server {
namespace {

constexpr unsigned maximum_connections_of_session = 64;

std::string user_at(int socket) {
  const auto who = wire::peer_of(socket);
  return who ? "user " + std::to_string(who.value().uid) : "an unknown user";
}

}  // namespace

shm_peer::shm_peer(const shm_settings& settings, loop_counters& counters, std::size_t& served, int socket,
                   std::uint64_t now_ns)
    : settings_(settings),
      counters_(counters),
      served_(served),
      socket_(socket),
      started_at_ns_(now_ns),
      user_(user_at(socket)) {
  counters_.connections.add();
}

shm_peer::~shm_peer() {
  FAR_CHECK(left_, "a connection was destroyed before it left its session");
  close(socket_);
}

void shm_peer::end(close_reason reason) {
  if (reason_ == close_reason::none) reason_ = reason;
}

void shm_peer::revoke() {
  rings_.revoke();
}

void shm_peer::leave(std::uint64_t now_ns, shm_leftovers* left_over) {
  if (left_) return;
  left_ = true;
  end(close_reason::peer_gone);
  counters_.endings[static_cast<std::size_t>(reason_)].add();
  if (!mine_.to) return;
  if (requests_) requests_->abandon();
  --served_;
  // The kernel reports that no process has the socket any more, so there is nobody to wait for.
  const bool was_last = --memory_->connections == 0;
  if (was_last && left_over != nullptr) left_over->keep(socket_, mine_.to, now_ns);
  if (was_last && reason_ == close_reason::peer_gone) settings_.lent->end(*mine_.to);
  settings_.lent->leave(mine_, now_ns);
  memory_ = nullptr;  // it lives no longer than the session
}

std::string shm_peer::describe() const {
  return phase_ == phase::serving ? "tenant '" + handshake_.said().tenant + "' (shared memory)"
                                  : "a client (shared memory)";
}

void shm_peer::on_socket(std::uint64_t now_ns) {
  if (is_over()) return;
  if (phase_ == phase::serving) {
    const int code = wire::answer_bells(socket_);
    if (code != 0) end(code == ECONNRESET ? close_reason::peer_gone : close_reason::malformed);
    return;
  }
  std::array<std::byte, wire::maximum_packet_bytes> message;
  wire::packet got;
  const int code = wire::receive_packet(socket_, message, got);
  if (code == EAGAIN) return;
  for (const int descriptor : got.descriptors) {
    if (descriptor >= 0) close(descriptor);  // clients have none to send
  }
  if (code != 0) return end(code == EMSGSIZE ? close_reason::malformed : close_reason::peer_gone);
  on_message(std::span(message).first(got.length_bytes), now_ns);
}

void shm_peer::on_message(std::span<const std::byte> message, std::uint64_t now_ns) {
  using step = wire::server_handshake::step;
  failed_logins* const failures = settings_.tokens->empty() ? nullptr : settings_.failures;
  const auto is_throttled = [&] { return !is_returning_ && failures != nullptr && !failures->may_try(user_, now_ns); };
  const auto end_throttled = [this] {
    handshake_.refuse(too_many_failures);
    end_refused(close_reason::throttled);
  };
  const std::optional<wire::packed_message> got = wire::unpack_message(message);
  const bool is_hello = got && got->head.op == wire::opcode::hello;
  if (!is_hello && is_throttled()) return end_throttled();
  switch (got ? handshake_.take(got->head, got->payload) : step::malformed) {
    case step::malformed: return end(close_reason::malformed);
    case step::refused:
      if (failures != nullptr && got->head.op == wire::opcode::proof && !is_returning_) failures->note(user_, now_ns);
      return end_refused(close_reason::refused);
    case step::greeted:
      // protocol::is_throttled() says why.
      is_returning_ = handshake_.joins() && settings_.lent->knows(handshake_.said().tenant, handshake_.said().join);
      if (is_throttled()) return end_throttled();
      return on_greeting();
    case step::proven: return on_proof(now_ns);
  }
}

bool shm_peer::send_handshake(std::span<const int> descriptors) {
  return wire::send_packet(socket_, handshake_.to_send(), descriptors) == 0;
}

void shm_peer::refuse(std::string_view why) {
  handshake_.refuse(why);
  end_refused(close_reason::refused);
}

void shm_peer::end_refused(close_reason reason) {
  // A client that does not read its refusal notices the end of the connection.
  static_cast<void>(send_handshake());
  end(reason);
}

void shm_peer::on_greeting() {
  const bool token_wanted = !settings_.tokens->empty();
  if (!token_wanted) {
    const auto who = wire::peer_of(socket_);
    if (!who || (who.value().uid != geteuid() && who.value().uid != 0)) {
      return refuse("user: without --token-file only the server's own user and root may connect");
    }
  }
  handshake_.challenge(token_wanted, settings_.tokens->tokens_of(handshake_.said().tenant));
  if (!send_handshake()) end(close_reason::peer_gone);
}

// A client that is one too many is told so here, not turned away before it has said anything: then it would only see
// that the connection ends.
void shm_peer::on_proof(std::uint64_t now_ns) {
  if (served_ >= settings_.most_connections) {
    log_limited("shared memory: too many connections; refused one", now_ns);
    return refuse("too many connections: the server has " + std::to_string(settings_.most_connections) +
                  "; end programs that use it, or start another farheapd with another --shm name");
  }
  if (result<void> attached = attach(); !attached) return refuse(attached.error().message);
  if (result<void> created = rings_.create(); !created) return refuse(created.error().message);
  welcome();
}

// The memory is created after the session, whose quota bounds it. If that fails, the session is ended again.
result<void> shm_peer::attach() {
  const wire::hello& said = handshake_.said();
  if (handshake_.joins()) {
    result<attachment> joined = settings_.lent->join(said.tenant, said.join, said.channel);
    if (!joined) return joined.error();
    // The session of a client over TCP has other memory.
    auto* const shared = dynamic_cast<shm_memory*>(&joined.value().to->source());
    if (shared == nullptr || shared->connections >= maximum_connections_of_session) {
      settings_.lent->leave(joined.value(), started_at_ns_);
      return error{"session: it is not of shared memory, or has too many connections", EBUSY};
    }
    mine_ = std::move(joined).value();
    memory_ = shared;
    counters_.sessions_joined.add();
  } else {
    auto source = std::make_unique<shm_memory>();
    shm_memory* const shared = source.get();
    result<attachment> opened = settings_.lent->open(said.tenant, said.channel, std::move(source));
    if (!opened) return opened.error();
    const std::uint64_t blocks = std::min(opened.value().to->quota_blocks(), maximum_session_blocks);
    result<void> created = blocks > 0
                               ? shared->create(blocks)
                               : result<void>(error{"quota: the tenant's is less than one block of 2 MiB", ENOSPC});
    if (!created) {
      settings_.lent->end(*opened.value().to);
      return created;
    }
    mine_ = std::move(opened).value();
    memory_ = shared;
    counters_.sessions_opened.add();
  }
  ++memory_->connections;
  ++served_;
  return {};
}

void shm_peer::welcome() {
  handshake_.welcome(settings_.lent->welcome_to(*mine_.to, wire::ring_length));
  const std::array<int, wire::maximum_descriptors> shared{memory_->descriptor(), rings_.descriptor()};
  if (!send_handshake(shared)) return end(close_reason::peer_gone);
  rings_.close_descriptor();
  requests_.emplace(counters_, rings_, *mine_.to, *memory_, socket_, settings_.devices);
  phase_ = phase::serving;
}

bool shm_peer::work(std::uint64_t now_ns) {
  if (is_over() || phase_ != phase::serving) return false;
  if (mine_.is_fenced()) {
    end(close_reason::fenced);
    return true;
  }
  // The older connection of the same number may still be at work.
  if (!settings_.lent->readers().passed(mine_.fence)) return false;
  const bool progress = requests_->work(now_ns);
  if (requests_->reason() != close_reason::none) end(requests_->reason());
  return progress;
}

void shm_peer::check(std::uint64_t now_ns) {
  if (is_over()) return;
  if (phase_ != phase::serving) {
    if (now_ns - started_at_ns_ >= settings_.patience_ns) end(close_reason::late_handshake);
  } else if (memory_->overdrawn()) {
    end(close_reason::foreign_slot);
  }
}

bool shm_peer::doze() {
  if (phase_ != phase::serving || is_over()) return true;
  // Only requests keep the thread awake; other waits are checked again soon.
  return requests_->is_waiting() || rings_.replies.room() == 0 || rings_.requests.doze();
}

void shm_peer::awake() {
  if (phase_ == phase::serving) rings_.requests.wake();
}

}  // namespace far::server
