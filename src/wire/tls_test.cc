#include "wire/tls.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <optional>
#include <vector>

#include "tests/support/tls_test_files.h"

namespace far::wire {
namespace {

using bytes = std::vector<std::byte>;

// Content that depends on the place, so that bytes that move are noticed.
bytes sample(std::size_t length) {
  bytes encoding(length);
  for (std::size_t i = 0; i < length; ++i) encoding[i] = static_cast<std::byte>((i * 2654435761U) >> 13);
  return encoding;
}

// Everything that `from` wants to send goes to `to`, at most `cut` bytes at a time. Returns whether there was any.
bool carry(tls_stream& from, tls_stream& to, std::size_t cut) {
  bytes moved(cut);
  bool any = false;
  while (from.pending() > 0) {
    any = true;
    const std::size_t length = from.take(moved);
    EXPECT_TRUE(to.feed(std::span(moved).first(length)));
    if (cut < 1000) {
      // The stream is read after every piece: a record may be cut anywhere.
      std::array<std::byte, 1> nothing{};
      const result<std::size_t> got = to.read(std::span(nothing).first(0));
      if (!got) return any;
    }
  }
  return any;
}

// The error of a stream that is read with nothing expected.
std::optional<error> step(tls_stream& stream) {
  std::array<std::byte, 1> one{};
  const result<std::size_t> got = stream.read(one);
  if (!got) return got.error();
  EXPECT_EQ(got.value(), 0U);
  return std::nullopt;
}

struct outcome {
  std::optional<error> client;
  std::optional<error> server;
};

// Moves both on until neither has anything to say, or one has failed and told the other.
outcome shake_hands(tls_stream& client, tls_stream& server, std::size_t cut = 1 << 16) {
  outcome seen;
  for (bool any = true; any && !(seen.client && seen.server);) {
    any = carry(client, server, cut);
    if (!seen.server) seen.server = step(server);
    any = carry(server, client, cut) || any;
    if (!seen.client) seen.client = step(client);
  }
  return seen;
}

class tls : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    files_ = new tls_test_files;
    files_->make_authority("authority");
    files_->make_authority("stranger");
    files_->make_server("good", "authority", "DNS:far.test,DNS:*.wild.test,IP:127.0.0.1,IP:::1");
    files_->make_server("ended", "authority", "DNS:far.test", -60);
    files_->make_server("far.test", "authority", "");  // named in its subject only
  }
  static void TearDownTestSuite() {
    delete files_;
    files_ = nullptr;
  }

  static std::unique_ptr<tls_context> server_context(const std::string& name = "good") {
    auto context = tls_context::for_server(files_->certificate(name), files_->key(name));
    EXPECT_TRUE(context) << context.error().message;
    return std::move(context).value();
  }
  static std::unique_ptr<tls_context> client_context(const std::string& authority = "authority") {
    auto context = tls_context::for_client(files_->certificate(authority));
    EXPECT_TRUE(context) << context.error().message;
    return std::move(context).value();
  }
  static std::unique_ptr<tls_stream> open(tls_context& context, const std::string& name) {
    auto stream = tls_stream::create(context, name);
    EXPECT_TRUE(stream) << stream.error().message;
    return std::move(stream).value();
  }

  // Both sides of a connection to the server `certificate`, opened by a client that trusts `authority` and wants
  // `name`.
  struct pair {
    std::unique_ptr<tls_stream> client;
    std::unique_ptr<tls_stream> server;
  };
  static pair make_pair(const std::string& name, const std::string& certificate = "good",
                        const std::string& authority = "authority") {
    const auto client = client_context(authority);
    const auto server = server_context(certificate);
    return {open(*client, name), open(*server, "")};
  }
  static pair established_pair(std::size_t cut = 1 << 16) {
    pair peers = make_pair("far.test");
    const outcome seen = shake_hands(*peers.client, *peers.server, cut);
    EXPECT_FALSE(seen.client || seen.server);
    EXPECT_TRUE(peers.client->established() && peers.server->established());
    return peers;
  }

  static tls_test_files* files_;
};

tls_test_files* tls::files_ = nullptr;

