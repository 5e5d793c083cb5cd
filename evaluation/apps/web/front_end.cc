#include "front_end.h"

#include <openssl/evp.h>
#include <snappy.h>

#include <bit>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "apps/hints.h"

namespace web {
namespace {

constexpr std::uint32_t none = UINT32_MAX;
// Ranks are scattered over the keys by a prime above any number of keys, so that hot keys are not neighbours.
constexpr std::uint64_t scatter = 4'294'967'291;
constexpr unsigned char cipher_key[17] = "farheap-web-demo";
constexpr unsigned char cipher_start[17] = "0123456789abcdef";

key name_of(std::uint64_t number) {
  char text[13];
  std::snprintf(text, sizeof text, "%012llu", static_cast<unsigned long long>(number));
  key name;
  std::memcpy(name.data(), text, name.size());
  return name;
}

std::uint64_t hash_of(const key& name) {
  std::uint64_t low = 0;
  std::uint32_t high = 0;
  std::memcpy(&low, name.data(), sizeof low);
  std::memcpy(&high, name.data() + sizeof low, sizeof high);
  return apps::mix(low ^ apps::mix(high));
}

std::uint64_t hash_of(const char* bytes, std::size_t count) {
  std::uint64_t hash = count;
  for (; count >= 8; bytes += 8, count -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes, sizeof word);
    hash = std::rotl(hash, 27) * 0x9e3779b97f4a7c15u + word;
  }
  std::uint64_t rest = 0;
  if (count > 0) std::memcpy(&rest, bytes, count);
  return apps::mix(hash + rest);
}

// What is about to be read.
template <typename Value>
const Value& expected(const Value& value) {
  far_hint(&value, .size = sizeof(Value));
  return value;
}

}  // namespace

hash_table::hash_table(std::uint32_t capacity) : buckets_(std::bit_ceil(capacity), none) {
  nodes_.reserve(capacity);
}

void hash_table::insert(const key& name, std::uint32_t value) {
  std::uint32_t& first = buckets_[hash_of(name) & (buckets_.size() - 1)];
  nodes_.push_back({name, value, first});
  first = static_cast<std::uint32_t>(nodes_.size() - 1);
}

std::uint64_t hash_table::sum(std::span<const key, keys_per_request> names) const {
  std::array<const std::uint32_t*, keys_per_request> buckets;
  for (std::size_t i = 0; i < names.size(); ++i) {
    buckets[i] = &buckets_[hash_of(names[i]) & (buckets_.size() - 1)];
    far_hint(buckets[i], .prefetch = true);
  }
  std::array<std::uint32_t, keys_per_request> first;
  for (std::size_t i = 0; i < names.size(); ++i) {
    first[i] = expected(*buckets[i]);
    if (first[i] != none) far_hint(&nodes_[first[i]], .size = sizeof(node), .prefetch = true);
  }
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < names.size(); ++i) sum += find(names[i], first[i]);
  return sum;
}

std::uint32_t hash_table::find(const key& name, std::uint32_t first) const {
  for (std::uint32_t i = first; i != none; i = nodes_[i].next) {
    if (expected(nodes_[i]).name == name) return nodes_[i].value;
  }
  throw std::logic_error("web: a key that was inserted is not in the table");
}

void encoder::release::operator()(evp_cipher_ctx_st* context) const {
  EVP_CIPHER_CTX_free(context);
}

encoder::encoder()
    : context_(EVP_CIPHER_CTX_new()),
      encrypted_(element_bytes + EVP_MAX_BLOCK_LENGTH),
      compressed_(snappy::MaxCompressedLength(encrypted_.size())) {}

std::uint64_t encoder::encode(const std::byte* element) {
  int body = 0;
  int tail = 0;
  auto* const out = reinterpret_cast<unsigned char*>(encrypted_.data());
  // An element is used once, and the next request wants another one.
  far_hint(element, .size = element_bytes, .eviction_priority = 3);
  if (EVP_EncryptInit_ex(context_.get(), EVP_aes_128_cbc(), nullptr, cipher_key, cipher_start) != 1 ||
      EVP_EncryptUpdate(context_.get(), out, &body, reinterpret_cast<const unsigned char*>(element), element_bytes) !=
          1 ||
      EVP_EncryptFinal_ex(context_.get(), out + body, &tail) != 1) {
    throw std::runtime_error("web: OpenSSL cannot encrypt with AES-128-CBC; is it built without it?");
  }
  std::size_t bytes = 0;
  snappy::RawCompress(encrypted_.data(), static_cast<std::size_t>(body + tail), compressed_.data(), &bytes);
  return hash_of(compressed_.data(), bytes);
}

front_end::front_end(std::uint32_t keys, std::uint64_t elements, double zipf_exponent)
    : keys_(keys), elements_(elements), ranks_(keys, zipf_exponent), table_(keys), array_(elements * element_bytes) {
  for (std::uint32_t i = 0; i < keys; ++i) table_.insert(name_of(i), static_cast<std::uint32_t>(apps::mix(i)));
  for (std::size_t at = 0; at < array_.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = apps::mix(at);
    std::memcpy(&array_[at], &word, sizeof word);
  }
}

std::uint64_t front_end::answer(std::uint64_t number, std::uint64_t seed, encoder& with) const {
  apps::random_words random(apps::mix(seed) + number);
  std::array<key, keys_per_request> names;
  for (key& name : names) name = name_of(ranks_.draw(random) * scatter % keys_);
  const std::uint64_t element = apps::mix(table_.sum(names)) % elements_;
  return apps::mix(number) ^ with.encode(&array_[element * element_bytes]);
}

}  // namespace web
