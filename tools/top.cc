#include "top.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/units.h"
#include "message.h"
#include "program.h"
#include "terminal.h"

namespace far::tools {
namespace {

using preload::job_process;

constexpr std::size_t narrowest_program = 8;
constexpr std::size_t widest_program = 24;
constexpr std::size_t other_columns = 70;

const char* name_of(top_order order) {
  switch (order) {
    case top_order::misses: return "misses";
    case top_order::local: return "local";
    case top_order::far: return "far";
    case top_order::pid: return "PID";
  }
  return "";
}

std::uint64_t growth(std::uint64_t before, std::uint64_t after) {
  return after - std::min(before, after);
}

// A process is known by its job, its number and its start.
using process_key = std::pair<std::uint64_t, std::pair<pid_t, std::uint64_t>>;
process_key key_of(const job_snapshot& job, const job_process& one) {
  return {job.id, {one.pid, one.started_ns}};
}

std::string fit(std::string line, std::size_t columns) {
  if (line.size() > columns) line.resize(columns);
  return line;
}

std::string count(double per_second) {
  if (per_second < 99'999.5) return fmt::format("{:.0f}", per_second);
  return per_second < 9'999'500 ? fmt::format("{:.0f}k", per_second / 1e3) : fmt::format("{:.0f}M", per_second / 1e6);
}

std::string line_of(const top_row& row, std::size_t program_width) {
  const engine::statistics& counted = row.process.counted;
  return fmt::format("{:>7} {:<{}.{}} {:>5}/{:<5} {:>6} {:>8} {:>7} {:>9} {:>7.1f} {:>6}", row.process.pid,
                     row.process.program, program_width, program_width, short_size(counted.local_bytes),
                     short_size(counted.budget_bytes), short_size(counted.far_bytes), count(row.misses_per_s),
                     count(row.prefetch_hits_per_s), count(row.evicted_per_s), row.waited_percent,
                     counted.backend_errors);
}

// What is amiss with its memory servers; empty: nothing.
std::string trouble_of(const engine::statistics& counted) {
  if (counted.away_servers == 0 && counted.lacking_copies == 0) return "";
  return fmt::format(", {} of {} servers away, {} copies lacking", counted.away_servers, counted.servers,
                     count(static_cast<double>(counted.lacking_copies)));
}

std::string line_of(const job_snapshot& job) {
  const job_process& first = job.processes.front();
  const engine::statistics& counted = job.totals.counted;
  return fmt::format("{} ({}): {} of {} processes run, local {} of {}{}, far {}{}", first.program, first.pid,
                     job.totals.running, job.totals.processes, short_size(counted.local_bytes),
                     short_size(counted.budget_bytes), job.shares ? "" : " (each its own)",
                     short_size(counted.far_bytes), trouble_of(counted));
}

// The subject of the view: the jobs of certain processes, or all running jobs.
class view {
 public:
  [[nodiscard]] static result<view> open(const std::vector<std::string>& pids) {
    view shown;
    shown.all_ = pids.empty();
    for (const std::string& text : pids) {
      const result<pid_t> pid = parse_pid(text);
      if (!pid) return pid.error();
      if (take_snapshot(pid.value()).ok()) {
        shown.lone_.push_back(pid.value());
        continue;
      }
      result<preload::job_mapping> job = find_job(pid.value());
      if (!job) return job.error();
      shown.chosen_.push_back(std::move(job).value());
    }
    return shown;
  }

  // The jobs in which something runs; two processes of one job show it once.
  [[nodiscard]] std::vector<job_snapshot> look() const {
    if (all_) return take_all_snapshots();
    std::vector<job_snapshot> seen;
    for (const preload::job_mapping& job : chosen_) {
      job_snapshot taken = take_snapshot(job);
      const bool known =
          std::any_of(seen.begin(), seen.end(), [&](const job_snapshot& other) { return other.id == taken.id; });
      if (taken.totals.running > 0 && !known) seen.push_back(std::move(taken));
    }
    for (const pid_t pid : lone_) {
      result<job_snapshot> taken = take_snapshot(pid);  // one that has ended says nothing
      if (taken) seen.push_back(std::move(taken).value());
    }
    return seen;
  }
  [[nodiscard]] bool shows_all() const { return all_; }

 private:
  bool all_ = true;
  std::vector<preload::job_mapping> chosen_;
  std::vector<pid_t> lone_;
};

nlohmann::ordered_json to_json(const top_row& row) {
  const engine::statistics& counted = row.process.counted;
  return {{"pid", row.process.pid},
          {"program", row.process.program},
          {"local_bytes", counted.local_bytes},
          {"budget_bytes", counted.budget_bytes},
          {"far_bytes", counted.far_bytes},
          {"misses_per_s", row.misses_per_s},
          {"prefetch_hits_per_s", row.prefetch_hits_per_s},
          {"evicted_per_s", row.evicted_per_s},
          {"waited_percent", row.waited_percent},
          {"backend_errors", counted.backend_errors}};
}

void print_json(const std::vector<job_snapshot>& before, const std::vector<job_snapshot>& after) {
  nlohmann::ordered_json jobs = nlohmann::ordered_json::array();
  for (const job_snapshot& job : after) {
    nlohmann::ordered_json processes = nlohmann::ordered_json::array();
    for (const top_row& row : compare(before, {job})) processes.push_back(to_json(row));
    jobs.push_back({{"pid", job.processes.front().pid},
                    {"program", job.processes.front().program},
                    {"shares", job.shares},
                    {"budget_bytes", job.totals.counted.budget_bytes},
                    {"local_bytes", job.totals.counted.local_bytes},
                    {"far_bytes", job.totals.counted.far_bytes},
                    {"process_count", job.totals.processes},
                    {"processes_running", job.totals.running},
                    {"processes", processes}});
  }
  // Bytes of a program's name that are not UTF-8 are replaced, not thrown about.
  constexpr auto replace = nlohmann::ordered_json::error_handler_t::replace;
  fmt::print("{}\n", nlohmann::ordered_json{{"jobs", jobs}}.dump(-1, ' ', false, replace));
}

void print_once(const view& seen, const top_options& chosen) {
  const std::vector<job_snapshot> before = seen.look();
  timespec pause{};
  pause.tv_sec = static_cast<time_t>(chosen.interval_s);
  pause.tv_nsec = static_cast<long>((chosen.interval_s - std::floor(chosen.interval_s)) * 1e9);
  nanosleep(&pause, nullptr);
  const std::vector<job_snapshot> after = seen.look();
  if (chosen.json) return print_json(before, after);
  std::vector<top_row> rows = compare(before, after);
  sort_rows(rows, top_order::misses);
  constexpr std::size_t any = 10'000;
  for (const std::string& line : render(after, rows, top_order::misses, any, 100)) fmt::print("{}\n", line);
}

// Keys are read while the next look is waited for, so that sorting answers at once.
void run_live(const view& seen, double interval_s) {
  terminal screen;
  top_order order = top_order::misses;
  std::vector<job_snapshot> before;
  std::vector<job_snapshot> now = seen.look();
  // Those that were named have ended: so does this.
  while (seen.shows_all() || !now.empty()) {
    std::vector<top_row> rows = compare(before, now);
    sort_rows(rows, order);
    screen.draw(render(now, rows, order, screen.lines(), screen.columns()));
    const char key = screen.wait_for_key(static_cast<int>(interval_s * 1000));
    switch (key) {
      case 'q': return;
      case 'm': order = top_order::misses; break;
      case 'l': order = top_order::local; break;
      case 'f': order = top_order::far; break;
      case 'p': order = top_order::pid; break;
      default: break;
    }
    // A key sorts what is there; the next look comes when it is time.
    if (key != 0) continue;
    before = std::exchange(now, seen.look());
  }
}

}  // namespace

std::string short_size(std::uint64_t bytes) {
  static constexpr char units[] = "BKMGTPE";
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 2 < sizeof units) {
    value /= 1024;
    ++unit;
  }
  const int digits = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", value, digits, units[unit]);
}

// Processes are matched by job and start, not by their number alone, which the kernel gives again.
std::vector<top_row> compare(const std::vector<job_snapshot>& before, const std::vector<job_snapshot>& after) {
  std::map<process_key, std::pair<const job_process*, std::uint64_t>> known;
  for (const job_snapshot& job : before) {
    for (const job_process& one : job.processes) known[key_of(job, one)] = {&one, job.taken_ns};
  }
  std::vector<top_row> rows;
  for (const job_snapshot& job : after) {
    for (const job_process& one : job.processes) {
      if (!one.running) continue;
      top_row row;
      row.process = one;
      const auto found = known.find(key_of(job, one));
      // One that was not there before has no rate yet.
      if (found != known.end() && job.taken_ns > found->second.second) {
        const engine::statistics& then = found->second.first->counted;
        const double ns = static_cast<double>(job.taken_ns - found->second.second);
        row.misses_per_s = static_cast<double>(growth(then.misses, one.counted.misses)) * 1e9 / ns;
        row.prefetch_hits_per_s = static_cast<double>(growth(then.prefetch_hits, one.counted.prefetch_hits)) * 1e9 / ns;
        row.evicted_per_s = static_cast<double>(growth(then.evicted_pages, one.counted.evicted_pages)) * 1e9 / ns;
        row.waited_percent = static_cast<double>(growth(then.wait_ns, one.counted.wait_ns)) * 100 / ns;
      }
      rows.push_back(row);
    }
  }
  return rows;
}

void sort_rows(std::vector<top_row>& rows, top_order order) {
  const auto before = [order](const top_row& left, const top_row& right) {
    const engine::statistics& mine = left.process.counted;
    const engine::statistics& other = right.process.counted;
    switch (order) {
      case top_order::misses:
        if (left.misses_per_s != right.misses_per_s) return left.misses_per_s > right.misses_per_s;
        return mine.local_bytes > other.local_bytes;
      case top_order::local: return mine.local_bytes > other.local_bytes;
      case top_order::far: return mine.far_bytes > other.far_bytes;
      case top_order::pid: return left.process.pid < right.process.pid;
    }
    return false;
  };
  std::stable_sort(rows.begin(), rows.end(), before);
}

// Returns lines rather than printing them, so that a test can look at a screen of any size.
std::vector<std::string> render(const std::vector<job_snapshot>& jobs, const std::vector<top_row>& rows,
                                top_order order, std::size_t lines, std::size_t columns) {
  std::vector<std::string> screen;
  screen.push_back(fmt::format("farheap top: {} {}, {} processes, by {}; q quits, m l f p sort", jobs.size(),
                               jobs.size() == 1 ? "job" : "jobs", rows.size(), name_of(order)));
  if (jobs.empty())
    screen.emplace_back(
        "nothing runs under `farheap run`, or with a far::runtime, as this user, or nothing that is seen from here");
  // The jobs take a third of the screen at most.
  for (std::size_t i = 0; i < jobs.size() && screen.size() < std::max<std::size_t>(lines / 3, 2); ++i) {
    screen.push_back(line_of(jobs[i]));
  }
  const std::size_t program_width =
      std::clamp(columns - std::min(columns, other_columns), narrowest_program, widest_program);
  screen.emplace_back();
  screen.push_back(fmt::format("{:>7} {:<{}} {:>5}/{:<5} {:>6} {:>8} {:>7} {:>9} {:>7} {:>6}", "PID", "program",
                               program_width, "local", "of", "far", "misses/s", "hits/s", "evicted/s", "waited%",
                               "errors"));
  for (const top_row& row : rows) screen.push_back(line_of(row, program_width));
  if (screen.size() > lines) screen.resize(lines);
  for (std::string& line : screen) line = fit(std::move(line), columns);
  return screen;
}

int top(const top_options& chosen) {
  const result<view> seen = view::open(chosen.pids);
  if (!seen) {
    return fail(seen.error().code == exit_usage ? exit_usage : exit_failure, seen.error().message);
  }
  if (chosen.once || chosen.json || !terminal::is_there()) {
    print_once(seen.value(), chosen);
  } else {
    run_live(seen.value(), chosen.interval_s);
  }
  return 0;
}

}  // namespace far::tools
