// trace_writer DIR: leaves a trace as a traced program would, with made-up misses at real addresses of this program, so
// that its functions and lines are found by its own debug information. Used by trace_report_test.py.
#include "tests/support/trace_writer.h"

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

using far::trace::miss_kind;
using far::trace::test_writer;

constexpr std::uint64_t page = 4096;
constexpr std::uint64_t edges = 0x7e0000000000;
constexpr std::uint64_t ranks = 0x7e1000000000;
constexpr std::uint64_t interpreter = 0x10000;  // a module that is not there
constexpr std::uint64_t index_memory = 0x7e2000000000;

// The stack at the moment of the call: the address behind the call to `here`, then those of the callers, which each
// pass theirs down.
using addresses = std::vector<std::uint64_t>;

[[gnu::noinline]] std::uint64_t here() {
  return reinterpret_cast<std::uint64_t>(__builtin_return_address(0));
}

addresses below(std::uint64_t address, addresses callers) {
  callers.insert(callers.begin(), address);
  return callers;
}

// Compilers make one of functions that are the same; this tells them apart.
#define DIFFERENT_FROM_OTHERS() asm volatile("# %0" : : "i"(__LINE__))

constexpr unsigned hinted_line = __LINE__;  // close to the next function
[[gnu::noinline]] addresses scan_edges(const addresses& callers) {
  DIFFERENT_FROM_OTHERS();
  return below(here(), callers);
}

template <typename Key>
[[gnu::always_inline]] inline std::uint64_t probe_bucket(const Key&) {
  return here();
}

[[gnu::noinline]] addresses look_up_name(const addresses& callers) {
  DIFFERENT_FROM_OTHERS();
  const std::uint64_t inlined = probe_bucket(std::string("name"));
  return below(inlined, callers);
}

[[gnu::noinline]] addresses update_ranks(const addresses& callers) {
  DIFFERENT_FROM_OTHERS();
  return below(here(), callers);
}

[[gnu::noinline]] addresses read_columns(const addresses& callers) {
  DIFFERENT_FROM_OTHERS();
  return below(here(), callers);
}

[[gnu::noinline]] addresses iterate(const addresses& callers) {
  DIFFERENT_FROM_OTHERS();
  return below(here(), callers);
}

[[gnu::noinline]] addresses load_graph(const addresses& callers) {
  DIFFERENT_FROM_OTHERS();
  return below(here(), callers);
}

[[gnu::noinline]] addresses build_index(const addresses& callers) {
  DIFFERENT_FROM_OTHERS();
  return below(here(), callers);
}

std::uint64_t pseudo_random(std::uint64_t i) {
  i = (i + 1) * 0x9e3779b97f4a7c15;
  i = (i ^ (i >> 29)) * 0xbf58476d1ce4e5b9;
  return i ^ (i >> 32);
}

void write_misses(test_writer& writer, const addresses& root) {
  const addresses loop = iterate(root);
  const std::uint32_t scan = writer.stack(scan_edges(loop));
  const std::uint32_t update = writer.stack(update_ranks(loop));
  const std::uint32_t probe = writer.stack(look_up_name(loop));
  const std::uint32_t columns = writer.stack(read_columns(root));
  const std::uint32_t interpreted = writer.stack({interpreter + 0x100, loop.front()});
  const std::uint32_t hostile = writer.python_stack("</script><img/src=x>.py:3 <b>bold</b>\n");
  const std::uint32_t fill = writer.stack(load_graph(root));
  for (std::uint64_t i = 0; i < 600; ++i) writer.miss(edges + i * page, fill, 1, miss_kind::first_touch);
  for (std::uint64_t i = 0; i < 4000; ++i) {
    writer.miss(edges + i * page, scan);
    if (i % 2 == 0)
      writer.miss(ranks + (2500 - i / 2) * page, update, 2, i % 6 == 0 ? miss_kind::write : miss_kind::protection);
    if (i % 4 == 0)
      writer.miss(index_memory + pseudo_random(i) % 100'000 * page, probe, 1 + static_cast<std::uint32_t>(i % 3));
    if (i % 5 == 0) writer.miss(ranks + (1 << 20) + i / 5 * 200 * page, columns, 3);
    if (i % 100 == 0)
      writer.miss(index_memory + pseudo_random(i) % 1000 * page, interpreted, 4, miss_kind::read, hostile);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: trace_writer DIR\n"), 2;
  test_writer writer(4711);
  std::ifstream maps("/proc/self/maps");
  std::ostringstream text;
  text << maps.rdbuf();
  writer.maps("00010000-00020000 r-xp 00000000 00:01 9 /opt/no-such-folder/python3.11\n" + text.str());
  const addresses root = {here()};
  writer.allocation(edges, 1ULL << 30, writer.stack(load_graph(root)));
  writer.allocation(ranks, 1ULL << 34, writer.stack(load_graph(root)));
  writer.allocation(index_memory, 1ULL << 30, writer.stack(build_index(root)));
  write_misses(writer, root);
  writer.hint_site(__FILE__, 1, 5000, 0);
  writer.hint_site(__FILE__, hinted_line, 9000, 2500);
  writer.end(8440, 2500);
  writer.save(std::string(argv[1]) + "/misses-4711.trace");
}