// Sends all of `content`, through pieces of `cut` bytes, and returns what arrived.
bytes send_through(tls_stream& from, tls_stream& to, const bytes& content, std::size_t cut) {
  bytes arrived;
  bytes into(100000);
  std::size_t sent = 0;
  for (std::size_t rounds = 0; arrived.size() < content.size() && rounds < 10000; ++rounds) {
    const result<std::size_t> taken = from.write(std::span(content).subspan(sent));
    EXPECT_TRUE(taken);
    if (!taken) break;
    sent += taken.value();
    carry(from, to, cut);
    for (;;) {
      const result<std::size_t> got = to.read(into);
      EXPECT_TRUE(got) << got.error().message;
      if (!got || got.value() == 0) break;
      arrived.insert(arrived.end(), into.begin(), into.begin() + static_cast<std::ptrdiff_t>(got.value()));
    }
  }
  return arrived;
}

// Copies of files under names that stay.
TEST_F(tls, files_that_were_replaced_are_used_by_the_connections_that_follow) {
  const std::string certificate = files_->folder() + "/used.pem";
  const std::string key = files_->folder() + "/used.key";
  const std::string trusted = files_->folder() + "/trusted.pem";
  const auto use = [](const std::string& from, const std::string& as) {
    std::ofstream(as + ".new") << std::ifstream(from).rdbuf();
    ASSERT_EQ(chmod((as + ".new").c_str(), 0600), 0);
    ASSERT_EQ(std::rename((as + ".new").c_str(), as.c_str()), 0);
  };
  use(files_->certificate("good"), certificate);
  use(files_->key("good"), key);
  use(files_->certificate("authority"), trusted);
  const auto server = std::move(tls_context::for_server(certificate, key)).value();
  const auto client = std::move(tls_context::for_client(trusted)).value();
  const auto agree = [&] {
    const auto near = open(*client, "far.test");
    const auto far = open(*server, "");
    const outcome seen = shake_hands(*near, *far);
    return !seen.client && !seen.server;
  };
  EXPECT_TRUE(agree());
  EXPECT_FALSE(client->refresh().value()) << "nothing has changed";
  const auto before = open(*server, "");

  files_->make_server("strange", "stranger", "DNS:far.test");
  use(files_->certificate("strange"), certificate);
  EXPECT_FALSE(server->refresh()) << "certificate and key do not fit";
  EXPECT_TRUE(agree()) << "those of before are used";
  use(files_->key("strange"), key);
  EXPECT_TRUE(server->refresh().value());
  EXPECT_FALSE(agree()) << "the client does not trust it yet";
  use(files_->certificate("stranger"), trusted);
  EXPECT_TRUE(client->refresh().value());
  EXPECT_TRUE(agree());

  std::ofstream(trusted, std::ios::trunc) << "half of it";
  EXPECT_FALSE(client->refresh());
  EXPECT_FALSE(client->refresh().value()) << "once for each change";
  EXPECT_FALSE(client->refresh(tls_context::telling::every_time)) << "a caller that asks for it gets the error again";
  EXPECT_TRUE(agree());
}

// The message asks for a chmod, and nothing else has to be done.
TEST_F(tls, a_key_that_others_could_read_is_used_when_they_cannot_any_more) {
  const std::string certificate = files_->folder() + "/renewed.pem";
  const std::string key = files_->folder() + "/renewed.key";
  const auto copy = [](const std::string& from, const std::string& to, mode_t mode) {
    std::ofstream(to) << std::ifstream(from).rdbuf();
    ASSERT_EQ(chmod(to.c_str(), mode), 0);
  };
  copy(files_->certificate("good"), certificate, 0600);
  copy(files_->key("good"), key, 0600);
  const auto server = std::move(tls_context::for_server(certificate, key)).value();
  files_->make_server("next", "authority", "DNS:far.test");
  copy(files_->certificate("next"), certificate, 0600);
  copy(files_->key("next"), key, 0644);
  EXPECT_FALSE(server->refresh()) << "others may read the key";
  ASSERT_EQ(chmod(key.c_str(), 0600), 0);
  EXPECT_TRUE(server->refresh().value());
}

// Part of what is to be trusted would be found out when a server is refused.
TEST_F(tls, authorities_that_are_cut_off_are_refused) {
  const std::string path = files_->folder() + "/cut.pem";
  std::string whole;
  for (const char* name : {"authority", "stranger"}) {
    std::ifstream from(files_->certificate(name));
    whole.append(std::istreambuf_iterator<char>(from), {});
  }
  std::ofstream(path, std::ios::trunc) << whole << "# and some words\n";
  EXPECT_TRUE(tls_context::for_client(path).ok());
  std::ofstream(path, std::ios::trunc) << whole.substr(0, whole.size() - 100);
  EXPECT_FALSE(tls_context::for_client(path).ok());
}

