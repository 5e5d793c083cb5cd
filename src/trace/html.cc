#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/page_files.h"
#include "trace/reports.h"

namespace far::trace {
namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t most_places = 4;           // shown with a frame of the flame graph
constexpr std::uint64_t narrowest_frame = 4000;  // frames below 1/4000 of all misses are too narrow to be seen
constexpr std::size_t most_lines = 2000;

// Valid UTF-8 and ASCII alone, for any symbol's name.
std::string text_of(const json& value, int indent) {
  return value.dump(indent, ' ', true, json::error_handler_t::replace);
}

// The keys are read by report.js and by users of the JSON report, so they are spelled out here and do not follow the
// names of members.
json line_json(const line_report& line) {
  json allocations = json::array();
  for (const allocation_site& site : line.allocations) {
    allocations.push_back({{"place", site.place}, {"misses", site.misses}});
  }
  return {{"place", line.place()},
          {"function", line.function},
          {"file", line.file},
          {"line", line.line},
          {"module", line.module},
          {"container", line.container},
          {"python", line.python},
          {"misses", line.misses},
          {"reads", line.reads},
          {"writes", line.writes},
          {"protections", line.protections},
          {"in_kernel", line.in_kernel},
          {"first_touches", line.first_touches},
          {"threads", line.threads},
          {"share", line.share},
          {"cumulative_share", line.cumulative_share},
          {"pattern", pattern_text(line.seen)},
          {"fit", line.seen.fit},
          {"typical_run_pages", line.seen.typical_run},
          {"hint", line.hint},
          {"has_hint", line.has_hint},
          {"allocations", std::move(allocations)}};
}

json processes_json(const report& analysis) {
  json list = json::array();
  for (const process_report& one : analysis.processes) {
    list.push_back({{"pid", one.pid},
                    {"misses", one.misses},
                    {"sampled_one_in", one.sampled_one_in},
                    {"cut_short", one.cut_short},
                    {"ended", one.ended},
                    {"lost_records", one.lost_records}});
  }
  return list;
}

// Lists as many lines as a reader can use, and always those that explain the misses.
json everything_but_flame(const report& analysis) {
  json lines = json::array();
  for (std::size_t i = 0; i < std::min(analysis.lines.size(), std::max(most_lines, analysis.explaining)); ++i) {
    lines.push_back(line_json(analysis.lines[i]));
  }
  json hints = json::array();
  for (const hint_site& site : analysis.hint_sites) {
    hints.push_back({{"file", site.file},
                     {"line", site.line},
                     {"calls", site.calls},
                     {"misses", site.misses},
                     {"never_helps", never_helps(site)}});
  }
  json missing = json::array();
  for (const missing_symbols& one : analysis.missing) {
    missing.push_back({{"module", one.module}, {"advice", one.advice}, {"lookups", one.lookups}});
  }
  return {{"misses", analysis.misses},
          {"first_touches", analysis.first_touches},
          {"hinted_misses", analysis.hinted_misses},
          {"misses_near_hints", analysis.misses_near_hints},
          {"explained_share", analysis.explained_share},
          {"explaining", analysis.explaining},
          {"all_lines", analysis.lines.size()},
          {"processes", processes_json(analysis)},
          {"timeline",
           {{"bucket_ns", analysis.times.bucket_ns},
            {"reads", analysis.times.counts[0]},
            {"writes", analysis.times.counts[1]},
            {"protections", analysis.times.counts[2]},
            {"first_touches", analysis.times.counts[3]}}},
          {"lines", std::move(lines)},
          {"hint_sites", std::move(hints)},
          {"missing_symbols", std::move(missing)}};
}

// {"n": name, "v": misses, "p": places, "c": callees}; short names, for there are thousands.
json flame_json(const std::string& name, const flame_node& node, std::uint64_t fewest) {
  json object = {{"n", name}, {"v", node.misses}};
  std::vector<std::pair<std::string, std::uint64_t>> places(node.places.begin(), node.places.end());
  std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  places.resize(std::min(places.size(), most_places));
  if (!places.empty()) object["p"] = places;
  json callees = json::array();
  for (const auto& [callee, below] : node.callees) {
    if (below->misses >= fewest) callees.push_back(flame_json(callee, *below, fewest));
  }
  if (!callees.empty()) object["c"] = std::move(callees);
  return object;
}

void replace_once(std::string& text, std::string_view mark, std::string_view replacement) {
  const std::size_t at = text.find(mark);
  if (at != std::string::npos) text.replace(at, mark.size(), replacement);
}

}  // namespace

std::string report_json(const report& analysis) {
  return text_of(everything_but_flame(analysis), 2);
}

std::string report_page(const report& analysis) {
  json data = everything_but_flame(analysis);
  data["flame"] = flame_json("all", analysis.flame, analysis.flame.misses / narrowest_frame);
  std::string safe;
  // A name that holds "</script>" must not end the element that holds the data.
  for (const char c : text_of(data, -1)) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  std::string page(page_file("report.html"));
  replace_once(page, "/*{report.css}*/", page_file("report.css"));
  replace_once(page, "/*{base.js}*/", page_file("base.js"));
  replace_once(page, "/*{flame.js}*/", page_file("flame.js"));
  replace_once(page, "/*{report.js}*/", page_file("report.js"));
  replace_once(page, "{data}", safe);  // last, so that nothing in it is taken for a mark
  return page;
}

}  // namespace far::trace
