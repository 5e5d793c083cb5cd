// The page for people: plain HTML with a little CSS, so that any browser can show it without further files.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/units.h"
#include "server/metrics.h"
#include "server/plots.h"

namespace far::server {
namespace {

constexpr const char* style =
    "body{font:15px system-ui,sans-serif;max-width:54em;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;width:100%}td,th{padding:.25em .6em;text-align:left;border-bottom:1px solid #ddd}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}"
    ".bar{background:#eee;border-radius:3px}.bar div{background:#3b7dd8;height:.9em;border-radius:3px}"
    ".plot{width:100%;font-size:11px;fill:#555}.plot polyline{fill:none;stroke-width:1.5}"
    ".plot .axis{fill:none;stroke:#bbb}"
    ".warn{background:#fff3cd;padding:.5em 1em;border-radius:3px}";

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string bar(double share) {
  return fmt::format("<div class=bar><div style=\"width:{:.1f}%\"></div></div>", std::min(share, 100.0));
}

std::string size_of_blocks(std::uint64_t blocks) {
  return format_size(blocks * block_bytes);
}

std::string format_rate(double bytes) {
  return format_size(static_cast<std::uint64_t>(bytes)) + "/s";
}

// A row with a name, one number or several, and a bar.
void row(std::string& to, const std::string& name, const std::string& value, double share) {
  fmt::format_to(std::back_inserter(to), "<tr><td>{}<td class=n>{}<td style=\"width:45%\">{}</tr>\n", name, value,
                 bar(share));
}

void write_plots(std::string& to, const store_report& report, const history& past, std::uint64_t now_ns) {
  const auto size = [](double bytes) { return format_size(static_cast<std::uint64_t>(bytes)); };
  to += "<h2>The last five minutes</h2>\n<p>Requests</p>\n";
  to += plot("Requests a second", {{.name = "", .value = [](const history_point& at) { return at.requests; }}},
             past.points(), now_ns, 0, [](double value) { return fmt::format("{:.0f}/s", value); });
  to += "<p>Bytes</p>\n";
  to += plot(
      "Bytes a second",
      {{.name = "read", .value = [](const history_point& at) { return at.bytes_read; }},
       {.name = "written", .colour = "#c2571a", .value = [](const history_point& at) { return at.bytes_written; }}},
      past.points(), now_ns, 0, format_rate);
  to += "<p>Lent</p>\n";
  std::vector<plot_line> lent{
      {.name = "lent", .value = [](const history_point& at) { return static_cast<double>(at.held_bytes); }}};
  if (report.spill) {
    lent.push_back({.name = "on disk", .colour = "#c2571a", .value = [](const history_point& at) {
                      return static_cast<double>(at.spilled_bytes);
                    }});
  }
  to += plot("Lent", lent, past.points(), now_ns, static_cast<double>(report.memory_blocks * block_bytes), size);
}

void write_tenants(std::string& to, const store_report& report) {
  to += "<h2>Tenants</h2>\n<table><tr><th>name<th class=n>holds<th class=n>quota<th class=n>sessions<th></tr>\n";
  for (const auto& tenant : report.tenants) {
    fmt::format_to(std::back_inserter(to),
                   "<tr><td>{}<td class=n>{}<td class=n>{}<td class=n>{}<td style=\"width:35%\">{}</tr>\n", tenant.name,
                   size_of_blocks(tenant.held_blocks), size_of_blocks(tenant.quota_blocks), tenant.sessions,
                   bar(percent(tenant.held_blocks, tenant.quota_blocks)));
  }
  if (report.tenants.empty()) to += "<tr><td colspan=5>none</tr>\n";
  to += "</table>\n";
}

void write_latency(std::string& to, const totals& all) {
  to += "<h2>Latency of requests in the server</h2>\n<table><tr><th>up to<th class=n>requests<th></tr>\n";
  std::uint64_t count = 0;
  std::size_t first = all.latency.size();
  std::size_t last = 0;
  for (std::size_t i = 0; i < all.latency.size(); ++i) {
    if (all.latency[i] == 0) continue;
    first = std::min(first, i);
    last = i;
    count += all.latency[i];
  }
  for (std::size_t i = first; i <= last && count > 0; ++i) {
    const std::string limit = i + 1 == all.latency.size() ? "longer" : format_duration(latency_histogram::limit_ns(i));
    row(to, limit, std::to_string(all.latency[i]), percent(all.latency[i], count));
  }
  if (count == 0) to += "<tr><td colspan=3>no requests yet</tr>\n";
  to += "</table>\n";
}

}  // namespace

// One page without scripts that reloads itself: it can be read from any browser, and the server needs no files.
std::string status_page(const server_view& view, const rates& speed, const history& past, std::uint64_t now_ns) {
  const store_report report = view.lent->report();
  const totals all = sum(view.loops);
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8><meta http-equiv=refresh content=2>"
      "<title>farheapd</title><style>{}</style></head><body>\n<h1>farheapd</h1>\n"
      "<p>{}, version {}, up {}. Numbers for machines: <a href=\"/metrics\">/metrics</a></p>\n",
      style, view.address, FARHEAP_VERSION, format_duration(now_ns - view.started_at_ns));
  if (report.draining)
    page += "<p class=warn>Draining: no new blocks, no new sessions; it ends with its last client.</p>\n";
  if (report.spill && report.spill->is_failing)
    page += "<p class=warn>The disk of --spill takes no blocks: nothing is lent beyond memory. See the log.</p>\n";
  page += "<h2>Capacity</h2>\n<table>\n";
  const double used = percent(report.held_blocks, report.memory_blocks);
  row(page, "lent", fmt::format("{} of {}", size_of_blocks(report.held_blocks), size_of_blocks(report.memory_blocks)),
      used);
  if (report.spill) {
    const spill_report& spill = *report.spill;
    row(page, "in memory", size_of_blocks(spill.resident_blocks), percent(spill.resident_blocks, report.held_blocks));
    row(page, "on disk", fmt::format("{} of {}", size_of_blocks(spill.places_used), format_size(spill.size_bytes)),
        percent(spill.places_used * block_bytes, spill.size_bytes));
  }
  page += "</table>\n<h2>Throughput</h2>\n<table>\n";
  fmt::format_to(std::back_inserter(page),
                 "<tr><td>requests<td class=n>{:.0f}/s<td class=n>{} in all</tr>\n"
                 "<tr><td>read<td class=n>{}<td class=n>{} in all</tr>\n"
                 "<tr><td>written<td class=n>{}<td class=n>{} in all</tr>\n"
                 "<tr><td>connections<td class=n>{}<td class=n>{} in all</tr>\n"
                 "<tr><td>sessions<td class=n>{}<td class=n>{} in all</tr>\n</table>\n",
                 speed.requests, all.all_requests(), format_rate(speed.bytes_read), format_size(all.bytes_read),
                 format_rate(speed.bytes_written), format_size(all.bytes_written), all.connections_open(),
                 all.connections, report.sessions, all.sessions_opened);
  write_plots(page, report, past, now_ns);
  write_tenants(page, report);
  write_latency(page, all);
  page += "</body></html>\n";
  return page;
}

}  // namespace far::server
