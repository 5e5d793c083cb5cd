// A server that is looked for at other addresses of its name.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <set>

#include "tests/support/connection_bench.h"

namespace far::backend {
namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;

// Of the scripted server: what it grants, and the time within which a server notices that nobody is there.
constexpr std::uint64_t lease_ns = 90 * second_ns;
constexpr std::uint64_t silence_ns = 60 * second_ns;

// A client of a name with three addresses that has written, and whose connection has ended since.
struct cut_off : connection_bench {
  cut_off() {
    plan.addresses = 3;
    make();
    write_and_read(*this);
    lose_connection();
  }

  void lose_connection() {
    plan.used_addresses.clear();
    plan.cut_sent_at = plan.sent + 1;
    start(operation::read, 0, 0, 60, 0);
    step();
    plan.unreachable = true;
  }

  void let_pass(std::uint64_t ns) {
    const std::uint64_t until_ns = time.ns + ns;
    while (time.ns < until_ns) step(50 * millisecond_ns);
  }

  [[nodiscard]] std::set<std::size_t> tried() const { return {plan.used_addresses.begin(), plan.used_addresses.end()}; }
};

TEST(moved_server, is_looked_for_where_it_was_until_the_timeout) {
  cut_off client;
  client.let_pass(timeout_ns / 2);
  EXPECT_EQ(client.tried(), (std::set<std::size_t>{0}));
  client.let_pass(20 * timeout_ns);
  EXPECT_EQ(client.tried(), (std::set<std::size_t>{0, 1, 2}));
  std::size_t at_home = 0;
  for (const std::size_t used : client.plan.used_addresses) at_home += used == 0 ? 1 : 0;
  EXPECT_GE(at_home * 2, client.plan.used_addresses.size()) << "every other attempt";
}

TEST(moved_server, goes_on_with_what_it_has_at_another_address) {
  cut_off client;
  client.let_pass(2 * timeout_ns);
  client.plan.reachable_address = 2;
  client.run([&] { return client.tested->now() == tcp_connection::phase::ready; }, 4000);
  EXPECT_EQ(client.server.sessions, 1);
  EXPECT_EQ(client.session.now().address, 2u);
  connection_bench::job& read = client.start(operation::read, 0, 0, 60, 0);
  client.run_to_end();
  EXPECT_EQ(read.moved.error_code, 0);
  EXPECT_TRUE(holds(read, 0));
  client.lose_connection();
  client.let_pass(timeout_ns / 2);
  EXPECT_EQ(client.tried(), (std::set<std::size_t>{2})) << "this is its address now";
}

// Its name stands for two servers, and the one that does not have the bytes answers first.
TEST(moved_server, another_server_is_not_believed_while_the_bytes_may_be_alive) {
  cut_off client;
  client.server.turn_away_at = 1;
  client.let_pass(2 * timeout_ns);
  client.plan.reachable_address = 1;
  client.let_pass(lease_ns);
  EXPECT_GT(client.server.turned_away, 1);
  EXPECT_EQ(client.session.epoch(), 1u);
  client.plan.reachable_address = 0;
  client.run([&] { return client.tested->now() == tcp_connection::phase::ready; }, 4000);
  connection_bench::job& read = client.start(operation::read, 0, 0, 60, 0);
  client.run_to_end();
  EXPECT_EQ(read.moved.error_code, 0);
  EXPECT_TRUE(holds(read, 0));
  EXPECT_EQ(client.server.sessions, 1);
}

TEST(moved_server, another_server_is_believed_when_the_lease_is_over) {
  cut_off client;
  client.server.turn_away_at = 1;
  client.plan.reachable_address = 1;
  client.let_pass(lease_ns + silence_ns + 10 * second_ns);
  EXPECT_EQ(client.session.epoch(), 2u);
  client.become_ready();
  EXPECT_EQ(client.server.sessions, 2);
}

TEST(moved_server, another_server_is_believed_when_nothing_is_stored) {
  cut_off client;
  client.control.stores_nothing = true;
  client.tested->lock.lock();
  client.tested->set_control(&client.control);
  client.tested->lock.unlock();
  client.server.turn_away_at = 1;
  client.plan.reachable_address = 1;
  client.let_pass(4 * timeout_ns);
  EXPECT_EQ(client.session.epoch(), 2u);
}

}  // namespace
}  // namespace far::backend
