#include "backend/tcp/open_tcp.h"

#include <string_view>

#include "backend/replicated/open_servers.h"
#include "backend/tcp/tcp_backend.h"
#include "backend/tcp/tcp_uri.h"

namespace far::backend {
namespace {

struct tcp_servers {
  using endpoint = tcp_endpoint;
  using options = tcp_options;
  using trust = tcp_trust;
  using server = tcp_backend;
  static constexpr const char* program = "farheapd";

  [[nodiscard]] static result<tcp_name> parse(const uri& name) { return parse_tcp(name); }
  [[nodiscard]] static result<tcp_endpoint> parse_endpoint(std::string_view text) { return parse_tcp_endpoint(text); }
};

}  // namespace

result<std::unique_ptr<backend>> open_tcp(const uri& name) {
  return open_servers<tcp_servers>(name);
}

}  // namespace far::backend
