// One configuration of `farheap-bench offload`, in a process of its own: a walk over numbers, most of which are remote.
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "clocks.h"
#include "common/json.h"
#include "costs.h"
#include "far/compute.h"
#include "far/dataframe.h"
#include "far/query.h"
#include "far/runtime.h"
#include "far/scope.h"
#include "far/search.h"
#include "far/vector.h"
#include "heap_bench.h"
#include "square_sum.h"

namespace far::bench {

namespace {

double sum_of(std::span<const double> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0);
}

// A tenth of the numbers.
constexpr far::interval<double> selected{.lowest = 900};

// The same as far::select().
far::vector<std::size_t> select_fetched(far::runtime& in, const far::vector<double>& all) {
  far::vector<std::size_t> found(in);
  std::vector<std::size_t> of_part;
  const far::scope here(in);
  std::size_t first = 0;
  for (const std::span<const double> part : all.chunks(here)) {
    of_part.clear();
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (part[i] >= selected.lowest) of_part.push_back(first + i);
    }
    found.append(of_part);
    first += part.size();
  }
  return found;
}

// Needs local memory for all of them, which others cannot use meanwhile.
double median_fetched(const far::vector<double>& all) {
  std::vector<double> copy(all.size());
  all.for_each_chunk([&](std::span<const double> part, std::size_t first) {
    std::ranges::copy(part, copy.begin() + static_cast<std::ptrdiff_t>(first));
  });
  const auto middle = copy.begin() + std::ssize(copy) / 2;
  std::nth_element(copy.begin(), middle, copy.end());
  return (*middle + *std::max_element(copy.begin(), middle)) / 2;
}

double quantile_of_copy(const far::vector<double>& all, double fraction) {
  std::vector<double> copy(all.size());
  all.read(0, std::span<double>(copy));
  const double rank = fraction * static_cast<double>(copy.size() - 1);
  const auto first = copy.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(copy.begin(), first, copy.end());
  const double next = first + 1 == copy.end() ? *first : *std::min_element(first + 1, copy.end());
  return *first + (next - *first) * (rank - std::floor(rank));
}

// The way that the assignment names, if it is not about the sum.
std::function<double()> query_named(const std::string& name, far::runtime& in, const far::vector<double>& all) {
  if (name == "median") {
    return [&] { return far::median(all).value_or(0); };
  }
  if (name == "quantile") {
    return [&] { return far::quantile(all, 0.9).value_or(0); };
  }
  if (name == "median_fetched") {
    return [&] { return median_fetched(all); };
  }
  if (name == "function") {
    return [&] { return far::compute<square_sum>(all).sum; };
  }
  if (name == "function_fetched") {
    return [&] { return far::compute<square_sum>(all, {}, far::work::here).sum; };
  }
  if (name == "select") {
    return [&] { return static_cast<double>(far::select(all, selected).size()); };
  }
  if (name == "select_fetched") {
    return [&] { return static_cast<double>(select_fetched(in, all).size()); };
  }
  return {};
}

// The way that the assignment names: each returns the sum of all, and may run on fibers.
std::function<double()> way_named(const std::string& name, far::runtime& in, const far::vector<double>& all) {
  if (name == "summarize") {
    return [&] { return all.summarize().sum(); };
  }
  if (name == "chunks") {
    return [&] {
      const far::scope here(in);
      double sum = 0;
      for (const std::span<const double> part : all.chunks(here)) sum += sum_of(part);
      return sum;
    };
  }
  FAR_CHECK(name == "fibers", "there is such a way");
  return [&] {
    std::vector<double> sums(all.size() / far::elements_per_object<double> + 1);
    all.for_each_chunk([&](std::span<const double> part, std::size_t first) {
      sums[first / far::elements_per_object<double>] += sum_of(part);
    });
    return sum_of(sums);
  };
}

// As days of a week are.
constexpr std::size_t groups_of_medians = 7;

