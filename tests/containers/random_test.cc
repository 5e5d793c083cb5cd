// Random programs of containers beside those of std, in a few pages of local memory, of which any may leave at any time
// (the poisoning pager). Constructors, comparisons, hashes and allocations of local memory fail at random. Then either
// nothing has happened, or, where a function promises less, the elements that are there are whole. All are destroyed
// once. A seed chooses the options, and what is done.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "base/units.h"
#include "far/runtime.h"
#include "tests/containers/random_maps.h"
#include "tests/containers/random_sequences.h"

namespace {

void* allocate_or_fail(std::size_t bytes, std::size_t alignment) {
  int& to_go = far::random_program::allocations_to_go;
  if (to_go < 0 || (to_go > 0 && --to_go == 0)) throw std::bad_alloc();
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + alignment - 1) & ~(alignment - 1);
  void* const room = std::aligned_alloc(alignment, rounded);
  return room != nullptr ? room : throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) {
  return allocate_or_fail(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_fail(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* room) noexcept {
  std::free(room);
}
void operator delete(void* room, std::size_t /*bytes*/) noexcept {
  std::free(room);
}
void operator delete(void* room, std::align_val_t /*alignment*/) noexcept {
  std::free(room);
}
void operator delete(void* room, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  std::free(room);
}

namespace far {
namespace random_program {
namespace {

void run_program(runtime& farheap, std::uint64_t seed) {
  {
    const scope first(farheap);  // the first of a thread or fiber needs memory, and cannot say that there is none
  }
  std::mt19937_64 random(seed);
  std::vector<std::unique_ptr<subject>> all;
  all.push_back(std::make_unique<vectors<solid, 16>>(random()));
  all.push_back(std::make_unique<vectors<solid, 2048>>(random()));
  all.push_back(std::make_unique<vectors<linked, 4>>(random()));
  all.push_back(std::make_unique<vectors<linked, 128>>(random()));
  all.push_back(std::make_unique<lists<solid>>(random()));
  all.push_back(std::make_unique<lists<linked>>(random()));
  all.push_back(std::make_unique<queues<solid>>(random()));
  all.push_back(std::make_unique<queues<linked>>(random()));
  all.push_back(std::make_unique<maps<solid>>(random()));
  all.push_back(std::make_unique<maps<linked>>(random()));
  all.push_back(std::make_unique<caches>(random()));
  all.push_back(std::make_unique<arrays_and_texts>(random()));
  for (unsigned step = 0; step < 1'500 && !testing::Test::HasFailure(); ++step) {
    subject& one = *all[random() % all.size()];
    one.step();
    if (step % 10 == 0) one.compare();
    if (step % 150 == 0) farheap.evict_all();
    if (step % 70 == 0) static_cast<void>(farheap.evacuate(0.2));
  }
  for (const auto& one : all) one->compare();
  // What destroys needs no memory.
  allocations_to_go = -1;
  all.clear();
  allocations_to_go = 0;
}

void run_seed(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  runtime_options chosen;
  chosen.local_bytes = (64 * kib) << random() % 4;
  chosen.workers = 1;  // so that a fiber stays on its thread, where allocations fail
  chosen.page_path_share = std::array{0.0, 0.5, 2.0}[random() % 3];
  chosen.evacuate_garbage_share = 0.3;
  runtime farheap(chosen);
  home = &farheap;
  if (random() % 2 == 0) {
    run_program(farheap, random());
  } else {
    farheap.spawn([&] { run_program(farheap, random()); }, {.stack_bytes = mib}).join();
  }
  farheap.validate();
  EXPECT_EQ(living, 0) << "elements were destroyed once each";
}

// FARHEAP_CONTAINER_SEED runs one again, FARHEAP_CONTAINER_SEEDS more than usual.
TEST(random_containers, do_what_those_of_std_do) {
  const char* const again = std::getenv("FARHEAP_CONTAINER_SEED");
  const char* const more = std::getenv("FARHEAP_CONTAINER_SEEDS");
  const std::uint64_t first = again == nullptr ? 1 : std::strtoull(again, nullptr, 10);
  const std::uint64_t count = again != nullptr ? 1 : more != nullptr ? std::strtoull(more, nullptr, 10) : 8;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("FARHEAP_CONTAINER_SEED=" + std::to_string(seed));
    run_seed(seed);
    ASSERT_FALSE(HasFailure());
  }
}

}  // namespace
}  // namespace random_program
}  // namespace far
