// Moving pages out of the far heap on the real kernel. Needs permission for userfaultfd.
#include "platform/far_address_space.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/units.h"
#include "platform/kernel_features.h"
#include "tests/support/scarce_mappings.h"

namespace far::platform {
namespace {

constexpr std::uint64_t heap_bytes = 2 * mib;
constexpr std::size_t staging_pages = 16;

// With every feature that the kernel has, and without those that are not everywhere.
class far_address_space_test : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    kernel_features features = probe_kernel();
    if (!features.userfaultfd) {
      GTEST_SKIP() << "no userfaultfd: " << std::strerror(features.userfaultfd_error_code);
    }
    if (!features.write_protect) GTEST_SKIP() << "this kernel cannot write-protect pages by userfaultfd";
    if (!GetParam()) features.move = features.vectored_discard = false;
    faults_.emplace(userfaultfd::open(features, faults_are_signals()).value());
    base_ = far_address_space::reserve(heap_bytes).value();
    ASSERT_EQ(mprotect(base_, heap_bytes, PROT_READ | PROT_WRITE), 0);
    space_ = std::make_unique<far_address_space>(heap_layout(base_, heap_bytes), *faults_, features);
    ASSERT_TRUE(space_->guard({0, heap_bytes / page_bytes}).ok());
    staging_ = space_->map_staging(staging_pages);
    copies_.resize(staging_pages * page_bytes);
  }
  void TearDown() override {
    if (staging_ != nullptr) space_->unmap_staging(staging_, staging_pages);
    space_.reset();
    if (base_ != nullptr) far_address_space::release(base_, heap_bytes);
  }

  [[nodiscard]] virtual bool faults_are_signals() const { return true; }

  static std::byte content(page_id page) { return static_cast<std::byte>(page * 7 + 1); }

  void install(page_range range) {
    std::vector<std::byte> bytes(page_bytes);
    for (page_id page = range.first; page < range.end(); ++page) {
      std::fill(bytes.begin(), bytes.end(), content(page));
      int failure = 0;
      ASSERT_EQ(space_->install({page, 1}, bytes.data(), mapping::writable, &failure), 1u) << failure;
    }
  }
  bool is_filled(page_id page) {
    bool filled = false;
    space_->query_filled({page, 1}, {&filled, 1});
    return filled;
  }
  static bool holds(const std::byte* at, page_id page) {
    return std::all_of(at, at + page_bytes, [page](std::byte value) { return value == content(page); });
  }
  bool staging_holds(std::size_t position, page_id page) { return holds(staging_ + position * page_bytes, page); }
  bool copies_hold(std::size_t position, page_id page) { return holds(copies_.data() + position * page_bytes, page); }

  std::optional<userfaultfd> faults_;
  std::byte* base_ = nullptr;
  std::unique_ptr<far_address_space> space_;
  std::byte* staging_ = nullptr;
  std::vector<std::byte> copies_;
};

TEST_P(far_address_space_test, lifts_scattered_ranges_one_after_the_other) {
  const std::array<page_range, 3> ranges{{{3, 1}, {10, 4}, {200, 2}}};
  for (const page_range& range : ranges) install(range);
  install({11 + 3, 1});
  ASSERT_EQ(space_->lift_unused(ranges, copies_.data()), 7u);
  std::size_t position = 0;
  for (const page_range& range : ranges) {
    for (page_id page = range.first; page < range.end(); ++page, ++position) {
      EXPECT_TRUE(copies_hold(position, page)) << page;
      EXPECT_FALSE(is_filled(page)) << page;
    }
  }
  EXPECT_TRUE(is_filled(14)) << "a neighbour stays";
  install({10, 1});
  EXPECT_EQ(space_->lift_unused(std::array<page_range, 1>{{{10, 1}}}, copies_.data()), 1u) << "over another copy";
  EXPECT_TRUE(copies_hold(0, 10));
}

TEST_P(far_address_space_test, lifts_what_the_program_may_not_write_or_not_even_read) {
  const std::array<int, 4> protections{PROT_NONE, PROT_READ, PROT_READ | PROT_EXEC, PROT_READ | PROT_WRITE};
  for (std::size_t i = 0; i < protections.size(); ++i) {
    install({4 * i, 4});
    ASSERT_EQ(mprotect(base_ + 4 * i * page_bytes, 4 * page_bytes, protections[i]), 0);
  }
  std::size_t lifted = 0;
  while (lifted < 16) {
    const std::size_t more = space_->lift({lifted, 16 - lifted}, staging_ + lifted * page_bytes);
    ASSERT_GT(more, 0u) << "at page " << lifted;
    lifted += more;
  }
  for (page_id page = 0; page < 16; ++page) {
    EXPECT_TRUE(staging_holds(page, page)) << page;
    EXPECT_FALSE(is_filled(page)) << page;
  }
  // And back.
  int failure = 0;
  EXPECT_EQ(space_->install({0, 2}, staging_, mapping::writable, &failure), 2u) << failure;
  ASSERT_EQ(mprotect(base_, 2 * page_bytes, PROT_READ), 0);
  EXPECT_TRUE(holds(base_ + page_bytes, 1));
}

