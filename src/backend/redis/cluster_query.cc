#include "backend/redis/cluster_query.h"

#include <poll.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "backend/redis/redis_greeting.h"
#include "backend/redis/reply_reader.h"
#include "backend/tcp/secure_stream.h"
#include "backend/tcp/socket_stream.h"
#include "platform/clock.h"
#include "platform/wait_for_events.h"

namespace far::backend {
namespace {

// One conversation with one node.
class query final : private reply_sink {
 public:
  query(const tcp_endpoint& node, const redis_options& chosen, const redis_trust& trust)
      : node_(node), chosen_(chosen), trust_(trust), until_ns_(clock_.now_ns() + chosen.timeout_ns) {}

  [[nodiscard]] result<std::string> ask() {
    const result<std::vector<socket_address>> addresses = resolve(node_);
    if (!addresses) return addresses.error();
    result<std::unique_ptr<byte_stream>> opened =
        socket_stream::create(std::make_shared<const server_addresses>(addresses.value()));
    if (!opened) return opened.error();
    std::unique_ptr<byte_stream> stream = std::move(opened).value();
    if (trust_.tls) stream = std::make_unique<secure_stream>(std::move(stream), *trust_.tls, node_.host);
    int code = 0;
    // The name may stand for several addresses.
    for (std::size_t i = 0; i < addresses.value().size(); ++i) {
      if ((code = connect(*stream)) == 0) break;
      stream->close();
    }
    if (code != 0) return failed(code, stream->explanation());
    return converse(*stream);
  }

 private:
  [[nodiscard]] error failed(int code, const char* why) const {
    return {"Redis Cluster node " + node_.text() + " cannot be asked: " + (why[0] != '\0' ? why : std::strerror(code)) +
                "; check the address, and that Redis runs and listens there",
            code};
  }

  void wait(const byte_stream& stream) const {
    constexpr std::int64_t longest_ns = 50'000'000;
    pollfd watched{.fd = stream.descriptor(), .events = POLLIN, .revents = 0};
    platform::wait_for_events({&watched, 1}, longest_ns);
  }

  [[nodiscard]] int connect(byte_stream& stream) const {
    int code = stream.connect();
    while (code == 0 && (code = stream.finish_connecting()) == EINPROGRESS) {
      if (clock_.now_ns() >= until_ns_) return ETIMEDOUT;
      wait(stream);
      code = 0;
    }
    return code;
  }

  [[nodiscard]] result<std::string> converse(byte_stream& stream) {
    cluster_directory unused;
    redis_settings settings;
    settings.user = chosen_.user;
    settings.password = trust_.password;
    settings.cluster = &unused;
    greeting_.begin(settings);
    std::array<std::byte, 65536> received;
    while (clock_.now_ns() < until_ns_) {
      const std::span<const std::byte> out = greeting_.to_send();
      const iovec chunk{const_cast<std::byte*>(out.data()), out.size()};
      const std::ptrdiff_t sent = stream.try_send(std::span(&chunk, out.empty() ? 0 : 1));
      if (sent < 0) return failed(static_cast<int>(-sent), stream.explanation());
      greeting_.sent(static_cast<std::size_t>(sent));
      const iovec room{received.data(), received.size()};
      const std::ptrdiff_t got = stream.try_receive({&room, 1});
      if (got < 0) return failed(static_cast<int>(-got), stream.explanation());
      if (got == 0) {
        wait(stream);
        continue;
      }
      if (!reader_.feed({received.data(), static_cast<std::size_t>(got)})) return not_redis();
      reply_reader::outcome next = reply_reader::outcome::taken;
      while (nodes_.empty() && (next = reader_.next(*this)) == reply_reader::outcome::taken) {
        if (outcome_ == redis_greeting::outcome::unavailable) return failed(EHOSTDOWN, text_.c_str());
        if (outcome_ != redis_greeting::outcome::refused) continue;
        return error{"Redis Cluster node " + node_.text() + " cannot be used: " + greeting_.explanation(), EACCES};
      }
      if (!nodes_.empty()) return nodes_;
      if (next == reply_reader::outcome::broken) return not_redis();
    }
    return failed(ETIMEDOUT, "it does not answer");
  }

  [[nodiscard]] error not_redis() const {
    return failed(EPROTO,
                  "it does not speak the protocol of Redis; rediss+cluster: is with TLS, redis+cluster: without");
  }

  void take(const redis_reply& reply) override {
    const bool is_description = greeting_.awaits_nodes() && reply.is == redis_reply::kind::text;
    text_ = reply.text;
    outcome_ = greeting_.take(reply);
    if (is_description) nodes_ = reply.text;
  }

  const tcp_endpoint& node_;
  const redis_options& chosen_;
  const redis_trust& trust_;
  const platform::monotonic_clock clock_;
  const std::uint64_t until_ns_;
  redis_greeting greeting_;
  reply_reader reader_;
  redis_greeting::outcome outcome_ = redis_greeting::outcome::more;
  std::string text_;
  std::string nodes_;
};

}  // namespace

result<cluster_reply> ask_for_nodes(const std::vector<tcp_endpoint>& seeds, const redis_options& chosen,
                                    const redis_trust& trust) {
  error last{"no node of the Redis Cluster is named", EINVAL};
  for (const tcp_endpoint& seed : seeds) {
    result<std::string> nodes = query(seed, chosen, trust).ask();
    if (nodes)
      return cluster_reply{std::move(nodes).value(), node_address::parse(seed.host + ":" + std::to_string(seed.port))};
    last = nodes.error();
    if (last.code == EACCES) break;
  }
  return last;
}

}  // namespace far::backend
