// The client of `redis+cluster:` and a real cluster: hash slots that move key by key, masters that are killed and
// replaced by replicas, that hang, are emptied, may evict, or join.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/redis/cluster_directory.h"
#include "backend/redis/redis_backend.h"
#include "backend/redis/redis_uri.h"
#include "backend/replicated/replicated_backend.h"
#include "backend/uri.h"
#include "coming_clusters.h"
#include "tests/support/eventually.h"
#include "tests/support/redis_test_cluster.h"
#include "tests/support/slot_transfers.h"
#include "tests/support/tls_test_files.h"

namespace far::backend {
namespace {

using testing_support::coming_clusters;
using testing_support::read_slot;
using testing_support::redis_test_cluster;
using testing_support::redis_test_server;
using testing_support::write_slot;

constexpr std::uint32_t home_slot = 42;  // the first master's

// A part of the far tier, without the layer above.
std::unique_ptr<backend> open_part(redis_test_cluster& cluster, const std::string& options) {
  const std::string text = "redis+cluster://" + cluster.node(0).address() + "?capacity=64M&" + options;
  const redis_name name = parse_redis(uri::parse(text).value()).value();
  const cluster_home home{.directory = std::make_shared<cluster_directory>(),
                          .master = node_address::parse(cluster.node(0).address()),
                          .slot = home_slot};
  result<std::unique_ptr<backend>> opened = redis_backend::open(home, name.options, {});
  EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().message);
  return opened.ok() ? std::move(opened).value() : nullptr;
}

std::unique_ptr<backend> open_all(const redis_test_cluster& cluster, const std::string& options) {
  result<std::unique_ptr<backend>> opened = open("redis+cluster://" + cluster.addresses() + "?" + options);
  EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().message);
  return opened.ok() ? std::move(opened).value() : nullptr;
}

