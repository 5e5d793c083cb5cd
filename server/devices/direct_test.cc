// Connections that lead to a device's process: what comes over them, and what the server makes of it.
#include "server/devices/direct.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "platform/clock.h"
#include "server/devices/calls.h"
#include "server/devices/host.h"
#include "server/metrics.h"
#include "wire/bytes.h"
#include "wire/message.h"

namespace far::server {
namespace {

using wire::device_op;
using wire::device_outcome;

// Operations of tests/devices/troublemaker.cc.
enum : std::uint32_t { add = 1, value = 2, hang = 5, leave = 8, wait_and_add = 12 };

constexpr std::uint64_t cookie = 77;
constexpr int patience_ms = 60'000;

std::uint64_t now() {
  return platform::monotonic_clock().now_ns();
}

std::vector<std::byte> encoded(const wire::device_request& asked) {
  std::vector<std::byte> bytes(wire::device_request_bytes);
  wire::encode(asked, std::span(bytes).first<wire::device_request_bytes>());
  bytes.insert(bytes.end(), asked.bytes.begin(), asked.bytes.end());
  return bytes;
}

std::vector<std::byte> message_of(const wire::device_request& asked) {
  std::vector<std::byte> bytes(wire::header_bytes + wire::call_header_bytes);
  EXPECT_TRUE(wire::encode_call(wire::device_call_name,
                                std::span(bytes).subspan<wire::header_bytes, wire::call_header_bytes>()));
  const std::vector<std::byte> arguments = encoded(asked);
  bytes.insert(bytes.end(), arguments.begin(), arguments.end());
  const auto payload = std::span<const std::byte>(bytes).subspan(wire::header_bytes);
  wire::encode({.op = wire::opcode::call,
                .payload_bytes = static_cast<std::uint32_t>(payload.size()),
                .cookie = cookie,
                .payload_checksum = wire::checksum(payload)},
               std::span(bytes).first<wire::header_bytes>());
  return bytes;
}

struct answer {
  device_outcome outcome = device_outcome::ok;
  std::vector<std::byte> bytes;

  [[nodiscard]] std::uint64_t number() const {
    EXPECT_EQ(bytes.size(), sizeof(std::uint64_t));
    return bytes.size() == sizeof(std::uint64_t) ? wire::load<std::uint64_t>(bytes.data()) : ~std::uint64_t{0};
  }
};

// The client's end of a connection.
class client_end {
 public:
  explicit client_end(int socket) : socket_(socket) {}
  ~client_end() { close(socket_); }
  client_end(const client_end&) = delete;
  client_end& operator=(const client_end&) = delete;

