// The programs of `farheap-bench pointers`, each written once and compiled for raw pointers and for far pointers.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "clocks.h"
#include "common/json.h"
#include "far/runtime.h"
#include "far/scope.h"
#include "far/unique_ptr.h"
#include "heap_bench.h"

namespace far::bench {

// How a program makes objects, opens scopes and follows pointers.
struct raw_pointers {
  static constexpr const char* name = "raw pointers";
  template <typename T>
  using pointer = std::unique_ptr<T>;
  struct scope {
    explicit scope(far::runtime& /*runtime*/) {}
  };
  template <typename T, typename... Arguments>
  static pointer<T> make(far::runtime& /*in*/, Arguments&&... arguments) {
    return pointer<T>(new T(std::forward<Arguments>(arguments)...));
  }
  template <typename T>
  static const T* follow(const pointer<T>& to, const scope& /*in*/) {
    return to.get();
  }
  template <typename T>
  static T& follow_to_change(pointer<T>& to, const scope& /*in*/) {
    return *to;
  }
};

struct far_pointers_of_all {
  static constexpr const char* name = "far pointers";
  template <typename T>
  using pointer = far::unique_ptr<T>;
  using scope = far::scope;
  template <typename T, typename... Arguments>
  static pointer<T> make(far::runtime& in, Arguments&&... arguments) {
    return far::make_unique<T>(in, std::forward<Arguments>(arguments)...);
  }
  template <typename T>
  static const T* follow(const pointer<T>& to, const scope& in) {
    return to.get(in);
  }
  template <typename T>
  static T& follow_to_change(pointer<T>& to, const scope& in) {
    return to.deref_mut(in);
  }
};

template <typename Family>
struct list_node {
  std::uint64_t value = 0;
  typename Family::template pointer<list_node> next;
  std::uint64_t content[4] = {};
};

template <typename Family>
struct tree_node {
  std::uint64_t key = 0;
  typename Family::template pointer<tree_node> less;
  typename Family::template pointer<tree_node> more;
  std::uint64_t content[2] = {};
};

struct map_entry {
  std::uint64_t key = 0;
  std::uint64_t value = 0;
  std::uint64_t content[3] = {};
};

}  // namespace far::bench

template <typename Family>
struct far::pointers_of<far::bench::list_node<Family>> {
  static void visit(far::bench::list_node<Family>& in, auto&& pointer) { pointer(in.next); }
};

template <typename Family>
struct far::pointers_of<far::bench::tree_node<Family>> {
  static void visit(far::bench::tree_node<Family>& in, auto&& pointer) {
    pointer(in.less);
    pointer(in.more);
  }
};

namespace far::bench {

namespace {

// Lists of a thousand nodes; an operation is one node of a walk, a walk is one scope.
template <typename Family>
class list_program {
 public:
  static constexpr const char* name = "list";

  list_program(far::runtime& in, std::size_t nodes) : runtime_(in), lists_(nodes / length) {
    for (auto& first : lists_) {
      for (std::size_t i = 0; i < length; ++i) {
        auto before = Family::template make<list_node<Family>>(in, i, std::move(first));
        first = std::move(before);
      }
    }
  }
  // From the front, node by node: destroying the first would destroy all, each inside the other.
  ~list_program() {
    for (auto& first : lists_) {
      while (first) {
        typename Family::template pointer<list_node<Family>> next;
        {
          const typename Family::scope here(runtime_);
          next = std::move(Family::follow_to_change(first, here).next);
        }
        first = std::move(next);
      }
    }
  }
  list_program(const list_program&) = delete;
  list_program& operator=(const list_program&) = delete;

  std::uint64_t run(std::size_t operations) {
    std::uint64_t sum = 0;
    for (std::size_t walk = 0; walk < operations / length; ++walk) {
      const typename Family::scope here(runtime_);
      const auto& first = lists_[walk % lists_.size()];
      for (const auto* node = Family::follow(first, here); node != nullptr; node = Family::follow(node->next, here)) {
        sum += node->value;
      }
    }
    return sum;
  }

 private:
  static constexpr std::size_t length = 1000;

