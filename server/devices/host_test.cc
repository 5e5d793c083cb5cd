// Devices behind the messages: what sessions hold, and arguments that may be anything.
#include "server/devices/host.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "platform/clock.h"
#include "server/devices/calls.h"
#include "server/devices/shelf.h"
#include "server/metrics.h"

namespace far::server {
namespace {

using wire::device_op;
using wire::device_outcome;

std::uint64_t now() {
  return platform::monotonic_clock().now_ns();
}

// A field of /proc/NUMBER/status.
std::string status_of(const std::string& number, std::string_view field) {
  std::ifstream lines("/proc/" + number + "/status");
  for (std::string name, value; lines >> name >> value; lines.ignore(1000, '\n')) {
    if (name == field) return value;
  }
  return "";
}

// Of one session in a store, without connections.
class DeviceCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    result<std::shared_ptr<device_host>> started =
        device_host::start({{.file = SORTED, .options = ""}, {.file = TROUBLEMAKER, .options = ""}}, FARHEAPD);
    ASSERT_TRUE(started.ok()) << started.error().message;
    host = std::move(started).value();
    lent = store::create({.memory_bytes = 128 * mib, .quota_bytes = {{"small", 16 * mib}}, .make_source = {}}).value();
  }

  [[nodiscard]] device_outcome call(session& of, const wire::device_request& asked) {
    std::vector<std::byte> arguments(wire::device_request_bytes);
    wire::encode(asked, std::span(arguments).first<wire::device_request_bytes>());
    arguments.insert(arguments.end(), asked.bytes.begin(), asked.bytes.end());
    device_calls calls(host);
    for (;;) {
      const device_calls::progress got = calls.go_on(of, arguments, now(), space);
      EXPECT_EQ(got.result, wire::status::ok);
      if (got.retry_at_ns == 0) return wire::decode_device_reply(std::span(space).first(got.reply_bytes))->outcome;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  [[nodiscard]] device_outcome construct(session& of, std::uint64_t number, std::uint64_t call_number,
                                         std::string_view plugin = "sorted", std::uint64_t room_bytes = 4 * mib) {
    std::string bytes(1, static_cast<char>(plugin.size()));
    bytes += plugin;
    return call(of, {.op = device_op::construct,
                     .device = number,
                     .call = call_number,
                     .room_bytes = room_bytes,
                     .bytes = std::as_bytes(std::span(bytes))});
  }

  std::vector<std::byte> space = std::vector<std::byte>(wire::maximum_payload_bytes);
  std::shared_ptr<device_host> host;
  std::unique_ptr<store> lent;
};

TEST_F(DeviceCalls, AreRememberedByTheirNumber) {
  attachment client = lent->open("default", 1).value();
  session& mine = *client.to;
  EXPECT_EQ(construct(mine, 1, 1), device_outcome::ok);
  EXPECT_EQ(construct(mine, 1, 1), device_outcome::ok);
  EXPECT_EQ(host->devices(), 1u);
  const std::string text = "pear";
  const wire::device_request write{
      .op = device_op::write, .device = 1, .call = 2, .object = 5, .bytes = std::as_bytes(std::span(text))};
  EXPECT_EQ(call(mine, write), device_outcome::ok);
  EXPECT_EQ(call(mine, {.op = device_op::erase, .device = 1, .call = 3, .object = 5}), device_outcome::ok);
  EXPECT_EQ(call(mine, {.op = device_op::erase, .device = 1, .call = 3, .object = 5}), device_outcome::ok);
  EXPECT_EQ(call(mine, write), device_outcome::repeated);
  EXPECT_EQ(call(mine, {.op = device_op::erase, .device = 1, .call = 4, .object = 5}), device_outcome::no_object);
  EXPECT_EQ(call(mine, {.op = device_op::read, .device = 2, .call = 5}), device_outcome::no_device);
  EXPECT_EQ(call(mine, {.op = device_op::destruct, .device = 1, .call = 6}), device_outcome::ok);
  EXPECT_EQ(call(mine, {.op = device_op::destruct, .device = 1, .call = 6}), device_outcome::ok);
  EXPECT_EQ(host->devices(), 0u);
  lent->leave(client, now());
}

TEST_F(DeviceCalls, AreCountedByPlugin) {
  attachment client = lent->open("default", 1).value();
  session& mine = *client.to;
  ASSERT_EQ(construct(mine, 1, 1), device_outcome::ok);
  ASSERT_EQ(construct(mine, 2, 1, "troublemaker"), device_outcome::ok);
  ASSERT_EQ(construct(mine, 3, 1), device_outcome::ok);
  const std::string text = "pear";
  EXPECT_EQ(call(mine, {.op = device_op::write, .device = 1, .call = 2, .bytes = std::as_bytes(std::span(text))}),
            device_outcome::ok);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(call(mine, {.op = device_op::read, .device = 1, .call = 3, .object = 9}), device_outcome::no_object);
  }
  EXPECT_EQ(call(mine, {.op = device_op::ask, .code = 99, .device = 1, .call = 4}), device_outcome::refused);
  EXPECT_EQ(call(mine, {.op = device_op::compute, .code = 8, .device = 2, .call = 2}), device_outcome::crashed);
  EXPECT_EQ(call(mine, {.op = device_op::destruct, .device = 3, .call = 2}), device_outcome::ok);
  const server_view view{.lent = lent.get(), .loops = {}, .address = {}, .devices = host};
  const std::string shown = prometheus_text(view, 1);
  for (const char* line : {"farheapd_devices{plugin=\"sorted\"} 1\n", "farheapd_devices{plugin=\"troublemaker\"} 0\n",
                           "farheapd_devices_constructed_total{plugin=\"sorted\"} 2\n",
                           "farheapd_device_calls_total{plugin=\"sorted\",outcome=\"ok\"} 1\n",
                           "farheapd_device_calls_total{plugin=\"sorted\",outcome=\"no_object\"} 3\n",
                           "farheapd_device_calls_total{plugin=\"sorted\",outcome=\"refused\"} 1\n",
                           "farheapd_device_calls_total{plugin=\"troublemaker\",outcome=\"crashed\"} 1\n"}) {
    EXPECT_NE(shown.find(line), std::string::npos) << line << shown;
  }
  EXPECT_NE(shown.find("farheapd_device_call_seconds_total{plugin=\"sorted\"} "), std::string::npos);
  lent->end(mine);
  EXPECT_NE(prometheus_text(view, 1).find("farheapd_devices{plugin=\"sorted\"} 0\n"), std::string::npos);
  lent->leave(client, now());
}

TEST_F(DeviceCalls, HoldRoomUntilTheirSessionEnds) {
  attachment client = lent->open("small", 1).value();
  session& mine = *client.to;
  // 16 MiB are 8 blocks, and each device takes 2 beside its room.
  EXPECT_EQ(construct(mine, 1, 1), device_outcome::ok);
  EXPECT_EQ(construct(mine, 2, 1, "troublemaker"), device_outcome::ok);
  EXPECT_EQ(construct(mine, 3, 1), device_outcome::no_room);
  EXPECT_EQ(mine.allocate({0, 1}), wire::status::no_space);
  lent->validate();
  EXPECT_EQ(lent->used().held_blocks, 8u);
  // A device that ends its process gives its room back.
  EXPECT_EQ(call(mine, {.op = device_op::compute, .code = 8, .device = 2, .call = 2}), device_outcome::crashed);
  lent->validate();
  EXPECT_EQ(lent->used().held_blocks, 4u);
  EXPECT_EQ(call(mine, {.op = device_op::compute, .code = 2, .device = 2, .call = 3}), device_outcome::lost);
  EXPECT_EQ(construct(mine, 3, 1), device_outcome::ok);
  lent->end(mine);
  lent->validate();
  EXPECT_EQ(lent->used().held_blocks, 0u);
  EXPECT_EQ(host->devices(), 0u);
  EXPECT_EQ(construct(mine, 4, 1), device_outcome::no_room);
  lent->validate();
  lent->leave(client, now());
}

TEST_F(DeviceCalls, ThatEndBetweenCallsGiveTheirRoomBack) {
  lent->set_limits({{"small", {.devices = 1}}});
  attachment client = lent->open("small", 1).value();
  session& mine = *client.to;
  ASSERT_EQ(construct(mine, 1, 1, "troublemaker"), device_outcome::ok);
  ASSERT_EQ(construct(mine, 2, 1), device_outcome::no_room);
  ASSERT_EQ(call(mine, {.op = device_op::ask, .code = 13, .device = 1, .call = 2}), device_outcome::ok);
  std::uint64_t process = 0;
  std::memcpy(&process, space.data() + wire::device_reply_bytes, sizeof process);
  ASSERT_EQ(kill(static_cast<pid_t>(process), SIGKILL), 0);
  for (int i = 0; i < 3000 && host->devices() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    host->look_after(now());
  }
  EXPECT_EQ(host->devices(), 0u);
  EXPECT_EQ(lent->used().held_blocks, 0u);
  lent->validate();
  const std::string shown = prometheus_text({.lent = lent.get(), .loops = {}, .address = {}, .devices = host}, 1);
  EXPECT_NE(shown.find("farheapd_devices_ended_total{plugin=\"troublemaker\"} 1\n"), std::string::npos) << shown;
  EXPECT_NE(shown.find("farheapd_tenant_devices{tenant=\"small\"} 0\n"), std::string::npos);
  EXPECT_EQ(call(mine, {.op = device_op::ask, .code = 2, .device = 1, .call = 3}), device_outcome::lost);
  EXPECT_EQ(construct(mine, 2, 1), device_outcome::ok);
  lent->end(mine);
  lent->validate();
  lent->leave(client, now());
}

// Leases are not over for long, and nobody needs the memory.
class DevicesAtTheLimit : public DeviceCalls {
 protected:
  static constexpr std::uint64_t second_ns = 1'000'000'000;