// Tends the far tier until the condition holds. The deadline is for hangs: nodes notice one another when they get to
// it.
bool reached(backend& far, const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(3);
  while (std::chrono::steady_clock::now() < until) {
    if (condition()) return true;
    static_cast<void>(far.tend());
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

slot_id allocate(backend& far, std::size_t count) {
  result<slot_id> slots = far.allocate(count);
  EXPECT_TRUE(reached(far, [&] { return slots.ok() || (slots = far.allocate(count)).ok(); }));
  return slots.ok() ? slots.value() : no_slot;
}

class redis_cluster_made_by_test : public testing::Test {
 protected:
  void SetUp() override {
    if (!redis_test_server::is_installed()) GTEST_SKIP() << redis_test_server::missing;
  }
};

class redis_cluster : public redis_cluster_made_by_test {
 protected:
  void SetUp() override {
    redis_cluster_made_by_test::SetUp();
    if (IsSkipped()) return;
    static coming_clusters all;
    made_ = all.take();
  }

  std::unique_ptr<redis_test_cluster> made_;
};
using redis_cluster_of_two = redis_cluster;
using redis_cluster_with_replicas = redis_cluster;
using redis_cluster_with_more_replicas = redis_cluster;

TEST_F(redis_cluster, strings_are_found_while_their_hash_slot_moves_and_afterwards) {
  redis_test_cluster& cluster = *made_;
  const auto far = open_part(cluster, "timeout=20s");
  const auto queue = std::move(far->open_channel(8)).value();
  const slot_id first = far->allocate(2048).value();
  for (slot_id slot = first; slot < first + 2048; slot += 100) ASSERT_EQ(write_slot(*far, *queue, slot, 1), 0);
  const std::uint64_t incarnation = far->incarnation();
  const std::uint64_t identity = far->server_identity();

  cluster.begin_move(home_slot, 0, 2);
  const std::vector<std::string> keys = cluster.keys_of(home_slot, 0);
  ASSERT_GE(keys.size(), 8u);
  for (std::size_t i = 0; i < keys.size(); i += 2) cluster.move_key(keys[i], 0, 2);
  for (slot_id slot = first; slot < first + 2048; slot += 100) {
    ASSERT_EQ(read_slot(*far, *queue, slot, 1), 0) << slot;
    ASSERT_EQ(write_slot(*far, *queue, slot, 2), 0) << slot;
    ASSERT_EQ(read_slot(*far, *queue, slot, 2), 0) << slot;
  }
  // A request over strings in both nodes.
  std::vector<std::byte> bytes(1024 * page_bytes);
  const request wide{.op = operation::read,
                     .slot = first,
                     .length_bytes = static_cast<std::uint32_t>(bytes.size()),
                     .buffer = bytes.data()};
  ASSERT_EQ(queue->submit({&wide, 1}), 1u);
  std::array<completion, 1> done;
  bool is_done = false;
  ASSERT_TRUE(reached(*far, [&] { return is_done = is_done || queue->poll(done) == 1; }));
  ASSERT_EQ(done[0].error_code, 0);
  EXPECT_EQ(bytes[900 * page_bytes + 17], testing_support::content(first + 900, 17, 2));
  // Strings that are made meanwhile go to the node that the hash slot moves to.
  const slot_id fresh = allocate(*far, 1024);
  ASSERT_EQ(write_slot(*far, *queue, fresh + 1023, 2), 0);

  cluster.end_move(home_slot, 0, 2);
  EXPECT_TRUE(cluster.keys_of(home_slot, 0).empty());
  for (slot_id slot = first; slot < first + 2048; slot += 100) ASSERT_EQ(read_slot(*far, *queue, slot, 2), 0) << slot;
  EXPECT_EQ(read_slot(*far, *queue, fresh + 1023, 2), 0);
  for (slot_id slot = first; slot < first + 2048; slot += 100) ASSERT_EQ(write_slot(*far, *queue, slot, 3), 0) << slot;
  for (slot_id slot = first; slot < first + 2048; slot += 100) ASSERT_EQ(read_slot(*far, *queue, slot, 3), 0) << slot;
  EXPECT_EQ(far->incarnation(), incarnation) << "nothing was lost";
  EXPECT_NE(far->server_identity(), identity);
}

// Nothing is lost by moving alone, whatever is under way.
TEST_F(redis_cluster, a_hash_slot_wanders_while_pages_are_written_and_read) {
  redis_test_cluster& cluster = *made_;
  const auto far = open_part(cluster, "timeout=30s");
  const auto queue = std::move(far->open_channel(8)).value();
  constexpr std::size_t pages = 2048;
  const slot_id first = far->allocate(pages).value();
  const std::uint64_t incarnation = far->incarnation();
  std::atomic<bool> is_over{false};
  std::thread mover([&] {
    std::mt19937 chance(18);
    std::size_t at = 0;
    for (int i = 0; i < 8; ++i) {
      const std::size_t to = (at + 1 + chance() % 2) % 3;
      cluster.begin_move(home_slot, at, to);
      for (const std::string& key : cluster.keys_of(home_slot, at)) {
        if (chance() % 2 == 0) cluster.move_key(key, at, to);
      }
      cluster.end_move(home_slot, at, to);
      at = to;
    }
    is_over.store(true);
  });
  std::mt19937 chance(81);
  std::vector<std::uint64_t> generations(pages, 0);
  while (!is_over.load()) {
    const std::size_t page = chance() % pages;
    if (chance() % 2 == 0) {
      EXPECT_EQ(write_slot(*far, *queue, first + page, generations[page] + 1), 0);
      ++generations[page];
    } else if (generations[page] > 0) {
      EXPECT_EQ(read_slot(*far, *queue, first + page, generations[page]), 0);
    }
    if (HasFailure()) break;
  }
  mover.join();
  for (std::size_t page = 0; page < pages; ++page) {
    if (generations[page] == 0) continue;
    ASSERT_EQ(read_slot(*far, *queue, first + page, generations[page]), 0) << page;
  }
  EXPECT_EQ(far->incarnation(), incarnation) << "nothing was lost";
}

TEST_F(redis_cluster_with_replicas, a_replica_that_takes_over_counts_as_empty) {
  redis_test_cluster& cluster = *made_;
  const auto far = open_part(cluster, "timeout=20s");
  const auto queue = std::move(far->open_channel(8)).value();
  const slot_id old = far->allocate(4).value();
  ASSERT_EQ(write_slot(*far, *queue, old, 1), 0);
  const std::uint64_t incarnation = far->incarnation();
  cluster.node(0).kill();
  EXPECT_EQ(cluster.wait_for_successor(home_slot, 0, 1), 3u);
  EXPECT_TRUE(reached(*far, [&] { return far->incarnation() != incarnation; }));
  EXPECT_EQ(read_slot(*far, *queue, old, 1), ESTALE);
  const slot_id fresh = allocate(*far, 4);
  EXPECT_TRUE(reached(*far, [&] { return write_slot(*far, *queue, fresh, 2) == 0; }));
  EXPECT_EQ(read_slot(*far, *queue, fresh, 2), 0);
}

// The old master is there, and says that its hash slots are another node's. That was not a migration.
TEST_F(redis_cluster_with_replicas, a_replica_that_is_told_to_take_over_counts_as_empty) {
  redis_test_cluster& cluster = *made_;
  const auto far = open_part(cluster, "timeout=20s");
  const auto queue = std::move(far->open_channel(8)).value();
  const slot_id old = far->allocate(4).value();
  ASSERT_EQ(write_slot(*far, *queue, old, 1), 0);
  const std::uint64_t incarnation = far->incarnation();
  ASSERT_EQ(cluster.node(3).command("CLUSTER FAILOVER TAKEOVER"), "+OK");
  EXPECT_EQ(cluster.wait_for_successor(home_slot, 0, 1), 3u);
  EXPECT_TRUE(reached(*far, [&] {
    static_cast<void>(read_slot(*far, *queue, old, 1));
    return far->incarnation() != incarnation;
  }));
  EXPECT_EQ(read_slot(*far, *queue, old, 1), ESTALE);
}

// Between two looks of the program its node has become a replica and a master again, in the process of before.
TEST_F(redis_cluster_with_replicas, a_master_that_has_been_a_replica_meanwhile_counts_as_empty) {
  redis_test_cluster& cluster = *made_;
  const auto far = open_part(cluster, "timeout=10s");
  const auto queue = std::move(far->open_channel(8)).value();
  const slot_id old = far->allocate(4).value();
  ASSERT_EQ(write_slot(*far, *queue, old, 1), 0);
  const std::uint64_t incarnation = far->incarnation();
  const std::uint64_t identity = far->server_identity();
  ASSERT_EQ(cluster.node(3).command("CLUSTER FAILOVER TAKEOVER"), "+OK");
  ASSERT_EQ(cluster.wait_for_successor(home_slot, 0, 1), 3u);
  const auto is_in_step = [&] {
    return cluster.node(0).command("INFO replication").find("master_link_status:up") != std::string::npos;
  };
  ASSERT_TRUE(eventually(is_in_step));
  ASSERT_EQ(cluster.node(0).command("CLUSTER FAILOVER TAKEOVER"), "+OK");
  ASSERT_EQ(cluster.wait_for_successor(home_slot, 3, 1), 0u);
  EXPECT_TRUE(reached(*far, [&] { return far->incarnation() != incarnation; }));
  EXPECT_EQ(read_slot(*far, *queue, old, 1), ESTALE);
  EXPECT_EQ(far->server_identity(), identity);
}

// A master begins a new history of its data when its first replica is attached.
TEST_F(redis_cluster_of_two, a_replica_that_was_attached_later_and_takes_over_counts_as_empty) {
  redis_test_cluster& cluster = *made_;
  const auto far = open_part(cluster, "timeout=20s");
  const auto queue = std::move(far->open_channel(8)).value();
  const slot_id old = far->allocate(4).value();
  ASSERT_EQ(write_slot(*far, *queue, old, 1), 0);
  const std::size_t replica = cluster.add_node();
  cluster.join(replica);
  cluster.replicate(replica, 0);
  ASSERT_EQ(cluster.node(replica).command("CLUSTER FAILOVER TAKEOVER"), "+OK");
  ASSERT_EQ(cluster.wait_for_successor(home_slot, 0, 0), replica);
  EXPECT_TRUE(reached(*far, [&] { return read_slot(*far, *queue, old, 1) == ESTALE; }));
}

// The node that a hash slot moves to has strings that were written there, and its replica need not have them. That it
// has one is noticed, although it is attached only then.
TEST_F(redis_cluster_of_two, a_failover_in_the_midst_of_a_migration_counts_as_one) {
  redis_test_cluster& cluster = *made_;
  const auto far = open_part(cluster, "timeout=10s");
  const auto queue = std::move(far->open_channel(8)).value();
  const slot_id first = far->allocate(1024).value();
  ASSERT_EQ(write_slot(*far, *queue, first, 1), 0);
  cluster.begin_move(home_slot, 0, 1);
  for (const std::string& key : cluster.keys_of(home_slot, 0)) cluster.move_key(key, 0, 1);
  EXPECT_TRUE(reached(*far, [&] { return write_slot(*far, *queue, first, 2) == 0; }));
  const std::size_t replica = cluster.add_node();
  cluster.join(replica);
  cluster.replicate(replica, 1);
  const auto questions = [&] {
    const std::string key = "cmdstat_info:calls=";
    const std::string reply = cluster.node(1).command("INFO commandstats");
    return std::stoull(reply.substr(reply.find(key) + key.size()));
  };
  std::uint64_t own = questions();
  ASSERT_TRUE(reached(*far, [&] { return questions() > ++own; }));
  ASSERT_EQ(cluster.node(replica).command("CLUSTER FAILOVER TAKEOVER"), "+OK");
  ASSERT_EQ(cluster.wait_for_successor(cluster_slots - 1, 1, 0), replica);
  cluster.end_move(home_slot, 0, replica);
  EXPECT_TRUE(reached(*far, [&] { return read_slot(*far, *queue, first, 2) == ESTALE; }));
}

// A master that has taken over before says what its data go on from while strings move to it. It is no replica of ours.
TEST_F(redis_cluster_with_replicas, a_hash_slot_that_moves_to_a_master_which_has_taken_over_before_is_followed) {
  redis_test_cluster& cluster = *made_;
  ASSERT_EQ(cluster.node(4).command("CLUSTER FAILOVER TAKEOVER"), "+OK");
  ASSERT_EQ(cluster.wait_for_successor(8000, 1, 0), 4u);
  const auto far = open_part(cluster, "timeout=20s");
  const auto queue = std::move(far->open_channel(8)).value();
  const slot_id first = far->allocate(1024).value();
  ASSERT_EQ(write_slot(*far, *queue, first, 1), 0);
  const std::uint64_t incarnation = far->incarnation();
  cluster.begin_move(home_slot, 0, 4);
  for (const std::string& key : cluster.keys_of(home_slot, 0)) cluster.move_key(key, 0, 4);
  EXPECT_EQ(read_slot(*far, *queue, first, 1), 0);
  EXPECT_EQ(write_slot(*far, *queue, first + 9, 1), 0);
  cluster.end_move(home_slot, 0, 4);
  EXPECT_EQ(read_slot(*far, *queue, first, 1), 0);
  EXPECT_EQ(read_slot(*far, *queue, first + 9, 1), 0);
  EXPECT_EQ(far->incarnation(), incarnation) << "nothing was lost";
}

// The second one to take over does not know of the first master, and that one says nothing.
TEST_F(redis_cluster_with_more_replicas, a_replica_of_a_replica_that_has_taken_over_counts_as_empty) {
  redis_test_cluster& cluster = *made_;
  const auto far = open_part(cluster, "timeout=20s");
  const auto queue = std::move(far->open_channel(8)).value();
  const slot_id old = far->allocate(4).value();
  ASSERT_EQ(write_slot(*far, *queue, old, 1), 0);
  cluster.node(0).kill();
  const std::size_t second = cluster.wait_for_successor(home_slot, 0, 1);
  const std::size_t third = second == 3 ? 6 : 3;
  cluster.wait_for_replica(third, second);
  cluster.node(second).kill();
  ASSERT_EQ(cluster.wait_for_successor(home_slot, second, 1), third);
  EXPECT_TRUE(reached(*far, [&] { return read_slot(*far, *queue, old, 1) == ESTALE; }));
}

TEST_F(redis_cluster, what_somebody_deletes_is_lost_even_while_its_hash_slot_moves) {
  redis_test_cluster& cluster = *made_;
  const auto far = open_part(cluster, "timeout=20s");
  const auto queue = std::move(far->open_channel(8)).value();
  const slot_id first = far->allocate(1024).value();
  ASSERT_EQ(write_slot(*far, *queue, first, 1), 0);
  cluster.begin_move(home_slot, 0, 1);
  for (const std::string& key : cluster.keys_of(home_slot, 0)) cluster.move_key(key, 0, 1);
  ASSERT_EQ(read_slot(*far, *queue, first, 1), 0);
  ASSERT_EQ(cluster.node(1).command("FLUSHALL"), "+OK");
  EXPECT_EQ(write_slot(*far, *queue, first + 7, 1), ESTALE) << "a write must not bring back the string around it";
  EXPECT_EQ(read_slot(*far, *queue, first, 1), ESTALE);
}

TEST_F(redis_cluster_of_two, refusals_say_what_to_do) {
  redis_test_cluster& cluster = *made_;
  const redis_test_server single;
  const auto message = [](const std::string& name) {
    const result<std::unique_ptr<backend>> opened = open(name);
    return opened.ok() ? std::string("no error") : opened.error().message;
  };
  const std::string name = "redis+cluster://" + cluster.addresses();
  EXPECT_NE(message(name + "?copies=3").find("the cluster has 2"), std::string::npos) << message(name + "?copies=3");
  EXPECT_NE(message(name + "?db=1").find("database 0"), std::string::npos);
  EXPECT_NE(message("redis+cluster://127.0.0.1:1?timeout=1s").find("Redis runs"), std::string::npos);
  EXPECT_NE(message("redis+cluster://" + single.address()).find("redis: instead of redis+cluster:"), std::string::npos)
      << message("redis+cluster://" + single.address());
  EXPECT_NE(message("redis://" + cluster.node(0).address()).find("redis+cluster: instead of redis:"), std::string::npos)
      << message("redis://" + cluster.node(0).address());
  ASSERT_EQ(cluster.node(1).command("CONFIG SET maxmemory 100mb maxmemory-policy allkeys-lru"), "+OK");
  EXPECT_NE(message(name).find("maxmemory-policy is 'allkeys-lru'"), std::string::npos) << message(name);
}

// Pages with two copies, written and read beside whatever a test does to the cluster.
class copied_pages {
 public:
  copied_pages(backend& far, std::size_t count)
      : far_(far), queue_(std::move(far.open_channel(8)).value()), first_(allocate(far, count)), count_(count) {}

  void write_all() {
    ++generation_;
    for (slot_id slot = first_; slot < first_ + count_; ++slot) {
      // One that fails is kept and written again, as by the engine.
      ASSERT_TRUE(reached(far_, [&] { return write_slot(far_, *queue_, slot, generation_) == 0; })) << slot;
    }
  }
  void expect_all() {
    for (slot_id slot = first_; slot < first_ + count_; ++slot) {
      ASSERT_EQ(read_slot(far_, *queue_, slot, generation_), 0) << slot;
    }
  }

 private:
  backend& far_;
  const std::unique_ptr<channel> queue_;
  const slot_id first_;
  const std::size_t count_;
  std::uint64_t generation_ = 0;
};

// With TLS, and a user who may do nothing but what docs/cluster.md lists.
TEST_F(redis_cluster_made_by_test, tls_and_a_user_with_few_rights_are_enough) {
  wire::tls_test_files files;
  files.make_authority("authority");
  files.make_server("server", "authority", "IP:127.0.0.1");
  const std::string path = files.folder() + "/password";
  std::FILE* const file = std::fopen(path.c_str(), "w");
  std::fputs("a-password-of-the-test\n", file);
  std::fclose(file);
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  std::vector<std::string> arguments{"--tls-port",
                                     "both",
                                     "--tls-cluster",
                                     "yes",
                                     "--tls-replication",
                                     "yes",
                                     "--tls-auth-clients",
                                     "no",
                                     "--tls-cert-file",
                                     files.certificate("server"),
                                     "--tls-key-file",
                                     files.key("server"),
                                     "--tls-ca-cert-file",
                                     files.certificate("authority"),
                                     "--user"};
  std::istringstream words(
      "far on >a-password-of-the-test ~job:* resetchannels -@all +info +client|id +client|kill +script|load +evalsha "
      "+exists +getrange +setrange +pexpire +unlink +ping +cluster|nodes +asking");
  for (std::string word; words >> word;) arguments.push_back(word);
  redis_test_cluster cluster(3, 0, arguments);
  const auto far = [&] {
    result<std::unique_ptr<backend>> opened =
        open("rediss+cluster://127.0.0.1:" + std::to_string(cluster.node(0).tls_port()) +
             "?capacity=64M&timeout=20s&prefix=job&user=far&password-file=" + path +
             "&ca=" + files.certificate("authority"));
    EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().message);
    return opened.ok() ? std::move(opened).value() : nullptr;
  }();
  ASSERT_NE(far, nullptr);
  copied_pages pages(*far, 3000);
  pages.write_all();
  for (const std::uint32_t slot : cluster.used_slots(0)) {
    cluster.begin_move(slot, 0, 1);
    const std::vector<std::string> keys = cluster.keys_of(slot, 0);
    for (std::size_t i = 0; i < keys.size(); i += 2) cluster.move_key(keys[i], 0, 1);
    pages.expect_all();
    pages.write_all();
    cluster.end_move(slot, 0, 1);
  }
  pages.expect_all();
}

bool is_whole(backend& far) {
  return dynamic_cast<replicated_backend&>(far).is_whole();
}

TEST_F(redis_cluster_with_replicas, two_copies_outlive_one_master_after_the_other) {
  redis_test_cluster& cluster = *made_;
  const auto far = open_all(cluster, "copies=2&timeout=2s&capacity=64M");
  copied_pages pages(*far, 3000);
  pages.write_all();
  for (const std::size_t victim : {0u, 1u}) {
    cluster.node(victim).kill();
    pages.expect_all();
    ASSERT_EQ(cluster.wait_for_successor(5461 * static_cast<std::uint32_t>(victim) + 100, victim, victim + 3),
              victim + 3);
    pages.write_all();
    ASSERT_TRUE(reached(*far, [&] { return is_whole(*far); }));
    pages.expect_all();
  }
}

TEST_F(redis_cluster, copies_that_come_to_one_node_are_parted) {
  redis_test_cluster& cluster = *made_;
  const auto far = open_all(cluster, "copies=2&timeout=2s&capacity=64M");
  copied_pages pages(*far, 3000);
  pages.write_all();
  // All that was in the first node is in the second one now, with the other copies of much of it.
  for (const std::uint32_t slot : cluster.used_slots(0)) cluster.move(slot, 0, 1);
  pages.expect_all();
  const auto keys_in = [&](std::size_t node) { return cluster.node(node).command("DBSIZE"); };
  // The first node has none of our hash slots, and gets one.
  ASSERT_TRUE(reached(*far, [&] { return keys_in(0) != ":0"; }));
  ASSERT_TRUE(reached(*far, [&] { return is_whole(*far); }));
  cluster.node(1).kill();
  pages.expect_all();
}

TEST_F(redis_cluster_of_two, a_master_that_joins_takes_part_unless_it_may_evict) {
  redis_test_cluster& cluster = *made_;
  const auto far = open_all(cluster, "copies=2&timeout=2s&capacity=64M");
  copied_pages pages(*far, 3000);
  pages.write_all();
  const std::size_t evicting = cluster.add_node();
  ASSERT_EQ(cluster.node(evicting).command("CONFIG SET maxmemory 100mb maxmemory-policy allkeys-lru"), "+OK");
  cluster.join(evicting);
  cluster.move(9000, 1, evicting);
  const std::size_t good = cluster.add_node();
  cluster.join(good);
  cluster.move(9001, 1, good);
  ASSERT_TRUE(reached(*far, [&] { return cluster.node(good).command("DBSIZE") != ":0"; }));
  ASSERT_TRUE(
      reached(*far, [&] { return far->describe().find(cluster.node(evicting).address()) != std::string::npos; }));
  EXPECT_EQ(cluster.node(evicting).command("DBSIZE"), ":0");
  pages.expect_all();
}

TEST_F(redis_cluster, a_node_is_taken_out_of_use_by_its_address) {
  redis_test_cluster& cluster = *made_;
  const auto far = open_all(cluster, "copies=2&timeout=2s&capacity=64M");
  // Those of the nodes among each other, by which strings move, apart, as well as the one that asks.
  const auto clients_of = [&](std::size_t node) {
    std::istringstream lines(cluster.node(node).command("CLIENT LIST"));
    int count = -1;
    for (std::string line; std::getline(lines, line);) {
      count += line.find("addr=") != std::string::npos && line.find("cmd=restore") == std::string::npos;
    }
    return count;
  };
  copied_pages pages(*far, 2000);
  pages.write_all();
  // Some of the beginning may still be about to end.
  int clients_before = 0;
  int looks_alike = 0;
  ASSERT_TRUE(reached(*far, [&] {
    const int now = clients_of(0);
    looks_alike = now == clients_before ? looks_alike + 1 : 0;
    clients_before = now;
    return looks_alike == 200;
  }));
  const auto number_in = [&](std::size_t node, const std::string& section, const std::string& key) {
    const std::string reply = cluster.node(node).command("INFO " + section);
    return std::stoull(reply.substr(reply.find(key) + key.size()));
  };
  // Names decide which two nodes hold a page: the busier of these two holds at least half of them.
  const std::string commands = "total_commands_processed:";
  const std::size_t leaves = number_in(1, "stats", commands) > number_in(2, "stats", commands) ? 1 : 2;
  const std::size_t stays = 3 - leaves;
  // A part has connections to the node that its hash slot moves to, too.
  const std::uint32_t moving = cluster.used_slots(leaves).at(0);
  cluster.begin_move(moving, leaves, 0);
  const std::vector<std::string> keys = cluster.keys_of(moving, leaves);
  for (std::size_t i = 1; i < keys.size(); ++i) cluster.move_key(keys[i], leaves, 0);
  pages.write_all();
  EXPECT_GT(clients_of(0), clients_before);
  EXPECT_EQ(far->remove_server("127.0.0.1:1", removal::begin).error().code, ENOENT);
  const std::string left = cluster.node(leaves).address();
  ASSERT_TRUE(reached(*far, [&] { return far->remove_server(left, removal::begin).value() == 0; }));
  EXPECT_TRUE(reached(*far, [&] { return clients_of(leaves) == 0 && clients_of(0) == clients_before; }));
  EXPECT_EQ(cluster.node(leaves).command("DBSIZE"), ":0");
  pages.expect_all();
  EXPECT_EQ(far->remove_server(left, removal::go_on).value(), 0u);
  EXPECT_EQ(far->remove_server(cluster.node(stays).address(), removal::begin).error().code, EBUSY)
      << "two copies need two nodes";
  // Resharding takes the hash slots that kept other parts away.
  cluster.move(moving, leaves, 0);
  const auto replies = [&] { return number_in(0, "commandstats", "cmdstat_cluster|nodes:calls="); };
  const unsigned long long enough = replies() + 6;
  ASSERT_TRUE(reached(*far, [&] { return replies() > enough; }));
  EXPECT_EQ(far->describe().find(left), std::string::npos) << far->describe();
  EXPECT_EQ(cluster.node(leaves).command("DBSIZE"), ":0") << "it stays out of use";
  pages.expect_all();
}

TEST_F(redis_cluster, a_node_that_hangs_and_one_that_is_emptied_lose_nothing) {
  redis_test_cluster& cluster = *made_;
  const auto far = open_all(cluster, "copies=2&timeout=2s&capacity=64M");
  copied_pages pages(*far, 2000);
  pages.write_all();
  cluster.node(2).pause();
  pages.expect_all();
  pages.write_all();
  cluster.node(2).resume();
  ASSERT_TRUE(reached(*far, [&] { return is_whole(*far); }));
  ASSERT_EQ(cluster.node(0).command("FLUSHALL"), "+OK");
  pages.expect_all();
  pages.write_all();
  ASSERT_TRUE(reached(*far, [&] { return is_whole(*far); }));
  ASSERT_EQ(cluster.node(1).command("FLUSHALL"), "+OK");
  pages.expect_all();
}

}  // namespace
}  // namespace far::backend
