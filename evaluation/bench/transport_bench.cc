// `farheap-bench transport`: the cost of a transfer over each far tier in another process, beside a Redis server on the
// same machine with the same sizes and depths.
#include <errno.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "background_server.h"
#include "base/units.h"
#include "benchmark.h"
#include "child.h"
#include "clocks.h"
#include "common/json.h"
#include "scratch_folder.h"
#include "transport_client.h"

namespace far::bench {

namespace {

constexpr std::uint64_t start_deadline_ns = 20'000'000'000;
constexpr std::uint64_t redis_benchmark_deadline_ns = 120'000'000'000;
constexpr const char* redis_path = "/usr/bin/redis-server";
constexpr const char* redis_benchmark_path = "/usr/bin/redis-benchmark";

constexpr std::array<std::size_t, 3> sizes_bytes = {64, 4096, 65'536};
constexpr std::array<std::size_t, 3> depths = {1, 16, 64};

// A transport: its name, its server if it has one, and how a client is opened.
struct transport {
  std::string name;
  std::unique_ptr<background_server> server;
  std::string uri;  // empty: Redis
  int redis_port = 0;
  std::vector<std::unique_ptr<background_server>> others = {};  // of a cluster
  bool by_redis_benchmark = false;

  [[nodiscard]] std::uint64_t server_cpu_ns() const {
    std::uint64_t sum = server ? server->cpu_ns() : 0;
    for (const auto& other : others) sum += other->cpu_ns();
    return sum;
  }
};

std::string server_path() {
  const std::string own = own_path();
  return own.substr(0, own.find_last_of('/') + 1) + "farheapd";
}

result<int> free_port() {
  const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const bool found = probe >= 0 && bind(probe, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                     getsockname(probe, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  const int failure = errno;
  if (probe >= 0) close(probe);
  if (!found) return error{fmt::format("cannot find a free port: {}", strerror(failure)), failure};
  return static_cast<int>(ntohs(address.sin_port));
}

result<std::unique_ptr<background_server>> start_farheapd(std::vector<std::string> more) {
  std::vector<std::string> arguments = {server_path(), "--listen", "127.0.0.1:0", "--memory", "1G", "--threads", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return background_server::start(arguments, "listening on", start_deadline_ns);
}

// "listening on 127.0.0.1:PORT" -> "127.0.0.1:PORT"
std::string address_in(const std::string& ready_line) {
  return ready_line.substr(ready_line.find_last_of(' ') + 1);
}

result<transport> start_plain() {
  auto server = start_farheapd({});
  if (!server) return server.error();
  const std::string address = address_in(server.value()->ready_line());
  return transport{"tcp", std::move(server).value(), "tcp://" + address};
}

result<transport> start_tls(const std::string& folder) {
  const std::string certificate = folder + "/certificate.pem";
  const std::string key = folder + "/key.pem";
  auto created = run_child(
      {"/usr/bin/openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
       "1", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate},
      start_deadline_ns);
  if (!created) return created.error();
  std::error_code failed;
  std::filesystem::permissions(key, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write, failed);
  if (failed) return error{fmt::format("cannot protect {}: {}", key, failed.message()), failed.value()};
  auto server = start_farheapd({"--tls-cert", certificate, "--tls-key", key});
  if (!server) return server.error();
  const std::string address = address_in(server.value()->ready_line());
  return transport{"tcp, TLS", std::move(server).value(), "tcp://" + address + "?tls=1&ca=" + certificate};
}

result<transport> start_shm(const std::string& folder) {
  const std::string name = folder + "/shm.sock";
  auto server = start_farheapd({"--shm", name});
  if (!server) return server.error();
  return transport{"shm", std::move(server).value(), "shm:" + name};
}

result<transport> start_redis(const std::string& folder) {
  if (access(redis_path, X_OK) != 0) return error{"redis-server is not installed; see scripts/packages.txt", ENOENT};
  const result<int> port = free_port();
  if (!port) return port.error();
  auto server = background_server::start({redis_path, "--bind", "127.0.0.1", "--port", std::to_string(port.value()),
                                          "--save", "", "--appendonly", "no", "--dir", folder},
                                         "Ready to accept connections", start_deadline_ns);
  if (!server) return server.error();
  return transport{"Redis", std::move(server).value(), "", port.value()};
}

// A server of its own for Redis's own benchmark.
result<transport> start_redis_benchmark(const std::string& folder) {
  if (access(redis_benchmark_path, X_OK) != 0) {
    return error{"redis-benchmark is not installed; see scripts/packages.txt", ENOENT};
  }
  result<transport> started = start_redis(folder);
  if (!started) return started.error();
  started.value().name = "redis-benchmark";
  started.value().by_redis_benchmark = true;
  return started;
}

// The same server as a far tier.
result<transport> start_far_redis(const std::string& folder) {
  result<transport> started = start_redis(folder);
  if (!started) return started.error();
  const std::string uri = fmt::format("redis://127.0.0.1:{}", started.value().redis_port);
  return transport{"redis:", std::move(started.value().server), uri};
}

// The bus of a node listens 10000 ports higher.
result<int> free_cluster_port() {
  constexpr int bus_distance = 10'000;
  constexpr int attempts = 100;
  result<int> port = free_port();
  for (int i = 0; i < attempts && port && port.value() + bus_distance > UINT16_MAX; ++i) port = free_port();
  return port;
}

// Three masters of a cluster on this machine, as a far tier.
result<transport> start_far_cluster(const std::string& folder) {
  if (access(redis_path, X_OK) != 0) return error{"redis-server is not installed; see scripts/packages.txt", ENOENT};
  transport cluster{"redis+cluster:", nullptr, "redis+cluster://"};
  std::vector<std::string> creation{"/usr/bin/redis-cli", "--cluster", "create"};
  for (int i = 0; i < 3; ++i) {
    const result<int> port = free_cluster_port();
    if (!port) return port.error();
    const std::string nodes = fmt::format("{}/nodes-{}.conf", folder, port.value());
    auto server = background_server::start(
        {redis_path, "--bind", "127.0.0.1", "--port", std::to_string(port.value()), "--save", "", "--appendonly", "no",
         "--dir", folder, "--cluster-enabled", "yes", "--cluster-config-file", nodes},
        "Ready to accept connections", start_deadline_ns);
    if (!server) return server.error();
    cluster.others.push_back(std::move(server).value());
    const std::string address = fmt::format("127.0.0.1:{}", port.value());
    creation.push_back(address);
    cluster.uri += (i == 0 ? "" : ",") + address;
  }
  creation.push_back("--cluster-yes");
  if (auto made = run_child(creation, start_deadline_ns); !made) return made.error();
  return cluster;
}

result<std::unique_ptr<transport_client>> open_client(const transport& over, const transport_shape& shape) {
  return over.uri.empty() ? open_redis_client(over.redis_port, shape) : open_far_client(over.uri, shape);
}

// Keeps `shape.depth` transfers outstanding until `count` have ended.
void measure(transport_client& client, const transport_shape& shape, bool write, std::size_t count,
             std::vector<std::uint32_t>& ticks) {
  std::vector<std::uint64_t> started(shape.depth);
  std::vector<std::uint32_t> tags(shape.depth);
  std::vector<std::uint32_t> items(shape.depth);
  std::uint64_t state = 88172645463325252u + count;
  std::size_t begun = 0;
  const auto begin = [&](std::size_t wanted) {
    const std::size_t now = std::min(wanted, count - begun);
    for (std::size_t i = 0; i < now; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      items[i] = static_cast<std::uint32_t>((state >> 33) % shape.items);
      started[tags[i]] = ticks_now();
    }
    begun += now;
    if (now > 0) client.start(write, {items.data(), now}, {tags.data(), now});
  };
  for (std::uint32_t tag = 0; tag < shape.depth; ++tag) tags[tag] = tag;
  ticks.clear();
  begin(shape.depth);
  while (ticks.size() < count) {
    const std::size_t ended = client.finish(tags);
    const std::uint64_t now = ticks_now();
    for (std::size_t i = 0; i < ended; ++i) {
      ticks.push_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(now - started[tags[i]], UINT32_MAX)));
    }
    begin(ended);
  }
}

std::string workload_name(bool write, std::size_t bytes, std::size_t depth) {
  return fmt::format("{} {}, depth {}", write ? "write" : "read", format_size(bytes), depth);
}

// The number of transfers of a pass over a transport.
std::size_t transfers_of(const transport_shape& shape, bool quick) {
  const std::size_t bytes_wanted = quick ? 16 * mib : 64 * mib;
  return std::clamp<std::size_t>(bytes_wanted / shape.bytes, 1000, quick ? 5000 : 20'000);
}

// Runs redis-benchmark with one connection that is pipelined to the depth; returns its transfers per second. It counts
// time by whole milliseconds, and so makes more transfers.
result<double> run_redis_benchmark(int port, const transport_shape& shape, bool write, std::size_t count) {
  const std::string command = write ? "set" : "get";
  const result<child_outcome> done =
      run_child({redis_benchmark_path, "-p", std::to_string(port), "-c", "1", "-P", std::to_string(shape.depth), "-d",
                 std::to_string(shape.bytes), "-r", std::to_string(shape.items), "-n", std::to_string(count), "-t",
                 command, "--csv"},
                redis_benchmark_deadline_ns);
  if (!done) return done.error();
  // "GET","387596.91",... after a line of headings.
  const std::string row = (write ? "\"SET\",\"" : "\"GET\",\"");
  const std::string& text = done.value().output;
  const std::size_t found = text.find(row);
  const double rate = found == std::string::npos ? 0 : strtod(text.c_str() + found + row.size(), nullptr);
  if (rate <= 0) return error{"redis-benchmark printed no throughput: " + text, EPROTO};
  return rate;
}

result<void> run_shape_by_redis_benchmark(const transport& over, const transport_shape& shape, bool quick,
                                          report& figures) {
  constexpr std::size_t more = 4;
  constexpr std::size_t overwrites = 40;  // so that no key is missing, of those that it draws at random
  const std::size_t count = more * transfers_of(shape, quick);
  const result<double> filled = run_redis_benchmark(over.redis_port, shape, true, overwrites * shape.items);
  if (!filled) return filled.error();
  for (const bool write : {false, true}) {
    const std::uint64_t server_before = over.server_cpu_ns();
    const result<double> rate = run_redis_benchmark(over.redis_port, shape, write, count);
    if (!rate) return rate.error();
    const auto server_ns = static_cast<double>(over.server_cpu_ns() - server_before);
    const row_key key{workload_name(write, shape.bytes, shape.depth), over.name, 1};
    figures.add(key, "transfers_per_s", rate.value());
    figures.add(key, "bytes_per_s", rate.value() * static_cast<double>(shape.bytes));
    figures.add(key, "server_cpu_ns", server_ns / static_cast<double>(count));
    figures.add(key, "transfers_per_server_cpu_s", static_cast<double>(count) / server_ns * 1e9);
  }
  return {};
}

// Every workload of one size and depth over one transport.
result<void> run_shape(const transport& over, const transport_shape& shape, bool quick, const tick_scale& scale,
                       report& figures) {
  if (over.by_redis_benchmark) return run_shape_by_redis_benchmark(over, shape, quick, figures);
  auto client = open_client(over, shape);
  if (!client) return client.error();
  const std::size_t count = transfers_of(shape, quick);
  std::vector<std::uint32_t> ticks;
  for (const bool write : {false, true}) {
    measure(*client.value(), shape, write, count / 10, ticks);  // warm
    const std::uint64_t server_before = over.server_cpu_ns();
    const std::uint64_t client_before = process_cpu_ns();
    const std::uint64_t start_ns = monotonic_ns();
    measure(*client.value(), shape, write, count, ticks);
    const auto elapsed_ns = static_cast<double>(monotonic_ns() - start_ns);
    const auto client_ns = static_cast<double>(process_cpu_ns() - client_before);
    const auto server_ns = static_cast<double>(over.server_cpu_ns() - server_before);
    const latency_summary latency = summarise_latencies(ticks, scale.nanoseconds_per_tick, scale.overhead_ticks);
    const row_key key{workload_name(write, shape.bytes, shape.depth), over.name, 1};
    const auto done = static_cast<double>(count);
    figures.add(key, "p50_ns", latency.p50_ns);
    figures.add(key, "p99_ns", latency.p99_ns);
    figures.add(key, "transfers_per_s", done / elapsed_ns * 1e9);
    figures.add(key, "bytes_per_s", done * static_cast<double>(shape.bytes) / elapsed_ns * 1e9);
    figures.add(key, "client_cpu_ns", client_ns / done);
    if (server_ns > 0) figures.add(key, "server_cpu_ns", server_ns / done);
    if (server_ns > 0) figures.add(key, "transfers_per_server_cpu_s", done / server_ns * 1e9);
  }
  return {};
}

std::vector<transport> start_transports(const std::string& folder, const std::string& only, report& figures) {
  std::vector<transport> started;
  const auto add = [&](const std::string& name, auto start) {
    if (name.find(only) == std::string::npos) return;
    result<transport> created = start();
    if (created) {
      started.push_back(std::move(created).value());
    } else {
      figures.skip(name, created.error().message);
    }
  };
  add("memory", [] { return result<transport>(transport{"memory", nullptr, "memory:"}); });
  add("shm", [&] { return start_shm(folder); });
  add("tcp", [] { return start_plain(); });
  add("tcp, TLS", [&] { return start_tls(folder); });
  add("Redis", [&] { return start_redis(folder); });
  add("redis-benchmark", [&] { return start_redis_benchmark(folder); });
  add("redis:", [&] { return start_far_redis(folder); });
  add("redis+cluster:", [&] { return start_far_cluster(folder); });
  return started;
}

void record_aims(report& figures) {
  const std::string deep = workload_name(false, 4096, 16);
  const std::string single = workload_name(false, 4096, 1);
  const row_key redis{deep, "Redis", 1};
  if (figures.has(redis) && figures.has({deep, "tcp", 1})) {
    figures.aim("4 KiB reads over TCP at depth 16, per second of server CPU, over Redis",
                figures.median({deep, "tcp", 1}, "transfers_per_server_cpu_s") /
                    figures.median(redis, "transfers_per_server_cpu_s"),
                "x", 2, true);
    figures.aim("4 KiB read over TCP at depth 1, p50, over Redis",
                figures.median({single, "tcp", 1}, "p50_ns") / figures.median({single, "Redis", 1}, "p50_ns"), "x", 1,
                false);
  }
  const row_key own_benchmark{deep, "redis-benchmark", 1};
  if (figures.has(own_benchmark) && figures.has({deep, "redis:", 1})) {
    figures.aim(
        "4 KiB reads over redis: at depth 16, transfers per second, over redis-benchmark",
        figures.median({deep, "redis:", 1}, "transfers_per_s") / figures.median(own_benchmark, "transfers_per_s"), "x",
        0.9, true);
  }
  if (figures.has({single, "shm", 1})) {
    figures.aim("4 KiB read over shm at depth 1, p50", figures.median({single, "shm", 1}, "p50_ns") / 1000, "us", 3,
                false);
  }
}

}  // namespace

result<outcome> run_transport(const settings& chosen) {
  const unsigned runs = chosen.runs != 0 ? chosen.runs : (chosen.quick ? 1 : 3);
  report figures("transport");
  figures.set("runs", runs);
  if (access(server_path().c_str(), X_OK) != 0) {
    return error{fmt::format("{} is not there; build it first: make build", server_path()), ENOENT};
  }
  const scratch_folder folder;
  if (folder.path().empty()) return error{"cannot make a folder for temporary files", errno};
  const std::vector<transport> transports = start_transports(folder.path(), chosen.only, figures);
  const tick_scale scale = calibrate_ticks();
  for (unsigned run = 1; run <= runs; ++run) {
    fmt::print(stderr, "transport: run {} of {}\n", run, runs);
    for (const std::size_t bytes : sizes_bytes) {
      for (const std::size_t depth : depths) {
        const transport_shape shape{bytes, 512, depth};
        for (const transport& over : transports) {
          const result<void> done = run_shape(over, shape, chosen.quick, scale, figures);
          if (stop_requested()) return error{"stopped by a signal", EINTR};
          if (!done) figures.skip(over.name, done.error().message);
        }
      }
    }
  }
  record_aims(figures);
  figures.note("one client thread on one machine, over loopback; a depth is the number of transfers outstanding");
  figures.note(
      "server CPU is that of all threads of the server's process; memory: and the data of shm: need no server");
  return outcome{std::move(figures),
                 {{{"p50_ns", "p50 us", 1000, 2},
                   {"p99_ns", "p99 us", 1000, 1},
                   {"transfers_per_s", "k/s", 1000, 1},
                   {"bytes_per_s", "GB/s", 1e9, 2},
                   {"client_cpu_ns", "client CPU us", 1000, 2},
                   {"server_cpu_ns", "server CPU us", 1000, 2}},
                  "transfers_per_s",
                  "Redis"}};
}

}  // namespace far::bench
