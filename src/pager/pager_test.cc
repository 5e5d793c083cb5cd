// The pager on the real kernel: every test runs in both fault modes. Needs permission for userfaultfd.
#include "pager/pager.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <list>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/sanitizers.h"
#include "base/units.h"
#include "pager/miss_observer.h"
#include "platform/advice.h"
#include "platform/kernel_features.h"
#include "platform/signal_shield.h"

namespace far::pager {
namespace {

constexpr std::uint64_t budget = 16 * mib;

std::uint64_t content_of(const void* address, std::uint64_t salt) {
  return (reinterpret_cast<std::uintptr_t>(address) ^ salt) * 0x9e3779b97f4a7c15u;
}

class miss_counter final : public miss_observer {
 public:
  void missed(const observed_miss& one) noexcept override { ++counts_[static_cast<std::size_t>(one.cause)]; }
  [[nodiscard]] std::uint64_t seen(observed_miss::kind kind) const { return counts_[static_cast<std::size_t>(kind)]; }

 private:
  std::array<std::atomic<std::uint64_t>, 4> counts_{};
};

class pager_test : public ::testing::TestWithParam<std::tuple<fault_mode, const char*>> {
 protected:
  void SetUp() override {
    if (!platform::probe_kernel().userfaultfd) {
      GTEST_SKIP() << "no userfaultfd: " << std::strerror(platform::probe_kernel().userfaultfd_error_code);
    }
    options chosen;
    chosen.budget_bytes = budget;
    chosen.mode = std::get<0>(GetParam());
    chosen.far_uri = std::get<1>(GetParam());
    chosen.observer = &observed_;
    result<std::unique_ptr<pager>> created = pager::create(chosen);
    ASSERT_TRUE(created.ok()) << created.error().message;
    pager_ = std::move(created).value();
  }

  std::byte* map(std::size_t bytes) {
    const result<std::byte*> mapped = pager_->map(bytes, PROT_READ | PROT_WRITE, page_bytes);
    EXPECT_TRUE(mapped.ok());
    return mapped.value();
  }

  static void fill(std::byte* start, std::size_t bytes, std::uint64_t salt) {
    for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
      *reinterpret_cast<std::uint64_t*>(start + at) = content_of(start + at, salt);
    }
  }
  static void verify(const std::byte* start, std::size_t bytes, std::uint64_t salt, std::ptrdiff_t moved_by = 0) {
    for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
      if (*reinterpret_cast<const std::uint64_t*>(start + at) != content_of(start + at - moved_by, salt)) FAIL() << at;
    }
  }

  miss_counter observed_;
  std::unique_ptr<pager> pager_;
};

// The thread of this process with that name, or 0.
pid_t thread_named(const std::string& name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string found;
    if (std::getline(file, found) && found == name) return std::stoi(task.path().filename());
  }
  return 0;
}

