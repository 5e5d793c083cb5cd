// web: a synthetic web front end, and the load on it. evaluation/apps/README.md says how to run it.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <limits>
#include <memory>
#include <string>

#include "common/command_line.h"
#include "common/json.h"
#include "load.h"

namespace {

struct options {
  web::site_options site;
  bool json = false;
  web::load_options load;
};

void declare(evaluation::command_line& line, options& into) {
  line.add_number("--keys", into.site.keys, "keys in the hash table, about 26 bytes each", 1, 1u << 31);
  line.add_number("--elements", into.site.elements, "elements of the array, 8 KiB each", 1, std::uint64_t{1} << 32);
  line.add_number("--zipf", into.site.zipf, "exponent of the keys' distribution; 0: uniform", 0, 10);
  line.add_number("--threads", into.load.threads, "threads that answer; on far containers, each runs 8 fibers", 1, 256);
  line.add_number("--rate", into.load.rate, "requests a second, as a Poisson process", 0.001, 1e8);
  line.add_number("--seconds", into.load.seconds, "how long to make requests", 0.001, 1e6);
  line.add_number("--closed-loop", into.load.closed_loop,
                  "answer so many requests one after the other, without a rate; 0: with it", 0,
                  std::numeric_limits<std::uint64_t>::max());
  line.add_seed(into.load.seed, "of the requests");
  if (web::is_far) {
    line.add_size("--local", into.site.local_bytes, "local memory for table and array, such as 64M",
                  std::size_t{1} << 48);
    line.add_text("--far", into.site.far, "the far tier, as for `farheap run`");
  }
  line.add_flag("--json", into.json, "one JSON object");
}

// The smallest latency that at least this part of the requests did not exceed.
double percentile_us(const web::measurement& measured, double part) {
  if (measured.latencies_ns.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(part * static_cast<double>(measured.latencies_ns.size())));
  return static_cast<double>(measured.latencies_ns[rank > 0 ? rank - 1 : 0]) / 1000;
}

void print(const web::measurement& result, const std::string& far, bool json) {
  const double throughput = static_cast<double>(result.requests) / result.seconds;
  const double p50 = percentile_us(result, 0.5);
  const double p90 = percentile_us(result, 0.9);
  const double p99 = percentile_us(result, 0.99);
  const double p999 = percentile_us(result, 0.999);
  const std::string checksum = fmt::format("{:016x}", result.checksum);
  if (json) {
    const evaluation::json object = {{"app", "web"},
                                     {"requests", result.requests},
                                     {"seconds", result.seconds},
                                     {"throughput", throughput},
                                     {"latency_us", {{"p50", p50}, {"p90", p90}, {"p99", p99}, {"p99.9", p999}}},
                                     {"checksum", checksum},
                                     {"far", evaluation::json::parse(far)}};
    fmt::print("{}\n", object.dump());
    return;
  }
  fmt::print("{} requests in {:.2f} s: {:.0f} a second\n", result.requests, result.seconds, throughput);
  fmt::print("latency: p50 {:.1f} us, p90 {:.1f} us, p99 {:.1f} us, p99.9 {:.1f} us\n", p50, p90, p99, p999);
  fmt::print("checksum {}\n", checksum);
  if (far != "null") fmt::print("far memory: {}\n", far);
}

}  // namespace

int main(int count, char** arguments) try {
  options chosen;
  evaluation::command_line line(std::string("A web front end on ") + (web::is_far ? "far containers" : "plain memory") +
                                ": 32 look-ups, 8 KiB encrypted and compressed a request.");
  declare(line, chosen);
  if (const auto status = line.parse(count, arguments)) return *status;
  chosen.site.threads = chosen.load.threads;
  const std::unique_ptr<web::site> site = web::open_site(chosen.site);
  const web::measurement measured = web::run(*site, chosen.load);
  print(measured, site->far_statistics(), chosen.json);
  return 0;
} catch (const std::bad_alloc&) {
  fmt::print(stderr, "web: not enough memory for the table and the array; choose fewer --keys or --elements\n");
  return 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
