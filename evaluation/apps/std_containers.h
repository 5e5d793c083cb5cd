// The standard library's containers, tasks and locks under the names that Farheap's have, as far as the programs here
// use them. They show the cost of a program that keeps everything in local memory. See containers.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <mutex>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace memory {

// Without a budget and a far tier.
struct runtime_options {
  std::size_t local_bytes = 0;
  std::string far;
  unsigned workers = 0;
};

// A thread of its own.
template <typename T = void>
class task {
 public:
  explicit task(std::future<T>&& running) : running_(std::move(running)) {}
  void wait() { running_.wait(); }
  T join() { return running_.get(); }

 private:
  std::future<T> running_;
};

struct runtime {
  explicit runtime(const runtime_options& /*chosen*/) {}
  template <typename F>
  [[nodiscard]] task<std::invoke_result_t<std::decay_t<F>>> spawn(F&& body) {
    return task<std::invoke_result_t<std::decay_t<F>>>(std::async(std::launch::async, std::forward<F>(body)));
  }
};

struct tag {
  tag(runtime& in) : home_(&in) {}
  [[nodiscard]] runtime& home() const { return *home_; }

 private:
  runtime* home_;
};

// Nothing moves, so there is nothing to hold.
struct scope {
  explicit scope(runtime& /*home*/) {}
};

// The second argument groups elements of the far one.
template <typename T, std::size_t = 0>
class vector {
 public:
  explicit vector(const tag& in) : in_(in) {}
  vector(const tag& in, std::size_t count) : in_(in), all_(count) {}

  [[nodiscard]] const tag& home() const { return in_; }
  [[nodiscard]] std::size_t size() const { return all_.size(); }
  [[nodiscard]] bool empty() const { return all_.empty(); }
  void reserve(std::size_t count) { all_.reserve(count); }
  void resize(std::size_t count) { all_.resize(count); }
  void clear() { all_ = {}; }
  void push_back(const T& value) { all_.push_back(value); }
  template <std::ranges::input_range Range>
  void append(Range&& values) {
    all_.insert(all_.end(), std::ranges::begin(values), std::ranges::end(values));
  }

  [[nodiscard]] T read(std::size_t index) const { return all_.at(index); }
  void write(std::size_t index, const T& value) { all_.at(index) = value; }
  [[nodiscard]] const T& deref(const scope& /*in*/, std::size_t index) const { return all_[index]; }
  [[nodiscard]] T& deref_mut(const scope& /*in*/, std::size_t index) { return all_[index]; }
  [[nodiscard]] std::span<const T> range(const scope& /*in*/) const { return all_; }
  [[nodiscard]] std::span<T> range_mut(const scope& /*in*/) { return all_; }
  [[nodiscard]] std::span<const T> chunk(const scope& /*in*/, std::size_t first, std::size_t at_most = SIZE_MAX) const {
    return std::span(all_).subspan(first, std::min(at_most, all_.size() - first));
  }
  [[nodiscard]] std::span<T> chunk_mut(const scope& /*in*/, std::size_t first, std::size_t at_most = SIZE_MAX) {
    return std::span(all_).subspan(first, std::min(at_most, all_.size() - first));
  }

 private:
  tag in_;
  std::vector<T> all_;
};

class string : public std::string {
 public:
  string() = default;
  string(const tag& /*in*/, std::string_view text) : std::string(text) {}
  void assign(const tag& /*in*/, std::string_view text) { std::string::assign(text); }
  [[nodiscard]] const std::string& str() const { return *this; }
};

struct string_hash {
  using is_transparent = void;
  [[nodiscard]] std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

struct hash_map_limits {
  std::size_t bytes = SIZE_MAX;
};

namespace detail {

template <typename T, typename Value>
T make(const tag& in, Value&& value) {
  if constexpr (std::is_constructible_v<T, const tag&, Value>) {
    return T(in, std::forward<Value>(value));
  } else {
    return T(std::forward<Value>(value));
  }
}

template <typename T>
std::size_t bytes_of(const T& value) {
  if constexpr (std::is_base_of_v<std::string, T>) return sizeof(T) + value.size();
  return sizeof(T);
}

}  // namespace detail

// For many threads at a time, as the far one: in shards, each with a lock. With a limit, a shard's entries leave in the
// order of their coming, but once more when they have been used since.
template <typename K, typename V, typename Hash = std::hash<K>, typename Equal = std::equal_to<>>
class hash_map {
 public:
  using eviction_callback = std::function<void(const K&, const V&)>;
  using copy_type = std::conditional_t<std::is_same_v<V, string>, std::string, V>;

  explicit hash_map(const tag& in, hash_map_limits limits = {}, eviction_callback on_eviction = {})
      : in_(in), limit_(limits.bytes), on_eviction_(std::move(on_eviction)) {}

  [[nodiscard]] const tag& home() const { return in_; }
  [[nodiscard]] std::size_t size() const {
    return sum([](const shard& one) { return one.index.size(); });
  }
  [[nodiscard]] std::size_t entry_bytes() const {
    return sum([](const shard& one) { return one.bytes; });
  }

