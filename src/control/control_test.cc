#include "control/control.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/units.h"
#include "tests/support/eventually.h"
#include "tests/support/no_threads.h"

namespace far::control {
namespace {

struct runtime {
  std::uint64_t budget_bytes = 64 * mib;

  static result<void> resize(void* context, std::uint64_t bytes) {
    if (bytes < 16 * mib) return error{"too small\nfor anything", EINVAL};
    static_cast<runtime*>(context)->budget_bytes = bytes;
    return {};
  }
  static engine::statistics stats(void* context) {
    engine::statistics counted;
    counted.budget_bytes = static_cast<runtime*>(context)->budget_bytes;
    counted.misses = 7;
    return counted;
  }
  static result<std::uint64_t> remove_server(void* context, std::string_view server, removal step) {
    auto& self = *static_cast<runtime*>(context);
    self.removed = server;
    self.step = step;
    if (server == "cache9:7070") return error{"server cache9:7070 does not belong\nto the far tier", ENOENT};
    return self.left_bytes;
  }
  static result<void> add_server(void* context, std::string_view server) {
    static_cast<runtime*>(context)->added = server;
    return {};
  }
  static result<void> bring(void* context, std::uintptr_t address, std::size_t bytes, bool to_write) {
    if (address < 4096) return error{"no far memory is there", EFAULT};
    if (auto* const wait = static_cast<runtime*>(context)->wait) {
      wait();
      return {};
    }
    static_cast<runtime*>(context)->brought =
        std::to_string(address) + "+" + std::to_string(bytes) + (to_write ? " to write" : "");
    return {};
  }
  void (*wait)() = nullptr;  // in bring()
  std::string added;
  std::string brought;
  std::string removed;
  removal step = removal::go_on;
  std::uint64_t left_bytes = 0;
};

// A server for this process, and a thread that runs it.
class control_test : public testing::Test {
 protected:
  void SetUp() override {
    server_ = control_server::open(callbacks());
    ASSERT_TRUE(server_->listens());
  }
  void TearDown() override { stop(); }

  void start() {
    thread_ = std::thread([this] {
      while (server_->step(-1)) steps_.fetch_add(1);
    });
  }
  void stop() {
    if (server_) server_->wake();
    if (thread_.joinable()) thread_.join();
  }

  control_callbacks callbacks() {
    control_callbacks all{&runtime_, runtime::resize, runtime::stats, runtime::add_server, runtime::remove_server};
    all.bring = runtime::bring;
    return all;
  }

