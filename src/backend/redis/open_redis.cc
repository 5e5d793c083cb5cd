#include "backend/redis/open_redis.h"

#include <string_view>

#include "backend/redis/redis_backend.h"
#include "backend/redis/redis_uri.h"
#include "backend/replicated/open_servers.h"

namespace far::backend {
namespace {

struct redis_servers {
  using endpoint = tcp_endpoint;
  using options = redis_options;
  using trust = redis_trust;
  using server = redis_backend;
  static constexpr const char* program = "Redis";

  [[nodiscard]] static result<redis_name> parse(const uri& name) { return parse_redis(name); }
  [[nodiscard]] static result<tcp_endpoint> parse_endpoint(std::string_view text) { return parse_redis_endpoint(text); }
};

}  // namespace

result<std::unique_ptr<backend>> open_redis(const uri& name) {
  return open_servers<redis_servers>(name);
}

}  // namespace far::backend
