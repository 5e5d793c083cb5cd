#include "wire/handshake.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <vector>

namespace far::wire {
namespace {

using bytes = std::vector<std::byte>;

// `count` bytes that count up from `first`.
template <typename Array>
Array counting(unsigned first) {
  Array pattern{};
  for (std::byte& byte : pattern) byte = static_cast<std::byte>(first++);
  return pattern;
}

template <typename Message>
bytes encoded(const Message& from) {
  bytes encoding(maximum_handshake_bytes);
  encoding.resize(encode(from, encoding));
  return encoding;
}

std::string as_hex(std::span<const std::byte> from) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : from) {
    text += digits[std::to_integer<unsigned>(byte) >> 4];
    text += digits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

hello sample_hello() {
  return {.oldest = 1,
          .newest = 0x0102,
          .client = counting<nonce>(0x20),
          .join = counting<session_id>(0x10),
          .channel = 0x0a0b0c0d,
          .tenant = "ab"};
}

challenge sample_challenge() {
  return {.version = 1, .token_wanted = true, .server = counting<nonce>(0x40)};
}

welcome sample_welcome() {
  return {.proof = counting<digest>(0),
          .session = counting<session_id>(0x20),
          .quota_slots = 0x0102030405060708,
          .grace_ms = 0x11223344,
          .maximum_outstanding = 5,
          .lease_ms = 0x2122232425262728};
}

TEST(handshake, hello_has_its_documented_bytes_and_comes_back) {
  const bytes encoding = encoded(sample_hello());
  EXPECT_EQ(as_hex(encoding),
            "0100"
            "0201"
            "0d0c0b0a"
            "101112131415161718191a1b1c1d1e1f"
            "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"
            "02"
            "6162");
  const std::optional<hello> back = decode_hello(encoding);
  ASSERT_TRUE(back);
  EXPECT_EQ(encoded(*back), encoding);
  EXPECT_EQ(back->tenant, "ab");
  EXPECT_EQ(back->channel, 0x0a0b0c0dU);
}

TEST(handshake, hello_may_go_on_after_the_tenant) {
  bytes encoding = encoded(sample_hello());
  encoding.resize(maximum_handshake_bytes, std::byte{7});
  EXPECT_TRUE(decode_hello(encoding));
  encoding.push_back(std::byte{7});
  EXPECT_FALSE(decode_hello(encoding)) << "too long";
}

TEST(handshake, hello_is_refused_when_malformed) {
  const bytes good = encoded(sample_hello());
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(decode_hello(std::span(good).first(length))) << "cut at " << length;
  }
  bytes no_version = good;
  no_version[0] = std::byte{0};
  EXPECT_FALSE(decode_hello(no_version)) << "version 0";
  bytes turned = good;
  turned[1] = std::byte{2};
  EXPECT_FALSE(decode_hello(turned)) << "oldest after newest";
  bytes nameless = good;
  nameless[56] = std::byte{0};
  EXPECT_FALSE(decode_hello(nameless)) << "empty tenant";
  bytes strange = good;
  strange[57] = std::byte{'/'};
  EXPECT_FALSE(decode_hello(strange)) << "a letter that no tenant has";
  hello longest = sample_hello();
  longest.tenant = std::string(maximum_tenant_bytes, 'x');
  bytes too_long = encoded(longest);
  EXPECT_TRUE(decode_hello(too_long));
  too_long.push_back(std::byte{'x'});
  too_long[56] = static_cast<std::byte>(maximum_tenant_bytes + 1);
  EXPECT_FALSE(decode_hello(too_long)) << "tenant too long";
}

TEST(handshake, challenge_has_its_documented_bytes_and_comes_back) {
  const bytes encoding = encoded(sample_challenge());
  EXPECT_EQ(as_hex(encoding),
            "0100"
            "01"
            "00"
            "00000000"
            "404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f");
  ASSERT_TRUE(decode_challenge(encoding));
  EXPECT_EQ(encoded(*decode_challenge(encoding)), encoding);
  challenge second = sample_challenge();
  second.version = 2;
  second.identity = counting<server_id>(0x70);
  const bytes longer = encoded(second);
  EXPECT_EQ(as_hex(longer), "0200" + as_hex(encoding).substr(4) + "707172737475767778797a7b7c7d7e7f");
  ASSERT_TRUE(decode_challenge(longer));
  EXPECT_EQ(decode_challenge(longer)->identity, second.identity);
  EXPECT_FALSE(decode_challenge(std::span(longer).first(40))) << "version 2 has an identity";
}

TEST(handshake, challenge_is_refused_when_malformed) {
  const bytes good = encoded(sample_challenge());
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(decode_challenge(std::span(good).first(length))) << "cut at " << length;
  }
  bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_challenge(longer));
  const std::vector<std::pair<std::size_t, unsigned>> wrong = {
      {0, 0}, {0, newest_version + 1U}, {1, 1}, {2, 2}, {3, 1}, {4, 1}, {7, 1}};
  for (const auto& [at, value] : wrong) {
    bytes bad = good;
    bad[at] = static_cast<std::byte>(value);
    EXPECT_FALSE(decode_challenge(bad)) << "byte " << at << " is " << value;
  }
}

