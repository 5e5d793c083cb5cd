#include "server/connection.h"

#include <cerrno>
#include <utility>

namespace far::server {
namespace {

// How many rounds between TLS and the protocol a turn makes before other connections have theirs.
constexpr int rounds_of_turn = 8;

}  // namespace

result<std::unique_ptr<connection>> connection::create(const protocol_settings& settings, loop_counters& counters,
                                                       wire::tls_context* security, std::uint64_t now_ns,
                                                       std::string network) {
  std::unique_ptr<wire::tls_stream> stream;
  if (security != nullptr) {
    result<std::unique_ptr<wire::tls_stream>> tls = wire::tls_stream::create(*security, "");
    if (!tls) return tls.error();
    stream = std::move(tls).value();
  }
  std::unique_ptr<connection> opened(new connection(settings, counters, now_ns, std::move(network)));
  if (stream) {
    opened->tls_ = std::make_unique<secured>();
    opened->tls_->stream = std::move(stream);
  }
  return opened;
}

std::span<std::byte> connection::receive_space() {
  if (!tls_) return protocol_.receive_space();
  if (protocol_.is_over()) return {};
  tls_->in.make_room(cipher_bytes);
  return tls_->in.space();
}

void connection::received(std::size_t bytes, std::uint64_t now_ns) {
  if (!tls_) return protocol_.received(bytes, now_ns);
  tls_->in.add(bytes);
}

std::span<const std::byte> connection::to_send() {
  if (!tls_) {
    const bool forgotten = protocol_.is_over() && !protocol_.flushes();
    return forgotten ? std::span<const std::byte>() : protocol_.to_send();
  }
  if (tls_->out.empty()) {
    tls_->out.make_room(cipher_bytes);
    tls_->out.add(tls_->stream->take(tls_->out.space()));
  }
  return tls_->out.filled();
}

void connection::sent(std::size_t bytes, std::uint64_t now_ns) {
  if (!tls_) return protocol_.sent(bytes, now_ns);
  tls_->out.remove(bytes);
}

void connection::work(std::uint64_t now_ns) {
  is_tired_ = false;
  if (!tls_) {
    protocol_.work(now_ns);
  } else {
    bool more = true;
    for (int round = 0; more && round < rounds_of_turn; ++round) {
      more = decrypt(now_ns);
      protocol_.work(now_ns);
      encrypt(now_ns);
    }
    is_tired_ = more;
  }
  if (protocol_.is_over() && over_since_ns_ == protocol::never) over_since_ns_ = now_ns;
}

std::uint64_t connection::next_work_ns() const {
  return is_tired_ ? 0 : protocol_.next_work_ns();
}

bool connection::is_done(std::uint64_t now_ns) const {
  if (!protocol_.is_over()) return false;
  if (now_ns >= over_since_ns_ && now_ns - over_since_ns_ >= patience_ns_) return true;
  // Encrypted bytes are sent in any case: they may be the alert that says why.
  const bool encrypted_left = tls_ && (!tls_->out.empty() || tls_->stream->pending() > 0);
  return !encrypted_left && !protocol_.flushes();
}

void connection::feed() {
  while (!tls_->in.empty()) {
    if (!tls_->stream->feed(tls_->in.filled())) return;
    tls_->in.remove(tls_->in.filled().size());
  }
}

// Returns whether there may be more to decrypt once there is room.
bool connection::decrypt(std::uint64_t now_ns) {
  if (protocol_.is_over()) return false;
  feed();
  const std::span<std::byte> space = protocol_.receive_space();
  if (space.empty()) return false;
  const result<std::size_t> got = tls_->stream->read(space);
  if (!got) {
    fail(got.error().code);
    return false;
  }
  if (!is_bound_ && tls_->stream->established()) {
    protocol_.bind(tls_->stream->binding());
    is_bound_ = true;
  }
  if (got.value() > 0) protocol_.received(got.value(), now_ns);
  return got.value() > 0;
}

void connection::encrypt(std::uint64_t now_ns) {
  while (!protocol_.to_send().empty() && (!protocol_.is_over() || protocol_.flushes())) {
    const result<std::size_t> taken = tls_->stream->write(protocol_.to_send());
    if (!taken) return fail(taken.error().code);
    if (taken.value() == 0) return;
    protocol_.sent(taken.value(), now_ns);
  }
}

void connection::fail(int code) {
  protocol_.end(code == ECONNRESET ? close_reason::peer_gone : close_reason::insecure);
}

}  // namespace far::server
