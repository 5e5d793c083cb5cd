// Clients over shared memory that do what they should not. The server ends their session, or lets them be, whatever
// they do; another client's bytes stay right, and it is still served.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "backend/shm/connection.h"
#include "tests/support/eventually.h"
#include "tests/support/shm_test_server.h"
#include "wire/rendezvous.h"

namespace far::server {
namespace {

using backend::shm::connection;
using wire::block_slots;
using wire::ring_file;
using wire::ring_operation;
using wire::ring_reply;
using wire::ring_request;
using wire::status;

constexpr std::uint64_t second_ns = 1'000'000'000;

// A client that can do anything.
class raw_client {
 public:
  explicit raw_client(const shm_test_server& server) {
    backend::shm::connection_options chosen;
    chosen.name = server.path();
    auto started = connection::start(chosen);
    FAR_CHECK(started.ok(), "the server listens");
    through_ = std::move(started).value();
    FAR_CHECK(through_->finish(30 * second_ns).ok(), "the server welcomes us");
    memory_ = through_->take_memory();
  }
  ~raw_client() { close(memory_); }

  [[nodiscard]] connection& through() { return *through_; }
  [[nodiscard]] int memory() const { return memory_; }
  [[nodiscard]] ring_file& rings() { return *reinterpret_cast<ring_file*>(through_->area() - wire::area_offset_bytes); }
  void send(const ring_request& asked) {
    through_->put(asked);
    through_->flush();
  }
  // Nothing when the connection ends, or no reply comes.
  std::optional<ring_reply> ask(const ring_request& asked) {
    send(asked);
    return reply();
  }
  std::optional<ring_reply> reply() {
    ring_reply got;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!through_->take(got)) {
      through_->wait(second_ns / 10);
      through_->check();
      if (!through_->alive() || std::chrono::steady_clock::now() > deadline) {
        if (through_->take(got)) return got;
        return std::nullopt;
      }
    }
    return got;
  }
  [[nodiscard]] bool is_ended() {
    return eventually([&] {
      through_->check();
      return !through_->alive();
    });
  }

 private:
  std::unique_ptr<connection> through_;
  int memory_ = -1;
};

ring_request request_of(ring_operation op, std::uint64_t first = 0, std::uint64_t count = 0) {
  ring_request request;
  request.op = op;
  request.cookie = 77;
  request.first = first;
  request.count = count;
  return request;
}

ring_request transfer_of(ring_operation op, std::uint64_t slot, std::uint32_t offset, std::uint32_t length,
                         std::uint32_t fragment = 0) {
  ring_request request = request_of(op, slot);
  request.offset_bytes = offset;
  request.length_bytes = length;
  request.fragment = fragment;
  return request;
}

// Stores something, and looks later whether it is still there and the server still answers.
class bystander {
 public:
  explicit bystander(const shm_test_server& server) : client_(server) {
    FAR_CHECK(client_.ask(request_of(ring_operation::allocate, 0, 2)).has_value(), "blocks for the bystander");
    for (std::size_t i = 0; i < page_bytes; ++i) client_.through().area()[i] = static_cast<std::byte>(i * 11 & 0xff);
    FAR_CHECK(client_.ask(transfer_of(ring_operation::write, 700, 0, page_bytes)).has_value(), "the bystander's bytes");
  }
  [[nodiscard]] bool is_unharmed() {
    std::memset(client_.through().area(), 0, page_bytes);
    const auto read = client_.ask(transfer_of(ring_operation::read, 700, 0, page_bytes));
    if (!read || read->status != 0 || read->cookie != 77) return false;
    for (std::size_t i = 0; i < page_bytes; ++i) {
      if (client_.through().area()[i] != static_cast<std::byte>(i * 11 & 0xff)) return false;
    }
    return true;
  }