TEST(handshake, welcome_has_its_documented_bytes_and_comes_back) {
  const bytes encoding = encoded(sample_welcome());
  EXPECT_EQ(as_hex(encoding),
            "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
            "202122232425262728292a2b2c2d2e2f"
            "0807060504030201"
            "44332211"
            "05000000"
            "2827262524232221");
  ASSERT_TRUE(decode_welcome(encoding));
  EXPECT_EQ(encoded(*decode_welcome(encoding)), encoding);
  const std::optional<welcome> first = decode_welcome(std::span(encoding).first(64), 1);
  ASSERT_TRUE(first) << "version 1 ends before the lease";
  EXPECT_EQ(first->lease_ms, 0x11223344U) << "the grace period";
  EXPECT_FALSE(decode_welcome(encoding, 1));
}

TEST(handshake, an_unknown_session_has_its_documented_bytes_and_comes_back) {
  const bytes encoding = encoded(unknown_session{.proof = counting<digest>(0), .reason = "gone"});
  EXPECT_EQ(as_hex(encoding), "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f676f6e65");
  ASSERT_TRUE(decode_unknown_session(encoding));
  EXPECT_EQ(decode_unknown_session(encoding)->reason, "gone");
  EXPECT_FALSE(decode_unknown_session(std::span(encoding).first(31)));
}

TEST(handshake, welcome_is_refused_when_malformed) {
  bytes good = encoded(sample_welcome());
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(decode_welcome(std::span(good).first(length))) << "cut at " << length;
  }
  welcome no_session = sample_welcome();
  no_session.session = {};
  EXPECT_FALSE(decode_welcome(encoded(no_session)));
  welcome nothing_outstanding = sample_welcome();
  nothing_outstanding.maximum_outstanding = 0;
  EXPECT_FALSE(decode_welcome(encoded(nothing_outstanding)));
  good.push_back(std::byte{0});
  EXPECT_FALSE(decode_welcome(good));
}

TEST(handshake, refusal_is_printable_and_short) {
  bytes encoding(maximum_handshake_bytes);
  encoding.resize(encode_refusal("no such tenant", encoding));
  EXPECT_EQ(decode_refusal(encoding), "no such tenant");
  EXPECT_EQ(decode_refusal({}), "no reason given");
  const std::string nasty = "\x1b[2J\n\xff";
  EXPECT_EQ(decode_refusal(std::as_bytes(std::span(nasty))), "?[2J??");
  const std::string endless(maximum_handshake_bytes, 'x');
  EXPECT_EQ(decode_refusal(std::as_bytes(std::span(endless))).size(), maximum_refusal_bytes);
  encoding.resize(maximum_handshake_bytes);
  EXPECT_EQ(encode_refusal(endless, encoding), maximum_refusal_bytes);
}

TEST(handshake, tenant_names_are_limited) {
  EXPECT_TRUE(is_tenant_name("Team-7_a.b"));
  EXPECT_TRUE(is_tenant_name(std::string(maximum_tenant_bytes, 'x')));
  EXPECT_FALSE(is_tenant_name(std::string(maximum_tenant_bytes + 1, 'x')));
  for (const std::string_view bad : {"", "a b", "a/b", "a\nb", "\xc3\xa4", "a=b"}) EXPECT_FALSE(is_tenant_name(bad));
}

TEST(handshake, proof_has_its_documented_value) {
  const bytes first = encoded(sample_hello());
  const bytes second = encoded(sample_challenge());
  EXPECT_EQ(as_hex(prove(side::client, "0123456789abcdef", first, second)),
            "62f8ee75c0f0594a7bc4cfe19ffd956a27dc53599f87d8966a6179df505e2d01");
  EXPECT_EQ(as_hex(prove(side::server, "0123456789abcdef", first, second)),
            "afc1c520b59237c889af1e243bc56ac92f0a27e0d5e9fcc1db5409d1813f79a4");
  challenge bound = sample_challenge();
  bound.version = 4;
  const bytes fourth = encoded(bound);
  EXPECT_EQ(as_hex(prove(side::client, "0123456789abcdef", first, fourth, counting<channel_binding>(0x80))),
            "5750c97fa65ae41350e0b261086874b63059ef45455e9b8bb8873cdef637035f");
  EXPECT_EQ(as_hex(prove(side::client, "0123456789abcdef", first, fourth)),
            "1eb52826f63ae1ea619da1322d6dfe443ef1f9b70ee8c29f054a9bbb5e054031");
  EXPECT_EQ(prove(side::client, "0123456789abcdef", first, second, counting<channel_binding>(0x80)),
            prove(side::client, "0123456789abcdef", first, second))
      << "before version 4";
}

