// `farheap-bench deref`: the cost of dereferencing a far pointer to a local object, beside std::unique_ptr.
#include <errno.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "benchmark.h"
#include "callgrind.h"
#include "clocks.h"
#include "common/json.h"
#include "deref_loops.h"
#include "heap_bench.h"

namespace far::bench {

namespace {

constexpr const char* near_name = "std::unique_ptr";
constexpr const char* in_scope_name = "far::unique_ptr, in one scope";
constexpr const char* several_name = "far::unique_ptr, a scope for 64";
constexpr const char* each_name = "far::unique_ptr, a scope for each";
constexpr const char* scope_name = "a scope alone";
constexpr const char* l1_name = "in L1";
constexpr const char* out_name = "out of cache";

constexpr std::uint64_t l1_bytes = 16 * kib;
// The number of walks under callgrind: large enough that entering a loop does not show.
constexpr std::size_t counted_walks = 200;

// The pointers of both kinds, in the same order. An object tells the position of the pointer to follow next; all of
// them make one circle.
struct working_set {
  near_pointers near;
  far_pointers far;
};

std::vector<std::uint32_t> shuffled(std::size_t count, std::uint64_t seed) {
  std::vector<std::uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0u);
  random_numbers random(seed);
  for (std::size_t i = count - 1; i > 0; --i) std::swap(numbers[i], numbers[random.below(i + 1)]);
  return numbers;
}

// The objects lie in the order of their making, their pointers in a random one.
working_set fill(far::runtime& in, std::size_t objects) {
  const std::vector<std::uint32_t> circle = shuffled(objects, 1);
  std::vector<std::uint32_t> next(objects);
  for (std::size_t i = 0; i < objects; ++i) next[circle[i]] = circle[(i + 1) % objects];
  working_set created;
  created.near.resize(objects);
  created.far.resize(objects);
  for (const std::uint32_t at : shuffled(objects, 2)) {
    created.near[at] = std::make_unique<deref_object>(deref_object{{next[at]}});
    created.far[at] = far::make_unique<deref_object>(in, deref_object{{next[at]}});
  }
  return created;
}

struct variant {
  const char* name;
  bool dependent;  // each access needs the one before, so that none overlap
  const char* marker;
  std::uint64_t (*walk)(far::runtime& in, const far::scope& lasting, const working_set& over);  // once over all
};

constexpr std::array variants = {
    variant{near_name, false, "deref_loop_near",
            [](far::runtime&, const far::scope&, const working_set& over) { return deref_loop_near(over.near); }},
    variant{in_scope_name, false, "deref_loop_in_scope",
            [](far::runtime&, const far::scope& lasting, const working_set& over) {
              return deref_loop_in_scope(lasting, over.far);
            }},
    variant{several_name, false, "deref_loop_scope_for_several",
            [](far::runtime& in, const far::scope&, const working_set& over) {
              return deref_loop_scope_for_several(in, over.far);
            }},
    variant{each_name, false, "deref_loop_scope_for_each",
            [](far::runtime& in, const far::scope&, const working_set& over) {
              return deref_loop_scope_for_each(in, over.far);
            }},
    variant{scope_name, false, "deref_loop_scope_only",
            [](far::runtime& in, const far::scope&, const working_set& over) {
              return deref_loop_scope_only(in, over.far.size());
            }},
    variant{near_name, true, "deref_chase_near",
            [](far::runtime&, const far::scope&, const working_set& over) { return deref_chase_near(over.near); }},
    variant{in_scope_name, true, "deref_chase_in_scope",
            [](far::runtime&, const far::scope& lasting, const working_set& over) {
              return deref_chase_in_scope(lasting, over.far);
            }},
    variant{each_name, true, "deref_chase_scope_for_each",
            [](far::runtime& in, const far::scope&, const working_set& over) {
              return deref_chase_scope_for_each(in, over.far);
            }},
};

std::string workload_of(const std::string& set, bool dependent) {
  return dependent ? set + ", one after the other" : set;
}

// Each variant has a lasting scope of its own: the others would know the objects that it holds.
std::uint64_t walk_often(const variant& one, far::runtime& in, const working_set& over, std::size_t walks,
                         std::uint64_t& took_ns) {
  const far::scope lasting(in);
  if (one.name == in_scope_name) static_cast<void>(one.walk(in, lasting, over));
  std::uint64_t sum = 0;
  const std::uint64_t start_ns = thread_cpu_ns();
  for (std::size_t walk = 0; walk < walks; ++walk) sum += one.walk(in, lasting, over);
  took_ns = thread_cpu_ns() - start_ns;
  return sum;
}

// Measures every variant `runs` times in turn; one sample each.
evaluation::json measure(far::runtime& in, const working_set& over, std::size_t walks, unsigned runs) {
  const std::size_t count = over.far.size();
  evaluation::json samples = evaluation::json::array();
  for (unsigned run = 0; run <= runs; ++run) {
    for (const variant& one : variants) {
      std::uint64_t took_ns = 0;
      const std::uint64_t sum = walk_often(one, in, over, walks, took_ns);
      const std::size_t expected = one.name == scope_name ? count : count * (count - 1) / 2;
      FAR_CHECK(sum == walks * expected, "a dereference led to another object");
      if (run == 0) continue;  // warms up
      const double ns = static_cast<double>(took_ns) / static_cast<double>(walks * count);
      samples.push_back({{"configuration", one.name}, {"dependent", one.dependent}, {"ns", ns}});
    }
  }
  return samples;
}

far::runtime_options options_for(std::uint64_t bytes) {
  far::runtime_options chosen;
  // Headers and the ends of segments need room beside the objects.
  chosen.local_bytes = std::max<std::uint64_t>(bytes * 2, 64 * mib);
  chosen.address_bytes = 16 * gib;  // valgrind has no room for more
  chosen.workers = 1;
  chosen.evacuate_garbage_share = 2;
  return chosen;
}

void count_all(report& figures) {
  std::vector<std::string> markers;
  for (const variant& one : variants) markers.emplace_back(one.marker);
  const auto counted = count_instructions({{"benchmark", "deref"}, {"bytes", l1_bytes}, {"counts", true}}, markers);
  if (!counted) return figures.skip("instructions", counted.error().message);
  for (const variant& one : variants) {
    // The variant in one scope has walked once before.
    const std::size_t walks = counted_walks + (one.name == in_scope_name ? 1 : 0);
    figures.add({workload_of(l1_name, one.dependent), one.name, 1}, "instructions",
                static_cast<double>(counted.value().at(one.marker)) /
                    static_cast<double>(walks * (l1_bytes / sizeof(deref_object))));
  }
}

result<outcome> finish(report figures) {
  const auto ns = [&](const std::string& workload, const char* name) {
    return figures.median({workload, name, 1}, "ns");
  };
  figures.aim("in L1, in one scope, over std::unique_ptr", ns(l1_name, in_scope_name) - ns(l1_name, near_name), "ns",
              0.3, false);
  figures.aim("in L1, scope and dereference", ns(l1_name, each_name), "ns", 2, false);
  for (const bool dependent : {true, false}) {
    const std::string workload = workload_of(out_name, dependent);
    const double base = ns(workload, near_name);
    if (base <= 0) continue;
    figures.aim(fmt::format("{}, in one scope, over std::unique_ptr", workload), ns(workload, in_scope_name) / base,
                "x", dependent ? 1.05 : 1.5, false);
  }
  figures.note("ns is CPU time of the thread; instructions are callgrind's, with all that is called");
  return outcome{std::move(figures), {{{"ns", "ns", 1, 2}, {"instructions", "instr.", 1, 1}}, "ns", near_name}};
}

}  // namespace