  far::runtime& runtime_;
  std::vector<typename Family::template pointer<list_node<Family>>> lists_;
};

// A balanced binary search tree; an operation is a look-up of a random key, and a scope.
template <typename Family>
class tree_program {
 public:
  static constexpr const char* name = "tree";

  tree_program(far::runtime& in, std::size_t nodes) : runtime_(in), nodes_(nodes), root_(build(0, nodes)) {}

  std::uint64_t run(std::size_t operations) {
    random_numbers random(5);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < operations; ++i) {
      const std::uint64_t wanted = random.below(nodes_);
      const typename Family::scope here(runtime_);
      const auto* node = Family::follow(root_, here);
      while (node != nullptr) {
        if (node->key == wanted) {
          sum += node->content[0];
          break;
        }
        node = Family::follow(wanted < node->key ? node->less : node->more, here);
      }
    }
    return sum;
  }

 private:
  using pointer = typename Family::template pointer<tree_node<Family>>;

  pointer build(std::uint64_t from, std::uint64_t to) {
    if (from == to) return nullptr;
    const std::uint64_t middle = (from + to) / 2;
    pointer less = build(from, middle);
    pointer more = build(middle + 1, to);
    auto created = Family::template make<tree_node<Family>>(runtime_, middle, std::move(less), std::move(more));
    const typename Family::scope here(runtime_);
    Family::follow_to_change(created, here).content[0] = middle * 3;
    return created;
  }

  far::runtime& runtime_;
  std::size_t nodes_;
  pointer root_;
};

// A small hash map with open addressing: a local table of pointers to entries. An operation is a look-up, and a scope.
template <typename Family>
class map_program {
 public:
  static constexpr const char* name = "hash map";

  map_program(far::runtime& in, std::size_t entries) : runtime_(in), entries_(entries), table_(entries * 2) {
    for (std::size_t key = 0; key < entries; ++key) {
      std::size_t at = home_of(key);
      while (table_[at]) at = (at + 1) % table_.size();
      table_[at] = Family::template make<map_entry>(in, key, key * 7);
    }
  }

  std::uint64_t run(std::size_t operations) {
    random_numbers random(6);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < operations; ++i) {
      const std::uint64_t wanted = random.below(entries_);
      const typename Family::scope here(runtime_);
      std::size_t at = home_of(wanted);
      while (const map_entry* const entry = Family::follow(table_[at], here)) {
        if (entry->key == wanted) {
          sum += entry->value;
          break;
        }
        at = at + 1 == table_.size() ? 0 : at + 1;
      }
    }
    return sum;
  }

 private:
  [[nodiscard]] std::size_t home_of(std::uint64_t key) const {
    const std::uint64_t mixed = (key + 1) * 0x9e3779b97f4a7c15u;
    return static_cast<std::size_t>(static_cast<unsigned __int128>(mixed) * table_.size() >> 64);
  }

  far::runtime& runtime_;
  std::size_t entries_;
  std::vector<typename Family::template pointer<map_entry>> table_;
};

}  // namespace

// Functions of their own, with plain names, so that callgrind can tell them apart.
extern "C" {
[[gnu::noinline]] static std::uint64_t pointers_list_raw(void* program, std::size_t operations) {
  return static_cast<list_program<raw_pointers>*>(program)->run(operations);
}
[[gnu::noinline]] static std::uint64_t pointers_list_far(void* program, std::size_t operations) {
  return static_cast<list_program<far_pointers_of_all>*>(program)->run(operations);
}
[[gnu::noinline]] static std::uint64_t pointers_tree_raw(void* program, std::size_t operations) {
  return static_cast<tree_program<raw_pointers>*>(program)->run(operations);
}
[[gnu::noinline]] static std::uint64_t pointers_tree_far(void* program, std::size_t operations) {
  return static_cast<tree_program<far_pointers_of_all>*>(program)->run(operations);
}
[[gnu::noinline]] static std::uint64_t pointers_map_raw(void* program, std::size_t operations) {
  return static_cast<map_program<raw_pointers>*>(program)->run(operations);
}
[[gnu::noinline]] static std::uint64_t pointers_map_far(void* program, std::size_t operations) {
  return static_cast<map_program<far_pointers_of_all>*>(program)->run(operations);
}
}