  static int connect_raw() {
    const int descriptor = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = "farheap-" + std::to_string(getpid());
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    EXPECT_EQ(connect(descriptor, reinterpret_cast<sockaddr*>(&address), length), 0) << strerror(errno);
    return descriptor;
  }
  static std::string ask_raw(const std::string& request) {
    const int descriptor = connect_raw();
    EXPECT_EQ(send(descriptor, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
    char reply[4096];
    const ssize_t got = recv(descriptor, reply, sizeof reply, 0);
    close(descriptor);
    return got < 0 ? "nothing" : std::string(reply, static_cast<std::size_t>(got));
  }

  runtime runtime_;
  std::unique_ptr<control_server> server_;
  std::thread thread_;
  std::atomic<int> steps_{0};
};

TEST_F(control_test, AnswersOthersWhileAFarTierTakesItsTime) {
  static std::atomic<int> waiting{0};
  static std::atomic<bool> far_tier_answers{false};
  runtime_.wait = [] {
    waiting.fetch_add(1);
    while (!far_tier_answers.load()) std::this_thread::yield();
  };
  start();
  std::vector<std::thread> askers;
  std::atomic<int> brought{0};
  for (int i = 0; i < 8; ++i) {
    askers.emplace_back([&] { brought += send_control_request(getpid(), "bring 8192 4096 read").ok() ? 1 : 0; });
  }
  for (int i = 0; i < 10'000 && waiting.load() < 8; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(waiting.load(), 8);
  EXPECT_TRUE(send_control_request(getpid(), "stats").ok());
  const result<std::string> refused = send_control_request(getpid(), "bring 8192 4096 read");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, EAGAIN);
  far_tier_answers.store(true);
  for (std::thread& asker : askers) asker.join();
  EXPECT_EQ(brought.load(), 8);
  EXPECT_TRUE(send_control_request(getpid(), "bring 8192 4096 read").ok());
  stop();
}

// The threads of this process with that name.
int threads_named(const std::string& name) {
  int found = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string line;
    if (std::getline(file, line) && line == name) ++found;
  }
  return found;
}

// Neither joined nor detached in between: crew.h says why.
TEST_F(control_test, OneThreadBringsInWhatIsAskedForOneAfterTheOther) {
  start();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(send_control_request(getpid(), "bring 8192 4096 read").ok()) << i;
  EXPECT_EQ(threads_named("farheap-bring"), 1);
  stop();
  server_.reset();
  // The kernel lists a thread that has been joined for a moment more.
  EXPECT_TRUE(eventually([] { return threads_named("farheap-bring") == 0; }));
}

TEST_F(control_test, BringsMemoryInWithoutAnotherThread) {
  start();
  {
    const no_threads forbid;
    EXPECT_TRUE(send_control_request(getpid(), "bring 8192 65536 read").ok());
    EXPECT_EQ(runtime_.brought, "8192+65536");
    EXPECT_FALSE(send_control_request(getpid(), "bring 1 1 read").ok());
  }
  EXPECT_TRUE(send_control_request(getpid(), "stats").ok());
  stop();
}

TEST_F(control_test, BringsMemoryIn) {
  start();
  EXPECT_TRUE(send_control_request(getpid(), "bring 8192 65536 read").ok());
  EXPECT_EQ(runtime_.brought, "8192+65536");
  EXPECT_TRUE(send_control_request(getpid(), "bring 8193 1 write").ok());
  EXPECT_EQ(runtime_.brought, "8193+1 to write");
  EXPECT_FALSE(send_control_request(getpid(), "bring 1 1 read").ok());
  for (const char* wrong : {"bring ", "bring 8192", "bring 8192 ", "bring 8192 1", "bring 8192 1 ", "bring 8192 1 rea",
                            "bring 8192 0 read", "bring 8192 65537 read", "bring -1 1 read", "bring x 1 read",
                            "bring 18446744073709551615 1 read", "bring 8192 1 read "}) {
    const result<std::string> reply = send_control_request(getpid(), wrong);
    ASSERT_FALSE(reply.ok()) << wrong;
    EXPECT_NE(reply.error().message.find("bring takes"), std::string::npos) << wrong;
  }
  EXPECT_EQ(runtime_.brought, "8193+1 to write");
  stop();
}

TEST_F(control_test, ResizeArrives) {
  start();
  const result<std::string> reply = send_control_request(getpid(), "resize 1073741824");
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(reply.value(), "");
  stop();
  EXPECT_EQ(runtime_.budget_bytes, 1 * gib);
}

TEST_F(control_test, AServerIsAdded) {
  std::string longest(253, 'x');
  longest.append(":65535");
  start();
  const result<std::string> reply = send_control_request(getpid(), "add-server " + longest);
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  stop();
  EXPECT_EQ(runtime_.added, longest);
}

TEST_F(control_test, ARemovalSaysHowMuchIsLeft) {
  runtime_.left_bytes = 5 * gib;
  start();
  const result<std::string> reply = send_control_request(getpid(), "remove-server cache1:7070");
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(reply.value(), "5368709120");
  EXPECT_EQ(runtime_.step, removal::begin);
  const result<std::string> refused = send_control_request(getpid(), "remove-server cache9:7070");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("does not belong to the far tier"), std::string::npos);
  EXPECT_EQ(send_control_request(getpid(), "removal cache1:7070").value(), "5368709120");
  stop();
  EXPECT_EQ(runtime_.removed, "cache1:7070");
  EXPECT_EQ(runtime_.step, removal::go_on) << "or it would remove a server that was added meanwhile";
}

TEST_F(control_test, StatsComeAsJson) {
  start();
  const result<std::string> reply = send_control_request(getpid(), "stats");
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(reply.value().find("{\"budget_bytes\": 67108864, "), 0u) << reply.value();
  EXPECT_NE(reply.value().find("\"misses\": 7"), std::string::npos);
  EXPECT_EQ(reply.value().back(), '}');
}

TEST_F(control_test, ARefusalOfTheRuntimeIsAnErrorOfOneLine) {
  start();
  const result<std::string> reply = send_control_request(getpid(), "resize 5");
  ASSERT_FALSE(reply.ok());
  EXPECT_NE(reply.error().message.find("too small for anything"), std::string::npos) << reply.error().message;
  stop();
  EXPECT_EQ(runtime_.budget_bytes, 64 * mib);
}

TEST_F(control_test, NonsenseIsRefused) {
  start();
  for (const char* request : {"stats\n", "farheap/2 stats\n", "farheap/1 stats", "farheap/1 \n", "farheap/1 resize\n",
                              "farheap/1 resize -1\n", "farheap/1 resize 99999999999999999999\n",
                              "farheap/1 resize 1G\n", "farheap/1 stats \n", "\n"}) {
    EXPECT_EQ(ask_raw(request).find("farheap/1 error "), 0u) << request;
  }
  EXPECT_EQ(ask_raw(std::string(100000, 'x')).find("farheap/1 error the request is too long"), 0u);
  stop();
  EXPECT_EQ(runtime_.budget_bytes, 64 * mib);
}

TEST_F(control_test, ASilentPeerIsDroppedAndTheNextOneIsServed) {
  start();
  const int silent = connect_raw();
  const result<std::string> reply = send_control_request(getpid(), "stats");
  EXPECT_TRUE(reply.ok()) << reply.error().message;
  char byte = 0;
  EXPECT_EQ(recv(silent, &byte, 1, 0), 0) << "the silent peer is still connected";
  close(silent);
}

TEST_F(control_test, APeerThatGoesAwayHarmsNobody) {
  start();
  for (int i = 0; i < 20; ++i) {
    const int descriptor = connect_raw();
    if (i % 2 == 0) {
      ASSERT_EQ(send(descriptor, "farheap/1 stats\n", 16, 0), 16);
    }
    close(descriptor);
  }
  EXPECT_TRUE(send_control_request(getpid(), "stats").ok());
}

TEST_F(control_test, WakeEndsEveryStep) {
  EXPECT_TRUE(server_->step(0));
  server_->wake();
  EXPECT_FALSE(server_->step(-1));
  EXPECT_FALSE(server_->step(-1));
}

TEST_F(control_test, WakeEndsAWaitForASilentPeer) {
  const int silent = connect_raw();
  start();
  stop();  // joins: would hang if step() did not see the waker
  close(silent);
  EXPECT_FALSE(server_->step(0));
}

struct named_address {
  sockaddr_un address{};
  socklen_t length = 0;
};
named_address address_of(pid_t pid, int rank) {
  named_address at;
  at.address.sun_family = AF_UNIX;
  const std::string name = "farheap-" + std::to_string(pid) + (rank == 0 ? "" : "." + std::to_string(rank));
  std::memcpy(at.address.sun_path + 1, name.data(), name.size());
  at.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return at;
}

// A socket that listens under the `rank`th name of a process, and never answers.
int take_name(pid_t pid, int rank, int backlog = 1) {
  const int descriptor = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const named_address at = address_of(pid, rank);
  EXPECT_EQ(bind(descriptor, reinterpret_cast<const sockaddr*>(&at.address), at.length), 0) << strerror(errno);
  EXPECT_EQ(listen(descriptor, backlog), 0);
  return descriptor;
}

TEST(Control, ATakenNameIsNoReasonToEnd) {
  // As after `(helper &) ; exec program`: the helper keeps what the process listened on before.
  const int stale = take_name(getpid(), 0);
  runtime behind;
  const auto server =
      control_server::open({&behind, runtime::resize, runtime::stats, runtime::add_server, runtime::remove_server});
  ASSERT_TRUE(server->listens());
  std::thread running([&] {
    while (server->step(-1)) {
    }
  });
  const result<std::string> reply = send_control_request(getpid(), "resize 1073741824");
  server->wake();
  running.join();
  EXPECT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(behind.budget_bytes, 1 * gib);
  close(stale);
}

TEST(Control, WithoutANameItRunsAndSaysSo) {
  std::vector<int> taken;
  for (int rank = 0; rank < 8; ++rank) taken.push_back(take_name(getpid(), rank));
  runtime behind;
  testing::internal::CaptureStderr();
  const auto server =
      control_server::open({&behind, runtime::resize, runtime::stats, runtime::add_server, runtime::remove_server});
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_FALSE(server->listens());
  EXPECT_NE(said.find("cannot listen for `farheap resize`"), std::string::npos) << said;
  EXPECT_NE(said.find("it runs without them"), std::string::npos) << said;
  EXPECT_TRUE(server->step(1));
  server->wake();
  EXPECT_FALSE(server->step(-1));
  for (const int descriptor : taken) close(descriptor);
}

TEST_F(control_test, WhatStopsListeningGivesUpItsName) {
  server_->settle_in_child();
  EXPECT_FALSE(server_->listens());
  close(take_name(getpid(), 0));
  EXPECT_TRUE(server_->step(1));
}

TEST_F(control_test, WithoutAJobThereIsNoFileOfIt) {
  start();
  const result<int> sent = request_job(getpid(), "");
  ASSERT_FALSE(sent.ok());
  EXPECT_NE(sent.error().message.find("is in no job"), std::string::npos) << sent.error().message;
}

TEST(Control, SendsTheFileOfItsJob) {
  static int file = -1;
  static const std::string secret(32, 'a');
  file = memfd_create("job", MFD_CLOEXEC);
  ASSERT_GE(file, 0);
  runtime one;
  control_callbacks callbacks{&one, runtime::resize, runtime::stats, runtime::add_server, runtime::remove_server};
  callbacks.job_file = [](void*) { return file; };
  callbacks.job_secret = [](void*) { return secret; };
  const std::unique_ptr<control_server> server = control_server::open(callbacks);
  std::thread running([&] {
    while (server->step(-1)) continue;
  });
  const result<int> by_right = request_job(getpid(), "");
  const result<int> by_secret = request_job(getpid(), secret);
  const result<int> by_guess = request_job(getpid(), std::string(32, '0'));
  const result<std::string> counted = send_control_request(getpid(), "stats");
  nudge(getpid());
  server->wake();
  running.join();
  ASSERT_TRUE(by_right.ok()) << by_right.error().message;
  ASSERT_TRUE(by_secret.ok()) << by_secret.error().message;
  EXPECT_FALSE(by_guess.ok());
  ASSERT_TRUE(counted.ok());
  EXPECT_TRUE(counted.value().ends_with(", \"in_job\": 1}")) << counted.value();
  for (const int sent : {by_right.value(), by_secret.value()}) {
    struct stat ours{};
    struct stat theirs{};
    ASSERT_EQ(fstat(file, &ours), 0);
    ASSERT_EQ(fstat(sent, &theirs), 0);
    EXPECT_EQ(ours.st_ino, theirs.st_ino);
    close(sent);
  }
  close(file);
}

// A process that listens under its name and never says anything.
class silent_process {
 public:
  explicit silent_process(int backlog) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    number_ = fork();
    if (number_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      take_name(getpid(), 0, backlog);
      if (write(ready[1], "x", 1) == 1) pause();
      _exit(1);
    }
    close(ready[1]);
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
  }
  ~silent_process() {
    kill(number_, SIGKILL);
    waitpid(number_, nullptr, 0);
  }
  silent_process(const silent_process&) = delete;
  silent_process& operator=(const silent_process&) = delete;

