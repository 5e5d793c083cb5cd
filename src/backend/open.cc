// The far tiers that exist, by scheme.
#include <array>
#include <cerrno>
#include <string>

#include "backend/backend.h"
#include "backend/file/file_backend.h"
#include "backend/memory/memory_backend.h"
#include "backend/redis/open_redis.h"
#include "backend/shm/shm_backend.h"
#include "backend/stacked/stacked_backend.h"
#include "backend/tcp/open_tcp.h"
#include "backend/uri.h"
#include "backend/zmem/zmem_backend.h"

namespace far::backend {
namespace {

struct tier {
  std::string_view scheme;
  result<std::unique_ptr<backend>> (*open)(const uri& name);
};

constexpr std::array<tier, 9> tiers{{{"memory", memory_backend::open},
                                     {"zmem", zmem_backend::open},
                                     {"file", file_backend::open},
                                     {"shm", shm_backend::open},
                                     {"tcp", open_tcp},
                                     {"redis", open_redis},
                                     {"rediss", open_redis},
                                     {"redis+cluster", open_redis_cluster},
                                     {"rediss+cluster", open_redis_cluster}}};

// What people look for, and what serves them in its place (docs/decisions/0058-no-libfabric.md).
struct absent_tier {
  std::string_view scheme;
  const char* advice;
};

constexpr std::array<absent_tier, 4> absent_tiers{
    {{"valkey", "Valkey speaks the protocol of Redis: write redis: instead"},
     {"valkeys", "Valkey speaks the protocol of Redis: write rediss: instead"},
     {"memcached", "memcached may forget what it stores, and does not say so; redis: and tcp: keep it"},
     {"ofi", "write shm: for a memory server on this machine, and tcp: for others"}}};

const platform::monotonic_clock real_time;

result<std::unique_ptr<backend>> open_one(const std::string& name) {
  const result<uri> parsed = uri::parse(name);
  if (!parsed) return parsed.error();
  std::string known;
  for (const tier& candidate : tiers) {
    if (candidate.scheme == parsed.value().scheme()) return candidate.open(parsed.value());
    if (!known.empty()) known += ", ";
    known += candidate.scheme;
    known += ":";
  }
  std::string advice = "the far tiers are " + known;
  for (const absent_tier& missed : absent_tiers) {
    if (missed.scheme == parsed.value().scheme()) advice = missed.advice;
  }
  return error{"far tier '" + parsed.value().text() + "': there is no '" + parsed.value().scheme() + ":'; " + advice,
               EINVAL};
}

}  // namespace

result<std::unique_ptr<backend>> open(std::string_view name) {
  return open_stacked(split_tiers(name), real_time, open_one);
}

std::string name_from_root(std::string_view name) {
  std::string whole;
  for (const std::string& one : split_tiers(name)) {
    const result<uri> parsed = uri::parse(one);
    const std::string from_root = parsed ? parsed.value().text_from_root() : one;
    if (!whole.empty()) whole += ",";
    whole += split_tiers(from_root).size() == 1 ? from_root : one;
  }
  return whole;
}

}  // namespace far::backend
