// The common parts of the benchmarks of the object heap: each measures in a process of its own, started by
// run_in_child(), so that no configuration finds the memory, the threads or the failures of another.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "common/json.h"
#include "far/runtime.h"
#include "report.h"

namespace far::bench {

// The most common far tier of these benchmarks, as expensive as a memory server on a good network.
inline constexpr const char* network_uri = "memory:?latency=5us&gbps=25";

inline constexpr std::uint64_t heap_child_deadline_ns = 600'000'000'000;

// Runs one of the functions below in a process of its own: `told` says which ("benchmark") and how. `before`: a program
// and its options that shall run this one, such as valgrind. Fails when the process fails, with what it said last.
[[nodiscard]] result<evaluation::json> run_in_child(const evaluation::json& assignment,
                                                    const std::vector<std::string>& before = {});

// The functions that run there. They return what the parent is to know.
[[nodiscard]] result<evaluation::json> deref_child(const evaluation::json& assignment);
[[nodiscard]] result<evaluation::json> objects_child(const evaluation::json& assignment);
[[nodiscard]] result<evaluation::json> hybrid_child(const evaluation::json& assignment);
[[nodiscard]] result<evaluation::json> pauseless_child(const evaluation::json& assignment);
[[nodiscard]] result<evaluation::json> pressure_child(const evaluation::json& assignment);
[[nodiscard]] result<evaluation::json> pointers_child(const evaluation::json& assignment);
[[nodiscard]] result<evaluation::json> containers_child(const evaluation::json& assignment);
[[nodiscard]] result<evaluation::json> offload_child(const evaluation::json& assignment);
[[nodiscard]] result<evaluation::json> intensity_child(const evaluation::json& assignment);
[[nodiscard]] result<evaluation::json> hints_child(const evaluation::json& assignment);
[[nodiscard]] result<evaluation::json> batch_child(const evaluation::json& assignment);
[[nodiscard]] result<evaluation::json> policies_child(const evaluation::json& assignment);

// Adds each member of `metrics`, an object of numbers, as a sample.
void add_samples(report& figures, const row_key& key, const evaluation::json& metrics);

// Measures one configuration in a process of its own: adds its "metrics" to the figures, and returns all that it says.
// When it fails, the figures say so; then, and when a signal asked to stop, there is nothing to return.
[[nodiscard]] std::optional<evaluation::json> measure(report& figures, const row_key& key,
                                                      const evaluation::json& assignment);

// The transfers of a runtime since its start, by the names of metrics: "object_fetches_per_access" and so on.
using transfer_counts = std::map<std::string, std::uint64_t>;
[[nodiscard]] transfer_counts count_transfers(const far::runtime& runtime);

// Adds what was moved between two counts, for each of `accesses`.
void add_transfers(const transfer_counts& before, const transfer_counts& after, double accesses,
                   evaluation::json& metrics);

// Uniform numbers that are cheap to make and the same in every run (xorshift64*).
class random_numbers {
 public:
  explicit random_numbers(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u | 1) { next(); }
  std::uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1du;
  }
  std::uint64_t below(std::uint64_t limit) {
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(next()) * limit >> 64);
  }

 private:
  std::uint64_t state_;
};

}  // namespace far::bench