// The kernel wakes the thread that missed before it returns to the one that resolves the miss. Where that one then does
// not run, pages stay half resolved.
TEST_P(pager_test, validation_waits_for_the_thread_that_resolves_misses) {
  const pid_t resolver = thread_named("farheap-fault");
  ASSERT_EQ(resolver != 0, std::get<0>(GetParam()) == fault_mode::thread);
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  if (resolver != 0) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    ASSERT_EQ(sched_setaffinity(resolver, sizeof one, &one), 0);
    const sched_param no_priority{};
    ASSERT_EQ(sched_setscheduler(resolver, SCHED_IDLE, &no_priority), 0);
  }
  std::byte* const block = map(4 * mib);
  fill(block, page_bytes, 1);
  pager_->evict(block, page_bytes);  // from here on the block is guarded
  constexpr std::size_t pages = 6;   // few, because the thread waits for a second each time where others compute
  for (std::size_t page = 1; page < pages; ++page) {
    block[page * page_bytes] = std::byte{1};
    pager_->validate();
  }
  pager_->evict(block, pages * page_bytes);
  for (std::size_t page = 1; page < pages; ++page) {
    EXPECT_EQ(block[page * page_bytes], std::byte{1});
    pager_->validate();
    block[page * page_bytes] = std::byte{2};
    pager_->validate();
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

// Nobody tells the pager: docs/decisions/0022 says when.
TEST_P(pager_test, read_only_memory_that_was_dropped_unseen_can_be_evicted) {
  std::byte* const block = map(4 * mib);
  fill(block, 4 * mib, 1);
  ASSERT_TRUE(pager_->protect(block, 4 * mib, PROT_READ).ok());
  pager_->evict(block, page_bytes);  // from here on the block is guarded, and its pages are resident
  ASSERT_EQ(madvise(block + mib, mib, MADV_DONTNEED), 0);
  pager_->evict(block, 4 * mib);
  verify(block, mib, 1);
  verify(block + 2 * mib, 2 * mib, 1);
  for (std::size_t at = mib; at < 2 * mib; ++at) ASSERT_EQ(block[at], std::byte{0}) << at;
  pager_->validate();
}

TEST_P(pager_test, calls_about_memory_of_the_kernels_reach_it_alone) {
  std::byte* const block = map(4 * mib);
  constexpr int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED;
  const auto place = [=] { return mmap(block + mib, mib, PROT_READ, flags, -1, 0) != MAP_FAILED ? 0 : errno; };
  ASSERT_TRUE(pager_->hand_over(block + mib, mib, pager::overlap::replace, place).ok());
  std::vector<std::byte*> called;
  const auto note = [&](std::byte* part, std::size_t /*bytes*/) { return called.push_back(part), 0; };
  EXPECT_TRUE(pager_->for_each_foreign(block, 4 * mib, note).ok());
  EXPECT_EQ(called, std::vector{block + mib});
}

TEST_P(pager_test, memory_that_is_unlocked_before_it_is_filled_stays_so) {
  constexpr unsigned on_fault = 1;
  std::byte* const block = pager_->map(2 * mib, PROT_READ | PROT_WRITE, page_bytes).value();
  if (!pager_->lock(block, 2 * mib, on_fault).ok()) GTEST_SKIP() << "no permission for mlock";
  ASSERT_TRUE(pager_->unlock(block, mib).ok());
  EXPECT_TRUE(pager_->fill_locked(block, 2 * mib).ok());
  EXPECT_FALSE(pager_->mapping_at(block, mib).value().locked);
  EXPECT_TRUE(pager_->mapping_at(block + mib, mib).value().locked);
}

// In inline mode the kernel then finds nobody who fills the page, says so, and has locked the range all the same.
TEST_P(pager_test, memory_that_the_kernel_could_not_fill_counts_as_locked) {
  std::byte* const block = map(4 * mib);
  fill(block, 4 * mib, 1);
  pager_->evict(block, page_bytes);  // from here on the block is guarded
  ASSERT_EQ(madvise(block + mib, page_bytes, MADV_DONTNEED), 0);
  const result<void> locked = pager_->lock(block, 2 * mib, 0);
  EXPECT_EQ(locked.ok(), std::get<0>(GetParam()) == fault_mode::thread);
  if (!locked.ok()) {
    EXPECT_EQ(locked.error().code, ENOMEM);
  }
  EXPECT_TRUE(pager_->mapping_at(block, 2 * mib).value().locked);
  EXPECT_FALSE(pager_->advise(block, mib, MADV_DONTNEED).ok());
  // Locked or not, it can be reserved, unmapped page by page, and mapped again.
  EXPECT_TRUE(pager_->protect(block, 2 * mib, PROT_NONE).ok());
  EXPECT_TRUE(pager_->unmap(block + page_bytes, 2 * mib - page_bytes).ok());
  EXPECT_TRUE(pager_->unmap(block, page_bytes).ok());
  const result<void> again = pager_->map_at(block, 2 * mib, PROT_READ | PROT_WRITE, pager::overlap::refuse);
  EXPECT_TRUE(again.ok());
  EXPECT_TRUE(pager_->advise(block, mib, MADV_DONTNEED).ok());
  for (std::size_t at = 0; at < 2 * mib; at += page_bytes) ASSERT_EQ(block[at], std::byte{0}) << at;
  verify(block + 2 * mib, 2 * mib, 1);
  pager_->validate();
}

// The kernel, too, would refuse to make it writable.
TEST_P(pager_test, memory_that_may_only_be_read_is_populated_for_reads) {
  std::byte* const block = pager_->map(mib, PROT_READ, page_bytes).value();
  ASSERT_TRUE(pager_->advise(block, mib, MADV_POPULATE_READ).ok());
  std::array<unsigned char, mib / page_bytes> present{};
  ASSERT_EQ(mincore(block, mib, present.data()), 0);
  EXPECT_EQ(std::count_if(present.begin(), present.end(), [](unsigned char page) { return (page & 1) == 0; }), 0);
  const result<void> for_writes = pager_->advise(block, mib, MADV_POPULATE_WRITE);
  EXPECT_EQ(for_writes.ok() ? 0 : for_writes.error().code, EINVAL);
  pager_->validate();
}

TEST_P(pager_test, what_is_unmapped_while_another_thread_protects_it_is_unmapped) {
  for (int round = 0; round < 300; ++round) {
    std::byte* const block = map(64 * page_bytes);
    std::atomic<bool> began{false};
    std::thread other([&] {
      for (int protection : {PROT_READ, PROT_NONE, PROT_READ, PROT_NONE, PROT_READ, PROT_NONE}) {
        static_cast<void>(pager_->protect(block, 64 * page_bytes, protection));
        began = true;
      }
    });
    while (!began) std::this_thread::yield();
    EXPECT_TRUE(pager_->unmap(block, 64 * page_bytes).ok());
    other.join();
    ASSERT_FALSE(pager_->mapping_at(block, page_bytes).ok()) << "round " << round;
  }
}

// PROT_* that the kernel has for a page.
int kernel_protection(const std::byte* page) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t first = 0;
    std::uintptr_t end = 0;
    char access[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &first, &end, access) != 3) continue;
    const auto address = reinterpret_cast<std::uintptr_t>(page);
    if (address >= first && address < end) {
      return (access[0] == 'r' ? PROT_READ : 0) | (access[1] == 'w' ? PROT_WRITE : 0);
    }
  }
  return -1;
}

