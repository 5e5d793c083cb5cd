// Items in a hash map, far or of the standard library: the key, and a text of a header and the value.
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <functional>
#include <mutex>

#include "apps/containers.h"
#include "store.h"

namespace cached {
namespace {

struct header {
  std::uint64_t cas;
  std::uint32_t flags;
  std::uint32_t expires;
  std::uint32_t stored;
};

std::string text_of(const header& head, std::string_view line) {
  std::string text(sizeof head, '\0');
  std::memcpy(text.data(), &head, sizeof head);
  return text.append(line);
}

// An item that was copied out of the map.
struct copied_item {
  explicit copied_item(std::string&& copy) : text(std::move(copy)) { std::memcpy(&head, text.data(), sizeof head); }

  [[nodiscard]] const char* value_begin() const { return text.data() + sizeof(header); }
  [[nodiscard]] std::string_view line() const { return std::string_view(text).substr(sizeof(header)); }
  [[nodiscard]] std::string_view value() const { return line().substr(0, line().size() - 2); }

  header head;
  std::string text;
};

class container_store final : public store {
 public:
  explicit container_store(const store_options& options)
      : store(options.limit_bytes),
        runtime_({.local_bytes = options.local_bytes, .far = options.far}),
        map_(runtime_, {.bytes = options.limit_bytes},
             [this](const memory::string& /*key*/, const memory::string& /*text*/) { ++seen.evictions; }) {}

  bool get(std::string_view key, const std::function<void(const found_item&)>& with) override {
    std::optional<copied_item> found = copy_of(key);
    if (found && state_of(*found) != state::live) {
      seen_gone(state_of(*found));
      found.reset();
    }
    if (!seen_get(found.has_value())) return false;
    with({found->head.flags, found->head.cas, found->line()});
    return true;
  }

  store_outcome put(item_ptr incoming, store_mode mode, std::uint64_t cas) override {
    const std::lock_guard guard(writers_of(incoming->key()));
    std::string_view line = incoming->line();
    header head = {0, incoming->flags, incoming->expires, clock().now()};
    std::string joined;
    // Nothing depends on the present item when it is replaced anyway.
    const std::optional<copied_item> present = mode == store_mode::set ? std::nullopt : live(incoming->key());
    const store_outcome judged = judge(mode, present ? present->head.cas : 0, cas);
    if (judged != store_outcome::stored) return judged;
    if (mode == store_mode::append || mode == store_mode::prepend) {
      if (!fits(incoming->key_bytes, present->value().size() + incoming->value_bytes)) return store_outcome::not_stored;
      joined = mode == store_mode::append ? std::string(present->value()).append(line)
                                          : std::string(incoming->value()).append(present->line());
      line = joined;
      head.flags = present->head.flags;
      head.expires = present->head.expires;
    }
    head.cas = next_cas();
    map_.put(incoming->key(), text_of(head, line));
    ++seen.total_items;
    return store_outcome::stored;
  }

  bool remove(std::string_view key) override {
    const std::lock_guard guard(writers_of(key));
    const bool found = live(key).has_value();
    map_.erase(key);
    return seen_delete(found);
  }

  void drop(std::string_view key) override {
    const std::lock_guard guard(writers_of(key));
    map_.erase(key);
  }

  bool touch(std::string_view key, std::uint32_t expires) override {
    const std::lock_guard guard(writers_of(key));
    const std::optional<copied_item> found = live(key);
    if (!seen_touch(found.has_value())) return false;
    header head = found->head;
    head.expires = expires;
    map_.put(key, text_of(head, found->line()));
    return true;
  }

  count_outcome count(std::string_view key, bool up, std::uint64_t delta, std::uint64_t& result) override {
    const std::lock_guard guard(writers_of(key));
    const std::optional<copied_item> found = live(key);
    if (!found) {
      ++(up ? seen.incr_misses : seen.decr_misses);
      return count_outcome::not_found;
    }
    const std::optional<std::uint64_t> number = counted(found->value_begin(), up, delta);
    if (!number) return count_outcome::not_a_number;
    result = *number;
    header head = found->head;
    head.cas = next_cas();
    // As memcached does: a number that has become shorter is filled up with spaces.
    map_.put(key, text_of(head, fmt::format("{:<{}}\r\n", result, found->value().size())));
    return count_outcome::counted;
  }

  [[nodiscard]] std::size_t bytes() const override { return map_.entry_bytes(); }
  [[nodiscard]] std::size_t items() const override { return map_.size(); }

 private:
  [[nodiscard]] state state_of(const copied_item& one) const {
    return store::state_of(one.head.cas, one.head.stored, one.head.expires);
  }
  [[nodiscard]] std::optional<copied_item> copy_of(std::string_view key) const {
    std::optional<std::string> text = map_.get(key);
    if (!text) return std::nullopt;
    return copied_item(std::move(*text));
  }
  [[nodiscard]] std::optional<copied_item> live(std::string_view key) const {
    std::optional<copied_item> found = copy_of(key);
    if (found && state_of(*found) != state::live) found.reset();
    return found;
  }

  // Writers of one key take turns, so that a command replaces what it has read. Readers hold nothing up.
  [[nodiscard]] std::mutex& writers_of(std::string_view key) {
    return writers_[std::hash<std::string_view>()(key) % writers_.size()];
  }

  memory::runtime runtime_;
  memory::hash_map<memory::string, memory::string, memory::string_hash> map_;
  std::array<std::mutex, 256> writers_;
};

}  // namespace

const bool is_far = apps::is_far;
const char* const memory_name = apps::is_far ? "far containers" : "the standard library's containers";

std::unique_ptr<store> open_store(const store_options& options) {
  return std::make_unique<container_store>(options);
}

}  // namespace cached
