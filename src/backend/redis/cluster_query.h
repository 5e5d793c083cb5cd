// Asks nodes of a Redis Cluster what it looks like, before there is anything else.
#pragma once

#include <string>
#include <vector>

#include "backend/redis/redis_backend.h"
#include "backend/redis/redis_uri.h"
#include "base/result.h"

namespace far::backend {

struct cluster_reply {
  std::string nodes;  // the reply to CLUSTER NODES
  node_address from;
};

// Asks one after another until one answers, each for up to the timeout; blocks. Errors: no node answers, or one refuses
// us; they name it.
[[nodiscard]] result<cluster_reply> ask_for_nodes(const std::vector<tcp_endpoint>& seeds, const redis_options& chosen,
                                                  const redis_trust& trust);

}  // namespace far::backend
