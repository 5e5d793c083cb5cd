#include "server/metrics.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "server/plots.h"
#include "tests/support/scripted_client.h"

namespace far::server {
namespace {

// Every line is a comment or "name{labels} number"; the value of one of them.
double value_of(const std::string& text, const std::string& wanted) {
  std::istringstream lines(text);
  std::string line;
  double value = -1;
  while (std::getline(lines, line)) {
    if (line.starts_with("# HELP farheapd_") || line.starts_with("# TYPE farheapd_")) continue;
    const std::size_t gap = line.rfind(' ');
    if (!line.starts_with("farheapd_") || gap == line.npos) {
      ADD_FAILURE() << "not a sample: " << line;
      continue;
    }
    const std::string name = line.substr(0, gap);
    const std::size_t labels = name.find('{');
    EXPECT_TRUE(labels == name.npos || name.ends_with("\"}")) << line;
    char* end = nullptr;
    const double number = std::strtod(line.c_str() + gap + 1, &end);
    EXPECT_TRUE(end != line.c_str() + gap + 1 && *end == 0) << line;
    if (name == wanted) value = number;
  }
  return value;
}

struct Metrics : testing::Test {
  test_server server{8, "", {{"alice", 4 * block_bytes}}};
  loop_counters idle;
  server_view view{server.lent.get(), {&server.counters, &idle}, "127.0.0.1:1", 0};
};

TEST_F(Metrics, CountWhatClientsDo) {
  scripted_client client(server);
  ASSERT_TRUE(client.shake_hands({.tenant = "alice"}).has_value());
  ASSERT_EQ(client.ask_blocks(wire::opcode::allocate, 0, 2), wire::status::ok);
  ASSERT_EQ(client.write({{0, 0, 100}}, pattern(100, 1)), wire::status::ok);
  static_cast<void>(client.read({{0, 0, 60}}));
  static_cast<void>(client.ask_blocks(wire::opcode::allocate, 2, 5));
  server.counters.latency.add(1500, 3);
  idle.latency.add(900, 1);
  const std::string text = prometheus_text(view, 5'000'000'000);
  EXPECT_EQ(value_of(text, "farheapd_memory_bytes"), 8 * block_bytes);
  EXPECT_EQ(value_of(text, "farheapd_used_bytes"), 2 * block_bytes);
  EXPECT_EQ(value_of(text, "farheapd_tenant_quota_bytes{tenant=\"alice\"}"), 4 * block_bytes);
  EXPECT_EQ(value_of(text, "farheapd_tenant_used_bytes{tenant=\"alice\"}"), 2 * block_bytes);
  EXPECT_EQ(value_of(text, "farheapd_requests_total{operation=\"allocate\"}"), 2);
  EXPECT_EQ(value_of(text, "farheapd_requests_total{operation=\"read\"}"), 1);
  EXPECT_EQ(value_of(text, "farheapd_failed_requests_total"), 1);
  EXPECT_EQ(value_of(text, "farheapd_read_bytes_total"), 60);
  EXPECT_EQ(value_of(text, "farheapd_written_bytes_total"), 100);
  EXPECT_EQ(value_of(text, "farheapd_connections"), 1);
  EXPECT_EQ(value_of(text, "farheapd_uptime_seconds"), 5);
  EXPECT_EQ(value_of(text, "farheapd_request_duration_seconds_bucket{le=\"1.024e-06\"}"), 1);
  EXPECT_EQ(value_of(text, "farheapd_request_duration_seconds_bucket{le=\"2.048e-06\"}"), 4);
  EXPECT_EQ(value_of(text, "farheapd_request_duration_seconds_bucket{le=\"+Inf\"}"), 4);
  EXPECT_EQ(value_of(text, "farheapd_request_duration_seconds_count"), 4);
  client.talk.leave(server.now_ns);
  EXPECT_EQ(value_of(prometheus_text(view, 1), "farheapd_connections"), 0);
  EXPECT_EQ(value_of(prometheus_text(view, 1), "farheapd_connection_endings_total{reason=\"peer_gone\"}"), 1);
}

TEST_F(Metrics, ATenantWithAQuotaIsListedBeforeItComes) {
  EXPECT_EQ(value_of(prometheus_text(view, 1), "farheapd_tenant_used_bytes{tenant=\"alice\"}"), 0);
}

TEST_F(Metrics, LimitsOfATenantAreShown) {
  server.lent->set_limits({{"alice", {.connections = 3, .requests = 500}}});
  scripted_client client(server);
  ASSERT_TRUE(client.shake_hands({.tenant = "alice"}).has_value());
  const std::string text = prometheus_text(view, 1);
  EXPECT_EQ(value_of(text, "farheapd_tenant_connections{tenant=\"alice\"}"), 1);
  EXPECT_EQ(value_of(text, "farheapd_tenant_limit{tenant=\"alice\",kind=\"connections\"}"), 3);
  EXPECT_EQ(value_of(text, "farheapd_tenant_limit{tenant=\"alice\",kind=\"requests\"}"), 500);
  EXPECT_EQ(text.find("kind=\"bytes\""), std::string::npos);
  EXPECT_EQ(value_of(text, "farheapd_tenant_delays_total{tenant=\"alice\"}"), 0);
}

TEST(LatencyHistogram, BucketsArePowersOfTwo) {
  latency_histogram all;
  for (const std::uint64_t ns : {std::uint64_t{0}, std::uint64_t{1024}, std::uint64_t{1025}, std::uint64_t{2048}}) {
    all.add(ns, 1);
  }
  all.add(~std::uint64_t{0} >> 1, 1);
  EXPECT_EQ(all.count_of(0), 2u);
  EXPECT_EQ(all.count_of(1), 2u);
  EXPECT_EQ(all.count_of(latency_histogram::buckets - 1), 1u);
}

TEST(RateMeter, MeasuresBetweenLooks) {
  rate_meter meter;
  totals seen;
  EXPECT_EQ(meter.look(seen, 1'000'000'000).requests, 0);
  seen.requests[0] = 500;
  seen.bytes_read = 2000;
  const rates got = meter.look(seen, 3'000'000'000);
  EXPECT_DOUBLE_EQ(got.requests, 250);
  EXPECT_DOUBLE_EQ(got.bytes_read, 1000);
  seen.requests[0] = 900;
  EXPECT_DOUBLE_EQ(meter.look(seen, 3'100'000'000).requests, 250) << "too early for another look";
}

TEST_F(Metrics, TheHistoryHasRatesAndForgets) {
  history past;
  totals seen;
  EXPECT_TRUE(past.is_due(1'000'000'000));
  past.note(seen, {}, 1'000'000'000);
  EXPECT_TRUE(past.points().empty());
  EXPECT_FALSE(past.is_due(1'500'000'000));
  seen.requests[0] = 500;
  seen.bytes_written = 4000;
  EXPECT_TRUE(past.is_due(3'000'000'000));
  past.note(seen, store::usage{3, 0}, 3'000'000'000);
  ASSERT_EQ(past.points().size(), 1u);
  EXPECT_DOUBLE_EQ(past.points()[0].requests, 250);
  EXPECT_DOUBLE_EQ(past.points()[0].bytes_written, 2000);
  EXPECT_EQ(past.points()[0].held_bytes, 3 * block_bytes);
  past.note(seen, {}, 302'000'000'000);
  EXPECT_EQ(past.points().size(), 2u);
  past.note(seen, {}, 304'000'000'000);
  EXPECT_EQ(past.points().size(), 2u) << "the first is older than five minutes";
  EXPECT_DOUBLE_EQ(past.points()[0].requests, 0);
}

TEST_F(Metrics, PlotsReachFromTheBottomToTheTop) {
  std::deque<history_point> points;
  for (std::uint64_t second = 0; second <= 300; second += 150) {
    points.push_back({.at_ns = (1000 + second) * 1'000'000'000, .requests = static_cast<double>(second)});
  }
  const std::vector<plot_line> lines{{.name = "", .value = [](const history_point& at) { return at.requests; }}};
  const auto format = [](double value) { return std::to_string(static_cast<int>(value)) + "!"; };
  const std::string drawn = plot("Requests", lines, points, 1300'000'000'000, 0, format);
  EXPECT_NE(drawn.find("points=\"80.0,102.0 340.0,54.0 600.0,6.0 \""), std::string::npos) << drawn;
  EXPECT_NE(drawn.find("300!"), std::string::npos);
  const std::string lower = plot("Requests", lines, points, 1300'000'000'000, 600, format);
  EXPECT_NE(lower.find("600.0,54.0 \""), std::string::npos) << lower;
}

TEST_F(Metrics, ThePageShowsThemAndLoadsItselfAgain) {
  server.counters.latency.add(5000, 2);
  const std::string page = status_page(view, {}, {}, 2'000'000'000);
  for (const char* part : {"http-equiv=refresh", "alice", "16.0 MiB", "8.19 us", "127.0.0.1:1", "/metrics"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(page.find("Draining"), std::string::npos);
  server.lent->drain();
  EXPECT_NE(status_page(view, {}, {}, 2'000'000'000).find("Draining"), std::string::npos);
}

}  // namespace
}  // namespace far::server
