// psort: sorts random numbers and verifies the result. README.md has the options and the hints.

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "apps/hinted.h"
#include "apps/phases.h"
#include "common/command_line.h"
#include "common/json.h"
#include "numbers.h"
#include "sort.h"

namespace {

struct options {
  std::size_t elements = std::size_t{1} << 24;
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  std::uint64_t seed = 1;
  bool json = false;
};

void print_json(const options& chosen, const apps::phases& all, double seconds, std::uint64_t checksum, bool verified) {
  evaluation::json phases;
  for (const apps::phase& one : all.all()) phases[one.name] = one.seconds;
  const evaluation::json report = {{"app", "psort"},
                                   {"hinted", apps::has_hints},
                                   {"elements", chosen.elements},
                                   {"threads", chosen.threads},
                                   {"seed", chosen.seed},
                                   {"seconds", seconds},
                                   {"phases", phases},
                                   {"checksum", fmt::format("{:016x}", checksum)},
                                   {"verified", verified}};
  fmt::print("{}\n", report.dump());
}

void print_text(const apps::phases& all, double seconds, std::uint64_t checksum, bool verified) {
  for (const apps::phase& one : all.all()) fmt::print("{:<12}{:9.3f} s\n", one.name, one.seconds);
  fmt::print("{:<12}{:9.3f} s   without generate and verify\n", "sorting", seconds);
  fmt::print("checksum    {:016x}   {}\n", checksum, verified ? "verified" : "WRONG");
}

// The program's exit code.
int run(const options& chosen) {
  std::vector<std::uint64_t> values;
  psort::summary before;
  apps::phases phases;
  phases.run("generate", [&] {
    values.resize(chosen.elements);
    psort::fill(values, chosen.threads, chosen.seed);
    before = psort::summarise(values, chosen.threads);
  });
  const double generated = phases.seconds();
  psort::sort(values, chosen.threads, phases);
  const double seconds = phases.seconds() - generated;
  psort::summary after;
  phases.run("verify", [&] { after = psort::summarise(values, chosen.threads); });

  const bool verified = after.sorted && after.checksum == before.checksum;
  if (chosen.json) {
    print_json(chosen, phases, seconds, after.checksum, verified);
  } else {
    print_text(phases, seconds, after.checksum, verified);
  }
  if (verified) return 0;
  fmt::print(stderr, "psort: {}; run it again alone, and under farheap, with --seed {} to see which of them is wrong\n",
             after.sorted ? "the sorted numbers are not those that were generated" : "the numbers are not in order",
             chosen.seed);
  return 1;
}

}  // namespace

int main(int count, char** arguments) {
  options chosen;
  evaluation::command_line line(
      "Sorts random numbers of 8 bytes by parallel regular sampling, in twice their memory, and verifies it.");
  line.add_number("--elements", chosen.elements, "how many numbers", 0, std::size_t{1} << 48);
  line.add_number("--threads", chosen.threads, "how many threads", 1, 1024);
  line.add_seed(chosen.seed, "the numbers are a function of it");
  line.add_flag("--json", chosen.json, "print one JSON object");
  if (const auto status = line.parse(count, arguments)) return *status;
  try {
    return run(chosen);
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "psort: no memory for {} numbers; give fewer --elements\n", chosen.elements);
  } catch (const std::system_error& error) {
    fmt::print(stderr, "psort: {} threads cannot be started: {}; give fewer --threads\n", chosen.threads,
               error.code().message());
  }
  return 1;
}
