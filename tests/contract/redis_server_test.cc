// The client of `redis:` and a real server. Others delete our keys; the server is restarted, hangs, is full or may
// evict; leases run out; the program forks.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/redis/redis_backend.h"
#include "backend/redis/redis_connection.h"
#include "backend/redis/redis_session.h"
#include "backend/redis/redis_uri.h"
#include "backend/tcp/socket_stream.h"
#include "backend/uri.h"
#include "base/units.h"
#include "holding_relay.h"
#include "platform/clock.h"
#include "redis_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/redis_test_server.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/slot_transfers.h"

namespace far::backend {
namespace {

using testing_support::allocate;
using testing_support::content;
using testing_support::holding_relay;
using testing_support::open_at;
using testing_support::reached;
using testing_support::read_slot;
using testing_support::redis_server;
using testing_support::redis_test_server;
using testing_support::try_open;
using testing_support::write_slot;

constexpr std::uint64_t second_ns = 1'000'000'000;

result<std::unique_ptr<backend>> open_port(std::uint16_t port, const std::string& options) {
  const std::string text = "redis://127.0.0.1:" + std::to_string(port) + "?capacity=64M&" + options;
  const redis_name name = parse_redis(uri::parse(text).value()).value();
  return redis_backend::open(name.servers[0], name.options, {});
}

TEST_F(redis_server, what_somebody_deletes_is_lost_and_never_zero) {
  const redis_test_server server;
  const auto far = open_at(server);
  const auto queue = std::move(far->open_channel(8)).value();
  const slot_id old = far->allocate(600).value();
  for (const slot_id slot : {old, old + 446, old + 447, old + 511, old + 512}) {
    ASSERT_EQ(write_slot(*far, *queue, slot), 0);
    ASSERT_EQ(read_slot(*far, *queue, slot), 0);
  }
  const std::uint64_t before = far->incarnation();
  ASSERT_EQ(server.command("FLUSHALL"), "+OK");
  // A write must not bring back the string around it.
  EXPECT_EQ(write_slot(*far, *queue, old + 300), ESTALE);
  EXPECT_NE(far->incarnation(), before);
  EXPECT_EQ(read_slot(*far, *queue, old), ESTALE);
  EXPECT_EQ(read_slot(*far, *queue, old + 512), ESTALE);

  const slot_id fresh = allocate(*far, 1);
  EXPECT_FALSE(fresh >= old && fresh < old + 600);
  EXPECT_EQ(write_slot(*far, *queue, fresh), 0);
  EXPECT_EQ(read_slot(*far, *queue, fresh), 0);
  far->free(old, 600);
  EXPECT_EQ(far->report().used_slots, 1u);
}

// One thread writes all the time, over another connection than the one that reads.
TEST_F(redis_server, a_read_beside_writes_finds_the_deletion_or_the_bytes) {
  const redis_test_server server;
  for (int round = 0; round < 20; ++round) {
    const auto far = open_at(server);
    const auto queue = std::move(far->open_channel(8)).value();
    const slot_id first = far->allocate(447).value();
    ASSERT_EQ(write_slot(*far, *queue, first), 0);
    std::atomic<bool> lost{false};
    std::thread writer([&] {
      const auto own = std::move(far->open_channel(8)).value();
      while (!lost.load()) static_cast<void>(write_slot(*far, *own, first + 446));
    });
    for (int i = 0; i < 20; ++i) ASSERT_EQ(read_slot(*far, *queue, first), 0);
    ASSERT_EQ(server.command(round % 2 == 0 ? "FLUSHALL" : "FLUSHDB"), "+OK");
    int outcome = 0;
    while (outcome == 0) outcome = read_slot(*far, *queue, first);
    EXPECT_EQ(outcome, ESTALE);
    lost.store(true);
    writer.join();
  }
}

TEST_F(redis_server, what_a_restarted_server_reads_from_its_disk_is_not_ours) {
  redis_test_server server;
  const auto far = open_at(server, "timeout=20s");
  const auto queue = std::move(far->open_channel(8)).value();
  const slot_id slot = far->allocate(1).value();
  ASSERT_EQ(write_slot(*far, *queue, slot, 1), 0);
  ASSERT_EQ(server.command("SAVE"), "+OK");
  ASSERT_EQ(write_slot(*far, *queue, slot, 2), 0);
  server.kill();
  server.start();
  ASSERT_NE(server.command("DBSIZE"), ":0") << "it has read the older state";
  EXPECT_EQ(read_slot(*far, *queue, slot, 2), ESTALE);
  const slot_id fresh = allocate(*far, 1);
  EXPECT_EQ(write_slot(*far, *queue, fresh, 3), 0);
  EXPECT_EQ(read_slot(*far, *queue, fresh, 3), 0);
}

TEST_F(redis_server, a_server_that_hangs_is_waited_for_until_the_timeout) {
  const redis_test_server server;
  const auto far = open_at(server, "timeout=10s");
  const auto queue = std::move(far->open_channel(8)).value();
  const slot_id slot = far->allocate(1).value();
  ASSERT_EQ(write_slot(*far, *queue, slot, 1), 0);
  server.pause();
  EXPECT_EQ(read_slot(*far, *queue, slot, 1), ETIMEDOUT);
  EXPECT_EQ(write_slot(*far, *queue, slot, 2), ETIMEDOUT);
  EXPECT_TRUE(reached(*far, [&] { return !far->answers(); }));
  server.resume();
  EXPECT_TRUE(reached(*far, [&] { return far->answers(); }));
  EXPECT_TRUE(reached(*far, [&] { return write_slot(*far, *queue, slot, 3) == 0; }));
  EXPECT_EQ(read_slot(*far, *queue, slot, 3), 0);
}

TEST_F(redis_server, reads_are_tried_again_for_as_long_as_the_server_keeps_the_bytes) {
  const redis_test_server server;
  const std::string name = "redis://" + server.address() + "?capacity=64M";
  EXPECT_EQ(std::move(open(name)).value()->read_patience_ns(), 300 * second_ns);
  EXPECT_EQ(std::move(open(name + "&lease=90s")).value()->read_patience_ns(), 90 * second_ns);
  EXPECT_EQ(std::move(open(name + "&lease=90s&patience=5s")).value()->read_patience_ns(), 5 * second_ns);
}

TEST_F(redis_server, a_server_under_two_names_does_not_hold_both_copies) {
  const redis_test_server server;
  const std::string port = std::to_string(server.port());
  const auto opened = open("redis://127.0.0.1:" + port + ",localhost:" + port + "?copies=2&capacity=64M");
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().message.find("are one and the same server"), std::string::npos) << opened.error().message;
}

// The bytes of a write that was given up are held back on their way, and arrive after the next write has succeeded.
TEST_F(redis_server, a_write_that_was_given_up_cannot_come_late) {
  const redis_test_server server;
  holding_relay relay(server.port());
  result<std::unique_ptr<backend>> opened = open_port(relay.port(), "timeout=10s&connections=1");
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  backend& far = *opened.value();
  const auto queue = std::move(far.open_channel(8)).value();
  const slot_id slot = far.allocate(1).value();
  ASSERT_EQ(write_slot(far, *queue, slot, 1), 0);
  relay.hold();
  EXPECT_EQ(write_slot(far, *queue, slot, 2), ETIMEDOUT);
  EXPECT_TRUE(reached(far, [&] { return write_slot(far, *queue, slot, 3) == 0; }));
  EXPECT_GE(relay.release(), page_bytes) << "the write was held back";
  EXPECT_EQ(read_slot(far, *queue, slot, 3), 0);
}

TEST_F(redis_server, connections_and_scripts_may_go_at_any_time) {
  const redis_test_server server;
  const auto far = open_at(server, "timeout=20s");
  const auto queue = std::move(far->open_channel(8)).value();
  const slot_id first = far->allocate(64).value();
  for (std::uint64_t round = 0; round < 30; ++round) {
    for (slot_id slot = first; slot < first + 4; ++slot) ASSERT_EQ(write_slot(*far, *queue, slot, round), 0);
    ASSERT_EQ(server.command("SCRIPT FLUSH"), "+OK");
    ASSERT_EQ(server.command("CLIENT KILL TYPE normal SKIPME yes")[0], ':');
    for (slot_id slot = first; slot < first + 4; ++slot) ASSERT_EQ(read_slot(*far, *queue, slot, round), 0);
  }
}

// A connection to a name that has several addresses.
class named_server {
 public:
  named_server(const std::vector<std::uint16_t>& ports, std::uint64_t timeout_ns, std::uint64_t lease_ns) {
    std::vector<socket_address> addresses;
    for (const std::uint16_t port : ports) addresses.push_back(resolve({.host = "127.0.0.1", .port = port}).value()[0]);
    redis_settings settings;
    settings.peer = "redis://a.name";
    settings.timeout_ns = timeout_ns;
    settings.lease_ns = lease_ns;
    settings.writes = true;
    auto stream = socket_stream::create(std::make_shared<const server_addresses>(addresses));
    connection_ = std::make_unique<redis_connection>(settings, std::move(stream).value(), session, clock_);
  }

