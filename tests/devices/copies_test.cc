// Devices with copies on several servers, of which some are lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend/tcp/tcp_backend.h"
#include "backend/tcp/tcp_uri.h"
#include "device/server_link.h"
#include "far/device.h"
#include "tests/devices/device_server.h"

namespace far {
namespace {

using namespace std::chrono_literals;
using reason = device_error::reason;
using testing_support::device_server;

enum : std::uint32_t { add = 1, value = 2, write_outside = 6, process = 13, slow_to_save = 14 };

std::span<const std::byte> bytes_of(const std::uint64_t& number) {
  return std::as_bytes(std::span(&number, 1));
}

std::uint64_t number_in(const std::vector<std::byte>& bytes) {
  std::uint64_t number = 0;
  EXPECT_EQ(bytes.size(), sizeof number);
  std::memcpy(&number, bytes.data(), std::min(bytes.size(), sizeof number));
  return number;
}

std::unique_ptr<device_server> start(std::uint16_t port = 0) {
  return std::make_unique<device_server>(
      std::vector<std::string>{"--memory", "256M", "--plugin", std::string(TROUBLEMAKER) + ":deadline=60s", "--plugin",
                               SORTED},
      port);
}

class Copies : public ::testing::Test {
 protected:
  [[nodiscard]] std::string tier(const std::string& wanted = "copies=2") const {
    return "tcp://" + servers[0]->host() + "," + servers[1]->host() + "," + servers[2]->host() + "?timeout=4s&" +
           wanted;
  }

