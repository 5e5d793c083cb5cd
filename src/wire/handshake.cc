#include "wire/handshake.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "wire/bytes.h"
#include "wire/openssl.h"

namespace far::wire {

namespace {

// hello: oldest (u16), newest (u16), channel (u32), session (16), nonce (32), tenant's length (u8), tenant.
constexpr std::size_t hello_channel_at = 4;
constexpr std::size_t hello_join_at = 8;
constexpr std::size_t hello_nonce_at = 24;
constexpr std::size_t hello_tenant_length_at = 56;
constexpr std::size_t hello_tenant_at = 57;

// challenge: version (u16), token wanted (u8), zero (u8), zero (u32), nonce (32).
constexpr std::size_t challenge_wanted_at = 2;
constexpr std::size_t challenge_nonce_at = 8;
constexpr std::size_t challenge_identity_at = 40;  // from version 2 on: identity (16)

// welcome: proof (32), session (16), quota (u64), grace (u32), outstanding (u32).
constexpr std::size_t welcome_session_at = 32;
constexpr std::size_t welcome_quota_at = 48;
constexpr std::size_t welcome_grace_at = 56;
constexpr std::size_t welcome_outstanding_at = 60;
constexpr std::size_t welcome_lease_at = 64;  // from version 2 on: lease (u64)

constexpr std::uint16_t first_version_that_binds = 4;

constexpr std::string_view client_label = "farheap 1 client";
constexpr std::string_view server_label = "farheap 1 server";
constexpr std::string_view absent_label = "farheap 2 absent";

template <std::size_t N>
void put(const std::array<std::byte, N>& from, std::byte* to) {
  std::memcpy(to, from.data(), N);
}

template <std::size_t N>
void get(const std::byte* from, std::array<std::byte, N>* to) {
  std::memcpy(to->data(), from, N);
}

bool is_printable(char letter) {
  return letter >= ' ' && letter <= '~';
}

// HMAC-SHA256 over parts.
class keyed_hash {
 public:
  explicit keyed_hash(std::string_view key) {
    prepare_openssl();
    method_ = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
    FAR_CHECK(method_ != nullptr, "this OpenSSL has no HMAC");
    context_ = EVP_MAC_CTX_new(method_);
    std::array<char, 7> name = {"SHA256"};
    const std::array<OSSL_PARAM, 2> parameters = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, name.data(), 0), OSSL_PARAM_construct_end()};
    // OpenSSL takes a key of no bytes, when the pointer is not null.
    const char* const bytes = key.empty() ? "" : key.data();
    const bool started = context_ != nullptr && EVP_MAC_init(context_, reinterpret_cast<const unsigned char*>(bytes),
                                                             key.size(), parameters.data()) == 1;
    FAR_CHECK(started, "HMAC-SHA256 does not start");
  }
  ~keyed_hash() {
    EVP_MAC_CTX_free(context_);
    EVP_MAC_free(method_);
  }
  keyed_hash(const keyed_hash&) = delete;
  keyed_hash& operator=(const keyed_hash&) = delete;

  void add(const void* data, std::size_t bytes) {
    FAR_CHECK(EVP_MAC_update(context_, static_cast<const unsigned char*>(data), bytes) == 1, "HMAC-SHA256 failed");
  }
  void add_with_length(std::span<const std::byte> bytes) {
    const auto length = static_cast<std::uint32_t>(bytes.size());
    add(&length, sizeof length);
    add(bytes.data(), bytes.size());
  }
  [[nodiscard]] digest finish() {
    digest result{};
    std::size_t bytes = 0;
    FAR_CHECK(EVP_MAC_final(context_, reinterpret_cast<unsigned char*>(result.data()), &bytes, result.size()) == 1 &&
                  bytes == result.size(),
              "HMAC-SHA256 failed");
    return result;
  }

 private:
  EVP_MAC* method_ = nullptr;
  EVP_MAC_CTX* context_ = nullptr;
};

}  // namespace

bool is_tenant_name(std::string_view name) {
  const auto allowed = [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
           letter == '-' || letter == '_' || letter == '.';
  };
  return !name.empty() && name.size() <= maximum_tenant_bytes && std::all_of(name.begin(), name.end(), allowed);
}

