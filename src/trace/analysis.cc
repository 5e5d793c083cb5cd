#include "trace/analysis.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "trace/live_allocations.h"
#include "trace/stack_frames.h"

namespace far::trace {
namespace {

constexpr std::size_t timeline_buckets = 200;
constexpr const char* first_touch_frame = "[first touches]";  // the root of their stacks
constexpr std::size_t most_allocation_sites = 5;              // shown with a line
// A hint counts as one of a line when it stands in the same file, at most so many lines above it or below it. Hints
// stand in front of the access, as a rule, and a call or a macro may take several lines.
constexpr unsigned lines_below_hint = 6;
constexpr unsigned lines_above_hint = 2;

std::string hexadecimal(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

// Everything counted about one line, until finish().
struct line_state {
  line_report totals;
  pattern_finder finder;
  std::set<std::pair<std::size_t, std::uint32_t>> threads;  // of which trace, which
  std::map<std::string, std::uint64_t> containers;
  std::map<std::string, std::uint64_t> python;
  std::map<std::string, std::uint64_t> allocations;
};

struct access_state {
  std::uint64_t misses = 0;
  pattern_finder finder;
};

bool is_near(const hint_site& site, const line_report& line) {
  if (line.file.empty() || file_name(site.file) != file_name(line.file)) return false;
  // __FILE__ is as the compiler was called, often relative; the debug information says more.
  const std::string& longer = site.file.size() > line.file.size() ? site.file : line.file;
  const std::string& shorter = site.file.size() > line.file.size() ? line.file : site.file;
  if (shorter.find("..") == std::string::npos && !longer.ends_with(shorter)) return false;
  return line.line + lines_above_hint >= site.line && line.line <= site.line + lines_below_hint;
}

std::string most_frequent(const std::map<std::string, std::uint64_t>& counted) {
  const auto most = std::max_element(counted.begin(), counted.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == counted.end() ? std::string() : most->first;
}

std::vector<allocation_site> most_frequent_sites(const std::map<std::string, std::uint64_t>& counted) {
  std::vector<allocation_site> sites;
  for (const auto& [place, misses] : counted) sites.push_back({place, misses});
  std::sort(sites.begin(), sites.end(), [](const allocation_site& a, const allocation_site& b) {
    return std::tie(b.misses, a.place) < std::tie(a.misses, b.place);
  });
  sites.resize(std::min(sites.size(), most_allocation_sites));
  return sites;
}

timeline make_timeline(const std::vector<std::pair<std::uint64_t, miss_kind>>& moments) {
  timeline drawn;
  if (moments.empty()) return drawn;
  const auto [first, last] = std::minmax_element(moments.begin(), moments.end());
  drawn.bucket_ns = (last->first - first->first) / timeline_buckets + 1;
  for (auto& counts : drawn.counts) counts.resize((last->first - first->first) / drawn.bucket_ns + 1);
  for (const auto& [time, kind] : moments) {
    ++drawn.counts[static_cast<int>(kind)][(time - first->first) / drawn.bucket_ns];
  }
  return drawn;
}

// Something that happened to memory. At the same moment, an allocation comes before a miss, and that before a release.
struct event {
  std::uint64_t time_ns;
  enum { allocation, miss, release } type;
  std::size_t index;
};

std::vector<event> in_order_of_time(const trace& one) {
  std::vector<event> events;
  events.reserve(one.allocations.size() + one.misses.size() + one.releases.size());
  for (std::size_t i = 0; i < one.allocations.size(); ++i) {
    events.push_back({one.allocations[i].time_ns, event::allocation, i});
  }
  for (std::size_t i = 0; i < one.misses.size(); ++i) events.push_back({one.misses[i].time_ns, event::miss, i});
  for (std::size_t i = 0; i < one.releases.size(); ++i) events.push_back({one.releases[i].time_ns, event::release, i});
  std::sort(events.begin(), events.end(), [](const event& a, const event& b) {
    return std::tie(a.time_ns, a.type, a.index) < std::tie(b.time_ns, b.type, b.index);
  });
  return events;
}

}  // namespace

std::string line_report::place() const {
  if (!file.empty()) return file + ":" + std::to_string(line);
  return function.empty() ? "?" : function;
}

bool never_helps(const hint_site& site) {
  return site.calls > 0 && site.misses == 0;
}

class analyzer::state {
 public:
  explicit state(analysis_options options) : options_(std::move(options)) {}

  void add(const trace& one) {
    symbolizer symbols(one.maps);
    reading current{one, symbols, processes_++, {}, {}, {}};
    for (const event& next : in_order_of_time(one)) {
      switch (next.type) {
        case event::allocation: {
          const allocation_record& record = one.allocations[next.index];
          current.live.add(record.address, record.bytes, next.index);
          break;
        }
        case event::release: current.live.remove(one.releases[next.index].address); break;
        case event::miss: take_miss(current, one.misses[next.index]); break;
      }
    }
    for (auto& [number, group] : current.groups) add_to_flame(group);
    take_process(one);
    for (missing_symbols& module : symbols.missing()) note_missing(std::move(module));
  }

  // Everything that needs the sums of all processes is done here; the lines are sorted by all their fields, so that
  // equal traces give equal reports.
  report finish() {
    result_.explained_share = options_.explained_share;
    result_.times = make_timeline(moments_);
    finish_hint_sites();
    for (auto& [key, line] : lines_) {
      if (line.totals.misses > 0) result_.lines.push_back(finish_line(line));
    }
    for (const auto& [key, access] : accesses_) {
      if (access.misses == 0) continue;
      result_.accesses.push_back({key.first, key.second, access.misses, access.finder.find()});
    }
    result_.units.assign(units_.begin(), units_.end());
    // The C library seldom has debug information, and nobody needs it: only where a line is wanted and missing.
    std::erase_if(result_.missing, [this](const missing_symbols& one) {
      return std::none_of(result_.lines.begin(), result_.lines.end(),
                          [&one](const line_report& line) { return line.file.empty() && line.module == one.module; });
    });
    std::sort(result_.lines.begin(), result_.lines.end(), [](const line_report& a, const line_report& b) {
      return std::tie(b.misses, a.file, a.line, a.function, a.module) <
             std::tie(a.misses, b.file, b.line, b.function, b.module);
    });
    // Groups are disjoint, so the fewest that reach a share are the greatest ones.
    std::uint64_t sum = 0;
    for (line_report& line : result_.lines) {
      const bool reached = static_cast<double>(sum) >= options_.explained_share * static_cast<double>(result_.misses);
      if (!reached) ++result_.explaining;
      sum += line.misses;
      line.share = static_cast<double>(line.misses) / static_cast<double>(result_.misses);
      line.cumulative_share = static_cast<double>(sum) / static_cast<double>(result_.misses);
    }
    return std::move(result_);
  }

 private:
  // Misses of one stack and one Python stack: symbolized once.
  struct stack_group {
    line_state* line = nullptr;
    std::vector<flame_frame> stack;
    access_state* access = nullptr;  // null: its line is not known
    std::string container;
    std::string python;
    std::uint64_t misses = 0;
    std::uint64_t first_touches = 0;
  };
  // While one trace is added.
  struct reading {
    const trace& from;
    symbolizer& symbols;
    std::size_t number;
    live_allocations live;
    std::unordered_map<std::uint64_t, stack_group> groups;
    std::unordered_map<std::uint32_t, std::string> allocation_places;  // by stack
  };

  static const std::vector<python_frame>& python_frames(const trace& from, std::uint32_t number) {
    static const std::vector<python_frame> none;
    const auto found = from.python_stacks.find(number);
    return found != from.python_stacks.end() ? found->second : none;
  }

  stack_group& find_group(reading& now, const miss_record& miss) {
    const std::uint64_t key = std::uint64_t{miss.python_stack} << 32 | miss.stack;
    const auto [place, is_new] = now.groups.try_emplace(key);
    stack_group& found = place->second;
    if (!is_new) return found;
    const std::vector<frame> frames = frames_of(now.from, miss.stack, now.symbols);
    const std::vector<python_frame>& python = python_frames(now.from, miss.python_stack);
    found.stack = flame_stack(frames, python, options_);
    if (!python.empty()) found.python = python.front().file + ":" + std::to_string(python.front().line);
    const frame* const container = container_frame(frames, options_);
    if (container != nullptr) found.container = container_name(*container);
    frame chosen = program_frame(frames, options_);
    if (!python.empty() && is_interpreter(chosen, options_)) {
      chosen.function = python.front().function;
      chosen.file = python.front().file;
      chosen.line = python.front().line;
    }
    found.line = &find_line(chosen);
    const frame& innermost = frames.front();
    if (!innermost.file.empty() && innermost.line != 0) {
      found.access = &accesses_[{innermost.file, innermost.line}];
      if (modules_.insert(innermost.module).second) {
        for (std::string& unit : now.symbols.units_of(innermost.module)) units_.insert(std::move(unit));
      }
    }
    return found;
  }

  line_state& find_line(const frame& at) {
    std::string name = at.function;
    // Without a name, the instruction is all there is.
    if (name.empty()) name = at.module.empty() ? "[unknown]" : file_name(at.module) + "+" + hexadecimal(at.offset);
    const auto key = at.file.empty() ? std::make_tuple(at.module, 0u, name) : std::make_tuple(at.file, at.line, name);
    const auto [place, is_new] = lines_.try_emplace(key);
    line_report& totals = place->second.totals;
    if (is_new) {
      totals.function = name;
      totals.file = at.file;
      totals.line = at.line;
      totals.module = at.module;
    }
    return place->second;
  }

  const std::string& allocation_place(reading& now, std::uint32_t stack) {
    const auto [place, is_new] = now.allocation_places.try_emplace(stack);
    if (is_new) {
      const std::vector<frame> frames = frames_of(now.from, stack, now.symbols);
      const frame& chosen = program_frame(frames, options_);
      const std::string source = place_of(chosen);
      place->second = source.empty() ? chosen.function : source + " " + chosen.function;
      if (place->second.empty()) place->second = file_name(chosen.module) + "+" + hexadecimal(chosen.offset);
    }
    return place->second;
  }

  void add_to_flame(stack_group& group) {
    if (group.misses > 0) add_stack(result_.flame, group.stack, group.misses);
    if (group.first_touches == 0) return;
    group.stack.insert(group.stack.begin(), {first_touch_frame, ""});
    add_stack(result_.flame, group.stack, group.first_touches);
  }

  // A first touch is counted apart: nobody waited for a fetch, so it must not change what the report proposes to fetch
  // earlier.
  void take_miss(reading& now, const miss_record& miss) {
    stack_group& found = find_group(now, miss);
    moments_.emplace_back(miss.time_ns, miss.kind);
    line_state& line = *found.line;
    switch (miss.kind) {
      case miss_kind::read: ++line.totals.reads; break;
      case miss_kind::write: ++line.totals.writes; break;
      case miss_kind::protection: ++line.totals.protections; break;
      case miss_kind::first_touch:
        ++line.totals.first_touches;
        ++found.first_touches;
        ++result_.first_touches;
        return;  // nobody waited for a fetch, so it says nothing about what to fetch earlier
    }
    ++found.misses;
    ++result_.misses;
    ++line.totals.misses;
    line.totals.in_kernel += miss.in_kernel != 0;
    line.threads.emplace(now.number, miss.thread);
    if (!found.container.empty()) ++line.containers[found.container];
    if (!found.python.empty()) ++line.python[found.python];
    const std::size_t allocation = now.live.find(miss.address);
    if (allocation != live_allocations::none) {
      ++line.allocations[allocation_place(now, now.from.allocations[allocation].stack)];
    }
    const std::uint64_t walk = (now.number << 56) ^ (std::uint64_t{allocation + 1} << 32) ^ miss.thread;
    const std::uint64_t page = miss.address / now.from.header.page_bytes;
    line.finder.add(walk, page);
    if (found.access == nullptr || miss.in_kernel != 0) return;
    found.access->misses += std::max(now.from.header.sampled_one_in, 1u);
    found.access->finder.add(walk, page);
  }

  void take_process(const trace& one) {
    process_report process{
        one.file, one.header.pid, one.misses.size(), one.header.sampled_one_in, one.cut_short, one.end.has_value(), 0};
    if (one.end) {
      process.lost_records = one.end->lost_records;
      result_.hinted_misses += one.end->hinted_misses;
    }
    result_.processes.push_back(std::move(process));
    for (const hint_site& site : one.hint_sites) {
      hint_site& sum = hint_sites_[{site.file, site.line}];
      sum.file = site.file;
      sum.line = site.line;
      sum.calls += site.calls;
      sum.misses += site.misses;
    }
  }

  void note_missing(missing_symbols module) {
    const auto known = std::find_if(result_.missing.begin(), result_.missing.end(),
                                    [&](const missing_symbols& one) { return one.module == module.module; });
    if (known != result_.missing.end()) {
      known->lookups += module.lookups;
    } else {
      result_.missing.push_back(std::move(module));
    }
  }

  void finish_hint_sites() {
    for (const auto& [key, site] : hint_sites_) result_.hint_sites.push_back(site);
    std::sort(result_.hint_sites.begin(), result_.hint_sites.end(), [](const hint_site& a, const hint_site& b) {
      return std::make_tuple(!never_helps(a), ~a.calls, a.file, a.line) <
             std::make_tuple(!never_helps(b), ~b.calls, b.file, b.line);
    });
  }

  line_report finish_line(line_state& line) {
    line_report& totals = line.totals;
    totals.threads = static_cast<unsigned>(line.threads.size());
    totals.seen = line.finder.find();
    totals.container = most_frequent(line.containers);
    // Hints do not reach into containers.
    if (totals.container.empty()) {
      totals.hint = hint_text(totals.seen, 2 * (totals.writes + totals.protections) > totals.misses);
    }
    totals.python = most_frequent(line.python);
    totals.allocations = most_frequent_sites(line.allocations);
    totals.has_hint = std::any_of(result_.hint_sites.begin(), result_.hint_sites.end(),
                                  [&totals](const hint_site& site) { return is_near(site, totals); });
    if (totals.has_hint) result_.misses_near_hints += totals.misses;
    return std::move(totals);
  }

  analysis_options options_;
  std::size_t processes_ = 0;
  std::map<std::tuple<std::string, unsigned, std::string>, line_state> lines_;  // file or module, line, function
  std::map<std::pair<std::string, unsigned>, access_state> accesses_;           // file, line
  std::set<std::string> modules_;                                               // that these are in
  std::set<std::string> units_;                                                 // of the modules
  std::map<std::pair<std::string, unsigned>, hint_site> hint_sites_;
  std::vector<std::pair<std::uint64_t, miss_kind>> moments_;
  report result_;
};

analyzer::analyzer(analysis_options options) : state_(std::make_unique<state>(std::move(options))) {}
analyzer::~analyzer() = default;

void analyzer::add(const trace& one) {
  state_->add(one);
}

report analyzer::finish() {
  return state_->finish();
}

}  // namespace far::trace