TEST_F(tls, shakes_hands_over_buffers_cut_at_every_size) {
  for (std::size_t cut = 1; cut <= 300; ++cut) {
    const pair peers = established_pair(cut);
    const bytes content = sample(1000);
    EXPECT_EQ(send_through(*peers.client, *peers.server, content, cut), content) << "cut at " << cut;
    EXPECT_EQ(send_through(*peers.server, *peers.client, content, cut), content) << "cut at " << cut;
  }
}

TEST_F(tls, carries_megabytes_both_ways) {
  const pair peers = established_pair();
  for (const std::size_t length : {std::size_t{16384}, std::size_t{16385}, std::size_t{5} << 20}) {
    const bytes content = sample(length);
    EXPECT_TRUE(send_through(*peers.client, *peers.server, content, 1 << 16) == content) << length;
    EXPECT_TRUE(send_through(*peers.server, *peers.client, content, 7777) == content) << length;
  }
}

TEST_F(tls, both_ends_of_a_connection_know_it_by_the_same_bytes_and_nobody_elses) {
  const pair one = established_pair();
  const pair other = established_pair();
  EXPECT_EQ(one.client->binding(), one.server->binding());
  EXPECT_EQ(other.client->binding(), other.server->binding());
  EXPECT_NE(one.client->binding(), other.client->binding());
}

TEST_F(tls, who_it_was_bound_to_is_known_after_it_has_failed) {
  const pair peers = established_pair();
  const auto expected = peers.server->binding();
  ASSERT_EQ(peers.server->write(sample(100)).value(), 100u);
  bytes sent(peers.server->pending());
  ASSERT_EQ(peers.server->take(sent), sent.size());
  sent.insert(sent.end(), 64, std::byte{0x17});  // a record that nobody has encrypted
  ASSERT_TRUE(peers.client->feed(sent));
  bytes got(200);
  EXPECT_EQ(peers.client->read(got).value(), 100u);
  EXPECT_EQ(peers.client->binding(), expected);
  EXPECT_FALSE(peers.client->read(got));
}

TEST_F(tls, hides_what_it_carries) {
  const pair peers = established_pair();
  const bytes content = sample(1000);
  ASSERT_EQ(peers.client->write(content).value(), content.size());
  bytes seen(peers.client->pending());
  ASSERT_EQ(peers.client->take(seen), seen.size());
  EXPECT_EQ(std::search(seen.begin(), seen.end(), content.begin() + 100, content.begin() + 108), seen.end());
}

TEST_F(tls, takes_nothing_before_the_handshake_and_no_more_than_fits_after_it) {
  const pair peers = make_pair("far.test");
  const bytes content = sample(3 << 20);
  EXPECT_EQ(peers.client->write(content).value(), 0U);
  EXPECT_EQ(peers.server->write(content).value(), 0U);
  shake_hands(*peers.client, *peers.server);
  const std::size_t taken = peers.client->write(content).value();
  EXPECT_GT(taken, std::size_t{900} << 10);
  EXPECT_LE(peers.client->pending(), tls_stream::buffer_bytes);
  EXPECT_EQ(peers.client->write(std::span(content).subspan(taken)).value(), 0U) << "full";
}

TEST_F(tls, feeds_no_more_than_fits) {
  const pair peers = established_pair();
  const bytes much(tls_stream::buffer_bytes, std::byte{0x17});
  EXPECT_TRUE(peers.server->feed(much));
  EXPECT_FALSE(peers.server->feed(std::span(much).first(1)));
}

TEST_F(tls, accepts_names_and_addresses_of_the_certificate) {
  for (const std::string name : {"far.test", "a.wild.test", "127.0.0.1", "::1", "0:0:0:0:0:0:0:1"}) {
    const pair peers = make_pair(name);
    const outcome seen = shake_hands(*peers.client, *peers.server);
    EXPECT_FALSE(seen.client) << name << ": " << seen.client->message;
    EXPECT_TRUE(peers.client->established() && peers.server->established()) << name;
  }
}

// The client refuses, says why to its user, and the server learns that it was refused.
void expect_refusal(tls_stream& client, tls_stream& server, const std::string& reason) {
  const outcome seen = shake_hands(client, server);
  ASSERT_TRUE(seen.client);
  EXPECT_EQ(seen.client->code, 0);
  EXPECT_NE(seen.client->message.find(reason), std::string::npos) << seen.client->message;
  ASSERT_TRUE(seen.server);
  EXPECT_EQ(seen.server->code, EPROTO);
  EXPECT_FALSE(client.write(sample(10)));
  EXPECT_EQ(step(client)->message, seen.client->message) << "it stays refused";
}

