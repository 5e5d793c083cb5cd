// Random programs of memory calls against the kernel's own behaviour; see world.h. Links nothing of Farheap: it is run
// natively, which tests the test, and under `farheap run`.
//
//   memory_calls [--seed N] [--seeds COUNT | --seconds S] [--operations M] [--working-set MIB] [--only NAMES]
//                [--without NAMES] [--timer] [--quiet FIFO] [--skip-before N] [--verbose] [--list]
//
// exit code 0: everything as on Linux; 1: not, and the first difference is printed with a command that repeats it.
#include <fcntl.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "world.h"

namespace memory_calls {

void write(world& w) {
  range pages;
  if (!pick_range(w, pages) || any_hole(pages)) return;
  if (w.frozen && any_shared(pages)) return;
  say(w, "%zu pages at %p", pages.count, static_cast<void*>(pages.main()));
  const bool whole = any_maybe_free(pages) || w.random.one_in(2);
  if (whole) {
    write_range(w, pages);
  } else {
    const std::size_t start = w.random.below(pages.bytes());
    write_both(w, pages.main() + start, pages.twin() + start, w.random.spread(pages.bytes() - start));
  }
}

void verify(world& w) {
  range pages;
  if (!pick_range(w, pages)) return;
  say(w, "%zu pages at %p", pages.count, static_cast<void*>(pages.main()));
  verify_range(w, pages);
}

namespace {

constexpr operation all_operations[] = {
    {"map", 14, map_area},
    {"map-fixed", 8, map_fixed},
    {"unmap", 7, unmap},
    {"unmap-refill", 4, unmap_and_refill},
    {"protect", 6, protect},
    {"remap", 8, remap},
    {"reserve", 1, reserve_much},
    {"bad-call", 4, call_badly},
    {"advise", 14, advise},
    {"lock", 3, lock},
    {"lock-all", 1, lock_all},
    {"write", 14, write},
    {"verify", 8, verify},
    {"read-file", 4, read_file},
    {"write-file", 3, write_file},
    {"vectors", 3, transfer_vectors},
    {"pipe", 4, pass_through_pipe},
    {"direct", 3, transfer_directly},
    {"ring", 3, use_ring},
    {"read-own", 2, read_own_process},
    {"malloc", 8, allocate},
    {"realloc", 4, reallocate},
    {"free", 5, release_block},
    {"malloc-badly", 1, allocate_badly},
    {"fork", 2, fork_child},
    {"vfork", 1, vfork_child},
    {"threads", 1, run_threads},
    {"threads-shared", 1, share_world},
    {"jump", 1, jump_from_handler},
};

bool chosen_by_name(const world& w, const char* name) {
  const char* const only = w.chosen->only;
  if (only == nullptr) return true;
  const std::size_t length = std::strlen(name);
  for (const char* at = std::strstr(only, name); at != nullptr; at = std::strstr(at + 1, name)) {
    if ((at == only || at[-1] == ',') && (at[length] == '\0' || at[length] == ',')) return true;
  }
  return false;
}

const operation* any_operation(world& w) {
  int total = 0;
  for (const operation& operation : all_operations) {
    if (chosen_by_name(w, operation.name) && allowed(w, operation.name)) total += operation.weight;
  }
  if (total == 0) return nullptr;
  int at = static_cast<int>(w.random.below(static_cast<std::uint64_t>(total)));
  for (const operation& operation : all_operations) {
    if (!chosen_by_name(w, operation.name) || !allowed(w, operation.name)) continue;
    if (at < operation.weight) return &operation;
    at -= operation.weight;
  }
  return nullptr;
}

double now_s() {
  timespec time = {};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// A point at which nothing is going on, for a test that compares the accounting: says so, and waits for a byte.
void stay_quiet(const options& chosen, const char* text) {
  if (chosen.quiet == nullptr) return;
  std::printf("quiet: %s\n", text);
  std::fflush(stdout);
  const int fifo = ::open(chosen.quiet, O_RDONLY | O_CLOEXEC);
  char byte = 0;
  if (fifo < 0 || ::read(fifo, &byte, 1) != 1) std::exit(2);
  ::close(fifo);
}

void run_seed(const options& chosen) {
  world& w = *make_world(chosen, 0, chosen.seed);
  if (chosen.timer) start_timer();
  run_operations(w, chosen.seed, chosen.operations, chosen.skip_before);
  w.name = "end";
  wait_for_children(w);
  verify_all(w);
  if (chosen.timer) stop_timer();
  stay_quiet(chosen, "full");
  verify_all(w);
  release_everything(w);
  stay_quiet(chosen, "empty");
  drop_world(w);
}

[[noreturn]] void explain() {
  std::fputs(
      "usage: memory_calls [--seed N] [--seeds COUNT | --seconds S] [--operations M] [--working-set MIB]\n"
      "                    [--only NAMES] [--without NAMES] [--timer] [--quiet FIFO] [--skip-before N]\n"
      "                    [--verbose] [--list]\n",
      stderr);
  std::exit(2);
}

void take_number(options& chosen, std::string_view name, const char* value) {
  const std::uint64_t number = std::strtoull(value, nullptr, 10);
  if (name == "--seed")
    chosen.seed = number;
  else if (name == "--seeds")
    chosen.seeds = number;
  else if (name == "--operations")
    chosen.operations = number;
  else if (name == "--skip-before")
    chosen.skip_before = number;
  else if (name == "--working-set")
    chosen.working_set_bytes = number << 20;
  else if (name == "--seconds")
    chosen.seconds = std::strtod(value, nullptr);
  else
    explain();
}

options parse(int count, char** arguments) {
  options chosen;
  for (int i = 1; i < count; ++i) {
    const std::string_view name = arguments[i];
    if (name == "--verbose") {
      chosen.verbose = true;
    } else if (name == "--timer") {
      chosen.timer = true;
    } else if (name == "--list") {
      for (const operation& operation : all_operations) std::puts(operation.name);
      std::exit(0);
    } else if (i + 1 == count) {
      explain();
    } else if (name == "--only") {
      chosen.only = arguments[++i];
    } else if (name == "--without") {
      chosen.without = arguments[++i];
    } else if (name == "--quiet") {
      chosen.quiet = arguments[++i];
    } else {
      take_number(chosen, name, arguments[++i]);
    }
  }
  return chosen;
}

}  // namespace

void run_operations(world& w, std::uint64_t seed, std::uint64_t count, std::uint64_t skip_before) {
  constexpr std::uint64_t raw_share = 6;
  for (std::uint64_t i = skip_before; i < count; ++i) {
    random_numbers mixed(seed * 0x9e3779b97f4a7c15u + i);
    w.random = random_numbers(mixed.next());
    if (w.depth == 0 && w.index == 0) w.operation = i;
    const operation* const next = any_operation(w);
    if (next == nullptr) return;
    w.raw = allowed(w, "raw") && w.random.one_in(raw_share);
    const char* const outer = w.name;
    w.name = next->name;
    next->run(w);
    w.name = outer;
    if (w.children[0] != 0 && w.random.one_in(10)) wait_for_children(w);
  }
  wait_for_children(w);
}

}  // namespace memory_calls

int main(int count, char** arguments) {
  using namespace memory_calls;
  options chosen = parse(count, arguments);
  make_constants();
  install_fault_handlers();
  const double start = now_s();
  std::uint64_t done = 0;
  for (; chosen.seconds > 0 ? now_s() - start < chosen.seconds : done < chosen.seeds; ++done, ++chosen.seed) {
    run_seed(chosen);
  }
  std::printf("memory_calls: %llu seeds of %llu operations in %.1f s, the last one %llu: all as on Linux\n",
              static_cast<unsigned long long>(done), static_cast<unsigned long long>(chosen.operations),
              now_s() - start, static_cast<unsigned long long>(chosen.seed - 1));
  return 0;
}
