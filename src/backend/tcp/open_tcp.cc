#include "backend/tcp/open_tcp.h"

#include <utility>
#include <vector>

#include "backend/replicated/replicated_backend.h"
#include "backend/tcp/tcp_backend.h"
#include "backend/tcp/tcp_uri.h"

namespace far::backend {

result<std::unique_ptr<backend>> open_tcp(const uri& name) {
  const result<tcp_name> parsed = parse_tcp(name);
  if (!parsed) return parsed.error();
  const tcp_options& chosen = parsed.value().options;
  const result<tcp_trust> trust = tcp_trust::load(chosen);
  if (!trust) return trust.error();
  std::vector<std::unique_ptr<backend>> members;
  replicated_options together;
  for (const tcp_endpoint& server : parsed.value().servers) {
    result<std::unique_ptr<backend>> opened = tcp_backend::open(server, chosen, trust.value());
    if (!opened) return opened.error();
    members.push_back(std::move(opened).value());
    together.names.push_back(server.text());
  }
  if (members.size() == 1) return std::move(members.front());
  together.copies = chosen.copies;
  together.lost_after_ns = chosen.timeout_ns;
  result<std::unique_ptr<replicated_backend>> layer = replicated_backend::create(std::move(members), together);
  if (!layer) return layer.error();
  return std::unique_ptr<backend>(std::move(layer).value());
}

}  // namespace far::backend
