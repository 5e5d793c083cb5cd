#include "server/protocol.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/units.h"
#include "server/offload.h"
#include "tests/support/scripted_client.h"
#include "wire/bytes.h"
#include "wire/reduction.h"
#include "wire/rows.h"

namespace far::server {
namespace {

using wire::opcode;
using wire::status;

TEST(Handshake, WithoutTokensEveryTenantIsWelcome) {
  test_server server(8, "", {{"alice", 4 * block_bytes}});
  scripted_client client(server);
  const std::optional<wire::welcome> got = client.shake_hands({.tenant = "alice"});
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->quota_slots, 4 * wire::block_slots);
  EXPECT_EQ(got->grace_ms, 60'000u);
  EXPECT_EQ(got->proof, wire::digest{});
  EXPECT_NE(got->session, wire::session_id{});
  EXPECT_GT(got->maximum_outstanding, 0u);
  EXPECT_TRUE(client.talk.is_serving());
}

TEST(Handshake, ATokenIsProvedByBothSides) {
  test_server server(8, "alice " + good_token);
  scripted_client client(server);
  EXPECT_TRUE(client.shake_hands({.tenant = "alice"}, good_token).has_value());
}

TEST(Handshake, AWrongTokenAndAnUnknownTenantAreRefusedAlike) {
  test_server server(8, "alice " + good_token);
  scripted_client wrong(server);
  EXPECT_FALSE(wrong.shake_hands({.tenant = "alice"}, "another token, also long").has_value());
  scripted_client unknown(server);
  EXPECT_FALSE(unknown.shake_hands({.tenant = "bob"}, good_token).has_value());
  EXPECT_EQ(wrong.refusal(), unknown.refusal());
  EXPECT_EQ(wrong.refusal().find(good_token), std::string::npos);
  EXPECT_EQ(wrong.talk.reason(), close_reason::refused);
  EXPECT_EQ(server.lent->report().sessions, 0u);
}

TEST(Handshake, WhoeverGuessesTokensHasToWaitAndNobodyElse) {
  test_server server(8, good_token);
  failed_logins failures;
  server.settings.failures = &failures;
  for (std::uint64_t i = 0; i < failed_logins::burst; ++i) {
    scripted_client wrong(server, "10.0.0.1");
    EXPECT_FALSE(wrong.shake_hands({}, "another token, also long").has_value());
    EXPECT_EQ(wrong.talk.reason(), close_reason::refused) << i;
  }
  // Not even the right one is looked at, on a connection that was greeted before either.
  scripted_client right(server, "10.0.0.1");
  EXPECT_FALSE(right.shake_hands({}, good_token).has_value());
  EXPECT_EQ(right.talk.reason(), close_reason::throttled);
  scripted_client elsewhere(server, "10.0.0.2");
  EXPECT_TRUE(elsewhere.shake_hands({}, good_token).has_value());
  server.now_ns += failed_logins::period_ns;
  scripted_client greeted(server, "10.0.0.1");
  greeted.say_hello({});
  const message challenge = greeted.take().value();
  scripted_client guesses(server, "10.0.0.1");
  EXPECT_FALSE(guesses.shake_hands({}, "another token, also long").has_value());
  greeted.say_proof(good_token, challenge.payload);
  EXPECT_EQ(wire::decode_refusal(greeted.take().value().payload), too_many_failures);
  server.now_ns += failed_logins::period_ns;
  scripted_client later(server, "10.0.0.1");
  EXPECT_TRUE(later.shake_hands({}, good_token).has_value());
}

TEST(Handshake, WhoeverNamesItsSessionNeedNotWaitForOthersAtItsAddress) {
  test_server server(8, good_token);
  failed_logins failures;
  server.settings.failures = &failures;
  scripted_client mine(server, "10.0.0.1");
  const std::optional<wire::welcome> welcome = mine.shake_hands({}, good_token);
  ASSERT_TRUE(welcome.has_value());
  for (std::uint64_t i = 0; i < 2 * failed_logins::burst; ++i) {
    scripted_client guesses(server, "10.0.0.1");
    EXPECT_FALSE(guesses.shake_hands({}, "another token, also long").has_value());
  }
  scripted_client stranger(server, "10.0.0.1");
  EXPECT_FALSE(stranger.shake_hands({}, good_token).has_value());
  EXPECT_EQ(stranger.talk.reason(), close_reason::throttled);
  scripted_client guesses_name(server, "10.0.0.1");
  EXPECT_FALSE(guesses_name.shake_hands({.join = {std::byte{1}}}, good_token).has_value());
  EXPECT_EQ(guesses_name.talk.reason(), close_reason::throttled);
  scripted_client returns(server, "10.0.0.1");
  EXPECT_TRUE(returns.shake_hands({.join = welcome->session, .channel = 1}, good_token).has_value());
}

TEST(Handshake, WhoeverFailsOtherwiseNeedNotWait) {
  test_server server(8, good_token);
  failed_logins failures;
  server.settings.failures = &failures;
  for (std::uint64_t i = 0; i < 2 * failed_logins::burst; ++i) {
    scripted_client client(server);
    EXPECT_FALSE(client.shake_hands({.join = {std::byte{1}}}, good_token).has_value());
    EXPECT_EQ(client.talk.reason(), close_reason::refused);
  }
  EXPECT_EQ(failures.addresses(), 0u);
}

TEST(Handshake, AddressesThatFailedAreForgottenInTimeAndBeyondALimit) {
  failed_logins failures;
  std::uint64_t now_ns = second_ns;
  for (std::uint64_t i = 0; i < 2 * failed_logins::burst; ++i) failures.note("worst", now_ns);
  for (std::size_t i = 0; i < 2 * failed_logins::most_addresses; ++i) failures.note(std::to_string(i), now_ns);
  EXPECT_EQ(failures.addresses(), failed_logins::most_addresses);
  EXPECT_FALSE(failures.may_try("worst", now_ns)) << "it is forgotten last";
  EXPECT_TRUE(failures.may_try("worst", now_ns + failed_logins::period_ns)) << "no longer, however often it failed";
  now_ns += failed_logins::burst * failed_logins::period_ns;
  failures.note("another", now_ns);
  EXPECT_EQ(failures.addresses(), 1u);
}

TEST(Handshake, AProofOfAnotherConnectionIsWorthNothing) {
  test_server server(8, good_token);
  scripted_client first(server);
  first.say_hello({});
  const message challenge = first.take().value();
  scripted_client second(server);
  second.say_hello({});
  ASSERT_TRUE(second.take().has_value());
  second.say_proof(good_token, challenge.payload);
  EXPECT_EQ(second.talk.reason(), close_reason::refused);
}

TEST(Handshake, NoCommonVersion) {
  test_server server;
  scripted_client client(server);
  client.say_hello({.oldest = wire::newest_version + 1, .newest = wire::newest_version + 2});
  const message got = client.take().value();
  EXPECT_EQ(got.head.op, opcode::refuse);
  EXPECT_NE(wire::decode_refusal(got.payload).find("version"), std::string::npos);
  EXPECT_TRUE(client.talk.is_over());
  EXPECT_FALSE(client.talk.flushes()) << "the refusal has been sent";
}

TEST(Handshake, RequestsBeforeItEndTheConnection) {
  test_server server;
  scripted_client client(server);
  client.send({.op = opcode::ping});
  EXPECT_EQ(client.talk.reason(), close_reason::malformed);
  scripted_client early(server);
  early.say_hello({});
  early.send({.op = opcode::read}, scripted_client::read_payload({{0, 0, 4096}}));
  EXPECT_EQ(early.talk.reason(), close_reason::malformed);
}

TEST(Handshake, StrangersCannotMakeTheServerKeepMuch) {
  test_server server;
  scripted_client client(server);
  EXPECT_LE(client.talk.receive_space().size(), page_bytes);
  wire::header head{.op = opcode::hello, .payload_bytes = wire::maximum_payload_bytes};
  bytes raw(wire::header_bytes);
  wire::encode(head, std::span(raw).first<wire::header_bytes>());
  client.send_raw(raw);
  EXPECT_EQ(client.talk.reason(), close_reason::malformed);
}

TEST(Handshake, HalfOpenConnectionsEnd) {
  test_server server;
  scripted_client silent(server);
  scripted_client half(server);
  half.say_hello({});
  server.now_ns += server.settings.patience_ns - 1;
  silent.turn();
  half.turn();
  EXPECT_FALSE(silent.talk.is_over() || half.talk.is_over());
  EXPECT_EQ(silent.talk.next_work_ns(), server.now_ns + 1);
  server.now_ns += 1;
  silent.turn();
  half.turn();
  EXPECT_EQ(silent.talk.reason(), close_reason::late_handshake);
  EXPECT_EQ(half.talk.reason(), close_reason::late_handshake);
}

TEST(Handshake, JoiningAndFencing) {
  test_server server;
  scripted_client old(server);
  const wire::welcome mine = old.shake_hands({.channel = 7}).value();
  ASSERT_EQ(old.ask_blocks(opcode::allocate, 0, 1), status::ok);
  const bytes data = pattern(4096, 1);

  scripted_client fresh(server);
  fresh.say_hello({.join = mine.session, .channel = 7});
  const message challenge = fresh.take().value();
  // Another loop is in the middle of its turn, perhaps with the old connection.
  quiescent_states::reader other(server.lent->readers());
  other.quiet();
  fresh.say_proof("", challenge.payload);
  fresh.turn();
  fresh.turn();
  EXPECT_FALSE(fresh.take().has_value()) << "no welcome while a write of the old connection could still land";
  EXPECT_LE(fresh.talk.next_work_ns(), server.now_ns + 1'000'000) << "it looks again soon";
  const bytes late =
      scripted_client::encoded({.op = opcode::write}, scripted_client::write_payload({{0, 0, 4096}}, data));
  old.send_raw(late);
  EXPECT_EQ(old.talk.reason(), close_reason::fenced);
  EXPECT_FALSE(old.take().has_value());
  other.quiet();
  fresh.turn();
  EXPECT_EQ(fresh.take().value().head.op, opcode::welcome);
  EXPECT_EQ(fresh.read({{0, 0, 4096}}).payload, bytes(4096)) << "the late write did not land";
}

TEST(Handshake, SessionsOfOtherTenantsCannotBeJoined) {
  test_server server;
  scripted_client alice(server);
  const wire::welcome hers = alice.shake_hands({.tenant = "alice"}).value();
  scripted_client bob(server);
  EXPECT_FALSE(bob.shake_hands({.join = hers.session, .tenant = "bob"}).has_value());
  EXPECT_NE(bob.refusal().find("unknown session"), std::string::npos);
}

struct Serving : testing::Test {
  test_server server;
  scripted_client client{server};
  wire::welcome mine;

