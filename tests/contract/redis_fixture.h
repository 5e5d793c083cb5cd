// What the tests of `redis:` with a real server share.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "backend/backend.h"
#include "backend/redis/redis_backend.h"
#include "backend/redis/redis_uri.h"
#include "backend/uri.h"
#include "tests/support/redis_test_server.h"
#include "tests/support/slot_transfers.h"

namespace far::testing_support {

// Without the layer above servers, so that what it hides can be seen.
[[nodiscard]] inline result<std::unique_ptr<backend::backend>> try_open(const redis_test_server& server,
                                                                        const std::string& options) {
  const result<backend::redis_name> name =
      backend::parse_redis(backend::uri::parse("redis://" + server.address() + "?" + options).value());
  if (!name) return name.error();
  const result<backend::redis_trust> trust = backend::redis_trust::load(name.value().options);
  if (!trust) return trust.error();
  return backend::redis_backend::open(name.value().servers[0], name.value().options, trust.value());
}

[[nodiscard]] inline std::unique_ptr<backend::backend> open_at(const redis_test_server& server,
                                                               const std::string& options = "timeout=20s") {
  result<std::unique_ptr<backend::backend>> opened = try_open(server, "capacity=64M&" + options);
  EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().message);
  return opened.ok() ? std::move(opened).value() : nullptr;
}

[[nodiscard]] inline backend::slot_id allocate(backend::backend& far, std::size_t count) {
  result<backend::slot_id> slots = far.allocate(count);
  EXPECT_TRUE(reached(far, [&] { return slots.ok() || (slots = far.allocate(count)).ok(); }));
  return slots.ok() ? slots.value() : backend::no_slot;
}

class redis_server : public testing::Test {
 protected:
  void SetUp() override {
    if (!redis_test_server::is_installed()) GTEST_SKIP() << redis_test_server::missing;
  }
};

}  // namespace far::testing_support
