// What tenants may ask for, and what others get meanwhile.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "server/crowd.h"
#include "server/tenant_rates.h"
#include "tests/support/scripted_client.h"

namespace far::server {
namespace {

using wire::opcode;
using wire::status;

// A call, whose reply has 8 bytes.
bytes checksum_call() {
  bytes payload(wire::call_header_bytes);
  EXPECT_TRUE(wire::encode_call("checksum", std::span(payload).first<wire::call_header_bytes>()));
  const bytes ranges = scripted_client::read_payload(std::vector<wire::range>(32, {0, 0, 8}));
  payload.insert(payload.end(), ranges.begin(), ranges.end());
  return payload;
}

// One second of two tenants, of which the first has a limit and asks as much as it can.
TEST(Limits, ATenantGetsItsRateAndOthersGetAll) {
  struct demand {
    tenant_limits limits;
    opcode op;
    bytes payload;
  };
  const bytes read = scripted_client::read_payload({{0, 0, 8192}});
  const bytes call = checksum_call();
  for (const auto& [limits, op, payload] :
       {demand{{.requests = 1000}, opcode::read, read}, demand{{.bytes = 8 * mib}, opcode::read, read},
        demand{{.bytes = 1000 * (call.size() + 8)}, opcode::call, call}}) {
    test_server server(8);
    server.lent->expire(server.now_ns);
    server.lent->set_limits({{"alice", limits}});
    scripted_client alice(server);
    scripted_client also_alice(server);
    scripted_client bob(server);
    std::size_t answered = 0;
    std::size_t others = 0;
    std::size_t sent = 0;
    for (scripted_client* client : {&alice, &also_alice, &bob}) {
      const bool is_bob = client == &bob;
      ASSERT_TRUE(client->shake_hands({.tenant = is_bob ? "bob" : "alice"}).has_value());
      ASSERT_EQ(client->ask_blocks(opcode::allocate, 0, 1), status::ok);
      server.now_ns += second_ns;
    }
    for (unsigned step = 0; step < 1000; ++step) {
      server.now_ns += second_ns / 1000;
      for (scripted_client* client : {&alice, &also_alice, &bob}) {
        const bool is_bob = client == &bob;
        // At most so many wait, as the server has told clients.
        for (unsigned i = 0; i < 3 && (is_bob || sent - answered < 64); ++i) {
          client->send({.op = op}, payload);
          sent += is_bob ? 0 : 1;
        }
        client->turn();
        while (client->take()) ++(is_bob ? others : answered);
      }
    }
    EXPECT_EQ(others, 3000u);
    EXPECT_GE(answered, 950u) << limits.requests;
    EXPECT_LE(answered, 1150u) << limits.requests;
    EXPECT_FALSE(alice.talk.is_over());
    for (const auto& tenant : server.lent->report().tenants) EXPECT_EQ(tenant.delays > 0, tenant.name == "alice");
  }
}

TEST(Limits, AClientIsToldHowMuchItMayHaveUnderWay) {
  test_server server(8);
  server.lent->set_limits({{"alice", {.requests = 160}}, {every_tenant, {.bytes = 16 * mib}}});
  for (const auto& [tenant, outstanding] : std::map<std::string, unsigned>{{"alice", 10}, {"bob", 4}}) {
    scripted_client client(server);
    EXPECT_EQ(client.shake_hands({.tenant = tenant})->maximum_outstanding, outstanding) << tenant;
  }
}

TEST(Limits, ATenantHasALimitedNumberOfConnections) {
  test_server server(8);
  server.lent->set_limits({{"alice", {.connections = 2}}});
  scripted_client first(server);
  const wire::welcome mine = first.shake_hands({.tenant = "alice"}).value();
  {
    scripted_client second(server);
    ASSERT_TRUE(second.shake_hands({.join = mine.session, .channel = 1, .tenant = "alice"}).has_value());
    scripted_client again(server);
    EXPECT_TRUE(again.shake_hands({.join = mine.session, .channel = 1, .tenant = "alice"}).has_value())
        << "in the place of the one before";
    scripted_client third(server);
    EXPECT_FALSE(third.shake_hands({.tenant = "alice"}).has_value());
    EXPECT_NE(third.refusal().find("too many connections"), std::string::npos);
    scripted_client joins(server);
    EXPECT_FALSE(joins.shake_hands({.join = mine.session, .channel = 2, .tenant = "alice"}).has_value());
    scripted_client bob(server);
    EXPECT_TRUE(bob.shake_hands({.tenant = "bob"}).has_value());
    server.lent->validate();
  }
  scripted_client fourth(server);
  EXPECT_TRUE(fourth.shake_hands({.tenant = "alice"}).has_value());
  server.lent->validate();
}

TEST(Limits, ASessionGetsTheConnectionsAgainThatItHad) {
  test_server server(8);
  scripted_client first(server);
  const wire::welcome mine = first.shake_hands({.tenant = "alice"}).value();
  std::optional<scripted_client> second(std::in_place, server);
  ASSERT_TRUE(second->shake_hands({.join = mine.session, .channel = 1, .tenant = "alice"}).has_value());
  server.lent->set_limits({{"alice", {.connections = 2}}});
  second.reset();
  scripted_client other(server);
  ASSERT_TRUE(other.shake_hands({.tenant = "alice"}).has_value()) << "in the place that is free";
  scripted_client returns(server);
  EXPECT_TRUE(returns.shake_hands({.join = mine.session, .channel = 1, .tenant = "alice"}).has_value());
  scripted_client one_more(server);
  EXPECT_FALSE(one_more.shake_hands({.join = mine.session, .channel = 2, .tenant = "alice"}).has_value());
  server.lent->validate();
}

// An allocation takes several steps. Others of the session would wait for it.
TEST(Limits, WhatHasBegunGoesOn) {
  test_server server(64);
  server.lent->set_limits({{"alice", {.requests = 1}}});
  scripted_client alice(server);
  scripted_client greedy(server);
  for (scripted_client* client : {&alice, &greedy}) {
    ASSERT_TRUE(client->shake_hands({.tenant = "alice"}).has_value());
  }
  server.now_ns += 10 * second_ns;
  bytes wanted(wire::block_range_bytes);
  wire::encode(wire::block_range{0, 48}, std::span(wanted).first<wire::block_range_bytes>());
  alice.send({.op = opcode::allocate}, wanted);
  ASSERT_FALSE(alice.take().has_value()) << "it takes more turns than one";
  for (unsigned i = 0; i < 40; ++i) greedy.send({.op = opcode::ping}, {});
  std::optional<message> allocated;
  for (unsigned turns = 0; turns < 1000 && !allocated; ++turns) {
    alice.turn();
    allocated = alice.take();
  }
  ASSERT_TRUE(allocated.has_value());
  EXPECT_EQ(allocated->head.result, status::ok);
}

TEST(Limits, WhoeverEndsWhileItWaitsHasEnded) {
  for (const opcode end : {opcode::close, opcode::leaving}) {
    test_server server(8);
    server.lent->set_limits({{"alice", {.requests = 1}}});
    std::optional<scripted_client> alice(std::in_place, server);
    const wire::welcome mine = alice->shake_hands({.tenant = "alice"}).value();
    server.now_ns += second_ns;
    for (unsigned i = 0; i < 40; ++i) alice->send({.op = opcode::ping}, {});
    alice->send({.op = end}, {});
    for (unsigned i = 0; i < 4; ++i) alice->turn();
    ASSERT_FALSE(alice->talk.is_over()) << "it waits";
    alice.reset();
    if (end == opcode::leaving) {
      server.now_ns += 11 * second_ns;
      server.lent->expire(server.now_ns);
    }
    EXPECT_FALSE(server.lent->knows("alice", mine.session));
  }
}

TEST(Limits, AreWrittenWithTheirNames) {
  const tenant_limits all{.connections = 64, .requests = 20000, .bytes = 200 * mib, .devices = 16};
  EXPECT_EQ(parse_tenant_limits("connections:64,requests:20000,bandwidth:200M,devices:16").value(), all);
  EXPECT_EQ(parse_tenant_limits("requests:100").value(), tenant_limits{.requests = 100});
  for (const char* wrong : {"", "requests", "requests:", "requests:x", "requests:99", "bandwidth:1K", "connections:0",
                            "speed:1G", "requests:100,requests:200", "requests:100,", "requests:1e3"}) {
    const auto parsed = parse_tenant_limits(wrong);
    ASSERT_FALSE(parsed.ok()) << wrong;
    EXPECT_NE(parsed.error().message.find("write for example"), std::string::npos) << wrong;
  }
}

TEST(Limits, TheLargestCrowdLosesItsOldest) {
  crowd strangers;
  for (std::size_t i = 0; i < 9; ++i) strangers.add(i % 3 == 0 ? "10.0.0.1" : "10.0.0.2", i, 100 - i);
  EXPECT_EQ(strangers.surplus(), 8u);
  EXPECT_EQ(strangers.size(), 9u);
}

}  // namespace
}  // namespace far::server
