#include "server/metrics.h"

#include <fmt/format.h>

#include <iterator>
#include <numeric>

namespace far::server {
namespace {

constexpr std::array<const char*, request_kinds> request_names{"read",     "write", "allocate", "free",
                                                               "capacity", "call",  "ping",     "close"};

struct device_ending {
  wire::device_outcome outcome;
  const char* name;
};
constexpr std::array device_endings{device_ending{wire::device_outcome::ok, "ok"},
                                    device_ending{wire::device_outcome::refused, "refused"},
                                    device_ending{wire::device_outcome::no_object, "no_object"},
                                    device_ending{wire::device_outcome::timed_out, "timed_out"},
                                    device_ending{wire::device_outcome::crashed, "crashed"}};

class text_writer {
 public:
  void describe(const char* name, const char* type, const char* help) {
    fmt::format_to(std::back_inserter(text_), "# HELP farheapd_{} {}\n# TYPE farheapd_{} {}\n", name, help, name, type);
  }
  template <typename T>
  void value(const char* name, const std::string& labels, T value) {
    fmt::format_to(std::back_inserter(text_), "farheapd_{}{} {}\n", name, labels.empty() ? "" : "{" + labels + "}",
                   value);
  }
  template <typename T>
  void single(const char* name, const char* type, const char* help, T number) {
    describe(name, type, help);
    value(name, "", number);
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

// A tenant's name contains nothing that needs escaping (wire::is_tenant_name).
std::string label(const char* name, const std::string& value) {
  return fmt::format("{}=\"{}\"", name, value);
}

// Only of tenants that have limits.
void write_limits(text_writer& to, const store_report& report) {
  to.describe("tenant_limit", "gauge",
              "What the tenant may ask for: connections, devices, requests and bytes a second.");
  for (const auto& tenant : report.tenants) {
    const auto write = [&](const char* kind, std::uint64_t most) {
      if (most != 0) to.value("tenant_limit", label("tenant", tenant.name) + "," + label("kind", kind), most);
    };
    write("connections", tenant.limits.connections);
    write("devices", tenant.limits.devices);
    write("requests", tenant.limits.requests);
    write("bytes", tenant.limits.bytes);
  }
  to.describe("tenant_delays_total", "counter", "How often a connection of the tenant waited for its limits.");
  for (const auto& tenant : report.tenants) {
    if (tenant.limits.requests == 0 && tenant.limits.bytes == 0) continue;
    to.value("tenant_delays_total", label("tenant", tenant.name), tenant.delays);
  }
}

// Only of servers that keep blocks on disk.
void write_spill(text_writer& to, const store_report& report) {
  if (!report.spill) return;
  const spill_report& spill = *report.spill;
  to.single("spill_size_bytes", "gauge", "The most that blocks take on disk.", spill.size_bytes);
  to.single("spill_used_bytes", "gauge", "Blocks that are on disk, before they were compressed.",
            spill.places_used * block_bytes);
  to.single("spill_disk_bytes", "gauge", "What the spill file takes of the disk.", spill.disk_bytes);
  to.single("resident_bytes", "gauge", "Blocks that are in memory.", spill.resident_blocks * block_bytes);
  to.single("spill_written_blocks_total", "counter", "Blocks that have left memory.", spill.writes);
  to.single("spill_read_blocks_total", "counter", "Blocks that have come back.", spill.reads);
  to.single("spill_errors_total", "counter", "Blocks that the disk did not take, or did not return.", spill.errors);
  to.single("spill_failing", "gauge", "1 while the disk takes no blocks.", spill.is_failing ? 1 : 0);
}

// Tenants come as families of one value each: the format wants all samples of a family together.
void write_store(text_writer& to, const store_report& report) {
  to.single("memory_bytes", "gauge", "What the server may lend, on disk, too.", report.memory_blocks * block_bytes);
  to.single("used_bytes", "gauge", "What is lent, or not yet given back.", report.held_blocks * block_bytes);
  to.single("unreclaimed_bytes", "gauge", "Freed, and not yet given back.", report.unreclaimed_blocks * block_bytes);
  to.single("table_bytes", "gauge", "Of what is lent, the tables that name it.", report.table_bytes);
  to.single("sessions", "gauge", "Sessions, those without a connection included.", report.sessions);
  to.single("away_sessions", "gauge", "Of these, those without a connection.", report.away_sessions);
  to.single("away_bytes", "gauge", "What these hold.", report.away_blocks * block_bytes);
  to.single("sessions_expired_total", "counter", "Sessions that ended with their lease.", report.sessions_expired);
  to.single("sessions_ended_early_total", "counter",
            "Sessions without a connection that ended before, because others needed the memory.",
            report.sessions_ended_early);
  to.single("draining", "gauge", "1 when the server is about to stop.", report.draining ? 1 : 0);
  to.describe("tenant_quota_bytes", "gauge", "The most that the tenant may hold.");
  for (const auto& tenant : report.tenants) {
    to.value("tenant_quota_bytes", label("tenant", tenant.name), tenant.quota_blocks * block_bytes);
  }
  to.describe("tenant_used_bytes", "gauge", "What the tenant holds.");
  for (const auto& tenant : report.tenants) {
    to.value("tenant_used_bytes", label("tenant", tenant.name), tenant.held_blocks * block_bytes);
  }
  to.describe("tenant_sessions", "gauge", "Sessions of the tenant.");
  for (const auto& tenant : report.tenants) {
    to.value("tenant_sessions", label("tenant", tenant.name), tenant.sessions);
  }
  to.describe("tenant_connections", "gauge", "Connections of the tenant.");
  for (const auto& tenant : report.tenants) {
    to.value("tenant_connections", label("tenant", tenant.name), tenant.connections);
  }
  to.describe("tenant_devices", "gauge", "Devices of the tenant.");
  for (const auto& tenant : report.tenants) {
    to.value("tenant_devices", label("tenant", tenant.name), tenant.devices);
  }
  write_limits(to, report);
  write_spill(to, report);
}

void write_traffic(text_writer& to, const totals& all) {
  to.describe("requests_total", "counter", "Requests that were answered.");
  for (std::size_t i = 0; i < request_kinds; ++i) {
    to.value("requests_total", label("operation", request_names[i]), all.requests[i]);
  }
  to.single("failed_requests_total", "counter", "Of these, answered with another status than ok.", all.failed_requests);
  to.single("damaged_requests_total", "counter", "Of these, whose payload did not match its checksum.",
            all.damaged_requests);
  to.single("read_bytes_total", "counter", "Bytes that clients have read.", all.bytes_read);
  to.single("written_bytes_total", "counter", "Bytes that clients have written.", all.bytes_written);
  to.single("called_bytes_total", "counter", "Bytes of calls and of their replies.", all.bytes_called);
  to.single("connections_total", "counter", "Connections that were accepted.", all.connections);
  to.single("connections", "gauge", "Connections that are open.", all.connections_open());
  to.single("sessions_opened_total", "counter", "Sessions that were opened.", all.sessions_opened);
  to.single("sessions_joined_total", "counter", "Connections that joined a session.", all.sessions_joined);
  to.describe("connection_endings_total", "counter", "Connections that ended, by reason.");
  for (std::size_t i = 1; i < close_reasons; ++i) {
    to.value("connection_endings_total", label("reason", name_of(static_cast<close_reason>(i))), all.endings[i]);
  }
}

void write_latency(text_writer& to, const totals& all) {
  constexpr const char* name = "request_duration_seconds";
  to.describe(name, "histogram", "From the arrival of a batch of requests until its replies are sent.");
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < all.latency.size(); ++i) {
    below += all.latency[i];
    const double limit = static_cast<double>(latency_histogram::limit_ns(i)) / 1e9;
    const bool last = i + 1 == all.latency.size();
    to.value("request_duration_seconds_bucket", label("le", last ? "+Inf" : fmt::format("{:.9g}", limit)), below);
  }
  to.value("request_duration_seconds_sum", "", static_cast<double>(all.latency_sum_ns) / 1e9);
  to.value("request_duration_seconds_count", "", below);
}

// Only of servers that have plugins. Of each plugin's name there is one; it contains nothing that needs escaping
// (wire::is_plugin_name).
void write_devices(text_writer& to, const device_host* devices) {
  if (devices == nullptr) return;
  to.describe("devices", "gauge", "Devices of clients: data with operations of its own, each a process.");
  for (const loaded_plugin& one : devices->plugins()) {
    to.value("devices", label("plugin", one.name), one.counters->devices.load());
  }
  to.describe("devices_constructed_total", "counter", "Devices that were constructed, copies included.");
  for (const loaded_plugin& one : devices->plugins()) {
    to.value("devices_constructed_total", label("plugin", one.name), one.counters->constructed.load());
  }
  to.describe("devices_ended_total", "counter", "Devices whose process ended between two calls.");
  for (const loaded_plugin& one : devices->plugins()) {
    to.value("devices_ended_total", label("plugin", one.name), one.counters->ended.load());
  }
  to.describe("device_calls_total", "counter", "Calls of devices that have ended, by how they ended.");
  for (const loaded_plugin& one : devices->plugins()) {
    for (const device_ending& how : device_endings) {
      to.value("device_calls_total", label("plugin", one.name) + "," + label("outcome", how.name),
               one.counters->calls[static_cast<std::size_t>(how.outcome)].load());
    }
  }
  to.describe("device_call_seconds_total", "counter", "What these calls took, together.");
  for (const loaded_plugin& one : devices->plugins()) {
    to.value("device_call_seconds_total", label("plugin", one.name),
             static_cast<double>(one.counters->call_ns.load()) / 1e9);
  }
}

template <std::size_t N>
void add(std::array<std::uint64_t, N>& to, const std::array<counter, N>& from) {
  for (std::size_t i = 0; i < N; ++i) to[i] += from[i].value();
}

}  // namespace

totals sum(const std::vector<const loop_counters*>& loops) {
  totals all;
  for (const loop_counters* loop : loops) {
    add(all.requests, loop->requests);
    // Added before the accepted connections, so that never more have ended than begun.
    add(all.endings, loop->endings);
    all.failed_requests += loop->failed_requests.value();
    all.damaged_requests += loop->damaged_requests.value();
    all.bytes_read += loop->bytes_read.value();
    all.bytes_written += loop->bytes_written.value();
    all.bytes_called += loop->bytes_called.value();
    all.connections += loop->connections.value();
    all.sessions_opened += loop->sessions_opened.value();
    all.sessions_joined += loop->sessions_joined.value();
    for (std::size_t i = 0; i < all.latency.size(); ++i) all.latency[i] += loop->latency.count_of(i);
    all.latency_sum_ns += loop->latency.sum_ns();
  }
  return all;
}

std::uint64_t totals::all_requests() const {
  return std::accumulate(requests.begin(), requests.end(), std::uint64_t{0});
}

std::uint64_t totals::connections_open() const {
  const std::uint64_t ended = std::accumulate(endings.begin(), endings.end(), std::uint64_t{0});
  return connections > ended ? connections - ended : 0;
}

std::string prometheus_text(const server_view& view, std::uint64_t now_ns) {
  text_writer to;
  to.describe("build_info", "gauge", "The version, as a label.");
  to.value("build_info", label("version", FARHEAP_VERSION), 1);
  to.single("uptime_seconds", "gauge", "Since the server started.",
            static_cast<double>(now_ns - view.started_at_ns) / 1e9);
  const totals all = sum(view.loops);
  write_store(to, view.lent->report());
  write_traffic(to, all);
  write_latency(to, all);
  write_devices(to, view.devices.get());
  return to.take();
}

rates rate_meter::look(const totals& now, std::uint64_t now_ns) {
  const lock_guard guard(lock_);
  if (seen_at_ns_ != 0 && now_ns - seen_at_ns_ < least_ns) return last_;
  if (seen_at_ns_ != 0) {
    const double seconds = static_cast<double>(now_ns - seen_at_ns_) / 1e9;
    last_.requests = static_cast<double>(now.all_requests() - requests_) / seconds;
    last_.bytes_read = static_cast<double>(now.bytes_read - bytes_read_) / seconds;
    last_.bytes_written = static_cast<double>(now.bytes_written - bytes_written_) / seconds;
  }
  seen_at_ns_ = now_ns;
  requests_ = now.all_requests();
  bytes_read_ = now.bytes_read;
  bytes_written_ = now.bytes_written;
  return last_;
}

}  // namespace far::server
