// taxi: nine analyses of taxi trips. README.md has the options and the hints.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "analyses.h"
#include "apps/hinted.h"
#include "apps/phases.h"
#include "csv.h"
#include "generator.h"

namespace {

using nlohmann::ordered_json;

struct options {
  std::size_t rows = 1'000'000;
  std::uint64_t seed = 1;
  std::string csv;
  std::string write_csv;
  bool json = false;
};

// The results by the name of the analysis. Adds a phase of that name for each.
ordered_json analyse(const taxi::trips& table, apps::phases& phases) {
  ordered_json results;
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
           const ordered_json& results) {
  const double seconds = all.seconds() - loaded;
  if (!chosen.json) {
    for (const apps::phase& one : all.all()) {
      fmt::print("{:<16}{:9.3f} s   {}\n", one.name, one.seconds,
                 results.contains(one.name) ? results[one.name].dump() : fmt::format("{} trips", rows));
    }
    fmt::print("{:<16}{:9.3f} s   without load\n", "analyses", seconds);
    return;
  }
  ordered_json phases;
  for (const apps::phase& one : all.all()) phases[one.name] = one.seconds;
  const ordered_json report = {{"app", "taxi"},      {"hinted", apps::has_hints}, {"rows", rows},
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
  const ordered_json results = analyse(table, phases);
  print(chosen, table.rows(), loaded, phases, results);
}

}  // namespace

int main(int count, char** arguments) {
  options chosen;
  CLI::App app{"Nine analyses of taxi trips, generated or read, in about 80 bytes of memory a trip."};
  CLI::Option* const rows = app.add_option("--rows", chosen.rows, "how many trips to generate")
                                ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 48))
                                ->capture_default_str();
  CLI::Option* const seed =
      app.add_option("--seed", chosen.seed, "the generated trips are a function of it")->capture_default_str();
  CLI::Option* const write =
      app.add_option("--write-csv", chosen.write_csv, "also write the generated trips to this file");
  app.add_option("--csv", chosen.csv, "read this file, in the columns of the public data set")
      ->excludes(rows)
      ->excludes(seed)
      ->excludes(write);
  app.add_flag("--json", chosen.json, "print one JSON object");
  CLI11_PARSE(app, count, arguments);
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
