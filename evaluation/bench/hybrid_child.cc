// One program of `farheap-bench hybrid` under one way of choosing paths, in a process of its own.
#include <algorithm>
#include <numeric>
#include <vector>

#include "base/units.h"
#include "clocks.h"
#include "common/json.h"
#include "far/runtime.h"
#include "far/scope.h"
#include "far/unique_ptr.h"
#include "fiber/scheduler.h"
#include "heap_bench.h"
#include "sealed_object.h"

namespace far::bench {

namespace {

constexpr unsigned fibers = 16;
constexpr std::uint64_t hot_per_mille = 900;  // of the scattered accesses go to the hot set
constexpr unsigned writes_one_in = 4;         // scattered accesses

using object = sealed_object<64>;
using table = std::vector<far::unique_ptr<object>>;

// Two tables in one heap: scattered accesses go to the one, dense ones walk over the other.
class program {
 public:
  program(const evaluation::json& assignment)
      : runtime_(options_for(assignment)),
        scattered_(objects_in(assignment)),
        dense_(objects_in(assignment)),
        order_(scattered_.size()) {
    for (table* filled : {&scattered_, &dense_}) {
      run_fibers([&](unsigned fiber) {
        for (std::size_t i = begin(fiber); i < begin(fiber + 1); ++i) {
          (*filled)[i] = far::make_unique<object>(runtime_, i);
        }
      });
    }
    std::iota(order_.begin(), order_.end(), 0u);
    random_numbers random(7);
    for (std::size_t i = order_.size() - 1; i > 0; --i) std::swap(order_[i], order_[random.below(i + 1)]);
    // As much as local memory can hold of objects, though not of their pages.
    hot_count_ = std::min<std::size_t>(assignment.at("local_bytes").get<std::size_t>() / 2 / 80, order_.size() / 2);
  }

  // The hot set from now on: others than before, scattered over the whole table.
  void shift() { hot_first_ = (hot_first_ + hot_count_) % (order_.size() - hot_count_); }

  // Fibers have no part of their own here, so objects that two write at a time are kept apart by a number's remainder.
  void scatter(std::size_t accesses) {
    ++rounds_;
    run_fibers([&](unsigned fiber) {
      random_numbers random(rounds_ * fibers + fiber);
      for (std::size_t i = 0; i < accesses / fibers; ++i) {
        const bool hot = random.below(1000) < hot_per_mille;
        std::size_t at = hot ? hot_first_ + random.below(hot_count_) : random.below(order_.size());
        at = std::min(at / fibers * fibers + fiber, order_.size() - fibers + fiber);
        const std::size_t number = order_[at];
        const far::scope here(runtime_);
        if (i % writes_one_in == 0) {
          scattered_[number].deref_mut(here).rewrite(number);
        } else {
          scattered_[number].deref(here).check(number);
        }
      }
    });
  }

  // Each fiber goes on where it was, and begins again at the end of its part.
  void walk(std::size_t accesses) {
    run_fibers([&](unsigned fiber) {
      const std::size_t count = begin(fiber + 1) - begin(fiber);
      for (std::size_t i = 0; i < accesses / fibers; ++i) {
        const std::size_t number = begin(fiber) + (walked_ + i) % count;
        const far::scope here(runtime_);
        dense_[number].deref(here).check(number);
      }
    });
    walked_ += accesses / fibers;
  }

  [[nodiscard]] transfer_counts counters() const { return count_transfers(runtime_); }

 private:
  static std::size_t objects_in(const evaluation::json& assignment) {
    return assignment.at("bytes").get<std::size_t>() / 2 / sizeof(object) / fibers * fibers;
  }
  static far::runtime_options options_for(const evaluation::json& assignment) {
    far::runtime_options chosen;
    chosen.local_bytes = assignment.at("local_bytes").get<std::size_t>();
    chosen.far = network_uri;
    chosen.page_path_share = assignment.at("page_path_share").get<double>();
    return chosen;
  }
  [[nodiscard]] std::size_t begin(unsigned fiber) const { return scattered_.size() / fibers * fiber; }

  template <typename Body>
  void run_fibers(const Body& body) {
    std::vector<fiber::handle> running;
    for (unsigned one = 0; one < fibers; ++one) {
      running.push_back(runtime_.fibers().spawn([&body, one] { body(one); }));
    }
    for (fiber::handle& one : running) one.join();
  }

  far::runtime runtime_;
  table scattered_;
  table dense_;
  std::vector<std::uint32_t> order_;  // of the scattered table, shuffled: neighbours in it lie far apart
  std::size_t hot_first_ = 0;
  std::size_t hot_count_ = 0;
  std::size_t walked_ = 0;
  std::uint64_t rounds_ = 0;
};

// One round of a phase: its costs for an access.
evaluation::json measure_round(program& one, bool dense, std::size_t accesses) {
  const transfer_counts before = one.counters();
  const std::uint64_t cpu_before = process_cpu_ns();
  const std::uint64_t start = monotonic_ns();
  if (dense) {
    one.walk(accesses);
  } else {
    one.scatter(accesses);
  }
  const auto elapsed_ns = static_cast<double>(monotonic_ns() - start);
  const auto done = static_cast<double>(accesses);
  evaluation::json metrics = {{"elapsed_ns", elapsed_ns},
                              {"accesses_per_s", done / elapsed_ns * 1e9},
                              {"cpu_ns_per_access", static_cast<double>(process_cpu_ns() - cpu_before) / done}};
  add_transfers(before, one.counters(), done, metrics);
  return metrics;
}

}  // namespace

result<evaluation::json> hybrid_child(const evaluation::json& assignment) {
  program one(assignment);
  const bool shifts = assignment.at("program").get<std::string>() == "shifting hot sets";
  const auto phases = assignment.at("phases").get<unsigned>();
  const auto rounds = assignment.at("rounds").get<unsigned>();
  const auto accesses = assignment.at("accesses").get<std::size_t>();
  evaluation::json answer = evaluation::json::array();
  for (unsigned phase = 0; phase < phases; ++phase) {
    const bool dense = !shifts && phase % 2 == 1;
    if (shifts) one.shift();
    for (unsigned round = 0; round < rounds; ++round) {
      answer.push_back({{"phase", shifts ? "hot set" : (dense ? "dense" : "scattered")},
                        {"round", round},
                        {"metrics", measure_round(one, dense, dense ? accesses * 4 : accesses)}});
    }
  }
  return answer;
}

}  // namespace far::bench
