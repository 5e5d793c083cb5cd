// Memory calls of two threads about the same memory, on the real kernel. Natively the kernel lets one of them through
// at a time; here, too, each finds all that the other has done, or nothing. Needs permission for userfaultfd.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>

#include "base/units.h"
#include "pager/pager.h"
#include "platform/kernel_features.h"

namespace far::pager {
namespace {

constexpr int both = PROT_READ | PROT_WRITE;
constexpr unsigned on_fault = 1;

// Calls `body` again and again until the scope ends.
class meanwhile {
 public:
  explicit meanwhile(const std::function<void()>& body)
      : thread_([this, body] {
          while (!ends_.load()) body();
        }) {}
  ~meanwhile() {
    ends_.store(true);
    thread_.join();
  }
  meanwhile(const meanwhile&) = delete;
  meanwhile& operator=(const meanwhile&) = delete;

 private:
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

// What the kernel has locked, in KiB.
long locked_kib() {
  std::ifstream status("/proc/self/status");
  std::string word;
  long number = -1;
  while (status >> word) {
    if (word == "VmLck:") status >> number;
  }
  return number;
}

class memory_races_test : public ::testing::TestWithParam<fault_mode> {
 protected:
  static constexpr std::size_t array_bytes = 4 * mib;

  void SetUp() override {
    if (!platform::probe_kernel().userfaultfd) {
      GTEST_SKIP() << "no userfaultfd: " << std::strerror(platform::probe_kernel().userfaultfd_error_code);
    }
    void* const place = mmap(nullptr, array_bytes + 2 * mib, both, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(place, MAP_FAILED);
    array_ = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(place), 2 * mib));
    const std::array<std::span<std::byte>, 1> arrays{std::span(array_, array_bytes)};
    result<std::unique_ptr<pager>> created =
        pager::create({.budget_bytes = 32 * mib, .mode = GetParam(), .static_memory = arrays});
    ASSERT_TRUE(created.ok()) << created.error().message;
    pager_ = std::move(created).value();
    std::byte* const probe = map(page_bytes);
    if (!pager_->lock(probe, page_bytes, on_fault).ok()) GTEST_SKIP() << "no permission for mlock";
    ASSERT_TRUE(pager_->unmap(probe, page_bytes).ok());
  }

  std::byte* map(std::size_t bytes) { return pager_->map(bytes, both, 2 * mib).value(); }

  std::byte* array_ = nullptr;
  std::unique_ptr<pager> pager_;
};

void fill(std::byte* at, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += page_bytes) at[i] = static_cast<std::byte>(i / page_bytes + 1);
}

bool is_filled(const std::byte* at, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += page_bytes) {
    if (at[i] != static_cast<std::byte>(i / page_bytes + 1)) return false;
  }
  return true;
}

// Locked pages cannot move, so a lock must not come in the middle of it.
TEST_P(memory_races_test, memory_is_moved_while_another_thread_locks_it) {
  constexpr std::size_t bytes = 64 * page_bytes;
  constexpr int rounds = 300;
  std::byte* const places = map(2 * bytes);
  ASSERT_TRUE(pager_->unmap(places + bytes, bytes).ok());
  fill(places, bytes);
  pager_->evict(places, page_bytes);  // from here on the block is guarded
  const long locked_before = locked_kib();
  {
    const meanwhile locking([&] {
      for (std::byte* const at : {places, places + bytes}) {
        static_cast<void>(pager_->lock(at, bytes, on_fault));  // it fails where nothing is
        static_cast<void>(pager_->unlock(at, bytes));
      }
    });
    std::byte* at = places;
    for (int round = 0; round < rounds; ++round) {
      std::byte* const other = at == places ? places + bytes : places;
      const result<std::byte*> moved = pager_->remap(at, bytes, bytes, {.may_move = true, .target = other});
      ASSERT_TRUE(moved.ok()) << moved.error().message << " in round " << round;
      ASSERT_EQ(moved.value(), other);
      ASSERT_TRUE(is_filled(other, bytes)) << round;
      at = other;
    }
  }
  // A move takes a lock along, as natively, so the last one may have brought one that nobody has taken away.
  for (std::byte* const at : {places, places + bytes}) static_cast<void>(pager_->unlock(at, bytes));
  EXPECT_EQ(locked_kib(), locked_before);
  pager_->validate();
}

// With its source in its hands a call must not wait for its target: the other would wait for this source.
TEST_P(memory_races_test, two_threads_move_in_opposite_directions) {
  constexpr std::size_t bytes = 16 * page_bytes;
  constexpr int rounds = 2000;
  std::byte* const places = map(2 * bytes);
  fill(places, bytes);
  std::atomic<int> moves{0};
  std::atomic<int> done{0};
  const auto move = [&](std::byte* from, std::byte* to) {
    for (int round = 0; round < rounds; ++round) {
      if (pager_->remap(from, bytes, bytes, {.may_move = true, .target = to}).ok()) ++moves;
    }
    ++done;
  };
  std::thread there(move, places, places + bytes);
  std::thread back(move, places + bytes, places);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (done.load() < 2 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // The threads could not be ended.
  if (done.load() < 2) std::fputs("two moves in opposite directions wait for each other\n", stderr), std::abort();
  there.join();
  back.join();
  EXPECT_GT(moves.load(), 0);
  // The one that came first has replaced the other's memory, and nothing is lost of it but that.
  EXPECT_NE(pager_->mapping_at(places, bytes).ok(), pager_->mapping_at(places + bytes, bytes).ok());
  pager_->validate();
}

// A thread that changes the protection has the memory out of the map for a moment. It puts it back as it was: locked.
TEST_P(memory_races_test, all_is_unlocked_while_another_thread_protects_it) {
  constexpr int rounds = 8000;
  std::byte* const mapped = map(2 * mib);
  const long locked_before = locked_kib();
  for (std::byte* const at : {mapped, array_}) {
    const meanwhile protecting([&] {
      static_cast<void>(pager_->protect(at, 2 * mib, PROT_READ));
      static_cast<void>(pager_->protect(at, 2 * mib, both));
    });
    for (int round = 0; round < rounds; ++round) {
      ASSERT_TRUE(pager_->lock(at, 2 * mib, on_fault).ok());
      pager_->unlock_all();
      ASSERT_FALSE(pager_->mapping_at(at, 2 * mib).value().locked) << (at == mapped ? "mapped" : "static") << round;
    }
  }
  EXPECT_EQ(locked_kib(), locked_before);
}

INSTANTIATE_TEST_SUITE_P(modes, memory_races_test, ::testing::Values(fault_mode::thread, fault_mode::in_line));

}  // namespace
}  // namespace far::pager