TEST_P(pager_test, mappings_over_each_other_leave_the_protection_of_one_of_them) {
  constexpr std::size_t count = 24;
  std::byte* const block = map(count * page_bytes);
  for (int round = 0; round < (has_address_sanitizer ? 100 : 300); ++round) {
    std::atomic<int> ready{0};
    const auto map_over = [&](std::size_t first, std::size_t pages, int protection) {
      ready.fetch_add(1);
      while (ready < 2) std::this_thread::yield();
      for (int i = 0; i < 20; ++i) {
        EXPECT_TRUE(
            pager_->map_at(block + first * page_bytes, pages * page_bytes, protection, pager::overlap::replace).ok());
      }
    };
    std::thread other(map_over, 8, 16, PROT_READ);
    map_over(0, 16, PROT_READ | PROT_WRITE);
    other.join();
    for (std::size_t i = 0; i < count; ++i) {
      const std::byte* const page = block + i * page_bytes;
      ASSERT_EQ(pager_->mapping_at(page, page_bytes).value().protection, kernel_protection(page))
          << "page " << i << ", round " << round;
    }
  }
  pager_->validate();
}

// On machines without protection keys, too: the kernel refuses a key that was freed like one that never was.
TEST_P(pager_test, memory_whose_protection_key_was_freed_can_be_protected) {
  constexpr int freed = 9;
  std::byte* const block = pager_->map(2 * mib, PROT_NONE, page_bytes).value();
  ASSERT_TRUE(pager_->protect_with_key(block, 2 * mib, PROT_NONE, freed).ok()) << "of a reservation it is only noted";
  EXPECT_TRUE(pager_->protect(block, 2 * mib, PROT_READ | PROT_WRITE).ok());
  fill(block, 2 * mib, 1);
  EXPECT_TRUE(pager_->protect(block, mib, PROT_READ).ok());
  EXPECT_TRUE(pager_->advise(block + mib, mib, MADV_GUARD_INSTALL).ok());
  EXPECT_TRUE(pager_->advise(block + mib, mib, MADV_GUARD_REMOVE).ok());
  EXPECT_EQ(kernel_protection(block), PROT_READ);
  EXPECT_EQ(kernel_protection(block + mib), PROT_READ | PROT_WRITE);
  verify(block, mib, 1);
  pager_->validate();
}

