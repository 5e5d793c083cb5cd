// `farheapd --metrics ADDR:PORT`: HTTP, on a thread of its own.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "server/address.h"
#include "server/metrics.h"

namespace far::server {

class metrics_server {
 public:
  // Errors: the address cannot be listened on. Requires: what `view` refers to outlives the server.
  [[nodiscard]] static result<std::unique_ptr<metrics_server>> start(const address& at, server_view view);
  ~metrics_server();
  metrics_server(const metrics_server&) = delete;
  metrics_server& operator=(const metrics_server&) = delete;

  // Where it listens, with the port that it got.
  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  struct parts;
  explicit metrics_server(std::unique_ptr<parts> all);

  std::unique_ptr<parts> parts_;
  std::string where_;
};

}  // namespace far::server
