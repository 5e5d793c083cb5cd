// The client's and the server's side against each other, without a transport.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wire/client_handshake.h"
#include "wire/server_handshake.h"

namespace far::wire {
namespace {

using client_step = client_handshake::step;
using server_step = server_handshake::step;

const std::string token = "a token of enough letters";

unsigned drawn = 0;
void count_draws(std::span<std::byte> to) {
  ++drawn;
  fill_random(to);
}

credentials alice(const std::string& known) {
  return {.tenant = "alice", .token = known};
}

session_id session_of(unsigned number) {
  session_id id{};
  id[0] = static_cast<std::byte>(number);
  return id;
}

class handshakes : public testing::Test {
 protected:
  void begin(const credentials& shown, const session_id& join = {}) {
    shown_ = shown;
    client_.emplace(shown_);
    server_.emplace();
    client_->begin(join, 7);
  }

  [[nodiscard]] server_step server_takes() {
    const std::optional<packed_message> got = unpack_message(client_->to_send());
    const server_step step = got ? server_->take(got->head, got->payload) : server_step::malformed;
    client_->sent(client_->to_send().size());
    EXPECT_TRUE(client_->to_send().empty());
    return step;
  }
  [[nodiscard]] client_step client_takes() {
    const std::optional<packed_message> got = unpack_message(server_->to_send());
    return got ? client_->take(got->head, got->payload) : client_step::refused;
  }

  // Up to the client's proof.
  void greet(bool token_wanted, const std::string* known) {
    ASSERT_EQ(server_takes(), server_step::greeted);
    server_->challenge(token_wanted, known != nullptr ? std::vector{*known} : std::vector<std::string>());
    ASSERT_EQ(client_takes(), client_step::more);
  }

