#include "offload_calls.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "background_server.h"
#include "base/check.h"
#include "child.h"
#include "clocks.h"
#include "device/device_group.h"
#include "far/device.h"

namespace far::bench {
namespace {

constexpr std::uint64_t start_deadline_ns = 10'000'000'000;
constexpr std::uint64_t call_deadline_ns = 10'000'000'000;
constexpr std::uint32_t count_of_objects = 1;  // of a device that has none
constexpr unsigned calls_to_warm_up = 200;
constexpr unsigned calls_a_run = 5000;

const row_key of_device{"empty calls, farheapd on loopback", "of a device, a process of its own", 1};
const row_key of_server{"empty calls, farheapd on loopback", "that the server answers itself", 1};

void measure(const row_key& key, report& figures, const std::function<void()>& call) {
  for (unsigned i = 0; i < calls_to_warm_up; ++i) call();
  std::vector<double> times;
  for (unsigned i = 0; i < calls_a_run; ++i) {
    const std::uint64_t start = monotonic_ns();
    call();
    times.push_back(static_cast<double>(monotonic_ns() - start));
  }
  std::ranges::sort(times);
  figures.add(key, "p50_ns", percentile_of_sorted(times, 0.5));
  figures.add(key, "p99_ns", percentile_of_sorted(times, 0.99));
}

// The list of plugins, over a connection that is there.
std::function<void()> ask_server(const std::string& tier) {
  result<device_parts::device_tier> parsed = device_parts::device_tier::parse(tier);
  if (!parsed) throw device_error(device_error::reason::bad_tier, parsed.error().message);
  result<std::unique_ptr<device_parts::device_link>> opened = parsed.value().servers.front()();
  if (!opened) throw device_error(device_error::reason::unreachable, opened.error().message);
  const std::shared_ptr<device_parts::device_link> link = std::move(opened).value();
  return [link] {
    const device_parts::link_answer got =
        link->ask({.op = wire::device_op::list}, {call_deadline_ns, call_deadline_ns});
    FAR_CHECK(got.how == device_parts::link_answer::kind::answered, "the server answers");
  };
}

}  // namespace

void measure_empty_calls(report& figures) {
  const std::string plugin = product("examples/plugins/sorted.so");
  auto server =
      background_server::start({product("farheapd"), "--listen", "127.0.0.1:0", "--memory", "256M", "--plugin", plugin},
                               "listening on", start_deadline_ns);
  if (!server) return figures.skip(of_device.workload, server.error().message);
  const std::string& line = server.value()->ready_line();
  const std::string tier = "tcp://" + line.substr(line.find_last_of(' ') + 1);
  try {
    far::device sorted(tier, "sorted");
    measure(of_device, figures, [&] { static_cast<void>(sorted.ask(count_of_objects)); });
    measure(of_server, figures, ask_server(tier));
  } catch (const device_error& failure) {
    figures.skip(of_device.workload, failure.what());
  }
}

void aim_empty_calls(report& figures) {
  for (const row_key& key : {of_device, of_server}) {
    if (!figures.has(key)) continue;
    figures.aim("an empty call over TCP, " + key.configuration + ", p50", figures.median(key, "p50_ns") / 1000, "us",
                15, false);
  }
}

}  // namespace far::bench