TEST_F(tls, refuses_a_wrong_name) {
  for (const std::string name : {"near.test", "x.y.wild.test", "127.0.0.2", "::2"}) {
    const pair peers = make_pair(name);
    expect_refusal(*peers.client, *peers.server, "must name " + name);
  }
  const pair by_subject = make_pair("far.test", "far.test");
  expect_refusal(*by_subject.client, *by_subject.server, "must name far.test");
}

TEST_F(tls, refuses_a_wrong_authority) {
  const pair peers = make_pair("far.test", "good", "stranger");
  expect_refusal(*peers.client, *peers.server, "ca=FILE");
}

TEST_F(tls, refuses_a_certificate_that_has_ended) {
  const pair peers = make_pair("far.test", "ended");
  expect_refusal(*peers.client, *peers.server, "expired");
}

// The first bytes of a client of OpenSSL's own that speaks up to `version`.
bytes first_flight(int version) {
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_max_proto_version(context, version);
  SSL* const stream = SSL_new(context);
  SSL_set_bio(stream, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  SSL_set_connect_state(stream);
  SSL_do_handshake(stream);
  bytes encoding(4096);
  const int length = BIO_read(SSL_get_wbio(stream), encoding.data(), static_cast<int>(encoding.size()));
  encoding.resize(static_cast<std::size_t>(std::max(length, 0)));
  SSL_free(stream);
  SSL_CTX_free(context);
  return encoding;
}

TEST_F(tls, refuses_tls_1_2) {
  const auto context = server_context();
  const auto modern = open(*context, "");
  ASSERT_TRUE(modern->feed(first_flight(TLS1_3_VERSION)));
  EXPECT_FALSE(step(*modern));
  const auto server = open(*context, "");
  ASSERT_TRUE(server->feed(first_flight(TLS1_2_VERSION)));
  const std::optional<error> refused = step(*server);
  ASSERT_TRUE(refused);
  EXPECT_NE(refused->message.find("unsupported protocol"), std::string::npos) << refused->message;
  EXPECT_GT(server->pending(), 0U) << "an alert";
}

TEST_F(tls, refuses_bytes_that_are_not_tls) {
  const pair peers = make_pair("far.test");
  const std::string text = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_TRUE(peers.server->feed(std::as_bytes(std::span(text))));
  EXPECT_EQ(step(*peers.server).value_or(error{}).code, EPROTO);
  EXPECT_EQ(step(*peers.server).value_or(error{}).code, EPROTO);
}

TEST_F(tls, refuses_a_record_that_was_changed) {
  const pair peers = established_pair();
  const bytes content = sample(100);
  ASSERT_TRUE(peers.client->write(content));
  ASSERT_TRUE(peers.client->write(content));
  bytes sent(peers.client->pending());
  ASSERT_EQ(peers.client->take(sent), sent.size());
  sent.back() ^= std::byte{1};
  ASSERT_TRUE(peers.server->feed(sent));
  bytes into(1000);
  EXPECT_EQ(peers.server->read(into).value(), content.size()) << "the first record is good";
  EXPECT_EQ(peers.server->read(into).error().code, EPROTO);
}

TEST_F(tls, explains_bad_files) {
  const auto message = [](const auto& outcome) { return outcome ? std::string("no error") : outcome.error().message; };
  const std::string absent = files_->folder() + "/absent";
  EXPECT_NE(message(tls_context::for_client(absent)).find(absent), std::string::npos);
  EXPECT_NE(message(tls_context::for_server(absent, files_->key("good"))).find(absent), std::string::npos);
  EXPECT_NE(message(tls_context::for_server(files_->certificate("good"), absent)).find(absent), std::string::npos);
  EXPECT_NE(message(tls_context::for_server(files_->certificate("good"), files_->key("authority"))).find("mismatch"),
            std::string::npos);
  ASSERT_EQ(chmod(files_->key("ended").c_str(), 0640), 0);
  EXPECT_NE(message(tls_context::for_server(files_->certificate("ended"), files_->key("ended"))).find("chmod 600"),
            std::string::npos);
  ASSERT_EQ(chmod(files_->key("ended").c_str(), 0600), 0);
}

TEST_F(tls, trusts_the_systems_authorities_when_none_is_named) {
  EXPECT_TRUE(tls_context::for_client(""));
}

}  // namespace
}  // namespace far::wire
