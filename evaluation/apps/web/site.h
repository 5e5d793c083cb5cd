// The part that answers requests: the application of AIFM, section 8.2 (Ruan et al., OSDI 2020). A request looks up 32
// keys in a hash table. Their values choose one element of 8 KiB of an array, which is encrypted and compressed, as if
// to be sent. Programs differ in where table and array lie: in plain memory (front_end.cc) or in far containers
// (container_front_end.cc).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "zipf.h"

struct evp_cipher_ctx_st;

namespace web {

inline constexpr std::size_t keys_per_request = 32;
inline constexpr std::size_t element_bytes = 8192;

using key = std::array<char, 12>;

[[nodiscard]] key name_of(std::uint64_t number);
[[nodiscard]] inline std::uint64_t hash_of(const key& name) {
  std::uint64_t low = 0;
  std::uint32_t high = 0;
  std::memcpy(&low, name.data(), sizeof low);
  std::memcpy(&high, name.data() + sizeof low, sizeof high);
  return apps::mix(low ^ apps::mix(high));
}

// The contents of table and array.
[[nodiscard]] constexpr std::uint32_t value_of(std::uint64_t key_number) {
  return static_cast<std::uint32_t>(apps::mix(key_number));
}
// `at`: a multiple of 8, in bytes from the beginning of the array.
[[nodiscard]] constexpr std::uint64_t word_of(std::uint64_t at) {
  return apps::mix(at);
}

// The state that one thread needs to answer requests.
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

struct site_options {
  std::uint32_t keys = 2'000'000;  // fewer than 2^31
  std::uint64_t elements = 16'384;
  double zipf = 0.8;
  // Of far containers.
  unsigned threads = 2;  // that run fibers
  std::uint64_t local_bytes = std::uint64_t{64} << 20;
  std::string far = "memory:";
};

// Where those that answer requests wait for them, one for each pass.
class gate {
 public:
  virtual ~gate() = default;
  virtual void wait() = 0;
  virtual void let_pass(unsigned count) = 0;
};

// Requests are made of a number and a seed, so each kind of site answers alike.
class site {
 public:
  explicit site(const site_options& options)
      : keys_(options.keys), elements_(options.elements), ranks_(options.keys, options.zipf) {}
  virtual ~site() = default;
  site(const site&) = delete;
  site& operator=(const site&) = delete;

  // Answers request `number`, always in the same way; a hash of what would be sent. On any number of threads.
  [[nodiscard]] std::uint64_t answer(std::uint64_t number, std::uint64_t seed, encoder& with) const;

  // Those that answer: threads, or fibers on so many threads. Calls body(i) for all i below `count`, each on one of its
  // own, and meanwhile beside(); waits for all. `body` does not throw.
  [[nodiscard]] virtual std::size_t workers_on(unsigned threads) const { return threads; }
  virtual void run_workers(std::size_t count, const std::function<void(std::size_t)>& body,
                           const std::function<void()>& beside) const;
  [[nodiscard]] virtual std::unique_ptr<gate> make_gate() const;

  // What the far tier did, as JSON.
  [[nodiscard]] virtual std::string far_statistics() const { return "null"; }

 protected:
  using request_keys = std::array<key, keys_per_request>;

  // Looks the keys up, and encodes the element that the sum of their values chooses.
  [[nodiscard]] virtual std::uint64_t serve(const request_keys& names, encoder& with) const = 0;
  [[nodiscard]] std::uint64_t element_for(std::uint64_t sum) const { return apps::mix(sum) % elements_; }

 private:
  std::uint32_t keys_;
  std::uint64_t elements_;
  zipf ranks_;
};

// Whether the program's table and array are far containers, which have a budget.
extern const bool is_far;
// Fills both; contents follow from the sizes alone. Throws std::exception with a message for the user.
[[nodiscard]] std::unique_ptr<site> open_site(const site_options& options);

}  // namespace web