  std::vector<std::unique_ptr<device_server>> servers = [] {
    std::vector<std::unique_ptr<device_server>> all;
    for (int i = 0; i < 3; ++i) all.push_back(start());
    return all;
  }();
};

// Servers are killed one after the other while the device changes, and come back empty.
TEST_F(Copies, OutliveTheirServers) {
  device made(tier(), "troublemaker", {.parameters = {}, .deadline = 30s});
  EXPECT_EQ(made.copies(), 2u);
  std::uint64_t sum = 0;
  for (std::size_t round = 0; round < 3; ++round) {
    std::unique_ptr<device_server>& victim = servers[round % servers.size()];
    const std::uint16_t port = victim->port();
    std::jthread killer([&] {
      std::this_thread::sleep_for(20ms);
      victim->signal(SIGKILL);
    });
    for (std::uint64_t i = 1; i <= 300; ++i) {
      sum += i;
      ASSERT_EQ(number_in(made.compute(add, bytes_of(i))), sum);
    }
    killer.join();
    victim = start(port);
    // There are two again before the next server is lost. A call tells of the loss, if the others were over before it.
    ASSERT_EQ(number_in(made.compute(add, bytes_of(0))), sum);
    for (int i = 0; i < 600 && made.copies() < 2; ++i) {
      std::this_thread::sleep_for(50ms);
      ASSERT_EQ(number_in(made.compute(add, bytes_of(0))), sum);
    }
    ASSERT_EQ(made.copies(), 2u);
  }
  EXPECT_EQ(number_in(made.ask(value)), sum);
}

// A call that ends its device's process is an error of that call alone: the other copy has not tried it.
TEST_F(Copies, OutliveCallsThatCrash) {
  device made(tier(), "troublemaker", {.parameters = {}, .deadline = 30s});
  made.compute(add, bytes_of(7));
  for (std::uint64_t i = 0; i < 3; ++i) {
    try {
      made.compute(write_outside);
      FAIL() << "a crash has gone unnoticed";
    } catch (const device_error& failure) {
      EXPECT_EQ(failure.why(), reason::crashed) << failure.what();
    }
    EXPECT_EQ(made.copies(), 2u);
    EXPECT_EQ(number_in(made.compute(add, bytes_of(1))), 8 + i);
  }
}

// Copies hold the same: one after the other is asked alone.
TEST_F(Copies, AreEqual) {
  device words(tier(), "sorted", {.parameters = {}, .room_bytes = 64 << 20, .deadline = 30s});
  std::map<std::uint64_t, std::string> expected;
  // More than one message of saved bytes.
  for (std::uint64_t i = 0; i < 24; ++i) {
    expected[i] = std::string(100'000, static_cast<char>('a' + i));
    words.write(i, std::as_bytes(std::span(expected[i])));
  }
  words.erase(3);
  expected.erase(3);
  const auto check = [&] {
    for (const auto& [object, text] : expected) {
      const std::vector<std::byte> got = words.read(object);
      ASSERT_TRUE(std::ranges::equal(got, std::as_bytes(std::span(text)))) << object;
    }
    ASSERT_EQ(number_in(words.ask(1)), expected.size());
  };
  check();
  for (auto& server : servers) {
    const std::uint16_t port = server->port();
    server->signal(SIGKILL);
    server = start(port);
    check();
    // A change reaches all copies, so a lost one is noticed.
    words.write(0, std::as_bytes(std::span(expected[0])));
    for (int i = 0; i < 600 && words.copies() < 2; ++i) {
      std::this_thread::sleep_for(50ms);
      words.write(0, std::as_bytes(std::span(expected[0])));
    }
    ASSERT_EQ(words.copies(), 2u);
    check();
  }
}

// Nobody calls the device, and a copy is lost: another is made all the same.
TEST_F(Copies, AreLookedAfterWithoutCalls) {
  device made("tcp://" + servers[0]->host() + "," + servers[1]->host() + "?timeout=4s&copies=2", "troublemaker",
              {.parameters = {}, .deadline = 30s});
  made.compute(add, bytes_of(7));
  ASSERT_EQ(made.copies(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::uint16_t port = servers[i]->port();
    servers[i]->signal(SIGKILL);
    servers[i] = start(port);
    for (int waits = 0; waits < 1200 && servers[i]->children() == 0; ++waits) std::this_thread::sleep_for(50ms);
    ASSERT_EQ(servers[i]->children(), 1u);
    EXPECT_EQ(made.copies(), 2u);  // waits until the copy is complete
  }
  EXPECT_EQ(number_in(made.ask(value)), 7u);
}

// The same while the other copy is asked all the time, which leaves the keeper no room.
TEST_F(Copies, AreLookedAfterDuringCalls) {
  device made("tcp://" + servers[0]->host() + "," + servers[1]->host() + "?timeout=4s&copies=2", "troublemaker",
              {.parameters = {}, .deadline = 30s});
  made.compute(add, bytes_of(7));
  ASSERT_EQ(made.copies(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::uint16_t port = servers[i]->port();
    servers[i]->signal(SIGKILL);
    servers[i] = start(port);
    const auto until = std::chrono::steady_clock::now() + 60s;
    while (servers[i]->children() == 0 && std::chrono::steady_clock::now() < until) {
      for (int asked = 0; asked < 100; ++asked) ASSERT_EQ(number_in(made.ask(value)), 7u);
    }
    ASSERT_EQ(servers[i]->children(), 1u);
    EXPECT_EQ(made.copies(), 2u);
  }
}

// The deadline is that of calls. Making a copy may take longer, and must not cost the only one that is left.
TEST_F(Copies, MayTakeLongerToMakeThanACall) {
  device made("tcp://" + servers[0]->host() + "," + servers[1]->host() + "?timeout=4s&copies=2", "troublemaker",
              {.parameters = {}, .deadline = 5s});
  made.compute(add, bytes_of(7));
  ASSERT_EQ(made.copies(), 2u);
  made.compute(slow_to_save, bytes_of(9'000'000));
  const std::uint16_t port = servers[1]->port();
  servers[1]->signal(SIGKILL);
  servers[1] = start(port);
  for (int i = 0; i < 600 && (i == 0 || made.copies() < 2); ++i) {
    ASSERT_EQ(number_in(made.compute(add, bytes_of(0))), 7u);
    std::this_thread::sleep_for(50ms);
  }
  EXPECT_EQ(made.copies(), 2u);
  EXPECT_EQ(number_in(made.ask(value)), 7u);
}

// One server that does not answer does not matter at the start.
TEST_F(Copies, BeginWithTheServersThatThereAre) {
  servers[1]->signal(SIGKILL);
  for (int i = 0; i < 6; ++i) {
    device made(tier("copies=1"), "troublemaker", {.parameters = {}, .deadline = 30s});
    EXPECT_EQ(number_in(made.compute(add, bytes_of(2))), 2u);
  }
  device made(tier(), "troublemaker", {.parameters = {}, .deadline = 30s});
  EXPECT_EQ(made.copies(), 2u);
}

TEST_F(Copies, AreLostWithTheLastServer) {
  device made(tier("copies=1"), "troublemaker", {.parameters = {}, .deadline = 30s});
  made.compute(add, bytes_of(2));
  for (auto& server : servers) {
    const std::uint16_t port = server->port();
    server->signal(SIGKILL);
    server = start(port);
  }
  for (int i = 0; i < 2; ++i) {
    try {
      made.compute(add, bytes_of(2));
      FAIL() << "a lost device has answered";
    } catch (const device_error& failure) {
      EXPECT_EQ(failure.why(), reason::lost) << failure.what();
    }
  }
}

// The connection has broken in the middle of a call, and the server is back: it keeps nothing for the lease.
TEST_F(Copies, EndOnTheirServerWhenTheirLinkLeaves) {
  device_server& server = *servers[0];
  const backend::tcp_name name = backend::parse_tcp(backend::uri::parse("tcp://" + server.host()).value()).value();
  const std::unique_ptr<device_parts::device_link> link =
      device_parts::server_link::create(name.servers.front(), backend::tcp_trust::load(name.options).value()).value();
  constexpr device_parts::device_link::patience long_one{.reach_ns = 60'000'000'000, .answer_ns = 60'000'000'000};
  constexpr device_parts::device_link::patience short_one{
      .reach_ns = 200'000'000, .answer_ns = 200'000'000, .again = false};
  EXPECT_TRUE(link->leave(short_one)) << "it has never been there";
  const std::string plugin = "\x0ctroublemaker";
  const wire::device_request construct{.op = wire::device_op::construct,
                                       .device = 1,
                                       .call = 1,
                                       .room_bytes = 4 << 20,
                                       .bytes = std::as_bytes(std::span(plugin))};
  using kind = device_parts::link_answer::kind;
  ASSERT_EQ(link->ask(construct, long_one).how, kind::answered);
  ASSERT_EQ(server.children(), 1u);
  server.signal(SIGSTOP);
  EXPECT_EQ(link->ask({.op = wire::device_op::read, .device = 1, .call = 2}, short_one).how, kind::unreachable);
  EXPECT_FALSE(link->leave(short_one));
  server.signal(SIGCONT);
  EXPECT_TRUE(link->leave(long_one));
  for (int i = 0; i < 3000 && server.children() > 0; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(server.children(), 0u);
}

// A server that is named twice has one copy.
TEST_F(Copies, AreOnDifferentServers) {
  const std::string port = std::to_string(servers[0]->port());
  device made("tcp://127.0.0.1:" + port + ",localhost:" + port + "?copies=2&timeout=4s", "troublemaker",
              {.parameters = {}, .deadline = 30s});
  EXPECT_EQ(made.copies(), 1u);
  EXPECT_EQ(number_in(made.compute(add, bytes_of(2))), 2u);
}

}  // namespace
}  // namespace far
