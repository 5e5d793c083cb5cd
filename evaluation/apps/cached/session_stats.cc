// The command stats: the names that memcached's clients look at.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <ctime>

#include "session.h"

namespace cached {

template <typename Value>
void session::write_stat(std::string_view name, const Value& value) {
  fmt::format_to(std::back_inserter(output_), "STAT {} {}\r\n", name, value);
}

void session::execute_stats(const command_line& words) {
  const std::string_view topic = words.word(1);
  if (topic.empty()) {
    write_general_stats();
  } else if (topic == "settings") {
    write_settings();
  } else if (topic == "reset") {
    items_.seen.reset();
    return reply("RESET");
  } else if (topic != "items" && topic != "slabs" && topic != "conns") {
    return reply("ERROR");
  }
  // Of slabs and the like there are none to be listed.
  reply("END");
}

void session::write_settings() {
  write_stat("maxbytes", items_.limit_bytes());
  write_stat("maxconns", facts_.connection_limit);
  write_stat("evictions", "on");
  write_stat("num_threads", facts_.threads);
  write_stat("cas_enabled", "yes");
  write_stat("item_size_max", item_limit);
  write_stat("flush_enabled", "yes");
}

void session::write_general_stats() {
  const counters& seen = items_.seen;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  write_stat("pid", getpid());
  write_stat("uptime", items_.clock().uptime());
  write_stat("time", std::time(nullptr));
  write_stat("version", version_text);
  write_stat("pointer_size", 64);
  write_stat("rusage_user", fmt::format("{}.{:06}", usage.ru_utime.tv_sec, usage.ru_utime.tv_usec));
  write_stat("rusage_system", fmt::format("{}.{:06}", usage.ru_stime.tv_sec, usage.ru_stime.tv_usec));
  write_stat("max_connections", facts_.connection_limit);
  write_stat("curr_connections", facts_.connections.load());
  write_stat("total_connections", facts_.all_connections.load());
  write_stat("rejected_connections", facts_.rejected_connections.load());
  const struct {
    std::string_view name;
    const std::atomic<std::uint64_t>& value;
  } counted[] = {{"cmd_get", seen.gets},
                 {"cmd_set", seen.sets},
                 {"cmd_flush", seen.flushes},
                 {"cmd_touch", seen.touches},
                 {"get_hits", seen.get_hits},
                 {"get_misses", seen.get_misses},
                 {"get_expired", seen.get_expired},
                 {"get_flushed", seen.get_flushed},
                 {"delete_misses", seen.delete_misses},
                 {"delete_hits", seen.delete_hits},
                 {"incr_misses", seen.incr_misses},
                 {"incr_hits", seen.incr_hits},
                 {"decr_misses", seen.decr_misses},
                 {"decr_hits", seen.decr_hits},
                 {"cas_misses", seen.cas_misses},
                 {"cas_hits", seen.cas_hits},
                 {"cas_badval", seen.cas_bad},
                 {"touch_hits", seen.touch_hits},
                 {"touch_misses", seen.touch_misses},
                 {"store_too_large", seen.too_large}};
  for (const auto& one : counted) write_stat(one.name, one.value.load(std::memory_order_relaxed));
  write_stat("limit_maxbytes", items_.limit_bytes());
  write_stat("threads", facts_.threads);
  write_stat("bytes", items_.bytes());
  write_stat("curr_items", items_.items());
  write_stat("total_items", seen.total_items.load(std::memory_order_relaxed));
  write_stat("evictions", seen.evictions.load(std::memory_order_relaxed));
}

}  // namespace cached
