// Far pointers to the objects of a device in this process, over the poisoning pager: under sanitizers, too.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/sanitizers.h"
#include "base/units.h"
#include "tests/devices/pointers_stress.h"

namespace far {
namespace {

using testing_support::record;

constexpr unsigned steps = has_thread_sanitizer ? 2'000 : 8'000;

runtime_options small() {
  runtime_options chosen;
  chosen.local_bytes = mib;
  chosen.workers = 2;
  chosen.page_path_share = 0.5;
  return chosen;
}

TEST(DevicePointersSimulated, KeepEveryByteWhileCopiesLeave) {
  runtime farheap(small());
  device made("memory:?plugin=" SORTED, "sorted");
  testing_support::use_together(farheap, made, 600, steps, [&](device_objects<record>&) {
    farheap.evict_all();
    farheap.evacuate(0.3);
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  });
  farheap.validate();
}

TEST(DevicePointersSimulated, KeepEveryByteWhileOthersFlushAndDrop) {
  runtime farheap(small());
  device made("memory:?plugin=" SORTED, "sorted");
  unsigned round = 0;
  testing_support::use_together(farheap, made, 3000, steps, [&](device_objects<record>& all) {
    if (++round % 2 == 0) {
      all.flush();
    } else {
      all.drop();
    }
    farheap.evict_all();
  });
  farheap.validate();
}

}  // namespace
}  // namespace far
