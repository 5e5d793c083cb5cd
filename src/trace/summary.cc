#include <fmt/format.h>

#include <algorithm>

#include "trace/reports.h"
#include "trace/stack_frames.h"

namespace far::trace {
namespace {

std::string percent(double share) {
  return fmt::format("{:.1f}%", 100 * share);
}

std::string counted(std::uint64_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

// Long C++ names would hide the rest of the line.
std::string shortened(const std::string& name, std::size_t most) {
  return name.size() <= most ? name : name.substr(0, most - 3) + "...";
}

std::string kinds(const line_report& line) {
  const auto share = [&line](std::uint64_t count) { return (100 * count + line.misses / 2) / line.misses; };
  std::string text;
  const auto add = [&](std::uint64_t count, const char* name) {
    if (count > 0) text += fmt::format("{}{}% {}", text.empty() ? "" : ", ", share(count), name);
  };
  add(line.reads, "reads");
  add(line.writes, "writes");
  add(line.protections, "first writes");
  if (line.in_kernel > 0) text += fmt::format(" ({}% in system calls)", share(line.in_kernel));
  return text;
}

std::string pattern_line(const line_report& line) {
  std::string text = pattern_text(line.seen);
  if (line.seen.kind != pattern_kind::unknown) text += fmt::format(", {:.0f}% fit", 100 * line.seen.fit);
  if (line.seen.typical_run > 0) text += fmt::format(", runs of {} pages", line.seen.typical_run);
  return text + ", " + counted(line.threads, "thread", "threads");
}

// The widths keep the figures of up to 999 lines in columns.
std::string line_text(std::size_t number, const line_report& line) {
  std::string text = fmt::format("{:>3}. {:>6} {:>7}  {}\n", number, percent(line.share),
                                 percent(line.cumulative_share), line.place());
  const auto detail = [&text](const char* name, const std::string& value) {
    text += fmt::format("{:>21}{:<9} {}\n", "", name, value);
  };
  if (!line.file.empty()) detail("in", shortened(line.function, 100));
  if (!line.container.empty()) detail("through", shortened(line.container, 100));
  if (!line.python.empty() && line.python != line.place()) detail("python", line.python);
  const std::string beside =
      line.first_touches == 0 ? "" : "; and " + counted(line.first_touches, "first touch", "first touches");
  detail("misses", fmt::format("{}: {}{}", line.misses, kinds(line), beside));
  detail("pattern", pattern_line(line));
  for (const allocation_site& site : line.allocations) {
    if (&site != &line.allocations.front() && 10 * site.misses < line.misses) break;
    detail("memory", shortened(site.place, 140) + ", " +
                         percent(static_cast<double>(site.misses) / static_cast<double>(line.misses)));
  }
  if (line.has_hint) detail("note", "a hint stands close by: it comes too late, or not for this address");
  if (!line.hint.empty()) detail("write", line.hint);
  return text;
}

std::string process_notes(const report& analysis) {
  std::string text;
  for (const std::string& file : analysis.empty_files) {
    text += fmt::format("note: {} is empty; its process was killed at once, or the disk was full\n", file_name(file));
  }
  for (const process_report& process : analysis.processes) {
    const std::string name = file_name(process.file);
    if (process.cut_short) text += fmt::format("note: {} is cut short; its beginning is here\n", name);
    if (!process.ended)
      text += fmt::format("note: process {} did not end in order, or is still running\n", process.pid);
    if (process.lost_records > 0) {
      text += fmt::format("note: process {} lost {}; free space where the trace is written\n", process.pid,
                          counted(process.lost_records, "record", "records"));
    }
    if (process.sampled_one_in > 1) {
      text += fmt::format("note: process {} recorded 1 of {} misses; patterns may look wider than they are\n",
                          process.pid, process.sampled_one_in);
    }
  }
  return text;
}

std::string hint_notes(const report& analysis) {
  std::string text;
  const std::uint64_t all = analysis.misses + analysis.first_touches + analysis.hinted_misses;
  if (!analysis.hint_sites.empty() && all > 0) {
    text += fmt::format(
        "Hints came before {} of {} misses, first touches among them ({}); {} recorded misses are on lines with a hint "
        "close by.\n",
        analysis.hinted_misses, all, percent(static_cast<double>(analysis.hinted_misses) / static_cast<double>(all)),
        analysis.misses_near_hints);
  }
  for (const hint_site& site : analysis.hint_sites) {
    if (!never_helps(site)) continue;
    text += fmt::format("The hint at {}:{} never found anything to do in {}; remove it, or move it earlier.\n",
                        site.file, site.line, counted(site.calls, "call", "calls"));
  }
  return text.empty() ? text : "\n" + text;
}

}  // namespace

// Only the lines that explain the wanted share of the misses are shown; the rest is in the report files.
std::string summary_text(const report& analysis) {
  std::string text = fmt::format("{} in {}, from {} of code\n", counted(analysis.misses, "miss", "misses"),
                                 counted(analysis.processes.size(), "process", "processes"),
                                 counted(analysis.lines.size(), "line", "lines"));
  if (analysis.first_touches > 0) {
    text += fmt::format("and {} of pages without content, which were filled with zeros: not counted below\n",
                        counted(analysis.first_touches, "first touch", "first touches"));
  }
  text += process_notes(analysis);
  if (analysis.misses > 0) {
    text += fmt::format("\n{} {} {:.0f}% of the misses:\n\n", counted(analysis.explaining, "line", "lines"),
                        analysis.explaining == 1 ? "explains" : "explain", 100 * analysis.explained_share);
    text += "      share     sum  line\n";
    for (std::size_t i = 0; i < analysis.explaining; ++i) text += line_text(i + 1, analysis.lines[i]);
  }
  text += hint_notes(analysis);
  for (const missing_symbols& module : analysis.missing) {
    text += fmt::format("\n{} has no lines to show: {}\n", module.module, module.advice);
  }
  return text;
}

}  // namespace far::trace