TEST_P(pager_test, memory_that_fits_costs_nothing) {
  std::byte* const block = map(8 * mib);
  fill(block, 8 * mib, 1);
  verify(block, 8 * mib, 1);
  const engine::statistics seen = pager_->snapshot();
  EXPECT_EQ(seen.misses + seen.zero_fills + seen.evicted_pages, 0u);
  EXPECT_GE(seen.local_bytes, 8 * mib);
}

TEST_P(pager_test, an_observer_is_told_first_touches_from_fetches) {
  constexpr std::size_t bytes = 2 * budget;
  std::byte* const block = map(bytes);
  fill(block, bytes, 8);
  const std::uint64_t touched = observed_.seen(observed_miss::kind::first_touch);
  EXPECT_GT(touched, 0u);
  EXPECT_EQ(observed_.seen(observed_miss::kind::read), 0u);
  pager_->evict(block, bytes);
  verify(block, bytes, 8);
  EXPECT_GT(observed_.seen(observed_miss::kind::read), 0u);
  EXPECT_EQ(observed_.seen(observed_miss::kind::first_touch), touched);
  // Its content is forgotten, so that there is nothing to fetch again.
  ASSERT_TRUE(pager_->discard(block, page_bytes).ok());
  EXPECT_EQ(*reinterpret_cast<volatile std::uint64_t*>(block), 0u);
  EXPECT_EQ(observed_.seen(observed_miss::kind::first_touch), touched + 1);
}

TEST_P(pager_test, four_times_the_budget_keeps_every_byte) {
  constexpr std::size_t bytes = 4 * budget;
  std::byte* const block = map(bytes);
  fill(block, bytes, 2);
  verify(block, bytes, 2);
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i) {
    std::byte* const at = block + random() % (bytes / 8) * 8;
    ASSERT_EQ(*reinterpret_cast<std::uint64_t*>(at), content_of(at, 2));
  }
  const engine::statistics seen = pager_->snapshot();
  EXPECT_LE(seen.peak_local_bytes, budget + 64 * page_bytes);
  EXPECT_GT(seen.misses, 0u);
  EXPECT_GT(seen.prefetch_hits, 0u);
  EXPECT_EQ(seen.over_budget_pages, 0u);
}

TEST_P(pager_test, clean_pages_are_not_written_again) {
  constexpr std::size_t bytes = 3 * budget;
  std::byte* const block = map(bytes);
  fill(block, bytes, 4);
  verify(block, bytes, 4);
  pager_->evict(block, bytes);
  const std::uint64_t written = pager_->snapshot().written_pages;
  verify(block, bytes, 4);
  verify(block, bytes, 4);
  pager_->evict(block, bytes);
  EXPECT_EQ(pager_->snapshot().written_pages, written);
  EXPECT_GT(pager_->snapshot().clean_evictions, 0u);
}

