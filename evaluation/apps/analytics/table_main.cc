// analytics-table: the nine analyses of apps/taxi on a far::dataframe, with questions that are answered where the
// columns are (AIFM, section 8.1.2). evaluation/apps/README.md says how to run it.
#include <string>

#include "apps/program.h"
#include "table_analyses.h"

namespace {

far::placement placement_named(const std::string& name) {
  if (name == "there") return far::placement::there;
  return name == "here" ? far::placement::here : far::placement::automatic;
}

evaluation::json run(std::size_t rows, std::uint64_t seed, const std::string& questions, far::runtime& memory,
                     apps::phases& timed) {
  far::dataframe trips(memory);
  timed.run("generate", [&] { trips = analytics::generate_trips(memory, rows, seed); });
  trips.place(placement_named(questions));
  evaluation::json results;
  const auto answer = [&](const char* name, const auto& analysis) {
    timed.run(name, [&] { results[name] = taxi::json(analysis(trips)); });
  };
  answer("vendors", analytics::count_vendors);
  answer("passengers", analytics::count_passengers);
  answer("durations", analytics::summarise_durations);
  answer("stored", analytics::summarise_stored);
  answer("distances", analytics::measure_distances);
  answer("pickup_range", analytics::find_pickup_range);
  answer("pickups", analytics::count_pickups);
  answer("median_by_day", analytics::median_durations_by_day);
  answer("median_by_month", analytics::median_durations_by_month);
  return results;
}

}  // namespace

int main(int count, char** arguments) {
  std::size_t rows = 1'000'000;
  std::uint64_t seed = 1;
  std::string questions = "automatic";
  apps::program program("analytics-table",
                        "Nine analyses of generated taxi trips in a data frame, in about 46 bytes of memory a trip.");
  program.options().add_number("--rows", rows, "how many trips", 1, std::size_t{1} << 48);
  program.options().add_seed(seed, "the trips are a function of it");
  program.options().add_choice("--questions", questions, "where questions about columns are answered",
                               {"automatic", "there", "here"});
  return program.run(count, arguments, [&](memory::runtime& memory, apps::phases& timed) {
    return run(rows, seed, questions, memory, timed);
  });
}
