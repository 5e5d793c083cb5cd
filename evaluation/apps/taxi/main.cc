// taxi: nine analyses of taxi trips. README.md has the options and the hints.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
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

// A JSON object whose keys are numbers, as text.
template <typename Value>
ordered_json by_number(const std::map<unsigned, Value>& values) {
  ordered_json object = ordered_json::object();
  for (const auto& [number, value] : values) {
    if constexpr (std::is_same_v<Value, taxi::counts>) {
      object[std::to_string(number)] = by_number(value);
    } else {
      object[std::to_string(number)] = value;
    }
  }
  return object;
}

ordered_json json(const taxi::duration_summary& found) {
  return {{"shortest_s", found.shortest_s}, {"longest_s", found.longest_s}, {"mean_s", found.mean_s}};
}

ordered_json json(const taxi::stored_summary& found) {
  return {{"trips", found.trips}, {"share", found.share}};
}

ordered_json json(const taxi::distance_summary& found) {
  return {{"longest_km", found.longest_km}, {"mean_km", found.mean_km}, {"beyond_100_km", found.beyond_100_km}};
}

ordered_json json(const taxi::pickup_range& found) {
  return {{"first", taxi::text_of(found.first)}, {"last", taxi::text_of(found.last)}};
}

ordered_json json(const taxi::pickup_counts& found) {
  return {{"by_hour", by_number(found.by_hour)},
          {"by_day", by_number(found.by_day)},
          {"by_month", by_number(found.by_month)}};
}

// The results by the name of the analysis. Adds a phase of that name for each.
ordered_json analyse(const taxi::trips& table, apps::phases& phases) {
  ordered_json results;
  const auto answer = [&](const char* name, const auto& analysis) {
    phases.run(name, [&] { results[name] = analysis(); });
  };
  std::vector<double> distances_km;
  answer("vendors", [&] { return by_number(count_vendors(table)); });
  answer("passengers", [&] { return by_number(count_passengers(table)); });
  answer("durations", [&] { return json(summarise_durations(table)); });
  answer("stored", [&] { return json(summarise_stored(table)); });
  answer("distances", [&] { return json(measure_distances(table, distances_km)); });
  answer("pickup_range", [&] { return json(find_pickup_range(table)); });
  answer("pickups", [&] { return json(count_pickups(table)); });
  answer("median_by_day", [&] { return by_number(median_durations_by_day(table)); });
  answer("median_by_month", [&] { return by_number(median_durations_by_month(table)); });
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
