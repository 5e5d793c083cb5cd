// Far objects whose types have alignments above 16. Needs permission for userfaultfd.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"
#include "far/runtime.h"
#include "far/shared_ptr.h"
#include "far/unique_ptr.h"
#include "tests/support/real_pager.h"

namespace far {
namespace aligned {

template <std::size_t alignment>
struct alignas(alignment) block {
  std::uint64_t number = 0;
};

// Its description of far pointers leaves it no room in a page that it shares.
struct alignas(2048) parent {
  std::uint64_t number = 0;
  unique_ptr<block<64>> child;
};

}  // namespace aligned

template <>
struct pointers_of<aligned::parent> {
  static void visit(aligned::parent& in, auto&& pointer) { pointer(in.child); }
};

namespace {

using namespace aligned;
using alignment_test = heap::real_pager_test<>;

static_assert(relocatable<block<32>> && relocatable<block<4096>> && !relocatable<block<8192>>);

template <typename T>
bool is_aligned(const T& object) {
  return reinterpret_cast<std::uintptr_t>(&object) % alignof(T) == 0;
}

// Among objects without an alignment, so that the places before them have any.
template <std::size_t alignment>
void make_and_move() {
  SCOPED_TRACE(alignment);
  runtime farheap(heap::small_runtime());
  constexpr std::size_t count = 1 + (4 * mib) / (alignment + 64);
  std::vector<unique_ptr<block<alignment>>> all;
  std::vector<unique_ptr<char[]>> others;
  for (std::size_t i = 0; i < count; ++i) {
    others.push_back(make_unique<char[]>(farheap, 1 + i % 70));
    all.push_back(make_unique<block<alignment>>(farheap, block<alignment>{i}));
  }
  for (const double share : {2.0, 0.0}) {  // by objects, which then have new places, and by pages
    farheap.set_page_path_share(share);
    for (int round = 0; round < 2; ++round) {
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < count; ++i) {
        const scope here(farheap);
        const block<alignment>& one = all[i].deref(here);
        wrong += is_aligned(one) && one.number == i ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0u);
      if (round == 0) static_cast<void>(farheap.evacuate(0));
      farheap.evict_all();
    }
    farheap.validate();
  }
  const runtime_statistics now = farheap.statistics();
  if (alignment < 2048) {
    EXPECT_GT(now.object_fetches, count / 2);
    EXPECT_GT(now.evacuated_objects, count / 2);
  }
}

TEST_F(alignment_test, objects_have_it_wherever_they_move) {
  make_and_move<8>();
  make_and_move<32>();
  make_and_move<64>();
  make_and_move<256>();
  make_and_move<1024>();
  make_and_move<2048>();
  make_and_move<4096>();
}

TEST_F(alignment_test, arrays_and_shared_objects_have_it) {
  runtime farheap(heap::small_runtime());
  std::vector<unique_ptr<block<128>[]>> arrays;
  std::vector<shared_ptr<block<512>>> shared;
  for (std::size_t i = 0; i < 200; ++i) {
    arrays.push_back(make_unique<block<128>[]>(farheap, 1 + i % 40));  // up to more than a page
    shared.push_back(make_shared<block<512>>(farheap, block<512>{i}));
    const scope here(farheap);
    arrays[i].deref_mut(here, i % 40).number = i;
  }
  static_cast<void>(farheap.evacuate(0));
  farheap.evict_all();
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const scope here(farheap);
    const std::span<const block<128>> elements = arrays[i].deref(here);
    EXPECT_TRUE(is_aligned(elements.front()) && elements.size() == 1 + i % 40 && elements.back().number == i) << i;
    EXPECT_TRUE(is_aligned(shared[i].deref(here)) && shared[i].deref(here).number == i) << i;
  }
  farheap.validate();
}

TEST_F(alignment_test, objects_with_far_pointers_have_it) {
  runtime farheap(heap::small_runtime());
  std::vector<unique_ptr<parent>> all;
  for (std::size_t i = 0; i < 100; ++i) {
    all.push_back(make_unique<parent>(farheap, parent{i, make_unique<block<64>>(farheap, block<64>{i})}));
  }
  farheap.evict_all();
  static_cast<void>(farheap.evacuate(0));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const scope here(farheap);
    const parent& one = all[i].deref(here);
    EXPECT_TRUE(is_aligned(one) && is_aligned(one.child.deref(here)) && one.child.deref(here).number == i) << i;
  }
  farheap.validate();
}

}  // namespace
}  // namespace far
