// A hash table on a memory server (hash_table.cc), with the entries that were used last in local memory: for programs
// without a far::runtime. Others use far::remote_hash_map.
//
//     cached_table table("tcp://cache1:7070", cached_table::caching::inclusive, 10'000);
//     table.put("pear", "green");
//     if (const std::optional<std::string> colour = table.get("pear")) ...
#pragma once

#include <far/device.h>
#include <far/remote_table.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

// Thread-safe. The table belongs to this object, and ends with it.
class cached_table {
 public:
  enum class caching : std::uint8_t {
    // The server has every entry. A miss is a question, which any copy answers; leaving the cache costs nothing; each
    // put goes to the server.
    inclusive,
    // An entry is here or there. A put costs nothing while its key is here, and the server's room serves entries that
    // are not here; a miss brings one entry and takes others back, in one round trip. A call that throws
    // far::device_error `unreachable` may have lost the entry that it asked for.
    exclusive,
  };

  // Requires: entries > 0, the most in local memory. Throws far::device_error, as all below.
  cached_table(std::string_view tier, caching how, std::size_t entries, const far::device_options& options = {})
      : device_(tier, "hash_table", options), how_(how), most_(entries) {}

  [[nodiscard]] std::optional<std::string> get(std::string_view key) {
    const std::lock_guard guard(lock_);
    if (const auto found = index_.find(key); found != index_.end()) {
      order_.splice(order_.begin(), order_, found->second);
      return found->second->value;
    }
    ++misses_;
    std::optional<std::string> value = how_ == caching::inclusive
                                           ? answer(device_.ask(far::remote_table::get, bytes_of(key)))
                                           : take(key, room_for_one());
    if (value) keep(key, *value);
    return value;
  }

  void put(std::string_view key, std::string_view value) {
    const std::lock_guard guard(lock_);
    const auto found = index_.find(key);
    if (how_ == caching::inclusive) {
      // If the call fails, nobody knows which value the server has.
      if (found != index_.end()) forget(found->second);
      std::string both;
      add(key, value, both);
      device_.compute(far::remote_table::put, bytes_of(both));
      return keep(key, value);
    }
    if (found == index_.end()) {
      static_cast<void>(take(key, room_for_one()));  // an old entry there would come back one day
      return keep(key, value);
    }
    found->second->value = value;
    order_.splice(order_.begin(), order_, found->second);
  }

  // Whether there was such an entry.
  bool erase(std::string_view key) {
    const std::lock_guard guard(lock_);
    const auto found = index_.find(key);
    bool is_there = found != index_.end();
    if (how_ == caching::inclusive || !is_there) is_there = take(key, order_.end()).has_value() || is_there;
    if (found != index_.end()) forget(found->second);
    return is_there;
  }

  [[nodiscard]] std::uint64_t size() {
    const std::lock_guard guard(lock_);
    const std::vector<std::byte> got = device_.ask(far::remote_table::count);
    std::uint64_t there = 0;
    if (got.size() == sizeof there) std::memcpy(&there, got.data(), sizeof there);
    return how_ == caching::inclusive ? there : there + order_.size();
  }

  [[nodiscard]] std::uint64_t misses() const {
    const std::lock_guard guard(lock_);
    return misses_;
  }

 private:
  struct entry {
    std::string key;
    std::string value;
  };
  using place = std::list<entry>::iterator;

  static std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

  static void add(std::string_view text, std::string& to) {
    const auto size = static_cast<std::uint32_t>(text.size());
    to.append(reinterpret_cast<const char*>(&size), sizeof size).append(text);
  }
  static void add(std::string_view key, std::string_view value, std::string& to) {
    add(key, to);
    add(value, to);
  }

  static std::optional<std::string> answer(const std::vector<std::byte>& got) {
    if (got.empty() || got[0] == std::byte{0}) return std::nullopt;
    return std::string(reinterpret_cast<const char*>(got.data()) + 1, got.size() - 1);
  }

  // The entry that must leave for another one to come; end(): none.
  place room_for_one() { return order_.size() < most_ ? order_.end() : std::prev(order_.end()); }

  // Takes an entry from the server, and gives it another in the same round trip. That one leaves the cache only then.
  std::optional<std::string> take(std::string_view key, place given) {
    std::string arguments;
    add(key, arguments);
    if (given != order_.end()) add(given->key, given->value, arguments);
    std::optional<std::string> taken = answer(device_.compute(far::remote_table::take, bytes_of(arguments)));
    if (given != order_.end()) forget(given);
    return taken;
  }

  void keep(std::string_view key, std::string_view value) {
    if (order_.size() >= most_) forget(std::prev(order_.end()));
    order_.push_front({std::string(key), std::string(value)});
    index_.emplace(order_.front().key, order_.begin());
  }

  void forget(place which) {
    index_.erase(which->key);
    order_.erase(which);
  }

  mutable std::mutex lock_;
  far::device device_;
  const caching how_;
  const std::size_t most_;
  std::list<entry> order_;  // the last used first
  std::unordered_map<std::string_view, place> index_;
  std::uint64_t misses_ = 0;
};