 private:
  raw_client client_;
};

TEST(shm_hostile, a_correct_client_is_served) {
  shm_test_server server(32 * mib);
  raw_client client(server);
  EXPECT_EQ(client.ask(request_of(ring_operation::ping))->status, 0);
  const auto granted = client.ask(request_of(ring_operation::allocate, 3, 2));
  ASSERT_TRUE(granted);
  EXPECT_EQ(granted->values[0], 2u);
  const auto capacity = client.ask(request_of(ring_operation::capacity));
  EXPECT_EQ(capacity->values[0], 16 * block_slots);
  EXPECT_EQ(capacity->values[3], 2 * block_slots);

  // The server and the client see the same bytes; a call sees them too.
  auto* const mapped = static_cast<std::byte*>(
      mmap(nullptr, 2 * block_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, client.memory(), 3 * block_bytes));
  ASSERT_NE(mapped, MAP_FAILED);
  std::memset(mapped + block_bytes - 50, 0x5a, 100);  // across the end of a block
  ASSERT_EQ(client.ask(transfer_of(ring_operation::read, 4 * block_slots - 1, page_bytes - 50, 100, 9))->status, 0);
  std::byte* const fragment = client.through().area() + 9 * wire::fragment_bytes;
  EXPECT_EQ(std::memcmp(fragment, mapped + block_bytes - 50, 100), 0);

  const auto name = std::span<std::byte, wire::call_header_bytes>(fragment, wire::call_header_bytes);
  ASSERT_TRUE(wire::encode_call("checksum", name));
  const wire::range where{4 * block_slots - 1, page_bytes - 50, 100};
  const std::size_t arguments =
      wire::encode_read(std::span(&where, 1), std::span(fragment + wire::call_header_bytes, 1024));
  ring_request call = transfer_of(ring_operation::call, 0, 0, 0, 9);
  call.length_bytes = static_cast<std::uint32_t>(wire::call_header_bytes + arguments);
  const auto called = client.ask(call);
  ASSERT_TRUE(called);
  EXPECT_EQ(called->status, 0);
  ASSERT_EQ(called->length_bytes, 8u);
  std::uint64_t sum = 0;
  std::memcpy(&sum, fragment, sizeof sum);
  EXPECT_EQ(sum, wire::checksum({mapped + block_bytes - 50, 100}));
  munmap(mapped, 2 * block_bytes);

  const auto full = client.ask(request_of(ring_operation::allocate, 0, 16));
  EXPECT_EQ(full->values[0], 16u) << "those that it has, and all others";
  EXPECT_EQ(client.ask(request_of(ring_operation::free, 3, 2))->status, 0);
  EXPECT_TRUE(eventually([&] { return server.lent().report().held_blocks == 14; }));
  server.lent().validate();
}

TEST(shm_hostile, requests_that_make_no_sense_end_their_own_session) {
  shm_test_server server(64 * mib);
  bystander innocent(server);
  const auto max32 = std::numeric_limits<std::uint32_t>::max();
  const auto max64 = std::numeric_limits<std::uint64_t>::max();
  std::vector<ring_request> wrong{
      request_of(static_cast<ring_operation>(0)),
      request_of(static_cast<ring_operation>(255)),
      request_of(ring_operation::allocate, 0, 0),
      request_of(ring_operation::allocate, 0, max64),
      request_of(ring_operation::allocate, max64, 2),
      request_of(ring_operation::allocate, 32, 1),  // behind the end
      request_of(ring_operation::free, 5, 1),       // not its own
      request_of(ring_operation::free, max64, max64),
      transfer_of(ring_operation::read, 0, page_bytes, 1),
      transfer_of(ring_operation::read, 0, 0, 0),
      transfer_of(ring_operation::read, 0, 0, wire::fragment_bytes + 1),
      transfer_of(ring_operation::read, 0, 0, max32),
      transfer_of(ring_operation::read, 0, 0, 1, wire::ring_length),
      transfer_of(ring_operation::write, 0, 0, 1, max32),
      transfer_of(ring_operation::read, 4 * block_slots, 0, 1),  // not allocated
      transfer_of(ring_operation::write, max64, 0, 1),
      transfer_of(ring_operation::write, 2 * block_slots - 1, 4000, 200),  // its last bytes are not allocated
      transfer_of(ring_operation::call, 0, 0, 3),
  };
  for (const ring_request& request : wrong) {
    raw_client client(server);
    ASSERT_EQ(client.ask(request_of(ring_operation::allocate, 0, 2))->values[0], 2u);
    client.send(request);
    EXPECT_TRUE(client.is_ended()) << "operation " << int(request.op) << " first " << request.first;
    EXPECT_TRUE(client.through().revoked()) << "the client must know that its bytes go";
    EXPECT_TRUE(innocent.is_unharmed());
  }
  // The grace period of these sessions is nothing: their blocks come back.
  EXPECT_TRUE(eventually([&] { return server.lent().report().held_blocks == 2; }));
  EXPECT_EQ(server.endings(close_reason::malformed) + server.endings(close_reason::foreign_slot), wrong.size());
}

TEST(shm_hostile, positions_that_cannot_be_end_the_session) {
  shm_test_server server(32 * mib);
  bystander innocent(server);
  for (const std::uint32_t wrong : {65u, 0x80000000u, 0x90000000u}) {
    raw_client ahead(server);
    ahead.rings().requests_put.value = wrong;
    wire::ring_bell(ahead.through().socket());
    EXPECT_TRUE(ahead.is_ended());
    raw_client behind(server);
    behind.rings().replies_taken.value = wrong;
    behind.send(request_of(ring_operation::ping));
    EXPECT_TRUE(behind.is_ended());
    EXPECT_TRUE(innocent.is_unharmed());
  }
}

TEST(shm_hostile, garbage_in_the_rings_harms_nobody_else) {
  constexpr std::uint64_t seed = 4711;
  shm_test_server server(64 * mib);
  bystander innocent(server);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << " round " << round);
    raw_client client(server);
    static_cast<void>(client.ask(request_of(ring_operation::allocate, 0, 1)));
    ring_file& rings = client.rings();
    // Over everything but the head of the file, again and again while the server reads it.
    for (int i = 0; i < 400; ++i) {
      auto& entry = rings.requests[random() % wire::ring_length];
      for (auto& word : entry.words)
        word.store(random() % 3 == 0 ? random() : random() % 40, std::memory_order_relaxed);
      const std::uint64_t op = 16 + random() % 8;  // else nearly all would end at an unknown operation
      entry.words[0].store(op | (random() % 70) << 32, std::memory_order_relaxed);
      if (random() % 8 == 0) rings.requests_put.value.fetch_add(static_cast<std::uint32_t>(random() % 3));
      if (random() % 16 == 0) rings.replies_taken.value.store(static_cast<std::uint32_t>(random() % 100));
      if (random() % 16 == 0) rings.server_dozing.value.store(static_cast<std::uint32_t>(random()));
      if (random() % 32 == 0) wire::ring_bell(client.through().socket());
    }
    ASSERT_TRUE(innocent.is_unharmed());
  }
}

