#include "backend/tcp/connection.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/connection_bench.h"

namespace far::backend {
namespace {

using bench = connection_bench;

TEST(connection, moves_bytes) {
  bench all;
  all.make();
  write_and_read(all);
  EXPECT_EQ(all.plan.connects, 1);
  EXPECT_EQ(all.server.hellos[0].channel, 7u);
}

TEST(connection, what_waits_goes_into_one_message) {
  bench all;
  all.make();
  write_and_read(all);  // all writes were there before the connection was
  EXPECT_EQ(all.server.requests[0], wire::opcode::write);
  EXPECT_EQ(all.server.requests[1], wire::opcode::read);
}

TEST(connection, replies_may_come_in_any_order_and_cut_anywhere) {
  for (const std::size_t bytes : {1u, 7u, 39u, 41u, 1000u}) {
    bench all;
    all.server.replies_backwards = true;
    all.plan.bytes_a_call = bytes;
    all.make();
    all.become_ready();
    for (unsigned i = 0; i < 4; ++i) all.start(operation::write, i, 0, 3000, i);
    all.run_to_end(40'000, 0);
    std::vector<bench::job*> reads;
    for (unsigned i = 0; i < 4; ++i) reads.push_back(&all.start(operation::read, i, 0, 3000, i));
    all.run_to_end(40'000, 0);
    for (unsigned i = 0; i < 4; ++i) EXPECT_TRUE(holds(*reads[i], i)) << i;
  }
}

TEST(connection, long_transfers_travel_in_several_messages) {
  bench all;
  all.server.maximum_outstanding = 2;
  all.make();
  constexpr std::uint32_t length = 1'500'000;
  all.start(operation::write, 3, 99, length, 1);
  all.run_to_end();
  bench::job& read = all.start(operation::read, 3, 99, length, 1);
  all.run_to_end();
  EXPECT_EQ(read.moved.error_code, 0);
  EXPECT_TRUE(holds(read, 1));
  EXPECT_GE(all.server.requests.size(), 4u);
}

TEST(connection, a_cut_at_any_byte_sent_loses_nothing) {
  bench whole;
  whole.make();
  write_and_read(whole);
  for (std::uint64_t at = 1; at <= whole.plan.sent; ++at) {
    SCOPED_TRACE(testing::Message() << "cut after " << at << " bytes sent");
    bench all;
    all.plan.cut_sent_at = at;
    all.make();
    write_and_read(all);
    EXPECT_EQ(all.plan.connects, at < whole.plan.sent ? 2 : all.plan.connects);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(connection, a_cut_at_any_byte_received_loses_nothing) {
  bench whole;
  whole.make();
  write_and_read(whole);
  for (std::uint64_t at = 1; at <= whole.plan.received; ++at) {
    SCOPED_TRACE(testing::Message() << "cut after " << at << " bytes received");
    bench all;
    all.plan.cut_received_at = at;
    all.make();
    write_and_read(all);
    EXPECT_EQ(all.plan.connects, 2);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(connection, damage_of_any_byte_received_is_noticed_and_made_good) {
  bench whole;
  whole.shown.token = whole.server.token = secret;
  whole.make();
  write_and_read(whole);
  for (std::uint64_t at = 0; at < whole.plan.received; ++at) {
    SCOPED_TRACE(testing::Message() << "byte " << at << " damaged");
    bench all;
    all.shown.token = all.server.token = secret;
    all.plan.damage_received_at = at;
    all.make();
    write_and_read(all);
    EXPECT_EQ(all.plan.connects, 2);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(connection, what_arrives_damaged_at_the_server_is_sent_again) {
  bench all;
  all.make();
  all.become_ready();
  all.plan.damage_sent_at = all.plan.sent + wire::header_bytes + 30;
  write_and_read(all);
  EXPECT_EQ(all.plan.connects, 2);
}

TEST(connection, messages_are_sent_again_in_their_order) {
  bench all;
  all.make();
  all.become_ready();
  all.server.answers_requests = false;
  for (unsigned i = 0; i < 3; ++i) {
    all.start(i == 1 ? operation::read : operation::write, i, 0, 50, i);
  }
  ASSERT_EQ(all.server.requests.size(), 3u);
  all.server.requests.clear();
  all.server.answers_requests = true;
  all.plan.cut_sent_at = all.plan.sent + 1;
  all.start(operation::write, 5, 0, 50, 1);
  all.run_to_end();
  const std::vector<wire::opcode> expected{wire::opcode::write, wire::opcode::read, wire::opcode::write,
                                           wire::opcode::write};
  EXPECT_EQ(all.server.requests, expected);
  EXPECT_EQ(all.server.hellos[1].channel, 7u) << "the same channel number: the server fences the old connection";
  EXPECT_NE(all.server.hellos[1].join, wire::session_id{});
}

TEST(connection, a_request_without_answer_times_out_and_its_bytes_land_nowhere) {
  bench all;
  all.make();
  all.become_ready();
  all.server.answers_requests = false;
  bench::job& late = all.start(operation::read, 0, 0, 100, 0);
  const std::uint64_t deadline_ns = late.moved.deadline_ns;
  while (all.time.ns < deadline_ns) {
    all.step();
    ASSERT_FALSE(late.ended);
  }
  all.step();
  ASSERT_TRUE(late.ended);
  EXPECT_EQ(late.moved.error_code, ETIMEDOUT);
  EXPECT_EQ(late.buffer, std::vector<std::byte>(100, std::byte{0xee}));
  EXPECT_EQ(all.tested->now(), tcp_connection::phase::broken);
  all.server.answers_requests = true;
  all.server.requests.clear();
  bench::job& next = all.start(operation::write, 1, 0, 100, 1);
  all.run_to_end();
  EXPECT_EQ(next.moved.error_code, 0);
  EXPECT_EQ(all.server.requests.size(), 1u) << "what has ended is not sent again";
}

TEST(connection, requests_time_out_while_there_is_no_connection) {
  bench all;
  all.plan.unreachable = true;
  all.make();
  bench::job& waiting = all.start(operation::write, 0, 0, 10, 0);
  for (int i = 0; i < 990; ++i) all.step();
  EXPECT_FALSE(waiting.ended);
  all.run_to_end();
  EXPECT_EQ(waiting.moved.error_code, ETIMEDOUT);
  EXPECT_EQ(all.tested->failure_code(), ECONNREFUSED);
}

TEST(connection, a_long_transfer_that_times_out_ends_once) {
  bench all;
  all.server.maximum_outstanding = 1;
  all.make();
  all.become_ready();
  all.server.answers_requests = false;
  bench::job& late = all.start(operation::write, 0, 0, 1'000'000, 0);
  all.run([&] { return late.ended; }, 1200);
  EXPECT_EQ(late.moved.error_code, ETIMEDOUT);
}

TEST(connection, backs_off_longer_each_time) {
  bench all;
  all.plan.unreachable = true;
  all.make();
  std::uint64_t before_ns = 0;
  for (int i = 0; i < 8; ++i) {
    const std::uint64_t next_ns = all.tested->advance(&all);
    ASSERT_GT(next_ns, all.time.ns);
    EXPECT_EQ(next_ns - all.time.ns, i > 0 ? 2 * before_ns : next_ns - all.time.ns);
    before_ns = next_ns - all.time.ns;
    all.time.ns = next_ns;
  }
  all.plan.unreachable = false;
  write_and_read(all);
}

TEST(connection, a_silent_handshake_is_given_up) {
  bench all;
  all.server.answers_hello = false;
  all.make();
  all.step();
  EXPECT_EQ(all.tested->now(), tcp_connection::phase::handshaking);
  all.run([&] { return all.tested->now() == tcp_connection::phase::broken; }, 1100);
  EXPECT_EQ(all.tested->failure_code(), ETIMEDOUT);
  all.server.answers_hello = true;
  write_and_read(all);
}

TEST(connection, proves_its_token_and_wants_proof) {
  bench all;
  all.shown.token = all.server.token = secret;
  all.make();
  write_and_read(all);
}

// The message of a client that cannot get on, without its token.
std::string refusal_of(bench& all) {
  all.make();
  all.run([&] { return all.tested->refused(); });
  const std::string said = all.tested->explanation();
  EXPECT_EQ(said.find(secret), std::string::npos);
  EXPECT_EQ(all.server.requests.size(), 0u);
  return said;
}

TEST(connection, a_wrong_token_is_refused) {
  bench all;
  all.server.token = "another token altogether";
  all.shown.token = secret;
  EXPECT_NE(refusal_of(all).find("token"), std::string::npos);
}

TEST(connection, a_missing_token_is_asked_for) {
  bench all;
  all.server.token = secret;
  EXPECT_NE(refusal_of(all).find("token-file"), std::string::npos);
}

TEST(connection, a_server_that_wants_no_token_is_refused_by_a_client_that_has_one) {
  bench all;
  all.shown.token = secret;
  EXPECT_NE(refusal_of(all).find("token"), std::string::npos);
}

TEST(connection, a_server_that_cannot_prove_the_token_is_refused) {
  bench all;
  all.shown.token = all.server.token = secret;
  all.server.proven_token = "only the client's proof was guessed";
  EXPECT_NE(refusal_of(all).find("cannot prove"), std::string::npos);
}

TEST(connection, another_version_is_refused) {
  bench all;
  all.server.version = wire::newest_version + 1;
  EXPECT_NE(refusal_of(all).find("version"), std::string::npos);
}

TEST(connection, says_what_the_server_said) {
  bench all;
  all.server.refusal = "no more sessions for today";
  EXPECT_NE(refusal_of(all).find("no more sessions for today"), std::string::npos);
}

TEST(connection, nobody_is_believed_without_proof_that_the_session_is_gone) {
  bench all;
  all.shown.token = all.server.token = "a token of enough letters";
  all.make();
  write_and_read(all);
  all.server.lies_about_session = true;
  all.plan.cut_sent_at = all.plan.sent + 1;
  bench::job& read = all.start(operation::read, 0, 0, 60, 0);
  for (int i = 0; i < 100; ++i) all.step();
  EXPECT_EQ(all.session.epoch(), 1u);
  EXPECT_GT(all.plan.connects, 3) << "it was told so again and again";
  all.server.lies_about_session = false;
  all.run_to_end(4000);
  EXPECT_EQ(read.moved.error_code, 0);
  EXPECT_EQ(all.server.sessions, 1);
}

// Each address may be a server of its own, which would say in good faith that it knows no such session.
TEST(connection, a_session_stays_at_the_address_where_it_was_opened) {
  bench all;
  all.plan.addresses = 3;
  all.plan.unreachable = true;
  all.make();
  all.run([&] { return all.plan.used_addresses.size() == 4; });
  EXPECT_EQ(all.plan.used_addresses, (std::vector<std::size_t>{0, 1, 2, 0})) << "none yet: each in turn";
  all.plan.unreachable = false;
  write_and_read(all);
  const std::size_t opened_at = all.plan.used_addresses.back();
  all.plan.used_addresses.clear();
  all.plan.cut_sent_at = all.plan.sent + 1;
  all.start(operation::read, 0, 0, 60, 0);
  all.step();
  all.plan.unreachable = true;
  for (int i = 0; i < 200; ++i) all.step();
  EXPECT_GT(all.plan.used_addresses.size(), 2u);
  for (const std::size_t used : all.plan.used_addresses) EXPECT_EQ(used, opened_at);
}

TEST(connection, a_session_knows_what_it_was_granted_and_by_whom) {
  bench all;
  all.server.identity[0] = std::byte{7};
  all.make();
  all.become_ready();
  EXPECT_EQ(all.session.identity(), 7u);
  EXPECT_EQ(all.session.lease_ns(), 90'000'000'000u);
}

// An update of the server was taken back, for one.
TEST(connection, a_server_of_the_version_before_says_that_the_session_is_lost) {
  bench all;
  all.make();
  write_and_read(all);
  all.server.forget_session();
  all.server.version = wire::newest_version - 1;
  all.plan.cut_sent_at = all.plan.sent + 1;
  bench::job& read = all.start(operation::read, 0, 0, 60, 0);
  all.run_to_end();
  EXPECT_EQ(read.moved.error_code, ESTALE);
  all.become_ready();
  EXPECT_EQ(all.server.sessions, 2);
}

TEST(connection, a_lost_session_fails_everything_and_a_new_one_begins) {
  bench all;
  all.make();
  write_and_read(all);
  all.server.answers_requests = false;
  bench::job& read = all.start(operation::read, 0, 0, 60, 0);
  all.server.forget_session();
  all.server.answers_requests = true;
  all.plan.cut_sent_at = all.plan.sent + 1;
  bench::job& write = all.start(operation::write, 1, 0, 60, 0);
  all.run_to_end();
  EXPECT_EQ(read.moved.error_code, ESTALE);
  EXPECT_EQ(write.moved.error_code, ESTALE);
  EXPECT_EQ(read.buffer, std::vector<std::byte>(60, std::byte{0xee}));
  EXPECT_EQ(all.session.epoch(), 2u);
  all.become_ready();
  EXPECT_EQ(all.server.sessions, 2);
  // A slot of the first session is not read in the second.
  bench::job& stale = all.start(operation::read, 0, 0, 60, 0);
  EXPECT_EQ(stale.moved.epoch, 2u);
  all.run_to_end();
  EXPECT_EQ(stale.moved.error_code, 0);
  all.jobs.push_back(std::make_unique<bench::job>());
  bench::job& old = *all.jobs.back();
  old.buffer.resize(60);
  old.moved.io = {operation::read, 0, 0, 60, old.buffer.data(), 0};
  old.moved.owner = &all;
  old.moved.epoch = 1;
  old.moved.deadline_ns = all.time.ns + timeout_ns;
  all.tested->enqueue(old.moved);
  all.run_to_end();
  EXPECT_EQ(old.moved.error_code, ESTALE);
}

TEST(connection, only_one_connection_opens_the_session) {
  bench all;
  all.make(false);
  for (int i = 0; i < 10; ++i) all.step();
  EXPECT_EQ(all.plan.connects, 0);
  wire::welcome welcome;
  welcome.session[0] = std::byte{1};
  ASSERT_TRUE(all.session.opened(1, welcome, wire::newest_version, 0));
  all.run([&] { return all.session.epoch() == 2; });  // the server knows no such session
  EXPECT_EQ(all.server.hellos[0].join, welcome.session);
}

TEST(connection, control_requests_are_asked_until_they_are_answered) {
  bench all;
  all.control.wanted = {
      {wire::opcode::allocate, {0, 4}}, {wire::opcode::free, {2, 1}}, {wire::opcode::allocate, {9, 1}}};
  all.server.verdicts[wire::opcode::allocate] = wire::status::no_space;
  all.server.answers_requests = false;
  all.make();
  all.become_ready();
  for (int i = 0; i < 2500; ++i) all.step();
  EXPECT_TRUE(all.control.outcomes.empty());
  EXPECT_GE(all.plan.connects, 3) << "each deadline that passes ends the connection";
  all.server.answers_requests = true;
  all.run([&] { return all.control.wanted.empty(); }, 3000);
  const std::vector<wire::status> expected{wire::status::no_space, wire::status::ok, wire::status::no_space};
  EXPECT_EQ(all.control.outcomes, expected);
}

// It is asked until it is answered, and stays in front of transfers that end in time.
TEST(connection, a_control_request_without_answer_holds_up_no_deadline) {
  bench all;
  all.control.wanted = {{wire::opcode::allocate, {0, 1}}};
  all.server.answers_requests = false;
  all.make();
  all.become_ready();
  all.step();
  bench::job& late = all.start(operation::read, 0, 0, 100, 0);
  const std::uint64_t deadline_ns = late.moved.deadline_ns;
  all.run([&] { return late.ended; }, 2500);
  EXPECT_EQ(late.moved.error_code, ETIMEDOUT);
  EXPECT_LE(all.time.ns, deadline_ns + 2 * millisecond_ns);
}

// A server has one status for a message, however many transfers travel in it.
TEST(connection, a_page_that_is_refused_takes_no_other_with_it) {
  for (const operation op : {operation::write, operation::read}) {
    bench all;
    all.make();
    for (unsigned i = 0; i < 9; ++i) all.start(operation::write, i, 0, 200, i);
    all.run_to_end();
    all.server.requests.clear();
    all.server.unreadable = {4, 7};
    all.plan.cut_sent_at = all.plan.sent;  // they all wait for the next connection, and travel in one message
    std::vector<bench::job*> jobs;
    for (unsigned i = 0; i < 9; ++i) jobs.push_back(&all.start(op, i, 0, 100, i));
    all.run_to_end();
    for (unsigned i = 0; i < 9; ++i) {
      const bool is_bad = i == 4 || i == 7;
      EXPECT_EQ(jobs[i]->moved.error_code, is_bad ? EIO : 0) << i;
      EXPECT_EQ(holds(*jobs[i], i), op == operation::write || !is_bad) << i;
    }
    EXPECT_EQ(all.server.requests.size(), 10u) << "the first, the others together, and then each alone";
  }
}

// Its other messages are on their way, or the rest of it waits, when the one that it shares is refused.
TEST(connection, a_long_transfer_that_shared_a_refused_message_begins_anew) {
  for (const std::uint32_t outstanding : {1u, 64u}) {
    for (const std::uint64_t bad : {0u, 5u, 90u}) {
      const bool is_bad = bad != 0;
      bench all;
      all.server.maximum_outstanding = outstanding;
      all.make();
      constexpr std::uint32_t length = 400'000;
      all.server.unreadable = {1};
      if (is_bad) all.server.unreadable.insert(bad);
      bench::job& small = all.start(operation::write, 1, 0, 100, 1);
      bench::job& large = all.start(operation::write, 3, 99, length, 1);
      bench::job& after = all.start(operation::write, 1000, 0, 100, 1);
      all.run_to_end();
      EXPECT_EQ(small.moved.error_code, EIO);
      EXPECT_EQ(large.moved.error_code, is_bad ? EIO : 0);
      EXPECT_EQ(after.moved.error_code, 0);
      if (is_bad) continue;
      bench::job& read = all.start(operation::read, 3, 99, length, 1);
      bench::job& last = all.start(operation::read, 1000, 0, 100, 1);
      all.run_to_end();
      EXPECT_TRUE(holds(read, 1));
      EXPECT_TRUE(holds(last, 1));
    }
  }
}

TEST(connection, what_is_sent_again_alone_keeps_its_deadline) {
  bench all;
  all.server.answers_requests = false;
  all.make();
  const std::array<bench::job*, 2> early{&all.start(operation::read, 0, 0, 100, 0),
                                         &all.start(operation::read, 1, 0, 100, 0)};
  const std::uint64_t deadline_ns = early[0]->moved.deadline_ns;
  all.run([&] { return !all.server.cookies.empty(); });
  for (int i = 0; i < 500; ++i) all.step();
  bench::job& late = all.start(operation::read, 2, 0, 100, 0);
  ASSERT_EQ(all.server.cookies.size(), 2u);
  all.server.say(wire::opcode::read, true, all.server.cookies[0], {}, wire::status::not_allocated);
  all.run([&] { return early[0]->ended && early[1]->ended; }, 1000);
  EXPECT_EQ(all.server.cookies.size(), 4u);
  EXPECT_LE(all.time.ns, deadline_ns + 2 * millisecond_ns);
  EXPECT_FALSE(late.ended);
  for (const bench::job* one : early) EXPECT_EQ(one->moved.error_code, ETIMEDOUT);
}

TEST(connection, a_quiet_connection_is_asked_for_a_sign_of_life) {
  bench all;
  all.make();
  all.become_ready();
  for (int i = 0; i < 2000; ++i) all.step();
  EXPECT_GE(all.server.requests.size(), 2u);
  for (const wire::opcode op : all.server.requests) EXPECT_EQ(op, wire::opcode::ping);
  EXPECT_EQ(all.plan.connects, 1);
  all.plan.stuck = true;
  all.run([&] { return all.tested->now() != tcp_connection::phase::ready; }, 1700);
  EXPECT_NE(all.tested->away_since_ns(), 0u);
}

// A waiting thread sleeps until advance() wants to be called.
TEST(connection, nobody_looks_again_and_again_at_a_server_that_does_not_answer) {
  bench all;
  all.make();
  all.become_ready();
  all.server.answers_requests = false;
  bench::job& asked = all.start(operation::read, 1, 0, 64, 0);
  all.time.ns += timeout_ns * 3 / 4;  // long after it would have been asked for a sign of life
  EXPECT_EQ(all.tested->advance(&all), asked.moved.deadline_ns);
  EXPECT_GT(asked.moved.deadline_ns, all.time.ns);
}

TEST(connection, hears_that_the_server_drains) {
  bench all;
  all.make();
  all.become_ready();
  all.server.say(wire::opcode::draining, false, 0, {});
  all.step();
  EXPECT_TRUE(all.control.is_draining);
  EXPECT_EQ(all.tested->now(), tcp_connection::phase::ready);
}

TEST(connection, a_reply_to_nothing_breaks_it) {
  for (int kind = 0; kind < 3; ++kind) {
    bench all;
    all.make();
    all.become_ready();
    const std::array<std::byte, 8> junk{};
    if (kind == 0) all.server.say(wire::opcode::ping, true, 12345, {});
    if (kind == 1) all.server.say(wire::opcode::read, false, 0, junk);
    if (kind == 2) all.server.out().assign(40, std::byte{0x55});
    all.step();
    EXPECT_EQ(all.tested->now(), tcp_connection::phase::broken) << kind;
    write_and_read(all);
  }
}

TEST(connection, a_slot_that_the_server_does_not_know_is_an_error) {
  bench all;
  all.server.verdicts[wire::opcode::write] = wire::status::not_allocated;
  all.make();
  bench::job& write = all.start(operation::write, 0, 0, 60, 0);
  all.run_to_end();
  EXPECT_EQ(write.moved.error_code, EIO);
  EXPECT_EQ(all.plan.connects, 1);
}

TEST(connection, a_child_leaves_the_parents_connection_alone) {
  bench all;
  all.make();
  write_and_read(all);
  all.server.answers_requests = false;
  all.start(operation::read, 0, 0, 60, 0);
  all.jobs.clear();
  all.server.answers_requests = true;
  const std::uint64_t sent = all.plan.sent;
  all.tested->lock.lock();
  all.tested->restart_in_child(0x80000001);
  EXPECT_TRUE(all.tested->lock.try_lock());
  EXPECT_EQ(all.plan.sent, sent);
  EXPECT_EQ(all.plan.closes, 0);
  EXPECT_EQ(all.plan.abandons, 1);
  bench::job& read = all.start(operation::read, 3, 17, 61, 1);
  all.run_to_end();
  EXPECT_EQ(read.moved.error_code, 0);
  EXPECT_TRUE(holds(read, 1));
  EXPECT_EQ(all.server.hellos.back().channel, 0x80000001u);
  EXPECT_EQ(all.server.sessions, 1);
}

}  // namespace
}  // namespace far::backend