  void SetUp() override {
    const std::optional<wire::welcome> got = client.shake_hands();
    ASSERT_TRUE(got.has_value());
    mine = *got;
    ASSERT_EQ(client.ask_blocks(opcode::allocate, 0, 3), status::ok);
  }
  void TearDown() override { server.lent->validate(); }
};

TEST_F(Serving, BatchesAcrossSlotsAndBlocks) {
  const std::vector<wire::range> ranges{
      {5, 0, 4096}, {9, 100, 8000}, {wire::block_slots - 1, 4000, 200}, {2 * wire::block_slots - 20, 1, 200'000}};
  std::size_t total = 0;
  for (const wire::range& range : ranges) total += range.length_bytes;
  const bytes data = pattern(total, 3);
  ASSERT_EQ(client.write(ranges, data), status::ok);
  const message got = client.read(ranges);
  EXPECT_EQ(got.head.result, status::ok);
  EXPECT_EQ(got.payload, data);
  EXPECT_EQ(client.read({{wire::block_slots, 0, 4}}).payload,
            bytes(data.begin() + 12096 + 96, data.begin() + 12096 + 100));
  EXPECT_EQ(server.counters.bytes_written.value(), total);
  EXPECT_EQ(server.counters.bytes_read.value(), total + 4);
}

TEST_F(Serving, TheLongestMessagesPass) {
  const bytes data = pattern(wire::maximum_payload_bytes - wire::write_prefix_bytes(1), 8);
  const wire::range where{3, 0, static_cast<std::uint32_t>(data.size())};
  ASSERT_EQ(client.write({where}, data), status::ok);
  EXPECT_EQ(client.read({where}).payload, data);
}

TEST_F(Serving, BytesComeInAnyPieces) {
  const bytes data = pattern(9000, 4);
  bytes stream = scripted_client::encoded({.op = opcode::write, .cookie = 1},
                                          scripted_client::write_payload({{1, 5, 9000}}, data));
  const bytes second =
      scripted_client::encoded({.op = opcode::read, .cookie = 2}, scripted_client::read_payload({{1, 5, 9000}}));
  stream.insert(stream.end(), second.begin(), second.end());
  for (std::size_t at = 0; at < stream.size(); at += 7) {
    client.send_raw(std::span(stream).subspan(at, std::min<std::size_t>(7, stream.size() - at)));
  }
  EXPECT_EQ(client.take().value().head.cookie, 1u);
  EXPECT_EQ(client.take().value().payload, data);
}

TEST_F(Serving, AForeignSlotEndsTheConnectionAfterItsAnswer) {
  for (const std::uint64_t slot : {3 * wire::block_slots, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    scripted_client other(server);
    ASSERT_TRUE(other.shake_hands({.join = mine.session, .channel = 1}).has_value());
    const message got = other.read({{0, 0, 8}, {slot, 0, 8}});
    EXPECT_EQ(got.head.result, status::not_allocated);
    EXPECT_TRUE(got.payload.empty()) << "not a byte of the ranges before it";
    EXPECT_EQ(other.talk.reason(), close_reason::foreign_slot);
  }
  scripted_client writer(server);
  ASSERT_TRUE(writer.shake_hands().has_value()) << "a session of its own, which holds nothing";
  EXPECT_EQ(writer.write({{0, 0, 8}}, pattern(8, 1)), status::not_allocated);
  EXPECT_EQ(client.read({{0, 0, 8}}).payload, bytes(8)) << "nobody else is harmed";
}

TEST_F(Serving, ARangeThatRunsOutOfItsBlocksIsForeign) {
  EXPECT_EQ(client.read({{3 * wire::block_slots - 1, 4000, 200}}).head.result, status::not_allocated);
}

TEST_F(Serving, DamagedPayloadsAreToldAndChangeNothing) {
  const bytes payload = scripted_client::write_payload({{0, 0, 16}}, pattern(16, 9));
  client.send({.op = opcode::write, .cookie = 5, .payload_checksum = wire::checksum(payload) ^ 1}, payload);
  const message got = client.take().value();
  EXPECT_EQ(got.head.result, status::bad_checksum);
  EXPECT_EQ(got.head.cookie, 5u);
  EXPECT_EQ(client.read({{0, 0, 16}}).payload, bytes(16));
  EXPECT_EQ(server.counters.damaged_requests.value(), 1u);
}

TEST_F(Serving, MalformedMessagesEndTheConnection) {
  const bytes read = scripted_client::read_payload({{0, 0, 8}});
  const bytes longer = scripted_client::read_payload({{0, 0, 1 << 20}, {0, 0, 1 << 20}});
  const bytes nothing_to_read = scripted_client::read_payload({{0, 0, 0}});
  bytes blocks(wire::block_range_bytes);
  wire::encode(wire::block_range{maximum_session_blocks - 1, 2}, std::span(blocks).first<wire::block_range_bytes>());
  const std::vector<std::pair<wire::header, bytes>> wrong{
      {{.op = opcode::read}, {}},
      {{.op = opcode::read}, bytes(read.begin(), read.end() - 1)},
      {{.op = opcode::read}, longer},
      {{.op = opcode::read}, nothing_to_read},
      {{.op = opcode::read, .is_reply = true}, read},
      {{.op = opcode::write}, scripted_client::write_payload({{0, 0, 8}}, pattern(9, 1))},
      {{.op = opcode::allocate}, bytes(8)},
      {{.op = opcode::allocate}, bytes(16)},
      {{.op = opcode::allocate}, blocks},
      {{.op = opcode::free}, blocks},
      {{.op = opcode::capacity}, bytes(1)},
      {{.op = opcode::ping}, bytes(1)},
      {{.op = opcode::call}, bytes(31)},
      {{.op = opcode::hello}, read},
      {{.op = opcode::welcome}, {}},
      {{.op = opcode::draining}, {}},
  };
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    scripted_client other(server);
    ASSERT_TRUE(other.shake_hands({.join = mine.session, .channel = 1}).has_value());
    other.send(wrong[i].first, wrong[i].second);
    EXPECT_EQ(other.talk.reason(), close_reason::malformed) << "case " << i;
    EXPECT_FALSE(other.talk.flushes());
  }
  for (const std::size_t at : {std::size_t{0}, std::size_t{4}, std::size_t{8}, std::size_t{13}, std::size_t{39}}) {
    scripted_client other(server);
    ASSERT_TRUE(other.shake_hands({.join = mine.session, .channel = 1}).has_value());
    bytes raw = scripted_client::encoded({.op = opcode::ping}, {});
    raw[at] ^= std::byte{0x40};
    other.send_raw(raw);
    EXPECT_EQ(other.talk.reason(), close_reason::malformed) << "byte " << at;
  }
  EXPECT_EQ(client.ask(opcode::ping).head.result, status::ok);
}

TEST_F(Serving, BlocksAreAllocatedAndFreed) {
  EXPECT_EQ(client.ask_blocks(opcode::allocate, 3, 5), status::ok) << "in more than one turn";
  EXPECT_EQ(client.ask_blocks(opcode::allocate, 8, 1), status::no_space);
  EXPECT_EQ(client.ask_blocks(opcode::free, 0, 8), status::ok);
  EXPECT_EQ(client.ask_blocks(opcode::allocate, 100, 8), status::ok) << "waits until the freed ones are back";
  const wire::capacity_report report = wire::decode_capacity_report(
      std::span<const std::byte, wire::capacity_report_bytes>(client.ask(opcode::capacity).payload));
  EXPECT_EQ(report.session_slots, 8 * wire::block_slots);
  EXPECT_EQ(report.server_free_slots, 0u);
}

// A client repeats what was not answered when its connection broke: the server may have done it all the same.
TEST_F(Serving, FreeingAgainIsHarmless) {
  ASSERT_EQ(client.ask_blocks(opcode::free, 1, 2), status::ok);
  EXPECT_EQ(client.ask_blocks(opcode::free, 1, 2), status::ok);
  EXPECT_EQ(client.ask_blocks(opcode::free, 0, 7), status::ok);
  EXPECT_EQ(client.ask_blocks(opcode::free, 1000, 9), status::ok) << "of which it never had any";
  EXPECT_EQ(client.ask(opcode::ping).head.result, status::ok) << "the connection goes on";
  server.lent->validate();
}

TEST_F(Serving, AnAllocationTakesTurns) {
  bytes payload(wire::block_range_bytes);
  wire::encode(wire::block_range{3, 5}, std::span(payload).first<wire::block_range_bytes>());
  client.send({.op = opcode::allocate, .cookie = 1}, payload);
  client.send({.op = opcode::ping, .cookie = 2});
  // Each send() made a turn, of four blocks at most.
  client.turn();
  EXPECT_EQ(client.take().value().head.cookie, 1u) << "in order";
  EXPECT_EQ(client.take().value().head.cookie, 2u);
}

TEST_F(Serving, AConnectionThatEndsWhileItAllocatesLeavesNothing) {
  {
    scripted_client other(server);
    ASSERT_TRUE(other.shake_hands({.join = mine.session, .channel = 1}).has_value());
    bytes payload(wire::block_range_bytes);
    wire::encode(wire::block_range{3, 5}, std::span(payload).first<wire::block_range_bytes>());
    other.send({.op = opcode::allocate}, payload);
    EXPECT_EQ(other.talk.next_work_ns(), 0u) << "more to do at once";
  }
  EXPECT_EQ(server.lent->report().held_blocks, 3u);
  EXPECT_EQ(client.ask_blocks(opcode::allocate, 3, 1), status::ok);
}

TEST_F(Serving, ChecksumsWithoutFetching) {
  const bytes data = pattern(10'000, 6);
  const std::vector<wire::range> ranges{{wire::block_slots - 1, 0, 6000}, {0, 9, 4000}};
  ASSERT_EQ(client.write(ranges, data), status::ok);
  bytes payload(wire::call_header_bytes);
  ASSERT_TRUE(wire::encode_call("checksum", std::span(payload).first<wire::call_header_bytes>()));
  const bytes arguments = scripted_client::read_payload(ranges);
  payload.insert(payload.end(), arguments.begin(), arguments.end());
  const message got = client.ask(opcode::call, payload);
  ASSERT_EQ(got.head.result, status::ok);
  ASSERT_EQ(got.payload.size(), 8u);
  EXPECT_EQ(wire::load<std::uint64_t>(got.payload.data()), wire::checksum(data));

  payload.pop_back();
  EXPECT_EQ(client.ask(opcode::call, payload).head.result, status::call_failed);
  payload.assign(wire::call_header_bytes, std::byte{0});
  ASSERT_TRUE(wire::encode_call("no-such-thing", std::span(payload).first<wire::call_header_bytes>()));
  EXPECT_EQ(client.ask(opcode::call, payload).head.result, status::unknown_call);
  EXPECT_FALSE(client.talk.is_over());
}

TEST_F(Serving, RefusesToGroupRowsOfForeignSlots) {
  ASSERT_EQ(client.write({{3, 0, page_bytes}}, pattern(page_bytes, 6)), status::ok);
  const page_hasher hash(11);
  detail::keyed_rows rows{.rows = page_bytes, .keys = 1};
  rows.key[0] = {10, 30, detail::number_type::uint8};
  const page_reduction asked{.how = {.kind = reduction_kind::of_rows, .groups = 30, .rows = &rows}, .hash = &hash};
  bytes payload(wire::call_header_bytes + wire::rows_bytes + 2 * sizeof(std::uint64_t));
  for (const std::uint64_t slot : {std::uint64_t{3}, std::uint64_t{100} * wire::block_slots}) {
    EXPECT_EQ(wire::encode_rows(asked, std::array{std::uint64_t{3}, slot}, payload), payload.size());
    const message got = client.ask(opcode::call, payload);
    EXPECT_EQ(got.head.result, slot == 3 ? status::ok : status::not_allocated);
    const std::size_t size = slot == 3 ? 2 * answer_bytes(asked.how) : 0;
    EXPECT_EQ(scripted_client::unpacked(got, size).size(), size);
  }
  EXPECT_TRUE(client.talk.is_over());
}

TEST_F(Serving, ReducesNumbersWithoutFetching) {
  const bytes data = pattern(page_bytes, 6);
  ASSERT_EQ(client.write({{3, 0, page_bytes}}, data), status::ok);
  const page_hasher hash(11);
  const page_reduction asked{{detail::number_type::uint8, 10, 200}, &hash};
  const auto payload_of = [&](const std::vector<wire::range>& ranges) {
    bytes payload(wire::call_header_bytes + wire::reduction_bytes + ranges.size() * wire::range_bytes);
    EXPECT_EQ(wire::encode_reduction(asked, ranges, false, payload), payload.size());
    return payload;
  };
  const message got = client.ask(opcode::call, payload_of({{3, 0, page_bytes}, {3, 100, 1}}));
  ASSERT_EQ(got.head.result, status::ok);
  ASSERT_EQ(got.payload.size(), 2 * sizeof(reduced_page));
  std::array<reduced_page, 2> found;
  std::memcpy(found.data(), got.payload.data(), sizeof found);
  EXPECT_EQ(found[0].numbers, reduce(asked.how, data));
  EXPECT_EQ(found[1].numbers, reduce(asked.how, std::span(data).subspan(100, 1)));
  EXPECT_EQ(found[1].check, hash_of_pieces(hash, data.data()));

  bytes cut = payload_of({{3, 0, page_bytes}});
  cut.pop_back();
  EXPECT_EQ(client.ask(opcode::call, cut).head.result, status::call_failed);
  EXPECT_FALSE(client.talk.is_over());
  // As with a read, a client that names slots of others has lost track of its own.
  EXPECT_EQ(client.ask(opcode::call, payload_of({{100 * wire::block_slots, 0, 8}})).head.result, status::not_allocated);
  EXPECT_TRUE(client.talk.is_over());
}

// The longest reply, in one message.
TEST_F(Serving, AnswersAboutAsManyPagesAsAMessageNames) {
  const bytes data = pattern(page_bytes, 6);
  ASSERT_EQ(client.write({{3, 0, page_bytes}}, data), status::ok);
  const page_hasher hash(11);
  const page_reduction asked{{detail::number_type::uint8, 0, 255, reduction_kind::counts}, &hash};
  const std::vector<wire::range> ranges(wire::maximum_batch, {3, 0, page_bytes});
  bytes payload(wire::call_header_bytes + wire::reduction_bytes + ranges.size() * wire::range_bytes);
  EXPECT_EQ(wire::encode_reduction(asked, ranges, false, payload), payload.size());
  const message got = client.ask(opcode::call, payload);
  ASSERT_EQ(got.head.result, status::ok);
  const bytes result = scripted_client::unpacked(got, wire::maximum_batch * answer_bytes(asked.how));
  ASSERT_EQ(result.size(), wire::maximum_batch * answer_bytes(asked.how));
  std::vector<std::byte> expected(answer_bytes(asked.how));
  answer(asked, data.data(), data, expected.data());
  EXPECT_TRUE(std::ranges::equal(std::span(result).last(expected.size()), expected));
}

TEST_F(Serving, ANoticeOfLeavingIsNotAnsweredAndTheSessionServesOn) {
  client.send({.op = opcode::leaving});
  EXPECT_EQ(client.ask(opcode::ping).head.result, status::ok);
  EXPECT_FALSE(client.talk.is_over());
}

TEST_F(Serving, CloseFreesEverythingAndEndsAllConnections) {
  scripted_client other(server);
  ASSERT_TRUE(other.shake_hands({.join = mine.session, .channel = 1}).has_value());
  EXPECT_EQ(client.ask(opcode::close).head.result, status::ok);
  EXPECT_EQ(client.talk.reason(), close_reason::session_closed);
  other.turn();
  EXPECT_EQ(other.talk.reason(), close_reason::fenced);
  server.reader->quiet();
  EXPECT_EQ(server.lent->reclaim(), 0u);
  EXPECT_EQ(server.lent->report().held_blocks, 0u);
  scripted_client again(server);
  EXPECT_FALSE(again.shake_hands({.join = mine.session}).has_value());
}

TEST_F(Serving, ASlowReaderIsNotReadFromAndThenLeft) {
  const bytes request =
      scripted_client::encoded({.op = opcode::read}, scripted_client::read_payload({{0, 0, 1 << 20}}));
  for (int i = 0; i < 100'000 && !client.talk.receive_space().empty(); ++i) {
    const std::span<std::byte> space = client.talk.receive_space();
    const std::size_t part = std::min(space.size(), request.size());
    std::memcpy(space.data(), request.data(), part);
    client.talk.received(part, server.now_ns);
    if (part < request.size()) break;
    client.turn();
  }
  EXPECT_LE(client.talk.to_send().size(), 4 * mib) << "replies pile up to a limit only";
  EXPECT_FALSE(client.talk.is_over());
  server.now_ns += server.settings.patience_ns / 2;
  client.talk.sent(wire::header_bytes, server.now_ns);  // a trickle is not reading
  client.turn();
  server.now_ns += server.settings.patience_ns / 2;
  EXPECT_LE(client.talk.next_work_ns(), server.now_ns);
  client.turn();
  EXPECT_EQ(client.talk.reason(), close_reason::slow_reader);
}

TEST_F(Serving, AReaderThatKeepsUpStays) {
  for (int second = 0; second < 40; ++second) {
    server.now_ns += second_ns;
    EXPECT_EQ(client.read({{0, 0, 65536}}).payload.size(), 65536u);
  }
  EXPECT_FALSE(client.talk.is_over());
}

TEST_F(Serving, AMessageThatDoesNotEndIsNotWaitedForForEver) {
  const bytes raw =
      scripted_client::encoded({.op = opcode::write}, scripted_client::write_payload({{0, 0, 4096}}, pattern(4096, 1)));
  for (int i = 0; i < 12 && !client.talk.is_over(); ++i) {
    client.send_raw(std::span(raw).subspan(static_cast<std::size_t>(i) * 8, 8));
    server.now_ns += second_ns;
  }
  EXPECT_EQ(client.talk.reason(), close_reason::slow_sender);
}

TEST_F(Serving, SilenceEndsAndPingsDoNotLetIt) {
  for (int i = 0; i < 5; ++i) {
    server.now_ns += server.settings.silence_ns - 1;
    EXPECT_EQ(client.ask(opcode::ping).head.result, status::ok);
  }
  server.now_ns += server.settings.silence_ns;
  client.turn();
  EXPECT_EQ(client.talk.reason(), close_reason::silent);
}

TEST_F(Serving, DrainingIsToldAndServesOn) {
  server.lent->drain();
  client.talk.drain();
  client.turn();
  const message answer = client.take().value();
  EXPECT_EQ(answer.head.op, opcode::draining);
  EXPECT_FALSE(answer.head.is_reply);
  client.turn();
  EXPECT_FALSE(client.take().has_value()) << "once";
  EXPECT_EQ(client.ask_blocks(opcode::allocate, 4, 1), status::draining);
  EXPECT_EQ(client.read({{0, 0, 8}}).head.result, status::ok);
  scripted_client late(server);
  EXPECT_FALSE(late.shake_hands().has_value());
  EXPECT_NE(late.refusal().find("draining"), std::string::npos);
}

TEST_F(Serving, IdleBuffersGiveTheirMemoryBackAndWorkOn) {
  const bytes data = pattern(800'000, 2);
  const wire::range where{7, 0, 800'000};
  ASSERT_EQ(client.write({where}, data), status::ok);
  const std::span<std::byte> offered = client.talk.receive_space();
  client.talk.release_memory();
  const bytes request = scripted_client::encoded({.op = opcode::read}, scripted_client::read_payload({where}));
  std::memcpy(offered.data(), request.data(), request.size());
  client.talk.received(request.size(), server.now_ns);
  client.turn();
  EXPECT_EQ(client.take().value().payload, data);
}

}  // namespace
}  // namespace far::server
