#include "far_tiers.h"

#include <utility>

#include "base/units.h"
#include "memory_server.h"
#include "tests/support/redis_test_server.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/shm_test_server.h"

namespace far::test {

namespace {

open_far_tier memory_servers(unsigned count, const std::string& options) {
  open_far_tier opened{"tcp://"};
  for (unsigned i = 0; i < count; ++i) {
    auto one = std::make_shared<testing_support::memory_server>(
        testing_support::memory_server_options{.memory_bytes = 64 * mib});
    opened.name += (i == 0 ? "" : ",") + one->address();
    opened.servers.push_back(std::move(one));
  }
  opened.name += options;
  return opened;
}

open_far_tier file() {
  auto folder = std::make_shared<scratch_folder>();
  return {"file:" + folder->path(), {folder}};
}

open_far_tier shared_memory() {
  auto server = std::make_shared<server::shm_test_server>(64 * mib);
  return {"shm:" + server->path(), {server}};
}

open_far_tier redis() {
  auto server = std::make_shared<testing_support::redis_test_server>();
  return {"redis://" + server->address(), {server}};
}

}  // namespace

std::vector<far_tier_kind> far_tier_kinds() {
  using testing_support::redis_test_server;
  return {
      {"memory", [] { return open_far_tier{"memory:"}; }},
      {"zmem", [] { return open_far_tier{"zmem:"}; }},
      {"file", file},
      {"tcp", [] { return memory_servers(1, ""); }},
      {"copies", [] { return memory_servers(2, "?copies=2"); }},
      {"parity", [] { return memory_servers(3, "?parity=2+1"); }},
      {"shm", shared_memory},
      {"redis", redis, redis_test_server::is_installed() ? "" : redis_test_server::missing},
  };
}

}  // namespace far::test
