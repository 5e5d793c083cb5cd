#include <bit>
#include <cstring>
#include <span>
#include <stdexcept>

#include "apps/hints.h"
#include "site.h"

namespace web {
namespace {

constexpr std::uint32_t none = UINT32_MAX;

// A value that is about to be read.
template <typename Value>
const Value& expected(const Value& value) {
  far_hint(&value, .size = sizeof(Value));
  return value;
}

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

// Plain memory.
class front_end final : public site {
 public:
  explicit front_end(const site_options& options)
      : site(options), table_(options.keys), array_(options.elements * element_bytes) {
    for (std::uint32_t i = 0; i < options.keys; ++i) table_.insert(name_of(i), value_of(i));
    for (std::size_t at = 0; at < array_.size(); at += sizeof(std::uint64_t)) {
      const std::uint64_t word = word_of(at);
      std::memcpy(&array_[at], &word, sizeof word);
    }
  }

 private:
  [[nodiscard]] std::uint64_t serve(const request_keys& names, encoder& with) const override {
    return with.encode(&array_[element_for(table_.sum(names)) * element_bytes]);
  }

  hash_table table_;
  std::vector<std::byte> array_;
};

}  // namespace

const bool is_far = false;

std::unique_ptr<site> open_site(const site_options& options) {
  return std::make_unique<front_end>(options);
}

}  // namespace web
