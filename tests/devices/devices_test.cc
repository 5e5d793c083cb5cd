// Devices on one server: what they do, and what becomes of those that misbehave.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "far/device.h"
#include "tests/devices/device_server.h"
#include "tests/support/scratch_folder.h"

namespace far {
namespace {

using namespace std::chrono_literals;
using reason = device_error::reason;
using testing_support::cutting_proxy;
using testing_support::device_server;

// Operations of tests/devices/troublemaker.cc.
enum : std::uint32_t {
  add = 1,
  value = 2,
  throw_text = 3,
  throw_number = 4,
  hang = 5,
  write_outside = 6,
  take_memory = 7,
  leave = 8,
  flood = 9,
  talk = 10,
  options = 11,
  wait_and_add = 12,
  process = 13,
  start_daemon = 15,
  throw_behind_result = 16,
  throw_unfit = 17,
  fork_and_return = 18,
  fork_and_throw = 19,
  fork_and_leave = 20,
  fork_and_stay = 21,
};

constexpr auto generous = 30s;  // for calls that are to succeed on a busy machine

std::span<const std::byte> bytes_of(const std::uint64_t& number) {
  return std::as_bytes(std::span(&number, 1));
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::uint64_t number_in(const std::vector<std::byte>& bytes) {
  std::uint64_t number = 0;
  EXPECT_EQ(bytes.size(), sizeof number);
  std::memcpy(&number, bytes.data(), std::min(bytes.size(), sizeof number));
  return number;
}

std::string text_in(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void expect_gone(pid_t process_number) {
  for (int i = 0; i < 3000 && kill(process_number, 0) == 0; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_NE(kill(process_number, 0), 0);
}

template <typename Call>
reason reason_of(Call call) {
  try {
    call();
  } catch (const device_error& failure) {
    EXPECT_STRNE(failure.what(), "");
    return failure.why();
  }
  ADD_FAILURE() << "a call that is to fail has succeeded";
  return reason::bad_tier;
}

// Over TCP, or through shared memory.
class Devices : public ::testing::TestWithParam<bool> {
 protected:
  [[nodiscard]] std::string tier(const std::string& tier_options = "") const {
    return (GetParam() ? "shm:" + place.path() + "/socket" : "tcp://" + server.host()) + tier_options;
  }
  [[nodiscard]] device make(const device_options& chosen = {.parameters = {}, .deadline = generous}) const {
    return {tier(), "troublemaker", chosen};
  }

  const scratch_folder place;
  device_server server{{"--memory", "256M", "--shm", place.path() + "/socket", "--plugin",
                        std::string(TROUBLEMAKER) + ":room=64M,deadline=60s,mood=bad", "--plugin", SORTED}};
};

TEST_P(Devices, AreListedByNameAndVersion) {
  const std::vector<device_plugin> found = device::plugins_of(tier());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, "troublemaker");
  EXPECT_EQ(found[1].name, "sorted");
  EXPECT_EQ(found[1].version, "1.0");
  EXPECT_EQ(found[1].interface_version, 1u);
}

TEST_P(Devices, KeepObjectsAndComputeOnThem) {
  device words(tier(), "sorted", {.parameters = {}, .deadline = generous});
  words.write(1, bytes_of("pear"));
  words.write(2, bytes_of("apple"));
  words.write(3, bytes_of("quince"));
  words.write(1, bytes_of("cherry"));
  EXPECT_EQ(text_in(words.read(1)), "cherry");
  EXPECT_EQ(number_in(words.ask(1)), 3u);
  const std::uint64_t first_two[] = {0, 2};
  std::vector<std::byte> found = words.ask(2, std::as_bytes(std::span(first_two)));
  ASSERT_EQ(found.size(), 16u);
  std::uint64_t order[2];
  std::memcpy(order, found.data(), sizeof order);
  EXPECT_EQ(order[0], 2u);
  EXPECT_EQ(order[1], 1u);
  words.erase(2);
  EXPECT_EQ(reason_of([&] { static_cast<void>(words.read(2)); }), reason::no_object);
  EXPECT_EQ(number_in(words.ask(1)), 2u);
}

TEST_P(Devices, AreApartFromEachOther) {
  device one = make();
  device other = make();
  one.compute(add, bytes_of(5));
  EXPECT_EQ(number_in(other.ask(value)), 0u);
  EXPECT_NE(number_in(one.ask(process)), number_in(other.ask(process)));
  EXPECT_EQ(text_in(one.ask(options)), "mood=bad");
}

// Any user of the machine may read arguments.
TEST_P(Devices, KeepTheirOptionsToThemselves) {
  device one = make();
  const std::string folder = "/proc/" + std::to_string(number_in(one.ask(process)));
  std::string status;
  std::string guardian;
  for (std::ifstream lines(folder + "/status"); std::getline(lines, status);) {
    if (status.starts_with("PPid:")) guardian = "/proc/" + status.substr(status.find_first_of("0123456789"));
  }
  for (const std::string& of : {folder, guardian}) {
    std::string arguments;
    std::getline(std::ifstream(of + "/cmdline"), arguments);
    EXPECT_NE(arguments.find("farheapd-device"), std::string::npos) << of;
    EXPECT_EQ(arguments.find("mood"), std::string::npos) << arguments;
  }
}

TEST_P(Devices, CarryMessagesOfFullLength) {
  device words(tier(), "sorted", {.parameters = {}, .deadline = generous});
  const std::string longest(device::most_bytes, 'w');
  words.write(9, bytes_of(longest));
  EXPECT_EQ(text_in(words.read(9)), longest);
  EXPECT_EQ(reason_of([&] { words.write(9, bytes_of(longest + "w")); }), reason::refused);
}

TEST_P(Devices, SurviveTheirExceptions) {
  device made = make();
  made.compute(add, bytes_of(5));
  try {
    made.compute(throw_text);
    FAIL() << "a refused call has succeeded";
  } catch (const device_error& failure) {
    EXPECT_EQ(failure.why(), reason::refused);
    EXPECT_NE(std::string(failure.what()).find("a text"), std::string::npos) << failure.what();
  }
  EXPECT_EQ(reason_of([&] { made.compute(throw_number); }), reason::refused);
  EXPECT_EQ(reason_of([&] { made.compute(flood); }), reason::refused);
  EXPECT_EQ(reason_of([&] { made.compute(add); }), reason::refused);
  EXPECT_EQ(number_in(made.ask(value)), 5u);
}

template <typename Call>
std::string text_of(Call call) {
  try {
    call();
  } catch (const device_error& failure) {
    return failure.what();
  }
  return "nothing was thrown";
}

// Of all functions, with outputs or without.
TEST_P(Devices, PassTheTextsOfTheirExceptionsOn) {
  device made = make();
  const std::string peer = GetParam() ? "shm:" + place.path() + "/socket" : "tcp://" + server.host();
  EXPECT_EQ(text_of([&] { made.compute(throw_text); }), peer + ": refused: a text");
  EXPECT_EQ(text_of([&] { static_cast<void>(made.ask(throw_behind_result)); }), peer + ": refused: a text");
  EXPECT_EQ(text_of([&] { made.write(13, bytes_of(1)); }), peer + ": refused: not this one");
  EXPECT_EQ(text_of([&] { made.erase(14); }), peer + ": refused: not that one");
  EXPECT_EQ(text_of([&] { made.write(0, {}); }), peer + ": refused: the arguments are too short");
  EXPECT_EQ(text_of([&] { made.compute(throw_number); }),
            peer + ": refused: the plugin threw something that is no std::exception");
  EXPECT_EQ(text_of([&] { made.compute(flood); }), peer + ": refused: the result is too long");
  EXPECT_EQ(text_of([&] { static_cast<void>(made.read(7)); }), peer + ": no such object");
  EXPECT_EQ(text_of([&] { device(tier(), "troublemaker", {.parameters = bytes_of("refuse"), .deadline = generous}); }),
            peer + ": refused: as it was asked to");
  const std::string unfit = text_of([&] { made.compute(throw_unfit); });
  EXPECT_TRUE(unfit.starts_with(peer + ": refused: \\x1b[2J\\x0a")) << unfit;
  EXPECT_LT(unfit.size(), 5000u);
  EXPECT_TRUE(std::ranges::all_of(unfit, [](char one) { return one >= ' ' && one <= '~'; })) << unfit;
  EXPECT_EQ(number_in(made.ask(value)), 0u);
}

TEST_P(Devices, OfUnknownPluginsSayWhichThereAre) {
  const std::string text = text_of([&] { device(tier(), "nothing"); });
  EXPECT_NE(text.find("there is no plugin 'nothing', but troublemaker 1.0, sorted 1.0; construct one of these, or load "
                      "the other: farheapd --plugin FILE"),
            std::string::npos)
      << text;
}

TEST_P(Devices, ThatEndTheirProcessHarmNobodyElse) {
  device bystander = make();
  bystander.compute(add, bytes_of(5));
  for (const std::uint32_t misdeed : {std::uint32_t{write_outside}, std::uint32_t{leave}, std::uint32_t{talk}}) {
    device made = make();
    EXPECT_EQ(reason_of([&] { made.compute(misdeed); }), reason::crashed) << misdeed;
    EXPECT_EQ(reason_of([&] { made.compute(value); }), reason::lost) << misdeed;
  }
  EXPECT_EQ(number_in(bystander.ask(value)), 5u);
}

TEST_P(Devices, ThatHangAreEndedAtTheirDeadline) {
  device bystander = make();
  device made = make({.parameters = {}, .deadline = 8s});
  const std::uint64_t its_process = number_in(made.ask(process));
  EXPECT_EQ(reason_of([&] { made.compute(hang); }), reason::timed_out);
  EXPECT_EQ(reason_of([&] { static_cast<void>(made.ask(value)); }), reason::lost);
  // Others are served while one hangs.
  device slow = make({.parameters = {}, .deadline = 8s});
  std::thread hanging([&] { EXPECT_EQ(reason_of([&] { slow.compute(hang); }), reason::timed_out); });
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(number_in(bystander.compute(add, bytes_of(1))), static_cast<std::uint64_t>(i) + 1);
  hanging.join();
  for (int i = 0; i < 3000 && kill(static_cast<pid_t>(its_process), 0) == 0; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_NE(kill(static_cast<pid_t>(its_process), 0), 0) << "the process of a lost device is still there";
}

// Its process takes longer to start than such a call may.
TEST_P(Devices, OfShortCallsAreConstructedAllTheSame) {
  EXPECT_NO_THROW(static_cast<void>(make({.parameters = {}, .deadline = 1ms})));
}

TEST_P(Devices, ThatCannotBeConstructedSayWhy) {
  const auto construct = [&](std::string_view parameters) {
    const auto deadline = parameters == "hang" ? 8s : 60s;
    return reason_of(
        [&] { device(tier(), "troublemaker", {.parameters = bytes_of(parameters), .deadline = deadline}); });
  };
  EXPECT_EQ(construct("refuse"), reason::refused);
  EXPECT_EQ(construct("hang"), reason::timed_out);
  EXPECT_EQ(construct("crash"), reason::crashed);
  EXPECT_EQ(reason_of([&] { device(tier(), "nothing"); }), reason::no_plugin);
  EXPECT_EQ(reason_of([&] { device(tier(), "no name"); }), reason::no_plugin);
  EXPECT_EQ(reason_of([&] { device("file:/tmp/x", "sorted"); }), reason::bad_tier);
  EXPECT_EQ(reason_of([&] { static_cast<void>(make({.parameters = {}, .room_bytes = 65 << 20})); }), reason::no_room);
}

TEST_P(Devices, TakeNoMoreMemoryThanTheirRoom) {
  if (SANITIZED) GTEST_SKIP() << "a sanitizer's address space is no measure of memory";
  device made = make({.parameters = {}, .room_bytes = 16 << 20, .deadline = generous});
  made.compute(take_memory, bytes_of(8 << 20));
  EXPECT_EQ(reason_of([&] { made.compute(take_memory, bytes_of(16 << 20)); }), reason::refused);
  EXPECT_EQ(number_in(made.ask(value)), 0u);
}

// A sorted.so that finds no memory in the middle of a write has not begun it.
TEST_P(Devices, RefuseWritesThatTheyHaveNoMemoryFor) {
  if (SANITIZED) GTEST_SKIP() << "a sanitizer's address space is no measure of memory";
  device words(tier(), "sorted", {.parameters = {}, .room_bytes = 8 << 20, .deadline = generous});
  words.write(1, bytes_of("pear"));
  words.write(2, bytes_of("quince"));
  std::uint64_t object = 3;
  std::size_t size = 500'000;
  while (size > 1'000) {
    try {
      words.write(object, bytes_of(std::string(size, 'x')));
      ++object;
    } catch (const device_error& failure) {
      ASSERT_EQ(failure.why(), reason::refused) << failure.what();
      // The same for an object that there is.
      EXPECT_EQ(reason_of([&] { words.write(1, bytes_of(std::string(size, 'x'))); }), reason::refused);
      EXPECT_EQ(text_in(words.read(1)), "pear");
      EXPECT_EQ(number_in(words.ask(3, bytes_of("~"))), object - 1) << "that many are in order";
      size = size * 9 / 10;
    }
  }
  EXPECT_EQ(text_in(words.read(1)), "pear");
}

// The process of a device never outlives its server.
TEST_P(Devices, EndWithTheirServer) {
  device made = make();
  const auto its_process = static_cast<pid_t>(number_in(made.ask(process)));
  EXPECT_EQ(kill(its_process, 0), 0);
  server.signal(SIGKILL);
  expect_gone(its_process);
}

// A daemon is in a session of its own, and its parent has ended.
TEST_P(Devices, TakeWhatTheyHaveStartedWithThem) {
  const auto daemon_of = [](device& one) {
    const auto number = static_cast<pid_t>(number_in(one.compute(start_daemon)));
    EXPECT_EQ(kill(number, 0), 0);
    return number;
  };
  device bystander = make();
  const pid_t living = daemon_of(bystander);
  pid_t left = 0;
  {
    device made = make();
    left = daemon_of(made);
  }
  {
    SCOPED_TRACE("the device is destructed");
    expect_gone(left);
  }
  {
    SCOPED_TRACE("the device crashes");
    device made = make();
    left = daemon_of(made);
    EXPECT_EQ(reason_of([&] { made.compute(leave); }), reason::crashed);
    expect_gone(left);
  }
  {
    SCOPED_TRACE("the device hangs");
    device made = make({.parameters = {}, .deadline = 5s});
    left = daemon_of(made);
    EXPECT_EQ(reason_of([&] { made.compute(hang); }), reason::timed_out);
    expect_gone(left);
  }
  EXPECT_EQ(kill(living, 0), 0) << "of another device";
  SCOPED_TRACE("the server is killed");
  server.signal(SIGKILL);
  expect_gone(living);
}

// Each call has one answer, that of the device's own process, and no child is left.
TEST_P(Devices, ThatForkInACallAnswerOnce) {
  device bystander = make();
  std::vector<pid_t> children;
  {
    device made = make();
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < 20; ++i) {
      const std::vector<std::byte> answer = i % 2 == 0 ? made.compute(fork_and_return) : made.ask(fork_and_return);
      children.push_back(static_cast<pid_t>(number_in(answer)));
      ASSERT_GT(children.back(), 0) << "the answer of the child";
      ASSERT_EQ(number_in(made.compute(add, bytes_of(i))), sum += i);
      ASSERT_EQ(number_in(made.ask(value)), sum);
      const std::string text = text_of([&] { made.compute(fork_and_throw); });
      ASSERT_NE(text.find("the parent"), std::string::npos) << text;
    }
    children.push_back(static_cast<pid_t>(number_in(made.compute(fork_and_stay))));
    EXPECT_EQ(number_in(made.ask(value)), sum) << "beside its child";
    EXPECT_EQ(kill(children.back(), 0), 0);
    EXPECT_EQ(reason_of([&] { made.compute(fork_and_leave); }), reason::crashed);
    EXPECT_EQ(reason_of([&] { made.compute(value); }), reason::lost);
  }
  for (const pid_t child : children) expect_gone(child);
  EXPECT_EQ(number_in(bystander.compute(add, bytes_of(5))), 5u);
}

TEST_P(Devices, DoNotKeepAServerFromEnding) {
  device made(tier("?timeout=10s"), "troublemaker", {.parameters = {}, .deadline = generous});
  std::thread hanging([&] {
    const reason why = reason_of([&] { made.compute(hang); });
    EXPECT_TRUE(why == reason::unreachable || why == reason::lost || why == reason::timed_out) << static_cast<int>(why);
  });
  std::this_thread::sleep_for(200ms);
  server.signal(SIGTERM);
  std::this_thread::sleep_for(200ms);
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait(), 0);
  hanging.join();
}

// Nobody calls it; the system need not remember it, and its room is another's.
TEST_P(Devices, ThatEndBetweenCallsAreLetGo) {
  const device_options all_but_one_device{.parameters = {}, .room_bytes = 64 << 20, .deadline = generous};
  std::vector<std::unique_ptr<device>> made;
  for (int i = 0; i < 3; ++i) made.push_back(std::make_unique<device>(tier(), "troublemaker", all_but_one_device));
  EXPECT_EQ(reason_of([&] { device(tier(), "troublemaker", all_but_one_device); }), reason::no_room);
  const auto its_process = static_cast<pid_t>(number_in(made[0]->ask(process)));
  ASSERT_EQ(kill(its_process, SIGKILL), 0);
  std::unique_ptr<device> another;
  for (const auto until = std::chrono::steady_clock::now() + generous; !another;) {
    try {
      another = std::make_unique<device>(tier(), "troublemaker", all_but_one_device);
    } catch (const device_error& failure) {
      ASSERT_EQ(failure.why(), reason::no_room);
      ASSERT_LT(std::chrono::steady_clock::now(), until) << "a process that has ended still has its room";
      std::this_thread::sleep_for(10ms);
    }
  }
  EXPECT_EQ(number_in(another->compute(add, bytes_of(4))), 4u);
  EXPECT_EQ(reason_of([&] { static_cast<void>(made[0]->ask(value)); }), reason::lost);
}

INSTANTIATE_TEST_SUITE_P(Over, Devices, ::testing::Bool(),
                         [](const auto& of) { return of.param ? "SharedMemory" : "Tcp"; });

// Connections end in the middle of calls. Each call has happened once.
TEST(DevicesOverTcp, DoEachCallOnceOverNewConnections) {
  const device_server server({"--memory", "256M", "--plugin", std::string(TROUBLEMAKER) + ":deadline=60s"});
  cutting_proxy between(server.port());
  device made("tcp://" + between.host() + "?timeout=60s", "troublemaker", {.parameters = {}, .deadline = generous});
  // Longer than a call, so that each connection gets some way; the ends of connections fall into all parts of calls.
  between.cut_after(70ms);
  std::uint64_t calls = 0;
  while (calls < 20 || between.cuts() < 10) {
    ++calls;
    ASSERT_EQ(number_in(made.compute(wait_and_add, bytes_of(20'000))), calls);
    ASSERT_LT(calls, 2000u);
  }
  between.cut_after(0ms);
  EXPECT_EQ(number_in(made.ask(value)), calls);
}

// Whoever starts the server may have left descriptors open, which a device would keep open, too.
TEST(DevicesAndDescriptors, HaveTheirSocketAndTheLogOnly) {
  const int left_open = open("/dev/null", O_RDONLY);
  ASSERT_GE(left_open, 0);
  const device_server server({"--memory", "64M", "--plugin", TROUBLEMAKER});
  close(left_open);
  device made("tcp://" + server.host(), "troublemaker",
              {.parameters = {}, .room_bytes = 8 << 20, .deadline = generous});
  const std::string folder = "/proc/" + std::to_string(number_in(made.ask(process))) + "/fd";
  std::vector<std::string> found;
  for (const auto& one : std::filesystem::directory_iterator(folder)) found.push_back(one.path().filename());
  std::ranges::sort(found);
  EXPECT_EQ(found, (std::vector<std::string>{"0", "1", "2"}));
}

// The system would give the number of a process away when it ends, and the server would kill another's later.
TEST(DevicesOfServersThatAreToIgnoreChildren, KeepTheirNumbers) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  const device_server server({"--memory", "64M", "--plugin", TROUBLEMAKER});
  static_cast<void>(std::signal(SIGCHLD, before));
  std::ifstream status("/proc/" + std::to_string(server.process()) + "/status");
  std::string ignored;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("SigIgn:")) ignored = line.substr(7);
  }
  ASSERT_NE(ignored, "");
  EXPECT_EQ(std::stoull(ignored, nullptr, 16) >> (SIGCHLD - 1) & 1, 0u);
}

// Two tenants: a quota pays for devices as for pages.
TEST(DevicesOfTenants, CountAgainstTheirQuotas) {
  const scratch_folder folder;
  const std::string tokens = folder.path() + "/tokens";
  const std::string alice = "a-token-of-alice-for-tests";
  const std::string bob = "a-token-of-bob-for-tests";
  std::ofstream(tokens) << "alice " << alice << "\nbob " << bob << "\n";
  std::ofstream(folder.path() + "/alice") << alice << "\n";
  std::ofstream(folder.path() + "/bob") << bob << "\n";
  for (const char* name : {"/tokens", "/alice", "/bob"}) {
    std::filesystem::permissions(folder.path() + name, std::filesystem::perms::owner_read);
  }
  const device_server server(
      {"--memory", "512M", "--token-file", tokens, "--quota", "alice=64M", "--plugin", TROUBLEMAKER});
  const auto tier_of = [&](const std::string& tenant) {
    return "tcp://" + server.host() + "?tenant=" + tenant + "&token-file=" + folder.path() + "/" + tenant;
  };
  const device_options of_24{.parameters = {}, .room_bytes = 24 << 20, .deadline = generous};
  device first(tier_of("alice"), "troublemaker", of_24);
  {
    device second(tier_of("alice"), "troublemaker", of_24);
    EXPECT_EQ(reason_of([&] { device(tier_of("alice"), "troublemaker", of_24); }), reason::no_room);
    device of_bob(tier_of("bob"), "troublemaker", of_24);
    of_bob.compute(add, bytes_of(3));
    // What a lost device had, another may have.
    EXPECT_EQ(reason_of([&] { second.compute(leave); }), reason::crashed);
    device third(tier_of("alice"), "troublemaker", of_24);
    EXPECT_EQ(number_in(third.compute(add, bytes_of(1))), 1u);
  }
  device fourth(tier_of("alice"), "troublemaker", of_24);
  EXPECT_EQ(number_in(fourth.compute(add, bytes_of(1))), 1u);
  EXPECT_EQ(reason_of([&] { device("tcp://" + server.host() + "?timeout=5s", "troublemaker", of_24); }),
            reason::unreachable);
}

// Beside the quota: a device is a process, however little memory it takes.
TEST(DevicesOfTenants, AreAsManyAsTheirLimitPermits) {
  const device_server server({"--memory", "512M", "--limit", "*=devices:2", "--plugin", TROUBLEMAKER});
  const std::string alice = "tcp://" + server.host() + "?tenant=alice";
  const std::string bob = "tcp://" + server.host() + "?tenant=bob";
  const device_options little{.parameters = {}, .room_bytes = 4 << 20, .deadline = generous};
  device first(alice, "troublemaker", little);
  {
    device second(alice, "troublemaker", little);
    EXPECT_EQ(reason_of([&] { device(alice, "troublemaker", little); }), reason::no_room);
    device of_bob(bob, "troublemaker", little);
    EXPECT_EQ(number_in(of_bob.compute(add, bytes_of(3))), 3u);
    // A lost one does not count.
    EXPECT_EQ(reason_of([&] { second.compute(leave); }), reason::crashed);
    device third(alice, "troublemaker", little);
    EXPECT_EQ(reason_of([&] { device(alice, "troublemaker", little); }), reason::no_room);
  }
  device fourth(alice, "troublemaker", little);
  EXPECT_EQ(number_in(fourth.compute(add, bytes_of(1))), 1u);
}

TEST(DevicesWithoutServers, LiveInTheProcess) {
  const std::string tier = std::string("memory:?plugin=") + SORTED;
  device words(tier, "sorted");
  words.write(1, bytes_of("pear"));
  EXPECT_EQ(text_in(words.read(1)), "pear");
  EXPECT_EQ(reason_of([&] { static_cast<void>(words.read(2)); }), reason::no_object);
  EXPECT_EQ(device::plugins_of(tier).at(0).name, "sorted");
  EXPECT_EQ(text_of([&] { device(tier, "nothing"); }),
            "memory:: there is no plugin 'nothing', but sorted 1.0; construct one of these, or load the other: "
            "memory:?plugin=FILE");
  EXPECT_EQ(reason_of([&] { device(tier, "nothing"); }), reason::no_plugin);
  EXPECT_EQ(reason_of([&] { device("memory:", "sorted"); }), reason::bad_tier);
  EXPECT_EQ(reason_of([&] { device("memory:?plugin=/nowhere.so", "sorted"); }), reason::bad_tier);
}

TEST(DevicesOnServersWithoutThem, AreRefused) {
  const scratch_folder place;
  const device_server server({"--memory", "64M", "--shm", place.path() + "/socket"});
  EXPECT_EQ(reason_of([&] { device("tcp://" + server.host(), "sorted"); }), reason::unreachable);
  EXPECT_EQ(reason_of([&] { device("shm:" + place.path() + "/socket", "sorted"); }), reason::unreachable);
  EXPECT_EQ(reason_of([&] { device("shm:" + place.path() + "/nobody?timeout=100ms", "sorted"); }), reason::unreachable);
  EXPECT_EQ(reason_of([&] { device("shm:" + place.path() + "/socket?copies=2", "sorted"); }), reason::bad_tier);
}

}  // namespace
}  // namespace far
