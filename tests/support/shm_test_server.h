// For tests: a memory server over shared memory, on a thread of the test's process.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "server/shm_service.h"
#include "server/store.h"
#include "server/token_book.h"
#include "tests/support/scratch_folder.h"

namespace far::server {

class shm_test_server {
 public:
  explicit shm_test_server(std::uint64_t memory_bytes, const std::string& tokens = "", std::uint64_t grace_ns = 0)
      : shm_test_server(lending(memory_bytes, grace_ns), tokens) {}

  explicit shm_test_server(store_settings settings, const std::string& tokens = "",
                           std::uint64_t patience_ns = 10'000'000'000, std::uint64_t spin_ns = 20'000)
      : patience_ns_(patience_ns), spin_ns_(spin_ns) {
    store_ = require(store::create(std::move(settings)));
    if (!tokens.empty()) tokens_ = require(token_book::parse(tokens, "tokens"));
    start();
  }
  ~shm_test_server() { service_.reset(); }

  [[nodiscard]] static store_settings lending(std::uint64_t memory_bytes, std::uint64_t grace_ns) {
    store_settings chosen;
    chosen.memory_bytes = memory_bytes;
    chosen.grace_ns = grace_ns;
    return chosen;
  }

  void stop() { service_.reset(); }
  void start() {
    service_ = require(shm_service::start({.name = path(),
                                           .settings = {.lent = store_.get(),
                                                        .tokens = &tokens_,
                                                        .failures = &failures_,
                                                        .patience_ns = patience_ns_,
                                                        .most_connections = most_connections_},
                                           .spin_ns = spin_ns_}));
  }
  // From now on it serves no more connections at a time than these. Ends those that it has.
  void limit_connections(std::size_t most) {
    stop();
    most_connections_ = most;
    start();
  }
  // A server that knows nothing of what was before, as after a crash.
  void restart_empty(std::uint64_t memory_bytes) {
    stop();
    store_ = require(store::create(lending(memory_bytes, 0)));
    start();
  }

  [[nodiscard]] std::string path() const { return folder_.path() + "/server.sock"; }
  [[nodiscard]] store& lent() { return *store_; }
  [[nodiscard]] const loop_counters& counters() const { return service_->counters(); }
  [[nodiscard]] std::uint64_t endings(close_reason reason) const {
    return service_->counters().endings[static_cast<std::size_t>(reason)].value();
  }

 private:
  template <typename T>
  static T require(result<T> got) {
    FAR_CHECK(got.ok(), got.ok() ? "" : got.error().message.c_str());
    return std::move(got).value();
  }

  std::uint64_t patience_ns_;
  std::uint64_t spin_ns_;
  std::size_t most_connections_ = 1024;
  const scratch_folder folder_;
  std::unique_ptr<store> store_;
  token_book tokens_;
  failed_logins failures_;
  std::unique_ptr<shm_service> service_;
};

}  // namespace far::server
