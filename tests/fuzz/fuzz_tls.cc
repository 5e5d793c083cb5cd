// A server behind TLS, and a client whose bytes are cut, changed, dropped and mixed with others on their way. A
// connection whose bytes arrive as they were sent serves; any other ends, or waits, and harms nothing.
#include <algorithm>
#include <array>
#include <memory>

#include "fuzz/fuzz_target.h"
#include "fuzz/server_driver.h"
#include "server/connection.h"
#include "tests/support/tls_test_files.h"
#include "wire/tls.h"

namespace far::fuzz {

namespace {

enum class step_kind : std::uint8_t {
  carry,   // some bytes to the server, and all of its to the client
  change,  // a bit of the next bytes to the server
  drop,    // some of them
  inject,  // bytes that no client has sent
  hello,   // a hello inside of TLS
  say,     // other bytes inside of it
  time,    // passes
};
constexpr std::size_t step_kinds = static_cast<std::size_t>(step_kind::time) + 1;
constexpr std::size_t most_steps = 100;

struct trust {
  wire::tls_test_files files;
  std::unique_ptr<wire::tls_context> server;
  std::unique_ptr<wire::tls_context> client;

  trust() {
    files.make_authority("authority");
    files.make_server("server", "authority", "DNS:far.test");
    auto made = wire::tls_context::for_server(files.certificate("server"), files.key("server"));
    auto trusting = wire::tls_context::for_client(files.certificate("authority"));
    FUZZ_EXPECT(made.ok() && trusting.ok());
    server = std::move(made).value();
    client = std::move(trusting).value();
  }
};

class attack {
 public:
  explicit attack(trust& shown) {
    auto served = server::connection::create(at_.settings(), at_.counters(), shown.server.get(), at_.now_ns, "fuzz");
    auto stream = wire::tls_stream::create(*shown.client, "far.test");
    FUZZ_EXPECT(served.ok() && stream.ok());
    served_ = std::move(served).value();
    client_ = std::move(stream).value();
  }
  ~attack() { served_->messages().leave(at_.now_ns); }
  attack(const attack&) = delete;
  attack& operator=(const attack&) = delete;

  void take_step(choices& from) {
    encrypt();
    switch (static_cast<step_kind>(from.number<std::uint8_t>() % step_kinds)) {
      case step_kind::carry: carry(from.number<std::uint16_t>()); break;
      case step_kind::change: {
        const std::size_t where = from.number<std::uint16_t>();
        if (where >= to_server_.size()) break;
        to_server_[where] ^= static_cast<std::byte>(1 << (where % 8));
        is_damaged_ = true;
        break;
      }
      case step_kind::drop: {
        const std::size_t count = std::min<std::size_t>(from.number<std::uint8_t>(), to_server_.size());
        to_server_.erase(to_server_.begin(), to_server_.begin() + static_cast<std::ptrdiff_t>(count));
        is_damaged_ |= count > 0;
        break;
      }
      case step_kind::inject: {
        const std::span<const std::byte> raw = from.take(from.number<std::uint8_t>());
        to_server_.insert(to_server_.begin(), raw.begin(), raw.end());
        is_damaged_ |= !raw.empty();
        break;
      }
      case step_kind::hello: {
        byte_string payload(wire::maximum_handshake_bytes);
        payload.resize(wire::encode(wire::hello{}, payload));
        say(message_of({.op = wire::opcode::hello}, payload));
        break;
      }
      case step_kind::say: {
        const std::span<const std::byte> raw = from.take(from.number<std::uint8_t>());
        is_damaged_ |= !raw.empty();
        say(raw);
        break;
      }
      case step_kind::time:
        at_.now_ns += std::uint64_t{from.number<std::uint8_t>()} * 1'000'000'000 / 20;
        is_late_ = true;
        work();
        break;
    }
  }

  void finish() {
    encrypt();
    carry(~std::size_t{0});
    encrypt();
    carry(~std::size_t{0});
    if (!is_damaged_ && !is_late_ && hellos_ < 2) {
      FUZZ_EXPECT(client_->established() && !served_->messages().is_over());
      FUZZ_EXPECT(answered_ == (hellos_ > 0));
    }
    at_.lent().validate();
  }

 private:
  static constexpr std::size_t patience = 10'000;

  void encrypt() {
    while (!plain_.empty()) {
      const result<std::size_t> taken = client_->write(plain_);
      if (!taken || taken.value() == 0) break;
      plain_.erase(plain_.begin(), plain_.begin() + static_cast<std::ptrdiff_t>(taken.value()));
    }
    std::array<std::byte, 4096> out{};
    while (const std::size_t got = client_->take(out))
      to_server_.insert(to_server_.end(), out.begin(), out.begin() + got);
  }

  void say(std::span<const std::byte> bytes) {
    plain_.insert(plain_.end(), bytes.begin(), bytes.end());
    hellos_ += bytes.empty() ? 0 : 1;
  }

  void work() {
    served_->work(at_.now_ns);
    at_.pass_quiet_point();
  }

  void carry(std::size_t most) {
    for (std::size_t rounds = 0; rounds < patience; ++rounds) {
      const std::span<std::byte> space = served_->receive_space();
      const std::size_t count = std::min({most, space.size(), to_server_.size()});
      std::copy_n(to_server_.begin(), count, space.begin());
      to_server_.erase(to_server_.begin(), to_server_.begin() + static_cast<std::ptrdiff_t>(count));
      if (count > 0) served_->received(count, at_.now_ns);
      most -= count;
      work();
      const bool sent = hear();
      if (served_->is_done(at_.now_ns) || (count == 0 && !sent && served_->next_work_ns() > at_.now_ns)) return;
    }
    FAR_CHECK(false, "a connection does not come to rest");
  }

  bool hear() {
    const std::span<const std::byte> out = served_->to_send();
    if (out.empty()) return false;
    static_cast<void>(client_->feed(out));
    served_->sent(out.size(), at_.now_ns);
    std::array<std::byte, 4096> heard{};
    const result<std::size_t> got = client_->read(heard);
    answered_ |= got && got.value() > 0;
    return true;
  }

  small_store at_;
  std::unique_ptr<server::connection> served_;
  std::unique_ptr<wire::tls_stream> client_;
  byte_string plain_;
  byte_string to_server_;
  bool is_damaged_ = false;
  bool is_late_ = false;
  unsigned hellos_ = 0;
  bool answered_ = false;
};

}  // namespace

std::vector<byte_string> seeds() {
  return {
      seed_of({0, 255, 255, 4, 0, 255, 255}),                                // all is well
      seed_of({4, 0, 7, 0, 0, 50, 0, 0, 255, 255}),                          // in pieces
      seed_of({1, 40, 0, 0, 255, 255}),                                      // the first bytes are changed
      seed_of({0, 255, 255, 4, 1, 9, 0, 0, 255, 255}),                       // those after the handshake are
      seed_of({2, 9, 0, 255, 255, 6, 255}),                                  // some are missing, for ever
      seed_of({3, 5, 22, 3, 1, 0, 1, 0, 255, 255}),                          // others came first
      seed_of({0, 255, 255, 5, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 255, 255}),  // inside of TLS
  };
}

}  // namespace far::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  static far::fuzz::trust shown;
  far::fuzz::choices from(std::as_bytes(std::span(data, bytes)));
  far::fuzz::attack run(shown);
  for (std::size_t steps = 0; steps < far::fuzz::most_steps && !from.empty(); ++steps) run.take_step(from);
  run.finish();
  return 0;
}