  [[nodiscard]] pid_t number() const { return number_; }

 private:
  pid_t number_ = -1;
};

// Asked one after the other, the last would have no time left.
TEST_F(control_test, SilentProcessesKeepNobodyWaiting) {
  const silent_process silent(8);
  const silent_process crowded(0);
  const named_address at = address_of(crowded.number(), 0);
  const int before_us = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  ASSERT_EQ(connect(before_us, reinterpret_cast<const sockaddr*>(&at.address), at.length), 0);
  start();
  const std::vector<pid_t> asked{silent.number(), crowded.number(), 1 << 30, getpid()};
  const std::vector<result<std::string>> replies = send_control_requests(asked, "stats", 3'000);
  close(before_us);
  ASSERT_EQ(replies.size(), 4u);
  EXPECT_EQ(replies[0].error().code, ETIMEDOUT);
  EXPECT_EQ(replies[1].error().code, ETIMEDOUT);
  EXPECT_EQ(replies[2].error().code, ECONNREFUSED);
  ASSERT_TRUE(replies[3].ok()) << replies[3].error().message;
  EXPECT_NE(replies[3].value().find("\"misses\": 7"), std::string::npos) << replies[3].value();
}

TEST(Control, NobodyListens) {
  const result<std::string> reply = send_control_request(1 << 30, "stats");
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().code, ECONNREFUSED);
  EXPECT_NE(reply.error().message.find("farheap run"), std::string::npos);
}

TEST(Control, AnImpostorIsNotBelieved) {
  const pid_t claimed = (1 << 30) + 1;
  const int impostor = take_name(claimed, 0);
  const result<std::string> reply = send_control_request(claimed, "stats");
  close(impostor);
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().code, EPERM);
}

}  // namespace
}  // namespace far::control
