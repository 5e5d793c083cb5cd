// The calls of far::remote_hash_map: its table on a server (far/remote_table.h), and what is on the way there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "far/detail/table_bytes.h"
#include "far/device.h"
#include "far/fiber.h"
#include "far/remote_table.h"

namespace far::detail {

// All of these throw device_error. Requires: callers take turns.
//
// For exclusive maps it holds the entries that have *left* the map's cache and are not at the table yet. Entries go and
// come by exchanges. One whose answer has not come is repeated before anything else, with its number, so that it
// happens once and the entries that it has taken are not lost.
class table_client {
 public:
  using values = std::unordered_map<std::string, std::string>;
  using key_list = std::vector<std::string_view>;

  explicit table_client(device& at) : device_(at) {}

  // The entries of exclusive maps that have left, too.
  [[nodiscard]] std::size_t size() {
    finish();
    const std::vector<std::byte> said = call([&] { return device_.ask(remote_table::count); });
    return table_result(said).number<std::uint64_t>() + left_.size();
  }
  void clear() {
    finish();
    static_cast<void>(call([&] { return device_.compute(remote_table::clear); }));
    left_.clear();
    left_bytes_ = 0;
  }
  [[nodiscard]] std::uint64_t calls() const { return calls_; }

  // ---- for inclusive maps ----

  // Adds what the table has of these keys.
  void ask(std::span<const std::string_view> keys, values& into) {
    while (!keys.empty()) {
      std::string arguments;
      const std::size_t asked = append_keys(keys, arguments);
      const std::vector<std::byte> said =
          call([&] { return device_.ask(remote_table::get_many, std::as_bytes(std::span(arguments))); });
      table_result result(said);
      const std::size_t answered = count_of_answers(result, asked);
      for (const std::string_view key : keys.first(answered)) {
        if (const auto found = result.answer()) into.insert_or_assign(std::string(key), std::string(*found));
      }
      keys = keys.subspan(answered);
    }
  }
  // Returns whether the key is new.
  bool put(std::string_view key, std::string_view value) {
    std::string arguments;
    append_text(key, arguments);
    append_text(value, arguments);
    const std::vector<std::byte> said =
        call([&] { return device_.compute(remote_table::put, std::as_bytes(std::span(arguments))); });
    return table_result(said).number<std::uint64_t>() > 0;
  }
  // Removes the entry. Returns whether there was one.
  bool take(std::string_view key) {
    std::string arguments;
    append_text(key, arguments);
    const std::vector<std::byte> said =
        call([&] { return device_.compute(remote_table::take, std::as_bytes(std::span(arguments))); });
    return table_result(said).number<std::uint8_t>() > 0;
  }

  // ---- for exclusive maps ----

  // Repeats an exchange without an answer. Call it before entries of the cache are added or removed.
  void finish() {
    if (unfinished_) static_cast<void>(go_on());
  }
  // Takes what the table has of these keys into what has left.
  void fetch(key_list keys) {
    finish();
    key_set kept;  // by this side, since they are asked for
    for (const std::string_view key : keys) kept.insert(key);
    std::erase_if(keys, [this](std::string_view key) { return left_.contains(std::string(key)); });
    for (std::span<const std::string_view> rest = keys; !rest.empty();) rest = rest.subspan(exchange(rest, kept));
  }
  // An entry that has left the cache.
  void add(std::string key, std::string value) {
    drop(key);
    const std::size_t bytes = key.size() + value.size();
    left_.emplace(std::move(key), std::move(value));
    left_bytes_ += bytes;
  }
  [[nodiscard]] const std::string* find(const std::string& key) const {
    const auto found = left_.find(key);
    return found == left_.end() ? nullptr : &found->second;
  }
  // Empty: it is not among those that have left.
  [[nodiscard]] values::node_type extract(const std::string& key) {
    values::node_type node = left_.extract(key);
    if (!node.empty()) left_bytes_ -= node.key().size() + node.mapped().size();
    return node;
  }
  void put_back(values::node_type node) {
    const std::size_t bytes = node.key().size() + node.mapped().size();
    if (left_.insert(std::move(node)).inserted) left_bytes_ += bytes;
  }
  // Removes the entry from the table or from what has left. Returns whether there was one.
  bool erase(const std::string& key) {
    fetch({key});
    return drop(key);
  }
  // Sends what has left to the table if that is much.
  void give_if_many() {
    while (left_bytes_ > most_left_bytes) static_cast<void>(exchange({}, {}));
  }
  [[nodiscard]] std::size_t left() const { return left_.size(); }