TEST(shm_hostile, memory_that_was_not_granted_is_noticed) {
  shm_test_server server(64 * mib);
  bystander innocent(server);
  raw_client client(server);
  ASSERT_EQ(client.ask(request_of(ring_operation::allocate, 0, 2))->values[0], 2u);
  struct stat about{};
  ASSERT_EQ(fstat(client.memory(), &about), 0);
  ASSERT_EQ(about.st_size, static_cast<off_t>(64 * mib));
  EXPECT_NE(ftruncate(client.memory(), 65 * mib), 0) << "the file cannot grow";
  EXPECT_NE(ftruncate(client.memory(), 0), 0) << "nor shrink under the server";

  auto* const mapped =
      static_cast<std::byte*>(mmap(nullptr, 64 * mib, PROT_READ | PROT_WRITE, MAP_SHARED, client.memory(), 0));
  ASSERT_NE(mapped, MAP_FAILED);
  std::memset(mapped, 1, 2 * block_bytes);
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  EXPECT_EQ(client.ask(request_of(ring_operation::ping))->status, 0) << "what was granted may be used";
  mapped[2 * block_bytes] = std::byte{1};
  EXPECT_TRUE(client.is_ended()) << "one page beyond";
  EXPECT_TRUE(client.through().revoked());
  EXPECT_EQ(server.endings(close_reason::foreign_slot), 1u);
  EXPECT_TRUE(innocent.is_unharmed());
  // And nothing of it stays filled, whatever the client keeps mapped.
  EXPECT_TRUE(eventually([&] { return fstat(client.memory(), &about) == 0 && about.st_blocks == 0; }))
      << about.st_blocks;
  munmap(mapped, 64 * mib);
  EXPECT_EQ(server.lent().report().held_blocks, 2u);
}

