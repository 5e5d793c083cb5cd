// Functions of plugins on a session's pages, with arguments that may be anything, and plugins that may do anything.
#include "server/devices/function_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "far/plugin.h"
#include "platform/clock.h"
#include "server/devices/shelf.h"
#include "tests/support/scripted_client.h"
#include "tests/support/unruly.h"

namespace far::server {
namespace {

using namespace std::chrono_literals;
using wire::status;

std::vector<std::byte> payload_of(const detail::page_function& function, const page_hasher& hash,
                                  std::span<const wire::range> ranges, std::uint32_t deadline_ms) {
  std::vector<std::byte> payload(wire::call_header_bytes + wire::most_function_bytes +
                                 ranges.size() * wire::range_bytes);
  const page_reduction asked{{.kind = reduction_kind::computed, .function = &function}, &hash};
  payload.resize(wire::encode_function(asked, ranges, deadline_ms, payload));
  return payload;
}

std::vector<std::byte> arguments_of(const detail::page_function& function, const page_hasher& hash,
                                    std::span<const wire::range> ranges, std::uint32_t deadline_ms = 0) {
  std::vector<std::byte> payload = payload_of(function, hash, ranges, deadline_ms);
  payload.erase(payload.begin(), payload.begin() + wire::call_header_bytes);
  return payload;
}

detail::page_function function(unruly::way how = unruly::well) {
  detail::page_function asked{.plugin = {"unruly"},
                              .version = {"1.0"},
                              .number = unruly::number,
                              .element_bytes = sizeof(unruly::element),
                              .result_bytes = sizeof(unruly::result),
                              .argument_bytes = sizeof(unruly::arguments)};
  const unruly::arguments with{how};
  std::memcpy(asked.arguments.data(), &with, sizeof with);
  return asked;
}

// A session that holds blocks 0 and 1; number i of slot s is s * 1000 + i.
class FunctionCalls : public ::testing::Test {
 protected:
  static constexpr std::size_t on_a_page = page_bytes / sizeof(std::uint64_t);

  void SetUp() override {
    result<std::shared_ptr<device_host>> started = device_host::start({{.file = UNRULY, .options = ""}}, FARHEAPD);
    ASSERT_TRUE(started.ok()) << started.error().message;
    host = std::move(started).value();
    lent = store::create({.memory_bytes = 128 * mib, .quota_bytes = {{"small", 8 * mib}}, .make_source = {}}).value();
  }
  void TearDown() override { lent->validate(); }

  [[nodiscard]] attachment open(const std::string& tenant = "default") {
    attachment client = lent->open(tenant, 1).value();
    EXPECT_EQ(client.to->allocate({0, 2}), status::ok);
    for (std::uint64_t slot = 0; slot < 2 * wire::block_slots; ++slot) {
      auto* const numbers = reinterpret_cast<std::uint64_t*>(client.to->address_of(slot));
      for (std::uint64_t i = 0; i < on_a_page; ++i) numbers[i] = slot * 1000 + i;
    }
    return client;
  }
  // To its end. Meanwhile so much time goes by between two looks.
  [[nodiscard]] function_calls::progress run(session& of, std::span<const std::byte> arguments,
                                             std::vector<std::byte>& into, std::uint64_t step_ns = 0) {
    function_calls calls(host);
    for (const auto began = std::chrono::steady_clock::now();; now_ns += step_ns) {
      const function_calls::progress got = calls.go_on(of, arguments, now_ns, into);
      EXPECT_EQ(calls.is_waiting(), got.retry_at_ns != 0);
      if (got.retry_at_ns == 0) return got;
      if (std::chrono::steady_clock::now() - began > 120s) {
        ADD_FAILURE() << "a call never ends";
        step_ns = longest_rest_ns;
      }
      std::this_thread::sleep_for(100us);
    }
  }
  [[nodiscard]] function_calls::progress run(session& of, std::span<const std::byte> arguments) {
    return run(of, arguments, space);
  }
  // A process, also where the last one has failed and another one is not begun at once.
  void begin(session& of) {
    now_ns += longest_rest_ns;
    const auto arguments = arguments_of(function(), hash, std::array{wire::range{0, 0, 8}});
    EXPECT_EQ(run(of, arguments).result, status::ok);
  }
  void expect_sums(session& of, std::span<const wire::range> ranges) {
    const function_calls::progress got = run(of, arguments_of(function(), hash, ranges));
    ASSERT_EQ(got.result, status::ok);
    ASSERT_EQ(got.reply_bytes, 16 * ranges.size());
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const std::byte* const page = of.address_of(ranges[i].slot);
      std::uint64_t expected = 0;
      for (std::uint32_t at = 0; at < ranges[i].length_bytes; at += 8) {
        std::uint64_t one = 0;
        std::memcpy(&one, page + ranges[i].offset_bytes + at, sizeof one);
        expected += one;
      }
      std::array<std::uint64_t, 2> found{};
      std::memcpy(found.data(), space.data() + 16 * i, sizeof found);
      EXPECT_EQ(found[0], expected) << i;
      EXPECT_EQ(found[1], hash_of_pieces(hash, page)) << i;
    }
  }