std::size_t encode(const hello& from, std::span<std::byte> to) {
  FAR_CHECK(to.size() >= maximum_handshake_bytes && is_tenant_name(from.tenant), "encode(hello)");
  std::byte* const at = to.data();
  store(from.oldest, at);
  store(from.newest, at + 2);
  store(from.channel, at + hello_channel_at);
  put(from.join, at + hello_join_at);
  put(from.client, at + hello_nonce_at);
  store(static_cast<std::uint8_t>(from.tenant.size()), at + hello_tenant_length_at);
  std::memcpy(at + hello_tenant_at, from.tenant.data(), from.tenant.size());
  return hello_tenant_at + from.tenant.size();
}

std::optional<hello> decode_hello(std::span<const std::byte> payload) {
  if (payload.size() < hello_tenant_at || payload.size() > maximum_handshake_bytes) return std::nullopt;
  const std::byte* const at = payload.data();
  hello decoded;
  decoded.oldest = load<std::uint16_t>(at);
  decoded.newest = load<std::uint16_t>(at + 2);
  if (decoded.oldest == 0 || decoded.oldest > decoded.newest) return std::nullopt;
  decoded.channel = load<std::uint32_t>(at + hello_channel_at);
  get(at + hello_join_at, &decoded.join);
  get(at + hello_nonce_at, &decoded.client);
  const std::size_t tenant_bytes = load<std::uint8_t>(at + hello_tenant_length_at);
  if (payload.size() - hello_tenant_at < tenant_bytes) return std::nullopt;
  decoded.tenant.assign(reinterpret_cast<const char*>(at + hello_tenant_at), tenant_bytes);
  if (!is_tenant_name(decoded.tenant)) return std::nullopt;
  return decoded;
}

std::size_t encode(const challenge& from, std::span<std::byte> to) {
  FAR_CHECK(to.size() >= maximum_handshake_bytes, "encode(challenge)");
  std::memset(to.data(), 0, challenge_bytes);
  store(from.version, to.data());
  store(static_cast<std::uint8_t>(from.token_wanted ? 1 : 0), to.data() + challenge_wanted_at);
  put(from.server, to.data() + challenge_nonce_at);
  if (from.version < 2) return first_challenge_bytes;
  put(from.identity, to.data() + challenge_identity_at);
  return challenge_bytes;
}

std::optional<challenge> decode_challenge(std::span<const std::byte> payload) {
  if (payload.size() != first_challenge_bytes && payload.size() != challenge_bytes) return std::nullopt;
  const std::byte* const at = payload.data();
  challenge decoded;
  decoded.version = load<std::uint16_t>(at);
  if (decoded.version < oldest_version || decoded.version > newest_version) return std::nullopt;
  const auto wanted = load<std::uint8_t>(at + challenge_wanted_at);
  const bool zeros = load<std::uint8_t>(at + 3) == 0 && load<std::uint32_t>(at + 4) == 0;
  if (wanted > 1 || !zeros) return std::nullopt;
  decoded.token_wanted = wanted == 1;
  if (payload.size() != (decoded.version < 2 ? first_challenge_bytes : challenge_bytes)) return std::nullopt;
  get(at + challenge_nonce_at, &decoded.server);
  if (decoded.version >= 2) get(at + challenge_identity_at, &decoded.identity);
  return decoded;
}

std::size_t encode(const welcome& from, std::span<std::byte> to, std::uint16_t version) {
  FAR_CHECK(to.size() >= maximum_handshake_bytes, "encode(welcome)");
  std::byte* const at = to.data();
  put(from.proof, at);
  put(from.session, at + welcome_session_at);
  store(from.quota_slots, at + welcome_quota_at);
  store(from.grace_ms, at + welcome_grace_at);
  store(from.maximum_outstanding, at + welcome_outstanding_at);
  if (version < 2) return first_welcome_bytes;
  store(from.lease_ms, at + welcome_lease_at);
  return welcome_bytes;
}

