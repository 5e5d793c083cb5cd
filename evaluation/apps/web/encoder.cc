#include <openssl/evp.h>
#include <snappy.h>

#include <bit>
#include <stdexcept>

#include "apps/hints.h"
#include "site.h"

namespace web {
namespace {

constexpr unsigned char cipher_key[17] = "farheap-web-demo";
constexpr unsigned char cipher_start[17] = "0123456789abcdef";

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

}  // namespace

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

}  // namespace web
