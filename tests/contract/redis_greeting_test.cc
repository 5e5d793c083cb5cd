// How connections to the nodes of a Redis Cluster begin and end: nodes that send them to each other, connections that
// must be ended, and those that are retired. Without a server.
#include "backend/redis/redis_greeting.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "backend/redis/cluster_directory.h"
#include "backend/redis/redis_connection.h"
#include "backend/redis/redis_session.h"
#include "backend/tcp/control_source.h"

namespace far::backend {
namespace {

constexpr std::uint64_t ms = 1'000'000;

redis_run_id process_of(char digit) {
  redis_run_id made;
  std::fill_n(made.text.begin(), 40, digit);
  return made;
}

// Greets a process that gives the connection this number, and returns the one of the connection that is ended.
std::uint64_t greet(redis_greeting& greeting, const redis_run_id& process, std::int64_t number) {
  redis_settings settings;
  settings.writes = true;
  greeting.begin(settings);
  greeting.sent(greeting.to_send().size());
  const std::string script(40, 'a');
  EXPECT_EQ(greeting.take({.is = redis_reply::kind::text, .text = ""}), redis_greeting::outcome::facts);
  greeting.reached(process);
  static_cast<void>(greeting.take({.is = redis_reply::kind::number, .text = {}, .number = number}));
  static_cast<void>(greeting.take({.is = redis_reply::kind::text, .text = script}));
  static_cast<void>(greeting.take({.is = redis_reply::kind::text, .text = script}));
  const auto bytes = greeting.to_send();
  const std::string sent(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  EXPECT_NE(sent.find("KILL"), std::string::npos);
  static_cast<void>(greeting.take({.is = redis_reply::kind::number, .text = {}, .number = 1}));
  EXPECT_TRUE(greeting.is_done());
  greeting.finish(true);
  const std::string before_last = sent.substr(0, sent.size() - 2);
  return std::stoull(before_last.substr(before_last.rfind('\n') + 1));
}

// The strings went to the process B, and came back. A write that was given up may lie in A for as long as it lives.
TEST(redis_greeting, ends_the_last_connection_to_the_same_process_however_long_ago) {
  constexpr std::uint64_t nobody = std::numeric_limits<std::int64_t>::max();
  redis_greeting own;
  redis_greeting detour;
  detour.write_by_turns_with(own);
  EXPECT_EQ(greet(own, process_of('a'), 5), nobody);
  EXPECT_EQ(greet(own, process_of('b'), 6), nobody);
  EXPECT_EQ(greet(detour, process_of('a'), 7), 5u);
  EXPECT_EQ(greet(own, process_of('a'), 8), 7u);
  EXPECT_EQ(greet(own, process_of('b'), 9), 6u);
  EXPECT_EQ(greet(own, process_of('c'), 5), nobody) << "numbers are those of a process";
}

server_facts facts_of(char process, char history, char former = 0) {
  server_facts facts;
  facts.run_id = process_of(process);
  facts.history = process_of(history);
  if (former != 0) facts.former_history = process_of(former);
  return facts;
}

TEST(redis_session, goes_where_no_replica_of_its_process_has_taken_over) {
  redis_session session("farheap:test:");
  ASSERT_TRUE(session.opened(1, facts_of('a', 'h', 'g'), 0));
  EXPECT_FALSE(session.follow(1, facts_of('b', 'i'))) << "the process has not said that it has lost the strings";
  session.note_departure(process_of('x'));
  EXPECT_FALSE(session.follow(1, facts_of('b', 'i'))) << "another one said so";
  session.note_departure(process_of('a'));
  session.note_departure(process_of('a'), false);
  EXPECT_FALSE(session.follow(1, facts_of('b', 'i'))) << "it has taken that back";
  session.note_departure(process_of('a'));
  session.note(facts_of('a', 'j'));
  session.note(facts_of('x', 'k'));
  session.note_asked(facts_of('m', 'n'));
  for (const char former : {'g', 'h', 'j', 'n'}) {
    EXPECT_FALSE(session.follow(1, facts_of('b', 'i', former))) << former;
  }
  EXPECT_TRUE(session.follow(1, facts_of('b', 'i', 'k'))) << "that was another master's replica";
  session.note_departure(process_of('b'));
  EXPECT_FALSE(session.follow(1, facts_of('c', 'o', 'i')));
  EXPECT_TRUE(session.follow(1, facts_of('c', 'o', 'h'))) << "what was elsewhere before does not count any more";
}

TEST(redis_session, takes_any_replica_for_one_of_its_process_when_there_are_too_many_histories) {
  redis_session session("farheap:test:");
  ASSERT_TRUE(session.opened(1, facts_of('a', 'A'), 0));
  for (char history = 'B'; history <= 'Z'; ++history) session.note(facts_of('a', history));
  session.note_departure(process_of('a'));
  EXPECT_FALSE(session.follow(1, facts_of('b', 'i', 'Z')));
  EXPECT_TRUE(session.follow(1, facts_of('b', 'i'))) << "it was nobody's replica";
}

struct fake_clock final : platform::clock {
  std::uint64_t ns = 1'000'000'000;
  [[nodiscard]] std::uint64_t now_ns() const override { return ns; }
};

// What a connection brings is written down when it is made.
class scripted_node : public byte_stream {
 public:
  [[nodiscard]] int finish_connecting() override { return 0; }
  [[nodiscard]] std::ptrdiff_t try_send(std::span<const iovec> chunks) override {
    std::size_t bytes = 0;
    for (const iovec& chunk : chunks) bytes += chunk.iov_len;
    return static_cast<std::ptrdiff_t>(bytes);
  }
  [[nodiscard]] std::ptrdiff_t try_receive(std::span<const iovec> into) override {
    const std::size_t bytes = std::min(reply_.size(), into[0].iov_len);
    std::memcpy(into[0].iov_base, reply_.data(), bytes);
    reply_.erase(0, bytes);
    return static_cast<std::ptrdiff_t>(bytes);
  }
  void close() override {}
  void abandon() override {}
  [[nodiscard]] int descriptor() const override { return -1; }

 protected:
  static std::string text(const std::string& value) {
    return "$" + std::to_string(value.size()) + "\r\n" + value + "\r\n";
  }

  std::string reply_;
};

// Two nodes. The second one says that the first one has all hash slots, and the first one that the second one has; or
// that they are its own, but that it cannot serve them.
class two_nodes final : public scripted_node {
 public:
  two_nodes(int* connects, const bool& first_is_down) : connects_(*connects), first_is_down_(first_is_down) {}

  void use_server(std::string_view, std::uint16_t port, std::string_view) override { port_ = port; }
  [[nodiscard]] int connect() override {
    ++connects_;
    const bool is_first = port_ == 7001;
    const bool owns = is_first && first_is_down_;
    const std::string slots = " 0-16383";
    const std::string self = is_first ? "127.0.0.1:7001@1 myself,master" : "127.0.0.1:7002@1 myself,master";
    const std::string other = is_first ? "127.0.0.1:7002@1 master" : "127.0.0.1:7001@1 master";
    reply_ = text("aa " + self + " - 0 0 1 connected" + (owns ? slots : "") + "\nbb " + other + " - 0 0 2 connected" +
                  (owns ? "" : slots) + "\n");
    reply_ += text("run_id:" + std::string(40, is_first ? '1' : '2') + "\r\nrole:master\r\ncluster_enabled:1\r\n");
    if (owns) reply_ += "-CLUSTERDOWN Hash slot not served\r\n";
    return 0;
  }

 private:
  int& connects_;
  const bool& first_is_down_;
  std::uint16_t port_ = 0;
};

// A server that greets, and then does not answer any more.
class silent_node final : public scripted_node {
 public:
  [[nodiscard]] int connect() override {
    const std::string script = text(std::string(40, 'a'));
    reply_ = text("run_id:" + std::string(40, '1') + "\r\nrole:master\r\ncluster_enabled:0\r\n") + ":5\r\n" + script +
             script + ":1\r\n";
    return 0;
  }
};

// A connection to them, and a clock that moves when it is told to.
struct bench {
  fake_clock clock;
  int connects = 0;
  bool first_is_down = false;
  cluster_directory directory;
  redis_session session{"farheap:test{tag}:"};
  std::unique_ptr<redis_connection> tested;

  bench() {
    session.retarget(node_address::parse("127.0.0.1:7001"));
    redis_settings settings;
    settings.peer = "redis+cluster://scripted";
    settings.timeout_ns = 1000 * ms;
    settings.lease_ns = 60'000 * ms;
    settings.cluster = &directory;
    settings.writes = true;
    tested = std::make_unique<redis_connection>(settings, std::make_unique<two_nodes>(&connects, first_is_down),
                                                session, clock);
  }
  void run_ms(int steps) {
    const lock_guard guard(tested->lock);
    for (int i = 0; i < steps; ++i, clock.ns += ms) static_cast<void>(tested->advance(nullptr));
  }
};

TEST(redis_connection, nodes_that_send_it_to_each_other_are_asked_less_and_less_often) {
  bench all;
  all.run_ms(10'000);
  EXPECT_GE(all.connects, 10);
  EXPECT_LE(all.connects, 30);
}

TEST(redis_connection, an_owner_that_cannot_serve_is_named_as_the_reason) {
  bench all;
  all.first_is_down = true;
  all.run_ms(20);
  const lock_guard guard(all.tested->lock);
  EXPECT_GE(all.tested->failures(), 2u);
  EXPECT_NE(std::string(all.tested->explanation()).find("CLUSTERDOWN"), std::string::npos) << all.tested->explanation();
}

TEST(redis_connection, one_that_is_retired_stays_closed_when_the_session_is_lost) {
  bench all;
  all.run_ms(1);
  EXPECT_EQ(all.connects, 1);
  {
    const lock_guard guard(all.tested->lock);
    all.tested->retire();
  }
  ASSERT_TRUE(all.session.lost(all.session.epoch()));
  all.run_ms(1000);
  EXPECT_EQ(all.connects, 1);
}

// It is repeated until it is answered, and stays in front of transfers that end in time.
TEST(redis_connection, a_command_without_answer_holds_up_no_deadline) {
  struct one_block final : control_source {
    bool next(std::uint32_t, std::uint64_t, control_request* into) override {
      *into = {wire::opcode::allocate, {0, 1}};
      return true;
    }
    void done(const control_request&, std::uint32_t, wire::status, std::uint64_t) override {}
    void draining(std::uint32_t) override {}
  };
  struct ended final : completion_sink {
    explicit ended(const fake_clock& time) : clock(time) {}
    const fake_clock& clock;
    std::uint64_t at_ns = 0;
    void complete(transfer&, const completion_sink*) override { at_ns = clock.ns; }
  };
  fake_clock clock;
  redis_session session{"farheap:test:"};
  redis_settings settings;
  settings.peer = "redis://scripted";
  settings.timeout_ns = 1000 * ms;
  settings.lease_ns = 60'000 * ms;
  settings.writes = true;
  redis_connection tested(settings, std::make_unique<silent_node>(), session, clock);
  one_block control;
  const lock_guard guard(tested.lock);
  tested.set_control(&control);
  for (int i = 0; i < 300; ++i, clock.ns += ms) static_cast<void>(tested.advance(nullptr));
  ASSERT_EQ(tested.now(), store_connection::phase::ready);
  std::byte byte{};
  ended sink(clock);
  transfer late;
  late.io = {.op = operation::read, .slot = 0, .length_bytes = 1, .buffer = &byte};
  late.owner = &sink;
  late.epoch = session.epoch();
  late.deadline_ns = clock.ns + settings.timeout_ns;
  tested.enqueue(late);
  for (int i = 0; i < 10'000 && sink.at_ns == 0; ++i) clock.ns = std::max(clock.ns, tested.advance(nullptr));
  EXPECT_EQ(late.error_code, ETIMEDOUT);
  EXPECT_EQ(sink.at_ns, late.deadline_ns);
}

}  // namespace
}  // namespace far::backend
