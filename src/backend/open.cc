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
  return error{"far tier '" + parsed.value().text() + "': there is no '" + parsed.value().scheme() +
                   ":'; the far tiers are " + known,
               EINVAL};
}

}  // namespace

result<std::unique_ptr<backend>> open(std::string_view name) {
  return open_stacked(split_tiers(name), real_time, open_one);
}

}  // namespace far::backend