result<evaluation::json> deref_child(const evaluation::json& assignment) {
  const auto bytes = assignment.at("bytes").get<std::uint64_t>();
  const std::size_t objects = bytes / sizeof(deref_object);
  const bool counts = assignment.value("counts", false);
  far::runtime here(options_for(bytes));
  evaluation::json answer;
  here.run([&] {
    const working_set over = fill(here, objects);
    if (!counts) {
      answer = measure(here, over, assignment.at("walks").get<std::size_t>(), assignment.at("runs").get<unsigned>());
      return;
    }
    std::uint64_t unused_ns = 0;
    std::uint64_t sum = 0;
    for (const variant& one : variants) sum += walk_often(one, here, over, counted_walks, unused_ns);
    answer = sum;
  });
  return answer;
}

result<outcome> run_deref(const settings& chosen) {
  const unsigned runs = chosen.runs != 0 ? chosen.runs : (chosen.quick ? 3 : 9);
  const std::uint64_t wanted = chosen.working_set_bytes;
  const std::uint64_t out_bytes = wanted != 0 ? wanted : (chosen.quick ? 128 * mib : gib);
  report figures("deref");
  figures.set("runs", runs);
  figures.set("l1_bytes", static_cast<double>(l1_bytes));
  figures.set("out_of_cache_bytes", static_cast<double>(out_bytes));
  const evaluation::json sets = {{{"workload", l1_name}, {"bytes", l1_bytes}, {"walks", chosen.quick ? 4'000 : 40'000}},
                                 {{"workload", out_name}, {"bytes", out_bytes}, {"walks", 1}}};
  for (const evaluation::json& set : sets) {
    evaluation::json assignment = set;
    assignment["benchmark"] = "deref";
    assignment["runs"] = runs;
    const std::string workload = set.at("workload");
    fmt::print(stderr, "deref: {}\n", workload);
    const auto samples = run_in_child(assignment);
    if (stop_requested()) return error{"stopped by a signal", EINTR};
    if (!samples) return samples.error();
    for (const evaluation::json& one : samples.value()) {
      // A scope alone has no working set.
      if (one.at("configuration") == scope_name && workload == out_name) continue;
      figures.add({workload_of(workload, one.at("dependent")), one.at("configuration"), 1}, "ns",
                  one.at("ns").get<double>());
    }
  }
  fmt::print(stderr, "deref: instructions\n");
  count_all(figures);
  if (stop_requested()) return error{"stopped by a signal", EINTR};
  return finish(std::move(figures));
}

}  // namespace far::bench
