// How much local memory the far heap of the link door takes beside its budget. Needs permission for userfaultfd.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "base/sanitizers.h"
#include "base/units.h"
#include "far/scope.h"
#include "far/unique_ptr.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

struct record {
  explicit record(std::uint64_t which) : number(which) {}
  std::uint64_t number;
  std::byte rest[480] = {};
};

// Of the process, without the pages of the far heap: how many of them are here differs by some hundreds from moment to
// moment, as the budget is refilled and emptied in batches.
std::uint64_t resident_bytes(const runtime& farheap) {
  std::uint64_t whole = 0;
  std::uint64_t resident = 0;
  std::ifstream("/proc/self/statm") >> whole >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) - farheap.statistics().local_bytes;
}

using metadata_test = heap::real_pager_test<>;

// The budget is used up from the first part on, and the owners' words are there from the beginning, so what is added
// with the second part is what the runtime keeps for each page: decisions/0085-a-card-is-an-object.md.
// Pages that leave are copied through frames of a fixed number, and any number of the far heap's own frames are here or
// on their way out at a time: it is measured when all have left, and nothing is under way.
TEST_F(metadata_test, stays_below_27_thousandths_of_the_far_heap) {
  if (has_address_sanitizer) GTEST_SKIP() << "AddressSanitizer's own memory grows, too";
  constexpr std::size_t small = 64 * mib;
  constexpr std::size_t large = 512 * mib;
  runtime_options chosen = heap::small_runtime();
  chosen.far = "file:";
  runtime farheap(chosen);
  std::vector<unique_ptr<record>> all(large / page_bytes * 8);
  for (unique_ptr<record>& one : all) one = nullptr;  // the memory of the words is there
  const std::size_t small_count = all.size() / (large / small);
  for (std::size_t i = 0; i < small_count; ++i) all[i] = make_unique<record>(farheap, i);
  farheap.evict_all();
  const std::uint64_t resident_before = resident_bytes(farheap);
  const std::uint64_t far_before = farheap.statistics().far_bytes;
  for (std::size_t i = small_count; i < all.size(); ++i) all[i] = make_unique<record>(farheap, i);
  farheap.evict_all();
  const std::uint64_t far_added = farheap.statistics().far_bytes - far_before;
  ASSERT_GT(far_added, (large - small) * 9 / 10);
  const std::uint64_t added = resident_bytes(farheap) - resident_before;
  RecordProperty("bytes_a_page", std::to_string(added * page_bytes / far_added));
  EXPECT_LT(added, far_added * 27 / 1000) << added * page_bytes / far_added << " bytes for each page";
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < all.size(); i += 1000) {
    const scope here(farheap);
    wrong += all[i].deref(here).number == i ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace far
