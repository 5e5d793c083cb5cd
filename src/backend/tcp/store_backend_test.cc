// What a backend does beside its connections.
#include "backend/tcp/store_backend.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>

#include "backend/tcp/connection.h"

namespace far::backend {
namespace {

// A server that is never reached.
class nowhere final : public byte_stream {
 public:
  [[nodiscard]] int connect() override { return 0; }
  [[nodiscard]] int finish_connecting() override { return EINPROGRESS; }
  [[nodiscard]] std::ptrdiff_t try_send(std::span<const iovec> /*chunks*/) override { return -ENOTCONN; }
  [[nodiscard]] std::ptrdiff_t try_receive(std::span<const iovec> /*into*/) override { return -ENOTCONN; }
  void close() override {}
  void abandon() override {}
  [[nodiscard]] int descriptor() const override { return -1; }
  void wait(std::uint64_t /*timeout_ns*/) override {}
};

class set_clock final : public platform::clock {
 public:
  [[nodiscard]] std::uint64_t now_ns() const override { return now_ns_; }
  std::uint64_t now_ns_ = 1;
};

store_connection* watched = nullptr;
unsigned reads = 0;
bool was_free = false;

result<std::string> read_while_nobody_waits(const std::string& /*path*/) {
  ++reads;
  was_free = watched->lock.try_lock();
  if (was_free) watched->lock.unlock();
  return std::string("a token of enough letters");
}

class one_connection final : public store_backend {
 public:
  explicit one_connection(const platform::clock& time)
      : store_backend("tcp://nowhere", "farheapd", 1'000'000'000,
                      {.name = "token", .file = "/proc/self/exe", .read = read_while_nobody_waits, .tls = nullptr},
                      time),
        connection({.peer = "tcp://nowhere", .timeout_ns = 1'000'000'000, .opens_session = true},
                   std::make_unique<nowhere>(), session_, {}, time, nullptr) {
    add_connection(connection);
    connect_later();
  }
  void prepare_exit() override {}
  void after_fork_in_child() override {}
  [[nodiscard]] std::uint64_t lease_ns() const override { return 0; }
  [[nodiscard]] std::uint64_t server_identity() const override { return 0; }
  [[nodiscard]] std::string describe() const override { return "nowhere"; }

 private:
  [[nodiscard]] std::uint64_t usable_slots() const override { return 0; }
  [[nodiscard]] const session_epoch& session() const override { return session_; }
  [[nodiscard]] far::error has_no_room() const override { return {"no room", ENOSPC}; }

  tcp_session session_;

 public:
  tcp_connection connection;
};

// Other threads spin on a connection's lock, and a disk may take long.
TEST(StoreBackend, SecretsAreReadWithoutTheLockOfAConnection) {
  set_clock time;
  one_connection tended(time);
  watched = &tended.connection;
  tended.tend();
  ASSERT_EQ(reads, 1u);
  EXPECT_TRUE(was_free);
  tended.tend();
  EXPECT_EQ(reads, 1u) << "the file is the same";
}

}  // namespace
}  // namespace far::backend
