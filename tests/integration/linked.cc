// A program with a far::runtime, or with two: fills more far memory than the budget, says that it is ready, looks at
// all of it when a line comes on standard input, and ends with it.
//
//     linked BUDGET-MIB OBJECTS [SECOND-BUDGET-MIB [ELEMENTS-OF-A-VECTOR]]
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "far/page_lost.h"
#include "far/runtime.h"
#include "far/unique_ptr.h"
#include "far/vector.h"

namespace {

using content = std::array<std::uint64_t, 128>;

far::runtime_options with_budget(const char* mib) {
  far::runtime_options chosen;
  chosen.local_bytes = std::strtoull(mib, nullptr, 10) << 20;
  chosen.workers = 1;
  return chosen;
}

// Adds the elements one by one, from places that nothing foresees.
std::uint64_t look_up(const far::vector<std::uint64_t>& table, std::uint64_t times) {
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0, at = 1; i < times; ++i) {
    at = (at * 6364136223846793005u + 1442695040888963407u) >> 1;
    const std::uint64_t index = (at >> 20) % table.size();
    wrong += table.read(index) == index * 5 ? 0 : 1;
  }
  return wrong;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) return 2;
  far::runtime farheap(with_budget(arguments[1]));
  std::unique_ptr<far::runtime> second;
  if (count > 3 && std::strcmp(arguments[3], "0") != 0)
    second = std::make_unique<far::runtime>(with_budget(arguments[3]));
  std::vector<far::unique_ptr<content>> all;
  const std::uint64_t objects = std::strtoull(arguments[2], nullptr, 10);
  for (std::uint64_t i = 0; i < objects; ++i) all.push_back(far::make_unique<content>(farheap, content{i, i * 3}));
  const std::uint64_t elements = count > 4 ? std::strtoull(arguments[4], nullptr, 10) : 0;
  far::vector<std::uint64_t> table(farheap);
  for (std::uint64_t i = 0; i < elements; ++i) table.push_back(i * 5);
  std::puts("ready");
  std::fflush(stdout);
  static_cast<void>(std::getchar());
  std::uint64_t wrong = elements > 0 ? look_up(table, 5000) : 0;
  for (std::uint64_t i = 0; i < objects; ++i) {
    try {
      const content read = all[i].read();
      wrong += read[0] == i && read[1] == i * 3 ? 0 : 1;
    } catch (const far::page_lost&) {
      ++wrong;
    }
  }
  std::printf("%llu wrong\n", static_cast<unsigned long long>(wrong));
  return wrong == 0 ? 0 : 1;
}