std::size_t encode(const unknown_session& from, std::span<std::byte> to) {
  FAR_CHECK(to.size() >= maximum_handshake_bytes, "encode(unknown_session)");
  put(from.proof, to.data());
  const std::size_t length = std::min(from.reason.size(), maximum_refusal_bytes);
  std::memcpy(to.data() + proof_bytes, from.reason.data(), length);
  return proof_bytes + length;
}

std::optional<unknown_session> decode_unknown_session(std::span<const std::byte> payload) {
  if (payload.size() < proof_bytes) return std::nullopt;
  unknown_session decoded;
  get(payload.data(), &decoded.proof);
  decoded.reason = decode_refusal(payload.subspan(proof_bytes));
  return decoded;
}

std::optional<welcome> decode_welcome(std::span<const std::byte> payload, std::uint16_t version) {
  if (payload.size() != (version < 2 ? first_welcome_bytes : welcome_bytes)) return std::nullopt;
  const std::byte* const at = payload.data();
  welcome decoded;
  get(at, &decoded.proof);
  get(at + welcome_session_at, &decoded.session);
  decoded.quota_slots = load<std::uint64_t>(at + welcome_quota_at);
  decoded.grace_ms = load<std::uint32_t>(at + welcome_grace_at);
  decoded.maximum_outstanding = load<std::uint32_t>(at + welcome_outstanding_at);
  decoded.lease_ms = version < 2 ? decoded.grace_ms : load<std::uint64_t>(at + welcome_lease_at);
  if (decoded.session == session_id{} || decoded.maximum_outstanding == 0) return std::nullopt;
  return decoded;
}

std::size_t encode_refusal(std::string_view why, std::span<std::byte> to) {
  FAR_CHECK(to.size() >= maximum_handshake_bytes, "encode_refusal");
  const std::size_t length = std::min(why.size(), maximum_refusal_bytes);
  std::memcpy(to.data(), why.data(), length);
  return length;
}

std::string decode_refusal(std::span<const std::byte> payload) {
  const std::size_t length = std::min(payload.size(), maximum_refusal_bytes);
  if (length == 0) return "no reason given";
  std::string text(reinterpret_cast<const char*>(payload.data()), length);
  for (char& letter : text) {
    if (!is_printable(letter)) letter = '?';
  }
  return text;
}

void handshake_message::set(opcode op, std::span<const std::byte> payload) {
  FAR_CHECK(payload.size() <= maximum_handshake_bytes, "handshake_message::set");
  const header head{
      .op = op, .payload_bytes = static_cast<std::uint32_t>(payload.size()), .payload_checksum = checksum(payload)};
  encode(head, std::span(bytes_).first<header_bytes>());
  std::copy(payload.begin(), payload.end(), bytes_.begin() + header_bytes);
  length_ = header_bytes + payload.size();
}

std::optional<packed_message> unpack_message(std::span<const std::byte> packet) {
  if (packet.size() < header_bytes) return std::nullopt;
  const std::optional<header> head = decode_header(packet.first<header_bytes>());
  const std::span<const std::byte> payload = packet.subspan(header_bytes);
  if (!head || head->payload_bytes != payload.size()) return std::nullopt;
  return packed_message{*head, payload};
}

digest prove(side prover, std::string_view token, std::span<const std::byte> hello_payload,
             std::span<const std::byte> challenge_payload, const std::optional<channel_binding>& channel) {
  keyed_hash hash(token);
  const std::string_view label = prover == side::client   ? client_label
                                 : prover == side::server ? server_label
                                                          : absent_label;
  hash.add(label.data(), label.size());
  hash.add_with_length(hello_payload);
  hash.add_with_length(challenge_payload);
  const bool binds = challenge_payload.size() >= sizeof(std::uint16_t) &&
                     load<std::uint16_t>(challenge_payload.data()) >= first_version_that_binds;
  if (binds) hash.add_with_length(channel ? std::span<const std::byte>(*channel) : std::span<const std::byte>());
  return hash.finish();
}

bool equal_digests(const digest& a, const digest& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void fill_random(std::span<std::byte> to) {
  while (!to.empty()) {
    const ssize_t got = getrandom(to.data(), to.size(), 0);
    FAR_CHECK(got > 0 || errno == EINTR, "the kernel gives no random bytes");
    if (got > 0) to = to.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace far::wire