  void send(std::span<const std::byte> bytes) const {
    ASSERT_EQ(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  // Nothing: the process has ended the connection.
  [[nodiscard]] std::optional<answer> receive() const {
    std::array<std::byte, wire::header_bytes> head;
    if (!receive_all(head)) return std::nullopt;
    const std::optional<wire::header> said = wire::decode_header(head);
    EXPECT_TRUE(said && said->is_reply && said->cookie == cookie && said->result == wire::status::ok);
    std::vector<std::byte> payload(said ? said->payload_bytes : 0);
    if (!receive_all(payload)) return std::nullopt;
    EXPECT_EQ(wire::checksum(payload), said->payload_checksum);
    const std::optional<wire::device_reply> reply = wire::decode_device_reply(payload);
    if (!reply) return std::nullopt;
    return answer{reply->outcome, {reply->bytes.begin(), reply->bytes.end()}};
  }
  [[nodiscard]] std::optional<answer> call(const wire::device_request& asked) const {
    send(message_of(asked));
    return receive();
  }
  [[nodiscard]] bool is_over() const { return !receive(); }

 private:
  [[nodiscard]] bool receive_all(std::span<std::byte> into) const {
    while (!into.empty()) {
      pollfd ready{socket_, POLLIN, 0};
      if (poll(&ready, 1, patience_ms) <= 0) {
        ADD_FAILURE() << "the process neither answers nor ends the connection";
        return false;
      }
      const ssize_t got = recv(socket_, into.data(), into.size(), 0);
      if (got <= 0) return false;
      into = into.subspan(static_cast<std::size_t>(got));
    }
    return true;
  }

  const int socket_;
};

// One device, 7, of one session in a store, with the calls 1 and 2 behind it: constructed, and 5 added.
class DirectCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    result<std::shared_ptr<device_host>> started = device_host::start(
        {{.file = TROUBLEMAKER, .deadline_ns = 60'000'000'000, .options = ""}, {.file = SORTED, .options = ""}},
        FARHEAPD);
    ASSERT_TRUE(started.ok()) << started.error().message;
    host = std::move(started).value();
    lent = store::create({.memory_bytes = 128 * mib, .quota_bytes = {}, .make_source = {}}).value();
    client = lent->open("default", 1).value();
    construct(7, "troublemaker");
    EXPECT_EQ(by_server(adding(5, 2)).number(), 5u);
  }
  void TearDown() override {
    lent->validate();
    lent->leave(client, now());
  }

  void construct(std::uint64_t number, const std::string& plugin) {
    const std::string bytes = std::string(1, static_cast<char>(plugin.size())) + plugin;
    ASSERT_EQ(by_server({.op = device_op::construct,
                         .device = number,
                         .call = 1,
                         .room_bytes = 16 * mib,
                         .bytes = std::as_bytes(std::span(bytes))})
                  .outcome,
              device_outcome::ok);
  }
  [[nodiscard]] wire::device_request adding(std::uint64_t amount, std::uint64_t call) {
    amount_ = amount;
    return {.op = device_op::compute,
            .code = add,
            .device = 7,
            .call = call,
            .bytes = std::as_bytes(std::span(&amount_, 1))};
  }
  [[nodiscard]] static wire::device_request asking(std::uint64_t call) {
    return {.op = device_op::ask, .code = value, .device = 7, .call = call};
  }

  // As the event loop does it.
  [[nodiscard]] std::unique_ptr<client_end> open(std::uint64_t device = 7) {
    const wire::device_request wanted{.op = device_op::direct, .device = device, .call = 1};
    const device_calls calls(host);
    if (!calls.may_hand_over(*client.to, wanted)) return nullptr;
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    EXPECT_TRUE(calls.hand_over(*client.to, device, ends[1], cookie));
    close(ends[1]);
    auto opened = std::make_unique<client_end>(ends[0]);
    const std::optional<answer> greeting = opened->receive();
    EXPECT_TRUE(greeting && greeting->outcome == device_outcome::ok);
    return opened;
  }

  [[nodiscard]] answer by_server(const wire::device_request& asked) {
    const std::vector<std::byte> arguments = encoded(asked);
    device_calls calls(host);
    for (;;) {
      const device_calls::progress got = calls.go_on(*client.to, arguments, now(), space);
      EXPECT_EQ(got.result, wire::status::ok);
      if (got.retry_at_ns != 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        host->look_after(now());
        continue;
      }
      const std::optional<wire::device_reply> reply =
          wire::decode_device_reply(std::span(space).first(got.reply_bytes));
      if (!reply) return {device_outcome::refused, {}};
      return {reply->outcome, {reply->bytes.begin(), reply->bytes.end()}};
    }
  }
  void look_after_until_none_are_left() {
    for (int i = 0; i < 6000 && host->devices() > 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      host->look_after(now());
    }
    EXPECT_EQ(host->devices(), 0u);
  }

  std::vector<std::byte> space = std::vector<std::byte>(wire::maximum_payload_bytes);
  std::shared_ptr<device_host> host;
  std::unique_ptr<store> lent;
  attachment client;

 private:
  std::uint64_t amount_ = 0;
};

TEST_F(DirectCalls, AreAnsweredByTheProcess) {
  const std::unique_ptr<client_end> direct = open();
  ASSERT_NE(direct, nullptr);
  EXPECT_EQ(direct->call(adding(1, 3))->number(), 6u);
  EXPECT_EQ(direct->call(asking(4))->number(), 6u);
  EXPECT_EQ(direct->call({.op = device_op::read, .device = 7, .call = 5, .object = 9})->outcome,
            device_outcome::no_object);
  EXPECT_EQ(direct->call({.op = device_op::compute, .code = 3, .device = 7, .call = 6})->outcome,
            device_outcome::refused);
  EXPECT_EQ(by_server(adding(1, 7)).number(), 7u);
  EXPECT_EQ(direct->call(adding(1, 8))->number(), 8u);
}

// Whichever way a change comes, and comes again.
TEST_F(DirectCalls, TakeEffectOnce) {
  const std::unique_ptr<client_end> direct = open();
  ASSERT_NE(direct, nullptr);
  EXPECT_EQ(direct->call(adding(5, 2))->number(), 5u);
  EXPECT_EQ(direct->call(adding(1, 3))->number(), 6u);
  EXPECT_EQ(direct->call(asking(4))->number(), 6u);
  EXPECT_EQ(direct->call(adding(1, 3))->number(), 6u);
  EXPECT_EQ(by_server(adding(1, 3)).number(), 6u);
  EXPECT_EQ(by_server(adding(1, 3)).number(), 6u);
  EXPECT_EQ(by_server(adding(1, 5)).number(), 7u);
  EXPECT_EQ(direct->call(adding(1, 3))->outcome, device_outcome::repeated);
  EXPECT_EQ(direct->call(adding(1, 5))->number(), 7u);
  EXPECT_EQ(direct->call(adding(1, 6))->number(), 8u);
  EXPECT_EQ(by_server(adding(1, 5)).number(), 7u) << "the server remembers it still";
  EXPECT_EQ(by_server(adding(1, 4)).outcome, device_outcome::repeated);
  EXPECT_EQ(by_server(asking(7)).number(), 8u);
}

TEST_F(DirectCalls, MayBeNothingElse) {
  const auto ends = [&](std::span<const std::byte> bytes) {
    const std::unique_ptr<client_end> direct = open();
    if (!direct) return false;
    direct->send(bytes);
    return direct->is_over();
  };
  EXPECT_TRUE(ends(std::vector<std::byte>(64, std::byte{0x5a})));
  EXPECT_TRUE(ends(message_of({.op = device_op::destruct, .device = 7, .call = 3})));
  EXPECT_TRUE(ends(message_of({.op = device_op::save, .device = 7, .call = 3})));
  EXPECT_TRUE(ends(message_of({.op = device_op::direct, .device = 7, .call = 3})));
  wire::device_request of_another = asking(3);
  of_another.device = 8;
  EXPECT_TRUE(ends(message_of(of_another)));
  std::vector<std::byte> damaged = message_of(asking(3));
  damaged.back() ^= std::byte{1};
  EXPECT_TRUE(ends(damaged));
  std::vector<std::byte> two = message_of(asking(3));
  const std::vector<std::byte> second = message_of(asking(4));
  two.insert(two.end(), second.begin(), second.end());
  EXPECT_TRUE(ends(two));
  std::vector<std::byte> ping(wire::header_bytes);
  wire::encode({.op = wire::opcode::ping, .cookie = cookie}, std::span(ping).first<wire::header_bytes>());
  EXPECT_TRUE(ends(ping));
  EXPECT_EQ(by_server(asking(5)).number(), 5u) << "the device is there after all of them";
}

// The process has one place for a message, and the server comes first.
TEST_F(DirectCalls, ThatStopInTheMiddleHoldUpNobody) {
  const std::unique_ptr<client_end> half = open();
  ASSERT_NE(half, nullptr);
  const std::vector<std::byte> message = message_of(asking(3));
  half->send(std::span(message).first(wire::header_bytes + 10));
  EXPECT_EQ(by_server(adding(1, 3)).number(), 6u);
  EXPECT_EQ(by_server(adding(1, 4)).number(), 7u);
  EXPECT_TRUE(half->is_over());

  construct(8, "sorted");
  const std::string much(wire::most_device_bytes, 'x');
  EXPECT_EQ(
      by_server({.op = device_op::write, .device = 8, .call = 2, .bytes = std::as_bytes(std::span(much))}).outcome,
      device_outcome::ok);
  const std::unique_ptr<client_end> deaf = open(8);
  ASSERT_NE(deaf, nullptr);
  deaf->send(message_of({.op = device_op::read, .device = 8, .call = 3}));
  EXPECT_EQ(by_server({.op = device_op::read, .device = 8, .call = 4}).bytes.size(), much.size());
}

TEST_F(DirectCalls, EndWithTheNextConnection) {
  const std::unique_ptr<client_end> first = open();
  const std::unique_ptr<client_end> second = open();
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(first->is_over());
  EXPECT_EQ(second->call(asking(3))->number(), 5u);
}

TEST_F(DirectCalls, EndAtTheirDeadline) {
  const std::unique_ptr<client_end> direct = open();
  ASSERT_NE(direct, nullptr);
  const wire::device_request hanging{
      .op = device_op::compute, .code = hang, .device = 7, .call = 3, .deadline_ms = 300};
  direct->send(message_of(hanging));
  look_after_until_none_are_left();
  EXPECT_TRUE(direct->is_over());
  EXPECT_EQ(by_server(hanging).outcome, device_outcome::timed_out);
  EXPECT_EQ(by_server(hanging).outcome, device_outcome::timed_out);
  EXPECT_EQ(by_server(asking(4)).outcome, device_outcome::lost);
}

// Its client repeats it by the server, and learns there how it has ended.
TEST_F(DirectCalls, ThatHangAreWaitedForByTheServerUntilThen) {
  const std::unique_ptr<client_end> direct = open();
  ASSERT_NE(direct, nullptr);
  const wire::device_request hanging{
      .op = device_op::compute, .code = hang, .device = 7, .call = 3, .deadline_ms = 2000};
  direct->send(message_of(hanging));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(by_server(hanging).outcome, device_outcome::timed_out);
  EXPECT_EQ(host->devices(), 0u);
}

TEST_F(DirectCalls, ThatTakeLongAreAnsweredOnceByTheServer) {
  const std::unique_ptr<client_end> direct = open();
  ASSERT_NE(direct, nullptr);
  const std::uint64_t pause_us = 300'000;
  const wire::device_request slow{.op = device_op::compute,
                                  .code = wait_and_add,
                                  .device = 7,
                                  .call = 3,
                                  .bytes = std::as_bytes(std::span(&pause_us, 1))};
  direct->send(message_of(slow));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(by_server(slow).number(), 6u);
  EXPECT_EQ(by_server(asking(4)).number(), 6u);
}

// The process is still in the question when it comes again, and answers it once more. What the question takes is more
// than half of its time, so that the time of both would not do. A stalled machine may take the rest: then it takes
// longer.
TEST_F(DirectCalls, ThatAreAskedAgainHaveTheirWholeTime) {
  device_outcome outcome = device_outcome::timed_out;
  for (std::uint32_t pause_ms = 1000; pause_ms <= 16'000 && outcome != device_outcome::ok; pause_ms *= 4) {
    const std::uint64_t number = 7 + pause_ms;  // that of before has lost its process
    construct(number, "troublemaker");
    const std::size_t devices = host->devices();
    const std::uint64_t pause_us = std::uint64_t{1000} * pause_ms;
    const wire::device_request slow{.op = device_op::ask,
                                    .code = wait_and_add,
                                    .device = number,
                                    .call = 2,
                                    .deadline_ms = pause_ms * 9 / 5,
                                    .bytes = std::as_bytes(std::span(&pause_us, 1))};
    std::unique_ptr<client_end> direct = open(number);
    ASSERT_NE(direct, nullptr);
    direct->send(message_of(slow));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    direct.reset();
    outcome = by_server(slow).outcome;
    EXPECT_EQ(host->devices(), outcome == device_outcome::ok ? devices : devices - 1);
  }
  EXPECT_EQ(outcome, device_outcome::ok);
}

TEST_F(DirectCalls, ThatEndTheProcessAreToldSo) {
  for (const bool is_noticed : {false, true}) {
    if (is_noticed) construct(7, "troublemaker");
    const std::unique_ptr<client_end> direct = open();
    ASSERT_NE(direct, nullptr);
    const wire::device_request leaving{.op = device_op::ask, .code = leave, .device = 7, .call = 3};
    direct->send(message_of(leaving));
    EXPECT_TRUE(direct->is_over());
    if (is_noticed) look_after_until_none_are_left();
    EXPECT_EQ(by_server(leaving).outcome, device_outcome::crashed) << is_noticed;
    EXPECT_EQ(by_server(asking(4)).outcome, device_outcome::lost);
    EXPECT_EQ(lent->used().held_blocks, 0u);
    EXPECT_EQ(by_server({.op = device_op::destruct, .device = 7, .call = 5}).outcome, device_outcome::ok);
  }
}

TEST_F(DirectCalls, EndWithTheirSession) {
  const std::unique_ptr<client_end> direct = open();
  ASSERT_NE(direct, nullptr);
  lent->end(*client.to);
  EXPECT_TRUE(direct->is_over());
  EXPECT_EQ(open(), nullptr);
}

TEST_F(DirectCalls, AreCountedByPlugin) {
  const std::unique_ptr<client_end> direct = open();
  ASSERT_NE(direct, nullptr);
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(direct->call(asking(3))->number(), 5u);
  EXPECT_EQ(direct->call({.op = device_op::compute, .code = 3, .device = 7, .call = 4})->outcome,
            device_outcome::refused);
  direct->send(message_of({.op = device_op::compute, .code = leave, .device = 7, .call = 5}));
  look_after_until_none_are_left();
  const std::string shown = prometheus_text({.lent = lent.get(), .loops = {}, .address = {}, .devices = host}, 1);
  for (const char* line : {"farheapd_device_calls_total{plugin=\"troublemaker\",outcome=\"ok\"} 11\n",
                           "farheapd_device_calls_total{plugin=\"troublemaker\",outcome=\"refused\"} 1\n",
                           "farheapd_device_calls_total{plugin=\"troublemaker\",outcome=\"crashed\"} 1\n"}) {
    EXPECT_NE(shown.find(line), std::string::npos) << line << shown;
  }
}

// In the process nobody would count a tenant's requests.
TEST_F(DirectCalls, AreNotForTenantsWithLimitedRates) {
  const std::unique_ptr<client_end> direct = open();
  ASSERT_NE(direct, nullptr);
  lent->set_limits({{"default", {.devices = 4}}});
  host->look_after(now());
  EXPECT_EQ(direct->call(asking(3))->number(), 5u);
  lent->set_limits({{"default", {.requests = 1000}}});
  host->look_after(now());
  EXPECT_TRUE(direct->is_over());
  EXPECT_EQ(open(), nullptr);
  EXPECT_EQ(by_server(asking(4)).number(), 5u);
  lent->set_limits({});
  EXPECT_NE(open(), nullptr);
}

TEST_F(DirectCalls, AreForDevicesThatThereAre) {
  EXPECT_EQ(open(9), nullptr);
  EXPECT_EQ(by_server({.op = device_op::direct, .device = 7, .call = 3}).outcome, device_outcome::refused);
  EXPECT_EQ(by_server({.op = device_op::compute, .code = leave, .device = 7, .call = 4}).outcome,
            device_outcome::crashed);
  EXPECT_EQ(open(), nullptr);
}

TEST(DirectCallsInTheFile, AreNotReadHalfWritten) {
  direct_calls calls{.call = 5, .until_ns = 17};
  calls.ended[2] = 9;
  std::array<std::byte, direct_calls_bytes> bytes;
  encode(calls, bytes);
  const std::optional<direct_calls> read = decode_direct_calls(bytes);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->call, 5u);
  EXPECT_EQ(read->until_ns, 17u);
  EXPECT_EQ(read->ended[2], 9u);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= std::byte{1};
    EXPECT_FALSE(decode_direct_calls(bytes).has_value()) << i;
    bytes[i] ^= std::byte{1};
  }
}

}  // namespace
}  // namespace far::server