  // In place. Requires that nobody changes the map meanwhile.
  template <typename Q>
  [[nodiscard]] const V* find(const scope& /*in*/, const Q& key) const {
    const shard& in = shard_of(key);
    const auto found = in.index.find(key);
    return found == in.index.end() ? nullptr : &found->second.value;
  }
  template <typename Q>
  void find_many(const scope& in, std::span<const Q> keys, std::span<const V*> values) const {
    for (std::size_t i = 0; i < keys.size(); ++i) values[i] = find(in, keys[i]);
  }

  template <typename Q>
  [[nodiscard]] std::optional<copy_type> get(const Q& key) const {
    shard& in = shard_of(key);
    const std::lock_guard guard(in.lock);
    const auto found = in.index.find(key);
    if (found == in.index.end()) return std::nullopt;
    found->second.used = true;
    return std::optional<copy_type>(std::in_place, found->second.value);
  }

  template <typename Q, typename Value>
  bool insert(Q&& key, Value&& value) {
    return add<false>(std::forward<Q>(key), std::forward<Value>(value));
  }
  template <typename Q, typename Value>
  bool put(Q&& key, Value&& value) {
    return add<true>(std::forward<Q>(key), std::forward<Value>(value));
  }
  template <typename Q, std::invocable<V&> Change>
  bool update(const Q& key, Change change) {
    shard& in = shard_of(key);
    const std::lock_guard guard(in.lock);
    const auto found = in.index.find(key);
    if (found == in.index.end()) return false;
    in.bytes -= bytes_of(*found);
    change(found->second.value);
    in.bytes += bytes_of(*found);
    found->second.used = true;
    return true;
  }
  template <typename Q>
  bool erase(const Q& key) {
    shard& in = shard_of(key);
    const std::lock_guard guard(in.lock);
    const auto found = in.index.find(key);
    if (found == in.index.end()) return false;
    take_out(in, found);
    return true;
  }
  template <std::invocable<const K&, const V&> Visit>
  void for_each(Visit visit) const {
    for (shard& one : shards_) {
      const std::lock_guard guard(one.lock);
      for (const auto& [key, found] : one.index) visit(key, found.value);
    }
  }

 private:
  struct entry {
    V value;
    bool used = false;
    std::list<const K*>::iterator place = {};  // in the order, when there is a limit
  };
  using index_map = std::unordered_map<K, entry, Hash, Equal>;
  struct shard {
    std::mutex lock;
    index_map index;
    std::list<const K*> order;  // of their coming
    std::size_t bytes = 0;
  };

  [[nodiscard]] static std::size_t bytes_of(const typename index_map::value_type& one) {
    return detail::bytes_of(one.first) + detail::bytes_of(one.second.value);
  }
  [[nodiscard]] bool is_limited() const { return limit_ != SIZE_MAX; }
  template <typename Q>
  [[nodiscard]] shard& shard_of(const Q& key) const {
    return shards_[(Hash()(key) * 0x9e3779b97f4a7c15u) >> 58];
  }
  template <typename Count>
  [[nodiscard]] std::size_t sum(Count count) const {
    std::size_t all = 0;
    for (shard& one : shards_) {
      const std::lock_guard guard(one.lock);
      all += count(one);
    }
    return all;
  }

  template <bool Replaces, typename Q, typename Value>
  bool add(Q&& key, Value&& value) {
    shard& in = shard_of(key);
    const std::lock_guard guard(in.lock);
    auto found = in.index.find(key);
    const bool is_new = found == in.index.end();
    if (!is_new && !Replaces) return false;
    if (is_new) {
      found = in.index.emplace(detail::make<K>(in_, std::forward<Q>(key)), entry{V()}).first;
      if (is_limited()) found->second.place = in.order.insert(in.order.end(), &found->first);
    } else {
      in.bytes -= bytes_of(*found);
    }
    found->second.value = detail::make<V>(in_, std::forward<Value>(value));
    in.bytes += bytes_of(*found);
    while (in.bytes > limit_ / shards_.size() && in.order.size() > 1) evict_one(in);
    return is_new;
  }
  void evict_one(shard& in) {
    while (true) {
      const auto oldest = in.index.find(*in.order.front());
      if (!oldest->second.used) {
        if (on_eviction_) on_eviction_(oldest->first, oldest->second.value);
        return take_out(in, oldest);
      }
      oldest->second.used = false;
      in.order.splice(in.order.end(), in.order, in.order.begin());
    }
  }
  void take_out(shard& in, typename index_map::iterator one) {
    in.bytes -= bytes_of(*one);
    if (is_limited()) in.order.erase(one->second.place);
    in.index.erase(one);
  }

  tag in_;
  std::size_t limit_;
  eviction_callback on_eviction_;
  mutable std::array<shard, 64> shards_;
};

}  // namespace memory