// The mapping of a client outlives its session, whether the server ended it or the client did.
TEST(shm_hostile, what_is_filled_after_the_session_is_taken_away_again) {
  for (const bool closes_itself : {false, true}) {
    shm_test_server server(64 * mib);
    bystander innocent(server);
    auto client = std::make_unique<raw_client>(server);
    ASSERT_EQ(client->ask(request_of(ring_operation::allocate, 0, 2))->values[0], 2u);
    const int file = dup(client->memory());
    auto* const mapped = static_cast<std::byte*>(mmap(nullptr, 64 * mib, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    ASSERT_NE(mapped, MAP_FAILED);
    if (!closes_itself) {
      mapped[2 * block_bytes] = std::byte{1};
      EXPECT_TRUE(client->is_ended());
    }
    client.reset();
    EXPECT_TRUE(eventually([&] { return server.lent().report().held_blocks == 2; })) << "the bystander's are left";
    for (int round = 0; round < 3; ++round) {
      std::memset(mapped, 1, 16 * mib);
      struct stat about{};
      EXPECT_TRUE(eventually([&] { return fstat(file, &about) == 0 && about.st_blocks == 0; })) << about.st_blocks;
    }
    munmap(mapped, 64 * mib);
    close(file);
    EXPECT_TRUE(innocent.is_unharmed());
  }
}

TEST(shm_hostile, who_does_not_read_replies_waits_alone) {
  shm_test_server server(32 * mib);
  bystander innocent(server);
  raw_client client(server);
  // More than both rings hold: the server stops taking requests when it has no room for replies.
  std::uint64_t sent = 0;
  const auto fill = [&] {
    while (client.through().room() > 0) {
      client.send(request_of(ring_operation::ping));
      ++sent;
    }
    return sent >= 2 * wire::ring_length;
  };
  ASSERT_TRUE(eventually(fill));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(client.through().room(), 0u);
  EXPECT_TRUE(innocent.is_unharmed());
  // It was only slow: everything is answered once it reads.
  for (std::uint64_t answered = 0; answered < sent; ++answered) ASSERT_TRUE(client.reply().has_value()) << answered;
}

TEST(shm_hostile, whoever_asks_more_than_its_tenant_may_waits) {
  shm_test_server server(32 * mib);
  server.lent().set_limits({{"default", {.connections = 2, .requests = 100}}});
  raw_client client(server);
  const auto began = std::chrono::steady_clock::now();
  for (unsigned i = 0; i < 40; ++i) client.send(request_of(ring_operation::ping));
  for (unsigned i = 0; i < 40; ++i) ASSERT_TRUE(client.reply().has_value()) << i;
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(250));
  raw_client second(server);
  auto third = connection::start({.name = server.path(), .shown = {}});
  ASSERT_TRUE(third.ok());
  const result<void> outcome = third.value()->finish(30 * second_ns);
  ASSERT_FALSE(outcome.ok());
  EXPECT_NE(outcome.error().message.find("too many connections"), std::string::npos) << outcome.error().message;
}

TEST(shm_hostile, one_client_too_many_is_told_so) {
  shm_test_server server(32 * mib);
  server.limit_connections(2);
  bystander innocent(server);
  auto second = std::make_unique<raw_client>(server);
  const auto connect = [&] {
    auto started = connection::start({.name = server.path(), .shown = {}});
    FAR_CHECK(started.ok(), "the server listens");
    const result<void> outcome = started.value()->finish(30 * second_ns);
    return outcome.ok() ? "welcome" : outcome.error().message;
  };
  const std::string said = connect();
  EXPECT_NE(said.find("too many connections"), std::string::npos) << said;
  EXPECT_NE(said.find("end programs that use it"), std::string::npos) << said;
  EXPECT_TRUE(innocent.is_unharmed());
  second.reset();
  EXPECT_TRUE(eventually([&] { return connect() == "welcome"; })) << "there is room for another one again";
}

TEST(shm_hostile, whoever_guesses_tokens_has_to_wait) {
  shm_test_server server(store_settings{.memory_bytes = 32 * mib, .quota_bytes = {}, .make_source = {}},
                         "0123456789abcdef");
  const auto guess = [&](const std::string& token) {
    auto started = connection::start({.name = server.path(), .shown = {.token = token}});
    FAR_CHECK(started.ok(), "the server listens");
    const result<void> outcome = started.value()->finish(30 * second_ns);
    return outcome.ok() ? "welcome" : outcome.error().message;
  };
  EXPECT_EQ(guess("0123456789abcdef"), "welcome");
  std::string said;
  for (std::uint64_t i = 0; i < 30 * failed_logins::burst && said.find("throttled") == said.npos; ++i) {
    said = guess("another token, as long");
  }
  EXPECT_NE(said.find("throttled"), std::string::npos) << said;
  // One a second is heard, so a stalled machine may have to guess again.
  bool waits = false;
  for (int tries = 0; tries < 10 && !waits; ++tries) {
    for (std::uint64_t i = 0; i < 2 * failed_logins::burst; ++i) static_cast<void>(guess("another token, as long"));
    waits = guess("0123456789abcdef").find("throttled") != std::string::npos;
  }
  EXPECT_TRUE(waits);
}

TEST(shm_hostile, a_handshake_that_is_none_ends_and_a_silent_one_too) {
  shm_test_server server(shm_test_server::lending(16 * mib, 0), "", 2 * second_ns);
  bystander innocent(server);
  const int silent = wire::connect_to(server.path()).value();
  const int garbage = wire::connect_to(server.path()).value();
  std::array<std::byte, 200> bytes;
  bytes.fill(std::byte{0x41});
  ASSERT_EQ(wire::send_packet(garbage, bytes), 0);
  const int descriptors = wire::connect_to(server.path()).value();
  const std::array<int, 2> passed{silent, garbage};
  ASSERT_EQ(wire::send_packet(descriptors, bytes, passed), 0);
  const int large = wire::connect_to(server.path()).value();
  ASSERT_EQ(wire::send_packet(large, std::vector<std::byte>(100'000)), 0);
  for (const int socket : {silent, garbage, descriptors, large}) {
    wire::packet got;
    int code = EAGAIN;
    EXPECT_TRUE(eventually([&] {
      code = wire::receive_packet(socket, bytes, got);
      return code != EAGAIN;
    }));
    EXPECT_EQ(code, ECONNRESET);
    close(socket);
  }
  EXPECT_EQ(server.endings(close_reason::late_handshake), 1u);
  EXPECT_EQ(server.endings(close_reason::malformed), 3u);
  EXPECT_TRUE(innocent.is_unharmed());
}

TEST(shm_hostile, a_client_may_not_say_anything_but_bells_later) {
  shm_test_server server(16 * mib);
  bystander innocent(server);
  raw_client client(server);
  for (int i = 0; i < 1000; ++i) wire::ring_bell(client.through().socket());
  EXPECT_EQ(client.ask(request_of(ring_operation::ping))->status, 0);
  // The answer to the ping came through the rings: the bells may still fill the socket (EAGAIN).
  const std::array<std::byte, 2> bytes{};
  ASSERT_TRUE(eventually([&] { return wire::send_packet(client.through().socket(), bytes) == 0; }));
  EXPECT_TRUE(client.is_ended());
  EXPECT_TRUE(innocent.is_unharmed());
}

}  // namespace
}  // namespace far::server
