// `redis:` and `rediss:` as a far tier: one server, or several under the layer that stripes and copies.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/uri.h"
#include "base/result.h"

namespace far::backend {

// Options: see redis_uri.h. Blocks until every server has answered, each for up to the timeout. Errors name the server.
[[nodiscard]] result<std::unique_ptr<backend>> open_redis(const uri& name);

// `redis+cluster:` and `rediss+cluster:`: the masters of a Redis Cluster under the same layer, those that join later
// included. The nodes in the name are asked for the others. Errors: as above, and more copies than masters.
[[nodiscard]] result<std::unique_ptr<backend>> open_redis_cluster(const uri& name);

}  // namespace far::backend