  credentials shown_;
  std::optional<client_handshake> client_;
  std::optional<server_handshake> server_;
};

TEST_F(handshakes, agree_on_a_token) {
  begin(alice(token), session_of(3));
  greet(true, &token);
  EXPECT_EQ(server_->said().tenant, "alice");
  EXPECT_EQ(server_->said().channel, 7U);
  EXPECT_TRUE(server_->joins());
  ASSERT_EQ(server_takes(), server_step::proven);
  server_->welcome({.session = session_of(3), .quota_slots = 512, .grace_ms = 9, .maximum_outstanding = 4});
  ASSERT_EQ(client_takes(), client_step::done);
  EXPECT_EQ(client_->welcome().session, session_of(3));
  EXPECT_EQ(client_->welcome().quota_slots, 512U);
  EXPECT_NE(client_->welcome().proof, digest{});
}

TEST_F(handshakes, need_no_token) {
  begin(alice(""));
  greet(false, nullptr);
  ASSERT_EQ(server_takes(), server_step::proven);
  EXPECT_FALSE(server_->joins());
  server_->welcome({.session = session_of(1), .maximum_outstanding = 1});
  ASSERT_EQ(client_takes(), client_step::done);
  EXPECT_EQ(client_->welcome().proof, digest{});
}

TEST_F(handshakes, refuse_a_wrong_token_and_an_unknown_tenant_alike) {
  const std::string other = "another token, also long";
  std::array<std::string, 2> said;
  std::array<unsigned, 2> draws{};
  for (const bool known : {false, true}) {
    begin(alice(token));
    server_.emplace(count_draws);
    drawn = 0;
    greet(true, known ? &other : nullptr);
    ASSERT_EQ(server_takes(), server_step::refused);
    EXPECT_EQ(client_takes(), client_step::refused);
    said[known ? 1 : 0] = client_->explanation();
    draws[known ? 1 : 0] = drawn;
  }
  EXPECT_EQ(said[0], said[1]);
  EXPECT_EQ(draws[0], draws[1]) << "what the server does for one takes as long as for the other";
}

TEST_F(handshakes, a_client_with_a_token_wants_a_server_that_knows_it) {
  begin(alice(token));
  ASSERT_EQ(server_takes(), server_step::greeted);
  server_->challenge(false, {});
  EXPECT_EQ(client_takes(), client_step::refused);
  EXPECT_NE(std::string_view(client_->explanation()).find("does not know the token"), std::string_view::npos);
}

TEST_F(handshakes, a_client_without_the_token_that_is_wanted_gives_up) {
  begin(alice(""));
  ASSERT_EQ(server_takes(), server_step::greeted);
  server_->challenge(true, {token});
  EXPECT_EQ(client_takes(), client_step::refused);
  EXPECT_NE(std::string_view(client_->explanation()).find("wants a token"), std::string_view::npos);
}

TEST_F(handshakes, a_session_that_is_gone_is_told_from_other_refusals) {
  begin(alice(""), session_of(3));
  greet(false, nullptr);
  ASSERT_EQ(server_takes(), server_step::proven);
  server_->deny_session("unknown session: it has expired");
  EXPECT_EQ(client_takes(), client_step::unknown_session);
  EXPECT_NE(std::string_view(client_->explanation()).find("it has expired"), std::string_view::npos);

  begin(alice(""), session_of(3));
  ASSERT_EQ(server_takes(), server_step::greeted);
  server_->refuse("user: not you");
  EXPECT_EQ(client_takes(), client_step::refused);
  EXPECT_STREQ(client_->explanation(), "refuses: user: not you");
}

TEST_F(handshakes, only_who_knows_the_token_is_believed_that_a_session_is_gone) {
  for (const bool knows_it : {true, false}) {
    begin(alice(token), session_of(3));
    client_->begin(session_of(3), 7, 2);
    ASSERT_EQ(server_takes(), server_step::greeted);
    // Somebody who has heard the proof of an earlier connection may repeat it, and no more.
    const std::string other = "another token, also long";
    server_->challenge(true, {knows_it ? token : other});
    ASSERT_EQ(client_takes(), client_step::more);
    static_cast<void>(server_takes());
    server_->deny_session("unknown session: it has expired");
    EXPECT_EQ(client_takes(), knows_it ? client_step::unknown_session : client_step::refused);
  }
  client_->begin(session_of(3), 7, 2);
  ASSERT_EQ(server_takes(), server_step::malformed) << "the connection before";
  server_.emplace();
  client_->begin(session_of(3), 7, 2);
  ASSERT_EQ(server_takes(), server_step::greeted);
  server_->refuse("unknown session: believe me");
  EXPECT_EQ(client_takes(), client_step::refused) << "anybody can say that";
}

// While a token is replaced there are two; the server proves that it knows the client's.
TEST_F(handshakes, agree_on_either_of_two_tokens) {
  const std::string fresh = "a fresh token, long enough";
  for (const std::string& used : {token, fresh, std::string("neither of them, and long")}) {
    for (const std::vector<std::string>& known : {std::vector{token, fresh}, std::vector{fresh, token}}) {
      begin(alice(used));
      ASSERT_EQ(server_takes(), server_step::greeted);
      server_->challenge(true, known);
      ASSERT_EQ(client_takes(), client_step::more);
      const bool is_known = used == token || used == fresh;
      ASSERT_EQ(server_takes(), is_known ? server_step::proven : server_step::refused);
      if (!is_known) continue;
      server_->welcome({.session = session_of(3), .maximum_outstanding = 1});
      EXPECT_EQ(client_takes(), client_step::done) << client_->explanation();
    }
  }
}

// A client reads its token's file again before it comes back.
TEST_F(handshakes, a_client_shows_the_token_that_it_was_given_last) {
  const std::string fresh = "a fresh token, long enough";
  begin(alice(token));
  client_->show(fresh);
  client_->begin({}, 7);
  greet(true, &fresh);
  EXPECT_EQ(server_takes(), server_step::proven);
}

// Somebody who ends the encryption in between has two connections, and passes the messages on.
TEST_F(handshakes, a_proof_is_good_for_one_encrypted_connection) {
  const channel_binding one{std::byte{1}};
  const channel_binding other{std::byte{2}};
  begin(alice(token));
  client_->bind(one);
  server_->bind(one);
  greet(true, &token);
  ASSERT_EQ(server_takes(), server_step::proven);
  server_->welcome({.session = session_of(3), .maximum_outstanding = 1});
  EXPECT_EQ(client_takes(), client_step::done);

  begin(alice(token));
  client_->bind(one);
  server_->bind(other);
  greet(true, &token);
  EXPECT_EQ(server_takes(), server_step::refused);

  // It cannot leave the encryption out towards the server, either.
  begin(alice(token));
  client_->bind(one);
  greet(true, &token);
  EXPECT_EQ(server_takes(), server_step::refused);
}

// Nor can it pass the server's proof on.
TEST_F(handshakes, a_client_wants_the_servers_proof_for_its_own_connection) {
  for (const bool is_known : {true, false}) {
    begin(alice(token), session_of(3));
    server_->bind({std::byte{1}});
    client_->bind(channel_binding{std::byte{1}});
    greet(true, &token);
    ASSERT_EQ(server_takes(), server_step::proven);
    if (is_known) {
      server_->welcome({.session = session_of(3), .maximum_outstanding = 1});
    } else {
      server_->deny_session("unknown session: it has expired");
    }
    client_->bind(channel_binding{std::byte{2}});
    EXPECT_EQ(client_takes(), client_step::refused);
  }
}

// As servers of version 1 say it, which have no other way.
TEST_F(handshakes, a_session_of_version_1_ends_as_it_did) {
  begin(alice(token), session_of(3));
  ASSERT_EQ(server_takes(), server_step::greeted);
  server_->refuse("unknown session: it has expired");
  EXPECT_EQ(client_takes(), client_step::unknown_session);
}

TEST_F(handshakes, a_client_of_version_1_is_answered_in_it) {
  const hello old{.oldest = 1, .newest = 1, .join = session_of(3)};
  std::array<std::byte, maximum_handshake_bytes> payload{};
  handshake_message message;
  message.set(opcode::hello, std::span(payload).first(encode(old, payload)));
  const packed_message greeting = unpack_message(message.bytes()).value();
  server_.emplace();
  ASSERT_EQ(server_->take(greeting.head, greeting.payload), server_step::greeted);
  server_->challenge(false, {}, {std::byte{9}});
  EXPECT_EQ(unpack_message(server_->to_send()).value().payload.size(), first_challenge_bytes);
  message.set(opcode::proof, digest{});
  const packed_message proof = unpack_message(message.bytes()).value();
  ASSERT_EQ(server_->take(proof.head, proof.payload), server_step::proven);
  server_->deny_session("unknown session: it has expired");
  EXPECT_EQ(unpack_message(server_->to_send()).value().head.op, opcode::refuse);
  server_->welcome({.session = session_of(3), .maximum_outstanding = 1, .lease_ms = 9});
  EXPECT_EQ(unpack_message(server_->to_send()).value().payload.size(), first_welcome_bytes);
}

// Servers of older releases, as they answered: without an identity before version 2, and with proofs that know no TLS
// before version 4.
TEST_F(handshakes, servers_of_each_older_version_are_understood) {
  for (std::uint16_t version = oldest_version; version < newest_version; ++version) {
    begin(alice(token));
    const channel_binding bound{std::byte{1}};
    client_->bind(bound);
    const auto known_to_server = version < 4 ? std::nullopt : std::optional(bound);
    const packed_message greeting = unpack_message(client_->to_send()).value();
    const std::vector<std::byte> hello_payload(greeting.payload.begin(), greeting.payload.end());
    EXPECT_LE(decode_hello(hello_payload).value().oldest, version);
    client_->sent(client_->to_send().size());

    std::array<std::byte, maximum_handshake_bytes> payload{};
    const challenge asked{
        .version = version, .token_wanted = true, .server = {std::byte{5}}, .identity = {std::byte{9}}};
    const std::size_t length = encode(asked, payload);
    const std::vector<std::byte> asked_payload(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_EQ(length, version < 2 ? first_challenge_bytes : challenge_bytes);
    handshake_message message;
    message.set(opcode::challenge, asked_payload);
    packed_message answer = unpack_message(message.bytes()).value();
    ASSERT_EQ(client_->take(answer.head, answer.payload), client_step::more) << version;
    EXPECT_EQ(client_->version(), version);

    const packed_message proof = unpack_message(client_->to_send()).value();
    const digest expected = prove(side::client, token, hello_payload, asked_payload, known_to_server);
    EXPECT_TRUE(std::equal(proof.payload.begin(), proof.payload.end(), expected.begin(), expected.end())) << version;

    const welcome said{.proof = prove(side::server, token, hello_payload, asked_payload, known_to_server),
                       .session = session_of(3),
                       .grace_ms = 60'000,
                       .maximum_outstanding = 1,
                       .lease_ms = 3'600'000};
    message.set(opcode::welcome, std::span(payload).first(encode(said, payload, version)));
    answer = unpack_message(message.bytes()).value();
    ASSERT_EQ(client_->take(answer.head, answer.payload), client_step::done) << version;
    EXPECT_EQ(client_->welcome().session, session_of(3));
    EXPECT_EQ(client_->welcome().lease_ms, version < 2 ? 60'000U : 3'600'000U);
  }
}

TEST_F(handshakes, another_session_than_the_one_to_join_is_a_lost_one) {
  begin(alice(""), session_of(3));
  greet(false, nullptr);
  ASSERT_EQ(server_takes(), server_step::proven);
  server_->welcome({.session = session_of(4), .maximum_outstanding = 1});
  EXPECT_EQ(client_takes(), client_step::unknown_session);
  EXPECT_STRNE(client_->explanation(), "");
}

TEST_F(handshakes, a_server_of_other_versions_names_its_own) {
  hello from_the_future{.oldest = newest_version + 1, .newest = newest_version + 2};
  std::array<std::byte, maximum_handshake_bytes> payload{};
  handshake_message message;
  message.set(opcode::hello, std::span(payload).first(encode(from_the_future, payload)));
  const packed_message got = unpack_message(message.bytes()).value();
  server_.emplace();
  ASSERT_EQ(server_->take(got.head, got.payload), server_step::refused);
  const std::string why = decode_refusal(unpack_message(server_->to_send()).value().payload);
  EXPECT_NE(why.find("speaks versions " + std::to_string(oldest_version)), std::string::npos);
}

TEST_F(handshakes, a_server_takes_nothing_out_of_its_turn) {
  begin(alice(""));
  const packed_message greeting = unpack_message(client_->to_send()).value();
  header damaged = greeting.head;
  damaged.payload_checksum ^= 1;
  EXPECT_EQ(server_->take(damaged, greeting.payload), server_step::malformed);
  std::array<std::byte, maximum_packet_bytes> copy{};
  std::copy(client_->to_send().begin(), client_->to_send().end(), copy.begin());
  const packed_message again = unpack_message(std::span(copy).first(client_->to_send().size())).value();
  greet(false, nullptr);
  EXPECT_EQ(server_->take(again.head, again.payload), server_step::malformed) << "a second hello";
  const packed_message proof = unpack_message(client_->to_send()).value();
  EXPECT_EQ(server_->take(proof.head, proof.payload), server_step::proven);
  EXPECT_EQ(server_->take(proof.head, proof.payload), server_step::malformed) << "a second proof";
}

TEST_F(handshakes, a_packet_is_one_message_and_nothing_else) {
  begin(alice(""));
  const std::span<const std::byte> whole = client_->to_send();
  EXPECT_TRUE(unpack_message(whole));
  EXPECT_FALSE(unpack_message(whole.first(whole.size() - 1)));
  EXPECT_FALSE(unpack_message(whole.first(header_bytes - 1)));
}

}  // namespace
}  // namespace far::wire