  static constexpr std::uint64_t longest_rest_ns = 1'000'000'000;

  // It stands still but where a test says otherwise, so that no call is late because the machine is busy.
  std::atomic<std::uint64_t> now_ns = platform::monotonic_clock().now_ns();
  const page_hasher hash{7};
  std::vector<std::byte> space = std::vector<std::byte>(wire::maximum_payload_bytes);
  std::shared_ptr<device_host> host;
  std::unique_ptr<store> lent;
};

TEST_F(FunctionCalls, LookAtPartsOfPages) {
  attachment client = open();
  begin(*client.to);
  expect_sums(*client.to, std::array{wire::range{0, 0, 4096}, wire::range{511, 8, 16}, wire::range{512, 4088, 8}});
  std::vector<wire::range> most;
  for (std::uint64_t i = 0; i < wire::maximum_batch; ++i) most.push_back({i * 7, 0, page_bytes});
  expect_sums(*client.to, most);
  EXPECT_EQ(host->devices(), 1u);
  lent->end(*client.to);
  EXPECT_EQ(host->devices(), 0u);
  lent->leave(client, now_ns);
}

TEST_F(FunctionCalls, NameNoPagesOfOthers) {
  attachment client = open();
  attachment other = open();
  begin(*client.to);
  ASSERT_EQ(other.to->allocate({5, 1}), status::ok);
  const auto ask = [&](const wire::range& range) {
    return run(*client.to, arguments_of(function(), hash, std::array{wire::range{1, 0, 8}, range})).result;
  };
  EXPECT_EQ(ask({5 * wire::block_slots, 0, 8}), status::not_allocated) << "another session has it";
  EXPECT_EQ(ask({2 * wire::block_slots, 0, 8}), status::not_allocated);
  EXPECT_EQ(ask({~std::uint64_t{0}, 0, 8}), status::not_allocated);
  EXPECT_EQ(ask({1, 4088, 16}), status::call_failed) << "over the end of the page";
  EXPECT_EQ(ask({1, 4096, 8}), status::call_failed);
  EXPECT_EQ(ask({1, 0, 0}), status::call_failed);
  EXPECT_EQ(ask({1, 0, 12}), status::call_failed) << "half of an element";
  expect_sums(*client.to, std::array{wire::range{3, 0, 4096}});
  lent->end(*client.to);
  lent->end(*other.to);
  lent->leave(client, now_ns);
  lent->leave(other, now_ns);
}

TEST_F(FunctionCalls, OfOtherPluginsVersionsAndTypesAreRefused) {
  attachment client = open();
  begin(*client.to);
  const auto ask = [&](auto change) {
    detail::page_function asked = function();
    change(asked);
    return run(*client.to, arguments_of(asked, hash, std::array{wire::range{0, 0, 64}})).result;
  };
  EXPECT_EQ(ask([](auto& one) { one.plugin = {"unknown"}; }), status::unknown_call);
  EXPECT_EQ(ask([](auto& one) { one.version = {"1.1"}; }), status::unknown_call);
  EXPECT_EQ(ask([](auto& one) { one.plugin = {"no name"}; }), status::call_failed);
  EXPECT_EQ(ask([](auto& one) { one.plugin[20] = 'x'; }), status::call_failed) << "behind the name are zeros";
  EXPECT_EQ(ask([](auto& one) { one.result_bytes = 16; }), status::call_failed);
  EXPECT_EQ(ask([](auto& one) { one.result_bytes = 12; }), status::call_failed);
  EXPECT_EQ(ask([](auto& one) { one.element_bytes = 4; }), status::call_failed);
  EXPECT_EQ(ask([](auto& one) { one.argument_bytes = 7; }), status::call_failed);
  EXPECT_EQ(ask([](auto&) {}), status::ok);
  lent->end(*client.to);
  lent->leave(client, now_ns);
}

// The program computes the pages itself and goes on, so the operator is who has to hear of it.
TEST_F(FunctionCalls, ThatAreRefusedSayWhyInTheLog) {
  attachment client = open();
  begin(*client.to);
  const auto logged = [&](auto change, unruly::way how = unruly::well) {
    detail::page_function asked = function(how);
    change(asked);
    ::testing::internal::CaptureStderr();
    EXPECT_NE(run(*client.to, arguments_of(asked, hash, std::array{wire::range{0, 0, 64}})).result, status::ok);
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string unknown = logged([](auto& one) { one.plugin = {"unknown"}; });
  EXPECT_NE(unknown.find("asks for functions of plugin 'unknown' 1.0, and computes them itself: there is unruly 1.0; "
                         "load the other with --plugin FILE"),
            std::string::npos)
      << unknown;
  const std::string newer = logged([](auto& one) { one.version = {"1.1"}; });
  EXPECT_NE(newer.find("plugin 'unruly' 1.1, and computes them itself: there is unruly 1.0"), std::string::npos)
      << newer;
  const std::string thrown = logged([](auto&) {}, unruly::throw_text);
  EXPECT_NE(thrown.find("a function of plugin 'unruly' refuses a call: a text"), std::string::npos) << thrown;
  lent->end(*client.to);
  lent->leave(client, now_ns);
}

TEST_F(FunctionCalls, ThatFailAreNobodyElsesFailure) {
  attachment client = open();
  attachment other = open();
  begin(*other.to);
  for (const unruly::way how :
       {unruly::throw_text, unruly::throw_number, unruly::hang, unruly::write_outside, unruly::leave, unruly::flood,
        unruly::too_long, unruly::too_short, unruly::unmarked, unruly::scribble}) {
    begin(*client.to);
    const std::uint64_t began_ns = now_ns;
    const auto arguments = arguments_of(function(how), hash, std::array{wire::range{0, 0, 4096}}, 300);
    EXPECT_EQ(run(*client.to, arguments, space, how == unruly::hang ? 1'000'000 : 0).result, status::call_failed)
        << how;
    EXPECT_EQ(now_ns - began_ns, how == unruly::hang ? 300'000'000u : 0u) << how;
    expect_sums(*other.to, std::array{wire::range{9, 0, 4096}});
  }
  lent->end(*client.to);
  lent->end(*other.to);
  lent->leave(client, now_ns);
  lent->leave(other, now_ns);
}

// As connections of one session on several event loops.
TEST_F(FunctionCalls, OfSeveralConnectionsTakeTurns) {
  attachment client = open();
  begin(*client.to);
  const auto& answered = host->plugins().front().counters->calls[0];
  const std::uint64_t answered_before = answered.load();
  std::atomic<unsigned> right{0};
  std::vector<std::thread> connections;
  for (std::uint64_t connection = 0; connection < 4; ++connection) {
    connections.emplace_back([&, connection] {
      std::vector<std::byte> own(wire::maximum_payload_bytes);
      for (std::uint64_t i = 0; i < 50; ++i) {
        const std::uint64_t slot = connection * 200 + i;
        const auto arguments = arguments_of(function(), hash, std::array{wire::range{slot, 0, 4096}});
        const function_calls::progress got = run(*client.to, arguments, own);
        std::uint64_t found = 0;
        std::memcpy(&found, own.data(), sizeof found);
        const bool is_right = got.result == status::ok && found == slot * 1000 * 512 + 511 * 512 / 2;
        EXPECT_TRUE(is_right) << slot;
        right += is_right ? 1u : 0u;
      }
    });
  }
  for (std::thread& one : connections) one.join();
  EXPECT_EQ(right.load(), 200u);
  EXPECT_EQ(answered.load() - answered_before, 200u) << "nobody takes another's answer, which would be asked for again";
  EXPECT_EQ(host->devices(), 1u);
  lent->end(*client.to);
  lent->leave(client, now_ns);
}

TEST_F(FunctionCalls, OfConnectionsThatAreGoneAreInNobodysWay) {
  attachment client = open();
  begin(*client.to);
  {
    function_calls gone(host);
    const auto arguments = arguments_of(function(), hash, std::array{wire::range{0, 0, 4096}});
    EXPECT_NE(gone.go_on(*client.to, arguments, now_ns, space).retry_at_ns, 0u);
    gone.abandon();
    EXPECT_FALSE(gone.is_waiting());
  }
  expect_sums(*client.to, std::array{wire::range{9, 0, 4096}});
  {
    function_calls gone(host);
    const auto arguments = arguments_of(function(unruly::hang), hash, std::array{wire::range{0, 0, 4096}}, 100);
    EXPECT_NE(gone.go_on(*client.to, arguments, now_ns, space).retry_at_ns, 0u);
  }
  now_ns += 100'000'000;
  host->look_after(now_ns);
  EXPECT_EQ(host->devices(), 0u) << "its time is up";
  begin(*client.to);
  now_ns += 120'000'000'000;
  host->look_after(now_ns);
  EXPECT_EQ(host->devices(), 0u) << "nobody has asked for a while";
  begin(*client.to);
  lent->end(*client.to);
  lent->leave(client, now_ns);
}

TEST_F(FunctionCalls, NeedRoomForTheirProcess) {
  lent->set_limits({{"default", {.devices = 1}}});
  for (const auto& [tenant, what] :
       {std::pair{"small", "of the tenant's quota"}, std::pair{"default", "as many as its --limit permits"}}) {
    attachment client = open(tenant);
    if (tenant == std::string_view("default")) {
      ASSERT_EQ(client.to->take_room(1, true), session::room::granted);
    }
    const auto arguments = arguments_of(function(), hash, std::array{wire::range{0, 0, 8}});
    EXPECT_EQ(run(*client.to, arguments).result, status::call_failed);
    EXPECT_EQ(host->devices(), 0u);
    const std::string why = device_shelf::of(*client.to, host)->functions().why("unruly");
    EXPECT_NE(why.find(what), std::string::npos) << why;
    lent->end(*client.to);
    lent->leave(client, now_ns);
  }
}

// A program that computes its pages itself, and one that is away past its grace period and may come back.
class FunctionsBesideOneAway : public FunctionCalls {
 protected:
  void lend(std::uint32_t most_devices) {
    lent = store::create({.memory_bytes = 128 * mib,
                          .grace_ns = 10 * second_ns,
                          .lease_ns = 3600 * second_ns,
                          .quota_bytes = {},
                          .limits = {{"default", {.devices = most_devices}}},
                          .make_source = {}})
               .value();
    away = lent->open("default", 1).value();
  }
  void expect_to_end_nobody(const std::string& why_not) {
    const wire::session_id kept = away.to->id();
    lent->leave(away, now_ns);
    lent->expire(now_ns + 20 * second_ns);
    attachment client = open();
    const auto arguments = arguments_of(function(), hash, std::array{wire::range{0, 0, 8}});
    EXPECT_EQ(run(*client.to, arguments).result, status::call_failed);
    const std::string why = device_shelf::of(*client.to, host)->functions().why("unruly");
    EXPECT_NE(why.find(why_not), std::string::npos) << why;
    EXPECT_TRUE(lent->knows("default", kept));
    lent->end(*client.to);
    lent->leave(client, now_ns);
  }

  attachment away;
};

TEST_F(FunctionsBesideOneAway, LeaveItItsDevice) {
  lend(1);
  ASSERT_EQ(away.to->take_room(4, true), session::room::granted);
  const auto added = device_shelf::of(*away.to, host)->add(1, host->plugins().front(), 4 * mib, 4);
  ASSERT_EQ(added, device_shelf::addition::added);
  expect_to_end_nobody("as many as its --limit permits");
  EXPECT_EQ(host->devices(), 1u);
}

TEST_F(FunctionsBesideOneAway, LeaveItItsMemory) {
  lend(10);
  ASSERT_EQ(away.to->allocate({0, 56}), status::ok);
  expect_to_end_nobody("of the server's --memory");
  EXPECT_EQ(host->devices(), 0u);
}

TEST_F(FunctionCalls, MayHaveAnyArguments) {
  attachment client = open();
  begin(*client.to);
  std::mt19937_64 random(11);
  const auto right = arguments_of(function(), hash, std::array{wire::range{0, 0, 4096}, wire::range{1, 0, 8}});
  for (int i = 0; i < 2'000; ++i) {
    std::vector<std::byte> wrong = right;
    for (std::uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      wrong[random() % wrong.size()] = static_cast<std::byte>(random());
    }
    if (random() % 4 == 0) wrong.resize(random() % wrong.size());
    // How to misbehave lies behind the secret, and stays.
    for (std::size_t at = 280; at < std::min<std::size_t>(288, wrong.size()); ++at) wrong[at] = right[at];
    static_cast<void>(run(*client.to, wrong));
    now_ns += longest_rest_ns;  // a process that has failed is in nobody's way
  }
  begin(*client.to);
  expect_sums(*client.to, std::array{wire::range{9, 0, 4096}});
  lent->end(*client.to);
  lent->leave(client, now_ns);
}

// A client whose time-out is 2 s gives each call 250 ms. Here each takes 240 ms by the server's clock, which moves when
// nothing can be answered, and waits while the plugin's process really computes.
class FunctionsOnOneConnection : public ::testing::Test {
 protected:
  static constexpr std::uint64_t timeout_ns = 2 * second_ns;
  static constexpr std::uint32_t deadline_ms = 250;
  static constexpr std::uint64_t call_ns = 240'000'000;

  void SetUp() override {
    result<std::shared_ptr<device_host>> started = device_host::start({{.file = UNRULY, .options = ""}}, FARHEAPD);
    ASSERT_TRUE(started.ok()) << started.error().message;
    server.settings.devices = std::move(started).value();
    client.emplace(server);
    ASSERT_TRUE(client->shake_hands().has_value());
    ASSERT_EQ(client->ask_blocks(wire::opcode::allocate, 0, 1), status::ok);
    // Now there is a process.
    send_calls(1);
    ASSERT_EQ(next().result, status::ok);
  }

  struct answer {
    wire::opcode op = wire::opcode::ping;
    status result = status::ok;
    std::uint64_t at_ns = 0;
    bytes payload = {};
  };

  // They arrive at once.
  void send_calls(int count, bool and_read = false) {
    bytes all;
    const auto add = [&all](const bytes& one) { all.insert(all.end(), one.begin(), one.end()); };
    for (int i = 0; i < count; ++i) add(scripted_client::encoded({.op = wire::opcode::call}, call));
    const bytes page = scripted_client::read_payload({{0, 0, page_bytes}});
    if (and_read) add(scripted_client::encoded({.op = wire::opcode::read}, page));
    client->send_raw(all);
  }

  [[nodiscard]] answer next() {
    std::optional<message> got = client->take();
    if (!got) server.now_ns += call_ns;
    for (const auto began = std::chrono::steady_clock::now(); !got; got = client->take()) {
      if (client->talk.is_over() || std::chrono::steady_clock::now() - began > 120s) {
        ADD_FAILURE() << "there is no answer";
        return {};
      }
      std::this_thread::sleep_for(100us);
      client->turn();
    }
    return {got->head.op, got->head.result, server.now_ns, got->payload};
  }
  // All up to the answer of the next read. Returns how many calls were answered, and how many refused.
  struct tally {
    int answered = 0;
    int refused = 0;
    std::uint64_t read_at_ns = 0;
  };
  [[nodiscard]] tally until_read() {
    tally seen;
    answer got;
    while ((got = next()).op == wire::opcode::call) {
      EXPECT_TRUE(got.result == status::ok || got.result == status::call_failed) << static_cast<int>(got.result);
      ++(got.result == status::ok ? seen.answered : seen.refused);
    }
    EXPECT_EQ(got.op, wire::opcode::read);
    EXPECT_EQ(got.result, status::ok);
    seen.read_at_ns = got.at_ns;
    return seen;
  }

  const page_hasher hash{7};
  test_server server{32};
  std::optional<scripted_client> client;
  const bytes call = payload_of(function(), hash, std::array{wire::range{0, 0, 4096}}, deadline_ms);
};

TEST_F(FunctionsOnOneConnection, ThatAreSlowLeaveTimeToWhatWaitsForThem) {
  const std::uint64_t sent_ns = server.now_ns;
  send_calls(20, true);
  const tally seen = until_read();
  EXPECT_EQ(seen.answered, 3) << "each has its whole time, or is not begun";
  EXPECT_EQ(seen.refused, 17);
  EXPECT_EQ(seen.read_at_ns - sent_ns, 3 * call_ns);

  detail::page_function why = function();
  why.number = wire::why_number;
  why.result_bytes = 256;
  client->send({.op = wire::opcode::call}, payload_of(why, hash, std::array{wire::range{0, 0, 4096}}, deadline_ms));
  const answer said = next();
  ASSERT_EQ(said.payload.size(), 264u);
  EXPECT_STREQ(reinterpret_cast<const char*>(said.payload.data()),
               "the server is busy: functions that were called before on the same connection took 720 ms; raise the "
               "client's timeout, or call them of fewer pages");
  send_calls(1);
  EXPECT_EQ(next().result, status::ok) << "it has waited for none";
}

TEST_F(FunctionsOnOneConnection, ThatKeepComingLeaveTimeToWhatWaitsForThem) {
  send_calls(5);
  for (int round = 0; round < 10; ++round) {
    EXPECT_EQ(next().result, status::ok) << "round " << round;
    const std::uint64_t sent_ns = server.now_ns;
    send_calls(5, true);
    const tally seen = until_read();
    EXPECT_GE(seen.answered, 3);
    EXPECT_LE(seen.read_at_ns - sent_ns, timeout_ns * 3 / 4);
    send_calls(5);
  }
}

}  // namespace
}  // namespace far::server