namespace {

using run_program = std::uint64_t (*)(void* program, std::size_t operations);

struct timed {
  double ns = 0;  // CPU time of an operation
  std::uint64_t sum = 0;
};

timed measure_one(run_program run, void* program, std::size_t operations) {
  const std::uint64_t start = thread_cpu_ns();
  const std::uint64_t sum = run(program, operations);
  return {static_cast<double>(thread_cpu_ns() - start) / static_cast<double>(operations), sum};
}

// Both kinds take turns, each run at going first. `run_raw`, `run_far`: the program's.
template <template <typename> typename Program>
void measure_pairs(far::runtime& in, run_program run_raw, run_program run_far, std::size_t objects,
                   std::size_t operations, unsigned runs, const char* size, evaluation::json& samples) {
  Program<raw_pointers> raw(in, objects);
  Program<far_pointers_of_all> far(in, objects);
  const std::string workload = std::string(Program<raw_pointers>::name) + ", " + size;
  for (unsigned run = 0; run <= runs; ++run) {
    timed times[2];
    for (const unsigned step : {0u, 1u}) {
      const unsigned index = (step + run) % 2;
      times[index] = index == 0 ? measure_one(run_raw, &raw, operations) : measure_one(run_far, &far, operations);
    }
    FAR_CHECK(times[0].sum == times[1].sum, "far pointers led to other objects than raw ones");
    if (run == 0) continue;  // warms up
    for (const unsigned index : {0u, 1u}) {
      samples.push_back({{"workload", workload},
                         {"configuration", index == 0 ? raw_pointers::name : far_pointers_of_all::name},
                         {"metrics", {{"ns", times[index].ns}, {"ratio", times[index].ns / times[0].ns}}}});
    }
  }
}

// Under callgrind: all programs once.
template <template <typename> typename Program>
void run_both(far::runtime& in, run_program run_raw, run_program run_far, std::size_t operations) {
  Program<raw_pointers> raw(in, 1'000);
  Program<far_pointers_of_all> far(in, 1'000);
  FAR_CHECK(run_raw(&raw, operations) == run_far(&far, operations), "far pointers led to other objects than raw ones");
}

}  // namespace

result<evaluation::json> pointers_child(const evaluation::json& assignment) {
  const auto counted_operations = assignment.value("counted_operations", std::size_t{0});
  far::runtime_options chosen;
  chosen.local_bytes = gib;
  if (counted_operations != 0) chosen.address_bytes = 16 * gib;  // valgrind has no room for more
  chosen.workers = 1;
  chosen.evacuate_garbage_share = 2;
  far::runtime here(chosen);
  if (counted_operations != 0) {
    here.run([&] {
      run_both<list_program>(here, pointers_list_raw, pointers_list_far, counted_operations);
      run_both<tree_program>(here, pointers_tree_raw, pointers_tree_far, counted_operations);
      run_both<map_program>(here, pointers_map_raw, pointers_map_far, counted_operations);
    });
    return evaluation::json(counted_operations);
  }
  const auto runs = assignment.at("runs").get<unsigned>();
  const auto factor = assignment.at("factor").get<std::size_t>();
  evaluation::json samples = evaluation::json::array();
  here.run([&] {
    struct size {
      const char* name;
      std::size_t objects;
    };
    for (const size& program : {size{"1 k", 1'000}, size{"100 k", 100'000}}) {
      measure_pairs<list_program>(here, pointers_list_raw, pointers_list_far, program.objects, 1'000'000 * factor, runs,
                                  program.name, samples);
      measure_pairs<tree_program>(here, pointers_tree_raw, pointers_tree_far, program.objects, 100'000 * factor, runs,
                                  program.name, samples);
      measure_pairs<map_program>(here, pointers_map_raw, pointers_map_far, program.objects, 300'000 * factor, runs,
                                 program.name, samples);
    }
  });
  return samples;
}

}  // namespace far::bench
