// analytics: the nine analyses of apps/taxi on columns in containers (AIFM, section 8.1, without offload).
// evaluation/apps/README.md says how to run it.
#include "analyses.h"
#include "apps/program.h"
#include "apps/taxi/generator.h"

namespace {

void generate(analytics::table& trips, std::size_t rows, std::uint64_t seed) {
  taxi::trip_generator generator(seed);
  std::vector<taxi::trip> some;
  while (trips.rows() < rows) {
    some.clear();
    while (some.size() < std::min(analytics::rows_a_scope, rows - trips.rows())) some.push_back(generator.next());
    trips.append(some);
  }
}

evaluation::json run(std::size_t rows, std::uint64_t seed, memory::runtime& memory, apps::phases& timed) {
  analytics::table trips(memory);
  analytics::column<double> distances_km(memory);
  timed.run("generate", [&] { generate(trips, rows, seed); });
  evaluation::json results;
  const auto answer = [&](const char* name, const auto& analysis) {
    timed.run(name, [&] { results[name] = taxi::json(analysis()); });
  };
  answer("vendors", [&] { return count_vendors(trips); });
  answer("passengers", [&] { return count_passengers(trips); });
  answer("durations", [&] { return summarise_durations(trips); });
  answer("stored", [&] { return summarise_stored(trips); });
  answer("distances", [&] { return measure_distances(trips, distances_km); });
  answer("pickup_range", [&] { return find_pickup_range(trips); });
  answer("pickups", [&] { return count_pickups(trips); });
  answer("median_by_day", [&] { return median_durations_by_day(trips); });
  answer("median_by_month", [&] { return median_durations_by_month(trips); });
  return results;
}

}  // namespace

int main(int count, char** arguments) {
  std::size_t rows = 1'000'000;
  std::uint64_t seed = 1;
  apps::program program("analytics", "Nine analyses of generated taxi trips, in about 80 bytes of memory a trip.");
  program.options().add_number("--rows", rows, "how many trips", 1, std::size_t{1} << 48);
  program.options().add_seed(seed, "the trips are a function of it");
  return program.run(count, arguments,
                     [&](memory::runtime& memory, apps::phases& timed) { return run(rows, seed, memory, timed); });
}