TEST_P(far_address_space_test, stops_at_a_locked_page_and_leaves_it) {
  const std::array<page_range, 3> ranges{{{3, 1}, {10, 4}, {200, 2}}};
  for (const page_range& range : ranges) install(range);
  // Straight to the kernel: sanitizers lock nothing.
  if (syscall(SYS_mlock, base_ + 12 * page_bytes, page_bytes) != 0) GTEST_SKIP() << "no permission for mlock";
  ASSERT_EQ(space_->lift_unused(ranges, copies_.data()), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(copies_hold(i, std::array<page_id, 3>{3, 10, 11}[i]));
  for (const page_id page : {3, 10, 11}) EXPECT_FALSE(is_filled(page)) << page;
  for (const page_id page : {12, 13, 200, 201}) {
    EXPECT_TRUE(is_filled(page)) << page;
    EXPECT_EQ(base_[page * page_bytes + 77], content(page));
  }
  ASSERT_EQ(syscall(SYS_munlock, base_ + 12 * page_bytes, page_bytes), 0);
  EXPECT_EQ(space_->lift_unused(std::array<page_range, 2>{{{12, 2}, {200, 2}}}, copies_.data()), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(copies_hold(i, std::array<page_id, 4>{12, 13, 200, 201}[i]));
  }
}

// By a call that the pager did not see.
TEST_P(far_address_space_test, moves_a_locked_page_and_leaves_nothing_behind) {
  install({5, 3});
  if (syscall(SYS_mlock, base_ + 6 * page_bytes, page_bytes) != 0) GTEST_SKIP() << "no permission for mlock";
  ASSERT_EQ(space_->relocate({5, 3}, 300), 3u);
  for (const page_id page : {5, 6, 7}) {
    EXPECT_FALSE(is_filled(page)) << page;
    EXPECT_TRUE(holds(base_ + (page + 295) * page_bytes, page));
  }
}

// As where the program has mapped a file over a page, past the pager.
TEST_P(far_address_space_test, a_range_is_guarded_as_a_whole_or_not_at_all) {
  const page_range all{0, heap_bytes / page_bytes};
  const page_id hole = 100;
  ASSERT_TRUE(space_->unguard(all));
  const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  void* const at = base_ + hole * page_bytes;
  ASSERT_EQ(mmap(at, page_bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0), at);
  close(file);
  const std::vector<std::byte> zeros(page_bytes);
  int refused = 0;
  int half_guarded = 0;
  bool is_guarded = false;
  {
    test::scarce_mappings others;
    if (!others.are_used_up()) GTEST_SKIP() << "vm.max_map_count is too high to be used up";
    while (!is_guarded && refused < 20) {
      is_guarded = space_->guard(all).ok();
      for (const page_id page : {all.first, hole - 1, hole + 1, all.end() - 1}) {
        int failure = 0;
        const bool has_page = space_->install({page, 1}, zeros.data(), mapping::writable, &failure) == 1;
        half_guarded += has_page != is_guarded || (!has_page && failure != ENOENT);
      }
      refused += is_guarded ? 0 : 1;
      others.give_back();
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_EQ(half_guarded, 0);
  EXPECT_TRUE(is_guarded);
  EXPECT_TRUE(space_->unguard(all));
}

// An access to an empty page waits until somebody resolves it. Here nobody does.
class far_address_space_unattended : public far_address_space_test {
 protected:
  [[nodiscard]] bool faults_are_signals() const override { return false; }
};

TEST_P(far_address_space_unattended, what_the_program_dropped_unseen_is_neither_lifted_nor_waited_for) {
  install({0, 4});
  // Such pages are copied on every kernel.
  ASSERT_EQ(mprotect(base_, 4 * page_bytes, PROT_READ), 0);
  ASSERT_EQ(syscall(SYS_madvise, base_ + 2 * page_bytes, page_bytes, MADV_DONTNEED), 0);
  std::future<std::size_t> lifted = std::async(std::launch::async, [this] { return space_->lift({0, 4}, staging_); });
  if (lifted.wait_for(std::chrono::minutes(1)) != std::future_status::ready) {
    ADD_FAILURE() << "it waits for the page";
    install({2, 1});  // ends that
  }
  ASSERT_EQ(lifted.get(), 2u);
  for (page_id page = 0; page < 2; ++page) {
    EXPECT_TRUE(staging_holds(page, page)) << page;
    EXPECT_FALSE(is_filled(page)) << page;
  }
  EXPECT_TRUE(holds(base_ + 3 * page_bytes, 3));
}

// A page that is copied must be out of the writer's reach before the copy, and until it is gone.
TEST_P(far_address_space_unattended, no_write_is_lost_while_pages_leave_and_come_back) {
  constexpr std::size_t pages = 4;
  constexpr unsigned rounds = 2000;
  using word = std::atomic<std::uint64_t>;
  std::vector<std::byte> bytes(pages * page_bytes);
  int failure = 0;
  ASSERT_EQ(space_->install({0, pages}, bytes.data(), mapping::writable, &failure), pages);
  std::atomic<bool> stopping = false;
  std::atomic<std::uint64_t> lost = 0;
  std::thread writer([&] {
    std::array<std::uint64_t, pages> written{};
    for (std::uint64_t value = 1; !stopping; ++value) {
      auto& first_word = *reinterpret_cast<word*>(base_ + value % pages * page_bytes);
      lost += first_word.load(std::memory_order_relaxed) != written[value % pages];
      first_word.store(written[value % pages] = value, std::memory_order_relaxed);
    }
  });
  std::size_t all_lifted = 0;
  for (unsigned round = 0; round < rounds && lost == 0; ++round) {
    const std::size_t lifted = space_->lift({0, pages}, staging_);
    all_lifted += lifted;
    std::memcpy(bytes.data(), staging_, lifted * page_bytes);
    space_->empty_staging(staging_, pages);
    EXPECT_EQ(space_->install({0, lifted}, bytes.data(), mapping::writable, &failure), lifted);
  }
  stopping = true;
  writer.join();
  EXPECT_GT(all_lifted, rounds) << "a quarter of them, at least";
  EXPECT_EQ(lost, 0u) << "a page came back without the last write to it";
}

// A machine that swaps, whatever this one does.
std::atomic<bool> has_swap = false;

// mincore(2) tells holes from swapped pages only where a userfaultfd is registered.
TEST_P(far_address_space_test, without_pagemap_what_may_be_swapped_out_counts_as_filled) {
  const page_range all{0, heap_bytes / page_bytes};
  kernel_features features = probe_kernel();
  features.pagemap = features.move = false;
  far_address_space blind(heap_layout(base_, heap_bytes), *faults_, features);
  const auto is_filled = [&blind](page_id page) {
    bool filled = false;
    blind.query_filled({page, 1}, {&filled, 1});
    return filled;
  };
  install({5, 1});
  EXPECT_TRUE(is_filled(5));
  EXPECT_FALSE(is_filled(6));
  has_swap = true;
  EXPECT_TRUE(is_filled(6)) << "zeros now";
  EXPECT_EQ(base_[6 * page_bytes], std::byte{0});
  ASSERT_TRUE(blind.unguard(all));
  EXPECT_TRUE(is_filled(7)) << "nobody can say";
  has_swap = false;
  EXPECT_FALSE(is_filled(7));
}

// While one thread splits a huge page, the kernel lets the other try again, after which kernels from 6.18 on forget to
// count what they move.
TEST_P(far_address_space_test, two_threads_lift_parts_of_a_huge_page_and_count_all_that_left) {
  constexpr page_range whole{0, heap_bytes / page_bytes};
  constexpr std::size_t threads = 2;
  constexpr std::size_t run = staging_pages / threads;
  std::array<std::size_t, threads> lifted_pages{};
  std::array<std::size_t, threads> miscounted{};
  for (int round = 0; round < 300; ++round) {
    ASSERT_TRUE(space_->unguard(whole));
    static_cast<void>(syscall(SYS_madvise, base_, heap_bytes, MADV_HUGEPAGE));
    for (page_id page = 0; page < whole.end(); ++page) {
      std::memset(base_ + page * page_bytes, static_cast<int>(content(page)), page_bytes);
    }
    ASSERT_TRUE(space_->guard(whole).ok());
    std::barrier start(threads);
    std::array<std::thread, threads> lifters;
    for (std::size_t who = 0; who < threads; ++who) {
      lifters[who] = std::thread([&, who] {
        std::byte* const staging = staging_ + who * run * page_bytes;
        start.arrive_and_wait();
        for (page_range part{who * run, run}; part.first < whole.end(); part.first += threads * run) {
          const std::size_t lifted = space_->lift(part, staging);
          lifted_pages[who] += lifted;
          std::array<bool, run> filled{};
          space_->query_filled(part, filled);
          for (std::size_t i = 0; i < run; ++i) {
            const bool left = !filled[i];
            const bool is_right = left == (i < lifted) && (!left || holds(staging + i * page_bytes, part.first + i));
            miscounted[who] += is_right ? 0 : 1;
          }
          space_->empty_staging(staging, run);
        }
      });
    }
    for (std::thread& lifter : lifters) lifter.join();
    ASSERT_EQ(space_->drop({&whole, 1}), 1u);
  }
  EXPECT_EQ(miscounted[0] + miscounted[1], 0u);
  EXPECT_GT(lifted_pages[0] + lifted_pages[1], whole.count * 150) << "half of them, at least";
}

INSTANTIATE_TEST_SUITE_P(kernels, far_address_space_test, testing::Bool(),
                         [](const auto& test) { return test.param ? "all_features" : "few_features"; });
INSTANTIATE_TEST_SUITE_P(kernels, far_address_space_unattended, testing::Bool(),
                         [](const auto& test) { return test.param ? "all_features" : "few_features"; });

}  // namespace
}  // namespace far::platform

// In place of the C library's.
extern "C" int sysinfo(struct sysinfo* about) noexcept {
  const long result = syscall(SYS_sysinfo, about);
  if (far::platform::has_swap) about->totalswap = 1;
  return static_cast<int>(result);
}
