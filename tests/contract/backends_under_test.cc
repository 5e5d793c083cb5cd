#include "backends_under_test.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "backend/faulty/faulty_backend.h"
#include "backend/file/file_backend.h"
#include "base/units.h"

namespace far::backend {
namespace {

std::unique_ptr<backend> require(result<std::unique_ptr<backend>> opened) {
  if (!opened.ok()) {
    std::fprintf(stderr, "cannot open a backend to test: %s\n", opened.error().message.c_str());
    std::abort();
  }
  return std::move(opened).value();
}

backend_under_test by_uri(const std::string& name, const std::string& uri_without_capacity) {
  return {name, [=](std::uint64_t capacity_slots) {
            return require(open(uri_without_capacity + "capacity=" + std::to_string(capacity_slots * page_bytes)));
          }};
}

// As on a machine that does not permit io_uring.
backend_under_test without_io_uring(const std::string& name, bool direct) {
  return {name, [=](std::uint64_t capacity_slots) {
            file_options chosen;
            chosen.path = "/var/tmp";
            chosen.capacity_bytes = capacity_slots * page_bytes;
            if (!direct) chosen.direct = false;
            chosen.use_io_uring = false;
            return require(file_backend::create(chosen));
          }};
}

backend_under_test faulty(const std::string& name, const faulty_options& chosen) {
  return {name, [=](std::uint64_t capacity_slots) -> std::unique_ptr<backend> {
            auto inner = require(open("memory:?capacity=" + std::to_string(capacity_slots * page_bytes)));
            return std::make_unique<faulty_backend>(std::move(inner), chosen);
          }};
}

}  // namespace

std::vector<backend_under_test> backends_under_test() {
  faulty_options unruly;
  unruly.seed = 20240817;
  unruly.maximum_delay_ticks = 20;
  unruly.reorders = true;
  unruly.takes_partial_batches = true;
  return {
      by_uri("memory", "memory:?"),
      by_uri("memory_with_latency", "memory:?latency=100us&gbps=20&"),
      by_uri("memory_with_short_latency", "memory:?latency=3us&"),
      by_uri("file", "file:/var/tmp?"),
      by_uri("file_through_page_cache", "file:/var/tmp?direct=0&"),
      without_io_uring("file_without_io_uring", true),
      without_io_uring("file_without_io_uring_through_page_cache", false),
      faulty("faulty_without_faults", {}),
      faulty("faulty_delaying_and_reordering", unruly),
  };
}

}  // namespace far::backend
