// The data of the front end, and one request. The application of AIFM, section 8.2 (Ruan et al., OSDI 2020): a request
// looks up 32 keys in a hash table; what it finds chooses one element of 8 KiB of an array, which is encrypted and
// compressed, as if to be sent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "zipf.h"

struct evp_cipher_ctx_st;

namespace web {

inline constexpr std::size_t keys_per_request = 32;
inline constexpr std::size_t element_bytes = 8192;

using key = std::array<char, 12>;

// Keys to values, chained: a bucket holds the index of its first node, a node that of the next. Plain memory.
class hash_table {
 public:
  explicit hash_table(std::uint32_t capacity);

  // Requires a key that is not there, and room for it.
  void insert(const key& name, std::uint32_t value);

  // The sum of the values of a request's keys; requires that they are there.
  [[nodiscard]] std::uint64_t sum(std::span<const key, keys_per_request> names) const;

 private:
  struct node {
    key name;
    std::uint32_t value;
    std::uint32_t next;
  };

  // The value of a key in the chain that begins at node `first`.
  [[nodiscard]] std::uint32_t find(const key& name, std::uint32_t first) const;

  std::vector<std::uint32_t> buckets_;
  std::vector<node> nodes_;
};

// What one thread needs to answer requests.
class encoder {
 public:
  encoder();

  // AES-128-CBC, then Snappy; a hash of the result. Throws std::runtime_error if OpenSSL fails.
  std::uint64_t encode(const std::byte* element);

 private:
  struct release {
    void operator()(evp_cipher_ctx_st* context) const;
  };

  std::unique_ptr<evp_cipher_ctx_st, release> context_;
  std::vector<char> encrypted_;
  std::vector<char> compressed_;
};

class front_end {
 public:
  // Fills both; contents follow from the sizes alone. Requires at least one of each, and fewer than 2^31 keys.
  front_end(std::uint32_t keys, std::uint64_t elements, double zipf_exponent);

  // Answers request `number`, always in the same way; a hash of what would be sent.
  std::uint64_t answer(std::uint64_t number, std::uint64_t seed, encoder& with) const;

 private:
  std::uint32_t keys_;
  std::uint64_t elements_;
  zipf ranks_;
  hash_table table_;
  std::vector<std::byte> array_;
};

}  // namespace web