TEST(handshake, proof_differs_when_any_input_differs) {
  const bytes first = encoded(sample_hello());
  const bytes second = encoded(sample_challenge());
  std::vector<digest> all = {prove(side::client, "token", first, second), prove(side::server, "token", first, second),
                             prove(side::client, "Token", first, second), prove(side::client, "toke", first, second),
                             prove(side::client, "", first, second)};
  for (std::size_t i = 0; i < first.size(); ++i) {
    bytes changed = first;
    changed[i] ^= std::byte{1};
    all.push_back(prove(side::client, "token", changed, second));
  }
  for (std::size_t i = 0; i < second.size(); ++i) {
    bytes changed = second;
    changed[i] ^= std::byte{1};
    all.push_back(prove(side::client, "token", first, changed));
  }
  // A byte that moves from one message to the other.
  bytes longer = first;
  longer.push_back(second[0]);
  all.push_back(prove(side::client, "token", longer, std::span(second).subspan(1)));
  const std::size_t size = all.size();
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  EXPECT_EQ(all.size(), size);
}

TEST(handshake, digests_are_equal_only_when_all_bytes_are) {
  const auto one = counting<digest>(1);
  EXPECT_TRUE(equal_digests(one, one));
  for (std::size_t i = 0; i < one.size(); ++i) {
    digest other = one;
    other[i] ^= std::byte{0x80};
    EXPECT_FALSE(equal_digests(one, other)) << i;
  }
}

TEST(handshake, random_bytes_differ) {
  nonce one{};
  nonce other{};
  fill_random(one);
  fill_random(other);
  EXPECT_NE(one, other);
  bytes many(100000);
  fill_random(many);
  EXPECT_FALSE(std::all_of(many.end() - 32, many.end(), [](std::byte b) { return b == std::byte{0}; }));
}

class token_file : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "far_token_XXXXXX";
    const int descriptor = mkstemp(pattern.data());
    ASSERT_GE(descriptor, 0);
    close(descriptor);
    path_ = pattern;
  }
  void TearDown() override { unlink(path_.c_str()); }

  // The token, or the message of the error.
  std::string read_back(const std::string& content, mode_t mode = 0600) {
    std::ofstream(path_, std::ios::binary) << content;
    EXPECT_EQ(chmod(path_.c_str(), mode), 0);
    const result<std::string> read = read_token_file(path_);
    return read ? read.value() : read.error().message;
  }

  std::string path_;
};

TEST_F(token_file, its_first_line_is_the_token) {
  EXPECT_EQ(read_back("0123456789abcdef"), "0123456789abcdef");
  EXPECT_EQ(read_back("0123456789abcdef\nsecond"), "0123456789abcdef");
  EXPECT_EQ(read_back("0123456789abcdef\r\n", 0400), "0123456789abcdef");
  std::string longest(maximum_token_bytes, 'x');
  longest.push_back('\n');
  EXPECT_EQ(read_back(longest).size(), maximum_token_bytes);
}

TEST_F(token_file, is_refused_with_advice_and_without_the_token) {
  for (const mode_t mode : {0640U, 0604U, 0660U, 0610U}) {
    const std::string said = read_back("0123456789abcdef", mode);
    EXPECT_NE(said.find("chmod 600 " + path_), std::string::npos) << said;
    EXPECT_EQ(said.find("0123456789abcdef"), std::string::npos);
  }
  EXPECT_NE(read_back("tooshort\n").find("shorter than 16"), std::string::npos);
  EXPECT_EQ(read_back("tooshort\n").find("tooshort"), std::string::npos);
  EXPECT_NE(read_back("").find("openssl rand"), std::string::npos);
  EXPECT_NE(read_back(std::string(maximum_token_bytes + 1, 'x')).find("longer than"), std::string::npos);
  unlink(path_.c_str());
  EXPECT_EQ(read_token_file(path_).error().code, ENOENT);
  EXPECT_EQ(read_token_file(testing::TempDir()).error().code, EINVAL);
}

}  // namespace
}  // namespace far::wire
