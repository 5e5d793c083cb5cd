// simulation [--replicated | --network] [--seed N] [--seeds COUNT] [--operations M] [--verbose]
//
// Runs COUNT seeds, from N on. When one fails, prints the command that repeats it, and ends. The build decides with the
// seed what happens (scheduler.h), so a failure is repeated with the program that showed it.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "base/log.h"
#include "simulation.h"
#include "trace.h"

namespace {

using far::simulation::report;
using far::simulation::run_options;
using far_tier = run_options::far_tier;

struct arguments {
  run_options run;
  std::uint64_t seeds = 1;
  bool verbose = false;
};

char repeat_command[512];

// In a signal handler, or on the way out of a sanitizer.
void print_repeat_command() {
  static_cast<void>(!write(STDERR_FILENO, repeat_command, std::strlen(repeat_command)));
}

void on_death(int number) {
  print_repeat_command();
  signal(number, SIG_DFL);
  raise(number);
}

// A fiber that has used up its stack has none to run a handler on.
void install_handlers() {
  static char stack[64 * 1024];
  const stack_t alternative{.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof stack};
  sigaltstack(&alternative, nullptr);
  struct sigaction action{};
  action.sa_handler = on_death;
  action.sa_flags = SA_ONSTACK;
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGALRM}) sigaction(number, &action, nullptr);
}

[[noreturn]] void usage(const char* program) {
  std::fprintf(stderr, "usage: %s [--replicated | --network] [--seed N] [--seeds COUNT] [--operations M] [--verbose]\n",
               program);
  std::exit(2);
}

arguments parse(int count, char** words) {
  arguments parsed;
  const auto number = [&](int* at) {
    if (*at + 1 >= count) usage(words[0]);
    char* end = nullptr;
    const std::uint64_t value = std::strtoull(words[++*at], &end, 10);
    if (end == words[*at] || *end != '\0') usage(words[0]);
    return value;
  };
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    if (word == "--seed") {
      parsed.run.seed = number(&i);
    } else if (word == "--seeds") {
      parsed.seeds = number(&i);
    } else if (word == "--operations") {
      parsed.run.operations = number(&i);
    } else if (word == "--replicated") {
      parsed.run.tier = far_tier::replicated;
    } else if (word == "--network") {
      parsed.run.tier = far_tier::network;
    } else if (word == "--verbose") {
      parsed.verbose = true;
    } else {
      usage(words[0]);
    }
  }
  return parsed;
}

const char* option_for(far_tier tier) {
  switch (tier) {
    case far_tier::memory: return "";
    case far_tier::replicated: return "--replicated ";
    case far_tier::network: return "--network ";
  }
  return "";
}

report run_one(const char* program, const run_options& chosen) {
  std::snprintf(repeat_command, sizeof repeat_command, "repeat with: %s %s--seed %llu --operations %llu --verbose\n",
                program, option_for(chosen.tier), static_cast<unsigned long long>(chosen.seed),
                static_cast<unsigned long long>(chosen.operations));
  return far::simulation::run_simulation(chosen);
}

void add(report* sum, const report& one) {
  const auto count = [](std::uint64_t& to, std::uint64_t what) { to += what; };
  count(sum->slices, one.slices);
  count(sum->validations, one.validations);
  count(sum->accesses, one.accesses);
  count(sum->moves, one.moves);
  count(sum->lost_pages, one.lost_pages);
  count(sum->object_reads, one.object_reads);
  count(sum->lost_object_reads, one.lost_object_reads);
  if (sum->servers.empty()) {
    sum->servers = one.servers;
  } else {
    for (std::size_t i = 0; i < one.servers.size(); ++i) count(sum->servers[i].number, one.servers[i].number);
  }
  count(sum->statistics.misses, one.statistics.misses);
  count(sum->statistics.rescues, one.statistics.rescues);
  count(sum->statistics.zero_fills, one.statistics.zero_fills);
  count(sum->statistics.write_faults, one.statistics.write_faults);
  count(sum->statistics.prefetched_pages, one.statistics.prefetched_pages);
  count(sum->statistics.prefetch_hits, one.statistics.prefetch_hits);
  count(sum->statistics.clean_evictions, one.statistics.clean_evictions);
  count(sum->statistics.written_pages, one.statistics.written_pages);
  count(sum->statistics.backend_errors, one.statistics.backend_errors);
  count(sum->statistics.over_budget_pages, one.statistics.over_budget_pages);
}

// Prints what the runs came across; enough runs must have come across everything.
bool print_and_judge(const report& sum, std::uint64_t seeds, far_tier tier) {
  constexpr std::uint64_t enough_seeds = 100;
  constexpr std::uint64_t enough_for_rare_things = 1000;
  enum class kind : std::uint8_t { any, only_memory };
  const struct {
    const char* name;
    std::uint64_t count;
    kind where = kind::any;
  } lines[] = {{"slices", sum.slices},
               {"validations", sum.validations},
               {"accesses", sum.accesses},
               {"moves", sum.moves},
               {"lost pages", sum.lost_pages, kind::only_memory},
               {"object reads", sum.object_reads},
               {"lost object reads", sum.lost_object_reads},
               {"misses", sum.statistics.misses},
               {"rescues", sum.statistics.rescues},
               {"zero fills", sum.statistics.zero_fills},
               {"write faults", sum.statistics.write_faults},
               {"prefetched pages", sum.statistics.prefetched_pages},
               {"prefetch hits", sum.statistics.prefetch_hits},
               {"clean evictions", sum.statistics.clean_evictions},
               {"written pages", sum.statistics.written_pages},
               {"failed transfers", sum.statistics.backend_errors, kind::only_memory},
               {"pages over budget", sum.statistics.over_budget_pages, kind::only_memory}};
  bool reached_all = true;
  const auto print = [&](const char* name, std::uint64_t number, bool is_rare) {
    std::printf("%18s %llu\n", name, static_cast<unsigned long long>(number));
    reached_all &= number > 0 || (is_rare && seeds < enough_for_rare_things);
  };
  for (const auto& line : lines) {
    if (line.where == kind::any || tier == far_tier::memory) print(line.name, line.count, false);
  }
  for (const auto& line : sum.servers) print(line.name, line.number, line.is_rare);
  if (reached_all || seeds < enough_seeds) return true;
  std::fprintf(stderr, "simulation: what is 0 above was never simulated\n");
  return false;
}

}  // namespace

int main(int count, char** words) {
  const arguments chosen = parse(count, words);
  constexpr std::uint64_t seeds_between_repetitions = 25;
  install_handlers();
  far::simulation::set_tracing(chosen.verbose);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (!chosen.verbose) far::set_log_level(far::log_level::error);
  // Servers that lose everything are no news here, and to a client they are an error.
  if (!chosen.verbose && chosen.run.tier == far_tier::network) far::set_log_level(static_cast<far::log_level>(-1));
  report sum;
  for (std::uint64_t i = 0; i < chosen.seeds; ++i) {
    run_options one = chosen.run;
    one.seed += i;
    const report first = run_one(words[0], one);
    add(&sum, first);
    if (i % seeds_between_repetitions != 0 || chosen.verbose) continue;
    if (run_one(words[0], one).digest != first.digest) far::simulation::fail("the same seed made another run");
  }
  std::printf("%llu seeds from %llu\n", static_cast<unsigned long long>(chosen.seeds),
              static_cast<unsigned long long>(chosen.run.seed));
  return print_and_judge(sum, chosen.seeds, chosen.run.tier) ? 0 : 1;
}
