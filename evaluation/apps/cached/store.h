// The items, by key. Programs differ in where they lie: in plain memory (shard_store.cc) or in containers
// (container_store.cc).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "item.h"

namespace cached {

// Seconds since a moment shortly before the start, as in memcached, so that 0 is no time and the past has numbers.
class coarse_clock {
 public:
  coarse_clock();
  [[nodiscard]] std::uint32_t now() const;
  [[nodiscard]] std::uint32_t uptime() const { return now() - before_start; }

  // The second at which something expires that the protocol says so of: 0 never, negative at once, up to 30 days from
  // now, else a Unix time.
  [[nodiscard]] std::uint32_t expiry(std::int32_t requested) const;

 private:
  static constexpr std::uint32_t before_start = 2;
  std::int64_t started_monotonic_;
  std::int64_t started_unix_;
};

enum class store_mode { set, add, replace, append, prepend, cas };
enum class store_outcome { stored, not_stored, exists, not_found };
enum class count_outcome { counted, not_found, not_a_number, no_memory };

// Since the start, or the last reset.
struct counters {
  std::atomic<std::uint64_t> gets, get_hits, get_misses, get_expired, get_flushed, sets, flushes, touches, touch_hits,
      touch_misses, delete_hits, delete_misses, incr_hits, incr_misses, decr_hits, decr_misses, cas_hits, cas_misses,
      cas_bad, evictions, total_items, too_large;
  void reset();
};

// An item as a reader sees it.
struct found_item {
  std::uint32_t flags;
  std::uint64_t cas;
  std::string_view line;  // the value, with its "\r\n"
};

struct store_options {
  std::size_t limit_bytes = std::size_t{64} << 20;
  // Of far containers.
  std::size_t local_bytes = std::size_t{64} << 20;
  std::string far = "memory:";
};

// On any number of threads.
class store {
 public:
  explicit store(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}
  virtual ~store() = default;
  store(const store&) = delete;
  store& operator=(const store&) = delete;

  // Calls `with` if the key is there. It must not use the store.
  virtual bool get(std::string_view key, const std::function<void(const found_item&)>& with) = 0;
  // `cas` is the unique number that the item must have, with store_mode::cas.
  virtual store_outcome put(item_ptr incoming, store_mode mode, std::uint64_t cas = 0) = 0;
  virtual bool remove(std::string_view key) = 0;
  // The same, but not counted as a delete.
  virtual void drop(std::string_view key) = 0;
  virtual bool touch(std::string_view key, std::uint32_t expires) = 0;
  // Adds or subtracts; sets the result. Sums wrap, differences end at 0.
  virtual count_outcome count(std::string_view key, bool up, std::uint64_t delta, std::uint64_t& result) = 0;
  [[nodiscard]] virtual std::size_t bytes() const = 0;
  [[nodiscard]] virtual std::size_t items() const = 0;

  // Everything stored until the second `at` is gone from then on; 0: everything, now.
  void flush(std::uint32_t at);

  [[nodiscard]] const coarse_clock& clock() const { return clock_; }
  [[nodiscard]] std::size_t limit_bytes() const { return limit_bytes_; }
  counters seen{};

 protected:
  enum class state { live, expired, flushed };
  [[nodiscard]] state state_of(std::uint64_t cas, std::uint32_t stored, std::uint32_t expires) const;
  [[nodiscard]] std::uint64_t next_cas() { return last_cas_.fetch_add(1, std::memory_order_relaxed) + 1; }

  // Count what was looked for, and whether it was there.
  bool seen_get(bool found);
  bool seen_delete(bool found);
  bool seen_touch(bool found);
  void seen_gone(state its);
  // The new number of a value, which ends with a NUL. None: the value is no number.
  [[nodiscard]] std::optional<std::uint64_t> counted(const char* value, bool up, std::uint64_t delta);
  // Whether the mode allows a value to be stored where there is one with that number, or none (0), and counts it.
  [[nodiscard]] store_outcome judge(store_mode mode, std::uint64_t present, std::uint64_t wanted);

 private:
  coarse_clock clock_;
  std::size_t limit_bytes_;
  std::atomic<std::uint64_t> last_cas_{0};
  std::atomic<std::uint64_t> flushed_cas_{0};     // items with this number or a lower one are gone
  std::atomic<std::uint32_t> flushed_second_{0};  // those stored until then are, once it has come; 0: none
};

// Whether items are in far containers, which have a budget; and in which memory, for people.
extern const bool is_far;
extern const char* const memory_name;
// Throws std::exception with a message for the user.
[[nodiscard]] std::unique_ptr<store> open_store(const store_options& options);

}  // namespace cached