// A table of numbers and of keys, which are in so many groups.
far::dataframe table_of(far::runtime& in, std::size_t rows, std::size_t groups) {
  far::dataframe table(in);
  far::column keys(in, far::column_type::int64);
  far::column numbers(in, far::column_type::float64);
  std::vector<std::int64_t> some_keys;
  std::vector<double> some_numbers;
  for (std::size_t row = 0; row < rows; ++row) {
    some_keys.push_back(static_cast<std::int64_t>(row * 11 % groups));
    some_numbers.push_back(static_cast<double>(row * 2'654'435'761 % 1'000'003));
    if (some_keys.size() < 8192 && row + 1 < rows) continue;
    keys.append_numbers(std::span<const std::int64_t>(some_keys));
    numbers.append_numbers(std::span<const double>(some_numbers));
    some_keys.clear();
    some_numbers.clear();
  }
  table.add("key", std::move(keys));
  table.add("number", std::move(numbers));
  return table;
}

// The greatest of the medians of all groups.
double median_of_groups(const far::dataframe& table) {
  const far::dataframe groups = table.group_by({"key"}, {{"number", far::aggregate::median}});
  FAR_CHECK(groups.rows() == groups_of_medians, "there are so many groups");
  return std::get<double>(groups["number_median"].max());
}

// The greatest of the maxima of all groups.
double group(const far::dataframe& table) {
  const far::dataframe groups =
      table.group_by({"key"}, {{"number", far::aggregate::max}, {"number", far::aggregate::mean}});
  FAR_CHECK(groups.rows() == 24, "there are so many groups");
  return std::get<double>(groups["number_max"].max());
}

// What a page of the numbers takes. Servers are processes on this machine. `read_bytes`: those that a walk over all of
// them would read.
evaluation::json measure(const far::runtime& in, std::size_t numbers, const evaluation::json& assignment,
                         const std::function<double()>& way, double expected, std::size_t read_bytes) {
  const auto runs = assignment.at("runs").get<unsigned>();
  const auto servers = assignment.at("servers").get<std::vector<pid_t>>();
  const double pages = static_cast<double>(numbers) * sizeof(double) / page_bytes;
  const auto take = [&] {
    double of_servers = 0;
    for (const pid_t one : servers) of_servers += static_cast<double>(cpu_ns_with_descendants(one));
    return std::array{static_cast<double>(monotonic_ns()), static_cast<double>(in.statistics().fetched_pages),
                      static_cast<double>(process_cpu_ns()), static_cast<double>(open_connections_bytes()), of_servers};
  };
  constexpr std::array names = {"elapsed_ns", "fetched", "cpu_ns", "wire_bytes", "server_cpu_ns"};
  // Without a server there is no wire, and nobody else's time.
  const std::size_t shown = servers.empty() ? 3 : names.size();
  evaluation::json found;
  for (unsigned run = 0; run <= runs; ++run) {
    const auto before = take();
    FAR_CHECK(way() == expected, "all ways find the same");
    const auto after = take();
    if (run == 0) continue;  // warms up
    for (std::size_t i = 0; i < shown; ++i) found[names[i]].push_back((after[i] - before[i]) / pages);
    if (!servers.empty()) found["wire_share"].push_back((after[3] - before[3]) / static_cast<double>(read_bytes));
  }
  return found;
}

// As of numbers; the keys are not counted.
result<evaluation::json> offload_table_child(const evaluation::json& assignment) {
  const auto rows = assignment.at("numbers").get<std::size_t>();
  far::runtime_options chosen;
  chosen.local_bytes = assignment.at("local_bytes");
  chosen.far = assignment.at("far");
  far::runtime here(chosen);
  const std::string name = assignment.at("way");
  const bool has_medians = name.starts_with("table_medians");
  far::dataframe table = table_of(here, rows, has_medians ? groups_of_medians : 24);
  table.place(name.ends_with("_fetched") ? far::placement::here : far::placement::there);
  const std::function<double()> way = [&] { return has_medians ? median_of_groups(table) : group(table); };
  const double expected = has_medians ? median_of_groups(table) : std::get<double>(table["number"].max());
  return measure(here, rows, assignment, way, expected, table["key"].bytes() + table["number"].bytes());
}

template <typename T>
far::vector<T> filled(far::runtime& in, std::size_t count, const std::function<T(std::size_t)>& number) {
  far::vector<T> all(in);
  std::vector<T> some;
  for (std::size_t i = 0; i < count; i += some.size()) {
    some.resize(std::min<std::size_t>(count - i, 65'536 / sizeof(T)));
    for (std::size_t k = 0; k < some.size(); ++k) some[k] = number(i + k);
    all.append(some);
  }
  return all;
}

// All different, and in no order.
double real_number(std::size_t i) {
  return static_cast<double>(i * 2'654'435'761 % 4'294'967'291) / 7;
}

// 65 characters each; every 5000th has a word of its own.
char line_of_log(std::size_t at) {
  constexpr std::string_view often = "2016-03-14 17:24:55 INFO  request served in 12 ms, cache hit 0.8\n";
  constexpr std::string_view seldom = "2016-03-14 17:24:56 ERROR request given up after 500 ms, retry 3\n";
  static_assert(often.size() == seldom.size());
  return (at / often.size() % 5000 == 7 ? seldom : often)[at % often.size()];
}

// Ways with numbers of their own, as many bytes as of the others.
evaluation::json measure_own(far::runtime& here, const std::string& name, std::size_t count,
                             const evaluation::json& assignment) {
  const std::size_t bytes = count * sizeof(double);
  const auto measured = [&](const std::function<double()>& way, double expected) {
    return measure(here, count, assignment, way, expected, bytes);
  };
  if (name == "tally") {
    const auto all = filled<std::uint8_t>(here, bytes, [](std::size_t i) { return std::uint8_t(i * i % 200); });
    std::uint64_t zeros = 0;
    for (std::size_t i = 0; i < bytes; ++i) zeros += i * i % 200 == 0 ? 1 : 0;
    return measured([&] { return static_cast<double>(far::tally(all, {0, 255})[0]); }, static_cast<double>(zeros));
  }
  if (name == "distinct") {
    const auto all = filled<std::int64_t>(here, count, [](std::size_t i) { return std::int64_t(i * i % 61) << 40; });
    std::vector<std::int64_t> squares;
    for (std::int64_t i = 0; i < 61; ++i) squares.push_back(i * i % 61);
    std::ranges::sort(squares);
    const auto end = std::unique(squares.begin(), squares.end());
    return measured([&] { return static_cast<double>(far::distinct(all).size()); },
                    static_cast<double>(end - squares.begin()));
  }
  if (name == "count_text" || name == "find_text") {
    const auto log = filled<char>(here, bytes, line_of_log);
    double errors = 0;
    for (std::size_t at = 7 * 65 + 20; at + 5 <= bytes; at += std::size_t{5000} * 65) ++errors;
    if (name == "count_text") return measured([&] { return double(far::count_text(log, "ERROR")); }, errors);
    return measured([&] { return static_cast<double>(far::find_text(log, "ERROR").size()); }, errors);
  }
  const auto all = filled<double>(here, count, real_number);
  std::vector<double> sorted(count);
  for (std::size_t i = 0; i < count; ++i) sorted[i] = real_number(i);
  if (name == "largest") {
    std::nth_element(sorted.begin(), sorted.begin() + 99, sorted.end(), std::greater());
    return measured([&] { return far::largest(all, 100).back(); }, sorted[99]);
  }
  FAR_CHECK(name == "quantile_of_reals", "there is such a way");
  const auto middle = sorted.begin() + std::ssize(sorted) / 2;
  std::nth_element(sorted.begin(), middle, sorted.end());
  const double expected = *std::max_element(sorted.begin(), middle) / 2 + *middle / 2;
  return measured([&] { return far::quantile(all, 0.5).value_or(0); }, expected);
}

bool has_own_numbers(const std::string& name) {
  constexpr std::array names = {"tally", "distinct", "count_text", "find_text", "largest", "quantile_of_reals"};
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

result<evaluation::json> offload_child(const evaluation::json& assignment) {
  if (assignment.at("way").get<std::string>().starts_with("table_")) return offload_table_child(assignment);
  const auto count = assignment.at("numbers").get<std::size_t>();
  far::runtime_options chosen;
  chosen.local_bytes = assignment.at("local_bytes");
  chosen.far = assignment.at("far");
  far::runtime here(chosen);
  const std::string name = assignment.at("way");
  if (has_own_numbers(name)) return measure_own(here, name, count, assignment);
  far::vector<double> all(here);
  double sum = 0;
  double squares = 0;
  std::size_t tenth = 0;
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(static_cast<double>(i % 1000));  // whole numbers: every order of addition has the same sum
    sum += static_cast<double>(i % 1000);
    squares += static_cast<double>(i % 1000 * (i % 1000));
    tenth += i % 1000 >= 900 ? 1 : 0;
  }
  std::function<double()> way = query_named(name, here, all);
  double expected = static_cast<double>(tenth);
  if (!way) expected = sum;
  if (name.starts_with("median")) expected = median_fetched(all);
  if (name == "quantile") expected = quantile_of_copy(all, 0.9);
  if (name.starts_with("function")) expected = squares;
  if (!way) way = way_named(name, here, all);
  return measure(here, count, assignment, way, expected, count * sizeof(double));
}

}  // namespace far::bench
