// taxi: nine analyses of taxi trips. README.md has the options and the hints.

#include <fmt/core.h>

#include <cstdio>
#include <new>
#include <string>
#include <vector>

#include "analyses.h"
#include "apps/hinted.h"
#include "apps/phases.h"
#include "common/command_line.h"
#include "common/json.h"
#include "csv.h"
#include "generator.h"

namespace {

struct options {
  std::size_t rows = 1'000'000;
  std::uint64_t seed = 1;
  std::string csv;
  std::string write_csv;
  bool json = false;
};

// The results by the name of the analysis. Adds a phase of that name for each.
evaluation::json analyse(const taxi::trips& table, apps::phases& phases) {
  evaluation::json results;
  const auto answer = [&](const char* name, const auto& analysis) {
    phases.run(name, [&] { results[name] = taxi::json(analysis()); });
  };
  std::vector<double> distances_km;
  answer("vendors", [&] { return count_vendors(table); });
  answer("passengers", [&] { return count_passengers(table); });
  answer("durations", [&] { return summarise_durations(table); });
  answer("stored", [&] { return summarise_stored(table); });
  answer("distances", [&] { return measure_distances(table, distances_km); });
  answer("pickup_range", [&] { return find_pickup_range(table); });
  answer("pickups", [&] { return count_pickups(table); });
  answer("median_by_day", [&] { return median_durations_by_day(table); });
  answer("median_by_month", [&] { return median_durations_by_month(table); });
  return results;
}

void print(const options& chosen, std::size_t rows, double loaded, const apps::phases& all,
           const evaluation::json& results) {
  const double seconds = all.seconds() - loaded;
  if (!chosen.json) {
    for (const apps::phase& one : all.all()) {
      fmt::print("{:<16}{:9.3f} s   {}\n", one.name, one.seconds,
                 results.contains(one.name) ? results.at(one.name).dump() : fmt::format("{} trips", rows));
    }
    fmt::print("{:<16}{:9.3f} s   without load\n", "analyses", seconds);
    return;
  }
  evaluation::json phases;
  for (const apps::phase& one : all.all()) phases[one.name] = one.seconds;
  const evaluation::json report = {{"app", "taxi"},      {"hinted", apps::has_hints}, {"rows", rows},
                                   {"seconds", seconds}, {"phases", phases},          {"results", results}};
  fmt::print("{}\n", report.dump());
}

void run(const options& chosen) {
  apps::phases phases;
  taxi::trips table;
  phases.run("load", [&] {
    table = chosen.csv.empty() ? taxi::generate(chosen.rows, chosen.seed) : taxi::read_csv_file(chosen.csv);
  });
  if (!chosen.write_csv.empty()) taxi::write_csv_file(table, chosen.write_csv);
  const double loaded = phases.seconds();
  const evaluation::json results = analyse(table, phases);
  print(chosen, table.rows(), loaded, phases, results);
}

}  // namespace

int main(int count, char** arguments) {
  options chosen;
  evaluation::command_line line("Nine analyses of taxi trips, generated or read, in about 80 bytes of memory a trip.");
  line.add_number("--rows", chosen.rows, "how many trips to generate", 1, std::size_t{1} << 48);
  line.add_seed(chosen.seed, "the generated trips are a function of it");
  line.add_text("--write-csv", chosen.write_csv, "also write the generated trips to this file");
  line.add_text("--csv", chosen.csv, "read this file, in the columns of the public data set");
  line.exclude("--csv", {"--rows", "--seed", "--write-csv"});
  line.add_flag("--json", chosen.json, "print one JSON object");
  if (const auto status = line.parse(count, arguments)) return *status;
  try {
    run(chosen);
    return 0;
  } catch (const taxi::csv_error& error) {
    fmt::print(stderr, "taxi: {}\n", error.what());
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "taxi: no memory for the trips; give fewer --rows, or a smaller file\n");
  }
  return 1;
}
