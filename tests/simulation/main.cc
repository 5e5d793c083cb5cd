// simulation [--replicated | --parity | --network] [--seed N | --today] [--seeds COUNT] [--seconds S [--jobs J]]
// [--operations M]
//            [--verbose]
//
// Runs COUNT seeds, from N on. When one fails, prints the command that repeats it, and ends. The build decides with the
// seed what happens (scheduler.h), and nothing else does (determinism_test.py). So a failure also prints by what build
// and of which commit it was, and a digest of all choices until then: who has the same digest in the same slice is on
// the same way.
//
// With --seconds it begins no seed after that time, goes on after a failure, and runs J seeds at a time; COUNT is the
// most then, and without it there is no limit. With --today the first seed is made of the date, or is
// FARHEAP_SIMULATION_SEED. The last line says what was run.
#include <malloc.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <string>
#include <string_view>

#include "base/log.h"
#include "campaign.h"
#include "scheduler.h"
#include "server/event_log.h"
#include "simulation.h"
#include "tally.h"
#include "trace.h"

namespace {

using far::simulation::report;
using far::simulation::run_options;
using far_tier = run_options::far_tier;

struct arguments {
  run_options run;
  std::uint64_t seeds = 0;  // once parsed: how many
  std::uint64_t seconds = 0;
  std::uint64_t jobs = 1;
  bool today = false;
  bool verbose = false;
};

char repeat_command[512];

// The commit of the folder that the program is in. In a signal handler.
void print_commit() {
  char program[512];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program);
  const char* const slash = length > 0 ? static_cast<const char*>(memrchr(program, '/', std::size_t(length))) : nullptr;
  if (slash == nullptr) return;
  program[slash - program] = '\0';
  const pid_t child = fork();
  if (child == 0) {
    dup2(STDERR_FILENO, STDOUT_FILENO);
    execlp("git", "git", "-C", program, "log", "-1", "--format=  of commit %h of %cd: %s", static_cast<char*>(nullptr));
    _exit(1);
  }
  if (child > 0) waitpid(child, nullptr, 0);
}

// In a signal handler.
void print_last_words() {
  const auto shown = [](std::uint64_t number) { return static_cast<unsigned long long>(number); };
  const far::simulation::scheduler::moment now = far::simulation::scheduler::now();
  char words[256];
  std::snprintf(words, sizeof words, "  in slice %llu, digest %016llx, of a build with %s\n", shown(now.slice),
                shown(now.digest), SIMULATION_BUILD);
  for (const char* line : {static_cast<const char*>(repeat_command), static_cast<const char*>(words)}) {
    static_cast<void>(!write(STDERR_FILENO, line, std::strlen(line)));
  }
  print_commit();
}

void on_death(int number) {
  print_last_words();
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
  std::fprintf(
      stderr,
      "usage: %s [--replicated | --parity | --network] [--seed N | --today] [--seeds COUNT] [--seconds S [--jobs J]]\n"
      "       [--operations M] [--verbose]\n",
      program);
  std::exit(2);
}

// Seeds that differ each day, and are the same all day.
std::uint64_t seed_of_today() {
  if (const char* const chosen = std::getenv("FARHEAP_SIMULATION_SEED")) return std::strtoull(chosen, nullptr, 10);
  const std::time_t now = std::time(nullptr);
  std::tm today{};
  gmtime_r(&now, &today);
  const auto number = [](int value) { return static_cast<std::uint64_t>(value); };
  const std::uint64_t date =
      (number(today.tm_year) + 1900) * 10'000 + (number(today.tm_mon) + 1) * 100 + number(today.tm_mday);
  return date * 100'000;
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
    } else if (word == "--seconds") {
      parsed.seconds = number(&i);
    } else if (word == "--jobs") {
      parsed.jobs = std::max<std::uint64_t>(1, number(&i));
    } else if (word == "--today") {
      parsed.today = true;
    } else if (word == "--operations") {
      parsed.run.operations = number(&i);
    } else if (word == "--replicated") {
      parsed.run.tier = far_tier::replicated;
    } else if (word == "--parity") {
      parsed.run.tier = far_tier::parity;
    } else if (word == "--network") {
      parsed.run.tier = far_tier::network;
    } else if (word == "--verbose") {
      parsed.verbose = true;
    } else {
      usage(words[0]);
    }
  }
  if (parsed.today) {
    parsed.run.seed = seed_of_today();
    std::printf("the seeds of today begin with %llu; FARHEAP_SIMULATION_SEED=%llu runs them again\n",
                static_cast<unsigned long long>(parsed.run.seed), static_cast<unsigned long long>(parsed.run.seed));
  }
  if (parsed.seeds == 0) parsed.seeds = parsed.seconds > 0 ? std::numeric_limits<std::uint64_t>::max() : 1;
  return parsed;
}

const char* option_for(far_tier tier) {
  switch (tier) {
    case far_tier::memory: return "";
    case far_tier::replicated: return "--replicated ";
    case far_tier::parity: return "--parity ";
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

// Now and then once more, where memory that nobody has written to holds something else: the same seed must make the
// same run.
report run_and_repeat(const char* program, const run_options& one, bool verbose) {
  constexpr std::uint64_t seeds_between_repetitions = 25;
  const report first = run_one(program, one);
  if (one.seed % seeds_between_repetitions != 0 || verbose) return first;
  mallopt(M_PERTURB, 0xa5);
  const report second = run_one(program, one);
  mallopt(M_PERTURB, 0);
  if (second.digest != first.digest) far::simulation::fail("the same seed made another run");
  return first;
}

}  // namespace

int main(int count, char** words) {
  const arguments chosen = parse(count, words);
  install_handlers();
  far::simulation::set_tracing(chosen.verbose);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  // Servers that lose everything are no news here, and pages that the plain world loses are lost on purpose.
  if (!chosen.verbose) {
    far::set_log_level(static_cast<far::log_level>(-1));
    far::server::set_log_level(far::server::log_level::none);
  }
  far::simulation::tally& sum = far::simulation::make_shared_tally();
  const auto run = [&](const run_options& one) { return run_and_repeat(words[0], one, chosen.verbose); };
  std::uint64_t failures = 0;
  if (chosen.seconds > 0) {
    failures = far::simulation::run_campaign({chosen.run, chosen.seeds, chosen.seconds, chosen.jobs}, sum, run);
  } else {
    for (std::uint64_t i = 0; i < chosen.seeds; ++i) {
      run_options one = chosen.run;
      one.seed += i;
      sum.add(run(one), one.tier);
    }
  }
  const bool has_all = sum.print_and_judge() || chosen.today;
  sum.print_summary(chosen.run, failures);
  return has_all && failures == 0 ? 0 : 1;
}
