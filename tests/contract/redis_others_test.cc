// The client of `redis:` and a real server that other people use, too: they make it a replica, take its replicas away,
// put other things in the place of our strings, and rename commands.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "redis_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/redis_test_server.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/slot_transfers.h"

namespace far::backend {
namespace {

using testing_support::allocate;
using testing_support::open_at;
using testing_support::reached;
using testing_support::read_slot;
using testing_support::redis_server;
using testing_support::redis_test_server;
using testing_support::try_open;
using testing_support::write_slot;

// An argument with spaces.
std::string quoted(const std::string& text) {
  return '"' + text + '"';
}

const std::vector<std::string> quick_replication = {"--repl-diskless-sync-delay", "0"};

// Whether a replica has all that its master has, soon.
bool is_in_step(const redis_test_server& replica) {
  return eventually(
      [&] { return replica.command("INFO replication").find("master_link_status:up") != std::string::npos; });
}

// The strings are there, under their names and in the process of before, and one of them lacks what was written last.
TEST_F(redis_server, one_that_has_been_a_replica_meanwhile_has_lost_our_pages) {
  for (const bool is_master_again : {true, false}) {
    const redis_test_server server(quick_replication);
    const redis_test_server other(quick_replication);
    const auto far = open_at(server, "timeout=20s");
    const auto queue = std::move(far->open_channel(8)).value();
    const slot_id slot = far->allocate(1).value();
    ASSERT_EQ(write_slot(*far, *queue, slot, 1), 0);
    ASSERT_EQ(other.command("REPLICAOF 127.0.0.1 " + std::to_string(server.port())), "+OK");
    ASSERT_TRUE(is_in_step(other));
    ASSERT_EQ(other.command("REPLICAOF NO ONE"), "+OK");
    ASSERT_EQ(write_slot(*far, *queue, slot, 2), 0);
    const std::uint64_t before = far->incarnation();
    ASSERT_EQ(server.command("REPLICAOF 127.0.0.1 " + std::to_string(other.port())), "+OK");
    ASSERT_TRUE(is_in_step(server));
    if (is_master_again) {
      ASSERT_EQ(server.command("REPLICAOF NO ONE"), "+OK");
      ASSERT_EQ(server.command("CLIENT KILL TYPE normal SKIPME yes")[0], ':');
    } else {
      EXPECT_EQ(write_slot(*far, *queue, slot + 1), ESTALE);
    }
    EXPECT_EQ(read_slot(*far, *queue, slot, 2), ESTALE);
    EXPECT_NE(far->incarnation(), before);
  }
}

// It is asked what it is, without a write or a new connection.
TEST_F(redis_server, one_that_becomes_a_replica_is_noticed_in_silence) {
  const redis_test_server server(quick_replication);
  const redis_test_server other(quick_replication);
  const auto far = open_at(server, "timeout=1s");
  const std::uint64_t before = far->incarnation();
  ASSERT_EQ(server.command("REPLICAOF 127.0.0.1 " + std::to_string(other.port())), "+OK");
  EXPECT_TRUE(reached(*far, [&] { return far->incarnation() != before; }));
}

// Its replicas are missing when the leases are renewed, and come back.
TEST_F(redis_server, a_renewal_that_is_refused_is_repeated_soon) {
  const redis_test_server server;
  const auto far = open_at(server, "timeout=30s&lease=120s&connections=1");
  const auto queue = std::move(far->open_channel(8)).value();
  const slot_id slot = far->allocate(1).value();
  ASSERT_EQ(write_slot(*far, *queue, slot), 0);
  ASSERT_EQ(server.command("CONFIG SET min-replicas-to-write 1"), "+OK");
  ASSERT_EQ(server.command("CLIENT KILL TYPE normal SKIPME yes")[0], ':');
  const auto is_refused = [&] { return server.command("INFO errorstats").find("NOREPLICAS") != std::string::npos; };
  ASSERT_TRUE(reached(*far, is_refused)) << "leases are renewed over each new connection";
  ASSERT_EQ(server.command("CONFIG SET min-replicas-to-write 0"), "+OK");
  // All that is left of the lease; the next renewal would come after 30 seconds.
  ASSERT_EQ(server.command("EVAL " +
                           quoted("for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('PEXPIRE', key, "
                                  "20000) end return 1") +
                           " 0"),
            ":1");
  const auto is_renewed = [&] {
    return server.command("EVAL " + quoted("return redis.call('PTTL', redis.call('KEYS', '*')[1]) > 100000") + " 0") ==
           ":1";
  };
  EXPECT_TRUE(reached(*far, is_renewed));
  EXPECT_EQ(read_slot(*far, *queue, slot), 0);
}

TEST_F(redis_server, one_that_refuses_writes_for_a_while_loses_nothing) {
  const redis_test_server server;
  const auto far = open_at(server, "timeout=20s");
  const auto queue = std::move(far->open_channel(8)).value();
  const slot_id slot = far->allocate(1).value();
  ASSERT_EQ(write_slot(*far, *queue, slot, 1), 0);
  const std::uint64_t before = far->incarnation();
  ASSERT_EQ(server.command("CONFIG SET min-replicas-to-write 1"), "+OK");
  EXPECT_EQ(write_slot(*far, *queue, slot, 2), EIO);
  EXPECT_EQ(read_slot(*far, *queue, slot, 1), 0);
  ASSERT_EQ(server.command("CONFIG SET min-replicas-to-write 0"), "+OK");
  EXPECT_EQ(write_slot(*far, *queue, slot, 3), 0);
  EXPECT_EQ(read_slot(*far, *queue, slot, 3), 0);
  EXPECT_EQ(far->incarnation(), before);
}

// Redis answers BUSY to all commands while somebody's script runs for too long.
TEST_F(redis_server, one_that_is_busy_with_a_script_is_waited_for) {
  const redis_test_server server({"--busy-reply-threshold", "20"});
  const auto far = open_at(server, "timeout=20s");
  const auto queue = std::move(far->open_channel(8)).value();
  const slot_id slot = far->allocate(1).value();
  ASSERT_EQ(write_slot(*far, *queue, slot, 1), 0);
  const std::uint64_t before = far->incarnation();
  std::thread somebody([&] { static_cast<void>(server.command("EVAL " + quoted("while true do end") + " 0")); });
  EXPECT_TRUE(eventually([&] { return server.command("PING").starts_with("-BUSY"); }));
  std::thread operator_of_it([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    EXPECT_EQ(server.command("SCRIPT KILL"), "+OK");
  });
  EXPECT_EQ(read_slot(*far, *queue, slot, 1), 0);
  EXPECT_EQ(write_slot(*far, *queue, slot, 2), 0);
  EXPECT_EQ(read_slot(*far, *queue, slot, 2), 0);
  EXPECT_EQ(far->incarnation(), before);
  operator_of_it.join();
  somebody.join();
}

// As a process that is stopped: nothing renews its leases.
TEST_F(redis_server, a_program_that_stands_still_for_longer_than_its_lease_has_lost_its_pages) {
  const redis_test_server server;
  const auto far = open_at(server, "timeout=20s&lease=15s");
  const auto queue = std::move(far->open_channel(8)).value();
  const slot_id slot = far->allocate(1).value();
  ASSERT_EQ(write_slot(*far, *queue, slot, 1), 0);
  ASSERT_TRUE(eventually([&] { return server.command("DBSIZE") == ":0"; }));
  EXPECT_EQ(write_slot(*far, *queue, slot, 2), ESTALE) << "and does not come back full of zeros";
  EXPECT_EQ(read_slot(*far, *queue, slot, 2), ESTALE);
  const slot_id fresh = allocate(*far, 1);
  EXPECT_EQ(write_slot(*far, *queue, fresh, 3), 0);
  EXPECT_EQ(read_slot(*far, *queue, fresh, 3), 0);
}

TEST_F(redis_server, what_somebody_replaces_by_something_else_is_lost) {
  const redis_test_server server;
  const auto far = open_at(server);
  const auto queue = std::move(far->open_channel(8)).value();
  for (const bool is_read : {true, false}) {
    const slot_id slot = allocate(*far, 1);
    ASSERT_EQ(write_slot(*far, *queue, slot), 0);
    ASSERT_EQ(server.command("EVAL " +
                             quoted("for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('DEL', key) "
                                    "redis.call('LPUSH', key, 'x') end return 1") +
                             " 0"),
              ":1");
    EXPECT_EQ(is_read ? read_slot(*far, *queue, slot) : write_slot(*far, *queue, slot), ESTALE);
    EXPECT_EQ(read_slot(*far, *queue, slot), ESTALE);
    ASSERT_EQ(server.command("FLUSHALL"), "+OK");
  }
}

// A server on which AUTH has another name takes it for an unknown command, and repeats its arguments.
TEST_F(redis_server, a_reply_that_repeats_the_password_is_not_shown) {
  const std::string password = "a-password-that-nobody-shall-see";
  const redis_test_server server({"--rename-command", "AUTH", "log-in"});
  ASSERT_NE(server.command("AUTH " + password).find(password), std::string::npos);
  const scratch_folder folder;
  const std::string path = folder.path() + "/password";
  std::FILE* const file = std::fopen(path.c_str(), "w");
  std::fputs(password.c_str(), file);
  std::fclose(file);
  chmod(path.c_str(), 0600);
  for (const std::string options : {"", "&user=somebody"}) {
    const result<std::unique_ptr<backend>> opened = try_open(server, "timeout=20s&password-file=" + path + options);
    ASSERT_FALSE(opened.ok());
    EXPECT_NE(opened.error().message.find("it answers: ERR"), std::string::npos) << opened.error().message;
    EXPECT_EQ(opened.error().message.find(password), std::string::npos) << opened.error().message;
  }
}

}  // namespace
}  // namespace far::backend