 private:
  static constexpr std::size_t most_left_bytes = std::size_t{256} << 10;

  using key_set = std::unordered_set<std::string_view>;

  struct unfinished_exchange {
    std::string arguments;
    std::vector<std::string> keys;
    std::vector<std::string> given;
  };

  template <typename Call>
  [[nodiscard]] std::vector<std::byte> call(Call call_device) {
    ++calls_;
    return blocking(call_device);
  }

  // As many as fit, and one in any case. Returns how many.
  static std::size_t append_keys(std::span<const std::string_view> keys, std::string& to) {
    const std::size_t most = to.size() + remote_table::most_entry_bytes;
    std::size_t appended = 0;
    while (appended < keys.size() && (appended == 0 || to.size() + text_bytes(keys[appended]) <= most)) {
      append_text(keys[appended++], to);
    }
    return appended;
  }
  [[nodiscard]] static std::size_t count_of_answers(table_result& result, std::size_t asked) {
    const auto answered = result.number<std::uint32_t>();
    if (answered > asked || (answered == 0 && asked > 0)) {
      throw device_error(device_error::reason::refused, "the plugin does not answer as a hash table does");
    }
    return answered;
  }

  // Takes entries of the first keys, as many as fit, and gives what has left but for those that are kept, in one round
  // trip. Returns how many keys were answered.
  std::size_t exchange(std::span<const std::string_view> keys, const key_set& kept) {
    begin(keys, true, kept);
    try {
      return go_on();
    } catch (const device_error& why) {
      // It has no room for what it is given. What it is asked for makes some.
      if (why.why() != device_error::reason::refused || keys.empty()) throw;
    }
    begin(keys, false, kept);
    return go_on();
  }
  void begin(std::span<const std::string_view> keys, bool gives, const key_set& kept) {
    unfinished_exchange next;
    append_number(exchanges_ + 1, next.arguments);
    std::string asked;
    const std::size_t taken = append_keys(keys, asked);
    append_number(static_cast<std::uint32_t>(taken), next.arguments);
    next.arguments.append(asked);
    next.keys.assign(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(taken));
    for (auto one = left_.begin(); gives && one != left_.end(); ++one) {
      const auto& [key, value] = *one;
      if (kept.contains(key)) continue;
      if (next.arguments.size() + text_bytes(key) + text_bytes(value) > device::most_bytes) break;
      append_text(key, next.arguments);
      append_text(value, next.arguments);
      next.given.push_back(key);
    }
    unfinished_ = std::move(next);
    ++exchanges_;
  }
  [[nodiscard]] std::size_t go_on() {
    std::vector<std::byte> said;
    try {
      said = call(
          [&] { return device_.compute(remote_table::exchange, std::as_bytes(std::span(unfinished_->arguments))); });
    } catch (const device_error& why) {
      if (why.why() == device_error::reason::refused) unfinished_.reset();  // then nothing has happened
      throw;
    }
    table_result result(said);
    const std::size_t answered = count_of_answers(result, unfinished_->keys.size());
    for (std::size_t i = 0; i < answered; ++i) {
      if (const auto found = result.answer()) add(unfinished_->keys[i], std::string(*found));
    }
    for (const std::string& key : unfinished_->given) drop(key);
    unfinished_.reset();
    return answered;
  }
  bool drop(const std::string& key) { return !extract(key).empty(); }

  device& device_;
  std::uint64_t calls_ = 0;
  values left_;
  std::size_t left_bytes_ = 0;
  std::uint64_t exchanges_ = 0;
  std::optional<unfinished_exchange> unfinished_;
};

}  // namespace far::detail