TEST_P(pager_test, a_write_to_a_clean_page_is_kept) {
  std::byte* const block = map(mib);
  fill(block, mib, 5);
  for (std::uint64_t salt = 6; salt < 12; ++salt) {
    pager_->evict(block, mib);
    verify(block, mib, salt - 1);  // in again, clean
    fill(block, mib, salt);
  }
  pager_->evict(block, mib);
  verify(block, mib, 11);
  EXPECT_GT(pager_->snapshot().written_pages, 2 * mib / page_bytes);
}

TEST_P(pager_test, the_first_write_to_a_page_that_was_only_read_is_noticed) {
  std::byte* const block = map(2 * mib);
  pager_->evict(block, 2 * mib);  // nothing to evict, but from now on the block is guarded
  for (std::size_t at = 0; at < 2 * mib; at += page_bytes) ASSERT_EQ(block[at], std::byte{0});
  EXPECT_EQ(pager_->snapshot().write_faults, 0u);
  fill(block, 2 * mib, 12);
  EXPECT_GT(pager_->snapshot().write_faults, 0u);
  pager_->evict(block, 2 * mib);
  verify(block, 2 * mib, 12);
}

TEST_P(pager_test, discarded_memory_reads_as_zeros_wherever_it_was) {
  std::byte* const block = map(2 * mib);
  fill(block, 2 * mib, 7);
  pager_->evict(block, mib);
  ASSERT_TRUE(pager_->discard(block, 2 * mib));
  for (std::size_t at = 0; at < 2 * mib; at += 512) ASSERT_EQ(block[at], std::byte{0});
  ASSERT_TRUE(pager_->unmap(block, 2 * mib));
  EXPECT_EQ(pager_->snapshot().local_bytes, 0u);
  EXPECT_EQ(pager_->snapshot().far_bytes, 0u);
  pager_->validate();
}

TEST_P(pager_test, remap_moves_resident_and_remote_pages) {
  constexpr std::size_t bytes = 3 * mib;
  std::byte* const block = map(bytes);
  std::byte* const fence = map(mib);
  fill(block, bytes, 8);
  pager_->evict(block, bytes / 2);
  const std::uint64_t fetched = pager_->snapshot().fetched_pages;
  const result<std::byte*> moved = pager_->remap(block, bytes, 2 * bytes, {.may_move = true});
  ASSERT_TRUE(moved.ok());
  ASSERT_NE(moved.value(), block);
  EXPECT_EQ(pager_->snapshot().fetched_pages, fetched);
  verify(moved.value(), bytes, 8, moved.value() - block);
  EXPECT_EQ(moved.value()[2 * bytes - 1], std::byte{0});
  EXPECT_FALSE(pager_->remap(fence, mib, 64 * gib * 1024, {.may_move = true}).ok());
}

TEST_P(pager_test, the_budget_shrinks_and_grows) {
  ASSERT_TRUE(pager_->resize(64 * mib));
  std::byte* const block = map(48 * mib);
  fill(block, 48 * mib, 9);
  ASSERT_TRUE(pager_->resize(budget));
  for (int i = 0; i < 1000 && pager_->snapshot().local_bytes > budget; ++i) usleep(10000);
  EXPECT_LE(pager_->snapshot().local_bytes, budget);
  verify(block, 48 * mib, 9);
  EXPECT_FALSE(pager_->resize(1).ok());
}

TEST_P(pager_test, pinned_buffers_serve_system_calls) {
  std::byte* const block = map(mib);
  fill(block, mib, 10);
  pager_->evict(block, mib);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  pager_->pin(block, 3 * page_bytes);
  EXPECT_EQ(write(ends[1], block, 2 * page_bytes), static_cast<ssize_t>(2 * page_bytes));
  EXPECT_EQ(read(ends[0], block + page_bytes, 2 * page_bytes), static_cast<ssize_t>(2 * page_bytes));
  pager_->evict(block, mib);
  EXPECT_EQ(std::memcmp(block, block + page_bytes, page_bytes), 0);
  pager_->unpin(block, 3 * page_bytes);
  close(ends[0]);
  close(ends[1]);
}