  redis_session session{"farheap:test:"};

  // Whether it is connected, or not, within a minute.
  [[nodiscard]] bool becomes(bool ready) {
    return comes_about([&] {
      connection_->lock.assert_held();
      return (connection_->now() == store_connection::phase::ready) == ready;
    });
  }
  // Whether an attempt fails with this code.
  [[nodiscard]] bool fails_with(int code) {
    return comes_about([&] {
      connection_->lock.assert_held();
      return connection_->failure_code() == code;
    });
  }

 private:
  template <typename Condition>
  [[nodiscard]] bool comes_about(const Condition& condition) {
    const std::uint64_t until_ns = clock_.now_ns() + 60 * second_ns;
    while (clock_.now_ns() < until_ns) {
      {
        const lock_guard guard(connection_->lock);
        static_cast<void>(connection_->advance(nullptr));
        if (condition()) return true;
      }
      connection_->wait(1'000'000);
    }
    return false;
  }

  const platform::monotonic_clock clock_;
  std::unique_ptr<redis_connection> connection_;
};

// Another address of the name may be another server, which would be taken for ours without its keys.
TEST_F(redis_server, a_session_stays_with_the_address_where_it_was_opened) {
  const redis_test_server server;
  const redis_test_server other;
  named_server name({server.port(), other.port()}, 30 * second_ns, 60 * second_ns);
  ASSERT_TRUE(name.becomes(true));
  const std::uint64_t identity = name.session.identity();
  for (int i = 0; i < 3; ++i) {
    EXPECT_NE(server.command("CLIENT KILL TYPE normal SKIPME yes"), "");
    EXPECT_NE(other.command("CLIENT KILL TYPE normal SKIPME yes"), "");
    ASSERT_TRUE(name.becomes(false));
    ASSERT_TRUE(name.becomes(true));
    EXPECT_EQ(name.session.epoch(), 1u) << "the keys were taken for lost";
    EXPECT_EQ(name.session.identity(), identity);
  }
}

TEST_F(redis_server, one_that_moves_to_another_address_of_its_name_is_found_again) {
  const redis_test_server server;
  auto before = std::make_unique<holding_relay>(server.port());
  named_server name({before->port(), server.port()}, second_ns / 2, 300 * second_ns);
  ASSERT_TRUE(name.becomes(true));
  ASSERT_EQ(name.session.now().address, 0u);
  const std::uint64_t identity = name.session.identity();
  before.reset();
  ASSERT_TRUE(name.becomes(false));
  ASSERT_TRUE(name.becomes(true));
  EXPECT_EQ(name.session.now().address, 1u);
  EXPECT_EQ(name.session.epoch(), 1u) << "nothing is lost";
  EXPECT_EQ(name.session.identity(), identity);
}

TEST_F(redis_server, another_one_of_the_name_is_not_believed_while_the_keys_may_be_alive) {
  const redis_test_server server;
  const redis_test_server stranger;
  named_server name({server.port(), stranger.port()}, second_ns / 2, 300 * second_ns);
  ASSERT_TRUE(name.becomes(true));
  ASSERT_EQ(name.session.now().address, 0u);
  server.pause();
  ASSERT_TRUE(name.fails_with(EADDRNOTAVAIL));
  EXPECT_EQ(name.session.epoch(), 1u);
  server.resume();
  ASSERT_TRUE(name.becomes(true));
  EXPECT_EQ(name.session.epoch(), 1u) << "it has everything";
}

TEST_F(redis_server, another_one_of_the_name_is_believed_when_the_lease_is_over) {
  const redis_test_server server;
  const redis_test_server stranger;
  named_server name({server.port(), stranger.port()}, second_ns / 2, 3 * second_ns);
  ASSERT_TRUE(name.becomes(true));
  ASSERT_EQ(name.session.now().address, 0u);
  const std::uint64_t identity = name.session.identity();
  server.pause();
  ASSERT_TRUE(name.becomes(false));
  ASSERT_TRUE(name.becomes(true));
  EXPECT_EQ(name.session.epoch(), 2u);
  EXPECT_NE(name.session.identity(), identity);
  server.resume();
}

TEST_F(redis_server, a_server_that_may_evict_is_refused) {
  for (const std::string policy : {"allkeys-lru", "volatile-ttl", "volatile-lfu", "allkeys-random"}) {
    const redis_test_server evicting({"--maxmemory", "100mb", "--maxmemory-policy", policy});
    const result<std::unique_ptr<backend>> opened = try_open(evicting, "timeout=20s");
    ASSERT_FALSE(opened.ok()) << policy;
    EXPECT_NE(opened.error().message.find("maxmemory-policy is '" + policy + "'"), std::string::npos)
        << opened.error().message;
    EXPECT_NE(opened.error().message.find("noeviction"), std::string::npos);
  }
}

TEST_F(redis_server, a_full_server_says_so_and_goes_on) {
  const redis_test_server server({"--maxmemory", "40mb", "--maxmemory-policy", "noeviction"});
  const auto far = std::move(try_open(server, "timeout=20s&capacity=1G")).value();
  const auto queue = std::move(far->open_channel(8)).value();
  std::vector<slot_id> taken;
  bool full = false;
  EXPECT_TRUE(reached(*far, [&] {
    result<slot_id> next = far->allocate(512);
    for (; next.ok(); next = far->allocate(512)) taken.push_back(next.value());
    return full = next.error().code == ENOSPC;
  }));
  EXPECT_TRUE(full);
  EXPECT_GE(taken.size(), 8u);
  EXPECT_LE(taken.size(), 20u);
  const std::uint64_t blocks = (taken.back() + 512 + 511) / 512;
  EXPECT_EQ(server.command("DBSIZE"), ":" + std::to_string(2 * blocks)) << "what was made in vain is deleted";
  for (const slot_id block : taken) far->free(block, 512);
  const slot_id again = allocate(*far, 512);
  EXPECT_NE(again, no_slot);
}

// Whether a page is still there after one and a half leases of somebody who does nothing but renew them.
bool outlives_its_lease(backend& far, channel& queue, slot_id slot, std::chrono::seconds lease) {
  const auto until = std::chrono::steady_clock::now() + lease * 3 / 2;
  while (std::chrono::steady_clock::now() < until) {
    far.tend();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return read_slot(far, queue, slot) == 0;
}

// A stalled machine may be too late to renew a short one.
bool holds_for_some_lease(const std::function<bool(std::chrono::seconds)>& holds) {
  return holds(std::chrono::seconds(4)) || holds(std::chrono::seconds(16)) || holds(std::chrono::seconds(80));
}

TEST_F(redis_server, leases_are_renewed_while_the_program_lives_and_keys_go_with_it) {
  const redis_test_server server;
  EXPECT_TRUE(holds_for_some_lease([&](std::chrono::seconds lease) {
    const auto far = open_at(server, "prefix=job42&lease=" + std::to_string(lease.count()) + "s");
    const auto queue = std::move(far->open_channel(8)).value();
    const slot_id slot = far->allocate(1).value();
    return write_slot(*far, *queue, slot) == 0 && outlives_its_lease(*far, *queue, slot, lease) &&
           server.command("KEYS *").substr(0, 1) == "*" && server.command("DBSIZE") != ":0";
  }));
  EXPECT_EQ(server.command("DBSIZE"), ":0") << "a program that ends deletes its keys";

  // One that crashes leaves them to their lease.
  const pid_t child = fork();
  if (child == 0) {
    const auto far = open_at(server, "lease=10s");
    _exit(far == nullptr || server.command("DBSIZE") == ":0" ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(eventually([&] { return server.command("DBSIZE") == ":0"; }));
}

TEST_F(redis_server, refusals_say_what_to_do_and_not_the_password) {
  const std::string password = "a-password-that-nobody-shall-see";
  const redis_test_server server({"--requirepass", password, "--user", "poor", "on", ">" + password, "~*", "-@all",
                                  "+info", "--user", "default", "on", ">" + password, "~*", "+@all"});
  const scratch_folder folder;
  const auto write_file = [&](const std::string& name, const std::string& line, mode_t mode) {
    const std::string path = folder.path() + "/" + name;
    std::FILE* const file = std::fopen(path.c_str(), "w");
    std::fputs((line + "\n").c_str(), file);
    std::fclose(file);
    chmod(path.c_str(), mode);
    return path;
  };
  const std::string right = write_file("right", password, 0600);
  const std::string wrong = write_file("wrong", "another", 0600);
  const std::string open_to_all = write_file("open", password, 0644);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"timeout=20s", "password-file"},
      {"timeout=20s&password-file=" + wrong, "WRONGPASS"},
      {"timeout=20s&password-file=" + open_to_all, "chmod 600"},
      {"timeout=20s&user=nobody&password-file=" + right, "user"},
      {"timeout=20s&user=poor&password-file=" + right, "docs/redis.md"},
      {"timeout=20s&user=poor", "password-file"},
      {"timeout=20s&db=900&password-file=" + right, "'db'"},
      {"prefix=a*b", "prefix"},
      {"lease=1ms", "lease"},
      {"ca=/x", "rediss://"},
      {"copies=2", "as many servers"},
      {"cache=1", "cache"},
  };
  for (const auto& [options, expected] : cases) {
    const result<std::unique_ptr<backend>> opened = try_open(server, options);
    ASSERT_FALSE(opened.ok()) << options;
    EXPECT_NE(opened.error().message.find(expected), std::string::npos) << opened.error().message;
    EXPECT_EQ(opened.error().message.find(password), std::string::npos);
  }
  EXPECT_TRUE(try_open(server, "password-file=" + right).ok());
  EXPECT_NE(open("redis://127.0.0.1:1?timeout=1s").error().message.find("Redis runs"), std::string::npos);
  EXPECT_NE(open("redis://user:secret@host").error().message.find("password-file"), std::string::npos);
}

TEST_F(redis_server, a_child_reads_over_connections_of_its_own) {
  const redis_test_server server;
  const auto far = open_at(server);
  auto queue = std::move(far->open_channel(8)).value();
  const slot_id first = far->allocate(16).value();
  for (slot_id slot = first; slot < first + 16; ++slot) ASSERT_EQ(write_slot(*far, *queue, slot), 0);
  // A read of the parent is on its way at the fork; its bytes are the parent's.
  std::vector<std::byte> bytes(page_bytes);
  const request pending{.op = operation::read, .slot = first, .buffer = bytes.data(), .cookie = 7};
  ASSERT_EQ(queue->submit({&pending, 1}), 1u);
  const pid_t child = fork();
  if (child == 0) {
    static_cast<void>(queue.release());
    far->after_fork_in_child();
    const auto mine = std::move(far->open_channel(4)).value();
    for (slot_id slot = first; slot < first + 16; ++slot) {
      if (read_slot(*far, *mine, slot) != 0) _exit(static_cast<int>(1 + slot - first));
    }
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  std::array<completion, 1> done;
  while (queue->poll(done) == 0) queue->wait(second_ns);
  EXPECT_EQ(done[0].error_code, 0);
  EXPECT_EQ(bytes[100], content(first, 100));
  for (slot_id slot = first; slot < first + 16; ++slot) EXPECT_EQ(read_slot(*far, *queue, slot), 0);
}

// The child's answer comes over a pipe, because its parent is not there any more.
bool keeps_what_its_parent_leaves(const redis_test_server& server, std::chrono::seconds lease) {
  std::array<int, 2> pipe_ends{};
  EXPECT_EQ(pipe(pipe_ends.data()), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    const auto far = open_at(server, "lease=" + std::to_string(lease.count()) + "s");
    auto queue = std::move(far->open_channel(8)).value();
    const slot_id slot = far->allocate(1).value();
    if (write_slot(*far, *queue, slot) != 0) _exit(1);
    if (fork() != 0) _exit(0);
    static_cast<void>(queue.release());
    far->after_fork_in_child();
    const auto mine = std::move(far->open_channel(4)).value();
    const char outcome = outlives_its_lease(*far, *mine, slot, lease) ? 'r' : 'w';
    _exit(write(pipe_ends[1], &outcome, 1) == 1 ? 0 : 1);
  }
  close(pipe_ends[1]);
  int status = -1;
  EXPECT_EQ(waitpid(parent, &status, 0), parent);
  char outcome = '?';
  const bool has_told = read(pipe_ends[0], &outcome, 1) == 1;
  close(pipe_ends[0]);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 && has_told && outcome == 'r';
}

TEST_F(redis_server, a_child_keeps_what_its_parent_leaves) {
  const redis_test_server server;
  EXPECT_TRUE(
      holds_for_some_lease([&](std::chrono::seconds lease) { return keeps_what_its_parent_leaves(server, lease); }));
}

TEST_F(redis_server, with_two_copies_a_server_may_die) {
  redis_test_server one;
  redis_test_server two;
  const auto far =
      std::move(open("redis://" + one.address() + "," + two.address() + "?copies=2&timeout=5s&capacity=64M")).value();
  const auto queue = std::move(far->open_channel(8)).value();
  // Both hold everything before one dies.
  const auto holds_as_much = [&] { return one.command("DBSIZE") == two.command("DBSIZE"); };
  for (int round = 0; round < 3; ++round) {
    const auto generation = static_cast<std::uint64_t>(round);
    const slot_id first = allocate(*far, 40);
    for (slot_id slot = first; slot < first + 40; ++slot) ASSERT_EQ(write_slot(*far, *queue, slot, generation), 0);
    redis_test_server& dying = round % 2 == 0 ? one : two;
    ASSERT_TRUE(reached(*far, holds_as_much));
    dying.kill();
    for (slot_id slot = first; slot < first + 40; ++slot) ASSERT_EQ(read_slot(*far, *queue, slot, generation), 0);
    dying.start();
    ASSERT_TRUE(reached(*far, holds_as_much));
    for (int i = 0; i < 200; ++i) {
      far->tend();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    for (slot_id slot = first; slot < first + 40; ++slot) ASSERT_EQ(read_slot(*far, *queue, slot, generation), 0);
  }
}

}  // namespace
}  // namespace far::backend
