// Devices whose process has the connection of its client: what they do while the server looks elsewhere, and that
// nothing else about them is different.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "far/device.h"
#include "tests/devices/device_server.h"
#include "tests/support/tls_test_files.h"

namespace far {
namespace {

using namespace std::chrono_literals;
using reason = device_error::reason;
using testing_support::cutting_proxy;
using testing_support::device_server;

// Operations of tests/devices/troublemaker.cc.
enum : std::uint32_t { add = 1, value = 2, hang = 5, write_outside = 6, leave = 8, process = 13 };

constexpr auto generous = 30s;  // for calls that are to succeed on a busy machine
constexpr int calls_until_direct = 20;

std::span<const std::byte> bytes_of(const std::uint64_t& number) {
  return std::as_bytes(std::span(&number, 1));
}

std::uint64_t number_in(const std::vector<std::byte>& bytes) {
  std::uint64_t number = 0;
  EXPECT_EQ(bytes.size(), sizeof number);
  std::memcpy(&number, bytes.data(), std::min(bytes.size(), sizeof number));
  return number;
}

template <typename Call>
reason reason_of(Call call) {
  try {
    call();
  } catch (const device_error& failure) {
    return failure.why();
  }
  ADD_FAILURE() << "a call that is to fail has succeeded";
  return reason::bad_tier;
}

std::vector<std::string> server_options(std::vector<std::string> more = {}) {
  std::vector<std::string> all{"--memory", "512M", "--plugin", std::string(TROUBLEMAKER) + ":deadline=60s"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Called often enough to have its connection.
std::unique_ptr<device> make(const std::string& tier, std::chrono::milliseconds deadline = generous) {
  auto made = std::make_unique<device>(tier, "troublemaker",
                                       device_options{.parameters = {}, .room_bytes = 8 << 20, .deadline = deadline});
  for (int i = 0; i < calls_until_direct; ++i) static_cast<void>(made->ask(value));
  return made;
}

// Beside its socket and the log it has the connection.
bool is_direct(pid_t its_process) {
  const std::filesystem::directory_iterator all("/proc/" + std::to_string(its_process) + "/fd");
  return std::distance(begin(all), end(all)) == 4;
}

pid_t process_of(device& one) {
  return static_cast<pid_t>(number_in(one.ask(process)));
}

bool has_ended(pid_t its_process) {
  for (int i = 0; i < 3000 && kill(its_process, 0) == 0; ++i) std::this_thread::sleep_for(10ms);
  return kill(its_process, 0) != 0;
}

// On io_uring, where that is permitted, and on epoll.
class DirectDevicesOf : public ::testing::TestWithParam<bool> {};

TEST_P(DirectDevicesOf, EachTransportNeedNoThreadOfTheServerForACall) {
  device_server server(server_options(GetParam() ? std::vector<std::string>{"--epoll"} : std::vector<std::string>{}));
  const std::unique_ptr<device> made = make("tcp://" + server.host());
  EXPECT_TRUE(is_direct(process_of(*made)));
  made->compute(add, bytes_of(5));
  server.signal(SIGSTOP);
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(number_in(made->compute(add, bytes_of(1))), 6 + i);
  server.signal(SIGCONT);
  EXPECT_EQ(number_in(made->compute(add, bytes_of(1))), 16u);
  const pid_t its_process = process_of(*made);
  server.signal(SIGKILL);
  EXPECT_TRUE(has_ended(its_process)) << "a device has outlived its server";
}

INSTANTIATE_TEST_SUITE_P(Both, DirectDevicesOf, ::testing::Bool(),
                         [](const auto& of) { return of.param ? "Epoll" : "IoUring"; });

TEST(DirectDevices, ThatEndInACallHarmNobodyElse) {
  device_server server(server_options());
  const std::string tier = "tcp://" + server.host();
  const std::unique_ptr<device> bystander = make(tier);
  bystander->compute(add, bytes_of(5));
  for (const std::uint32_t misdeed : {std::uint32_t{write_outside}, std::uint32_t{leave}}) {
    const std::unique_ptr<device> made = make(tier);
    EXPECT_EQ(reason_of([&] { made->compute(misdeed); }), reason::crashed) << misdeed;
    EXPECT_EQ(reason_of([&] { made->compute(value); }), reason::lost) << misdeed;
    const std::unique_ptr<device> asked = make(tier);
    EXPECT_EQ(reason_of([&] { static_cast<void>(asked->ask(misdeed)); }), reason::crashed) << misdeed;
    EXPECT_EQ(reason_of([&] { static_cast<void>(asked->ask(value)); }), reason::lost) << misdeed;
  }
  const std::unique_ptr<device> hanging = make(tier, 8s);
  const pid_t its_process = process_of(*hanging);
  EXPECT_TRUE(is_direct(its_process));
  EXPECT_EQ(reason_of([&] { hanging->compute(hang); }), reason::timed_out);
  EXPECT_EQ(reason_of([&] { static_cast<void>(hanging->ask(value)); }), reason::lost);
  EXPECT_TRUE(has_ended(its_process));
  EXPECT_EQ(number_in(bystander->ask(value)), 5u);
}

// From outside, in the middle of a call: as the kernel does it when memory runs out.
TEST(DirectDevices, ThatAreKilledInACallAreLost) {
  device_server server(server_options());
  const std::unique_ptr<device> made = make("tcp://" + server.host());
  const pid_t its_process = process_of(*made);
  std::thread killer([&] {
    std::this_thread::sleep_for(300ms);
    EXPECT_EQ(kill(its_process, SIGKILL), 0);
  });
  EXPECT_EQ(reason_of([&] { made->compute(hang); }), reason::crashed);
  killer.join();
  EXPECT_EQ(reason_of([&] { static_cast<void>(made->ask(value)); }), reason::lost);
}

// A call that ends the first copy's process is not tried on the second.
TEST(DirectDevices, OutliveTheirCallsWithCopies) {
  device_server one(server_options());
  device_server other(server_options());
  const std::unique_ptr<device> made = make("tcp://" + one.host() + "," + other.host() + "?copies=2");
  std::uint64_t sum = 0;
  for (std::uint64_t round = 0; round < 3; ++round) {
    for (std::uint64_t i = 0; i < calls_until_direct; ++i) {
      sum += i;
      EXPECT_EQ(number_in(made->compute(add, bytes_of(i))), sum);
    }
    EXPECT_EQ(reason_of([&] { made->compute(leave); }), reason::crashed);
    EXPECT_EQ(made->copies(), 2u);
    EXPECT_EQ(number_in(made->ask(value)), sum);
  }
}

// Connections to the server and to the process end in all parts of calls. Each call has happened once.
TEST(DirectDevices, DoEachCallOnceOverNewConnections) {
  device_server server(server_options());
  cutting_proxy between(server.port());
  const std::unique_ptr<device> made = make("tcp://" + between.host() + "?timeout=60s");
  ASSERT_TRUE(is_direct(process_of(*made)));
  between.cut_after(30ms);
  std::uint64_t sum = 0;
  for (unsigned calls = 0; calls < 1000 || between.cuts() < 10; ++calls) {
    ASSERT_EQ(number_in(made->compute(add, bytes_of(calls))), sum + calls);
    sum += calls;
  }
  between.cut_after(0ms);
  EXPECT_EQ(number_in(made->ask(value)), sum);
}

TEST(DirectDevices, OfManyClientsAreApart) {
  device_server server(server_options());
  std::vector<std::thread> clients;
  for (std::uint64_t number = 1; number <= 12; ++number) {
    clients.emplace_back([&, number] {
      const std::unique_ptr<device> made = make("tcp://" + server.host());
      EXPECT_TRUE(is_direct(process_of(*made)));
      for (std::uint64_t i = 1; i <= 200; ++i) EXPECT_EQ(number_in(made->compute(add, bytes_of(number))), i * number);
    });
  }
  for (std::thread& client : clients) client.join();
  for (int i = 0; i < 3000 && server.children() > 0; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(server.children(), 0u);
}

TEST(DirectDevices, AreNotForTenantsWithLimitedRates) {
  device_server server(server_options({"--limit", "slow=requests:100000", "--limit", "small=connections:1"}));
  const std::unique_ptr<device> slow = make("tcp://" + server.host() + "?tenant=slow");
  EXPECT_FALSE(is_direct(process_of(*slow)));
  EXPECT_EQ(number_in(slow->compute(add, bytes_of(5))), 5u);
  const std::unique_ptr<device> small = make("tcp://" + server.host() + "?tenant=small");
  EXPECT_FALSE(is_direct(process_of(*small)));
  EXPECT_EQ(number_in(small->compute(add, bytes_of(5))), 5u);
}

// The server has the keys: calls go through it, and take effect once, also over connections that break.
TEST(DirectDevices, AreNotForEncryptedConnections) {
  wire::tls_test_files files;
  const std::string authority = files.make_authority("authority");
  files.make_server("server", "authority", "IP:127.0.0.1");
  device_server server(server_options({"--tls-cert", files.certificate("server"), "--tls-key", files.key("server")}));
  const std::string options = "?tls=1&ca=" + authority;
  const std::unique_ptr<device> made = make("tcp://" + server.host() + options);
  EXPECT_FALSE(is_direct(process_of(*made)));
  for (std::uint64_t i = 1; i <= 50; ++i) EXPECT_EQ(number_in(made->compute(add, bytes_of(1))), i);
  EXPECT_FALSE(is_direct(process_of(*made))) << "nor is it asked for again and again";
  EXPECT_THROW(device("tcp://" + server.host() + "?timeout=1s", "troublemaker"), device_error);

  cutting_proxy between(server.port());
  const std::unique_ptr<device> disturbed = make("tcp://" + between.host() + options + "&timeout=60s");
  between.cut_after(200ms);
  std::uint64_t added = 0;
  while (added < 100 || between.cuts() < 5) {
    ASSERT_EQ(number_in(disturbed->compute(add, bytes_of(1))), ++added);
  }
  between.cut_after(0ms);
  EXPECT_EQ(number_in(disturbed->compute(add, bytes_of(1))), added + 1);
  EXPECT_FALSE(is_direct(process_of(*disturbed)));
  EXPECT_THROW(disturbed->compute(leave), device_error);
  EXPECT_EQ(number_in(made->compute(add, bytes_of(1))), 51u) << "another one goes on";
}

TEST(DirectDevices, DoNotKeepAServerFromEnding) {
  device_server server(server_options());
  const std::unique_ptr<device> made = make("tcp://" + server.host() + "?timeout=10s");
  const pid_t its_process = process_of(*made);
  EXPECT_TRUE(is_direct(its_process));
  std::thread hanging([&] {
    const reason why = reason_of([&] { made->compute(hang); });
    EXPECT_TRUE(why == reason::unreachable || why == reason::lost) << static_cast<int>(why);
  });
  std::this_thread::sleep_for(200ms);
  server.signal(SIGTERM);
  std::this_thread::sleep_for(200ms);
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait(), 0);
  EXPECT_TRUE(has_ended(its_process));
  hanging.join();
}

}  // namespace
}  // namespace far