  void SetUp() override {
    DeviceCalls::SetUp();
    lent = store::create({.memory_bytes = 128 * mib,
                          .grace_ns = 10 * second_ns,
                          .lease_ns = 3600 * second_ns,
                          .quota_bytes = {},
                          .make_source = {}})
               .value();
  }
  void permit(std::uint32_t devices) { lent->set_limits({{"default", {.devices = devices}}}); }
  [[nodiscard]] attachment open_with_device() {
    attachment client = lent->open("default", 1).value();
    EXPECT_EQ(construct(*client.to, 1, 1), device_outcome::ok);
    return client;
  }
  // Its program has gone, later than those that went before.
  wire::session_id leave(attachment& client) {
    const wire::session_id id = client.to->id();
    lent->leave(client, ++left_at_ns);
    return id;
  }
  void let_grace_pass() { lent->expire(left_at_ns + 20 * second_ns); }
  [[nodiscard]] bool lives(const wire::session_id& id) { return lent->knows("default", id); }

  std::uint64_t left_at_ns = now();
};

TEST_F(DevicesAtTheLimit, OfAProgramThatHasGoneMakeWay) {
  permit(1);
  attachment without = lent->open("default", 1).value();
  ASSERT_EQ(without.to->allocate({0, 1}), wire::status::ok);
  const wire::session_id kept = leave(without);
  attachment gone = open_with_device();
  leave(gone);
  attachment next = lent->open("default", 1).value();
  EXPECT_EQ(construct(*next.to, 1, 1), device_outcome::no_room) << "it may come back";
  let_grace_pass();
  EXPECT_EQ(construct(*next.to, 1, 2), device_outcome::ok);
  EXPECT_EQ(host->devices(), 1u);
  EXPECT_TRUE(lives(kept)) << "it has no device";
  EXPECT_EQ(construct(*next.to, 2, 1), device_outcome::no_room);
  lent->validate();
  lent->end(*next.to);
  lent->leave(next, left_at_ns);
}

// Its device is a process for functions, or its program comes back for its memory.
TEST_F(DevicesAtTheLimit, OfASessionWithFarMemoryStay) {
  permit(1);
  attachment client = open_with_device();
  ASSERT_EQ(client.to->allocate({0, 1}), wire::status::ok);
  const wire::session_id kept = leave(client);
  let_grace_pass();
  attachment next = lent->open("default", 1).value();
  EXPECT_EQ(construct(*next.to, 1, 1), device_outcome::no_room);
  EXPECT_TRUE(lives(kept));
  EXPECT_EQ(host->devices(), 1u);
  lent->validate();
  lent->leave(next, left_at_ns);
}

// The operator has lowered it.
TEST_F(DevicesAtTheLimit, MakeWayInAsManySessionsAsNecessary) {
  permit(3);
  std::array<wire::session_id, 3> gone;
  for (wire::session_id& one : gone) {
    attachment client = open_with_device();
    one = leave(client);
  }
  let_grace_pass();
  permit(2);
  attachment next = lent->open("default", 1).value();
  EXPECT_EQ(construct(*next.to, 1, 1), device_outcome::ok);
  EXPECT_FALSE(lives(gone[0]));
  EXPECT_FALSE(lives(gone[1]));
  EXPECT_TRUE(lives(gone[2])) << "it went last";
  EXPECT_EQ(host->devices(), 2u);
  EXPECT_EQ(lent->sessions_ended_early(), 2u);
  lent->validate();
  lent->leave(next, left_at_ns);
}

TEST_F(DevicesAtTheLimit, StayWhereTheirEndDoesNotHelp) {
  permit(3);
  attachment there = open_with_device();
  ASSERT_EQ(construct(*there.to, 2, 1), device_outcome::ok);
  attachment gone = open_with_device();
  const wire::session_id kept = leave(gone);
  let_grace_pass();
  permit(2);
  EXPECT_EQ(construct(*there.to, 3, 1), device_outcome::no_room);
  EXPECT_TRUE(lives(kept));
  EXPECT_EQ(host->devices(), 3u);
  EXPECT_EQ(lent->sessions_ended_early(), 0u);
  lent->validate();
  lent->leave(there, left_at_ns);
}

// It has not died of the call, which a copy of it may well take.
TEST_F(DeviceCalls, OfOneThatHasEndedBeforeFindItLost) {
  attachment client = lent->open("default", 1).value();
  session& mine = *client.to;
  ASSERT_EQ(construct(mine, 1, 1, "troublemaker"), device_outcome::ok);
  ASSERT_EQ(call(mine, {.op = device_op::ask, .code = 13, .device = 1, .call = 2}), device_outcome::ok);
  std::uint64_t process = 0;
  std::memcpy(&process, space.data() + wire::device_reply_bytes, sizeof process);
  const std::string guardian = status_of(std::to_string(process), "PPid:");
  ASSERT_EQ(kill(static_cast<pid_t>(process), SIGKILL), 0);
  for (int i = 0; i < 3000 && status_of(guardian, "State:") != "Z"; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(call(mine, {.op = device_op::compute, .code = 2, .device = 1, .call = 3}), device_outcome::lost);
  EXPECT_EQ(call(mine, {.op = device_op::compute, .code = 2, .device = 1, .call = 3}), device_outcome::lost);
  EXPECT_EQ(host->devices(), 0u);
  const std::string shown = prometheus_text({.lent = lent.get(), .loops = {}, .address = {}, .devices = host}, 1);
  EXPECT_NE(shown.find("farheapd_devices_ended_total{plugin=\"troublemaker\"} 1\n"), std::string::npos) << shown;
  lent->validate();
  lent->leave(client, now());
}

// What it gave back would not pay for a megabyte of reply, and a client may lose as many devices as it likes.
TEST_F(DeviceCalls, LeaveNoRepliesBehindWhenTheyAreLost) {
  attachment client = lent->open("default", 1).value();
  session& mine = *client.to;
  ASSERT_EQ(construct(mine, 1, 1, "troublemaker"), device_outcome::ok);
  const wire::device_request change{.op = device_op::compute, .code = 2, .device = 1, .call = 2};
  EXPECT_EQ(call(mine, change), device_outcome::ok);
  EXPECT_EQ(call(mine, change), device_outcome::ok);
  EXPECT_EQ(call(mine, {.op = device_op::ask, .code = 8, .device = 1, .call = 3}), device_outcome::crashed);
  EXPECT_EQ(call(mine, change), device_outcome::lost);
  EXPECT_EQ(call(mine, {.op = device_op::destruct, .device = 1, .call = 4}), device_outcome::ok);
  // The reply to the call that lost it is short, and stays.
  ASSERT_EQ(construct(mine, 2, 5, "troublemaker"), device_outcome::ok);
  const wire::device_request last{.op = device_op::compute, .code = 8, .device = 2, .call = 6};
  EXPECT_EQ(call(mine, last), device_outcome::crashed);
  EXPECT_EQ(call(mine, last), device_outcome::crashed);
  lent->validate();
  lent->leave(client, now());
}

// What was collected to be sent is let go, so that the room is there for objects again.
TEST_F(DeviceCalls, HaveTheirWholeRoomAfterTheyAreSaved) {
  attachment client = lent->open("default", 1).value();
  session& mine = *client.to;
  ASSERT_EQ(construct(mine, 1, 1, "sorted", 64 * mib), device_outcome::ok);
  const std::vector<std::byte> object(1'000'000);
  std::uint64_t number = 1;
  const auto write = [&] {
    ++number;
    return call(mine, {.op = device_op::write, .device = 1, .call = number, .object = number, .bytes = object});
  };
  for (int i = 0; i < 12; ++i) ASSERT_EQ(write(), device_outcome::ok);
  for (std::uint64_t at = 0, all = 1; at < all;) {
    ASSERT_EQ(call(mine, {.op = device_op::save, .device = 1, .call = ++number, .object = at}), device_outcome::ok);
    std::memcpy(&all, space.data() + wire::device_reply_bytes, sizeof all);
    at += wire::most_device_bytes - sizeof all;
  }
  // The plugin holds each of them twice.
  for (int i = 0; i < 17; ++i) ASSERT_EQ(write(), device_outcome::ok) << i;
  lent->leave(client, now());
}

// Its process takes longer to start.
TEST_F(DeviceCalls, OfAShortDeadlineAreConstructedAllTheSame) {
  result<std::shared_ptr<device_host>> started =
      device_host::start({parse_plugin(std::string(TROUBLEMAKER) + ":deadline=1ms").value()}, FARHEAPD);
  ASSERT_TRUE(started.ok()) << started.error().message;
  host = std::move(started).value();
  attachment client = lent->open("default", 1).value();
  session& mine = *client.to;
  EXPECT_EQ(construct(mine, 1, 1, "troublemaker"), device_outcome::ok);
  EXPECT_EQ(call(mine, {.op = device_op::compute, .code = 5, .device = 1, .call = 2}), device_outcome::timed_out);
  lent->leave(client, now());
}

// Nobody asks for its reply any more; its time is up all the same.
TEST_F(DeviceCalls, EndAtTheirDeadlineWithoutAConnection) {
  attachment client = lent->open("default", 1).value();
  session& mine = *client.to;
  ASSERT_EQ(construct(mine, 1, 1, "troublemaker"), device_outcome::ok);
  wire::device_request hang{.op = device_op::compute, .code = 5, .device = 1, .call = 2, .deadline_ms = 200};
  std::vector<std::byte> arguments(wire::device_request_bytes);
  wire::encode(hang, std::span(arguments).first<wire::device_request_bytes>());
  {
    device_calls calls(host);
    EXPECT_NE(calls.go_on(mine, arguments, now(), space).retry_at_ns, 0u);
    calls.abandon();
  }
  for (int i = 0; i < 3000 && host->devices() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    host->look_after(now());
  }
  EXPECT_EQ(host->devices(), 0u);
  EXPECT_EQ(call(mine, hang), device_outcome::timed_out);
  lent->validate();
  lent->leave(client, now());
}

// Whoever has asked a question is on the way to look whether it has ended, and would find nothing.
TEST(DeviceQuestions, AreNotAnsweredByHousekeeping) {
  struct scripted_body final : device_body {
    explicit scripted_body(unsigned& begun_calls) : begun(begun_calls) {}
    void begin(std::span<const std::byte>, std::uint64_t, std::uint64_t) override { ++begun; }
    [[nodiscard]] state advance(std::uint64_t now_ns) override {
      return now_ns < 100 ? state::waiting : state::replied;
    }
    [[nodiscard]] std::span<const std::byte> reply() const override { return said; }
    [[nodiscard]] bool has_ended() const override { return false; }
    unsigned& begun;
    std::array<std::byte, wire::device_reply_bytes> said{};  // ok
  };
  unsigned begun = 0;
  const std::shared_ptr<device_host> host =
      device_host::simulate({{.chosen = {.file = "", .deadline_ns = 1000, .options = ""}, .name = "scripted"}},
                            [&](const loaded_plugin&, std::size_t) {
                              return result<std::unique_ptr<device_body>>(std::make_unique<scripted_body>(begun));
                            });
  const auto lent = store::create({.memory_bytes = 64 * mib, .quota_bytes = {}, .make_source = {}}).value();
  attachment client = lent->open("default", 1).value();
  std::vector<std::byte> space(wire::maximum_payload_bytes);
  const auto go_on = [&](device_calls& calls, const wire::device_request& asked, std::uint64_t now_ns) {
    std::vector<std::byte> arguments(wire::device_request_bytes);
    wire::encode(asked, std::span(arguments).first<wire::device_request_bytes>());
    arguments.insert(arguments.end(), asked.bytes.begin(), asked.bytes.end());
    return calls.go_on(*client.to, arguments, now_ns, space).retry_at_ns != 0;
  };
  device_calls calls(host);
  const std::string name = "\x08scripted";
  const wire::device_request construct{
      .op = device_op::construct, .device = 1, .call = 1, .room_bytes = mib, .bytes = std::as_bytes(std::span(name))};
  ASSERT_FALSE(go_on(calls, construct, 100));
  const wire::device_request question{.op = device_op::ask, .device = 1, .call = 2};
  ASSERT_TRUE(go_on(calls, question, 50));
  host->look_after(150);
  EXPECT_FALSE(go_on(calls, question, 200));
  EXPECT_EQ(begun, 2u) << "the question began once";
  lent->leave(client, 200);
}

TEST_F(DeviceCalls, MayHaveAnyArguments) {
  attachment client = lent->open("default", 1).value();
  session& mine = *client.to;
  ASSERT_EQ(construct(mine, 1, 1), device_outcome::ok);
  std::mt19937_64 random(7);
  device_calls calls(host);
  unsigned answered = 0;
  for (int i = 0; i < 4000; ++i) {
    std::vector<std::byte> arguments(random() % 8 == 0 ? random() % 64 : wire::device_request_bytes + random() % 80);
    for (std::byte& one : arguments) one = static_cast<std::byte>(random());
    if (arguments.size() >= wire::device_request_bytes && random() % 4 != 0) {
      // Well-formed as far as that goes, but for nothing in particular.
      wire::encode({.op = static_cast<device_op>(random() % 11),
                    .code = static_cast<std::uint32_t>(random() % 5),
                    .device = random() % 3,
                    .call = 2 + static_cast<std::uint64_t>(i),
                    .object = random() % 2 == 0 ? random() % 4 : random(),
                    .room_bytes = random(),
                    .deadline_ms = 60'000},
                   std::span(arguments).first<wire::device_request_bytes>());
      if (random() % 2 == 0) arguments.resize(wire::device_request_bytes);
    }
    // Destructing would leave the others nothing to do.
    if (!arguments.empty() && arguments[0] == static_cast<std::byte>(device_op::destruct)) continue;
    device_calls::progress got = calls.go_on(mine, arguments, now(), space);
    while (got.retry_at_ns != 0) got = calls.go_on(mine, arguments, now(), space);
    if (got.result != wire::status::ok) continue;
    ++answered;
    ASSERT_TRUE(wire::decode_device_reply(std::span(space).first(got.reply_bytes)).has_value());
  }
  EXPECT_GT(answered, 1000u);
  EXPECT_EQ(call(mine, {.op = device_op::ask, .code = 1, .device = 1, .call = 10'000}), device_outcome::ok);
  lent->validate();
  lent->leave(client, now());
}

TEST(PluginChoice, IsReadFromAnOption) {
  const plugin_choice plain = parse_plugin("a.so").value();
  EXPECT_EQ(plain.file, "a.so");
  EXPECT_EQ(plain.options, "");
  const plugin_choice full = parse_plugin("/x/a.so:deadline=2s,size=3,room=8M,fast").value();
  EXPECT_EQ(full.file, "/x/a.so");
  EXPECT_EQ(full.deadline_ns, 2'000'000'000u);
  EXPECT_EQ(full.room_bytes, 8 * mib);
  EXPECT_EQ(full.options, "size=3,fast");
  for (const char* wrong : {"", ":deadline=1s", "a.so:deadline=0s", "a.so:deadline=", "a.so:room=x", "a.so:room=4K"}) {
    EXPECT_FALSE(parse_plugin(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace far::server
