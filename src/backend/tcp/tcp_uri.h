// `tcp://HOST:PORT[,HOST:PORT...][?OPTIONS]`, as users write it, taken apart.
#pragma once

#include <string>
#include <vector>

#include "backend/tcp/store_uri.h"

namespace far::backend {

struct tcp_options : store_options {
  std::string token_file;  // empty: no token
  std::string tenant = "default";
};

struct tcp_name {
  std::vector<tcp_endpoint> servers;
  tcp_options options;
};

// Errors: no server, a server without port, one given twice, an unknown option or one without sense, more copies than
// servers. They say what to write instead.
[[nodiscard]] result<tcp_name> parse_tcp(const uri& name);

}  // namespace far::backend