TEST_P(pager_test, threads_on_shared_pages_lose_no_update) {
  constexpr std::size_t pages = 3 * budget / page_bytes;
  constexpr int rounds = has_address_sanitizer ? 5000 : 15000;
  std::byte* const block = map(pages * page_bytes);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([=] {
      std::mt19937_64 random(t);
      for (int i = 0; i < rounds; ++i) {
        auto* const number = reinterpret_cast<std::atomic<std::uint64_t>*>(block + random() % pages * page_bytes);
        number->fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::uint64_t sum = 0;
  for (std::size_t page = 0; page < pages; ++page) sum += *reinterpret_cast<std::uint64_t*>(block + page * page_bytes);
  EXPECT_EQ(sum, 4u * rounds);
  EXPECT_LE(pager_->snapshot().peak_local_bytes, budget + 64 * page_bytes);
}

std::uint64_t blocked_signals() {
  const std::uint64_t blocked = platform::block_signals();
  platform::restore_signals(blocked);
  return blocked;
}

// Each forks with a mask of its own, and one waits for the other to be done.
TEST(pager, threads_that_fork_at_once_keep_their_signal_masks) {
  if (!platform::probe_kernel().userfaultfd) GTEST_SKIP() << "no userfaultfd";
  result<std::unique_ptr<pager>> created = pager::create({.budget_bytes = budget, .far_uri = "memory:"});
  ASSERT_TRUE(created.ok()) << created.error().message;
  pager& tested = *created.value();
  const std::uint64_t own = blocked_signals();
  const std::uint64_t others = own | std::uint64_t{1} << (SIGUSR1 - 1);
  std::atomic<std::uint64_t> left_with{0};
  std::atomic<bool> begins{false};
  tested.prepare_fork();
  std::thread other([&] {
    platform::restore_signals(others);
    begins.store(true);
    tested.prepare_fork();
    tested.after_fork_in_parent();
    left_with.store(blocked_signals());
  });
  while (!begins.load()) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it is at the gate now, most probably
  tested.after_fork_in_parent();
  EXPECT_EQ(blocked_signals(), own);
  other.join();
  EXPECT_EQ(left_with.load(), others);
}

// A thread that begins an eviction and then waits for the child of its vfork, until go_on().
class held_up_thread {
 public:
  // It touches memory from `start` on, which is fresh, until an eviction begins.
  held_up_thread(const pager& tested, std::byte* start, std::size_t bytes) {
    EXPECT_EQ(pipe(go_on_), 0);
    thread_ = std::thread([this, &tested, start, bytes] {
      const auto slots = [&tested] { return tested.snapshot().far_bytes / page_bytes; };
      for (std::size_t at = 0; at < bytes; at += page_bytes) {
        const std::uint64_t before = slots();
        start[at] = std::byte{1};
        if (slots() > before + 32) break;  // a batch has 64 pages
      }
      // NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.vfork)
      const pid_t child = vfork();
      if (child == 0) {
        waits_.set_value();
        char byte;
        static_cast<void>(!read(go_on_[0], &byte, 1));
        _exit(0);
      }
      waitpid(child, nullptr, 0);
    });
  }
  ~held_up_thread() {
    EXPECT_EQ(write(go_on_[1], "", 1), 1);
    thread_.join();
    close(go_on_[0]);
    close(go_on_[1]);
  }
  [[nodiscard]] bool waits_within(std::chrono::seconds deadline) {
    return waits_.get_future().wait_for(deadline) == std::future_status::ready;
  }

 private:
  int go_on_[2] = {-1, -1};
  std::promise<void> waits_;
  std::thread thread_;
};

class held_up : public ::testing::TestWithParam<fault_mode> {};

// The kernel tells of an io_uring's transfer when the thread that submitted it runs on. Here more threads do not than
// there are batches of evictions.
TEST_P(held_up, threads_that_wait_for_vforked_children_stop_nobodys_evictions) {
  if (!platform::probe_kernel().userfaultfd) GTEST_SKIP() << "no userfaultfd";
  if (!platform::probe_kernel().io_uring) GTEST_SKIP() << "no io_uring";
  constexpr std::size_t thread_count = 40;
  constexpr std::size_t bytes = 2 * budget;
  constexpr std::size_t share = 2 * mib;
  constexpr std::chrono::seconds deadline{120};
  result<std::unique_ptr<pager>> created = pager::create(
      {.budget_bytes = budget, .far_uri = "file:", .mode = GetParam(), .where = options::eviction::at_miss});
  ASSERT_TRUE(created.ok()) << created.error().message;
  pager& tested = *created.value();
  std::byte* const block = tested.map(bytes, PROT_READ | PROT_WRITE, page_bytes).value();
  std::byte* const fresh = tested.map(thread_count * share, PROT_READ | PROT_WRITE, page_bytes).value();
  for (std::size_t at = 0; at < bytes; at += page_bytes) block[at] = std::byte{1};
  {
    std::list<held_up_thread> threads;
    while (threads.size() < thread_count) {
      threads.emplace_back(tested, fresh + threads.size() * share, share);
      ASSERT_TRUE(threads.back().waits_within(deadline)) << threads.size();
    }
    EXPECT_EQ(tested.snapshot().over_budget_pages, 0u);
    ASSERT_TRUE(tested.unmap(fresh, thread_count * share));
  }
  for (std::size_t at = 0; at < bytes; at += page_bytes) ASSERT_EQ(block[at], std::byte{1});
}

INSTANTIATE_TEST_SUITE_P(modes, held_up, ::testing::Values(fault_mode::thread, fault_mode::in_line));

TEST_P(pager_test, what_other_threads_have_pinned_can_leave_in_the_child) {
  constexpr std::size_t bytes = mib;
  std::byte* const others = map(bytes);
  std::byte* const own = map(bytes);
  for (std::byte* const block : {others, own}) {
    fill(block, bytes, 1);
    pager_->evict(block, bytes);
  }
  std::thread([&] { pager_->pin(others, bytes); }).join();
  pager_->pin(own, bytes);
  ASSERT_FALSE(pager_->is_away(others) || pager_->is_away(own));
  pager_->prepare_fork();
  const pid_t child = fork();
  if (child == 0) {
    const std::span<const std::byte> pinned(own, bytes);
    pager_->after_fork_in_child({&pinned, 1});
    const auto leave = [&](std::byte* block) {
      for (int round = 0; round < 5000 && !pager_->is_away(block); ++round) {
        pager_->evict(block, bytes);
        usleep(1000);  // its own far tier may have to be opened
      }
      return pager_->is_away(block);
    };
    if (!leave(others)) _exit(1);
    pager_->evict(own, bytes);
    if (pager_->is_away(own)) _exit(2);
    pager_->unpin(own, bytes);
    _exit(leave(own) ? 0 : 3);
  }
  pager_->after_fork_in_parent();
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  pager_->unpin(own, bytes);
  pager_->unpin(others, bytes);
}

TEST(pager, refuses_what_makes_no_sense) {
  options chosen;
  chosen.budget_bytes = mib;
  EXPECT_NE(pager::create(chosen).error().message.find("working minimum"), std::string::npos);
  chosen.budget_bytes = budget;
  chosen.far_uri = "nowhere:";
  EXPECT_FALSE(pager::create(chosen).ok());
  chosen.far_uri = "memory:";
  chosen.policy = "oracle";
  if (platform::probe_kernel().userfaultfd) {
    EXPECT_FALSE(pager::create(chosen).ok());
  }
  EXPECT_FALSE(parse_fault_mode("telepathy").ok());
  EXPECT_EQ(parse_fault_mode("auto").value(), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(modes, pager_test,
                         ::testing::Combine(::testing::Values(fault_mode::thread, fault_mode::in_line),
                                            ::testing::Values("memory:", "memory:?latency=5us&gbps=25", "file:")));

}  // namespace
}  // namespace far::pager
